//! The chapter about scripts and transactions of Redis clients.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::peers::{RedisAnswer, RedisConnection};
use crate::promises::{Findings, Settings};
use crate::system::{Durability, Redis, Setup, SpratForRedis, System as _};
use sprat_measure::goals::Goal;

/// Scripts or transactions that are sent at once, and how often, in each round.
const PIPELINED: usize = 64;
const TIMES: usize = 200;

/// Rounds in which each system has its turn.
const ROUNDS: usize = 5;

const VALUE: &[u8] = &[b'v'; 100];

/// What a script does, and its text.
const SCRIPTS: [(&str, &str); 2] = [
    ("a script: SET", "return redis.call('SET', KEYS[1], ARGV[1])"),
    (
        "a script: GET, SET if it is the same",
        "if redis.call('GET', KEYS[1]) == ARGV[1] then \
         return redis.call('SET', KEYS[1], ARGV[1]) end return false",
    ),
];

/// A transaction of two writes.
const TRANSACTION: [&[&[u8]]; 4] =
    [&[b"MULTI"], &[b"SET", b"one", VALUE], &[b"SET", b"two", VALUE], &[b"EXEC"]];

/// Sends the commands of one round, and returns how many of the things they do are done a second.
fn measure(connection: &mut RedisConnection, one: &[&[&[u8]]]) -> Result<f64> {
    let all: Vec<&[&[u8]]> = (0..PIPELINED).flat_map(|_| one.iter().copied()).collect();
    let begun = Instant::now();
    for _ in 0..TIMES {
        connection.send(&all)?;
        let mut left = all.len();
        while left > 0 {
            left -= 1;
            match connection.answer()? {
                RedisAnswer::Several(count) => left += count,
                answer => ensure!(matches!(answer, RedisAnswer::Line(_)), "it was {answer:?}"),
            }
        }
    }
    Ok((TIMES * PIPELINED) as f64 / begun.elapsed().as_secs_f64())
}

/// Compares scripts and transactions of our server with those of Redis, in memory and synced.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let ours = SpratForRedis { program: settings.program.clone() };
    for durability in [Durability::Memory, Durability::Sync] {
        let setup = Setup { durability, ..settings.lab.setup.clone() };
        let servers = [ours.start(&setup)?, Redis { unix: false }.start(&setup)?];
        let mut connections = Vec::new();
        for server in &servers {
            connections.push(server.redis()?);
        }
        let mut compare = |what: &str, hashes: Option<[Vec<u8>; 2]>| -> Result<()> {
            let mut rates = [Vec::new(), Vec::new()];
            for _ in 0..ROUNDS {
                for (at, connection) in connections.iter_mut().enumerate() {
                    let rate = match &hashes {
                        Some(hashes) => {
                            let script = [b"EVALSHA", &hashes[at][..], b"1", b"one", VALUE];
                            measure(connection, &[&script])?
                        }
                        None => measure(connection, &TRANSACTION)?,
                    };
                    rates[at].push(rate);
                }
            }
            let [our, peer] = rates.map(|mut rates| {
                rates.sort_by(f64::total_cmp);
                Some(rates[rates.len() / 2])
            });
            let how = if durability == Durability::Memory { "in memory" } else { "synced" };
            let name = format!("{what}, {how}, {PIPELINED} at once, vs Redis");
            findings.row(&name, our, peer, "op/s", Goal::Shown);
            Ok(())
        };
        compare("MULTI, 2 SET, EXEC", None)?;
        for (what, text) in SCRIPTS {
            let hash = |server: &dyn crate::system::Server| -> Result<Vec<u8>> {
                let mut connection = server.redis()?;
                connection.send(&[&[b"SCRIPT", b"LOAD", text.as_bytes()]])?;
                let RedisAnswer::Value(hash) = connection.answer()? else {
                    anyhow::bail!("a script was not loaded");
                };
                Ok(hash)
            };
            let hashes = [hash(servers[0].as_ref())?, hash(servers[1].as_ref())?];
            compare(what, Some(hashes))?;
        }
    }
    findings.note(
        "Scripts: one client that sends 64 at once; values of 100 B. Synced: Redis with \
         `appendfsync always`."
            .to_owned(),
    );
    Ok(())
}
