//! Import and export: rows between files and a table, byte for byte.
//!
//! An [`ItemSource`] yields items, an [`ItemSink`] takes them, and [`pump`] moves them. Each file
//! format has a source and a sink, and so does a table: an import or an export is a pump between
//! the two.
//!
//! What each format keeps:
//! - *Tree* ([`TreeSource`], [`TreeSink`]): the key is the path relative to the root, the value is
//!   the file's bytes. Every regular file is restored with the same name and bytes. Empty
//!   directories, modes, owners and times are not kept. Symbolic links and special files are
//!   skipped, and named among the omissions.
//! - *Rows* of CSV and *lines* of JSONL: the value is the row's bytes up to its newline, with
//!   quotes and any carriage return. Export writes each value and a newline. So an exported file
//!   has the same set of rows as the imported file, in the table's order. A last row without a
//!   newline gets one; blank rows are skipped. A CSV header is an item with the key
//!   [`CSV_HEADER_KEY`], and is exported as the first row. If two rows have one key, the later row
//!   is kept.
//! - *Pairs*, CSV or JSONL: key and value are two fields, in base64 if they are not UTF-8. Any
//!   table can be restored from them exactly.
//!
//! Nothing appears under its final name before it is complete: files and trees are made next to
//! their destination and then renamed.

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
pub use error::{Error, RowError};
pub use jsonl_sink::{JsonlExport, JsonlSink};
pub use jsonl_source::{JsonlImport, JsonlSource, JsonlValue};
pub use omitted::{MAX_NAMED, OmitReason, Omitted, display_key};
pub use publish::OutFile;
pub use tree_sink::TreeSink;
pub use tree_source::TreeSource;

use sprat_wire::{MAX_KEY, MAX_VALUE};

/// Key of the item that holds the header row of a CSV file. An import of whole rows or lines, or of
/// CSV without an encoding column, refuses a row with this key. Exports of pairs show the item like
/// any other; exports to trees and of JSONL lines leave it out without an omission.
pub const CSV_HEADER_KEY: &[u8] = b"\0sprat:csv-header";

/// One key and its value. A source fills the same item again, so that its buffers are reused.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Item {
    /// The key, at most [`MAX_KEY`] bytes.
    pub key: Vec<u8>,
    /// The value, at most [`MAX_VALUE`] bytes.
    pub value: Vec<u8>,
}

impl Item {
    /// Returns whether the item is reserved by Sprat, and so is not one of the user's rows.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        self.key == CSV_HEADER_KEY
    }
}

/// How to treat a file or row whose value is over [`MAX_VALUE`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LargePolicy {
    /// Stop with an error that names the file or row.
    #[default]
    Refuse,
    /// Leave the file or row out, and name it among the omissions.
    Skip,
}

/// A source of items: a file, a directory tree or a table.
pub trait ItemSource {
    /// Fills `item` with the next item. Returns `false` at the end; after that this must not be
    /// called again.
    ///
    /// # Errors
    /// [`Error`] when the input cannot be read, or an item is invalid or over a limit and is not to
    /// be left out. After an error the source cannot be used any more.
    fn next(&mut self, item: &mut Item) -> Result<bool, Error>;

    /// Returns the total bytes of input, if they are known beforehand: the end of a progress bar.
    fn total_bytes(&self) -> Option<u64> {
        None
    }

    /// Returns the number of bytes of input consumed so far.
    fn consumed_bytes(&self) -> u64;

    /// Returns the files or rows left out so far.
    fn omitted(&self) -> &Omitted;
}

/// A destination of items: a file, a directory tree or a table.
pub trait ItemSink {
    /// Takes one item. An item that the format cannot represent is left out and named in
    /// [`omitted`](Self::omitted); the sink can still take more items.
    ///
    /// # Errors
    /// [`Error`] when the item cannot be written. After an error the sink cannot be used any more.
    fn put(&mut self, item: &Item) -> Result<(), Error>;

    /// Returns the items left out so far.
    fn omitted(&self) -> &Omitted;
}

/// The progress of a [`pump`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Progress {
    /// Items passed to the sink, including those that it left out, but without those reserved by
    /// Sprat.
    pub items: u64,
    /// Bytes of the keys and values of all items passed to the sink.
    pub bytes: u64,
    /// Bytes of the source's input consumed; compare with [`total_bytes`](Self::total_bytes).
    pub consumed_bytes: u64,
    /// Total bytes of the source's input, if known.
    pub total_bytes: Option<u64>,
}

/// Moves every item of `source` to `sink`, and calls `progress` after each item. Returns the
/// progress at the end.
///
/// # Errors
/// The first [`Error`] of either side. Both sides list in `omitted` what they left out without an
/// error.
pub fn pump(
    source: &mut dyn ItemSource,
    sink: &mut dyn ItemSink,
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
