//! What there is at a server of a file that is to be sent: the groups that have come, and the file
//! of that name.

use super::talk::{Line, Reply, request, taken};
use crate::copy::error::{Error, Trouble};
use crate::group::{Value, count};
use crate::journal;
use crate::partial::bytes_of;
use sprat_http::client::Head;
use sprat_http::{Address, LENGTH, UPLOAD, UPLOADED};
use std::collections::BTreeMap;
use std::time::SystemTime;

/// What a server has.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Groups of this upload.
    pub(super) groups: BTreeMap<u64, Value>,
    /// A group of which a beginning is there, and how many bytes.
    pub(super) begun: Option<(u64, u64)>,
    /// The file that has the name.
    pub(super) there: Option<There>,
}

/// A file at a server.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct There {
    pub(super) tag: String,
    pub(super) length: Option<u64>,
    pub(super) modified: Option<SystemTime>,
}

/// When a file may have its name.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Condition {
    /// Nothing has it.
    Nothing,
    /// This state of a file has it, and is replaced.
    Replaces(String),
}

impl Condition {
    /// As a field of a request.
    pub(super) fn field(&self) -> (&str, &str) {
        match self {
            Self::Nothing => ("If-None-Match", "*"),
            Self::Replaces(tag) => ("If-Match", tag),
        }
    }
}

/// Asks.
pub(super) fn ask(
    line: &mut Line<'_>,
    to: &Address,
    tag: &str,
    length: u64,
) -> Result<Told, Trouble> {
    let bytes = length.to_string();
    let head = request("GET", to, &[("Accept", UPLOADED), (UPLOAD, tag), (LENGTH, &bytes)]);
    let reply = line.call(to, &head, most_told(length))?;
    let Reply { head, body } = taken(to, reply)?;
    judge(&head, &body, tag, length)
        .map_err(|why| Error::Protocol { source_name: to.to_string(), why }.into())
}

/// The same of a name that may be a directory's, in which the file then keeps its own. Gives where
/// it goes.
pub(super) fn ask_around(
    line: &mut Line<'_>,
    to: &Address,
    name: Option<&str>,
    tag: &str,
    length: u64,
) -> Result<(Address, Told), Trouble> {
    let bytes = length.to_string();
    let head = request("GET", to, &[("Accept", UPLOADED), (UPLOAD, tag), (LENGTH, &bytes)]);
    let reply = line.call(to, &head, most_told(length))?;
    let folder =
        reply.head.location.as_deref().filter(|at| reply.head.status == 301 && at.ends_with('/'));
    let Some(folder) = folder else {
        let Reply { head, body } = taken(to, reply)?;
        let told = judge(&head, &body, tag, length);
        let told = told
            .map_err(|why| Trouble::from(Error::Protocol { source_name: to.to_string(), why }))?;
        return Ok((to.clone(), told));
    };
    let Some(name) = name else {
        return Err(Error::Usage(format!(
            "{to}: is a directory; say what the file is to be called"
        ))
        .into());
    };
    let to = to.with_path(&format!("{folder}{name}"), None);
    let told = ask(line, &to, tag, length)?;
    Ok((to, told))
}

/// Whether there is a directory of that name.
pub(super) fn is_folder(line: &mut Line<'_>, to: &Address) -> Result<bool, Trouble> {
    let head = request("GET", to, &[("Accept", UPLOADED), (UPLOAD, "none"), (LENGTH, "0")]);
    let reply = line.call(to, &head, most_told(0))?;
    match reply.head.status {
        301 => Ok(true),
        // Nor is there one above it: both are made.
        409 => Ok(false),
        _ => taken(to, reply).map(|_| false),
    }
}

/// What an answer tells.
fn judge(head: &Head, body: &[u8], tag: &str, length: u64) -> Result<Told, String> {
    if head.kind != UPLOADED {
        return Err("does not take files in parts; `sprat share --writable` does".to_owned());
    }
    let parsed = journal::parse(body).ok_or("what it tells of the upload makes no sense")?;
    let same = parsed.identity.validator == tag
        && parsed.identity.length == length
        && parsed.whole == body.len();
    if !same || parsed.groups.len() as u64 > count(length) {
        return Err("it tells of another upload".to_owned());
    }
    let there =
        head.tag.clone().map(|tag| There { tag, length: head.there, modified: head.changed });
    let fits =
        |(group, bytes): &(u64, u64)| *group < count(length) && *bytes < bytes_of(length, *group);
    let begun = head.begun.filter(|begun| fits(begun) && !parsed.groups.contains_key(&begun.0));
    Ok(Told { groups: parsed.groups, begun, there })
}

/// Most bytes that a server tells of an upload.
fn most_told(length: u64) -> u64 {
    (64 << 10) + count(length).saturating_mul(64)
}
