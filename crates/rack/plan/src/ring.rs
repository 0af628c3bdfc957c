//! Cassandra's ring: which instance has which tokens, where replicas go, and what is lost with
//! whom.

use crate::spec::Picked;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// An instance.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Instance {
    /// Its server, by number.
    pub server: usize,
    /// What Cassandra is told to be its rack, by number.
    pub rack: usize,
    /// How many tokens it has.
    pub tokens: usize,
}

/// An instance that is on the ring, or is to come there.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Member {
    /// Its tokens, which it keeps; none: they are fitted in between those of others.
    pub tokens: Vec<i64>,
    /// Whether it comes, or came, when there was a ring already: then it fetches its rows from
    /// others.
    pub joined: bool,
    /// Whether it has been up as a member: then it has rows, and without them it is not to start.
    pub begun: bool,
}

/// A token, and whose it is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Token {
    /// Where on the ring, as Murmur3Partitioner counts.
    pub at: i64,
    /// The instance, by number.
    pub instance: usize,
}

/// Instances on the ring.
#[derive(Clone, Debug)]
pub struct Ring {
    /// Who is on it.
    pub instances: Vec<Instance>,
    /// Tokens in order. A row belongs to the first token at its own place or behind it, and behind
    /// the last to the first.
    pub tokens: Vec<Token>,
    /// How many different racks there are.
    pub racks: usize,
}

impl Ring {
    /// Tokens for instances. `random` gives chance, where it is asked for: any number at each call.
    /// `replication` is how many neighbours on the ring are to be on different servers.
    #[must_use]
    pub fn new(
        instances: Vec<Instance>,
        replication: usize,
        picked: Picked,
        random: &mut dyn FnMut() -> u64,
    ) -> Self {
        let mut tokens: Vec<Token> = match picked {
            Picked::Even => evenly(&mixed(&instances, replication, random)),
            Picked::Adjacent => evenly(&side_by_side(&instances)),
            Picked::Random => {
                let token = |instance| Token { at: random().cast_signed(), instance };
                side_by_side(&instances).into_iter().map(token).collect()
            }
        };
        tokens.sort_unstable();
        tokens.dedup_by_key(|token| token.at);
        Self::of(instances, tokens)
    }

    /// Of tokens in order.
    pub(crate) fn of(instances: Vec<Instance>, tokens: Vec<Token>) -> Self {
        let racks = distinct(instances.iter().map(|instance| instance.rack));
        Self { instances, tokens, racks }
    }

    /// Rows that belong to a token, as a share of all: those behind the token before it.
    #[must_use]
    pub fn share(&self, token: usize) -> f64 {
        let before = self.tokens[(token + self.tokens.len() - 1) % self.tokens.len()].at;
        let rows = self.tokens[token].at.wrapping_sub(before).cast_unsigned();
        let all = 2_f64.powi(64);
        if rows == 0 { 1.0 } else { rows as f64 / all } // the only one has all of them
    }

    /// Who has the rows of a token: going on along the ring, instances of racks that have none yet;
    /// and of others as many as there are racks too few. So NetworkTopologyStrategy has it,
    /// since Cassandra 4.
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

    /// Who has which rows, with so many replicas.
    #[must_use]
    pub fn place(&self, replication: usize) -> Placement {
        assert!(replication > 0, "a row is somewhere");
        let rows = |token| (self.share(token), self.replicas(token, replication));
        let rows = (0..self.tokens.len()).map(rows).collect();
        Placement { instances: self.instances.clone(), replication, rows }
    }
}

/// Who has which rows.
#[derive(Clone, Debug)]
pub struct Placement {
    instances: Vec<Instance>,
    replication: usize,
    /// Of each token its rows, as a share of all, and who has them.
    rows: Vec<(f64, Vec<usize>)>,
}

impl Placement {
    /// Of all rows those that have two replicas or more on one server.
    #[must_use]
    pub fn doubled(&self) -> f64 {
        let one = |server| server;
        self.rows
            .iter()
            .filter(|(_, has)| self.count(has, &one).values().any(|count| *count > 1))
            .map(|rows| rows.0)
            .sum()
    }

    /// Of all rows those without a majority of replicas when the worst of some groups of servers
    /// fails.
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

    /// Pairs of servers that take some rows' majority with them when they fail together, as a share
    /// of all pairs; and of all rows how many the worst pair takes.
    #[must_use]
    pub fn lost_with_two(&self) -> (f64, f64) {
        let one = |server| server;
        // A server that takes rows with it does so in any pair.
        let mut alone = HashMap::<usize, f64>::new();
        let mut both = HashMap::<(usize, usize), f64>::new();
        for (share, has) in &self.rows {
            let counts: Vec<(usize, usize)> = self.count(has, &one).into_iter().collect();
            for (number, (server, count)) in counts.iter().enumerate() {
                if *count > self.spare() {
                    *alone.entry(*server).or_default() += share;
                }
                for (other, more) in &counts[number + 1..] {
                    // What either loses alone is counted there.
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

    /// What an instance has of all rows, replicas counted, against what it would if all had the
    /// same: of the one that has most, and of the one that has least.
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

    /// Replicas that may be lost while a majority is left.
    fn spare(&self) -> usize {
        self.replication - (self.replication / 2 + 1)
    }

    /// Of some rows' replicas how many are in each group of servers.
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

/// The same distance from each to the next, in this order.
fn evenly(order: &[usize]) -> Vec<Token> {
    // From the lowest on: an offset of none is the lowest number itself.
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

/// Round after round, each time the instances in the order of their numbers: those of a server are
/// neighbours.
fn side_by_side(instances: &[Instance]) -> Vec<usize> {
    let rounds = instances.iter().map(|instance| instance.tokens).max().unwrap_or(0);
    let in_round =
        |round: usize| (0..instances.len()).filter(move |one| instances[*one].tokens > round);
    (0..rounds).flat_map(in_round).collect()
}

/// How often an order is tried whose end and beginning fit too.
const TRIES: usize = 64;

/// An order in which as many neighbours as there are replicas are on different servers, where that
/// can be, all around the ring. With chance in it, for when a server fails all others are to have a
/// part of its load; without, where chance finds none.
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

/// Round after round, each time one instance of each server.
fn in_rounds(instances: &[Instance]) -> Vec<usize> {
    let mut nth = HashMap::<usize, usize>::new(); // which of its server's an instance is
    let mut keyed: Vec<(usize, usize, usize)> = Vec::new();
    for (number, instance) in instances.iter().enumerate() {
        let of_server = nth.entry(instance.server).or_default();
        keyed.extend((0..instance.tokens).map(|token| (token, *of_server, number)));
        *of_server += 1;
    }
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, _, number)| number).collect()
}

/// An order by chance in which as many neighbours as there are replicas are on different servers,
/// but for its end and beginning.
fn apart(
    instances: &[Instance],
    replication: usize,
    random: &mut dyn FnMut() -> u64,
) -> Vec<usize> {
    let servers = instances.iter().map(|instance| instance.server + 1).max().unwrap_or(0);
    // Of each server the instances, and how many tokens are still to be dealt out: of each
    // instance, and of all.
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
        // Among those long enough ago, one with most left: who has many must begin early. Else
        // whoever is longest ago.
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
