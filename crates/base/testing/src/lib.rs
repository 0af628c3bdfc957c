//! Helpers shared by the tests of several crates. Only dev-dependencies may name this crate: its
//! functions panic, print and sleep, which our programs must not.

mod s3;

pub use s3::S3Server;

use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::net::{TcpListener, UdpSocket};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// Returns a port that neither a TCP nor a UDP socket of 127.0.0.1 has, for a server that a test
/// starts, and restarts. The port is outside the range from which the kernel takes ports, so the
/// kernel gives it to no other socket while the server is away. No two calls in a process return
/// the same port; those of two processes return the same by chance only, of 17,000.
///
/// # Panics
/// If none of 1,000 ports is free.
pub fn free_port() -> u16 {
    const FIRST: u64 = 15_000;
    const PORTS: u64 = 17_000;
    static BEGIN: OnceLock<u64> = OnceLock::new();
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    let begin = BEGIN.get_or_init(|| RandomState::new().hash_one(0) % PORTS);
    let mut ports = (0..1000).map(|_| {
        let number = begin + TAKEN.fetch_add(1, Ordering::Relaxed);
        u16::try_from(FIRST + number % PORTS).expect("at most 32,000")
    });
    let is_free = |port: &u16| {
        let at = ("127.0.0.1", *port);
        TcpListener::bind(at).is_ok() && UdpSocket::bind(at).is_ok()
    };
    ports.find(is_free).expect("a free port")
}

/// Waits until a condition holds, and returns the time that this took. `what` names the condition,
/// for the message. This function is for conditions of other processes and threads; a test that
/// must itself step a node or a driver calls that instead of sleeping.
///
/// # Panics
/// If the condition does not hold within [`PATIENCE`].
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        #[expect(clippy::disallowed_methods, reason = "nothing reports the condition")]
        std::thread::sleep(Duration::from_millis(5));
    }
    begun.elapsed()
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
