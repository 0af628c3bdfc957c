//! Answers as replies of the RPC layer.

use crate::bodies::Bodies;
use sprat_rpc::{Outcome, Repeat, Reply};
use sprat_wire::op::{Status, encode_answer};
use zerocopy::IntoBytes;

/// An answer of a header alone.
#[inline]
pub(crate) fn answer<B>(
    status: Status,
    more: bool,
    count: u32,
    number: u64,
    repeat: Repeat,
) -> Reply<B> {
    Reply::new(encode_answer(status, more, count, number).as_bytes(), repeat)
}

/// Who asks may not.
pub(crate) fn denied<B>() -> Outcome<B> {
    Outcome::Reply(answer(Status::Denied, false, 0, 0, Repeat::Reexecute))
}

/// An answer that says why in words; without them when there is no buffer left.
pub(crate) fn answer_text<B: From<u32>>(
    bodies: &mut Bodies,
    status: Status,
    text: &str,
) -> Outcome<B> {
    let reply = answer(status, false, 0, 0, Repeat::Retain);
    let body = if text.is_empty() { None } else { bodies.explain(text) };
    Outcome::Reply(match body {
        Some(body) => reply.with_body(B::from(body)),
        None => reply,
    })
}
