//! Runs programs that serve and fetch files, on hosts of the benchmark's network.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::lab::host::{Host, HostTask};
use crate::peers::Process;
use sprat_chance::Chance;
use sprat_measure::usage;

/// Timeout for starting a server, and for connecting to it.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes that are written at once when a file is made.
const BLOCK_BYTES: usize = 1 << 20;

/// Port of the servers.
const PORT: u16 = 8040;

/// Linux's default buffer sizes.
const PLAIN: [(&str, &str); 2] =
    [("ipv4/tcp_rmem", "4096 131072 6291456"), ("ipv4/tcp_wmem", "4096 16384 4194304")];

/// A program that serves files.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Server {
    /// Ours, which paces its streams.
    Sprat,
    /// nginx, which sends from the page cache without copying.
    Nginx,
    /// rclone, which copies the data.
    Rclone,
}

impl Server {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sprat => "sprat share",
            Self::Nginx => "nginx",
            Self::Rclone => "rclone serve http",
        }
    }
}

/// A program that fetches files.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Client {
    Sprat,
    /// Ours with this number of streams.
    SpratStreams(u8),
    Curl,
    Aria2,
    Axel,
    Rclone,
}

impl Client {
    pub(super) fn name(self) -> String {
        match self {
            Self::Sprat => "sprat cp",
            Self::SpratStreams(count) => return format!("sprat cp, {count} streams"),
            Self::Curl => "curl",
            Self::Aria2 => "aria2c -x16",
            Self::Axel => "axel -n16",
            Self::Rclone => "rclone, 16 streams",
        }
        .to_owned()
    }

    /// Returns the program: a name in `PATH`, or the path `ours` of our own program.
    fn program(self, ours: &Path) -> String {
        match self {
            Self::Sprat | Self::SpratStreams(_) => return ours.display().to_string(),
            Self::Curl => "curl",
            Self::Aria2 => "aria2c",
            Self::Axel => "axel",
            Self::Rclone => "rclone",
        }
        .to_owned()
    }

    /// Returns the arguments to fetch a server's file to a path.
    fn args(self, from: SocketAddr, name: &str, to: &Path) -> Vec<String> {
        let url = format!("http://{from}/{name}");
        let path = to.display().to_string();
        let words =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        match self {
            Self::Sprat => {
                words(&["cp", "--quiet", "--force", &format!("sprat://{from}/{name}"), &path])
            }
            Self::SpratStreams(count) => {
                let (count, from) = (count.to_string(), format!("sprat://{from}/{name}"));
                words(&["cp", "--quiet", "--force", "--streams", &count, &from, &path])
            }
            Self::Curl => words(&["-sSf", "-o", &path, &url]),
            Self::Aria2 => {
                let folder = to.parent().unwrap_or(Path::new("/")).display().to_string();
                let file = to.file_name().unwrap_or_default().to_string_lossy().into_owned();
                words(&[
                    "-q",
                    "-x16",
                    "-s16",
                    "-k1M",
                    "--file-allocation=none",
                    "--no-conf",
                    "-d",
                    &folder,
                    "-o",
                    &file,
                    &url,
                ])
            }
            Self::Axel => words(&["-q", "-n", "16", "-o", &path, &url]),
            Self::Rclone => {
                let base = format!("http://{from}");
                let remote = format!(":http:{name}");
                words(&[
                    "copyto",
                    "--config",
                    "/dev/null",
                    "--http-url",
                    &base,
                    "--multi-thread-streams",
                    "16",
                    "--multi-thread-cutoff",
                    "1M",
                    &remote,
                    &path,
                ])
            }
        }
    }
}

/// A running server. Dropping this value ends the server.
#[derive(Debug)]
pub(super) struct Serving {
    at: SocketAddr,
    pid: u32,
    /// Path of our own program.
    ours: PathBuf,
    stop: Option<SyncSender<()>>,
    ran: Option<HostTask<()>>,
}

impl Serving {
    /// Starts a server for the folder `files` on a host, and waits until it accepts connections.
    /// The server's output goes to a file in the folder `notes`.
    pub(super) fn start(
        server: Server,
        host: &Host,
        address: IpAddr,
        ours: &Path,
        files: &Path,
        notes: &Path,
    ) -> Result<Self> {
        let at = SocketAddr::new(address, PORT);
        let log = notes.join("server.log");
        let (program, args) = match server {
            Server::Sprat => {
                let args = [
                    "share",
                    &files.display().to_string(),
                    "--listen",
                    &at.to_string(),
                    "--pace",
                    "auto",
                    "--json",
                ];
                (ours.display().to_string(), args.map(str::to_owned).to_vec())
            }
            Server::Nginx => ("nginx".to_owned(), nginx(at, files, notes)?),
            Server::Rclone => {
                let (files, at) = (files.display().to_string(), at.to_string());
                let args = [
                    "serve",
                    "http",
                    &files,
                    "--addr",
                    &at,
                    "--config",
                    "/dev/null",
                    "--read-only",
                ];
                ("rclone".to_owned(), args.map(str::to_owned).to_vec())
            }
        };
        let (ready, started) = sync_channel(1);
        let (stop, stopped) = sync_channel(1);
        let ran = host.start(move || {
            let mut process = Process::spawn(&program, &args, None, &log)?;
            process.wait_ready(START_TIMEOUT, || {
                TcpStream::connect_timeout(&at, START_TIMEOUT).is_ok()
            })?;
            ready.send(process.pid()).context("telling of a server")?;
            let _ = stopped.recv(); // an error when the sender is dropped, which is the signal
            Ok(())
        })?;
        match started.recv_timeout(START_TIMEOUT) {
            Ok(pid) => {
                Ok(Self { at, pid, ours: ours.to_owned(), stop: Some(stop), ran: Some(ran) })
            }
            Err(_) => Err(ran.get().err().unwrap_or_else(|| anyhow!("a server does not begin"))),
        }
    }

    /// Returns the address of the folder's page.
    pub(super) fn url(&self) -> String {
        format!("http://{}/", self.at)
    }

    /// Returns the processor time used so far by the server's process and its children.
    fn used(&self) -> Result<Duration> {
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid))
            .unwrap_or_default();
        let pids = children.split_whitespace().filter_map(|pid| pid.parse().ok()).chain([self.pid]);
        pids.map(usage::cpu_time).sum()
    }

    /// Fetches a file with a client on another host.
    pub(super) fn fetch(
        &self,
        client: Client,
        host: &Host,
        name: &str,
        to: &Path,
    ) -> Result<Fetched> {
        self.fetch_sampled(client, host, name, to, START_TIMEOUT, || Ok(()))
    }

    /// Fetches a file as [`fetch`](Self::fetch) does. Calls `sample` at the beginning, at intervals
    /// of `between`, and at the end.
    pub(super) fn fetch_sampled(
        &self,
        client: Client,
        host: &Host,
        name: &str,
        to: &Path,
        between: Duration,
        mut sample: impl FnMut() -> Result<()>,
    ) -> Result<Fetched> {
        let before = self.used()?;
        let (program, args) = (client.program(&self.ours), client.args(self.at, name, to));
        let fetching = host.start(move || timed(&program, &args))?;
        let (seconds, receiver) = loop {
            sample()?;
            if let Some(fetched) = fetching.within(between)? {
                break fetched;
            }
        };
        sample()?;
        let sender = self.used()?.saturating_sub(before);
        Ok(Fetched { seconds, sender: sender.as_secs_f64(), receiver: receiver.as_secs_f64() })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(ran) = self.ran.take() {
            let _ = ran.get(); // waits; an error does not matter any more
        }
    }
}

/// The costs of a transfer in seconds: elapsed time, and processor time of sender and receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetched {
    pub(super) seconds: f64,
    pub(super) sender: f64,
    pub(super) receiver: f64,
}

/// Runs a program to its end. Returns the seconds it took, and its processor time.
fn timed(program: &str, args: &[String]) -> Result<(f64, Duration)> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program]).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let begun = Instant::now();
    let mut child = command.spawn().with_context(|| format!("starting {program}"))?;
    let mut errors = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut errors); // until it ends
    }
    // Wait without reaping the process, so that its times can still be read.
    let pid = Pid::from_child(&child);
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    let seconds = begun.elapsed().as_secs_f64();
    let used = usage::cpu_time(child.id())?;
    let status = child.wait()?;
    if !status.success() {
        bail!("{program} {}: {status}: {}", args.join(" "), errors.trim());
    }
    Ok((seconds, used))
}

/// Writes a configuration for nginx that serves just a folder. Returns nginx's arguments.
fn nginx(at: SocketAddr, files: &Path, notes: &Path) -> Result<Vec<String>> {
    let config = notes.join("nginx.conf");
    let (files, notes) = (files.display(), notes.display());
    let text = format!(
        "daemon off; pid {notes}/nginx.pid; error_log {notes}/nginx.log; worker_processes 2; user \
         root;\n\
         events {{ worker_connections 512; }}\n\
         http \
         {{ access_log off; sendfile on; tcp_nopush on; client_body_temp_path {notes}/body; \
         proxy_temp_path {notes}/proxy;\n\
         fastcgi_temp_path {notes}/fastcgi; uwsgi_temp_path {notes}/uwsgi; scgi_temp_path \
         {notes}/scgi;\n\
         server {{ listen {at}; root {files}; }} }}\n"
    );
    std::fs::write(&config, text).with_context(|| format!("writing {}", config.display()))?;
    Ok(vec!["-c".to_owned(), config.display().to_string(), "-p".to_owned(), notes.to_string()])
}

/// Sets a host's TCP buffers to Linux's defaults.
pub(super) fn plain(host: &Host) -> Result<()> {
    host.run(|| {
        for (knob, value) in PLAIN {
            std::fs::write(format!("/proc/sys/net/{knob}"), value)?;
        }
        Ok(())
    })
}

/// Makes a file of pseudo-random bytes. No two blocks of it are equal.
pub(super) fn make(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
    let mut block = vec![0_u8; BLOCK_BYTES];
    let mut chance = Chance::new(0);
    for word in block.chunks_exact_mut(8) {
        word.copy_from_slice(&chance.draw().to_le_bytes());
    }
    let mut left = bytes;
    let mut number = 0_u64;
    while left > 0 {
        number += 1;
        block[..8].copy_from_slice(&number.to_le_bytes());
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK_BYTES);
        file.write_all(&block[..part]).with_context(|| format!("writing {}", path.display()))?;
        left -= part as u64;
    }
    Ok(file.sync_all()?)
}

/// Makes a temporary folder on the disk with the results.
pub(super) fn folder(settings: &crate::promises::Settings) -> Result<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir_in(&settings.lab.setup.data).context("a folder for files")?;
    let path = folder.path().to_owned();
    Ok((folder, path))
}

/// Returns the median of some figures.
pub(super) fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}
