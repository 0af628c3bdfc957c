//! Measures a durable commit of 200 B on the filesystem of the given directory (default: the
//! current one): a block written by a `FileDisk`, compared with appending to a file and calling
//! fdatasync. Measures the `FileDisk` also in parallel with threads that only compute.
#![allow(clippy::print_stdout, reason = "an example prints and measures")]

use sprat_disk::{Access, AlignedBuf, BLOCK_BYTES, Disk, FileDisk, Op};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const COMMITS: usize = 2000;
const COMMIT_BYTES: usize = 200;
const FILE_BLOCKS: usize = COMMITS * COMMIT_BYTES / BLOCK_BYTES + 1;

fn main() {
    let root = std::env::args().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    let directory = tempfile::tempdir_in(root).expect("a directory to write in");
    for access in [Access::Direct, Access::Cached] {
        let mut disk = FileDisk::open(&directory.path().join("disk"), access).expect("a file");
        let how = disk.describe().to_owned();
        report(&how, disk_commits(&mut disk));
        report(
            "  beside a computing thread on every core",
            beside_computing(|| disk_commits(&mut disk)),
        );
    }
    let mut file = std::fs::File::create(directory.path().join("append")).expect("a file");
    let appends = (0..COMMITS).map(|_| {
        let started = Instant::now();
        file.write_all(&[1; COMMIT_BYTES]).expect("appended");
        file.sync_data().expect("synced");
        started.elapsed()
    });
    report("append and fdatasync", appends.collect());
}

/// Runs `measure` while one thread on each core only computes.
fn beside_computing<T>(measure: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| compute(&stop));
        }
        let measured = measure();
        stop.store(true, Relaxed);
        measured
    })
}

fn compute(stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        std::hint::spin_loop();
    }
}

/// Returns the durations of commits that fill consecutive blocks of a file without holes, as the
/// log does.
fn disk_commits(disk: &mut FileDisk) -> Vec<Duration> {
    let len = FILE_BLOCKS * BLOCK_BYTES;
    finish(disk, Op::Write { buffer: AlignedBuf::zeroed(len), len, offset: 0, durable: true });
    let mut buffer = AlignedBuf::zeroed(BLOCK_BYTES);
    let commits = (0..COMMITS).map(|commit| {
        let started = Instant::now();
        let offset = (commit * COMMIT_BYTES / BLOCK_BYTES * BLOCK_BYTES) as u64;
        let taken = std::mem::replace(&mut buffer, AlignedBuf::zeroed(0));
        buffer = finish(disk, Op::Write { buffer: taken, len: BLOCK_BYTES, offset, durable: true })
            .expect("the buffer");
        started.elapsed()
    });
    commits.collect()
}

fn finish(disk: &mut FileDisk, op: Op) -> Option<AlignedBuf> {
    disk.submit(0, op);
    loop {
        if let Some(completion) = disk.poll() {
            completion.result.expect("done");
            return completion.buffer;
        }
        disk.wait().expect("waited");
    }
}

fn report(label: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let (median, high) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!("{label:60} p50 {:4} us  p99 {:5} us", median.as_micros(), high.as_micros());
}
