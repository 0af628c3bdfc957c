//! A pool of threads that share one computation. It also works in a child of `fork`, which copies a
//! pool's memory but not its threads.

use crate::error::Error;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

/// Limit on the threads for each processor. More threads would only wait for each other: to start
/// 1,000 threads on two processors takes seconds.
pub const THREADS_PER_PROCESSOR: usize = 16;

/// A fixed number of threads. They are started once, and wait between computations.
///
/// The threads belong to the process that created the pool. A child of `fork` does not have them,
/// and a call that waited for them there would never return. So the first computation in a child
/// starts new threads. The child never drops its parent's pool: that would take locks that a thread
/// of the parent may have held at the fork. For the same reason, no method waits for a lock.
///
/// `Threads` may be shared. If several threads run computations at the same time, the computations
/// share the pool.
#[derive(Debug)]
pub struct Threads {
    count: NonZeroUsize,
    /// The pool of the process that created this value. `None` if the caller's thread does all the
    /// work.
    first: Option<Pool>,
    /// The pool of a child process; `None` before the first computation in a child.
    later: Mutex<Option<Arc<Pool>>>,
}

impl Threads {
    /// Starts `count` threads. With a `count` of 1, starts none: the caller's thread does the work.
    ///
    /// # Errors
    /// [`Error::TooManyThreads`] if `count` is above [`THREADS_PER_PROCESSOR`] for each processor,
    /// [`Error::Threads`] if the system cannot start them.
    pub fn new(count: NonZeroUsize) -> Result<Self, Error> {
        check_threads(count)?;
        let first = if count.get() == 1 { None } else { Some(Pool::start(count.get())?) };
        Ok(Self { count, first, later: Mutex::new(None) })
    }

    /// Returns the number of threads.
    #[must_use]
    pub fn count(&self) -> NonZeroUsize {
        self.count
    }

    /// Runs `work` on one of the threads. Rayon's parallel iterators and joins in `work` use all
    /// threads. Without a pool, `work` runs on the caller's thread: the number of threads is 1, or
    /// the system cannot start threads in a child of `fork`. The argument of `work` says whether
    /// there is a pool.
    pub fn run<R: Send>(&self, work: impl FnOnce(bool) -> R + Send) -> R {
        let Some(first) = &self.first else { return work(false) };
        if first.is_of_this_process() {
            return first.install(work);
        }
        match self.child_pool() {
            Some(pool) => pool.install(work),
            None => work(false),
        }
    }

    /// Returns a pool for this process, which is a child of the process that created `self`.
    fn child_pool(&self) -> Option<Arc<Pool>> {
        // If a thread of the parent held this lock at the fork, the lock is never released. Each
        // computation then starts threads of its own.
        let mut slot = self.later.try_lock().ok();
        if let Some(pool) =
            slot.as_deref().and_then(Option::as_ref).filter(|pool| pool.is_of_this_process())
        {
            return Some(Arc::clone(pool));
        }
        let pool = Arc::new(Pool::start(self.count.get()).ok()?);
        if let Some(slot) = slot.as_deref_mut() {
            *slot = Some(Arc::clone(&pool));
        }
        Some(pool)
    }
}

/// Checks that this number of threads is allowed on this machine.
///
/// # Errors
/// [`Error::TooManyThreads`] if `count` is above [`THREADS_PER_PROCESSOR`] for each processor that
/// this process may use.
pub fn check_threads(count: NonZeroUsize) -> Result<(), Error> {
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let (threads, limit) = (count.get(), processors * THREADS_PER_PROCESSOR);
    if threads > limit { Err(Error::TooManyThreads { threads, limit, processors }) } else { Ok(()) }
}

/// The threads of one process.
#[derive(Debug)]
struct Pool {
    process: u32,
    /// The thread pool. `None` only while it is being dropped.
    threads: Option<ThreadPool>,
}

impl Pool {
    fn start(threads: usize) -> Result<Self, Error> {
        let name = |at| format!("kernel-{at}");
        let built = ThreadPoolBuilder::new().num_threads(threads).thread_name(name).build();
        let built = built.map_err(|error| Error::Threads { threads, why: error.to_string() })?;
        Ok(Self { process: std::process::id(), threads: Some(built) })
    }

    /// Returns whether the threads belong to the calling process.
    fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    fn install<R: Send>(&self, work: impl FnOnce(bool) -> R + Send) -> R {
        self.threads.as_ref().expect("there until it is dropped").install(|| work(true))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            std::mem::forget(self.threads.take());
        }
    }
}
