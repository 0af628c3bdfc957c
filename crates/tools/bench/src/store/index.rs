//! The chapter about secondary indexes.

use std::time::Instant;

use anyhow::{Result, ensure};
use sprat_client::{Client, FieldSource, Index, IndexDefinition, Mode, Options, Table, ValueType};

use crate::ours::Transport;
use crate::peers::{RedisAnswer, RedisConnection};
use crate::promises::{Findings, Settings};
use crate::scenarios::VALUE_BYTES;
use crate::system::{Durability, Redis, Setup, System as _};
use sprat_chance::Chance;
use sprat_measure::goals::Goal;
use sprat_measure::hist::Latencies;
use sprat_measure::load::Workload;
use sprat_measure::load::keys::{Values, write_key};
use sprat_measure::usage;

/// Objects in each table, and members of Redis's sorted set.
const OBJECTS: u64 = 200_000;

/// Operations of each kind, in so many turns.
const OPERATIONS: u64 = 20_000;
const TURNS: u64 = 20;

/// Members of one command to Redis.
const BATCH: u64 = 500;

/// The key of Redis's sorted set, which has keys of objects by their fields, as an index has.
const SET: &[u8] = b"by_field";

/// Fields that no object has before it is written again begin here.
const NEW_FIELDS: u64 = 1 << 40;

/// The times of each kind of operation.
#[derive(Default)]
struct Times {
    read: Latencies,
    lookup: Latencies,
    write: Latencies,
    indexed_write: Latencies,
    redis_lookup: Latencies,
}

/// Compares, alternately, reads with lookups of an object by its field, and writes with writes that
/// change the field; and the memory of an index with that of a sorted set.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let workload = Workload::writes(OBJECTS, VALUE_BYTES);
    let setup = Setup { durability: Durability::Memory, ..settings.lab.setup.clone() };
    let sprat = settings.sprat(Transport::Udp, Mode::Spin);
    let (server, peer) = (sprat.launch(&setup)?, Redis { unix: false }.start(&setup)?);
    let coordinator = server.coordinator().to_owned();
    let options = Options { coordinator, waiting: Mode::Spin, ..Options::default() };
    let mut client = Client::connect(&options)?;
    let [plain, indexed] = [client.create_table("plain")?, client.create_table("indexed")?];
    let source = FieldSource::Offset { at: 0, length: 8 };
    let definition = IndexDefinition { source, field_type: ValueType::Integer };
    let index = client.create_index("indexed", "by_field", &definition)?;
    let mut redis = peer.redis()?;
    let values = Values::new(workload.value_bytes, workload.seed);
    let rows = Rows { values, key_bytes: workload.key_bytes };

    for number in 0..OBJECTS {
        for table in [plain, indexed] {
            client.put(table, &rows.key(number), &rows.value(number, number))?;
        }
    }
    let redis_before = usage::rss_bytes(peer.pid())?;
    rows.fill_set(&mut redis)?;
    let redis_each = (usage::rss_bytes(peer.pid())? - redis_before) as f64 / OBJECTS as f64;
    rows.fill_keys(&mut redis)?;
    let stats = client.table_stats(indexed)?;
    let order = stats.orders.iter().find(|order| order.index == index.id());
    let each = order.map(|order| order.bytes as f64 / order.objects as f64);

    let (mut times, mut chance) = (Times::default(), Chance::new(5));
    for turn in 0..TURNS {
        for _ in 0..OPERATIONS / TURNS {
            let number = chance.below(OBJECTS);
            times.read.record(rows.read(&mut client, plain, number)?);
        }
        for _ in 0..OPERATIONS / TURNS {
            let number = chance.below(OBJECTS);
            times.lookup.record(rows.look_up(&mut client, indexed, &index, number)?);
        }
        for _ in 0..OPERATIONS / TURNS {
            let number = chance.below(OBJECTS);
            times.redis_lookup.record(rows.look_up_in_set(&mut redis, number)?);
        }
        for (table, latencies) in [(plain, &mut times.write), (indexed, &mut times.indexed_write)] {
            for at in 0..OPERATIONS / TURNS {
                // Written to objects beyond those that are read, each time with another field.
                let field = NEW_FIELDS + turn * OPERATIONS + at;
                let (key, value) = (rows.key(OBJECTS + at), rows.value(field, at));
                let begun = Instant::now();
                client.put(table, &key, &value)?;
                latencies.record(nanos(begun)?);
            }
        }
    }
    let us = |latencies: &Latencies| Some(latencies.quantile(0.5) as f64 / 1000.0);
    let row = "lookup by an index p50 vs a read";
    findings.row(row, us(&times.lookup), us(&times.read), "us", Goal::RatioAtMost(2.0));
    let row = "the same vs Redis ZRANGE BYSCORE and GET";
    findings.row(row, us(&times.lookup), us(&times.redis_lookup), "us", Goal::Shown);
    let row = "write that moves an object in an index p50 vs a write";
    findings.row(row, us(&times.indexed_write), us(&times.write), "us", Goal::RatioAtMost(2.0));
    let row = "memory of an index's entry vs RSS of a member of Redis's sorted set";
    findings.row(row, each, Some(redis_each), "B", Goal::Shown);
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

    /// Returns a value that begins with a field.
    fn value(&self, field: u64, number: u64) -> Vec<u8> {
        let mut value = self.values.of(number).to_vec();
        value[..8].copy_from_slice(&field.to_le_bytes());
        value
    }

    /// Reads an object; returns the nanoseconds.
    fn read(&self, client: &mut Client, table: Table, number: u64) -> Result<u64> {
        let key = self.key(number);
        let begun = Instant::now();
        let object = client.get(table, &key)?;
        let took = nanos(begun)?;
        ensure!(object.is_some_and(|object| object.value == self.value(number, number)), "a read");
        Ok(took)
    }

    /// Finds an object by its field; returns the nanoseconds.
    fn look_up(
        &self,
        client: &mut Client,
        table: Table,
        index: &Index,
        number: u64,
    ) -> Result<u64> {
        let begun = Instant::now();
        let page = client.scan_keys(table, index.equal(i64::try_from(number)?)?, 2)?;
        let took = nanos(begun)?;
        ensure!(page.rows.len() == 1 && page.rows[0].key == self.key(number), "a lookup");
        Ok(took)
    }

    /// Adds the keys of the objects to Redis's sorted set, by their fields.
    fn fill_set(&self, redis: &mut RedisConnection) -> Result<()> {
        for first in (0..OBJECTS).step_by(usize::try_from(BATCH)?) {
            let numbers = first..first + BATCH;
            let scores: Vec<_> = numbers.clone().map(|number| number.to_string()).collect();
            let keys: Vec<_> = numbers.map(|number| self.key(number)).collect();
            let members = scores.iter().zip(&keys);
            let members = members.flat_map(|(score, key)| [score.as_bytes(), key]);
            let command: Vec<&[u8]> = [&b"ZADD"[..], SET].into_iter().chain(members).collect();
            redis.send(&[&command])?;
            ensure!(redis.answer()? == RedisAnswer::Integer(BATCH), "ZADD failed");
        }
        Ok(())
    }

    /// Adds the objects to Redis.
    fn fill_keys(&self, redis: &mut RedisConnection) -> Result<()> {
        for number in 0..OBJECTS {
            redis.send(&[&[b"SET", &self.key(number), &self.value(number, number)]])?;
            ensure!(redis.answer()? == RedisAnswer::Line("OK".to_owned()), "SET failed");
        }
        Ok(())
    }

    /// Finds the key of an object in the sorted set by its field, and reads the object; returns the
    /// nanoseconds.
    fn look_up_in_set(&self, redis: &mut RedisConnection, number: u64) -> Result<u64> {
        let field = number.to_string();
        let begun = Instant::now();
        redis.send(&[&[b"ZRANGE", SET, field.as_bytes(), field.as_bytes(), b"BYSCORE"]])?;
        ensure!(redis.answer()? == RedisAnswer::Several(1), "ZRANGE found another number");
        let found = redis.answer()?;
        ensure!(found == RedisAnswer::Value(self.key(number)), "ZRANGE found {found:?}");
        redis.send(&[&[b"GET", &self.key(number)]])?;
        let value = redis.answer()?;
        let took = nanos(begun)?;
        let expected = RedisAnswer::Value(self.value(number, number));
        ensure!(value == expected, "GET answered {value:?}");
        Ok(took)
    }
}

fn nanos(begun: Instant) -> Result<u64> {
    Ok(u64::try_from(begun.elapsed().as_nanos())?)
}
