//! Computes Cassandra's ring: which instance has which tokens, which instances hold a row, and
//! which rows become unavailable when servers fail.

use crate::spec::TokenAllocation;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// An instance of Cassandra, as the ring sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Instance {
    /// Number of its server.
    pub server: usize,
    /// Number of its rack, as Cassandra is configured.
    pub rack: usize,
    /// Number of tokens of the instance.
    pub tokens: usize,
}

/// An instance that is on a ring or joins it, as recorded in the rack's folder.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct RingMember {
    /// The instance's tokens, which it keeps. If empty, the plan fits new tokens between the tokens
    /// of other instances.
    pub tokens: Vec<i64>,
    /// Whether the instance joined an existing ring, and so streams its rows from others.
    pub joined: bool,
    /// Whether the instance has ever been up on the ring. If so, its disk has rows, and the
    /// instance must not start without them.
    pub begun: bool,
}

/// A token, and the instance that owns it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Token {
    /// The token's value, in the range of Cassandra's Murmur3Partitioner.
    pub at: i64,
    /// The number of the instance that owns the token.
    pub instance: usize,
}

/// The tokens of all instances. [`Ring::new`] allocates tokens for a new ring; `Ring::extended`
/// adds instances to a ring that exists. [`Ring::replicas`] returns the instances that hold a row,
/// and [`Ring::placement`] computes which rows depend on which servers.
#[derive(Clone, Debug)]
pub struct Ring {
    /// The instances, by number.
    pub instances: Vec<Instance>,
    /// All tokens, ascending. A row belongs to the first token that is at least its hash. A row
    /// whose hash is above the last token belongs to the first one.
    pub tokens: Vec<Token>,
    /// Number of different racks.
    pub racks: usize,
}

impl Ring {
    /// Allocates tokens for the instances of a new ring. `random` returns a random number at each
    /// call. `replication` is the number of neighbouring tokens that should be on different
    /// servers; only [`TokenAllocation::Even`] uses it.
    #[must_use]
    pub fn new(
        instances: Vec<Instance>,
        replication: usize,
        picked: TokenAllocation,
        random: &mut dyn FnMut() -> u64,
    ) -> Self {
        let mut tokens: Vec<Token> = match picked {
            TokenAllocation::Even => evenly(&mixed(&instances, replication, random)),
            TokenAllocation::Adjacent => evenly(&side_by_side(&instances)),
            TokenAllocation::Random => {
                let token = |instance| Token { at: random().cast_signed(), instance };
                side_by_side(&instances).into_iter().map(token).collect()
            }
        };
        tokens.sort_unstable();
        tokens.dedup_by_key(|token| token.at);
        Self::of(instances, tokens)
    }

    /// Creates a ring from tokens that are sorted.
    pub(crate) fn of(instances: Vec<Instance>, tokens: Vec<Token>) -> Self {
        let racks = distinct(instances.iter().map(|instance| instance.rack));
        Self { instances, tokens, racks }
    }

    /// Returns the share of all rows that belong to `token`: the rows between the previous token
    /// and `token`.
    #[must_use]
    pub fn share(&self, token: usize) -> f64 {
        let before = self.tokens[(token + self.tokens.len() - 1) % self.tokens.len()].at;
        let rows = self.tokens[token].at.wrapping_sub(before).cast_unsigned();
        let all = 2_f64.powi(64);
        if rows == 0 { 1.0 } else { rows as f64 / all } // a single token owns all rows
    }

    /// Returns the instances that hold the rows of a token, by the rule of NetworkTopologyStrategy
    /// since Cassandra 4. Walking along the ring, the rule takes an instance if its rack has no
    /// replica yet. If there are fewer racks than replicas, the rule also takes as many instances
    /// from racks that already have a replica as there are too few racks.
    #[must_use]
    pub fn replicas(&self, token: usize, replication: usize) -> Vec<usize> {
        let mut repeats = replication.saturating_sub(self.racks);
        let (mut chosen, mut seen) = (Vec::<usize>::new(), Vec::<usize>::new());
        for step in 0..self.tokens.len() {
            if chosen.len() == replication {
                break;
            }
            let instance = self.tokens[(token + step) % self.tokens.len()].instance;
            let rack = self.instances[instance].rack;
            if chosen.contains(&instance) {
                continue;
            }
            if !seen.contains(&rack) {
                seen.push(rack);
                chosen.push(instance);
            } else if repeats > 0 {
                repeats -= 1;
                chosen.push(instance);
            }
        }
        chosen
    }

    /// Computes which instances hold which rows if each row has `replication` replicas.
    #[must_use]
    pub fn placement(&self, replication: usize) -> Placement {
        assert!(replication > 0, "a row is somewhere");
        let rows = |token| (self.share(token), self.replicas(token, replication));
        let rows = (0..self.tokens.len()).map(rows).collect();
        Placement { instances: self.instances.clone(), replication, rows }
    }
}

/// Which instances hold which rows, and what that means when servers fail.
#[derive(Clone, Debug)]
pub struct Placement {
    instances: Vec<Instance>,
    replication: usize,
    /// For each token, its share of all rows and the instances that hold these rows.
    rows: Vec<(f64, Vec<usize>)>,
}

impl Placement {
    /// Returns the share of rows that have two replicas or more on one server.
    #[must_use]
    pub fn doubled(&self) -> f64 {
        let one = |server| server;
        self.rows
            .iter()
            .filter(|(_, has)| self.count(has, &one).values().any(|count| *count > 1))
            .map(|rows| rows.0)
            .sum()
    }

    /// Returns the share of rows that lose the majority of their replicas when a group of servers
    /// fails, for the worst group. `group` maps a server to its group.
    #[must_use]
    pub fn lost_with(&self, group: &dyn Fn(usize) -> usize) -> f64 {
        let mut lost = HashMap::<usize, f64>::new();
        for (share, has) in &self.rows {
            for (group, count) in self.count(has, group) {
                if count > self.spare() {
                    *lost.entry(group).or_default() += share;
                }
            }
        }
        lost.values().copied().fold(0.0, f64::max)
    }

    /// Returns the share of server pairs whose failure leaves some rows without a majority of their
    /// replicas, and the share of rows for which this holds with the worst pair.
    #[must_use]
    pub fn lost_with_two(&self) -> (f64, f64) {
        let one = |server| server;
        // A server whose failure alone takes rows takes them in any pair.
        let mut alone = HashMap::<usize, f64>::new();
        let mut both = HashMap::<(usize, usize), f64>::new();
        for (share, has) in &self.rows {
            let counts: Vec<(usize, usize)> = self.count(has, &one).into_iter().collect();
            for (number, (server, count)) in counts.iter().enumerate() {
                if *count > self.spare() {
                    *alone.entry(*server).or_default() += share;
                }
                for (other, more) in &counts[number + 1..] {
                    // Rows that one of the two servers takes alone are in `alone`.
                    let together = count + more > self.spare();
                    if together && *count <= self.spare() && *more <= self.spare() {
                        *both.entry((*server, *other)).or_default() += share;
                    }
                }
            }
        }
        let servers = distinct(self.instances.iter().map(|instance| instance.server));
        let choose = |count: usize| count * count.saturating_sub(1) / 2;
        let pairs = choose(servers);
        let of = |server: &usize| alone.get(server).copied().unwrap_or(0.0);
        let unharmed = choose(servers - alone.len())
            - both.keys().filter(|(one, other)| of(one) == 0.0 && of(other) == 0.0).count();
        let mut worst = both
            .iter()
            .map(|((one, other), share)| share + of(one) + of(other))
            .fold(0.0, f64::max);
        let mut alone: Vec<f64> = alone.into_values().collect();
        alone.sort_by(|one, other| other.total_cmp(one));
        worst = worst.max(alone.iter().take(2).sum());
        (if pairs == 0 { 0.0 } else { (pairs - unharmed) as f64 / pairs as f64 }, worst)
    }

    /// Returns the number of rows of the fullest and of the emptiest instance, each as a multiple
    /// of the mean. Each replica counts.
    #[must_use]
    pub fn balance(&self) -> (f64, f64) {
        let mut has = vec![0.0; self.instances.len()];
        for (share, of) in &self.rows {
            of.iter().for_each(|instance| has[*instance] += share);
        }
        let mean = has.iter().sum::<f64>() / has.len() as f64;
        let (least, most) = has
            .iter()
            .fold((f64::MAX, 0.0_f64), |(least, most), one| (least.min(*one), most.max(*one)));
        (most / mean, least / mean)
    }

    /// Returns the number of replicas that can fail while a majority is left.
    fn spare(&self) -> usize {
        self.replication - (self.replication / 2 + 1)
    }

    /// Counts the replicas of a row in each group of servers. `has` lists the instances that hold
    /// the row.
    fn count(&self, has: &[usize], group: &dyn Fn(usize) -> usize) -> BTreeMap<usize, usize> {
        let mut counts = BTreeMap::new();
        has.iter().for_each(|instance| {
            *counts.entry(group(self.instances[*instance].server)).or_default() += 1
        });
        counts
    }
}

fn distinct(values: impl Iterator<Item = usize>) -> usize {
    let mut values: Vec<usize> = values.collect();
    values.sort_unstable();
    values.dedup();
    values.len()
}

/// Spaces tokens evenly around the ring, and gives them to the instances in the order of `order`.
fn evenly(order: &[usize]) -> Vec<Token> {
    // The first token is the lowest value, which is offset 0.
    let place = |number: usize| {
        let offset = ((number as u128) << 64) / order.len().max(1) as u128;
        i64::MIN.wrapping_add_unsigned(u64::try_from(offset).unwrap_or(u64::MAX))
    };
    order
        .iter()
        .enumerate()
        .map(|(number, instance)| Token { at: place(number), instance: *instance })
        .collect()
}

/// Returns the instance of each token in turn: all instances in the order of their numbers, then
/// again, until each has all of its tokens. So instances of one server are neighbours.
fn side_by_side(instances: &[Instance]) -> Vec<usize> {
    let rounds = instances.iter().map(|instance| instance.tokens).max().unwrap_or(0);
    let in_round =
        |round: usize| (0..instances.len()).filter(move |one| instances[*one].tokens > round);
    (0..rounds).flat_map(in_round).collect()
}

/// Number of random orders that are tried to find one that also fits where the ring closes.
const TRIES: usize = 64;

/// Returns an order of instances in which `replication` neighbours are on different servers all
/// around the ring, where possible. The order is random, so that all other servers share the load
/// of a server that fails. If no random order fits, the order of [`in_rounds`] is used if it fits
/// better.
fn mixed(
    instances: &[Instance],
    replication: usize,
    random: &mut dyn FnMut() -> u64,
) -> Vec<usize> {
    let near = |order: &[usize]| {
        let server = |at: usize| instances[order[at % order.len()]].server;
        let pairs =
            (0..order.len()).flat_map(|at| (1..replication).map(move |next| (at, at + next)));
        pairs.filter(|(at, next)| server(*at) == server(*next)).count()
    };
    let mut best = (usize::MAX, Vec::new());
    for _ in 0..TRIES {
        let order = apart(instances, replication, random);
        let found = near(&order);
        if found < best.0 {
            best = (found, order);
        }
        if found == 0 {
            break;
        }
    }
    let without = in_rounds(instances);
    if near(&without) < best.0 { without } else { best.1 }
}

/// Returns the instance of each token in turn: one instance of each server, then the next instance
/// of each server, and so on, until each instance has all of its tokens.
fn in_rounds(instances: &[Instance]) -> Vec<usize> {
    let mut nth = HashMap::<usize, usize>::new(); // number of an instance on its server
    let mut keyed: Vec<(usize, usize, usize)> = Vec::new();
    for (number, instance) in instances.iter().enumerate() {
        let of_server = nth.entry(instance.server).or_default();
        keyed.extend((0..instance.tokens).map(|token| (token, *of_server, number)));
        *of_server += 1;
    }
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, _, number)| number).collect()
}

/// Returns a random order in which `replication` neighbours are on different servers, except
/// perhaps where the ring closes.
fn apart(
    instances: &[Instance],
    replication: usize,
    random: &mut dyn FnMut() -> u64,
) -> Vec<usize> {
    let servers = instances.iter().map(|instance| instance.server + 1).max().unwrap_or(0);
    // The instances of each server, and the number of tokens still to be placed, per instance and
    // per server.
    let mut of_server = vec![Vec::new(); servers];
    instances
        .iter()
        .enumerate()
        .for_each(|(number, instance)| of_server[instance.server].push(number));
    let mut left: Vec<usize> = instances.iter().map(|instance| instance.tokens).collect();
    let mut open: Vec<usize> =
        of_server.iter().map(|of| of.iter().map(|one| left[*one]).sum()).collect();
    let total: usize = open.iter().sum();
    let mut last = vec![None::<usize>; servers];
    let mut order = Vec::with_capacity(total);
    while order.len() < total {
        let at = order.len();
        let waited = |server: usize| last[server].map_or(usize::MAX, |last| at - last);
        let keep = replication.saturating_sub(1).min(servers.saturating_sub(1));
        // Of the servers whose last token is far enough away, take one with the most tokens left,
        // since servers with many tokens must begin early. If none is far enough, take the one that
        // is furthest away.
        let ready = (0..servers).filter(|server| open[*server] > 0 && waited(*server) > keep);
        let most = ready.clone().map(|server| open[server]).max();
        let pick = match most {
            Some(most) => {
                let equal: Vec<usize> = ready.filter(|server| open[*server] == most).collect();
                equal[below(equal.len(), random)]
            }
            None => (0..servers)
                .filter(|server| open[*server] > 0)
                .max_by_key(|server| waited(*server))
                .unwrap_or(0),
        };
        let of = &of_server[pick];
        let most = of.iter().map(|one| left[*one]).max().unwrap_or(0);
        let equal: Vec<usize> = of.iter().copied().filter(|one| left[*one] == most).collect();
        let instance = equal[below(equal.len(), random)];
        left[instance] -= 1;
        open[pick] -= 1;
        last[pick] = Some(at);
        order.push(instance);
    }
    order
}

fn below(count: usize, random: &mut dyn FnMut() -> u64) -> usize {
    assert!(count > 0, "one of none");
    usize::try_from(random() % count as u64).unwrap_or(0)
}
