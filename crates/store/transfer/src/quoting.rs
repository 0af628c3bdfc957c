//! CSV quoting: where fields and rows end.
//!
//! A row ends at a newline outside quotes. A quote opens a quoted field only at the beginning of
//! the field. Within the quotes two quotes stand for one, and a single quote ends them; anywhere
//! else a quote is an ordinary byte. A carriage return before the end of a row belongs to no field.
//! The `csv` crate reads the same fields but does not return a row's own bytes, which an exact
//! import stores.

/// The parser's state in a row.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// At the first byte of a field.
    Start,
    /// In a field, outside quotes.
    Bare,
    /// Within quotes.
    Quoted,
    /// After a quote in a quoted field: it ends the quotes unless another quote follows.
    QuoteSeen,
}

/// The role of a byte.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    /// Part of a field.
    Byte,
    /// A quote that is not part of a field.
    Quote,
    /// The end of a field.
    FieldEnd,
    /// The end of a row.
    RowEnd,
}

impl State {
    /// Returns the role of `byte` in this state, and the next state.
    #[inline]
    pub(super) fn step(self, byte: u8, delimiter: u8) -> (Self, Role) {
        match (self, byte) {
            (Self::Start, b'"') => (Self::Quoted, Role::Quote),
            (Self::Quoted, b'"') => (Self::QuoteSeen, Role::Quote),
            (Self::Quoted, _) => (Self::Quoted, Role::Byte),
            (Self::QuoteSeen, b'"') => (Self::Quoted, Role::Byte),
            (_, b'\n') => (Self::Start, Role::RowEnd),
            (_, byte) if byte == delimiter => (Self::Start, Role::FieldEnd),
            _ => (Self::Bare, Role::Byte),
        }
    }
}

/// The fields of one row; the buffers are reused.
#[derive(Debug, Default)]
pub(super) struct Fields {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Fields {
    /// Splits `row`, which must be without its newline.
    pub(super) fn split(&mut self, row: &[u8], delimiter: u8) {
        self.text.clear();
        self.ends.clear();
        let mut state = State::Start;
        for &byte in row.strip_suffix(b"\r").unwrap_or(row) {
            let (next, role) = state.step(byte, delimiter);
            match role {
                Role::Byte => self.text.push(byte),
                Role::FieldEnd => self.ends.push(self.text.len()),
                Role::Quote | Role::RowEnd => {}
            }
            state = next;
        }
        self.ends.push(self.text.len());
    }

    /// Returns the number of fields.
    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// Returns the field at `index`.
    pub(super) fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.text[begin..end])
    }

    /// Returns the index of the field that equals `name`.
    pub(super) fn position(&self, name: &[u8]) -> Option<usize> {
        (0..self.ends.len()).find(|&index| self.get(index) == Some(name))
    }
}

/// Returns whether `row` is empty, so that it is skipped.
pub(super) fn is_blank(row: &[u8]) -> bool {
    matches!(row, b"" | b"\r")
}

/// Returns whether `value`, followed by a newline, is read as exactly one row.
pub(super) fn is_one_row(value: &[u8], delimiter: u8) -> bool {
    let mut state = State::Start;
    for &byte in value {
        let (next, role) = state.step(byte, delimiter);
        if role == Role::RowEnd {
            return false;
        }
        state = next;
    }
    state != State::Quoted && !is_blank(value)
}
