//! The body of an answer: where it ends, and its bytes without what marks that.

use super::fault::Fault;
use super::wire::Wire;

/// Most bytes of the line that begins a chunk, its extensions too.
const MAX_CHUNK_LINE: usize = 256;

/// Most bytes of the fields behind the last chunk.
const MAX_TRAILER: usize = 4096;

/// How the end of a body is told.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Framing {
    /// By its length, bytes.
    Length(u64),
    /// By a chunk of nothing.
    Chunked,
    /// By the end of the connection.
    Close,
}

/// A body that is being received from a [`Wire`], which it borrows until it is dropped. A body that
/// is dropped before [`Body::is_over`] leaves the rest of its bytes on the connection.
#[derive(Debug)]
pub struct Body<'a> {
    wire: &'a mut Wire,
    framing: Framing,
    /// Bytes that are left of the body, or of the chunk.
    left: u64,
    /// Whether a chunk was read whose end is not.
    in_chunk: bool,
    ended: bool,
    /// Bytes that the last call brought: all, or those before it failed.
    came: usize,
}

impl<'a> Body<'a> {
    /// Begins to receive a body, whose head was the last that came on the connection.
    pub fn new(wire: &'a mut Wire, framing: Framing) -> Self {
        let left = if let Framing::Length(length) = framing { length } else { 0 };
        Self { wire, framing, left, in_chunk: false, ended: false, came: 0 }
    }

    /// Fills `group` and `value`, in one call of the system where that can be.
    ///
    /// # Errors
    /// [`Fault`]; [`Fault::Ended`] also when the body has fewer bytes. [`Body::came`] says how many
    /// bytes of `group` came before.
    pub fn fill_both(&mut self, group: &mut [u8], value: &mut [u8]) -> Result<(), Fault> {
        let bytes = (group.len() + value.len()) as u64;
        if let Framing::Length(_) = self.framing {
            self.came = 0;
            self.left = self.left.checked_sub(bytes).ok_or(Fault::Ended)?;
            let filled = self.wire.fill(group, value);
            self.came = self.wire.filled().min(group.len());
            return filled;
        }
        if self.fill(group)? < group.len() {
            return Err(Fault::Ended);
        }
        let filled = self.fill(value);
        self.came = group.len();
        if filled? < value.len() { Err(Fault::Ended) } else { Ok(()) }
    }

    /// Bytes that the last call brought, also when it failed; of [`Body::fill_both`], those of the
    /// group.
    #[must_use]
    pub fn came(&self) -> usize {
        self.came
    }

    /// Fills `into` and returns how many bytes came: fewer only where the body ends.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn fill(&mut self, into: &mut [u8]) -> Result<usize, Fault> {
        self.came = 0;
        while self.came < into.len() && !self.ended {
            let rest = &mut into[self.came..];
            match self.framing {
                Framing::Length(_) => {
                    self.some(rest)?;
                    self.ended = self.left == 0;
                }
                Framing::Close => {
                    let count = self.wire.some(rest)?;
                    self.came += count;
                    self.ended = count == 0;
                }
                Framing::Chunked => {
                    if self.left == 0 {
                        self.next_chunk()?;
                        continue;
                    }
                    self.some(rest)?;
                }
            }
        }
        Ok(self.came)
    }

    /// Fills as much as is left of the body, or of the chunk.
    fn some(&mut self, rest: &mut [u8]) -> Result<(), Fault> {
        let count = rest.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let filled = self.wire.fill(&mut rest[..count], &mut []);
        self.came += self.wire.filled();
        self.left -= count as u64;
        filled
    }

    /// The socket that it comes from.
    #[must_use]
    pub fn socket(&self) -> std::os::fd::BorrowedFd<'_> {
        self.wire.socket()
    }

    /// Whether all of it was read, so that the connection can take another request.
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
                return Err(Fault::Wrong("a chunk does not end where it should".to_owned()));
            }
        }
        let line = self.wire.line(MAX_CHUNK_LINE)?;
        let Ok(httparse::Status::Complete((_, size))) = httparse::parse_chunk_size(&line) else {
            return Err(Fault::Wrong("a chunk has no length".to_owned()));
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
