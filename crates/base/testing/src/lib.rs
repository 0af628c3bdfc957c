//! Helpers shared by the tests of several crates. Only dev-dependencies may name this crate: its
//! functions panic, print and sleep, which our programs must not.

use std::fs::File;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// How long tests wait for something that must happen: far longer than it takes even where other
/// programs use all cores. A test whose limit was 10 s failed there.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Reports that a test cannot run on this machine, and `why`. The report goes to standard error,
/// and as a line to the file that the environment variable `SPRAT_SKIPS` names. `make test` prints
/// that file at its end. The caller must then return.
///
/// # Panics
/// If that file cannot be written, because a test whose skip is not reported would silently do
/// nothing.
pub fn skip(why: &str) {
    eprintln!("skipped: {why}");
    let Some(path) = std::env::var_os("SPRAT_SKIPS") else { return };
    let list = File::options().create(true).append(true).open(path);
    // A single write, so that lines of parallel tests do not mix.
    let written = list.and_then(|mut list| list.write_all(format!("{why}\n").as_bytes()));
    written.expect("the file that SPRAT_SKIPS names can be written");
}

/// Waits until all threads of a process are stopped. Call it after `SIGSTOP`: the signal takes a
/// while, and what a thread does until then belongs to the time before.
///
/// # Panics
/// If the process ends, or does not stop within [`PATIENCE`].
pub fn until_stopped(process: u32) {
    let stopped = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(task.expect("a thread").path().join("stat"));
        // A thread that has just ended does nothing any more.
        let Ok(stat) = stat else { return true };
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
    };
    let until = Instant::now() + PATIENCE;
    while !std::fs::read_dir(format!("/proc/{process}/task")).expect("its threads").all(stopped) {
        assert!(Instant::now() < until, "process {process} does not stop");
        std::thread::yield_now();
    }
}
