//! The cost of the log's operations on one core, with objects of 30 B + 100 B.
#![allow(missing_docs, reason = "criterion writes the main function")]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use sprat_log::{Config, Durability, Log, Restore};
use std::hint::black_box;

const MB: usize = 1 << 20;
const ENTRY: usize = 150;

fn key(n: usize) -> [u8; 30] {
    let mut key = [b'k'; 30];
    key[..8].copy_from_slice(&n.to_le_bytes());
    key
}

/// Returns a number below `below` from a scrambled Weyl sequence, which is random enough for a
/// benchmark.
fn random(state: &mut usize, below: usize) -> usize {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> 20) % below
}

fn filled(memory: usize, percent: usize) -> (Log, usize) {
    let mut log = Log::new(Config::new(memory, Durability::Volatile)).unwrap();
    let count = memory / ENTRY * percent / 100;
    for n in 0..count {
        log.put(1, &key(n), &[0; 100]).unwrap();
    }
    (log, count)
}

fn operations(c: &mut Criterion) {
    let mut group = c.benchmark_group("log");
    group.sample_size(20).throughput(Throughput::Elements(1));
    let (log, count) = filled(512 * MB, 50);
    let mut state = 1;
    group.bench_function("find", |b| {
        b.iter(|| black_box(log.find(1, &key(random(&mut state, count)))))
    });
    drop(log);
    for percent in [50, 75, 90] {
        let (mut log, count) = filled(512 * MB, percent);
        // Overwrites until the cleaner is in its steady state.
        for _ in 0..3 * count {
            log.put(1, &key(random(&mut state, count)), &[0; 100]).unwrap();
        }
        let before = log.stats();
        group.bench_function(format!("overwrite at {percent} %"), |b| {
            b.iter(|| log.put(1, &key(random(&mut state, count)), &[0; 100]).unwrap());
        });
        let after = log.stats();
        let moved = after.cleaner.compacted_bytes - before.cleaner.compacted_bytes
            + (after.cleaner.combined_bytes - before.cleaner.combined_bytes);
        eprintln!("moved {moved} for {}", after.appended_bytes - before.appended_bytes);
    }
    group.finish();
}

fn restart(c: &mut Criterion) {
    let config = Config::new(512 * MB, Durability::Tracked);
    let mut log = Log::new(config.clone()).unwrap();
    let count = 1_000_000;
    let mut segments: Vec<(u64, Vec<u8>)> = Vec::new();
    for n in 0..count {
        log.put(1, &key(n), &[0; 100]).unwrap();
        if n % 10_000 == 0 || n == count - 1 {
            while let Some(pending) = log.next_pending() {
                if segments.last().is_none_or(|last| last.0 != pending.segment) {
                    segments.push((pending.segment, Vec::new()));
                }
                let bytes = &mut segments.last_mut().unwrap().1;
                pending.slices().iter().for_each(|slice| bytes.extend_from_slice(slice));
                let (segment, sealed) = (pending.segment, pending.sealed);
                log.mark_submitted(segment, bytes.len(), sealed);
                log.mark_durable(segment, bytes.len(), sealed);
            }
        }
    }
    let mut group = c.benchmark_group("restart");
    group.sample_size(10).throughput(Throughput::Elements(count as u64));
    group.bench_function("restore", |b| {
        b.iter_batched(
            || {
                Restore::new(
                    config.clone(),
                    &segments.iter().map(|&(id, _)| id).collect::<Vec<_>>(),
                    None,
                )
                .unwrap()
            },
            |mut restore| {
                for (id, bytes) in segments.iter().rev() {
                    let seed = config.seed;
                    let mut at = 0;
                    let entries = std::iter::from_fn(|| {
                        let entry =
                            sprat_wire::entry::Entry::parse_checked(bytes.get(at..)?).ok()?;
                        let from = at;
                        at += entry.encoded_len();
                        Some((
                            sprat_wire::tablet::hash(seed, entry.table, entry.key),
                            &bytes[from..at],
                        ))
                    });
                    restore.segment(*id, 1, entries).unwrap();
                }
                restore.finish(1000).ok()
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, operations, restart);
criterion_main!(benches);
