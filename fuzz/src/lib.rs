//! Fuzz targets: for every parser of bytes from outside a function that feeds it any bytes, and
//! panics if the parser is wrong.
//!
//! The test of this crate runs every target with the same few thousand inputs, in a plain build.
//! `make fuzz` runs the targets with libFuzzer, which instruments the code, and keeps the inputs
//! that reach new code. A new target is a file here with a function `run`, and a line in
//! [`TARGETS`].

use arbitrary::{Arbitrary, Unstructured};
use sprat_transfer::{Error, Item, ItemSource};

mod answer;
mod browser_request;
mod certificate;
mod channel;
mod chunk;
mod control_request;
mod copy_answer;
mod copy_journal;
mod csv_import;
mod endpoint;
mod entry;
mod ether;
mod facts;
mod file_header;
mod filter_program;
mod frame;
mod grapedr;
mod index;
mod jsonl_import;
mod kernel;
mod locator;
mod memif;
mod packet;
mod power;
mod rack;
mod redis_command;
mod request;
mod script;
mod segment_header;
mod series;
mod share_request;
mod spread_list;
mod topology;
mod units;

/// A function that takes any bytes, and panics if the parser is wrong.
pub type Run = fn(&[u8]);

/// Every target: the name that `scripts/fuzz` takes, and its function.
pub const TARGETS: &[(&str, Run)] = &[
    ("answer", answer::run),
    ("browser_request", browser_request::run),
    ("certificate", certificate::run),
    ("channel", channel::run),
    ("chunk", chunk::run),
    ("control_request", control_request::run),
    ("copy_answer", copy_answer::run),
    ("copy_journal", copy_journal::run),
    ("csv_import", csv_import::run),
    ("endpoint", endpoint::run),
    ("entry", entry::run),
    ("ether", ether::run),
    ("facts", facts::run),
    ("file_header", file_header::run),
    ("filter_program", filter_program::run),
    ("frame", frame::run),
    ("grapedr", grapedr::run),
    ("index", index::run),
    ("jsonl_import", jsonl_import::run),
    ("kernel", kernel::run),
    ("locator", locator::run),
    ("memif", memif::run),
    ("packet", packet::run),
    ("power", power::run),
    ("rack", rack::run),
    ("redis_command", redis_command::run),
    ("request", request::run),
    ("script", script::run),
    ("segment_header", segment_header::run),
    ("series", series::run),
    ("share_request", share_request::run),
    ("spread_list", spread_list::run),
    ("topology", topology::run),
    ("units", units::run),
];

/// Returns the value that the bytes stand for, or none if they are too few.
fn input<'a, T: Arbitrary<'a>>(bytes: &'a [u8]) -> Option<T> {
    T::arbitrary_take_rest(Unstructured::new(bytes)).ok()
}

/// Reads a source to its end, and checks that each item is within limits.
fn drain(source: &mut dyn ItemSource) -> Result<Vec<Item>, Error> {
    let mut items = Vec::new();
    let mut item = Item::default();
    while source.next(&mut item)? {
        assert!(item.key.len() <= sprat_wire::MAX_KEY && item.value.len() <= sprat_wire::MAX_VALUE);
        items.push(item.clone());
    }
    Ok(items)
}
