//! Transactions of several clients on the same objects, some of which are much more popular.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use super::{Lab, VALUE_BYTES};
use crate::system::{Server, Setup, System};
use sprat_measure::load::KeyDistribution;
use sprat_measure::load::keys::{Chooser, write_key};

/// Number of clients, each of which makes one transaction at a time.
pub const CLIENTS: usize = 8;

/// Number of objects, and the exponent of their popularity.
pub const OBJECTS: u64 = 1_000;
/// See [`OBJECTS`].
pub const EXPONENT: f64 = 0.99;

/// Bytes of a key.
const KEY_BYTES: usize = 30;

/// A client that makes transactions. An object holds a number in its first eight bytes.
pub trait Contender {
    /// Adds 1 to each of two objects in one transaction, which is tried until it is committed.
    /// Returns the number of attempts. An object that does not exist counts as 0.
    ///
    /// # Errors
    /// When the system refuses the transaction, for another reason than that others use the
    /// objects, or does not answer.
    fn add_to(&mut self, keys: [&[u8]; 2]) -> Result<u64>;

    /// Returns the number of an object.
    ///
    /// # Errors
    /// When the system does not answer.
    fn number(&mut self, key: &[u8]) -> Result<u64>;
}

/// Opens a client that makes transactions, on the thread that will use it.
pub type OpenContender = Box<dyn Fn() -> Result<Box<dyn Contender>> + Send + Sync>;

/// What the clients of a system did.
#[derive(Clone, Debug)]
pub struct Contended {
    /// The system's name.
    pub system: String,
    /// Transactions that were committed.
    pub committed: u64,
    /// Attempts that were not, because others used an object.
    pub aborted: u64,
    /// The time that all this took.
    pub elapsed: Duration,
}

impl Contended {
    /// Returns the share of attempts that were aborted, in percent.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark")]
    pub fn aborted_percent(&self) -> f64 {
        100.0 * self.aborted as f64 / (self.committed + self.aborted) as f64
    }

    /// Returns the committed transactions per second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark")]
    pub fn per_second(&self) -> f64 {
        self.committed as f64 / self.elapsed.as_secs_f64()
    }
}

/// Returns the value that holds a number.
#[must_use]
pub(crate) fn value_of(number: u64) -> Vec<u8> {
    let mut value = vec![b'.'; VALUE_BYTES];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// Returns the number that a value holds.
pub(crate) fn number_of(value: &[u8]) -> Result<u64> {
    let bytes = value.first_chunk().context("a value of at least eight bytes")?;
    Ok(u64::from_le_bytes(*bytes))
}

/// Lets [`CLIENTS`] clients add to pairs of [`OBJECTS`] objects, drawn with a Zipf distribution,
/// at each of `systems`. Writes are kept in memory only. The systems take turns, once each round.
/// In the end the objects must hold what was added.
///
/// # Errors
/// When a system cannot be started or fails, or when an addition was lost or done twice.
pub fn contended(lab: &Lab, systems: &[&dyn System]) -> Result<Vec<Contended>> {
    let setup = Setup { core: None, ..lab.in_memory() };
    let mut running = Vec::new();
    for system in systems {
        let server = system.start(&setup).with_context(|| format!("starting {}", system.name()))?;
        let (system, elapsed) = (system.name().to_owned(), Duration::ZERO);
        running.push((server, Contended { system, committed: 0, aborted: 0, elapsed }));
    }
    for round in 0..lab.rounds {
        for (server, so_far) in &mut running {
            let begin = Instant::now();
            for (committed, aborted) in one_round(server.as_ref(), lab.duration, round as u64)? {
                so_far.committed += committed;
                so_far.aborted += aborted;
            }
            so_far.elapsed += begin.elapsed();
        }
        running.reverse();
    }
    let mut contended = Vec::new();
    for (server, counts) in running {
        let mut client = server.contenders()?()?;
        let mut total = 0;
        for object in 0..OBJECTS {
            total += client.number(&key_of(object))?;
        }
        let Contended { system, committed, .. } = &counts;
        ensure!(
            total == 2 * committed,
            "{system}: {committed} transactions added 1 to two objects each, and the sum is {total}"
        );
        contended.push(counts);
    }
    Ok(contended)
}

/// Returns how many transactions each client committed, and how many of its attempts were aborted.
fn one_round(server: &dyn Server, duration: Duration, round: u64) -> Result<Vec<(u64, u64)>> {
    let open = &server.contenders()?;
    let until = Instant::now() + duration;
    std::thread::scope(|scope| {
        let seeds = (0..CLIENTS as u64).map(|client| round * 100 + client + 1);
        let work = |seed| scope.spawn(move || add_until(open()?, seed, until));
        let threads: Vec<_> = seeds.map(work).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|ended| ended.map_err(|_| anyhow!("a client's thread panicked"))?).collect()
    })
}

fn add_until(mut client: Box<dyn Contender>, seed: u64, until: Instant) -> Result<(u64, u64)> {
    let mut chooser = Chooser::new(KeyDistribution::Zipf(EXPONENT), OBJECTS, seed);
    let (mut committed, mut aborted) = (0, 0);
    while Instant::now() < until {
        let (first, mut second) = (chooser.draw(), chooser.draw());
        while second == first {
            second = chooser.draw();
        }
        aborted += client.add_to([&key_of(first), &key_of(second)])? - 1;
        committed += 1;
    }
    Ok((committed, aborted))
}

fn key_of(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    write_key(number, &mut key);
    key
}
