//! The rules of a box, in order.

use super::{Action, Program};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Most rules of a box.
pub const MAX_RULES: usize = 64;

/// Ports that rules can tell apart: those with numbers below this.
pub const MAX_FILTER_PORTS: usize = 64;

/// A rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rule {
    /// Which packets, in pcap's language.
    pub expression: String,
    /// Only for packets that came in at this port; none: at any.
    pub from: Option<usize>,
    /// The same, compiled.
    pub program: Program,
    /// What happens to them.
    pub action: Action,
}

/// What a rule has seen.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Counters {
    /// Packets that matched, each segment of a super-packet counted.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of those that were to be rewritten, packets that lacked a field.
    pub lacking: u64,
}

impl Counters {
    pub(crate) fn add(&mut self, more: Self) {
        self.packets += more.packets;
        self.bytes += more.bytes;
        self.lacking += more.lacking;
    }
}

/// What is to become of a packet.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Verdict {
    /// It goes no further.
    pub dropped: bool,
    /// The ports that get another of it: bit by number.
    pub mirrors: u64,
}

/// Rules with their counters. Clones have the same rules, each with counters of its own.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Vec<(Arc<Rule>, Counters)>,
}

impl Rules {
    /// These rules, in order; those beyond [`MAX_RULES`] are handed back.
    ///
    /// # Errors
    /// There are too many.
    pub fn new(rules: Vec<Rule>) -> Result<Self, Vec<Arc<Rule>>> {
        Self::of(rules.into_iter().map(Arc::new).collect())
    }

    /// The same of rules that others have as well.
    pub(crate) fn of(mut rules: Vec<Arc<Rule>>) -> Result<Self, Vec<Arc<Rule>>> {
        match rules.len() {
            count if count > MAX_RULES => Err(rules.split_off(MAX_RULES)),
            _ => Ok(Self {
                rules: rules.into_iter().map(|rule| (rule, Counters::default())).collect(),
            }),
        }
    }

    /// The rules, in order.
    pub(crate) fn list(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.rules.iter().map(|(rule, _)| rule)
    }

    /// Takes the place of `before`: rules that are in both go on counting.
    pub(crate) fn take_over(&mut self, before: &Self) {
        for (rule, counters) in &mut self.rules {
            let known = before.rules.iter().find(|(known, _)| Arc::ptr_eq(known, rule));
            *counters = known.map_or_else(Counters::default, |(_, counters)| *counters);
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Applies the rules to a packet. `head` is its beginning, from the Ethernet header on, with
    /// all headers; `length` is all of it. It counts as `packets` with together `bytes`.
    ///
    /// A super-packet is seen whole: its IP length is that of the whole.
    pub fn apply(
        &mut self,
        from: usize,
        head: &mut [u8],
        length: u32,
        packets: u32,
        bytes: u64,
    ) -> Verdict {
        let mut verdict = Verdict::default();
        for (rule, counters) in &mut self.rules {
            if rule.from.is_some_and(|only| only != from) || rule.program.run(head, length) == 0 {
                continue;
            }
            counters.packets += u64::from(packets);
            counters.bytes += bytes;
            match &rule.action {
                Action::Count => {}
                Action::Drop => {
                    verdict.dropped = true;
                    return verdict;
                }
                Action::Mirror(port) => {
                    verdict.mirrors |= u32::try_from(*port)
                        .ok()
                        .and_then(|port| 1u64.checked_shl(port))
                        .unwrap_or(0);
                }
                Action::Rewrite(changes) => {
                    let lacking = changes.iter().filter(|change| !change.apply(head)).count();
                    counters.lacking += if lacking == 0 { 0 } else { u64::from(packets) };
                }
            }
        }
        verdict
    }

    /// What each rule has seen.
    pub fn counters(&self) -> impl Iterator<Item = (&Arc<Rule>, Counters)> {
        self.rules.iter().map(|(rule, counters)| (rule, *counters))
    }
}
