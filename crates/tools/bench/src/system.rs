//! Whole servers, of the peers and our own, that benchmarks start, measure, kill and restart.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use tempfile::TempDir;

use crate::peers::optimistic::RedisContender;
use crate::peers::process::{answers, free_loopback_addr};
use crate::peers::redis::RespWait;
use crate::peers::stream::Pipelined;
use crate::peers::{Endpoint, Peer, Process, RedisConnection};
use crate::scenarios::OpenContender;
use sprat_measure::target::LoadTarget;

/// Timeout for a server to become ready, including the replay of its log.
pub(crate) const READY_LIMIT: Duration = Duration::from_secs(120);

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Nothing: the write is in memory only.
    Memory,
    /// The end of the process. A power cut loses up to a second of writes (Redis:
    /// `appendfsync everysec`).
    Buffered,
    /// A power cut: the write is synced before the answer (Redis: `appendfsync always`).
    Sync,
}

/// How to start a server.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What the server's writes must survive.
    pub durability: Durability,
    /// The core to which the server's threads are pinned, if any.
    pub core: Option<usize>,
    /// Memory for objects in bytes.
    pub memory_bytes: u64,
    /// Whether the server may rewrite its log on its own. Off by default, so that a restart replays
    /// everything that was appended.
    pub rewrite_log: bool,
    /// Folder on the disk to measure. Each server makes its own folder in it.
    pub data: PathBuf,
}

impl Setup {
    /// Returns the defaults: memory only, 4 GiB, any core, data in the system's temporary folder.
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

/// A kind of server that benchmarks can start, such as Redis or Sprat with some configuration.
pub trait System {
    /// Returns the system's name in results.
    fn name(&self) -> &str;

    /// Returns whether the system supports this durability.
    fn offers(&self, durability: Durability) -> bool;

    /// Starts an empty server, and waits until it answers.
    ///
    /// # Errors
    /// When the system does not offer the durability in `setup`, its program cannot be started, or
    /// it does not answer in time.
    fn start(&self, setup: &Setup) -> Result<Box<dyn Server>>;
}

/// A running server. Dropping this value kills the server's process.
pub trait Server {
    /// Returns the server's process id.
    fn pid(&self) -> u32;

    /// Opens connections to the server.
    ///
    /// # Errors
    /// When a connection cannot be opened.
    fn connect(&self, connections: usize) -> Result<Box<dyn LoadTarget>>;

    /// Returns how clients that make transactions are opened.
    ///
    /// # Errors
    /// When the system has no transactions.
    fn contenders(&self) -> Result<OpenContender> {
        bail!("it has no transactions")
    }

    /// Opens a connection for commands that only Redis has.
    ///
    /// # Errors
    /// When the server is not Redis, or a connection cannot be opened.
    fn redis(&self) -> Result<RedisConnection> {
        bail!("it is not Redis")
    }

    /// Kills the server with SIGKILL, restarts it on its data, and waits until it answers. Returns
    /// the time since the new start.
    ///
    /// # Errors
    /// When the server cannot be started again, or does not answer in time after the start.
    fn restart(&mut self) -> Result<Duration>;
}

/// Redis, from `redis-server` in `PATH`.
#[derive(Clone, Copy, Debug)]
pub struct Redis {
    /// Whether clients use a unix socket instead of TCP.
    pub unix: bool,
}

/// Redis with replicas, all in memory. A write completes when all replicas have it (`WAIT`).
#[derive(Clone, Copy, Debug)]
pub struct RedisReplicas {
    /// Number of replicas: 1 or 3.
    pub replicas: u8,
}

/// Our own server, as Redis clients use it.
#[derive(Clone, Debug)]
pub struct SpratForRedis {
    /// The `sprat` binary.
    pub program: PathBuf,
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

impl System for SpratForRedis {
    fn name(&self) -> &str {
        "sprat --redis"
    }

    fn offers(&self, durability: Durability) -> bool {
        durability != Durability::Buffered
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Server>> {
        let folder = own_folder(&setup.data, "sprat-redis")?;
        let (addr, coordinator) = (free_loopback_addr()?, free_loopback_addr()?);
        let coordinator = format!("tcp:host=127.0.0.1,port={}", coordinator.port());
        let mut arguments = Arguments::default();
        arguments.0.extend(["server", "--with-coordinator", "--insecure"].map(OsString::from));
        arguments.pair("-C", coordinator).pair("-L", "fast+udp:host=127.0.0.1,port=0");
        arguments.pair("--redis", addr.to_string()).pair("--metrics", "none");
        arguments.pair("--memory", setup.memory_bytes.to_string());
        arguments.pair("--data", folder.path().join("data"));
        let durability = if setup.durability == Durability::Sync { "sync" } else { "none" };
        arguments.pair("--durability", durability);
        let program = self.program.to_str().context("a path of the program in UTF-8")?;
        let endpoint = Endpoint::Tcp(addr);
        let ready = Ready { question: b"PING\r\n", answer: b"+PONG" };
        let peer = Peer::Redis(endpoint.clone());
        LocalServer::start(program, arguments.0, setup.core, folder, peer, endpoint, ready)
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

/// A running Redis primary with its replicas.
struct RedisGroup {
    // Dropped before the folder, so that the process is killed before the folder is removed.
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
            arguments.pair("-u", "root"); // without this, memcached does not run as root
        }
        let ready = Ready { question: b"mn\r\n", answer: b"MN" };
        let peer = Peer::Memcached(endpoint.clone());
        LocalServer::start("memcached", arguments.0, setup.core, folder, peer, endpoint, ready)
    }
}

/// Makes a temporary folder for a server in `data`.
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

/// The question by which readiness is checked, and the beginning of the expected answer.
#[derive(Clone, Copy, Debug)]
struct Ready {
    question: &'static [u8],
    answer: &'static [u8],
}

/// A Redis or memcached server that runs on this machine: its process and folder, and what is
/// needed to restart it.
struct LocalServer {
    // Dropped before the folder, so that the process is killed before the folder is removed.
    process: Process,
    program: String,
    arguments: Vec<OsString>,
    core: Option<usize>,
    folder: TempDir,
    peer: Peer,
    endpoint: Endpoint,
    ready: Ready,
}

impl LocalServer {
    fn start(
        program: &str,
        arguments: Vec<OsString>,
        core: Option<usize>,
        folder: TempDir,
        peer: Peer,
        endpoint: Endpoint,
        ready: Ready,
    ) -> Result<Box<dyn Server>> {
        let process = Process::spawn(program, &arguments, core, &folder.path().join("log"))?;
        let program = program.to_owned();
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

    fn contenders(&self) -> Result<OpenContender> {
        let Peer::Redis(endpoint) = self.peer.clone() else { bail!("it has no transactions") };
        Ok(Box::new(move || Ok(Box::new(RedisContender(RedisConnection::connect(&endpoint)?)))))
    }

    fn redis(&self) -> Result<RedisConnection> {
        match &self.peer {
            Peer::Redis(endpoint) => RedisConnection::connect(endpoint),
            Peer::Memcached(_) => bail!("it is not Redis"),
        }
    }

    fn restart(&mut self) -> Result<Duration> {
        self.process.kill();
        self.process = Process::spawn(
            &self.program,
            &self.arguments,
            self.core,
            &self.folder.path().join("log"),
        )?;
        self.wait_ready()
    }
}
