//! Compares the same small operations over several paths, from the bare path up to the store.

use sprat_measure::load::Results;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};

use super::latency::echoes;
use super::{Lab, Loaded, VALUE_BYTES, load};
use crate::system::System;
use sprat_measure::cpu::{Fifo, Pinned};
use sprat_measure::hist::Latencies;
use sprat_measure::load::{LoadPlan, Series, Workload, preload, run};
use sprat_measure::target::Wait;

/// Bytes of each large object, and number of large objects.
pub const LARGE_BYTES: usize = 1 << 20;
const LARGE_KEYS: u64 = 16;

/// Number of reads of large objects in flight: enough to fill the path.
const LARGE_DEPTH: usize = 4;

/// Number of small reads in flight: enough to keep the server busy.
pub const DEPTH: usize = 512;

/// A path of the ladder.
pub struct Path<'a> {
    /// The store over this path.
    pub system: &'a dyn System,
    /// Whether the drivers at the path's ends answer pings.
    pub pings: bool,
}

/// Measures one operation at a time over each of `paths` and over bare echoes, alternately. The
/// series are `NAME ping`, `NAME read`, `NAME write`, `echo udp` and `echo tcp`. Writes are not
/// durable.
///
/// # Errors
/// When a system cannot be started or fails.
pub fn ladder(lab: &Lab, paths: &[Path<'_>], wait: Wait) -> Result<Results> {
    let one = |workload| lab.timed(LoadPlan::one_client(workload, wait));
    let reads = one(Workload::reads(lab.keys, VALUE_BYTES));
    let mut rungs: Vec<(Loaded, Vec<(&str, LoadPlan)>)> =
        echoes(lab, &reads)?.into_iter().map(|echo| (echo, vec![("", reads.clone())])).collect();
    for path in paths {
        for loaded in load(&[path.system], &lab.in_memory(), 1, &reads)? {
            let mut plans = vec![
                ("read", reads.clone()),
                ("write", one(Workload::writes(lab.keys, VALUE_BYTES))),
            ];
            if path.pings {
                plans.insert(0, ("ping", one(Workload::pings())));
            }
            rungs.push((loaded, plans));
        }
    }
    let title = format!(
        "{VALUE_BYTES} B operations by path, one {} client, kept in memory only",
        wait.word()
    );
    climb(lab, &title, rungs)
}

/// Measures the throughput of each of `systems`. The series are `NAME 1 MB` (one large object at a
/// time), `NAME 1 MB x4` (four at a time) and `NAME 100 B` (many small reads in flight).
///
/// # Errors
/// When a system cannot be started or fails.
pub fn volume(lab: &Lab, systems: &[&dyn System]) -> Result<Results> {
    let small = lab.timed(LoadPlan {
        depth: DEPTH,
        ..LoadPlan::one_client(Workload::reads(lab.keys, VALUE_BYTES), Wait::Spin)
    });
    // The keys have another length, so that these are other objects.
    let objects = Workload { key_bytes: 31, ..Workload::reads(LARGE_KEYS, LARGE_BYTES) };
    let large = lab.timed(LoadPlan::one_client(objects.clone(), Wait::Spin));
    let mut rungs = Vec::new();
    for system in systems {
        for mut loaded in load(&[*system], &lab.in_memory(), 1, &small)? {
            loaded.target.set_active(true);
            preload(loaded.target.as_mut(), &objects)?;
            loaded.target.set_active(false);
            let full = LoadPlan { depth: LARGE_DEPTH, ..large.clone() };
            rungs.push((
                loaded,
                vec![("1 MB", large.clone()), ("1 MB x4", full), ("100 B", small.clone())],
            ));
        }
    }
    climb(
        lab,
        "reads of 1 MB, one and four in flight, and of 100 B, many in flight; one spinning client",
        rungs,
    )
}

/// Runs every load plan on every rung, which is one path of the ladder. The order is reversed in
/// every other round. Then stops the systems. The name of a series consists of the names of its
/// rung and its plan.
pub(crate) fn climb(
    lab: &Lab,
    title: &str,
    mut rungs: Vec<(Loaded, Vec<(&str, LoadPlan)>)>,
) -> Result<Results> {
    let _pinned = Pinned::to(lab.client_core)?;
    let mut series: Vec<Series> = Vec::new();
    let fifo = lab.client_fifo.map(Fifo::current_thread).transpose()?;
    for round in 0..lab.rounds {
        let order: Vec<usize> = if round % 2 == 0 {
            (0..rungs.len()).collect()
        } else {
            (0..rungs.len()).rev().collect()
        };
        for index in order {
            let (loaded, plans) = &mut rungs[index];
            loaded.target.set_active(true);
            for (what, plan) in plans {
                let label = format!("{} {what}", loaded.label).trim_end().to_owned();
                let measured = run(loaded.target.as_mut(), plan).with_context(|| label.clone())?;
                match series.iter_mut().find(|series| series.label == label) {
                    Some(series) => series.rounds.push(measured),
                    None => series.push(Series { label, rounds: vec![measured] }),
                }
            }
            loaded.target.set_active(false);
        }
    }
    drop(fifo);
    for (loaded, _) in rungs {
        // Close the connections before stopping their server.
        drop(loaded.target);
        drop(loaded.server);
    }
    Ok(Results { title: title.to_owned(), series })
}

/// Measures round trips between two threads, on the server's core and the client's, each of which
/// writes to one cache line. They are a lower bound for every path between processes on this
/// machine.
///
/// # Errors
/// When a thread cannot be started or pinned.
pub fn shared_memory(lab: &Lab, round_trips: u64) -> Result<Latencies> {
    #[repr(align(128))]
    #[derive(Default)]
    struct Line(AtomicU64);
    let lines: Arc<[Line; 2]> = Arc::default();
    let ended = Arc::new(AtomicBool::new(false));
    let (echo_lines, over) = (Arc::clone(&lines), Arc::clone(&ended));
    let binding = Pinned::to(lab.setup.core)?; // inherited by the thread that is started below
    let echo = std::thread::Builder::new().name("mirror".into()).spawn(move || {
        let mut seen = 0;
        while !over.load(Ordering::Relaxed) {
            let number = echo_lines[0].0.load(Ordering::Acquire);
            if number != seen {
                seen = number;
                echo_lines[1].0.store(number, Ordering::Release);
            }
            std::hint::spin_loop();
        }
    })?;
    drop(binding);
    let _pinned = Pinned::to(lab.client_core)?;
    let mut latencies = Latencies::new();
    // Sixteen round trips per time stamp: a single one takes little longer than reading the clock.
    for batch in 0..round_trips / 16 {
        let start = Instant::now();
        for number in batch * 16 + 1..=batch * 16 + 16 {
            lines[0].0.store(number, Ordering::Release);
            while lines[1].0.load(Ordering::Acquire) != number {
                std::hint::spin_loop();
            }
        }
        latencies.record(u64::try_from(start.elapsed().as_nanos() / 16).unwrap_or(u64::MAX));
    }
    ended.store(true, Ordering::Relaxed);
    // A panic of the thread was printed when it happened.
    let _ = echo.join();
    Ok(latencies)
}
