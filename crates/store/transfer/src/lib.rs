//! Import and export: rows between files and a table, byte for byte.
//!
//! A [`Source`] yields items, a [`Sink`] takes them, [`pump`] moves them. A file format gives one
//! of each; so does whoever talks to a table, and an import or export is a pump between the two.
//!
//! What "exact" means, form by form:
//! - *Tree* ([`TreeSource`], [`TreeSink`]): key = the path relative to the root, value = the file's
//!   bytes. Every regular file comes back with the same name and bytes. Not kept: empty
//!   directories, modes, owners, times. Symbolic links and special files are skipped, by name.
//! - *Rows* of CSV and *lines* of JSONL: value = the row's bytes up to its newline, quotes and any
//!   carriage return included. Export writes each value and a newline: the same set of rows, in the
//!   table's order. A last row without a newline gets one; blank rows are skipped. A CSV header
//!   travels as an item under [`CSV_HEADER_KEY`] and comes back as the first row. As in any table,
//!   of two rows with one key the later one stays.
//! - *Pairs*, CSV or JSONL: key and value as two fields, base64 where they are not UTF-8. Any table
//!   comes back from them exactly.
//!
//! Nothing appears under its final name before it is whole: files and trees are made beside their
//! destination and renamed.

mod base64_text;
mod csv_sink;
mod csv_source;
mod error;
mod jsonl_sink;
mod jsonl_source;
mod omitted;
mod publish;
mod quoting;
mod rows;
mod tree_sink;
mod tree_source;

pub use csv_sink::{CsvExport, CsvSink};
pub use csv_source::{Column, CsvImport, CsvSource, CsvValue};
pub use error::{Error, Fault};
pub use jsonl_sink::{JsonlExport, JsonlSink};
pub use jsonl_source::{JsonlImport, JsonlSource, JsonlValue};
pub use omitted::{MAX_NAMED, Omitted, Why, display_key};
pub use publish::OutFile;
pub use tree_sink::TreeSink;
pub use tree_source::TreeSource;

use sprat_wire::{MAX_KEY, MAX_VALUE};

/// Key under which an import keeps the header row of a CSV file: Sprat's own, shown by exports of
/// pairs only. Rows may not have it.
pub const CSV_HEADER_KEY: &[u8] = b"\0sprat:csv-header";

/// One key and its value; buffers that a source fills again and again.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Item {
    /// The key, at most [`MAX_KEY`] bytes.
    pub key: Vec<u8>,
    /// The value, at most [`MAX_VALUE`] bytes.
    pub value: Vec<u8>,
}

impl Item {
    /// Whether the item is Sprat's own and not a row of the user's.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        self.key == CSV_HEADER_KEY
    }
}

/// What to do with a file or row whose value is over [`MAX_VALUE`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Large {
    /// Stop, and name it.
    #[default]
    Refuse,
    /// Leave it out, and name it.
    Skip,
}

/// Where items come from.
pub trait Source {
    /// Fills `item` with the next item; `false` at the end, after which it is not called again.
    ///
    /// # Errors
    /// [`Error`]; the source is of no further use then.
    fn next(&mut self, item: &mut Item) -> Result<bool, Error>;

    /// Bytes of input in all, where that is known beforehand: the end of the progress bar.
    fn total_bytes(&self) -> Option<u64> {
        None
    }

    /// Bytes of input behind us.
    fn consumed_bytes(&self) -> u64;

    /// What was left out so far.
    fn omitted(&self) -> &Omitted;
}

/// Where items go.
pub trait Sink {
    /// Takes one item. An item that the form cannot hold is left out and named in
    /// [`omitted`](Self::omitted), and the next may be put.
    ///
    /// # Errors
    /// [`Error`], after which the sink is of no further use.
    fn put(&mut self, item: &Item) -> Result<(), Error>;

    /// What was left out so far.
    fn omitted(&self) -> &Omitted;
}

/// How far a [`pump`] has come.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Progress {
    /// Items moved, Sprat's own not counted.
    pub items: u64,
    /// Bytes of keys and values moved.
    pub bytes: u64,
    /// Bytes of the source's input consumed; compare with [`total_bytes`](Self::total_bytes).
    pub consumed_bytes: u64,
    /// Bytes of the source's input in all, where known.
    pub total_bytes: Option<u64>,
}

/// Moves every item of `source` to `sink`, telling `progress` after each; returns the last
/// progress.
///
/// # Errors
/// The first [`Error`] of either. What was left out without one is in their `omitted`.
pub fn pump(
    source: &mut dyn Source,
    sink: &mut dyn Sink,
    progress: &mut dyn FnMut(Progress),
) -> Result<Progress, Error> {
    let mut item = Item::default();
    let mut now = Progress { total_bytes: source.total_bytes(), ..Progress::default() };
    while source.next(&mut item)? {
        debug_assert!(item.key.len() <= MAX_KEY && item.value.len() <= MAX_VALUE);
        sink.put(&item)?;
        now.items += u64::from(!item.is_reserved());
        now.bytes += (item.key.len() + item.value.len()) as u64;
        now.consumed_bytes = source.consumed_bytes();
        progress(now);
    }
    now.consumed_bytes = source.consumed_bytes();
    Ok(now)
}
