//! Cores and scheduling: binding threads, sleeping, and occupying a core on purpose.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Binds the calling thread to `core`; threads that it starts later inherit this.
///
/// # Errors
/// If there is no such core, or this process may not use it.
pub fn pin_current_thread(core: usize) -> Result<()> {
    if core >= CpuSet::MAX_CPU {
        bail!("core {core} is beyond {}", CpuSet::MAX_CPU);
    }
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("binding a thread to core {core}"))
}

/// Returns the cores that the calling thread may use.
///
/// # Errors
/// If the kernel does not report them.
pub fn allowed_cores() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("reading this thread's cores")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// A guard that restores the calling thread's binding to cores when it is dropped.
#[derive(Debug)]
pub struct Pinned {
    before: CpuSet,
}

impl Pinned {
    /// Binds the calling thread to `core` until the guard is dropped on the same thread. `None`
    /// changes nothing.
    ///
    /// # Errors
    /// If there is no such core, or this process may not use it.
    pub fn to(core: Option<usize>) -> Result<Self> {
        let before = sched_getaffinity(None).context("reading this thread's cores")?;
        if let Some(core) = core {
            pin_current_thread(core)?;
        }
        Ok(Self { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // These cores were allowed a moment ago.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// A guard during whose life the calling thread is scheduled as SCHED_FIFO, so that no ordinary
/// thread runs on its core while it spins. Drop the guard on the same thread. Use it only for a
/// timed loop of bounded length on a separate core; servers keep their scheduling class.
#[derive(Debug)]
pub struct Fifo(());

impl Fifo {
    /// Raises the calling thread to `priority` (1 to 99), through util-linux's `chrt`.
    ///
    /// # Panics
    /// If `priority` is not 1 to 99.
    ///
    /// # Errors
    /// If this process may not do this (it needs CAP_SYS_NICE), or `chrt` is missing.
    pub fn current_thread(priority: u8) -> Result<Self> {
        assert!((1..=99).contains(&priority), "a FIFO priority is 1 to 99, not {priority}");
        chrt(&["-f", "-p", &priority.to_string()])?;
        Ok(Self(()))
    }
}

impl Drop for Fifo {
    fn drop(&mut self) {
        // Lowering the class is always allowed. If `chrt` has vanished, the thread keeps its class.
        let _ = chrt(&["-o", "-p", "0"]);
    }
}

fn chrt(args: &[&str]) -> Result<()> {
    let tid = gettid().as_raw_nonzero().to_string();
    let status = Command::new("chrt")
        .args(args)
        .arg(tid)
        .stderr(Stdio::null())
        .status()
        .context("starting chrt")?;
    if !status.success() {
        bail!("the scheduling class was refused ({status})");
    }
    Ok(())
}

/// Returns the processor time that the calling thread has used.
#[must_use]
pub fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let part = |part: i64| u64::try_from(part).expect("a processor's clock begins at 0");
    Duration::from_secs(part(now.tv_sec)) + Duration::from_nanos(part(now.tv_nsec))
}

/// Sleeps. Only control threads of benchmarks may sleep, to wait for servers or for time; the
/// threads of nodes must not.
#[expect(clippy::disallowed_methods, reason = "a control thread of the bench, not a node")]
pub fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// A thread that only uses up a core, like a noisy neighbour. Dropping this value ends it.
#[derive(Debug)]
pub struct Hog {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Hog {
    /// Starts the thread, on `core` or on any core the scheduler chooses.
    ///
    /// # Errors
    /// If there is no such core, this process may not use it, or the thread cannot be started.
    pub fn start(core: Option<usize>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let binding = Pinned::to(core)?; // inherited by the thread that starts under it
        let thread = std::thread::Builder::new().name("hog".into()).spawn(move || {
            let mut state = 1_u64;
            while !stopped.load(Ordering::Relaxed) {
                for _ in 0..1000 {
                    state = std::hint::black_box(
                        state.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(7),
                    );
                }
            }
        })?;
        drop(binding);
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot panic, and a drop could not report it.
            let _ = thread.join();
        }
    }
}
