//! The end of a play before its time.

use rustix::process::{Pid, Signal, kill_process_group};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a play has to end by itself: Ansible asks its workers to, and they their connections.
const GRACE: Duration = Duration::from_secs(10);

/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(20);

/// Ends the play that runs, with all that it started, from another thread. Clones are of the same play.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The play that runs: the group of its processes.
    group: Option<Pid>,
    asked: bool,
}

impl Interrupt {
    /// Ends the play that runs, and waits until it has ended; whether there was one. A play that begins later is ended
    /// too.
    pub fn end(&self) -> bool {
        let group = {
            let mut state = self.state();
            state.asked = true;
            state.group
        };
        let Some(group) = group else { return false };
        let begun = Instant::now();
        // What Ctrl-C would be to it.
        let _ = kill_process_group(group, Signal::INT);
        while self.state().group == Some(group) {
            if begun.elapsed() > GRACE {
                let _ = kill_process_group(group, Signal::KILL);
            }
            #[expect(clippy::disallowed_methods, reason = "a control thread that waits for processes to end")]
            thread::sleep(LOOK);
        }
        true
    }

    /// A play begins; its processes are the group of this one.
    pub(crate) fn begins(&self, leader: u32) {
        let mut state = self.state();
        state.group = i32::try_from(leader).ok().and_then(Pid::from_raw);
        if let Some(group) = state.group.filter(|_| state.asked) {
            let _ = kill_process_group(group, Signal::INT);
        }
    }

    /// It has ended; whether before its time.
    pub(crate) fn ended(&self) -> bool {
        let mut state = self.state();
        state.group = None;
        state.asked
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
