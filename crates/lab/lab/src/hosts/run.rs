//! Runs commands in hosts. Reports their output line by line and how they end, and leaves no
//! process behind.

use super::{HostsError, LabHosts, within};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};
use std::io::{BufRead as _, BufReader, Read};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Limit on the length of a line of output, including its end, in bytes. A longer line arrives in
/// parts.
pub const MAX_LINE: u64 = 64 * 1024;

/// Limit on the lines that wait to be read. When it is reached, the commands block.
const QUEUE_LINES: usize = 256;

/// How long the report of a command's end waits for its last lines. Processes that the command left
/// in the background may keep its output open for ever.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Time for commands to end after SIGTERM, before they get SIGKILL.
const GRACE: Duration = Duration::from_secs(1);

/// A command to run in a host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Job {
    /// Index of the host in the plan.
    pub host: usize,
    /// The command, which `sh -c` runs.
    pub command: String,
}

/// The stream to which a line was written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// What a command did.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// A command wrote a line. `text` does not include the line end.
    Line {
        /// Index of the job.
        job: usize,
        /// The stream to which the line was written.
        stream: Stream,
        /// The bytes of the line.
        text: Vec<u8>,
    },
    /// A command ended. Its lines have arrived, except those that processes in the background write
    /// later, and those that could not be read within a second.
    Ended {
        /// Index of the job.
        job: usize,
        /// The exit status of the command.
        status: ExitStatus,
    },
}

/// Running commands. Dropping this ends the commands and all processes that are still in their
/// process groups.
#[derive(Debug)]
pub struct Commands {
    running: Vec<Running>,
    events: Receiver<Message>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    /// How and when the command ended. Reported when its output has ended too, or after
    /// [`LAST_LINES`].
    ended: Option<(ExitStatus, Instant)>,
    /// The command's exit status, once it has been reported.
    status: Option<ExitStatus>,
    /// Number of open streams, plus one until the command's end has been seen.
    pending: usize,
}

enum Message {
    Line(usize, Stream, Vec<u8>),
    /// The command has ended, but was not reaped, so that its process number stays reserved.
    Dead(usize),
    Closed(usize),
}

impl Commands {
    /// Starts commands, each in its host, with an empty input and a process group of its own.
    /// Commands find the names of the lab and of their host in the variables `SPRAT_LAB` and
    /// `SPRAT_HOST`. They find the first address of every host in variables such as `LEFT_V4` and
    /// `LEFT_V6`: the host's name in capitals, with `_` for `-`.
    ///
    /// # Errors
    /// A command cannot be started. The commands that were already started are ended.
    ///
    /// # Panics
    /// The plan does not have the host of a job.
    pub fn start(hosts: &LabHosts, jobs: &[Job]) -> Result<Self, HostsError> {
        let (sender, events) = sync_channel(QUEUE_LINES);
        let mut commands = Self { running: Vec::new(), events, threads: Vec::new() };
        for job in jobs {
            let plan = hosts.plan();
            let name = &plan.hosts[job.host].name;
            let mut command = Command::new("sh");
            command
                .arg("-c")
                .arg(&job.command)
                .env("SPRAT_LAB", &plan.name)
                .env("SPRAT_HOST", name);
            command.envs(addresses(hosts));
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .process_group(0);
            let started = within(hosts.namespace(job.host).as_fd(), || command.spawn())
                .and_then(|started| started);
            let child = started.map_err(HostsError::refused(format!("host.{name}: start sh")))?;
            commands
                .follow(child, &sender)
                .map_err(HostsError::refused(format!("host.{name}: follow its command")))?;
        }
        Ok(commands)
    }

    /// Returns the next event. `None` if there is no event within `timeout`, or if all commands
    /// have ended and all their events were returned.
    pub fn next(&mut self, timeout: Duration) -> Option<Event> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(ended) = self.next_ended() {
                return Some(ended);
            }
            let held = self.running.iter().filter(|running| running.status.is_none());
            let until = held.filter_map(|running| Some(running.ended?.1 + LAST_LINES)).min();
            let until = until.map_or(deadline, |until| until.min(deadline));
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Message::Line(job, stream, text)) => {
                    return Some(Event::Line { job, stream, text });
                }
                Ok(Message::Closed(job)) => self.running[job].pending -= 1,
                Ok(Message::Dead(job)) => {
                    let running = &mut self.running[job];
                    running.pending -= 1;
                    // Other processes of the command's group may still run. The group's number must
                    // stay reserved until they are killed. So the status is read without reaping
                    // the process.
                    running.ended =
                        status_of(&running.child).map(|status| (status, Instant::now()));
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return self.next_ended();
                }
            }
        }
    }

    /// Returns the end of a command that has ended, once its last lines have arrived or
    /// [`LAST_LINES`] has passed.
    fn next_ended(&mut self) -> Option<Event> {
        let mut running =
            self.running.iter_mut().enumerate().filter(|(_, running)| running.status.is_none());
        running.find_map(|(job, running)| {
            let (status, at) = running.ended?;
            if running.pending > 0 && at.elapsed() < LAST_LINES {
                return None;
            }
            running.status = Some(status);
            Some(Event::Ended { job, status })
        })
    }

    /// Returns how the command of a job ended. `None` until [`next`](Self::next) has reported its
    /// end.
    #[must_use]
    pub fn status(&self, job: usize) -> Option<ExitStatus> {
        self.running[job].status
    }

    /// Returns whether all commands have ended and [`next`](Self::next) has returned all their
    /// lines.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.running.iter().all(|running| running.pending == 0 && running.status.is_some())
    }

    fn follow(&mut self, mut child: Child, sender: &SyncSender<Message>) -> std::io::Result<()> {
        let job = self.running.len();
        let output = child.stdout.take();
        let error = child.stderr.take();
        let handle = pidfd_open(pid(&child), PidfdFlags::empty());
        // From here on, if a step fails, dropping `self` ends the command.
        self.running.push(Running { child, ended: None, status: None, pending: 3 });
        let handle = handle?;
        let dead = sender.clone();
        self.threads.push(thread::Builder::new().spawn(move || {
            let _ = waitid(
                WaitId::PidFd(handle.as_fd()),
                WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
            );
            let _ = dead.send(Message::Dead(job));
        })?);
        if let Some(output) = output {
            self.read(job, Stream::Output, output, sender.clone())?;
        }
        if let Some(error) = error {
            self.read(job, Stream::Error, error, sender.clone())?;
        }
        Ok(())
    }

    fn read(
        &mut self,
        job: usize,
        stream: Stream,
        from: impl Read + Send + 'static,
        to: SyncSender<Message>,
    ) -> std::io::Result<()> {
        self.threads.push(thread::Builder::new().spawn(move || {
            let mut from = BufReader::new(from);
            let mut line = Vec::new();
            while matches!(from.by_ref().take(MAX_LINE).read_until(b'\n', &mut line), Ok(1..)) {
                let end = line.strip_suffix(b"\n").unwrap_or(&line).len();
                line.truncate(end);
                if to.send(Message::Line(job, stream, std::mem::take(&mut line))).is_err() {
                    return;
                }
            }
            let _ = to.send(Message::Closed(job));
        })?);
        Ok(())
    }
}

impl Drop for Commands {
    /// Sends SIGTERM to every process group, then SIGKILL. Processes that left their group end when
    /// the namespace is emptied.
    fn drop(&mut self) {
        for running in &self.running {
            let _ = kill_process_group(pid(&running.child), Signal::TERM);
        }
        let begun = Instant::now();
        while begun.elapsed() < GRACE
            && self.running.iter().any(|running| status_of(&running.child).is_none())
        {
            // Reads the output of the commands: a command that blocks on its output would not end.
            let _ = self.next(Duration::from_millis(10));
        }
        for running in &mut self.running {
            let _ = kill_process_group(pid(&running.child), Signal::KILL);
            let _ = running.child.wait();
        }
        // A thread that reads from a process outside of these groups ends with that process. This
        // function does not wait for such threads.
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Returns how a child ended; `None` if it still runs. Does not reap the child, so that its process
/// number stays reserved.
fn status_of(child: &Child) -> Option<ExitStatus> {
    use std::os::unix::process::ExitStatusExt as _;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let status = waitid(WaitId::Pid(pid(child)), options).ok()??;
    let raw = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => (code & 0xff) << 8,
        (None, Some(signal)) => signal & 0x7f,
        (None, None) => return None,
    };
    Some(ExitStatus::from_raw(raw))
}

/// Returns the first address of each host in each family, with the name of its variable.
fn addresses(hosts: &LabHosts) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    for host in &hosts.plan().hosts {
        let name = host.name.to_ascii_uppercase().replace('-', "_");
        let all = || {
            host.interfaces.iter().flat_map(|interface| &interface.addresses).map(|net| net.addr())
        };
        for (family, first) in
            [("V4", all().find(|ip| ip.is_ipv4())), ("V6", all().find(|ip| ip.is_ipv6()))]
        {
            variables.extend(first.map(|ip| (format!("{name}_{family}"), ip.to_string())));
        }
    }
    variables
}
