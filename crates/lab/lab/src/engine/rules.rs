//! Lists and changes the filter's rules of a running box, from other threads.

use super::{EngineError, EngineHandle};
use crate::filter::{Counters, MAX_RULES, Rule, Rules};
use std::sync::Arc;

/// A rule with its counters. The `Arc` is the same one for as long as the rule is in the box.
pub type CountedRule = (Arc<Rule>, Counters);

impl EngineHandle {
    /// Returns the rules, in order, with their counters summed over all workers. Waits for one loop
    /// iteration of each worker.
    ///
    /// # Errors
    /// The box has stopped, or a worker does not reply within 10 seconds.
    pub fn rules(&self) -> Result<Vec<CountedRule>, EngineError> {
        let rules = self.lock_rules(); // keeps them unchanged while they are counted
        let seen = self.report()?.filters;
        Ok(rules.list().cloned().zip(seen).collect())
    }

    /// Adds, removes and reorders rules. Rules that stay keep their counters. Returns the removed
    /// rules with their counters. Each worker changes from the old list to the new one between two
    /// loop iterations.
    ///
    /// # Errors
    /// `change` returned an error, or there are too many rules; in these two cases no worker has
    /// changed its rules. Or the box has stopped, or a worker did not reply within 10 seconds.
    pub fn change_rules<E: From<EngineError>>(
        &self,
        change: impl FnOnce(&mut Vec<Arc<Rule>>) -> Result<(), E>,
    ) -> Result<Vec<CountedRule>, E> {
        let mut rules = self.lock_rules();
        let mut next: Vec<_> = rules.list().cloned().collect();
        change(&mut next)?;
        let next =
            Rules::of(next).map_err(|beyond| EngineError::Rules(MAX_RULES + beyond.len()))?;
        let mut removed: Vec<CountedRule> = Vec::new();
        for worker in self.workers() {
            let old = worker.remote.rules(next.clone()).ok_or(EngineError::Stopped)?;
            let old = old
                .counters()
                .filter(|(rule, _)| !next.list().any(|stays| Arc::ptr_eq(stays, rule)));
            for (rule, seen) in old {
                match removed.iter_mut().find(|(known, _)| Arc::ptr_eq(known, rule)) {
                    Some((_, sum)) => sum.add(seen),
                    None => removed.push((rule.clone(), seen)),
                }
            }
        }
        *rules = next;
        Ok(removed)
    }
}
