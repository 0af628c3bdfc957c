//! Splits a stream into rows with their exact bytes, and keeps no row longer than the limit.

use super::quoting::{Role, State};
use super::{Error, LargePolicy, OmitReason, Omitted, RowError};
use std::io::{self, BufRead};

/// The result of reading a row.
enum Found {
    Row,
    Long(u64),
    Unclosed,
    End,
}

/// Splits a stream into rows.
pub(super) struct Rows<R> {
    reader: R,
    name: String,
    /// The CSV delimiter; `None` for JSONL, where every newline ends a row.
    delimiter: Option<u8>,
    limit: usize,
    large: LargePolicy,
    consumed: u64,
    /// Line at which the last row that was read begins, from 1.
    line: u64,
    next_line: u64,
    omitted: Omitted,
}

impl<R: BufRead> Rows<R> {
    pub(super) fn new(
        reader: R,
        name: &str,
        delimiter: Option<u8>,
        limit: usize,
        large: LargePolicy,
    ) -> Self {
        Self {
            reader,
            name: name.to_owned(),
            delimiter,
            limit,
            large,
            consumed: 0,
            line: 1,
            next_line: 1,
            omitted: Omitted::default(),
        }
    }

    /// Reads the next row into `row`, without its newline; `false` at the end.
    ///
    /// # Errors
    /// When reading fails, a quote is never closed, or a row is too long and the policy is
    /// [`LargePolicy::Refuse`].
    pub(super) fn next(&mut self, row: &mut Vec<u8>) -> Result<bool, Error> {
        loop {
            let found =
                self.read(row).map_err(|source| Error::Io { name: self.name.clone(), source })?;
            match found {
                Found::Row => return Ok(true),
                Found::End => return Ok(false),
                Found::Unclosed => return Err(self.row_error(RowError::Unclosed)),
                Found::Long(bytes) => self.too_large(bytes)?,
            }
        }
    }

    /// Makes an error at the last row that was read.
    pub(super) fn row_error(&self, error: RowError) -> Error {
        Error::Row { name: self.name.clone(), line: self.line, error }
    }

    /// Records that the last row, or its value, is too large.
    ///
    /// # Errors
    /// When the policy is [`LargePolicy::Refuse`].
    pub(super) fn too_large(&mut self, bytes: u64) -> Result<(), Error> {
        match self.large {
            LargePolicy::Refuse => Err(self.row_error(RowError::Large(bytes))),
            LargePolicy::Skip => {
                self.omitted.add(format!("{}, line {}", self.name, self.line), OmitReason::Large);
                Ok(())
            }
        }
    }

    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }

    pub(super) fn omitted(&self) -> &Omitted {
        &self.omitted
    }

    fn read(&mut self, row: &mut Vec<u8>) -> io::Result<Found> {
        row.clear();
        self.line = self.next_line;
        let mut bytes = 0u64;
        let mut state = State::Start;
        loop {
            let chunk = match self.reader.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let at_end = chunk.is_empty();
            let end = match self.delimiter {
                None => chunk.iter().position(|&byte| byte == b'\n'),
                Some(delimiter) => chunk.iter().position(|&byte| {
                    let (next, role) = state.step(byte, delimiter);
                    state = next;
                    self.next_line += u64::from(byte == b'\n' && role != Role::RowEnd);
                    role == Role::RowEnd
                }),
            };
            let part = &chunk[..end.unwrap_or(chunk.len())];
            bytes += part.len() as u64;
            if row.len() + part.len() <= self.limit {
                row.extend_from_slice(part);
            }
            let consumed = part.len() + usize::from(end.is_some());
            self.reader.consume(consumed);
            self.consumed += consumed as u64;
            self.next_line += u64::from(end.is_some());
            if end.is_none() && !at_end {
                continue;
            }
            return Ok(if at_end && bytes == 0 {
                Found::End
            } else if state == State::Quoted {
                Found::Unclosed
            } else if bytes > self.limit as u64 {
                Found::Long(bytes)
            } else {
                Found::Row
            });
        }
    }
}
