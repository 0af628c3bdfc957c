//! Many operations, one at a time, and a look around whenever one took long.

use std::collections::HashMap;
use std::time::Instant;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use sprat_net::Scale;

use super::causes::{Apart, Cause, Tally};
use super::cliffs::{Cliff, TAIL_FROM_MEDIANS};
use super::look::{Cores, Looker};
use crate::single::{Objects, Single};
use sprat_measure::hist::{Latencies, nanos};

/// Operations before each turn that do not count, and tell what is usual.
const WARM_UP: usize = 2_000;

/// Looks close together that tell how long a usual round of the server takes, and operations
/// between two of them.
const USUAL_LOOKS: usize = 16;
const USUAL_OPERATIONS: usize = 8;

/// Most operations of a path that are examined; of those beyond, the cause is not known.
const MAX_EXAMINED: usize = 50_000;

/// Share of operations beyond which one is examined. More would make the run one of looks.
const EXAMINED_FROM: f64 = 0.99;

/// But whatever takes this many medians is examined, even where more than that share does: on a
/// machine that is not quiet.
const EXAMINED_FROM_MEDIANS: u64 = 8;

/// A look after so many operations at the latest: what is seen then at one of them cannot be of
/// long before.
const LOOK_EVERY: u64 = 512;

/// Numbers of objects advance by this, a prime, so that neighbours in time are none in memory.
const STRIDE: usize = 7_919;

/// What came of the operations over one path.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Samples {
    /// All operations, ns.
    #[serde(with = "sprat_measure::hist::counted")]
    pub latencies: Latencies,
    /// Operations that took long and were examined: how long, ns, and why.
    pub examined: Vec<(u64, Cause)>,
    /// How often a look tells things although nothing took long.
    pub chance: Chance,
    /// Operations made behind looks, that do not count.
    pub uncounted: u64,
    /// Time of all turns, seconds.
    pub seconds: f64,
    /// Whether the server told how its node fared.
    pub server_tells: bool,
    /// Whether the interrupts of the cores could be told.
    pub interrupts_told: bool,
}

/// What looks saw in times when no operation took long: as often as that, a cause that has no
/// duration of its own is named by chance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Chance {
    /// Such looks.
    pub looks: u64,
    /// Those that found an interrupt at the client's core.
    pub client_interrupts: u64,
    /// At the server's.
    pub server_interrupts: u64,
    /// A page fault at either end.
    pub faults: u64,
}

/// A path under measurement.
pub(super) struct Sampler {
    pub(super) single: Single,
    objects: Objects,
    write: bool,
    looker: Looker,
    scale: Scale,
    number: usize,
    pub(super) found: Samples,
}

impl Sampler {
    /// Fills the table with `objects`.
    pub(super) fn new(
        mut single: Single,
        objects: Objects,
        write: bool,
        cores: Cores,
    ) -> Result<Self> {
        single.fill(&objects)?;
        let scale = Scale::measure();
        let looker = Looker::new(cores, scale);
        Ok(Self { single, objects, write, looker, scale, number: 0, found: Samples::default() })
    }

    fn operate(&mut self) -> Result<crate::single::Lap> {
        self.number = (self.number + STRIDE) % self.objects.keys;
        self.single.operate(&self.objects, self.number, self.write)
    }

    /// Makes `count` operations that count.
    ///
    /// # Errors
    /// When one is not answered as it should be.
    pub(super) fn turn(&mut self, count: u64) -> Result<()> {
        let (median, examined_from) = self.learn()?;
        let began = Instant::now();
        let mut since_look = 0;
        for _ in 0..count {
            let lap = self.operate()?;
            let ns = nanos(self.scale, lap.total);
            self.found.latencies.record(ns);
            since_look += 1;
            let long = ns >= examined_from && self.found.examined.len() < MAX_EXAMINED;
            if long || since_look >= LOOK_EVERY {
                let change = self.looker.look(&mut self.single)?;
                if long {
                    let cause =
                        self.looker.evidence(&lap, ns.saturating_sub(median), &change).cause();
                    self.found.examined.push((ns, cause));
                } else if ns < examined_from {
                    self.found.chance.add(change.by_chance());
                }
                self.operate()?;
                self.found.uncounted += 1;
                self.looker.settle();
                since_look = 0;
            }
        }
        self.found.seconds += began.elapsed().as_secs_f64();
        self.found.server_tells = self.looker.server_tells();
        self.found.interrupts_told = self.looker.tells_interrupts();
        Ok(())
    }

    /// What is usual now: the median, and from where on an operation is examined, both ns.
    fn learn(&mut self) -> Result<(u64, u64)> {
        let mut laps = Vec::with_capacity(WARM_UP);
        for _ in 0..WARM_UP {
            laps.push(self.operate()?);
        }
        let mut rounds = Vec::with_capacity(USUAL_LOOKS);
        for _ in 0..USUAL_LOOKS {
            self.looker.look(&mut self.single)?;
            for _ in 0..USUAL_OPERATIONS {
                self.operate()?;
            }
            self.looker.look(&mut self.single)?;
            rounds.extend(self.looker.longest_round());
        }
        let turns = laps.iter().map(|lap| nanos(self.scale, lap.longest_turn)).collect();
        // A machine that is not quiet holds the server up in most of these times; in some it does
        // not.
        self.looker.learn(quantile(turns, 0.5), rounds.into_iter().min().unwrap_or(0));
        self.operate()?;
        self.looker.settle();
        let totals: Vec<u64> = laps.iter().map(|lap| nanos(self.scale, lap.total)).collect();
        let median = quantile(totals.clone(), 0.5);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a time of some us"
        )]
        let tail = (median as f64 * TAIL_FROM_MEDIANS) as u64;
        Ok((
            median,
            quantile(totals, EXAMINED_FROM).clamp(tail, (median * EXAMINED_FROM_MEDIANS).max(tail)),
        ))
    }
}

impl Chance {
    fn add(&mut self, seen: [bool; 3]) {
        self.looks += 1;
        let counts = [&mut self.client_interrupts, &mut self.server_interrupts, &mut self.faults];
        counts.into_iter().zip(seen).for_each(|(count, seen)| *count += u64::from(seen));
    }

    /// The share of looks, 0 to 1, that would have named `cause` for an end that was held up by
    /// something else.
    #[must_use]
    pub fn of(&self, cause: Cause) -> Option<f64> {
        use super::causes::End;
        let count = match cause {
            Cause::Interrupt(End::Client) => self.client_interrupts,
            Cause::Interrupt(End::Server) => self.server_interrupts,
            Cause::Fault(_) => self.faults,
            _ => return None,
        };
        (self.looks > 0).then(|| count as f64 / self.looks as f64)
    }
}

impl Samples {
    /// The operations without those that are set apart, ns. What was not examined stays in.
    ///
    /// # Panics
    /// Unless it [is sound](Self::is_sound).
    #[must_use]
    pub fn without(&self, apart: Apart) -> Latencies {
        self.less(|cause| apart.takes(cause)).expect("sound, as measured and as read")
    }

    /// Whether every operation that was examined is counted. Of a file from elsewhere that must be
    /// asked.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.less(|_| true).is_some()
    }

    fn less(&self, taken: impl Fn(Cause) -> bool) -> Option<Latencies> {
        let mut apart = Latencies::new();
        self.examined.iter().filter(|one| taken(one.1)).for_each(|&(ns, _)| apart.record(ns));
        self.latencies.without(&apart)
    }

    /// The share of operations that are set apart, 0 to 1.
    #[must_use]
    pub fn share(&self, apart: Apart) -> f64 {
        let taken = self.examined.iter().filter(|one| apart.takes(one.1)).count();
        taken as f64 / self.latencies.count().max(1) as f64
    }
    /// The causes of the examined operations within a step.
    #[must_use]
    pub fn tally(&self, cliff: &Cliff) -> Tally {
        let mut tally = Tally::default();
        // Steps are told by the histogram, whose bars are 1/1000 wide.
        let within = |ns: u64| ns <= cliff.to_ns && ns.saturating_add(ns / 500) >= cliff.from_ns;
        self.examined
            .iter()
            .filter(|&&(ns, _)| within(ns))
            .for_each(|&(_, cause)| tally.add(cause));
        tally
    }

    /// The causes of all that was examined beyond `ns`, with how many each.
    #[must_use]
    pub fn causes_beyond(&self, ns: u64) -> Vec<(Cause, u64)> {
        let mut counts = HashMap::<Cause, u64>::new();
        for &(_, cause) in self.examined.iter().filter(|one| one.0 > ns) {
            *counts.entry(cause).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|&(cause, count)| (std::cmp::Reverse(count), cause));
        counts
    }
}

fn quantile(mut values: Vec<u64>, share: f64) -> u64 {
    values.sort_unstable();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a place in a list of some thousands"
    )]
    let at = (values.len() as f64 * share) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(0)
}
