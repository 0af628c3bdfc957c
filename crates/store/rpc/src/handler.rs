//! What the owner of an endpoint brings, and what it is told.

use std::ops::Deref;

use sprat_key::Certificate;
use sprat_net::Nanos;
use sprat_wire::packet::Refusal;
use thiserror::Error;

use crate::channel::Who;
use crate::config::INLINE_BYTES;

/// What the owner of an endpoint does with requests and results. It is handed to the endpoint with
/// every call that may need it, and kept nowhere.
pub trait Handler {
    /// A handle to memory that a response is gathered from, such as an object in the log.
    type Body: Copy;

    /// A request has arrived. The payload lies in the driver's receive buffer, if it came in one
    /// packet.
    fn request(&mut self, now: Nanos, id: RequestId, payload: &[u8]) -> Outcome<Self::Body>;

    /// A request will come in a moment, from the frame that is being read: whoever keeps much in
    /// memory may begin to bring near what it will touch. A hint and no more: it may yet turn
    /// out to be a repetition, or refused.
    #[inline]
    fn expect(&mut self, payload: &[u8]) {
        let _ = payload;
    }

    /// A member of the cluster has proven who it is: what it asks comes with this [`Who`]. Whoever
    /// had its number before has gone.
    fn admitted(&mut self, who: Who, certificate: &Certificate) {
        let _ = (who, certificate);
    }

    /// The memory behind a body. It must be the same bytes until the body is released.
    fn gather(&self, body: Self::Body) -> &[u8];

    /// A body handed over in a [`Reply`] is needed no longer. Called exactly once for each, unless
    /// the endpoint itself is dropped first.
    fn release(&mut self, body: Self::Body);

    /// A call has ended. Called exactly once for each, unless the endpoint itself is dropped first.
    fn completed(&mut self, now: Nanos, call: CallId, result: Result<Response<'_>, CallFailure>);
}

/// The handler of an endpoint that serves nobody and drops results: for tests and for shutting
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

/// Names a request to the endpoint that received it. Safe to keep for ever: an answer to a request
/// that is forgotten does nothing.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct RequestId {
    pub(crate) session: u32,
    pub(crate) token: u32,
    pub(crate) sequence: u32,
    pub(crate) slot: u8,
    pub(crate) who: Who,
}

impl RequestId {
    /// Who asks.
    #[inline]
    #[must_use]
    pub fn who(self) -> Who {
        self.who
    }

    /// The session by which it came: a number that no other session has at the time, small, and
    /// used again.
    #[inline]
    #[must_use]
    pub fn session(self) -> u32 {
        self.session
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<B> {
    /// It is done.
    Reply(Reply<B>),
    /// It will be answered by [`Endpoint::respond`](crate::Endpoint::respond).
    Pending,
    /// It was not executed: the client is to ask again after so many microseconds. Nothing is kept
    /// for it.
    Retry(u32),
}

impl<B> Outcome<B> {
    /// The same, with another kind of body.
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

/// What to do when the same request arrives again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Repeat {
    /// Answer with the same response, which is kept: the request must not be executed twice.
    Retain,
    /// Hand it to the handler again: executing it twice does no harm, so nothing need be kept.
    Reexecute,
}

/// A response: up to [`INLINE_BYTES`] given by value, followed by the bytes of a body.
#[derive(Clone, Copy, Debug)]
pub struct Reply<B> {
    pub(crate) head: Inline,
    pub(crate) body: Option<B>,
    pub(crate) repeat: Repeat,
}

impl<B> Reply<B> {
    /// A response of `head` alone.
    ///
    /// # Panics
    /// When `head` is longer than [`INLINE_BYTES`].
    #[inline]
    #[must_use]
    pub fn new(head: &[u8], repeat: Repeat) -> Self {
        Self { head: Inline::new(head), body: None, repeat }
    }

    /// The same response with a body behind its head. Head and body together are at most
    /// [`MAX_MESSAGE`](sprat_wire::MAX_MESSAGE) bytes.
    #[inline]
    #[must_use]
    pub fn with_body(self, body: B) -> Self {
        Self { body: Some(body), ..self }
    }

    /// Its body, if it has one.
    #[must_use]
    pub fn body(&self) -> Option<B>
    where
        B: Copy,
    {
        self.body
    }
}

/// Up to [`INLINE_BYTES`] by value.
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
    /// A number that no other open session of the endpoint has; small, and used again.
    #[must_use]
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// Names a call.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct CallId {
    pub(crate) session: SessionId,
    pub(crate) sequence: u32,
    pub(crate) slot: u8,
}

impl CallId {
    /// The session it was made on.
    #[must_use]
    pub fn session(self) -> SessionId {
        self.session
    }

    /// Its slot, below [`MAX_SLOTS`](crate::MAX_SLOTS): no other outstanding call of the session
    /// has it.
    #[must_use]
    pub fn slot(self) -> usize {
        usize::from(self.slot)
    }
}

/// A response, either where the driver received it or put together in a buffer.
#[derive(Debug)]
pub struct Response<'a>(Source<'a>);

#[derive(Debug)]
enum Source<'a> {
    InPlace(&'a [u8]),
    Assembled(&'a mut Vec<u8>),
}

impl<'a> Response<'a> {
    pub(crate) fn in_place(bytes: &'a [u8]) -> Self {
        Self(Source::InPlace(bytes))
    }

    pub(crate) fn assembled(buffer: &'a mut Vec<u8>) -> Self {
        Self(Source::Assembled(buffer))
    }

    /// The response as a vector: copied if it came in one packet, else the buffer it was put
    /// together in.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Source::InPlace(bytes) => bytes.to_vec(),
            Source::Assembled(buffer) => std::mem::take(buffer),
        }
    }
}

impl Deref for Response<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Source::InPlace(bytes) => bytes,
            Source::Assembled(buffer) => buffer,
        }
    }
}

/// Why a session was not opened.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum ConnectError {
    /// This endpoint has as many sessions as its configuration allows.
    #[error("{0} sessions are open, the most this endpoint may have")]
    TooMany(usize),
}

/// Why a call was not begun.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum CallError {
    /// The session was closed.
    #[error("the session was closed")]
    Closed,
    /// As many calls are outstanding as the session has slots: wait for one to end.
    #[error("every slot of the session has a call outstanding")]
    NoSlot,
    /// The request is longer than [`MAX_MESSAGE`](sprat_wire::MAX_MESSAGE).
    #[error("request of {0} bytes is over the limit of {max}", max = sprat_wire::MAX_MESSAGE)]
    TooLong(usize),
    /// The deadline has passed.
    #[error("the deadline has passed")]
    Late,
}

/// Why a call failed. `maybe_executed` is false only when the request surely was not executed.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum CallFailure {
    /// Its deadline passed.
    #[error("the deadline passed{}", executed(.maybe_executed))]
    Deadline {
        /// Whether the server may have executed it, or may yet.
        maybe_executed: bool,
    },
    /// The server was silent for too long.
    #[error("the server does not answer{}", executed(.maybe_executed))]
    Unreachable {
        /// Whether the server may have executed it, or may yet.
        maybe_executed: bool,
    },
    /// The server ended or forgot the session, by a restart for instance. The next call opens it
    /// anew.
    #[error("the server lost the session{}", executed(.maybe_executed))]
    Lost {
        /// Whether the server may have executed it.
        maybe_executed: bool,
    },
    /// The server refused the session; the request was not sent.
    #[error("the server refused the session: {0:?}")]
    Refused(Refusal),
    /// The server is too busy and asked for more patience than the deadline or the retries left
    /// allow.
    #[error("the server is busy and asks to be asked again in {retry_micros} microseconds")]
    Overloaded {
        /// What the server asked for.
        retry_micros: u32,
    },
}

fn executed(maybe: &bool) -> &'static str {
    if *maybe { "; the request may have been executed" } else { "; the request was not executed" }
}
