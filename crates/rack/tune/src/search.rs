//! Trying what is worth it, one after the other: measured before, measured after, kept only if
//! better.

use crate::change::{Candidate, Change, Keep};
use crate::journal::{Entry, Journal, MAX_ENTRIES, State};
use crate::measured::{Measured, better, margin};
use std::io;

/// What is tuned.
pub trait Subject {
    /// What a change would put aside, as the change that brings it back. Nothing is changed.
    ///
    /// # Errors
    /// It cannot be known.
    fn present(&mut self, change: &Change) -> Result<Change, String>;

    /// Makes changes, in order, and waits until all is well again. Of several that say what
    /// instances are set to, the last counts.
    ///
    /// # Errors
    /// One cannot be made; those before it may have been.
    fn apply(&mut self, changes: &[Change]) -> Result<(), String>;

    /// Has all instances start again that have been measured since they last did, and waits until
    /// all is well.
    ///
    /// # Errors
    /// One does not come back.
    fn start_anew(&mut self) -> Result<(), String>;

    /// Measures what is.
    ///
    /// # Errors
    /// Nothing could be measured.
    fn measure(&mut self) -> Result<Measured, String>;

    /// Whether somebody wants it to end: what is being tried is undone, what was kept stays.
    fn stopped(&self) -> bool;

    /// Is told what happens.
    fn tell(&mut self, news: &News<'_>);
}

/// What happens.
#[derive(Clone, Copy, Debug)]
pub enum News<'a> {
    /// What was found before anything was changed, and by what two measurements of it differ.
    Before(&'a Measured, f64),
    /// This is tried now: its number, of how many.
    Trying(&'a Candidate, usize, usize),
    /// This became of it.
    Tried(&'a Entry),
    /// What an earlier run left half-way was undone.
    Mended(&'a Entry),
    /// What is found after all.
    After(&'a Measured),
}

/// Why tuning ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// What was done cannot be written down, and so nothing is done.
    #[error("what was changed must be written down, and cannot be: {0}")]
    Journal(#[from] io::Error),
    /// Nothing could be measured, or what was changed cannot be changed back.
    #[error("{doing}: {why}")]
    Subject {
        /// What was being done.
        doing: String,
        /// What was said.
        why: String,
    },
    /// Runs that follow one another have filled the file.
    #[error(
        "{MAX_ENTRIES} changes were tried on this rack: undo them (`sprat rack tune --undo`), which begins anew"
    )]
    Full,
}

fn during(doing: &str) -> impl FnOnce(String) -> TuneError {
    let doing = doing.to_owned();
    move |why| TuneError::Subject { doing, why }
}

/// Tries candidates in order. What an earlier run left half-way is undone first. Where instances
/// start again for one of them, they do so before every measurement: they get quicker while they
/// run, and what is older must not pass for what is better.
///
/// # Errors
/// See [`TuneError`]. What stands then is in the journal, with the way back.
pub fn run(
    rack: &mut impl Subject,
    journal: &mut Journal,
    candidates: &[Candidate],
) -> Result<(), TuneError> {
    mend(rack, journal)?;
    let anew =
        candidates.iter().flat_map(|candidate| &candidate.changes).any(Change::starts_instances);
    let first = measure(rack, anew).map_err(during("measuring what is"))?;
    let mut current = measure(rack, anew).map_err(during("measuring what is"))?;
    journal.margin = margin(&first, &current);
    // What two measurements say, the better of them: whatever comes must beat it.
    if journal.before.is_none() {
        journal.before = Some(if first.score < current.score { first } else { current });
    }
    journal.save()?;
    rack.tell(&News::Before(&current, journal.margin));
    for (at, candidate) in candidates.iter().enumerate() {
        if rack.stopped() {
            break;
        }
        rack.tell(&News::Trying(candidate, at + 1, candidates.len()));
        let number = begin(rack, journal, candidate, current)?;
        let tried = rack.apply(&journal.entries[number].changes).and_then(|()| measure(rack, anew));
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
            entry.state = State::Kept;
            current = entry.after.unwrap_or(current);
        } else {
            rack.apply(&entry.back).map_err(during("changing back what did not help"))?;
            entry.state = tried.err().map_or(State::Undone, State::Failed);
        }
        journal.save()?;
        rack.tell(&News::Tried(&journal.entries[number]));
        // The next one is held against what is measured now: machines are not the same from minute
        // to minute.
        if journal.entries[number].state != State::Kept
            && !rack.stopped()
            && at + 1 < candidates.len()
        {
            current = measure(rack, anew).map_err(during("measuring what is"))?;
        }
    }
    if !rack.stopped() {
        let after = measure(rack, anew).map_err(during("measuring what has become"))?;
        journal.after = Some(after);
        journal.save()?;
        rack.tell(&News::After(&after));
    }
    Ok(())
}

/// Writes down what is about to be tried, with the way back.
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
        let present = rack.present(change).map_err(during("asking for what is"))?;
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
        what: candidate.what.clone(),
        present: candidate.present.clone(),
        why: candidate.why.to_owned(),
        changes,
        back,
        state: State::Trying,
        before: Some(current),
        after: None,
    });
    journal.save()?;
    Ok(journal.entries.len() - 1)
}

/// Measures what is; `anew`: of instances that have just started.
fn measure(rack: &mut impl Subject, anew: bool) -> Result<Measured, String> {
    if anew {
        rack.start_anew()?;
    }
    rack.measure()
}

/// Undoes what was being tried when an earlier run ended without a word.
fn mend(rack: &mut impl Subject, journal: &mut Journal) -> Result<(), TuneError> {
    for number in (0..journal.entries.len()).rev() {
        if journal.entries[number].state == State::Trying {
            rack.apply(&journal.entries[number].back.clone())
                .map_err(during("changing back what was half-way"))?;
            journal.entries[number].state = State::Undone;
            journal.save()?;
            rack.tell(&News::Mended(&journal.entries[number]));
        }
    }
    Ok(())
}

/// Changes everything back, the last first, and forgets it.
///
/// # Errors
/// Something cannot be changed back; the journal still has all of it.
pub fn undo(rack: &mut impl Subject, journal: &mut Journal) -> Result<usize, TuneError> {
    let back = journal.way_back();
    if !back.is_empty() {
        rack.apply(&back).map_err(during("changing everything back"))?;
    }
    for entry in &mut journal.entries {
        if matches!(entry.state, State::Kept | State::Trying) {
            entry.state = State::Undone;
        }
    }
    (journal.before, journal.after) = (None, None);
    journal.entries.clear();
    journal.save()?;
    Ok(back.len())
}
