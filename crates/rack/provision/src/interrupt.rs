//! Interrupts a running play.

use rustix::process::{Pid, Signal, kill_process_group};
use sprat_host::lock;
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// How long a play may take to end by itself: Ansible stops its workers, which close their
/// connections.
const GRACE: Duration = Duration::from_secs(10);

/// How long killed processes may take to disappear.
const FAREWELL: Duration = Duration::from_secs(5);

/// Interval between checks whether the play has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Ends the running play and all its processes from another thread. Clones share the same play.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Process group of the running play.
    group: Option<Pid>,
    requested: bool,
}

impl Interrupt {
    /// Ends the running play, waits for at most 15 s until it ends, and returns whether it ended.
    /// Returns `false` if no play runs. A play that starts later is ended as well.
    pub fn end(&self) -> bool {
        self.end_within(GRACE)
    }

    fn end_within(&self, grace: Duration) -> bool {
        let group = {
            let mut state = self.state();
            state.requested = true;
            state.group
        };
        let Some(group) = group else { return false };
        let begun = Instant::now();
        // The signal that Ctrl-C would send.
        let _ = kill_process_group(group, Signal::INT);
        while self.state().group == Some(group) {
            if begun.elapsed() > grace + FAREWELL {
                return false;
            }
            if begun.elapsed() > grace {
                // Ansible's workers have sessions of their own: if only the play were killed, they
                // would go on.
                for group in children(group).into_iter().chain([group]) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "a control thread that waits for processes to end"
            )]
            thread::sleep(LOOK);
        }
        true
    }

    /// Registers a play that has started, and interrupts it at once if [`Interrupt::end`] was
    /// called before. `leader` leads the play's process group.
    pub(crate) fn begins(&self, leader: u32) {
        let mut state = self.state();
        state.group = i32::try_from(leader).ok().and_then(Pid::from_raw);
        if let Some(group) = state.group.filter(|_| state.requested) {
            let _ = kill_process_group(group, Signal::INT);
        }
    }

    /// Unregisters the play, and returns whether [`Interrupt::end`] was called.
    pub(crate) fn ended(&self) -> bool {
        let mut state = self.state();
        state.group = None;
        state.requested
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

/// Returns the running children of a process.
fn children(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero();
    let listed =
        fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    /// A play that ignores the interrupt, with a worker in a session of its own that holds the
    /// output open. The worker is killed first, so the play must not end when the worker does.
    #[test]
    fn a_play_that_ignores_the_interrupt_is_killed_with_its_workers() {
        let script = "trap '' INT; setsid sh -c 'echo ready; exec sleep 20' & wait; exec sleep 20";
        let mut command = Command::new("sh");
        let mut play = command
            .args(["-c", script])
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh");
        let mut output = BufReader::new(play.stdout.take().expect("piped"));
        output.read_line(&mut String::new()).expect("its worker runs");
        let interrupt = Interrupt::default();
        interrupt.begins(play.id());
        let ends = interrupt.clone();
        let ender = thread::spawn(move || ends.end_within(Duration::from_millis(50)));
        // The output ends when no process is left that could write to it.
        output.read_to_end(&mut Vec::new()).expect("it ends");
        assert!(!play.wait().expect("ours").success());
        assert!(interrupt.ended(), "before its time");
        assert!(ender.join().expect("no panic"));
        assert!(!interrupt.end(), "none runs any more");
    }
}
