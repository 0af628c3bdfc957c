//! The demo's server: this binary as a child process, with a data directory of its own.

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use sprat_host::lock;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a start may take: it reads the whole log.
const START_PATIENCE: Duration = Duration::from_secs(120);

/// Disk that must be free, for each byte of the server's memory.
const DISK_FACTOR: u64 = 2;

/// A filesystem in memory, as `statfs` names it.
const TMPFS: u64 = 0x0102_1994;

/// What must go when the demo goes, whichever way.
#[derive(Default)]
struct Remains {
    child: Option<Child>,
    directory: Option<TempDir>,
}

impl Remains {
    fn clear(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill(); // it may have ended by itself
            let _ = child.wait();
        }
        self.directory = None;
    }
}

/// Where the demo's server lives. On Ctrl-C and on drop its process and its directory go.
pub(super) struct Place {
    remains: Arc<Mutex<Remains>>,
    data: PathBuf,
    memory: u64,
}

impl Place {
    /// A fresh directory in the system's temporary one, with room for a server of `memory` bytes.
    pub(super) fn new(memory: u64) -> Result<Self> {
        let parent = std::env::temp_dir();
        let free = free_bytes(&parent)?;
        let needed = memory * DISK_FACTOR;
        ensure!(
            free >= needed,
            "{} has {} MiB free, {} MiB are needed; name another directory with TMPDIR",
            parent.display(),
            free >> 20,
            needed >> 20,
        );
        let directory = tempfile::Builder::new().prefix("sprat-demo-").tempdir_in(&parent);
        let directory = directory
            .with_context(|| format!("cannot make a directory in {}", parent.display()))?;
        let data = directory.path().to_owned();
        let remains = Arc::new(Mutex::new(Remains { child: None, directory: Some(directory) }));
        clear_on_signal(Arc::clone(&remains))?;
        Ok(Self { remains, data, memory })
    }

    /// The directory, and whether anything in it reaches a disk.
    pub(super) fn describe(&self) -> String {
        let in_memory =
            rustix::fs::statfs(&self.data).is_ok_and(|fs| u64::try_from(fs.f_type) == Ok(TMPFS));
        let remark =
            if in_memory { " (a filesystem in memory: nothing reaches a disk)" } else { "" };
        format!("{}{remark}", self.data.display())
    }

    /// Removes the directory.
    pub(super) fn remove(self) -> Result<()> {
        let directory = lock(&self.remains).directory.take();
        directory
            .map_or(Ok(()), TempDir::close)
            .with_context(|| format!("cannot remove {}", self.data.display()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.remains).clear();
    }
}

fn free_bytes(path: &Path) -> Result<u64> {
    let fs =
        rustix::fs::statvfs(path).with_context(|| format!("cannot look at {}", path.display()))?;
    Ok(fs.f_bavail.saturating_mul(fs.f_frsize))
}

/// Clears up at the first signal, and ends as the signal would have it.
fn clear_on_signal(remains: Arc<Mutex<Remains>>) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
    let watch = move || {
        if let Some(signal) = signals.forever().next() {
            // Held to the end, so that no other child is started.
            let mut remains = lock(&remains);
            remains.clear();
            eprintln!("sprat: stopped; server and data are removed");
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    thread::Builder::new()
        .name("sprat-signals".into())
        .spawn(watch)
        .context("cannot start a thread")?;
    Ok(())
}

/// A server that is ready.
pub(super) struct ServerChild {
    remains: Arc<Mutex<Remains>>,
    /// How long the start took.
    pub(super) started_in: Duration,
    /// Where the coordinator is.
    pub(super) coordinator: String,
    /// Where the objects are.
    pub(super) listen: String,
    /// What it said of the log that it found.
    pub(super) restored: String,
}

impl ServerChild {
    pub(super) fn start(place: &Place) -> Result<Self> {
        let started = Instant::now();
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(program);
        command
            .args(["server", "--with-coordinator", "-C", "tcp:host=127.0.0.1,port=0"])
            .args([
                "-L",
                "fast+udp:host=127.0.0.1,port=0",
                "--durability",
                "sync",
                "--metrics",
                "none",
            ])
            .args(["--memory", &place.memory.to_string()])
            .arg("--data")
            .arg(&place.data)
            .env_remove("SPRAT_IDENTITY") // of some other cluster
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // A Ctrl-C at the terminal is for the demo, which then ends its server.
            .process_group(0);
        let mut remains = lock(&place.remains);
        let mut child = command.spawn().context("cannot start the server")?;
        let stderr = child.stderr.take().context("its standard error is piped")?;
        remains.child = Some(child);
        drop(remains);

        let (sender, lines) = channel();
        let listen = move || {
            for line in BufReader::new(stderr).lines().map_while(std::io::Result::ok) {
                let _ = sender.send(line); // once it is ready nobody listens any more
            }
        };
        thread::Builder::new()
            .name("sprat-demo-stderr".into())
            .spawn(listen)
            .context("cannot start a thread")?;
        let mut server = Self {
            remains: Arc::clone(&place.remains),
            started_in: Duration::ZERO,
            coordinator: String::new(),
            listen: String::new(),
            restored: String::new(),
        };
        server.wait_ready(&lines, started)?;
        server.started_in = started.elapsed();
        Ok(server)
    }

    fn wait_ready(&mut self, lines: &Receiver<String>, started: Instant) -> Result<()> {
        let mut said = String::new();
        loop {
            let line = match lines.recv_timeout(START_PATIENCE.saturating_sub(started.elapsed())) {
                Ok(line) => line,
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("the server ended instead of starting: {}", said.trim_end())
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!("the server does not get ready: {}", said.trim_end())
                }
            };
            if let Some((objects, how)) =
                line.trim_start_matches("sprat: ").split_once(" objects restored from ")
            {
                self.restored = format!("{objects} objects restored from {how}");
            }
            if let Some((listen, rest)) =
                line.strip_prefix("sprat: ready at ").and_then(|rest| rest.split_once("; "))
            {
                let coordinator =
                    rest.strip_prefix("coordinator at ").and_then(|rest| rest.split(';').next());
                self.coordinator =
                    coordinator.context("the server names its coordinator")?.to_owned();
                self.listen = listen.to_owned();
                return Ok(());
            }
            said += &line;
            said.push('\n');
        }
    }

    /// Ends it without a warning, and waits.
    pub(super) fn kill(self) -> Result<()> {
        let mut child = lock(&self.remains).child.take().context("the server is gone already")?;
        child.kill().context("cannot kill the server")?;
        child.wait().context("cannot wait for the server")?;
        Ok(())
    }

    /// Ends it as Ctrl-C does, and waits.
    pub(super) fn stop(self) -> Result<()> {
        let mut child = lock(&self.remains).child.take().context("the server is gone already")?;
        kill_process(Pid::from_child(&child), Signal::INT).context("cannot signal the server")?;
        let status = child.wait().context("cannot wait for the server")?;
        ensure!(status.success(), "the server did not stop in order: {status}");
        Ok(())
    }
}
