//! Tuning a rack: what is advised, what of it helps as measured, and the way back.
//!
//! [`Facts`] are what a host says of itself; what is worth a try follows from them and the rack's
//! description by pure functions ([`candidates`]). [`run`] tries one [`Candidate`] after the other
//! on a [`Subject`]: measured before, measured after, kept only if it is better by more than two
//! measurements of the same differ. Before anything is changed the [`Journal`] has the way
//! back, durably; [`undo`] goes it. What was found for instances is an [`Overlay`] over the rack's
//! description, which is left alone.

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
pub use journal::{Entry, Journal, MAX_ENTRIES, State};
pub use measured::{Measured, better, margin};
pub use overlay::Overlay;
pub use search::{News, Subject, TuneError, run, undo};
pub use tables::{Table, Tables};

use sprat_plan::Spec;

/// What is worth a try, in the order in which it is tried: of hosts, by what they say; of
/// instances, by the rack's description; of tables.
#[must_use]
pub fn candidates(spec: &Spec, hosts: &[(String, Facts)], tables: &[Table]) -> Vec<Candidate> {
    let mut all = instances::candidates(spec);
    all.extend(host::candidates(hosts));
    all.extend(tables.iter().flat_map(Table::candidates));
    all.sort_by_key(|candidate| Class::ALL.iter().position(|class| *class == candidate.class));
    all
}
