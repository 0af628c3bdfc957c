//! Fetches and stores the list of a set.

use super::manifest::{MAX_LIST, Manifest};
use crate::copy::answer::{FileRequest, Form};
use crate::copy::client::{Client, Reply, wrong};
use crate::copy::error::{Error, Trouble, fault};
use crate::copy::send::lane::MAX_ANSWER;
use crate::copy::send::talk::{Connection, check_accepted, request};
use crate::group::{self, VERIFIED, count};
use sprat_http::client::Body;
use sprat_http::{Address, Cancel};

/// Fetches a list. `None` if there is no list.
pub(super) fn fetch(
    client: &Client,
    list: &Address,
    cancel: &Cancel,
) -> Result<Option<Manifest>, Trouble> {
    let file_request = FileRequest { form: Some(Form::Plain), ..FileRequest::default() };
    let (address, reply) = match client.ask_following(list, &file_request, cancel) {
        Ok(found) => found,
        Err(Trouble::Fatal(Error::NotFound { .. })) => return Ok(None),
        Err(trouble) => return Err(trouble),
    };
    let Reply { mut wire, start, .. } = reply;
    let length = start.length.filter(|length| *length <= MAX_LIST);
    let Some(length) = length else {
        return Err(wrong(&address, format!("its list has more than {MAX_LIST} B")));
    };
    let mut bytes = vec![0; usize::try_from(length).expect("some megabytes")];
    let mut body = Body::new(&mut wire, start.framing);
    body.fill_both(&mut bytes, &mut []).map_err(|error| fault(&address.to_string(), error))?;
    Manifest::parse(&bytes).map(Some).map_err(|why| wrong(&address, why))
}

/// Stores a list. Replaces an existing list.
pub(super) fn put(
    connection: &mut Connection<'_>,
    list: &Address,
    bytes: &[u8],
) -> Result<(), Trouble> {
    let length = bytes.len() as u64;
    let mut body = Vec::with_capacity(bytes.len() + 64);
    for index in 0..count(length) {
        let range = group::range(length, index);
        let at = |offset: u64| usize::try_from(offset).expect("in memory");
        let content = &bytes[at(range.start)..at(range.end)];
        body.extend(content);
        body.extend(group::value(length, index, content));
    }
    let body_length = body.len().to_string();
    let mut refused = None;
    for condition in [("If-None-Match", "*"), ("If-Match", "*")] {
        let head = request(
            "PUT",
            list,
            &[("Content-Type", VERIFIED), ("Content-Length", &body_length), condition],
        );
        connection.open(list)?;
        let early =
            connection.send_parts(list, &[head.as_bytes(), &body], 0)? < head.len() + body.len();
        let answered =
            connection.answer(list, MAX_ANSWER).and_then(|reply| check_accepted(list, reply));
        if early || answered.is_err() {
            connection.close();
        }
        match answered {
            Ok(_) if !early => return Ok(()),
            Ok(reply) => {
                let why =
                    format!("it answered {} before it received everything", reply.head.status);
                return Err(Trouble::Transient(why, None));
            }
            Err(Trouble::Fatal(error @ Error::Refused { status: 409 | 412, .. })) => {
                refused = Some(error)
            }
            Err(trouble) => return Err(trouble),
        }
    }
    Err(refused.expect("both were refused").into())
}
