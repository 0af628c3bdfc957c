//! The chapter about ordered tables.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use sprat_client::{Batch, Client, Keys, Mode, Options, Table, TableOptions};

use crate::ours::Transport;
use crate::peers::{RedisAnswer, RedisConnection};
use crate::promises::{Findings, Settings};
use crate::scenarios::VALUE_BYTES;
use crate::system::{Durability, Redis, Server as _, Setup, System as _};
use sprat_chance::Chance;
use sprat_measure::goals::Goal;
use sprat_measure::hist::Latencies;
use sprat_measure::load::Workload;
use sprat_measure::load::keys::{Values, write_key};
use sprat_measure::usage;

/// Objects in each system.
const OBJECTS: u64 = 200_000;

/// Objects of a long scan, and of a short one.
const LONG: u64 = 10_000;
const SHORT: u64 = 10;

/// By which numbers of objects follow one another when they are written; it has no factor in common
/// with [`OBJECTS`].
const STRIDE: u64 = 104_729;

/// Objects of a batch by which the systems are filled.
const BATCH: u64 = 500;

/// Scans of each kind in each system.
const ROUNDS: usize = 40;
const SHORT_ROUNDS: usize = 4_000;

/// The sorted set of Redis. Its members, all with the same score, are in the order of their bytes;
/// each is a key, followed by the value.
const SET: &[u8] = b"sorted";

/// The times of long scans, short scans and single writes.
#[derive(Default)]
struct Times {
    long: Latencies,
    short: Latencies,
}

/// Scans 10,000 and 10 objects of an ordered table, and as many members of a sorted set of Redis,
/// alternately; reads as many objects with Redis's SCAN; and compares writes of new keys.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let workload = Workload::writes(OBJECTS, VALUE_BYTES);
    let setup = Setup { durability: Durability::Memory, ..settings.lab.setup.clone() };
    let sprat = settings.sprat(Transport::Udp, Mode::Spin);
    let (server, peer) = (sprat.launch(&setup)?, Redis { unix: false }.start(&setup)?);
    let coordinator = server.coordinator().to_owned();
    let options = Options { coordinator, waiting: Mode::Spin, ..Options::default() };
    let mut client = Client::connect(&options)?;
    let plain = client.create_table("plain")?;
    let ordered = TableOptions { ordered: true, ..TableOptions::default() };
    let ordered = client.create_table_with("ordered", ordered)?;
    let mut redis = peer.redis()?;
    let values = Values::new(workload.value_bytes, workload.seed);
    let rows = Rows { values, key_bytes: workload.key_bytes };

    let [before, redis_before] = [usage::rss_bytes(server.pid())?, usage::rss_bytes(peer.pid())?];
    let plain_writes = rows.fill(&mut client, plain)?;
    let between = usage::rss_bytes(server.pid())?;
    let writes = rows.fill(&mut client, ordered)?;
    let after = usage::rss_bytes(server.pid())?;
    let members = rows.fill_set(&mut redis)?;
    let redis_after = usage::rss_bytes(peer.pid())?;
    rows.fill_keys(&mut redis)?;

    let (mut ours, mut theirs, mut chance) = (Times::default(), Times::default(), Chance::new(3));
    let mut unordered = Latencies::new();
    for _ in 0..ROUNDS {
        let first = chance.below(OBJECTS - LONG);
        ours.long.record(rows.scan(&mut client, ordered, first, LONG)?);
        theirs.long.record(rows.range(&mut redis, first, LONG)?);
        unordered.record(rows.scan_keys(&mut redis)?);
        for _ in 0..SHORT_ROUNDS / ROUNDS {
            let first = chance.below(OBJECTS - SHORT);
            ours.short.record(rows.scan(&mut client, ordered, first, SHORT)?);
            theirs.short.record(rows.range(&mut redis, first, SHORT)?);
        }
    }
    let rate = |latencies: &Latencies| Some(LONG as f64 * 1e9 / latencies.quantile(0.5) as f64);
    let us = |latencies: &Latencies| Some(latencies.quantile(0.5) as f64 / 1000.0);
    let row = "objects of 30 B + 100 B in order, 10,000 a scan, vs Redis ZRANGE BYLEX";
    findings.row(row, rate(&ours.long), rate(&theirs.long), "op/s", Goal::RatioAtLeast(1.0));
    let row = "the same vs Redis SCAN and MGET, in no order";
    findings.row(row, rate(&ours.long), rate(&unordered), "op/s", Goal::Shown);
    let row = "ordered scan of 10 objects p50 vs Redis ZRANGE BYLEX";
    findings.row(row, us(&ours.short), us(&theirs.short), "us", Goal::RatioAtMost(1.0));
    let row = "writes of new keys in batches, ordered table, vs another table";
    findings.row(row, Some(writes), Some(plain_writes), "op/s", Goal::Shown);
    findings.row("the same vs Redis ZADD", Some(writes), Some(members), "op/s", Goal::Shown);
    let each = |before: u64, after: u64| Some(after.saturating_sub(before) as f64 / OBJECTS as f64);
    let order = each(between - before, after - between);
    let row = "RSS for the order of an object, vs a whole member of Redis's sorted set";
    findings.row(row, order, each(redis_before, redis_after), "B", Goal::Shown);
    Ok(())
}

/// The objects of all systems.
struct Rows {
    values: Values,
    key_bytes: usize,
}

impl Rows {
    fn key(&self, number: u64) -> Vec<u8> {
        let mut key = vec![0; self.key_bytes];
        write_key(number, &mut key);
        key
    }

    /// Calls `write` with the numbers of each batch, in an order that is not theirs. Returns the
    /// objects a second.
    fn in_batches(&self, mut write: impl FnMut(&[u64]) -> Result<()>) -> Result<f64> {
        let numbers: Vec<u64> = (0..OBJECTS).map(|number| number * STRIDE % OBJECTS).collect();
        let begun = Instant::now();
        numbers.chunks(usize::try_from(BATCH)?).try_for_each(&mut write)?;
        Ok(OBJECTS as f64 / begun.elapsed().as_secs_f64())
    }

    fn fill(&self, client: &mut Client, table: Table) -> Result<f64> {
        self.in_batches(|numbers| {
            let keys: Vec<_> = numbers.iter().map(|&number| self.key(number)).collect();
            let mut batch = Batch::new();
            for (&number, key) in numbers.iter().zip(&keys) {
                batch.put(table, key, self.values.of(number));
            }
            client.batch(&batch).into_iter().try_for_each(|result| result.map(drop))?;
            Ok(())
        })
    }

    fn member(&self, number: u64) -> Vec<u8> {
        [&self.key(number)[..], self.values.of(number)].concat()
    }

    fn fill_set(&self, redis: &mut RedisConnection) -> Result<f64> {
        self.in_batches(|numbers| {
            let members: Vec<_> = numbers.iter().map(|&number| self.member(number)).collect();
            let scored = members.iter().flat_map(|member| [&b"0"[..], member]);
            let command: Vec<&[u8]> = [&b"ZADD"[..], SET].into_iter().chain(scored).collect();
            redis.send(&[&command])?;
            let added = redis.answer()?;
            ensure!(added == RedisAnswer::Integer(BATCH), "Redis answered {added:?} to ZADD");
            Ok(())
        })
    }

    fn fill_keys(&self, redis: &mut RedisConnection) -> Result<()> {
        self.in_batches(|numbers| {
            let keys: Vec<_> = numbers.iter().map(|&number| self.key(number)).collect();
            let pairs = numbers.iter().zip(&keys);
            let pairs = pairs.flat_map(|(&number, key)| [&key[..], self.values.of(number)]);
            let command: Vec<&[u8]> = [&b"MSET"[..]].into_iter().chain(pairs).collect();
            redis.send(&[&command])?;
            ensure!(redis.answer()? == RedisAnswer::Line("OK".to_owned()), "MSET failed");
            Ok(())
        })?;
        Ok(())
    }

    /// Scans `count` objects from the one with number `first` on; returns the nanoseconds.
    fn scan(&self, client: &mut Client, table: Table, first: u64, count: u64) -> Result<u64> {
        let begun = Instant::now();
        let (mut left, mut next) = (count, Some(Keys::all().from(&self.key(first))));
        let mut last = Vec::new();
        while let Some(keys) = next.filter(|_| left > 0) {
            let page = client.scan_keys(table, keys, u32::try_from(left)?)?;
            left -= page.rows.len() as u64;
            last = page.rows.into_iter().next_back().map_or(last, |row| row.key);
            next = page.next;
        }
        let took = begun.elapsed();
        ensure!(left == 0 && last == self.key(first + count - 1), "rows are missing");
        nanos(took)
    }

    /// Reads `count` members of the sorted set; returns the nanoseconds.
    fn range(&self, redis: &mut RedisConnection, first: u64, count: u64) -> Result<u64> {
        let from = [b"[", &self.key(first)[..]].concat();
        let limit = count.to_string();
        let begun = Instant::now();
        let command: [&[u8]; 8] =
            [b"ZRANGE", SET, &from, b"+", b"BYLEX", b"LIMIT", b"0", limit.as_bytes()];
        redis.send(&[&command])?;
        let members = values(redis)?;
        let took = begun.elapsed();
        let is_last = |member: &Vec<u8>| *member == self.member(first + count - 1);
        ensure!(members.len() as u64 == count && members.last().is_some_and(is_last), "ZRANGE");
        nanos(took)
    }

    /// Reads about as many keys and values as a long scan with `SCAN` and `MGET`, from the
    /// beginning; returns the nanoseconds for exactly as many.
    fn scan_keys(&self, redis: &mut RedisConnection) -> Result<u64> {
        let begun = Instant::now();
        let (mut cursor, mut read) = (b"0".to_vec(), 0);
        while read < LONG {
            redis.send(&[&[b"SCAN", &cursor, b"COUNT", b"1000"]])?;
            ensure!(redis.answer()? == RedisAnswer::Several(2), "SCAN failed");
            let RedisAnswer::Value(next) = redis.answer()? else { bail!("SCAN without a cursor") };
            cursor = next;
            let keys: Vec<_> = values(redis)?.into_iter().filter(|key| key != SET).collect();
            if !keys.is_empty() {
                let keys = keys.iter().map(Vec::as_slice);
                let command: Vec<&[u8]> = [&b"MGET"[..]].into_iter().chain(keys).collect();
                redis.send(&[&command])?;
                read += values(redis)?.len() as u64;
            }
            ensure!(cursor != b"0" || read >= LONG, "SCAN ended early");
        }
        Ok(nanos(begun.elapsed())? * LONG / read)
    }
}

/// Receives an array of values.
fn values(redis: &mut RedisConnection) -> Result<Vec<Vec<u8>>> {
    let RedisAnswer::Several(count) = redis.answer()? else { bail!("Redis sent no array") };
    let value = |_| match redis.answer()? {
        RedisAnswer::Value(value) => Ok(value),
        other => bail!("Redis answered {other:?} in place of a value"),
    };
    (0..count).map(value).collect()
}

fn nanos(time: Duration) -> Result<u64> {
    Ok(u64::try_from(time.as_nanos())?)
}
