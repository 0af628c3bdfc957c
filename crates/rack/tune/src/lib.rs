//! Tunes a rack: finds settings worth trying, keeps those that measurably help, and can undo them.
//!
//! [`Facts`] are the present settings of a host. [`candidates`] computes the changes worth trying
//! from the facts and the rack's description, by pure functions. [`run`] tries one [`Candidate`]
//! after another on a [`Subject`]: it measures before and after, and keeps a change if the
//! improvement exceeds the margin, which is the difference of two measurements of the same
//! settings. Of some classes it keeps a change that makes nothing worse by more than the margin
//! ([`Class::keep`]). Before each change the [`Journal`] durably records how to undo it, and
//! [`undo`] undoes everything. Settings found for instances are an [`Overlay`] over the rack's
//! description; the description's file is never changed.

mod change;
mod facts;
mod host;
mod instances;
mod journal;
mod measured;
mod overlay;
mod search;
mod tables;

pub use change::{Candidate, Change, Class, Keep};
pub use facts::{Facts, FactsError, MAX_ANSWER, SCRIPT, chosen, is_kernel_file};
pub use journal::{Entry, Journal, MAX_ENTRIES, TrialState};
pub use measured::{Measured, better, margin};
pub use overlay::Overlay;
pub use search::{Subject, TuneError, TuneEvent, run, undo};
pub use tables::{Table, Tables};

use sprat_plan::Spec;

/// Returns the changes worth trying, in the order of [`Class::ALL`]: settings of instances from the
/// description, of hosts from their facts, and of tables.
#[must_use]
pub fn candidates(spec: &Spec, hosts: &[(String, Facts)], tables: &[Table]) -> Vec<Candidate> {
    let mut all = instances::candidates(spec);
    all.extend(host::candidates(hosts));
    all.extend(tables.iter().flat_map(Table::candidates));
    all.sort_by_key(|candidate| Class::ALL.iter().position(|class| *class == candidate.class));
    all
}
