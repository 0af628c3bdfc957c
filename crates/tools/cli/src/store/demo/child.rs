//! The demo's server: this binary as a child process, with a data directory of its own.

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use sprat_host::lock;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a start may take: the server reads its whole log.
const START_PATIENCE: Duration = Duration::from_secs(120);

/// Free disk space that is required, as a multiple of the server's memory.
const DISK_FACTOR: u64 = 2;

/// The type that `statfs` reports for a file system in memory.
const TMPFS: u64 = 0x0102_1994;

/// The server process and its directory. Both are removed when the demo ends, also by an error or a
/// signal that it can catch.
#[derive(Default)]
struct Leftovers {
    child: Option<Child>,
    directory: Option<TempDir>,
}

impl Leftovers {
    fn clear(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill(); // it may have ended by itself
            let _ = child.wait();
        }
        self.directory = None;
    }
}

/// The data directory and memory size of the demo's server. Ctrl-C, or dropping this value, kills
/// the server and removes the directory.
pub(super) struct Sandbox {
    leftovers: Arc<Mutex<Leftovers>>,
    data: PathBuf,
    memory: u64,
}

impl Sandbox {
    /// Makes a directory inside the system's temporary directory. Returns an error if there is no
    /// room for a server with `memory` bytes.
    pub(super) fn new(memory: u64) -> Result<Self> {
        let parent = std::env::temp_dir();
        let free = free_bytes(&parent)?;
        let needed = memory * DISK_FACTOR;
        ensure!(
            free >= needed,
            "{} has {} MiB free, but the demo needs {} MiB: choose another directory with TMPDIR",
            parent.display(),
            free >> 20,
            needed >> 20,
        );
        let directory = tempfile::Builder::new().prefix("sprat-demo-").tempdir_in(&parent);
        let directory = directory
            .with_context(|| format!("cannot create a directory in {}", parent.display()))?;
        let data = directory.path().to_owned();
        let leftovers = Arc::new(Mutex::new(Leftovers { child: None, directory: Some(directory) }));
        clear_on_signal(Arc::clone(&leftovers))?;
        Ok(Self { leftovers, data, memory })
    }

    /// Describes the directory, with a remark if its file system is in memory.
    pub(super) fn describe(&self) -> String {
        let in_memory =
            rustix::fs::statfs(&self.data).is_ok_and(|fs| u64::try_from(fs.f_type) == Ok(TMPFS));
        let remark = if in_memory { " (a filesystem in memory: not on disk)" } else { "" };
        format!("{}{remark}", self.data.display())
    }

    /// Removes the directory. Reports an error; dropping would ignore it.
    pub(super) fn remove(self) -> Result<()> {
        let directory = lock(&self.leftovers).directory.take();
        directory
            .map_or(Ok(()), TempDir::close)
            .with_context(|| format!("cannot remove {}", self.data.display()))
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        lock(&self.leftovers).clear();
    }
}

fn free_bytes(path: &Path) -> Result<u64> {
    let fs = rustix::fs::statvfs(path)
        .with_context(|| format!("cannot read the free space of {}", path.display()))?;
    Ok(fs.f_bavail.saturating_mul(fs.f_frsize))
}

/// At the first signal, removes the server and its data, and ends the process by that signal.
fn clear_on_signal(leftovers: Arc<Mutex<Leftovers>>) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
    let watch = move || {
        if let Some(signal) = signals.forever().next() {
            // The lock is held until the process ends, so that the main thread cannot start another
            // server.
            let mut leftovers = lock(&leftovers);
            leftovers.clear();
            eprintln!("sprat: stopped; removed the server and its data");
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    thread::Builder::new()
        .name("sprat-signals".into())
        .spawn(watch)
        .context("cannot start a thread")?;
    Ok(())
}

/// A server process that is ready.
pub(super) struct ServerChild {
    leftovers: Arc<Mutex<Leftovers>>,
    /// How long the start took.
    pub(super) started_in: Duration,
    /// Locator of the coordinator.
    pub(super) coordinator: String,
    /// Locator of the master, which holds the objects.
    pub(super) listen: String,
    /// Where Redis clients connect.
    pub(super) redis: SocketAddr,
    /// The server's message about the log that it restored.
    pub(super) restored: String,
}

impl ServerChild {
    pub(super) fn start(sandbox: &Sandbox) -> Result<Self> {
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
            .args(["--redis", "127.0.0.1:0"])
            .args(["--memory", &sandbox.memory.to_string()])
            .arg("--data")
            .arg(&sandbox.data)
            .env_remove("SPRAT_IDENTITY") // it belongs to another cluster
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Ctrl-C at the terminal signals only the demo, which then ends its server.
            .process_group(0);
        let mut leftovers = lock(&sandbox.leftovers);
        let mut child = command.spawn().context("cannot start the server")?;
        let stderr = child.stderr.take().context("its standard error is piped")?;
        leftovers.child = Some(child);
        drop(leftovers);

        let (sender, lines) = channel();
        let listen = move || {
            for line in BufReader::new(stderr).lines().map_while(std::io::Result::ok) {
                // Fails after the server is ready, because the receiver is then dropped.
                let _ = sender.send(line);
            }
        };
        thread::Builder::new()
            .name("sprat-demo-stderr".into())
            .spawn(listen)
            .context("cannot start a thread")?;
        let mut server = Self {
            leftovers: Arc::clone(&sandbox.leftovers),
            started_in: Duration::ZERO,
            coordinator: String::new(),
            listen: String::new(),
            redis: SocketAddr::from(([127, 0, 0, 1], 0)),
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
                    bail!("the server failed to start: {}", said.trim_end())
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!(
                        "the server is not ready after {} s: {}",
                        START_PATIENCE.as_secs(),
                        said.trim_end()
                    )
                }
            };
            if let Some((objects, how)) =
                line.trim_start_matches("sprat: ").split_once(" objects restored from ")
            {
                self.restored = format!("{objects} objects restored from {how}");
            }
            if let Some((address, _)) = line
                .strip_prefix("sprat: serving Redis clients at ")
                .and_then(|rest| rest.split_once(';'))
            {
                self.redis = address.parse().context("the server says where")?;
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

    /// Kills the server with SIGKILL, and waits for its end.
    pub(super) fn kill(self) -> Result<()> {
        let mut child =
            lock(&self.leftovers).child.take().context("the server has already ended")?;
        child.kill().context("cannot kill the server")?;
        child.wait().context("cannot wait for the server")?;
        Ok(())
    }

    /// Stops the server as Ctrl-C does, and waits for its end.
    pub(super) fn stop(self) -> Result<()> {
        let mut child =
            lock(&self.leftovers).child.take().context("the server has already ended")?;
        kill_process(Pid::from_child(&child), Signal::INT).context("cannot signal the server")?;
        let status = child.wait().context("cannot wait for the server")?;
        ensure!(status.success(), "the server failed while stopping: {status}");
        Ok(())
    }
}
