//! Commands as they arrive on a connection.

use crate::inline::{self, MAX_INLINE};
use crate::integer;
use std::fmt;
use std::ops::Range;
use thiserror::Error;

/// Limit on the parts of a command: its name and its arguments.
pub const MAX_PARTS: usize = 1 << 20;

/// Limit on the announced length of a part, in bytes. A longer announcement is a protocol error; a
/// part that is shorter, but longer than [`Limits::part`], is skipped.
pub const MAX_ANNOUNCED: usize = 512 << 20;

/// Limit on the line that announces a number of parts or bytes: a mark, an integer, and the line's
/// end.
const MAX_HEADER: usize = 32;

/// Bytes of buffer that a connection keeps between commands.
const KEPT: usize = 64 << 10;

/// What a command may have. A command with more is read to its end but not kept, and
/// [`CommandReader::next`] returns the [`Excess`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Bytes of a part.
    pub part: usize,
    /// Bytes of a command as it arrives.
    pub command: usize,
    /// Parts of a command, at most [`MAX_PARTS`].
    pub parts: usize,
}

/// A limit that a command exceeds.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum Excess {
    /// A part is longer than [`Limits::part`].
    #[error("ERR an argument has {len} bytes; the limit is {limit}")]
    Part {
        /// Length of the part.
        len: usize,
        /// The limit.
        limit: usize,
    },
    /// The command has more parts than [`Limits::parts`].
    #[error("ERR the command has {count} parts; the limit is {limit}")]
    Parts {
        /// Number of parts.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// The command is longer than [`Limits::command`].
    #[error("ERR the command has more than {limit} bytes, the limit; send fewer arguments at once")]
    Command {
        /// The limit.
        limit: usize,
    },
}

/// Why it is unknown where the next command begins. The server must send this error and close the
/// connection. The texts are those of Redis.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum ProtocolError {
    /// The number of parts is no integer, or above [`MAX_PARTS`].
    #[error("ERR Protocol error: invalid multibulk length")]
    Parts,
    /// The line with the number of parts is too long.
    #[error("ERR Protocol error: too big mbulk count string")]
    LongParts,
    /// A part does not begin with `$`.
    #[error("ERR Protocol error: expected '$', got '{}'", char::from(*.0))]
    Mark(u8),
    /// The length of a part is no integer, negative, or above [`MAX_ANNOUNCED`].
    #[error("ERR Protocol error: invalid bulk length")]
    Length,
    /// The line with the length of a part is too long.
    #[error("ERR Protocol error: too big bulk count string")]
    LongLength,
    /// A part does not end where its length says.
    #[error("ERR Protocol error: an argument does not have the announced length")]
    End,
    /// A line without a beginning `*` is longer than [`MAX_INLINE`].
    #[error("ERR Protocol error: too big inline request")]
    LongLine,
    /// A quote in an inline command is not closed.
    #[error("ERR Protocol error: unbalanced quotes in request")]
    Quotes,
}

/// A command: a name, and arguments.
#[derive(Clone, Copy)]
pub struct Command<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) parts: &'a [Range<u32>],
}

impl<'a> Command<'a> {
    /// Returns the name as the client wrote it, usually in either case.
    #[must_use]
    pub fn name(&self) -> &'a [u8] {
        self.get(0).expect("a command has a name")
    }

    /// Returns the number of parts: 1 for the name, and the number of arguments.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a command has a name at least")]
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Returns a part: the name at 0, then the arguments.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<&'a [u8]> {
        let Range { start, end } = self.parts.get(at)?;
        Some(&self.bytes[*start as usize..*end as usize])
    }

    /// Returns all parts.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let bytes = self.bytes;
        self.parts.iter().map(move |part| &bytes[part.start as usize..part.end as usize])
    }
}

impl fmt::Debug for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|part| part.escape_ascii().to_string())).finish()
    }
}

/// What [`CommandReader::next`] finds.
#[derive(Debug)]
pub enum Next<'a> {
    /// The next command.
    Command(Command<'a>),
    /// The next command exceeds a limit and was skipped; the server must reply with this error.
    Refused(Excess),
    /// The next command is not complete.
    Incomplete,
}

/// What comes next on the connection.
#[derive(Clone, Copy, Debug)]
enum State {
    /// A command.
    Start,
    /// The header of a part; `left` parts are missing.
    Header { left: usize },
    /// A part of `len` bytes and its end; `left` parts are missing, with this one.
    Part { left: usize, len: usize },
    /// A part that is skipped, of which `bytes` bytes are missing, with its end.
    Skipped { left: usize, bytes: usize },
}

/// Parses the commands of a connection, in the order in which they arrive.
///
/// [`extend`](Self::extend) takes the bytes that have arrived, in pieces of any length. Then
/// [`next`](Self::next) returns a command at a time, until it returns [`Next::Incomplete`]. No byte
/// of a part is looked at twice, however small the pieces. The reader holds at most a command of
/// [`Limits::command`] bytes, what one call of `extend` brought, and 8 bytes for each part.
#[derive(Debug)]
pub struct CommandReader {
    limits: Limits,
    bytes: Vec<u8>,
    /// Where the present command begins in `bytes`.
    begin: usize,
    /// Where parsing continues.
    at: usize,
    state: State,
    /// The words of an inline command, without quotes.
    words: Vec<u8>,
    /// The parts found so far: where each lies after `begin`, or in `words`.
    parts: Vec<Range<u32>>,
    excess: Option<Excess>,
}

impl CommandReader {
    /// Creates a reader for a new connection.
    ///
    /// # Panics
    /// When a command of `limits` can have 4 GiB.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        assert!(limits.command <= u32::MAX as usize / 2, "parts are found by 32 bits");
        Self {
            limits,
            bytes: Vec::new(),
            begin: 0,
            at: 0,
            state: State::Start,
            words: Vec::new(),
            parts: Vec::new(),
            excess: None,
        }
    }

    /// Sets what the next commands may have.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Adds bytes that have arrived.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.begin);
        self.at -= self.begin;
        self.begin = 0;
        if self.bytes.is_empty() {
            self.bytes.shrink_to(KEPT);
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the bytes of memory that the reader holds.
    #[must_use]
    pub fn held(&self) -> usize {
        self.bytes.capacity()
            + self.words.capacity()
            + self.parts.capacity() * size_of::<Range<u32>>()
    }

    /// Returns the next command, once all of it has arrived.
    ///
    /// # Errors
    /// The bytes are no command. It is unknown where the next one begins, so the connection must be
    /// closed; a further call is of no use.
    #[expect(clippy::should_implement_trait, reason = "a command borrows from its reader")]
    pub fn next(&mut self) -> Result<Next<'_>, ProtocolError> {
        if matches!(self.state, State::Start) {
            self.begin_command();
        }
        loop {
            let left = match self.state {
                State::Start => match self.start()? {
                    Some(left) => left,
                    None => return Ok(Next::Incomplete),
                },
                State::Header { left } => match self.header()? {
                    Some(len) => {
                        self.state = self.part_begins(left, len);
                        continue;
                    }
                    None => return Ok(Next::Incomplete),
                },
                State::Part { left, len } => {
                    if !self.part(len)? {
                        return Ok(Next::Incomplete);
                    }
                    left - 1
                }
                State::Skipped { left, bytes } => {
                    let here = bytes.min(self.bytes.len() - self.at);
                    self.at += here;
                    self.begin = self.at;
                    if here < bytes {
                        self.state = State::Skipped { left, bytes: bytes - here };
                        return Ok(Next::Incomplete);
                    }
                    left - 1
                }
            };
            if left > 0 {
                self.state = State::Header { left };
                continue;
            }
            self.state = State::Start;
            if let Some(excess) = self.excess {
                return Ok(Next::Refused(excess));
            }
            if !self.parts.is_empty() {
                return Ok(Next::Command(self.current()));
            }
            // An empty line or an empty array is no command.
            self.begin_command();
        }
    }

    /// Returns the command that [`next`](Self::next) returned last, to execute it again.
    ///
    /// # Panics
    /// Possibly, when `next` did not return a command.
    #[must_use]
    pub fn current(&self) -> Command<'_> {
        let bytes = match self.words.is_empty() {
            true => &self.bytes[self.begin..self.at],
            false => &self.words,
        };
        Command { bytes, parts: &self.parts }
    }

    /// Forgets the command before.
    fn begin_command(&mut self) {
        self.begin = self.at;
        self.parts.clear();
        self.words.clear();
        self.excess = None;
        if self.parts.capacity() > KEPT {
            self.parts.shrink_to(KEPT);
        }
    }

    /// Parses the beginning of a command; returns how many parts are missing.
    fn start(&mut self) -> Result<Option<usize>, ProtocolError> {
        match self.bytes.get(self.at) {
            None => Ok(None),
            Some(b'*') => {
                let Some(number) = self.number(ProtocolError::LongParts, ProtocolError::Parts)?
                else {
                    return Ok(None);
                };
                let count = usize::try_from(number.max(0)).expect("64-bit");
                if count > MAX_PARTS {
                    return Err(ProtocolError::Parts);
                }
                let limit = self.limits.parts;
                self.excess = (count > limit).then_some(Excess::Parts { count, limit });
                Ok(Some(count))
            }
            Some(_) => self.inline(),
        }
    }

    /// Parses an inline command; returns 0, since no part is missing then.
    fn inline(&mut self) -> Result<Option<usize>, ProtocolError> {
        let line = &self.bytes[self.at..];
        let line = &line[..line.len().min(MAX_INLINE)];
        let Some(end) = memchr::memchr(b'\n', line) else {
            return if line.len() < MAX_INLINE { Ok(None) } else { Err(ProtocolError::LongLine) };
        };
        let text = line[..end].strip_suffix(b"\r").unwrap_or(&line[..end]);
        inline::split(text, &mut self.words, &mut self.parts).ok_or(ProtocolError::Quotes)?;
        self.at += end + 1;
        Ok(Some(0))
    }

    /// Parses the header of a part; returns the part's length.
    fn header(&mut self) -> Result<Option<usize>, ProtocolError> {
        match self.bytes.get(self.at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(other) => return Err(ProtocolError::Mark(*other)),
        }
        let Some(number) = self.number(ProtocolError::LongLength, ProtocolError::Length)? else {
            return Ok(None);
        };
        let len = usize::try_from(number).map_err(|_| ProtocolError::Length)?;
        if len > MAX_ANNOUNCED {
            return Err(ProtocolError::Length);
        }
        Ok(Some(len))
    }

    /// Decides whether to keep a part, whose header ends here.
    fn part_begins(&mut self, left: usize, len: usize) -> State {
        let Limits { part: limit, command, .. } = self.limits;
        if len > limit {
            self.excess.get_or_insert(Excess::Part { len, limit });
        } else if self.at - self.begin + len > command {
            self.excess.get_or_insert(Excess::Command { limit: command });
        }
        if self.excess.is_none() {
            return State::Part { left, len };
        }
        self.begin = self.at;
        self.parts.clear();
        State::Skipped { left, bytes: len + 2 }
    }

    /// Takes a part of `len` bytes; returns whether all of it has arrived.
    fn part(&mut self, len: usize) -> Result<bool, ProtocolError> {
        let Some(end) = self.bytes.get(self.at + len..self.at + len + 2) else { return Ok(false) };
        if end != b"\r\n" {
            return Err(ProtocolError::End);
        }
        let start = u32::try_from(self.at - self.begin).expect("within the limit on a command");
        let len = u32::try_from(len).expect("within the limit on a part");
        self.parts.push(start..start + len);
        self.at += len as usize + 2;
        Ok(true)
    }

    /// Parses a line with a mark and an integer; returns `None` if its end has not arrived.
    fn number(
        &mut self,
        too_long: ProtocolError,
        invalid: ProtocolError,
    ) -> Result<Option<i64>, ProtocolError> {
        let line = &self.bytes[self.at..];
        let line = &line[..line.len().min(MAX_HEADER)];
        let Some(end) = memchr::memchr(b'\r', line) else {
            return if line.len() < MAX_HEADER { Ok(None) } else { Err(too_long) };
        };
        match line.get(end + 1) {
            None if line.len() < MAX_HEADER => return Ok(None),
            Some(b'\n') => {}
            _ => return Err(invalid),
        }
        let number = integer(&line[1..end]).ok_or(invalid)?;
        self.at += end + 2;
        Ok(Some(number))
    }
}
