//! The rules of a box, in order.

use super::{Action, Program};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Limit on the rules of a box. A list with more rules is rejected.
pub const MAX_RULES: usize = 64;

/// Limit on the ports to which rules can mirror packets: those with an index below this.
pub const MAX_FILTER_PORTS: usize = 64;

/// A rule of a box's filter.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rule {
    /// The expression that packets must match, in pcap's language.
    pub expression: String,
    /// Index of a port: the rule matches only packets that arrived there. With `None`, the rule
    /// matches packets from all ports.
    pub from: Option<usize>,
    /// The compiled expression.
    pub program: Program,
    /// What the box does with packets that match.
    pub action: Action,
}

/// The counters of a rule.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Counters {
    /// Packets that matched. Each segment of a super-packet counts.
    pub packets: u64,
    /// Bytes of the packets that matched.
    pub bytes: u64,
    /// Those of `packets` that lacked a field that the rule changes.
    pub lacking: u64,
}

impl Counters {
    pub(crate) fn add(&mut self, more: Self) {
        self.packets += more.packets;
        self.bytes += more.bytes;
        self.lacking += more.lacking;
    }
}

/// What the rules decide about a packet.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Verdict {
    /// Whether the packet is dropped.
    pub dropped: bool,
    /// The ports that get a copy of the packet: bit `n` for port `n`.
    pub mirrors: u64,
}

/// Rules with their counters. Clones share the rules, but each clone has counters of its own.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Vec<(Arc<Rule>, Counters)>,
}

impl Rules {
    /// Makes a list of rules, in order, with counters of zero. If there are too many, the error
    /// contains the rules beyond the first [`MAX_RULES`].
    ///
    /// # Errors
    /// There are more than [`MAX_RULES`] rules.
    pub fn new(rules: Vec<Rule>) -> Result<Self, Vec<Arc<Rule>>> {
        Self::of(rules.into_iter().map(Arc::new).collect())
    }

    /// Makes a list of rules that are shared with other lists.
    pub(crate) fn of(mut rules: Vec<Arc<Rule>>) -> Result<Self, Vec<Arc<Rule>>> {
        match rules.len() {
            count if count > MAX_RULES => Err(rules.split_off(MAX_RULES)),
            _ => Ok(Self {
                rules: rules.into_iter().map(|rule| (rule, Counters::default())).collect(),
            }),
        }
    }

    /// Returns the rules, in order.
    pub(crate) fn list(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.rules.iter().map(|(rule, _)| rule)
    }

    /// Copies the counters of `before` for the rules that are in both lists. Sets the counters of
    /// all other rules to zero.
    pub(crate) fn take_over(&mut self, before: &Self) {
        for (rule, counters) in &mut self.rules {
            let known = before.rules.iter().find(|(known, _)| Arc::ptr_eq(known, rule));
            *counters = known.map_or_else(Counters::default, |(_, counters)| *counters);
        }
    }

    /// Returns whether there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Applies the rules to a packet that arrived at port `from`. `head` is the beginning of the
    /// packet, from the Ethernet header on, with all headers. `length` is the length of the whole
    /// packet. In the counters, the packet counts as `packets` packets with `bytes` bytes in total.
    ///
    /// The rules see a super-packet as one packet, with the IP length of the super-packet.
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

    /// Returns each rule with its counters.
    pub fn counters(&self) -> impl Iterator<Item = (&Arc<Rule>, Counters)> {
        self.rules.iter().map(|(rule, counters)| (rule, *counters))
    }
}
