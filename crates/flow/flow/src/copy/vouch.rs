//! Requests values of groups from a source, 32 bytes for each megabyte, to find out which groups
//! the source has.
//!
//! With these values a fetch can resume from another host, or after the entity tag has changed.

use super::answer::{FileRequest, Form};
use super::client::{Client, Reply};
use super::error::{Error, Trouble, fault};
use super::host::RemoteFile;
use crate::group::{self, GROUP_BYTES, Value, count};
use sprat_http::client::{Body, Wire};
use sprat_http::{Address, Cancel};
use std::collections::BTreeMap;
use std::ops::Range;

/// The largest number of unneeded groups between two groups whose values are requested together.
/// The values of the groups between them cost less than another request.
const MAX_GAP: u64 = 64;

/// Returns those of `groups` that have other values at the source. The file has `length` bytes.
/// `None` if the source states no values.
pub(super) fn differing(
    client: &Client,
    source: &RemoteFile,
    length: u64,
    groups: &BTreeMap<u64, Value>,
    cancel: &Cancel,
) -> Result<Option<Vec<u64>>, Trouble> {
    let mut kept = None;
    let mut differing = Vec::new();
    for run in runs(groups) {
        let file_request = values_request(source, &run, length);
        let mut reply = match client.ask(&source.address, &file_request, kept.take(), cancel) {
            Ok(reply) => reply,
            Err(Trouble::Fatal(Error::Protocol { .. })) => return Ok(None),
            Err(trouble) => return Err(trouble),
        };
        let mut body = Body::new(&mut reply.wire, reply.start.framing);
        for group in run {
            let mut value = [0; 32];
            body.fill_both(&mut value, &mut [])
                .map_err(|error| fault(&source.address.to_string(), error))?;
            if groups.get(&group).is_some_and(|had| *had != value) {
                differing.push(group);
            }
        }
        kept = (body.is_over() && !reply.head.close).then_some(reply.wire);
    }
    Ok(Some(differing))
}

/// Creates the request for the values of a run of groups.
pub(super) fn values_request(source: &RemoteFile, run: &Range<u64>, length: u64) -> FileRequest {
    FileRequest {
        range: Some(run.start * GROUP_BYTES..length.min(run.end * GROUP_BYTES)),
        length: Some(length),
        validator: source.validator.clone(),
        form: Some(Form::Values),
        ..FileRequest::default()
    }
}

/// Fetches the values of all groups of a file, on the connection `kept` if possible. If `wanted` is
/// given, the hash that the values yield must be `wanted`.
pub(super) fn fetch_values(
    client: &Client,
    file: &Address,
    length: u64,
    wanted: Option<&Value>,
    kept: &mut Option<Wire>,
    cancel: &Cancel,
) -> Result<Vec<Value>, Trouble> {
    if length == 0 {
        return Ok(Vec::new());
    }
    let source = RemoteFile { address: file.clone(), verified: true, validator: None };
    let file_request = values_request(&source, &(0..count(length)), length);
    let Reply { mut wire, head, start } = client.ask(file, &file_request, kept.take(), cancel)?;
    let mut body = Body::new(&mut wire, start.framing);
    let mut values = Vec::new();
    for _ in 0..count(length) {
        let mut value = [0; 32];
        body.fill_both(&mut value, &mut []).map_err(|error| fault(&file.to_string(), error))?;
        values.push(value);
    }
    let is_over = body.is_over();
    *kept = (is_over && !head.close).then_some(wire);
    if wanted.is_some_and(|wanted| group::root(&values) != *wanted) {
        let why = "is not the piece that the list describes".to_owned();
        return Err(Error::Corrupt { source_name: file.to_string(), why }.into());
    }
    Ok(values)
}

/// Joins groups to runs that contain only small gaps.
fn runs(groups: &BTreeMap<u64, Value>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for group in groups.keys() {
        match runs.last_mut() {
            Some(run) if group - run.end <= MAX_GAP => run.end = group + 1,
            _ => runs.push(*group..group + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_lie_together_are_one_request() {
        let groups = [0, 1, 2, 60, 200, 265, 267].map(|group| (group, [0; 32]));
        assert_eq!(runs(&BTreeMap::from(groups)), [0..61, 200..268]);
        assert_eq!(runs(&BTreeMap::new()), []);
    }
}
