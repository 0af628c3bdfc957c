//! Checks whether the store can have produced a history.

mod calls;
pub mod cycles;
pub mod linear;
pub mod model;
pub mod scan;

use crate::history::{History, ObjectName, Operation, Response};
use linear::Verdict;
use std::collections::BTreeMap;
use thiserror::Error;

/// Number of calls shown before the call that does not fit, and number of calls shown from that
/// call on.
const CONTEXT: usize = 24;

/// A violation of the guarantees of the store.
#[derive(Clone, Debug, Error)]
pub enum Violation {
    /// No order fits the calls on one object.
    #[error(
        "object {name} (at {place:016x} of its table) is not linearizable: no place for `{call}`, \
         where the best attempt has {state:?}\n{around}"
    )]
    Object {
        /// The object.
        name: ObjectName,
        /// The call that could not be placed.
        call: String,
        /// The object's position in its table.
        place: u64,
        /// The state before the call.
        state: model::State,
        /// The object's calls around that call, in order, one on each line.
        around: String,
    },
    /// No order fits all transactions and calls together.
    #[error("not strictly serializable: {0}")]
    Cycle(String),
    /// A read has found an object after it had expired.
    #[error("an object was read after it had expired: {0}")]
    Outlived(String),
    /// A page of a scan that contradicts itself.
    #[error("scan {scan} of table {table}: {what}")]
    Page {
        /// The scan's number.
        scan: u64,
        /// The table's id.
        table: u32,
        /// A description of the fault.
        what: String,
    },
}

/// The extent of a check.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checked {
    /// Number of objects.
    pub objects: u64,
    /// Number of calls, without those that were certainly not executed, and of reads for which
    /// pages stand: each page is a read of every key in its range.
    pub calls: u64,
    /// Number of objects whose calls overlap too much to decide.
    pub undecided: u64,
}

/// Checks a history. `hash_seed` and `keys` determine where objects are in scans: see [`scan`].
///
/// # Errors
/// The first [`Violation`].
pub fn check(history: &History, hash_seed: u64, keys: u16) -> Result<Checked, Box<Violation>> {
    let mut objects: BTreeMap<ObjectName, Vec<Operation>> = BTreeMap::new();
    for operation in
        history.operations.iter().filter(|operation| operation.response != Response::NotDone)
    {
        objects.entry(operation.name).or_default().push(*operation);
    }
    let expiries: Vec<Operation> = history.expiries().collect();
    if let Some(read) = history.outlived(&expiries) {
        return Err(Box::new(Violation::Outlived(read.to_string())));
    }
    for expiry in expiries {
        objects.entry(expiry.name).or_default().push(expiry);
    }
    for page in &history.pages {
        let reads = scan::reads(page, hash_seed, keys).map_err(|what| Violation::Page {
            scan: page.scan,
            table: page.table,
            what,
        })?;
        for read in reads {
            objects.entry(read.name).or_default().push(read);
        }
    }
    let mut checked = Checked::default();
    for (name, mut calls) in objects {
        calls.sort_by_key(|call| call.invoked);
        for (number, call) in calls.iter_mut().enumerate() {
            call.number = number;
        }
        checked.objects += 1;
        checked.calls += calls.len() as u64;
        match linear::check(&calls) {
            Verdict::Linearizable => {}
            Verdict::Undecided => checked.undecided += 1,
            Verdict::Broken(number, state) => {
                let from = number.saturating_sub(CONTEXT);
                let lines = calls.iter().skip(from).take(2 * CONTEXT);
                let mark = |call: &Operation| if call.number == number { "=> " } else { "   " };
                let around: Vec<String> =
                    lines.map(|call| format!("{}{call}", mark(call))).collect();
                let call = calls[number].to_string();
                return Err(Box::new(Violation::Object {
                    name,
                    call,
                    place: scan::position(hash_seed, name),
                    state,
                    around: around.join("\n"),
                }));
            }
        }
    }
    cycles::check(history).map_err(Violation::Cycle)?;
    Ok(checked)
}
