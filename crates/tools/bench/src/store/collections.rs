//! The chapter about hashes, lists and sorted sets of Redis clients.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::peers::{RedisAnswer, RedisConnection};
use crate::promises::{Findings, Settings};
use crate::system::{Durability, Redis, Server, Setup, SpratForRedis, System as _};
use sprat_chance::Chance;
use sprat_measure::goals::Goal;
use sprat_measure::usage;

/// Elements of a large collection, and of a small one.
const LARGE: u64 = 1_000_000;
const SMALL: u64 = 10;

/// Elements of a command by which a collection is filled.
const BATCH: u64 = 500;

/// Commands that are sent at once, and how often, in each round.
const PIPELINED: usize = 64;
const TIMES: usize = 400;

/// Rounds in which each collection of each system has its turn.
const ROUNDS: usize = 5;

/// Memory of our server. Redis takes what it needs.
const MEMORY: u64 = 2 << 30;

/// Bytes of the values of fields, and of elements of lists besides their numbers.
const VALUE: &[u8] = &[b'v'; 16];

/// A kind of collection, and what is measured of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// Fields of 16 B with values of 16 B, one of which is written.
    Hash,
    /// Members of 16 B, one of which gets another score.
    SortedSet,
    /// Elements of 32 B, one of which is pushed at one end and taken at the other in turns.
    List,
}

const KINDS: [(Kind, &str, &str); 3] = [
    (Kind::Hash, "HSET", "a hash, 16 B + 16 B"),
    (Kind::SortedSet, "ZADD", "a sorted set, 16 B"),
    (Kind::List, "LPUSH and RPOP", "a list, 32 B"),
];

impl Kind {
    /// Appends the parts of a command that belong to an element.
    fn push(self, number: u64, score: u64, parts: &mut Vec<Vec<u8>>) {
        let name = format!("element:{number:08}").into_bytes();
        match self {
            Self::Hash => parts.extend([name, VALUE.to_vec()]),
            Self::SortedSet => parts.extend([score.to_string().into_bytes(), name]),
            Self::List => parts.push([&name, VALUE].concat()),
        }
    }

    fn add(self) -> &'static [u8] {
        match self {
            Self::Hash => b"HSET",
            Self::SortedSet => b"ZADD",
            Self::List => b"LPUSH",
        }
    }

    /// Returns a command that leaves the size of a collection as it is, or the first of two.
    fn change(self, key: &[u8], size: u64, turn: usize, chance: &mut Chance) -> Vec<Vec<u8>> {
        if self == Self::List && turn % 2 == 1 {
            return vec![b"RPOP".to_vec(), key.to_vec()];
        }
        let mut parts = vec![self.add().to_vec(), key.to_vec()];
        self.push(chance.below(size), chance.below(LARGE), &mut parts);
        parts
    }
}

/// Sends commands at once, and takes their answers.
fn ask(connection: &mut RedisConnection, commands: &[Vec<Vec<u8>>]) -> Result<()> {
    let parts: Vec<Vec<&[u8]>> =
        commands.iter().map(|parts| parts.iter().map(Vec::as_slice).collect()).collect();
    connection.send(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
    for parts in commands {
        let answer = connection.answer()?;
        let is_fine = matches!(answer, RedisAnswer::Integer(_) | RedisAnswer::Value(_));
        ensure!(is_fine, "{} was answered with {answer:?}", parts[0].escape_ascii());
    }
    Ok(())
}

/// A system with a large and a small collection of a kind.
struct Filled {
    connection: RedisConnection,
    /// Bytes of memory for each element of the large one.
    bytes: f64,
    /// Commands a second on the large one and on the small one.
    rates: [Vec<f64>; 2],
}

impl Filled {
    fn new(server: &dyn Server, kind: Kind) -> Result<Self> {
        let mut connection = server.redis()?;
        let before = usage::rss_bytes(server.pid())?;
        let mut chance = Chance::new(27);
        for size in [LARGE, SMALL] {
            let key = key(kind, size);
            for first in (0..size).step_by(usize::try_from(BATCH)?) {
                let mut parts = vec![kind.add().to_vec(), key.clone()];
                for number in first..size.min(first + BATCH) {
                    kind.push(number, chance.below(LARGE), &mut parts);
                }
                ask(&mut connection, &[parts])?;
            }
        }
        let bytes = usage::rss_bytes(server.pid())?.saturating_sub(before);
        Ok(Self { connection, bytes: bytes as f64 / LARGE as f64, rates: [Vec::new(), Vec::new()] })
    }

    /// Measures both collections once.
    fn measure(&mut self, kind: Kind, chance: &mut Chance) -> Result<()> {
        for (size, rates) in [LARGE, SMALL].into_iter().zip(&mut self.rates) {
            let key = key(kind, size);
            let begun = Instant::now();
            for _ in 0..TIMES {
                let turns = 0..PIPELINED;
                let commands: Vec<_> =
                    turns.map(|turn| kind.change(&key, size, turn, chance)).collect();
                ask(&mut self.connection, &commands)?;
            }
            rates.push((TIMES * PIPELINED) as f64 / begun.elapsed().as_secs_f64());
        }
        Ok(())
    }

    /// Returns the medians of the rates.
    fn medians(&mut self) -> [f64; 2] {
        self.rates.each_mut().map(|rates| {
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        })
    }
}

fn key(kind: Kind, size: u64) -> Vec<u8> {
    format!("{kind:?}:{size}").into_bytes()
}

/// Changes elements of collections with ten and with a million elements, in our server and in
/// Redis, in turns; and compares the memory that the elements take.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let lab = &settings.lab.setup;
    let setup = Setup { durability: Durability::Memory, memory_bytes: MEMORY, ..lab.clone() };
    let ours = SpratForRedis { program: settings.program.clone() };
    for (kind, commands, elements) in KINDS {
        let servers = [ours.start(&setup)?, Redis { unix: false }.start(&setup)?];
        let mut filled = Vec::new();
        for server in &servers {
            filled.push(Filled::new(server.as_ref(), kind)?);
        }
        let mut chance = Chance::new(28);
        for _ in 0..ROUNDS {
            for one in &mut filled {
                one.measure(kind, &mut chance)?;
            }
        }
        let bytes = [filled[0].bytes, filled[1].bytes].map(Some);
        let [[large, small], [peer_large, peer_small]] =
            [0, 1].map(|at: usize| filled[at].medians());
        let row = format!("{commands}, 1 M elements, vs 10 elements");
        findings.row(&row, Some(large), Some(small), "op/s", Goal::RatioAtLeast(0.5));
        let row = format!("{commands}, 1 M elements, vs Redis");
        findings.row(&row, Some(large), Some(peer_large), "op/s", Goal::Shown);
        let row = format!("{commands}, 10 elements, vs Redis");
        findings.row(&row, Some(small), Some(peer_small), "op/s", Goal::Shown);
        let row = format!("RSS for an element of {elements}, vs Redis");
        findings.row(&row, bytes[0], bytes[1], "B", Goal::Shown);
    }
    findings.note(
        "Collections: one client that sends 64 commands at once, which is the bound; in memory."
            .to_owned(),
    );
    Ok(())
}
