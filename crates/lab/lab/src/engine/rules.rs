//! The rules of a box that runs: listed and changed from other threads.

use super::{EngineError, Handle};
use crate::filter::{Counters, MAX_RULES, Rule, Rules};
use std::sync::Arc;

/// A rule with what it has seen; the same rule for as long as it is in the box.
pub type Seen = (Arc<Rule>, Counters);

impl Handle {
    /// The rules, in order, with what each has seen in all lanes. Takes a turn of each lane.
    ///
    /// # Errors
    /// The box has stopped.
    pub fn rules(&self) -> Result<Vec<Seen>, EngineError> {
        let rules = self.lock_rules(); // nobody changes them while they are counted
        let seen = self.report()?.filters;
        Ok(rules.list().cloned().zip(seen).collect())
    }

    /// Changes the rules: takes, adds and moves some. Those that stay go on counting; those that go
    /// are given back with what they have seen. Each lane changes from one list to the other
    /// between two turns.
    ///
    /// # Errors
    /// There are too many, the box has stopped, or what `change` says: then they are as they were.
    pub fn change_rules<E: From<EngineError>>(
        &self,
        change: impl FnOnce(&mut Vec<Arc<Rule>>) -> Result<(), E>,
    ) -> Result<Vec<Seen>, E> {
        let mut rules = self.lock_rules();
        let mut next: Vec<_> = rules.list().cloned().collect();
        change(&mut next)?;
        let next =
            Rules::of(next).map_err(|beyond| EngineError::Rules(MAX_RULES + beyond.len()))?;
        let mut gone: Vec<Seen> = Vec::new();
        for lane in self.lanes() {
            let old = lane.remote.rules(next.clone()).ok_or(EngineError::Stopped)?;
            let old = old
                .counters()
                .filter(|(rule, _)| !next.list().any(|stays| Arc::ptr_eq(stays, rule)));
            for (rule, seen) in old {
                match gone.iter_mut().find(|(known, _)| Arc::ptr_eq(known, rule)) {
                    Some((_, sum)) => sum.add(seen),
                    None => gone.push((rule.clone(), seen)),
                }
            }
        }
        *rules = next;
        Ok(gone)
    }
}
