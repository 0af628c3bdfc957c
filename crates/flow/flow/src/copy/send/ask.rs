//! Queries a server about a file that is to be sent: which groups it has received so far, and which
//! file already has the name.

use super::talk::{Connection, Reply, check_accepted, request};
use crate::copy::error::{Error, Trouble};
use crate::group::{Value, count};
use crate::journal;
use crate::partial::bytes_of;
use sprat_http::client::Head;
use sprat_http::{Address, LENGTH, UPLOAD, UPLOADED};
use std::collections::BTreeMap;
use std::time::SystemTime;

/// What a server has received of an upload, and the file that already has the name.
#[derive(Debug, Default)]
pub(super) struct UploadState {
    /// Groups of this upload that the server has.
    pub(super) groups: BTreeMap<u64, Value>,
    /// A group that the server has in part: its index, and how many bytes of it.
    pub(super) begun: Option<(u64, u64)>,
    /// The file that already has the name.
    pub(super) there: Option<ExistingFile>,
}

/// A file on a server.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExistingFile {
    pub(super) tag: String,
    pub(super) length: Option<u64>,
    pub(super) modified: Option<SystemTime>,
}

/// The condition under which the server gives an uploaded file its name.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Condition {
    /// No file has the name.
    Nothing,
    /// A file in this state has the name, and will be replaced.
    Replaces(String),
}

impl Condition {
    /// Returns the header field that states the condition.
    pub(super) fn field(&self) -> (&str, &str) {
        match self {
            Self::Nothing => ("If-None-Match", "*"),
            Self::Replaces(tag) => ("If-Match", tag),
        }
    }
}

/// Queries the state of an upload to `to`.
pub(super) fn ask(
    connection: &mut Connection<'_>,
    to: &Address,
    tag: &str,
    length: u64,
) -> Result<UploadState, Trouble> {
    let bytes = length.to_string();
    let head = request("GET", to, &[("Accept", UPLOADED), (UPLOAD, tag), (LENGTH, &bytes)]);
    let reply = connection.call(to, &head, max_state_bytes(length))?;
    let Reply { head, body } = check_accepted(to, reply)?;
    judge(&head, &body, tag, length)
        .map_err(|why| Error::Protocol { source_name: to.to_string(), why }.into())
}

/// Queries the state of an upload to a path that may be a directory. In a directory the file keeps
/// its own name. Also returns the address of the file.
pub(super) fn ask_following(
    connection: &mut Connection<'_>,
    to: &Address,
    name: Option<&str>,
    tag: &str,
    length: u64,
) -> Result<(Address, UploadState), Trouble> {
    let bytes = length.to_string();
    let head = request("GET", to, &[("Accept", UPLOADED), (UPLOAD, tag), (LENGTH, &bytes)]);
    let reply = connection.call(to, &head, max_state_bytes(length))?;
    let folder =
        reply.head.location.as_deref().filter(|at| reply.head.status == 301 && at.ends_with('/'));
    let Some(folder) = folder else {
        let Reply { head, body } = check_accepted(to, reply)?;
        let state = judge(&head, &body, tag, length);
        let state = state
            .map_err(|why| Trouble::from(Error::Protocol { source_name: to.to_string(), why }))?;
        return Ok((to.clone(), state));
    };
    let Some(name) = name else {
        return Err(Error::Usage(format!("{to}: is a directory; name the destination file")).into());
    };
    let to = to.with_path(&format!("{folder}{name}"), None);
    let state = ask(connection, &to, tag, length)?;
    Ok((to, state))
}

/// Returns whether the server has a directory at this path.
pub(super) fn is_folder(connection: &mut Connection<'_>, to: &Address) -> Result<bool, Trouble> {
    let head = request("GET", to, &[("Accept", UPLOADED), (UPLOAD, "none"), (LENGTH, "0")]);
    let reply = connection.call(to, &head, max_state_bytes(0))?;
    match reply.head.status {
        301 => Ok(true),
        // The directory above is missing too. The upload creates both.
        409 => Ok(false),
        _ => check_accepted(to, reply).map(|_| false),
    }
}

/// Parses the response to a query.
fn judge(head: &Head, body: &[u8], tag: &str, length: u64) -> Result<UploadState, String> {
    if head.kind != UPLOADED {
        return Err("does not accept uploads in parts; `sprat share --writable` does".to_owned());
    }
    let parsed = journal::parse(body).ok_or("the state of the upload that it sent is malformed")?;
    let same = parsed.identity.validator == tag
        && parsed.identity.length == length
        && parsed.whole == body.len();
    if !same || parsed.groups.len() as u64 > count(length) {
        return Err("it sent the state of another upload".to_owned());
    }
    let there = head.tag.clone().map(|tag| ExistingFile {
        tag,
        length: head.existing_length,
        modified: head.changed,
    });
    let fits =
        |(group, bytes): &(u64, u64)| *group < count(length) && *bytes < bytes_of(length, *group);
    let begun = head.begun.filter(|begun| fits(begun) && !parsed.groups.contains_key(&begun.0));
    Ok(UploadState { groups: parsed.groups, begun, there })
}

/// Returns the longest acceptable response to a query, in bytes.
fn max_state_bytes(length: u64) -> u64 {
    (64 << 10) + count(length).saturating_mul(64)
}
