//! Tries candidates one after another: measures before and after, and keeps those that help.

use crate::change::{Candidate, Change, Keep};
use crate::journal::{Entry, Journal, MAX_ENTRIES, TrialState};
use crate::measured::{Measured, better, margin};
use std::io;

/// The rack that is tuned: it reports present settings, applies changes, and measures latency under
/// load. It is a live rack, or in tests a simulated one.
pub trait Subject {
    /// Returns the change that would undo `change`, without changing anything.
    ///
    /// # Errors
    /// The present value of the setting cannot be read. The text is shown to the user.
    fn present(&mut self, change: &Change) -> Result<Change, String>;

    /// Makes changes in order, and waits until the rack is healthy again. If several changes
    /// concern instances, only the last has to take effect.
    ///
    /// # Errors
    /// A change failed, or the rack did not become healthy after it. Earlier changes may have been
    /// made.
    fn apply(&mut self, changes: &[Change]) -> Result<(), String>;

    /// Restarts all instances that have been measured since they last started, and waits until the
    /// rack is healthy.
    ///
    /// # Errors
    /// An instance does not restart, or the rack does not become healthy in time.
    fn restart_instances(&mut self) -> Result<(), String>;

    /// Measures latency with the present settings.
    ///
    /// # Errors
    /// The measurement failed.
    fn measure(&mut self) -> Result<Measured, String>;

    /// Returns whether tuning should stop. If so, the present candidate is undone, and the
    /// candidates that were kept stay in effect.
    fn stopped(&self) -> bool;

    /// Receives an event.
    fn notify(&mut self, event: &TuneEvent<'_>);
}

/// An event of tuning.
#[derive(Clone, Copy, Debug)]
pub enum TuneEvent<'a> {
    /// The measurement before any change, and the margin ([`margin`]).
    Before(&'a Measured, f64),
    /// A candidate is about to be tried: the candidate, its number from 1, and the number of
    /// candidates.
    Trying(&'a Candidate, usize, usize),
    /// The outcome of a candidate.
    Tried(&'a Entry),
    /// A candidate was undone that an interrupted run had left in effect without an outcome.
    Recovered(&'a Entry),
    /// The final measurement.
    After(&'a Measured),
}

/// Why tuning ended early.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The journal cannot be written. No further change is made.
    #[error("the journal of changes cannot be written: {0}")]
    Journal(#[from] io::Error),
    /// A measurement without a new candidate failed, a present setting could not be read, or a
    /// change could not be undone.
    #[error("{doing}: {why}")]
    Subject {
        /// The step that failed.
        doing: String,
        /// The error.
        why: String,
    },
    /// The journal has [`MAX_ENTRIES`] entries, mostly from earlier runs.
    #[error(
        "{MAX_ENTRIES} changes were tried on this rack: undo them (`sprat rack tune --undo`) to \
         start again"
    )]
    Full,
}

fn during(doing: &str) -> impl FnOnce(String) -> TuneError {
    let doing = doing.to_owned();
    move |why| TuneError::Subject { doing, why }
}

/// Undoes the candidate that an interrupted run left without an outcome, then tries candidates in
/// order. If any candidate restarts instances, instances are restarted before every measurement:
/// instances get faster while they run, and this must not count for a candidate.
///
/// # Errors
/// [`TuneError::Journal`] if the journal cannot be saved. [`TuneError::Subject`] if a measurement
/// without a new candidate fails, a present setting cannot be read, or a change cannot be undone.
/// [`TuneError::Full`] if the journal has [`MAX_ENTRIES`]. After an error the journal has all
/// changes that are in effect, and the changes that undo them. A candidate that cannot be applied
/// or measured is no error: it is undone, and recorded as failed.
pub fn run(
    rack: &mut impl Subject,
    journal: &mut Journal,
    candidates: &[Candidate],
) -> Result<(), TuneError> {
    recover(rack, journal)?;
    let restart =
        candidates.iter().flat_map(|candidate| &candidate.changes).any(Change::starts_instances);
    let first = measure(rack, restart).map_err(during("measuring the present settings"))?;
    let mut current = measure(rack, restart).map_err(during("measuring the present settings"))?;
    journal.margin = margin(&first, &current);
    // The journal records the better of the first two measurements, so that noise is not shown as
    // an improvement.
    if journal.before.is_none() {
        journal.before = Some(if first.score < current.score { first } else { current });
    }
    journal.save()?;
    rack.notify(&TuneEvent::Before(&current, journal.margin));
    for (at, candidate) in candidates.iter().enumerate() {
        if rack.stopped() {
            break;
        }
        rack.notify(&TuneEvent::Trying(candidate, at + 1, candidates.len()));
        let number = begin(rack, journal, candidate, current)?;
        let tried =
            rack.apply(&journal.entries[number].changes).and_then(|()| measure(rack, restart));
        let keep = match &tried {
            Ok(after) => match candidate.class.keep() {
                Keep::Better => better(&current, after, journal.margin),
                Keep::NotWorse => !better(after, &current, journal.margin),
            },
            Err(_) => false,
        };
        let stopped = rack.stopped();
        let entry = &mut journal.entries[number];
        entry.after = tried.as_ref().ok().copied().filter(|_| !stopped);
        if keep && !stopped {
            entry.state = TrialState::Kept;
            current = entry.after.unwrap_or(current);
        } else {
            rack.apply(&entry.back).map_err(during("undoing a change that did not help"))?;
            entry.state = tried.err().map_or(TrialState::Undone, TrialState::Failed);
        }
        journal.save()?;
        rack.notify(&TuneEvent::Tried(&journal.entries[number]));
        // The next candidate is compared with a new measurement, since machines change from minute
        // to minute.
        if journal.entries[number].state != TrialState::Kept
            && !rack.stopped()
            && at + 1 < candidates.len()
        {
            current = measure(rack, restart).map_err(during("measuring the present settings"))?;
        }
    }
    if !rack.stopped() {
        let after = measure(rack, restart).map_err(during("measuring the new settings"))?;
        journal.after = Some(after);
        journal.save()?;
        rack.notify(&TuneEvent::After(&after));
    }
    Ok(())
}

/// Records the candidate that is about to be tried, and how to undo it. Returns the entry's number.
fn begin(
    rack: &mut impl Subject,
    journal: &mut Journal,
    candidate: &Candidate,
    current: Measured,
) -> Result<usize, TuneError> {
    if journal.entries.len() >= MAX_ENTRIES {
        return Err(TuneError::Full);
    }
    let (mut changes, mut back) = (Vec::new(), Vec::new());
    for change in &candidate.changes {
        let present = rack.present(change).map_err(during("reading the present settings"))?;
        changes.push(match (&present, change) {
            (Change::Instances(present), Change::Instances(more)) => {
                Change::Instances(present.with(more))
            }
            _ => change.clone(),
        });
        back.push(present);
    }
    back.reverse();
    journal.entries.push(Entry {
        class: candidate.class,
        proposed: candidate.proposed.clone(),
        present: candidate.present.clone(),
        why: candidate.why.to_owned(),
        changes,
        back,
        state: TrialState::Trying,
        before: Some(current),
        after: None,
    });
    journal.save()?;
    Ok(journal.entries.len() - 1)
}

/// Measures latency. With `restart`, instances are restarted first.
fn measure(rack: &mut impl Subject, restart: bool) -> Result<Measured, String> {
    if restart {
        rack.restart_instances()?;
    }
    rack.measure()
}

/// Undoes the candidates that were being tried when an earlier run was interrupted.
fn recover(rack: &mut impl Subject, journal: &mut Journal) -> Result<(), TuneError> {
    for number in (0..journal.entries.len()).rev() {
        if journal.entries[number].state == TrialState::Trying {
            rack.apply(&journal.entries[number].back.clone())
                .map_err(during("undoing an interrupted change"))?;
            journal.entries[number].state = TrialState::Undone;
            journal.save()?;
            rack.notify(&TuneEvent::Recovered(&journal.entries[number]));
        }
    }
    Ok(())
}

/// Undoes all changes in effect, the last change first, and clears the journal. Returns the number
/// of changes that were undone.
///
/// # Errors
/// [`TuneError::Subject`] if a change cannot be undone; the journal then still has all changes.
/// [`TuneError::Journal`] if the cleared journal cannot be saved.
pub fn undo(rack: &mut impl Subject, journal: &mut Journal) -> Result<usize, TuneError> {
    let back = journal.way_back();
    if !back.is_empty() {
        rack.apply(&back).map_err(during("undoing all changes"))?;
    }
    for entry in &mut journal.entries {
        if matches!(entry.state, TrialState::Kept | TrialState::Trying) {
            entry.state = TrialState::Undone;
        }
    }
    (journal.before, journal.after) = (None, None);
    journal.entries.clear();
    journal.save()?;
    Ok(back.len())
}
