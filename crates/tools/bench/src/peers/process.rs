//! Server processes that the benchmark starts and always kills.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Endpoint;
use sprat_measure::cpu;
use sprat_measure::usage;

/// Interval at which to check whether a starting server is ready.
const READY_POLL: Duration = Duration::from_millis(2);

/// A server process. Dropping this value kills the process.
///
/// The kernel also kills the process when the thread that started it ends (`PR_SET_PDEATHSIG`,
/// through `setpriv`), so that even a killed benchmark leaves no process behind. Start it from a
/// thread that outlives its use.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Process {
    /// Starts `program`, searched in `PATH`. Its threads are pinned to `core`, if given, and its
    /// output goes to `log`.
    ///
    /// # Errors
    /// When the log cannot be created, or util-linux's `setpriv` is missing. A missing `program` or
    /// core is no error here: the process ends at once, which [`wait_ready`](Self::wait_ready)
    /// reports.
    pub fn spawn<I, S>(program: &str, args: I, core: Option<usize>, log: &Path) -> Result<Self>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let output = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        if let Some(core) = core {
            command.args(["taskset", "-c", &core.to_string()]);
        }
        // The identity in the environment belongs to another cluster.
        command.arg(program).args(args).env_remove("SPRAT_IDENTITY");
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command
            .spawn()
            .with_context(|| format!("starting {program} (needs util-linux's setpriv)"))?;
        Ok(Self { child, name: program.to_owned(), log: log.to_owned() })
    }

    /// Returns the id of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `ready` returns true. Returns the time that this took.
    ///
    /// # Errors
    /// When the process ends first, or `limit` passes. The error has the end of the process's
    /// output.
    pub fn wait_ready(
        &mut self,
        limit: Duration,
        mut ready: impl FnMut() -> bool,
    ) -> Result<Duration> {
        let started = Instant::now();
        loop {
            if ready() {
                return Ok(started.elapsed());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended at once ({status}): {}", self.name, self.last_words());
            }
            if started.elapsed() > limit {
                bail!("{} not ready within {limit:?}: {}", self.name, self.last_words());
            }
            cpu::pause(READY_POLL);
        }
    }

    /// Returns whether the process has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the resident memory of the process, in bytes.
    ///
    /// # Errors
    /// When the process has ended, or its `/proc` entry cannot be read.
    pub fn rss_bytes(&self) -> Result<u64> {
        usage::rss_bytes(self.pid())
    }

    /// Kills the process with SIGKILL, and waits for its end.
    pub fn kill(&mut self) {
        // Both calls fail only if the process has ended and has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns a TCP address on the loopback interface that is unused at this moment.
///
/// # Errors
/// When no port is free.
pub fn free_loopback_addr() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Returns whether `endpoint` answers `question` within a second, with bytes that start with
/// `answer`.
#[must_use]
pub fn answers(endpoint: &Endpoint, question: &[u8], answer: &[u8]) -> bool {
    let Ok(socket) = endpoint.connect() else { return false };
    let second = Some(Duration::from_secs(1));
    if rustix::net::sockopt::set_socket_timeout(
        &socket,
        rustix::net::sockopt::Timeout::Recv,
        second,
    )
    .is_err()
    {
        return false;
    }
    let mut stream = File::from(socket);
    let mut found = vec![0; answer.len()];
    stream.write_all(question).is_ok() && stream.read_exact(&mut found).is_ok() && found == answer
}
