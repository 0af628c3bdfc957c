//! The interface between an endpoint and its owner: requests, outcomes and results.

use std::ops::Deref;

use sprat_key::Certificate;
use sprat_net::Nanos;
use sprat_wire::packet::Refusal;
use thiserror::Error;

use crate::channel::Requester;
use crate::config::INLINE_BYTES;

/// The owner's side of an endpoint: executes requests and takes the results of calls. The owner
/// passes its handler to each method of the endpoint that may need it; the endpoint does not keep
/// it.
///
/// A response may include a *body*: memory that the owner keeps, such as an object in the log. The
/// endpoint reads a body by [`gather`](Self::gather) until it calls [`release`](Self::release).
pub trait Handler {
    /// A handle to memory with the bytes of a response, such as an object in the log.
    type Body: Copy;

    /// Executes a request, or begins to execute it. `payload` lies in the driver's receive buffer
    /// if the request came in one packet.
    fn request(&mut self, now: Nanos, id: RequestId, payload: &[u8]) -> Outcome<Self::Body>;

    /// Announces a request that follows soon in the frame being read, so that a handler with much
    /// memory can prefetch what the request will touch. This is only a hint: the request may turn
    /// out to be a repetition, or be refused.
    #[inline]
    fn prefetch(&mut self, payload: &[u8]) {
        let _ = payload;
    }

    /// Reports that a member of the cluster has proven its identity. The member's requests come
    /// with this [`Requester`]. The member that had the same [number](Requester::number) before is
    /// gone.
    fn admitted(&mut self, requester: Requester, certificate: &Certificate) {
        let _ = (requester, certificate);
    }

    /// Returns the memory of a body. Its bytes must not change until the body is released.
    fn gather(&self, body: Self::Body) -> &[u8];

    /// Releases a body that was handed over in a [`Reply`]. The endpoint calls this exactly once
    /// for each body, unless the endpoint itself is dropped first.
    fn release(&mut self, body: Self::Body);

    /// Reports the result of a call. The endpoint calls this exactly once for each call, unless the
    /// endpoint itself is dropped first.
    fn completed(&mut self, now: Nanos, call: CallId, result: Result<Response<'_>, CallFailure>);
}

/// A handler that answers every request with `Retry` and drops results: for tests and for shutting
/// down.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHandler;

impl Handler for NoHandler {
    type Body = ();

    fn request(&mut self, _: Nanos, _: RequestId, _: &[u8]) -> Outcome<()> {
        Outcome::Retry(crate::config::DRAIN_RETRY_MICROS)
    }

    fn gather(&self, (): ()) -> &[u8] {
        &[]
    }

    fn release(&mut self, (): ()) {}

    fn completed(&mut self, _: Nanos, _: CallId, _: Result<Response<'_>, CallFailure>) {}
}

/// Names a request to the endpoint that received it. An owner may keep it for ever: the endpoint
/// drops an answer to a request that it has forgotten.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct RequestId {
    pub(crate) session: u32,
    pub(crate) token: u32,
    pub(crate) sequence: u32,
    pub(crate) slot: u8,
    pub(crate) requester: Requester,
}

impl RequestId {
    /// Returns the peer that sent the request.
    #[inline]
    #[must_use]
    pub fn requester(self) -> Requester {
        self.requester
    }

    /// Returns the session that carried the request: a small number, unique among the open
    /// sessions, and reused after the session ends.
    #[inline]
    #[must_use]
    pub fn session(self) -> u32 {
        self.session
    }
}

/// The result of handling a request.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<B> {
    /// The request is done.
    Reply(Reply<B>),
    /// The owner will answer later, by [`Endpoint::respond`](crate::Endpoint::respond).
    Pending,
    /// The request was not executed, and the endpoint keeps nothing for it. The client sends it
    /// again after this number of microseconds, or after [`MAX_RETRY_WAIT`](crate::MAX_RETRY_WAIT)
    /// if that is shorter.
    Retry(u32),
}

impl<B> Outcome<B> {
    /// Converts the body of a reply, if there is one.
    #[inline]
    #[must_use]
    pub fn map<C>(self, body: impl FnOnce(B) -> C) -> Outcome<C> {
        match self {
            Self::Reply(Reply { head, body: old, repeat }) => {
                Outcome::Reply(Reply { head, body: old.map(body), repeat })
            }
            Self::Pending => Outcome::Pending,
            Self::Retry(micros) => Outcome::Retry(micros),
        }
    }
}

/// What to do when the client sends a request again that was answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Repeat {
    /// Answer with the response, which the endpoint keeps: the request must not be executed twice.
    Retain,
    /// Hand the request to the handler again, as executing it twice does no harm. The endpoint
    /// keeps nothing.
    Reexecute,
}

/// A response: first the *head*, up to [`INLINE_BYTES`] stored by value; then the bytes of the
/// body, if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Reply<B> {
    pub(crate) head: Inline,
    pub(crate) body: Option<B>,
    pub(crate) repeat: Repeat,
}

impl<B> Reply<B> {
    /// Makes a response of `head` alone.
    ///
    /// # Panics
    /// When `head` is longer than [`INLINE_BYTES`].
    #[inline]
    #[must_use]
    pub fn new(head: &[u8], repeat: Repeat) -> Self {
        Self { head: Inline::new(head), body: None, repeat }
    }

    /// Adds a body after the head. Head and body together may have at most
    /// [`MAX_MESSAGE`](sprat_wire::MAX_MESSAGE) bytes.
    #[inline]
    #[must_use]
    pub fn with_body(self, body: B) -> Self {
        Self { body: Some(body), ..self }
    }

    /// Returns the head.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Returns the body, if there is one.
    #[must_use]
    pub fn body(&self) -> Option<B>
    where
        B: Copy,
    {
        self.body
    }
}

/// Up to [`INLINE_BYTES`] bytes, stored by value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inline {
    len: u8,
    bytes: [u8; INLINE_BYTES],
}

impl Inline {
    pub(crate) const EMPTY: Self = Self { len: 0, bytes: [0; INLINE_BYTES] };

    #[inline]
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut inline = Self::EMPTY;
        inline.append(bytes);
        inline
    }

    #[inline]
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        let len = usize::from(self.len);
        assert!(
            len + bytes.len() <= INLINE_BYTES,
            "{} bytes are too many for a head",
            len + bytes.len()
        );
        self.bytes[len..][..bytes.len()].copy_from_slice(bytes);
        self.len = u8::try_from(len + bytes.len()).expect("just checked");
    }
}

impl Deref for Inline {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Names a session that this endpoint opened as a client.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SessionId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl SessionId {
    /// Returns a small number that is unique among the endpoint's open sessions, and reused after
    /// the session ends.
    #[must_use]
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// Names a call to the endpoint that began it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct CallId {
    pub(crate) session: SessionId,
    pub(crate) sequence: u32,
    pub(crate) slot: u8,
}

impl CallId {
    /// Returns the call's session.
    #[must_use]
    pub fn session(self) -> SessionId {
        self.session
    }

    /// Returns the call's slot, below [`MAX_SLOTS`](crate::MAX_SLOTS): no other outstanding call of
    /// the session uses it.
    #[must_use]
    pub fn slot(self) -> usize {
        usize::from(self.slot)
    }
}

/// A response, either in the driver's receive buffer or assembled in a buffer of the endpoint.
#[derive(Debug)]
pub struct Response<'a>(Storage<'a>);

#[derive(Debug)]
enum Storage<'a> {
    InPlace(&'a [u8]),
    Assembled(&'a mut Vec<u8>),
}

impl<'a> Response<'a> {
    pub(crate) fn in_place(bytes: &'a [u8]) -> Self {
        Self(Storage::InPlace(bytes))
    }

    pub(crate) fn assembled(buffer: &'a mut Vec<u8>) -> Self {
        Self(Storage::Assembled(buffer))
    }

    /// Returns the response as a vector: a copy if it came in one packet, otherwise the very buffer
    /// in which it was assembled.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Storage::InPlace(bytes) => bytes.to_vec(),
            Storage::Assembled(buffer) => std::mem::take(buffer),
        }
    }
}

impl Deref for Response<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Storage::InPlace(bytes) => bytes,
            Storage::Assembled(buffer) => buffer,
        }
    }
}

/// Why a session was not opened.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum ConnectError {
    /// This endpoint has as many sessions as its configuration allows.
    #[error("{0} sessions are open, this endpoint's limit")]
    TooMany(usize),
}

/// Why a call was not begun.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum CallError {
    /// The session was closed.
    #[error("the session was closed")]
    Closed,
    /// As many calls are outstanding as the session has slots, or as
    /// [`MIN_SLOTS`](crate::MIN_SLOTS) while it is being opened; wait until one ends.
    #[error("every slot of the session has a call outstanding")]
    NoSlot,
    /// The request is longer than [`MAX_MESSAGE`](sprat_wire::MAX_MESSAGE).
    #[error("request of {0} bytes is over the limit of {max}", max = sprat_wire::MAX_MESSAGE)]
    TooLong(usize),
    /// The deadline has passed.
    #[error("the deadline has passed")]
    Late,
}

/// Why a call failed. `maybe_executed` is false only if the request certainly was not and will not
/// be executed.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum CallFailure {
    /// The call's deadline passed.
    #[error("the deadline passed{}", executed(.maybe_executed))]
    Deadline {
        /// Whether the server may have executed the request, or may yet execute it.
        maybe_executed: bool,
    },
    /// The server was silent for [`Config::unreachable_after`](crate::Config::unreachable_after).
    #[error("the server does not answer{}", executed(.maybe_executed))]
    Unreachable {
        /// Whether the server may have executed the request, or may yet execute it.
        maybe_executed: bool,
    },
    /// The server ended or forgot the session, for instance when it restarted. The next call opens
    /// the session again.
    #[error("the server lost the session{}", executed(.maybe_executed))]
    Lost {
        /// Whether the server may have executed the request.
        maybe_executed: bool,
    },
    /// The server refused the session, so the request was not sent.
    #[error("the server refused the session: {0:?}")]
    Refused(Refusal),
    /// The server is too busy. It asks for a wait beyond the call's deadline, or has answered
    /// `Retry` more often than [`Config::max_retries`](crate::Config::max_retries) allows.
    #[error("the server is busy; retry in {retry_micros} microseconds")]
    Overloaded {
        /// The wait that the server requested, in microseconds.
        retry_micros: u32,
    },
}

fn executed(maybe: &bool) -> &'static str {
    if *maybe { "; the request may have been executed" } else { "; the request was not executed" }
}
