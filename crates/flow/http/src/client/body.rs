//! Bodies of responses: finds their end and removes their framing.

use super::fault::Fault;
use super::wire::Wire;

/// Limit on the length of the line that begins a chunk, in bytes, including extensions and the line
/// end. A body with a longer line is malformed.
const MAX_CHUNK_LINE: usize = 256;

/// Limit on the bytes of the trailer after the last chunk, including the empty line that ends it. A
/// body with a longer trailer is malformed.
const MAX_TRAILER: usize = 4096;

/// How the end of a body is found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Framing {
    /// The body has this many bytes, by `Content-Length`.
    Length(u64),
    /// An empty chunk ends the body.
    Chunked,
    /// The end of the connection ends the body.
    Close,
}

/// A body that is being received from a [`Wire`], which it borrows until it is dropped. If a body
/// is dropped before [`Body::is_over`] returns true, its remaining bytes stay on the connection,
/// which then cannot be used for another request.
#[derive(Debug)]
pub struct Body<'a> {
    wire: &'a mut Wire,
    framing: Framing,
    /// Bytes of the body, or of the current chunk, that have not been received.
    left: u64,
    /// Whether the line end of the current chunk must still be read.
    in_chunk: bool,
    ended: bool,
    /// Number of bytes that the last call of a `fill` function received, even if it failed halfway.
    received: usize,
}

impl<'a> Body<'a> {
    /// Begins to receive the body that follows the last head received on `wire`.
    pub fn new(wire: &'a mut Wire, framing: Framing) -> Self {
        let left = if let Framing::Length(length) = framing { length } else { 0 };
        Self { wire, framing, left, in_chunk: false, ended: false, received: 0 }
    }

    /// Fills `group` and then `value`, with one system call where possible.
    /// # Errors
    /// As for [`Body::fill`], and [`Fault::Ended`] if the body has too few bytes.
    /// [`Body::received`] then returns the number of bytes of `group` that were received.
    pub fn fill_both(&mut self, group: &mut [u8], value: &mut [u8]) -> Result<(), Fault> {
        let bytes = (group.len() + value.len()) as u64;
        if let Framing::Length(_) = self.framing {
            self.received = 0;
            self.left = self.left.checked_sub(bytes).ok_or(Fault::Ended)?;
            let filled = self.wire.fill(group, value);
            self.received = self.wire.filled().min(group.len());
            return filled;
        }
        if self.fill(group)? < group.len() {
            return Err(Fault::Ended);
        }
        let filled = self.fill(value);
        self.received = group.len();
        if filled? < value.len() { Err(Fault::Ended) } else { Ok(()) }
    }

    /// Returns the number of bytes that the last call of [`Body::fill`] or [`Body::fill_both`]
    /// received, even if it failed. After [`Body::fill_both`], counts only bytes of the group.
    #[must_use]
    pub fn received(&self) -> usize {
        self.received
    }

    /// Fills `into` and returns the number of bytes. It is less than the length of `into` only if
    /// the body ends.
    ///
    /// # Errors
    /// - [`Fault::Ended`] if the connection closes before the body ends.
    /// - [`Fault::TimedOut`] if nothing arrives in time.
    /// - [`Fault::Cancelled`] if the caller cancels.
    /// - [`Fault::Malformed`] for a malformed chunk.
    /// - [`Fault::Io`] if the kernel or TLS fails to receive.
    pub fn fill(&mut self, into: &mut [u8]) -> Result<usize, Fault> {
        self.received = 0;
        while self.received < into.len() && !self.ended {
            let rest = &mut into[self.received..];
            match self.framing {
                Framing::Length(_) => {
                    self.fill_some(rest)?;
                    self.ended = self.left == 0;
                }
                Framing::Close => {
                    let count = self.wire.read_some(rest)?;
                    self.received += count;
                    self.ended = count == 0;
                }
                Framing::Chunked => {
                    if self.left == 0 {
                        self.next_chunk()?;
                        continue;
                    }
                    self.fill_some(rest)?;
                }
            }
        }
        Ok(self.received)
    }

    /// Reads into `rest` until it is full, or until the body or the current chunk ends.
    fn fill_some(&mut self, rest: &mut [u8]) -> Result<(), Fault> {
        let count = rest.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let filled = self.wire.fill(&mut rest[..count], &mut []);
        self.received += self.wire.filled();
        self.left -= count as u64;
        filled
    }

    /// Returns the socket from which the body is received.
    #[must_use]
    pub fn socket(&self) -> std::os::fd::BorrowedFd<'_> {
        self.wire.socket()
    }

    /// Returns whether the whole body was read, so that the connection can be used for another
    /// request. Always false with [`Framing::Close`].
    #[must_use]
    pub fn is_over(&self) -> bool {
        match self.framing {
            Framing::Length(_) => self.left == 0,
            Framing::Chunked => self.ended,
            Framing::Close => false,
        }
    }

    fn next_chunk(&mut self) -> Result<(), Fault> {
        if self.in_chunk {
            let mut end = [0; 2];
            self.wire.fill(&mut end, &mut [])?;
            if end != *b"\r\n" {
                return Err(Fault::Malformed("a chunk does not end where it should".to_owned()));
            }
        }
        let line = self.wire.line(MAX_CHUNK_LINE)?;
        let Ok(httparse::Status::Complete((_, size))) = httparse::parse_chunk_size(&line) else {
            return Err(Fault::Malformed("a chunk has no length".to_owned()));
        };
        (self.left, self.in_chunk) = (size, true);
        if size == 0 {
            let mut trailer = 0;
            loop {
                let line = self.wire.line(MAX_TRAILER - trailer)?;
                if line == b"\r\n" {
                    break;
                }
                trailer += line.len();
            }
            self.ended = true;
        }
        Ok(())
    }
}
