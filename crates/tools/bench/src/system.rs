//! Whole servers the bench starts, measures, kills and starts again: the peers, and ours.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use tempfile::TempDir;

use crate::peers::process::{answers, free_loopback_addr};
use crate::peers::redis::RespWait;
use crate::peers::stream::Pipelined;
use crate::peers::{Endpoint, Peer, Process};
use sprat_measure::target::LoadTarget;

/// Longest a server may take to become ready, replay of its log included.
pub(crate) const READY_LIMIT: Duration = Duration::from_secs(120);

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Nothing: memory only.
    Memory,
    /// The process's end; a power cut costs up to a second (Redis: `appendfsync everysec`).
    Buffered,
    /// A power cut: it was synced before the answer (Redis: `appendfsync always`).
    Sync,
}

/// How a server is to be started.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What its writes must survive.
    pub durability: Durability,
    /// The core its threads are bound to; any, if `None`.
    pub core: Option<usize>,
    /// Memory it may use for objects, bytes.
    pub memory_bytes: u64,
    /// Whether it may rewrite its log by itself. Off for timed runs; a restart reads what was
    /// appended.
    pub rewrite_log: bool,
    /// Folder for data, on the disk that is to be measured; each server makes its own below it.
    pub data: PathBuf,
}

impl Setup {
    /// Memory only, 4 GiB, on any core, data below the system's temporary folder.
    #[must_use]
    pub fn new() -> Self {
        Self {
            durability: Durability::Memory,
            core: None,
            memory_bytes: 4 << 30,
            rewrite_log: false,
            data: std::env::temp_dir(),
        }
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}

/// A kind of server.
pub trait System {
    /// Its name, as rows have it.
    fn name(&self) -> &str;

    /// Whether it has anything of this kind to offer.
    fn offers(&self, durability: Durability) -> bool;

    /// Starts one, empty, and waits until it answers.
    ///
    /// # Errors
    /// When it cannot be started.
    fn start(&self, setup: &Setup) -> Result<Box<dyn Server>>;
}

/// A running server, stopped when dropped.
pub trait Server {
    /// Its process.
    fn pid(&self) -> u32;

    /// Opens connections to it.
    ///
    /// # Errors
    /// When they cannot be opened.
    fn connect(&self, connections: usize) -> Result<Box<dyn LoadTarget>>;

    /// Kills it (SIGKILL), starts it again on the same data, and waits until it answers; returns
    /// how long that took from its start.
    ///
    /// # Errors
    /// When it does not come back.
    fn restart(&mut self) -> Result<Duration>;
}

/// Redis, from `redis-server` in `PATH`.
#[derive(Clone, Copy, Debug)]
pub struct Redis {
    /// Over a unix socket instead of TCP.
    pub unix: bool,
}

/// Redis with replicas, all in memory; a write is done when all of them have it (`WAIT`).
#[derive(Clone, Copy, Debug)]
pub struct RedisReplicas {
    /// Replicas: 1 or 3.
    pub replicas: u8,
}

/// memcached with one thread, from `memcached` in `PATH`.
#[derive(Clone, Copy, Debug)]
pub struct Memcached;

impl System for Redis {
    fn name(&self) -> &str {
        if self.unix { "redis unix" } else { "redis" }
    }

    fn offers(&self, _durability: Durability) -> bool {
        true
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Server>> {
        let folder = own_folder(&setup.data, "redis")?;
        let socket = folder.path().join("socket");
        let addr = free_loopback_addr()?;
        let endpoint = if self.unix { Endpoint::Unix(socket.clone()) } else { Endpoint::Tcp(addr) };
        let mut arguments = Arguments::default();
        arguments.pair("--port", if self.unix { "0".to_owned() } else { addr.port().to_string() });
        if self.unix {
            arguments.pair("--unixsocket", &socket);
        }
        arguments.pair("--bind", "127.0.0.1").pair("--dir", folder.path()).pair("--save", "");
        arguments.pair("--daemonize", "no").pair("--loglevel", "warning");
        match setup.durability {
            Durability::Memory => arguments.pair("--appendonly", "no"),
            Durability::Buffered => {
                arguments.pair("--appendonly", "yes").pair("--appendfsync", "everysec")
            }
            Durability::Sync => {
                arguments.pair("--appendonly", "yes").pair("--appendfsync", "always")
            }
        };
        if !setup.rewrite_log {
            arguments.pair("--auto-aof-rewrite-percentage", "0");
        }
        let ready = Ready { question: b"PING\r\n", answer: b"+PONG" };
        LocalServer::start(
            "redis-server",
            arguments.0,
            setup.core,
            folder,
            Peer::Redis(endpoint.clone()),
            endpoint,
            ready,
        )
    }
}

impl System for RedisReplicas {
    fn name(&self) -> &str {
        if self.replicas == 1 { "redis WAIT 1" } else { "redis WAIT 3" }
    }

    fn offers(&self, _durability: Durability) -> bool {
        true
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Server>> {
        let mut primary: Option<(SocketAddr, Process)> = None;
        let mut replicas = Vec::new();
        let folder = own_folder(&setup.data, "redis")?;
        for number in 0..=self.replicas {
            let addr = free_loopback_addr()?;
            let home = folder.path().join(number.to_string());
            std::fs::create_dir(&home)?;
            let mut arguments = Arguments::default();
            arguments
                .pair("--port", addr.port().to_string())
                .pair("--bind", "127.0.0.1")
                .pair("--dir", &home);
            arguments.pair("--save", "").pair("--appendonly", "no").pair("--daemonize", "no");
            arguments.pair("--loglevel", "warning").pair("--repl-diskless-sync-delay", "0");
            if let Some((first, _)) = &primary {
                arguments.pair("--replicaof", format!("127.0.0.1 {}", first.port()));
            }
            let mut process =
                Process::spawn("redis-server", arguments.0, setup.core, &home.join("log"))?;
            process
                .wait_ready(READY_LIMIT, || answers(&Endpoint::Tcp(addr), b"PING\r\n", b"+PONG"))?;
            match primary {
                None => primary = Some((addr, process)),
                Some(_) => replicas.push(process),
            }
        }
        let (addr, mut process) = primary.context("a primary")?;
        let endpoint = Endpoint::Tcp(addr);
        let (question, answer) =
            (format!("WAIT {} 500\r\n", self.replicas), format!(":{}", self.replicas));
        process.wait_ready(READY_LIMIT, || {
            answers(&endpoint, question.as_bytes(), answer.as_bytes())
        })?;
        Ok(Box::new(RedisGroup {
            process,
            _replicas: replicas,
            _folder: folder,
            endpoint,
            count: self.replicas,
        }))
    }
}

/// A primary of Redis and its replicas.
struct RedisGroup {
    // Killed before their folder goes.
    process: Process,
    _replicas: Vec<Process>,
    _folder: TempDir,
    endpoint: Endpoint,
    count: u8,
}

impl Server for RedisGroup {
    fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn connect(&self, connections: usize) -> Result<Box<dyn LoadTarget>> {
        Ok(match self.count {
            1 => Box::new(Pipelined::connect("redis", RespWait::<1>, &self.endpoint, connections)?),
            _ => Box::new(Pipelined::connect("redis", RespWait::<3>, &self.endpoint, connections)?),
        })
    }

    fn restart(&mut self) -> Result<Duration> {
        bail!("a group of Redis servers is not started again")
    }
}

impl System for Memcached {
    fn name(&self) -> &str {
        "memcached"
    }

    fn offers(&self, durability: Durability) -> bool {
        durability == Durability::Memory
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Server>> {
        if !self.offers(setup.durability) {
            bail!("memcached keeps nothing on disk");
        }
        let folder = own_folder(&setup.data, "memcached")?;
        let addr = free_loopback_addr()?;
        let endpoint = Endpoint::Tcp(addr);
        let mut arguments = Arguments::default();
        arguments
            .pair("-l", "127.0.0.1")
            .pair("-p", addr.port().to_string())
            .pair("-U", "0")
            .pair("-t", "1");
        arguments.pair("-m", (setup.memory_bytes >> 20).to_string()).pair("-I", "4m");
        if rustix::process::geteuid().is_root() {
            arguments.pair("-u", "root"); // it refuses to be root unless told so
        }
        let ready = Ready { question: b"mn\r\n", answer: b"MN" };
        let peer = Peer::Memcached(endpoint.clone());
        LocalServer::start("memcached", arguments.0, setup.core, folder, peer, endpoint, ready)
    }
}

pub(crate) fn own_folder(data: &Path, name: &str) -> Result<TempDir> {
    let prefix = format!("sprat-bench-{name}-");
    tempfile::Builder::new()
        .prefix(&prefix)
        .tempdir_in(data)
        .with_context(|| format!("a folder in {}", data.display()))
}

#[derive(Debug, Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn pair(&mut self, name: &str, value: impl Into<OsString>) -> &mut Self {
        self.0.push(name.into());
        self.0.push(value.into());
        self
    }
}

/// How a server says that it is ready.
#[derive(Clone, Copy, Debug)]
struct Ready {
    question: &'static [u8],
    answer: &'static [u8],
}

/// A peer's process and its folder.
struct LocalServer {
    // Killed before its folder goes.
    process: Process,
    program: &'static str,
    arguments: Vec<OsString>,
    core: Option<usize>,
    folder: TempDir,
    peer: Peer,
    endpoint: Endpoint,
    ready: Ready,
}

impl LocalServer {
    fn start(
        program: &'static str,
        arguments: Vec<OsString>,
        core: Option<usize>,
        folder: TempDir,
        peer: Peer,
        endpoint: Endpoint,
        ready: Ready,
    ) -> Result<Box<dyn Server>> {
        let process = Process::spawn(program, &arguments, core, &folder.path().join("log"))?;
        let mut server = Self { process, program, arguments, core, folder, peer, endpoint, ready };
        server.wait_ready()?;
        Ok(Box::new(server))
    }

    fn wait_ready(&mut self) -> Result<Duration> {
        let Self { process, endpoint, ready, .. } = self;
        process.wait_ready(READY_LIMIT, || answers(endpoint, ready.question, ready.answer))
    }
}

impl Server for LocalServer {
    fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn connect(&self, connections: usize) -> Result<Box<dyn LoadTarget>> {
        self.peer.connect(connections)
    }

    fn restart(&mut self) -> Result<Duration> {
        self.process.kill();
        self.process = Process::spawn(
            self.program,
            &self.arguments,
            self.core,
            &self.folder.path().join("log"),
        )?;
        self.wait_ready()
    }
}
