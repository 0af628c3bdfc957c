//! Threads that share one computation, in whichever process that is: a `fork` copies a pool's
//! memory, but not its threads.

use crate::error::Error;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

/// Threads for each processor, at most. More of them only wait for each other: 1,000 on two
/// processors take seconds to start.
pub const THREADS_PER_PROCESSOR: usize = 16;

/// A fixed number of threads, started once and kept waiting between computations.
///
/// The threads belong to the process that made the pool. In a child of `fork` they are gone, and
/// whoever waited for them there would wait for ever; so the first computation in a child starts
/// threads of the child's own. A child leaves the pool of its parent as it is: to end it would take
/// locks that a thread of the parent held when it forked. For the same reason no lock is waited for
/// here.
///
/// `Threads` may be shared: computations of several threads at once take turns within the pool.
#[derive(Debug)]
pub struct Threads {
    count: NonZeroUsize,
    /// Of the process that made this; none where one thread does it all.
    first: Option<Pool>,
    /// Of a child.
    later: Mutex<Option<Arc<Pool>>>,
}

impl Threads {
    /// Starts `count` threads; none if it is 1, since the caller's thread is enough then.
    ///
    /// # Errors
    /// [`Error::TooManyThreads`] beyond [`THREADS_PER_PROCESSOR`] for each processor,
    /// [`Error::Threads`] if the system gives fewer.
    pub fn new(count: NonZeroUsize) -> Result<Self, Error> {
        check_threads(count)?;
        let first = if count.get() == 1 { None } else { Some(Pool::start(count.get())?) };
        Ok(Self { count, first, later: Mutex::new(None) })
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> NonZeroUsize {
        self.count
    }

    /// Runs `work` on one of the threads, where rayon's parallel iterators and joins spread over
    /// all of them. In a child of `fork` for which the system has no threads left, the caller's
    /// thread does all of it.
    pub fn run<R: Send>(&self, work: impl FnOnce(bool) -> R + Send) -> R {
        let Some(first) = &self.first else { return work(false) };
        if first.is_here() {
            return first.install(work);
        }
        match self.of_child() {
            Some(pool) => pool.install(work),
            None => work(false),
        }
    }

    /// The pool of this process, which is not the one that made `self`.
    fn of_child(&self) -> Option<Arc<Pool>> {
        // A thread of a parent may hold this lock for ever: then each computation starts threads
        // for itself.
        let mut kept = self.later.try_lock().ok();
        if let Some(pool) = kept.as_deref().and_then(Option::as_ref).filter(|pool| pool.is_here()) {
            return Some(Arc::clone(pool));
        }
        let pool = Arc::new(Pool::start(self.count.get()).ok()?);
        if let Some(kept) = kept.as_deref_mut() {
            *kept = Some(Arc::clone(&pool));
        }
        Some(pool)
    }
}

/// Whether so many threads are of any use here.
///
/// # Errors
/// [`Error::TooManyThreads`] beyond [`THREADS_PER_PROCESSOR`] for each processor that this process
/// may use.
pub fn check_threads(count: NonZeroUsize) -> Result<(), Error> {
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let (threads, limit) = (count.get(), processors * THREADS_PER_PROCESSOR);
    if threads > limit { Err(Error::TooManyThreads { threads, limit, processors }) } else { Ok(()) }
}

/// The threads of one process.
#[derive(Debug)]
struct Pool {
    process: u32,
    /// There until the pool is dropped.
    threads: Option<ThreadPool>,
}

impl Pool {
    fn start(threads: usize) -> Result<Self, Error> {
        let name = |at| format!("kernel-{at}");
        let built = ThreadPoolBuilder::new().num_threads(threads).thread_name(name).build();
        let built = built.map_err(|error| Error::Threads { threads, why: error.to_string() })?;
        Ok(Self { process: std::process::id(), threads: Some(built) })
    }

    /// Whether its threads are of the process that asks.
    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    fn install<R: Send>(&self, work: impl FnOnce(bool) -> R + Send) -> R {
        self.threads.as_ref().expect("there until it is dropped").install(|| work(true))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.is_here() {
            std::mem::forget(self.threads.take());
        }
    }
}
