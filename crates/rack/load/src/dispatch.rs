//! The thread that starts operations when they are due.

use crate::operations::{Operation, Operations};
use crate::running::Shared;
use crate::schedule::Schedule;
use crate::target::LoadTarget;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// How much later than requested the kernel may wake this thread, in ns. Linux's default is 50 us.
const TIMER_SLACK: NonZeroU64 = NonZeroU64::new(1_000).expect("not 0");

/// The thread spins for this long at the end of each wait, since waking up takes about as long. At
/// more than 20,000 operations per second it always spins, and keeps a core busy.
const SPIN: Duration = Duration::from_micros(50);

/// Limit on one sleep, after which the thread checks whether to stop.
const NAP: Duration = Duration::from_millis(50);

/// Starts each operation when it is due, until the schedule ends or the load is stopped. The thread
/// does nothing else.
pub(crate) fn dispatch<T: LoadTarget>(
    shared: &Arc<Shared<T>>,
    schedule: Schedule,
    mut operations: Operations,
    handle: &Handle,
) {
    // If this fails, operations start somewhat later, and the report shows their lateness.
    let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK));
    let mut batch = Batch::default();
    for offset in schedule {
        let window = shared.window_of(offset);
        if window != batch.window {
            batch.flush(shared, window);
        }
        let operation = operations.next(offset);
        if !wait(shared, shared.begin + Duration::from_nanos(offset)) {
            break;
        }
        if shared.outstanding.fetch_add(1, Ordering::AcqRel) < shared.most {
            batch.sent += 1;
            shared.sent.fetch_add(1, Ordering::Relaxed);
            handle.spawn(perform(Arc::clone(shared), operation, offset));
        } else {
            shared.outstanding.fetch_sub(1, Ordering::AcqRel);
            batch.not_sent += 1;
            shared.not_sent.fetch_add(1, Ordering::Relaxed);
        }
    }
    let until = shared.begin + shared.length;
    let stopped = !wait(shared, until);
    shared.end_schedule(if stopped { shared.now() } else { u64::MAX });
    batch.flush(shared, usize::MAX);
}

/// Operations dispatched in the current window. The thread reports them together, so that it hardly
/// ever waits for a lock.
#[derive(Default)]
struct Batch {
    window: usize,
    sent: u64,
    not_sent: u64,
}

impl Batch {
    fn flush<T>(&mut self, shared: &Shared<T>, next: usize) {
        shared.dispatched(self.window, self.sent, self.not_sent, next);
        *self = Self { window: next, sent: 0, not_sent: 0 };
    }
}

/// Waits until `due`. Returns false if the load is stopped before then.
#[expect(clippy::disallowed_methods, reason = "the thread of its own, whose work is to wait")]
fn wait<T>(shared: &Shared<T>, due: Instant) -> bool {
    loop {
        if shared.stop.load(Ordering::Relaxed) {
            return false;
        }
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        match left.checked_sub(SPIN) {
            Some(sleep) if !sleep.is_zero() => std::thread::sleep(sleep.min(NAP)),
            _ => std::hint::spin_loop(),
        }
    }
}

async fn perform<T: LoadTarget>(shared: Arc<Shared<T>>, operation: Operation, intended: u64) {
    let sent = shared.now();
    let result = shared.target.perform(operation).await;
    let ended = shared.now();
    if let (Ok(_), Operation::Put { key, stamp }, Some(acknowledged)) =
        (&result, operation, &shared.acknowledged)
    {
        acknowledged.note(key, stamp);
    }
    shared.record(intended, sent, ended, result);
    shared.outstanding.fetch_sub(1, Ordering::AcqRel);
}
