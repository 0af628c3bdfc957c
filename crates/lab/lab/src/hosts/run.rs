//! Commands that run in hosts: their output line by line, how they ended, and that none is left
//! behind.

use super::{Error, Standing, within};
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

/// Longest line of output, in bytes: a longer one comes in parts.
pub const MAX_LINE: u64 = 64 * 1024;

/// Lines that may wait to be taken; beyond that the commands wait.
const QUEUE_LINES: usize = 256;

/// How long the end of a command is held back for its last lines: what it left in the background
/// may keep its output open for ever.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long commands have to end when they are asked to.
const GRACE: Duration = Duration::from_secs(1);

/// What is to run in a host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Job {
    /// Where the host stands in the plan.
    pub host: usize,
    /// For `sh -c`.
    pub command: String,
}

/// Where a line was written to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// What happens to the commands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// A command wrote a line; its end is not part of it.
    Line {
        /// Number of the job.
        job: usize,
        /// Where to.
        stream: Stream,
        /// What.
        text: Vec<u8>,
    },
    /// A command ended, and its lines have come. Those of what it left in the background may come
    /// yet.
    Ended {
        /// Number of the job.
        job: usize,
        /// How.
        status: ExitStatus,
    },
}

/// Commands that run. They are killed, with all they started, when this goes.
#[derive(Debug)]
pub struct Commands {
    running: Vec<Running>,
    events: Receiver<Heard>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    /// How and when it ended, once that was seen; told when its output has ended too, or has had
    /// its time.
    ended: Option<(ExitStatus, Instant)>,
    /// How it ended, once that was told.
    status: Option<ExitStatus>,
    /// Streams that are open, and whether its end has not been seen yet.
    pending: usize,
}

enum Heard {
    Line(usize, Stream, Vec<u8>),
    /// The command is dead, and not waited for: its number stays its own until then.
    Dead(usize),
    Closed(usize),
}

impl Commands {
    /// Starts commands, each in its host, with nothing to read and a process group of its own. They
    /// find the names of lab and host in `SPRAT_LAB` and `SPRAT_HOST`, and the first address of
    /// every host in variables like `LEFT_V4` and `LEFT_V6` (its name in capitals, `_` for
    /// `-`).
    ///
    /// # Errors
    /// One cannot be started; the others are ended again.
    pub fn start(standing: &Standing, jobs: &[Job]) -> Result<Self, Error> {
        let (sender, events) = sync_channel(QUEUE_LINES);
        let mut commands = Self { running: Vec::new(), events, threads: Vec::new() };
        for job in jobs {
            let plan = standing.plan();
            let name = &plan.hosts[job.host].name;
            let mut command = Command::new("sh");
            command
                .arg("-c")
                .arg(&job.command)
                .env("SPRAT_LAB", &plan.name)
                .env("SPRAT_HOST", name);
            command.envs(addresses(standing));
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .process_group(0);
            let started = within(standing.namespace(job.host).as_fd(), || command.spawn())
                .and_then(|started| started);
            let child = started.map_err(Error::refused(format!("host.{name}: start sh")))?;
            commands
                .follow(child, &sender)
                .map_err(Error::refused(format!("host.{name}: follow its command")))?;
        }
        Ok(commands)
    }

    /// The next thing that happens; `None` when nothing does in this time, or everything has.
    pub fn next(&mut self, timeout: Duration) -> Option<Event> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(ended) = self.tell_ended() {
                return Some(ended);
            }
            let held = self.running.iter().filter(|running| running.status.is_none());
            let until = held.filter_map(|running| Some(running.ended?.1 + LAST_WORDS)).min();
            let until = until.map_or(deadline, |until| until.min(deadline));
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Heard::Line(job, stream, text)) => {
                    return Some(Event::Line { job, stream, text });
                }
                Ok(Heard::Closed(job)) => self.running[job].pending -= 1,
                Ok(Heard::Dead(job)) => {
                    let running = &mut self.running[job];
                    running.pending -= 1;
                    // Others of its group may live on, until the end: the number has to stay taken
                    // till then, so it is asked how it ended, and not yet
                    // waited for.
                    running.ended =
                        status_of(&running.child).map(|status| (status, Instant::now()));
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return self.tell_ended();
                }
            }
        }
    }

    /// The end of a command that ended and has said its last, or has had the time for it.
    fn tell_ended(&mut self) -> Option<Event> {
        let mut running =
            self.running.iter_mut().enumerate().filter(|(_, running)| running.status.is_none());
        running.find_map(|(job, running)| {
            let (status, at) = running.ended?;
            if running.pending > 0 && at.elapsed() < LAST_WORDS {
                return None;
            }
            running.status = Some(status);
            Some(Event::Ended { job, status })
        })
    }

    /// How a command ended, by the number of its job; `None` until that [was told](Self::next).
    #[must_use]
    pub fn status(&self, job: usize) -> Option<ExitStatus> {
        self.running[job].status
    }

    /// Whether everything has happened: all commands ended, and their last lines were taken.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.running.iter().all(|running| running.pending == 0 && running.status.is_some())
    }

    fn follow(&mut self, mut child: Child, sender: &SyncSender<Heard>) -> std::io::Result<()> {
        let job = self.running.len();
        let output = child.stdout.take();
        let error = child.stderr.take();
        let handle = pidfd_open(pid(&child), PidfdFlags::empty());
        // From here on it is ended if something fails.
        self.running.push(Running { child, ended: None, status: None, pending: 3 });
        let handle = handle?;
        let dead = sender.clone();
        self.threads.push(thread::Builder::new().spawn(move || {
            let _ = waitid(
                WaitId::PidFd(handle.as_fd()),
                WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
            );
            let _ = dead.send(Heard::Dead(job));
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
        to: SyncSender<Heard>,
    ) -> std::io::Result<()> {
        self.threads.push(thread::Builder::new().spawn(move || {
            let mut from = BufReader::new(from);
            let mut line = Vec::new();
            while matches!(from.by_ref().take(MAX_LINE).read_until(b'\n', &mut line), Ok(1..)) {
                let end = line.strip_suffix(b"\n").unwrap_or(&line).len();
                line.truncate(end);
                if to.send(Heard::Line(job, stream, std::mem::take(&mut line))).is_err() {
                    return;
                }
            }
            let _ = to.send(Heard::Closed(job));
        })?);
        Ok(())
    }
}

impl Drop for Commands {
    /// Asks every group of processes to end, then kills it. Processes that left their group are
    /// ended with the namespace.
    fn drop(&mut self) {
        for running in &self.running {
            let _ = kill_process_group(pid(&running.child), Signal::TERM);
        }
        let begun = Instant::now();
        while begun.elapsed() < GRACE
            && self.running.iter().any(|running| status_of(&running.child).is_none())
        {
            // Taking what they still write, or they could not end.
            let _ = self.next(Duration::from_millis(10));
        }
        for running in &mut self.running {
            let _ = kill_process_group(pid(&running.child), Signal::KILL);
            let _ = running.child.wait();
        }
        // Threads that read for those who left their group end when these do; nobody waits for them
        // here.
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// How a child ended, without waiting for it: its number stays its own.
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

/// The first address of each host and family, by the name of its variable.
fn addresses(standing: &Standing) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    for host in &standing.plan().hosts {
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
