//! Bodies of responses: finds their end and removes their framing.

use super::fault::Fault;
use super::wire::Wire;

/// Limit on the length of the line that begins a chunk, extensions and line end included, in bytes.
/// A body with a longer one is malformed.
const MAX_CHUNK_LINE: usize = 256;

/// Limit on the bytes of the trailer after the last chunk, including the empty line that ends it. A
/// body with a longer one is malformed.
const MAX_TRAILER: usize = 4096;

/// How the end of a body is marked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Framing {
    /// By a `Content-Length`, in bytes.
    Length(u64),
    /// By an empty chunk.
    Chunked,
    /// By the end of the connection.
    Close,
}

/// A body that is being received from a [`Wire`], which it borrows until it is dropped. A body that
/// is dropped before [`Body::is_over`] leaves the rest of its bytes on the connection, which then
/// cannot take another request.
#[derive(Debug)]
pub struct Body<'a> {
    wire: &'a mut Wire,
    framing: Framing,
    /// Bytes left of the body, or of the chunk.
    left: u64,
    /// Whether the line end after the last chunk is still to be read.
    in_chunk: bool,
    ended: bool,
    /// Bytes that the last call received, also when it failed halfway.
    received: usize,
}

impl<'a> Body<'a> {
    /// Begins to receive the body that follows the head last received on `wire`.
    pub fn new(wire: &'a mut Wire, framing: Framing) -> Self {
        let left = if let Framing::Length(length) = framing { length } else { 0 };
        Self { wire, framing, left, in_chunk: false, ended: false, received: 0 }
    }

    /// Fills `group` and `value`, with one system call where possible.
    /// # Errors
    /// [`Fault`]; [`Fault::Ended`] also when the body has fewer bytes. [`Body::received`] returns
    /// how many bytes of `group` were received before.
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

    /// Returns how many bytes the last call received, also if it failed; after [`Body::fill_both`],
    /// those of the group.
    #[must_use]
    pub fn received(&self) -> usize {
        self.received
    }

    /// Fills `into` and returns the number of bytes: fewer than its length only where the body
    /// ends.
    ///
    /// # Errors
    /// [`Fault::Ended`] if the connection closes before the end that the framing states;
    /// [`Fault::TimedOut`] if nothing arrives in time; [`Fault::Cancelled`]; [`Fault::Malformed`]
    /// for a malformed chunk; otherwise [`Fault::Io`].
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

    /// Reads as much of `rest` as is left of the body, or of the chunk.
    fn fill_some(&mut self, rest: &mut [u8]) -> Result<(), Fault> {
        let count = rest.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let filled = self.wire.fill(&mut rest[..count], &mut []);
        self.received += self.wire.filled();
        self.left -= count as u64;
        filled
    }

    /// Returns the socket that the body is received from.
    #[must_use]
    pub fn socket(&self) -> std::os::fd::BorrowedFd<'_> {
        self.wire.socket()
    }

    /// Returns whether all of the body was read, so that the connection can take another request.
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
