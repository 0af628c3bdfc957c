//! Builds answers as replies of the RPC layer.

use crate::bodies::ResponseBuffers;
use sprat_rpc::{Outcome, Repeat, Reply};
use sprat_wire::op::{Status, encode_answer};
use zerocopy::IntoBytes;

/// Returns an answer that has only a header.
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

/// Returns the answer to a request that the peer has no right to make.
pub(crate) fn denied<B>() -> Outcome<B> {
    Outcome::Reply(answer(Status::Denied, false, 0, 0, Repeat::Reexecute))
}

/// Returns an answer with `text` as its explanation. When `text` is empty or no buffer is left, the
/// answer has no explanation.
pub(crate) fn answer_text<B: From<u32>>(
    bodies: &mut ResponseBuffers,
    status: Status,
    text: &str,
) -> Outcome<B> {
    let reply = answer(status, false, 0, 0, Repeat::Retain);
    let body = if text.is_empty() { None } else { bodies.make_text(text) };
    Outcome::Reply(match body {
        Some(body) => reply.with_body(B::from(body)),
        None => reply,
    })
}
