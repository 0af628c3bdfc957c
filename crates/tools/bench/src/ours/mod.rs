//! Sprat itself as a system: its own binary, started, killed and started again like any peer.

mod connection;
mod sealed;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use sprat_client::{Client, Error, Identity, Mode, Options, Table};
use sprat_net::PerfEvent;
use tempfile::TempDir;

use crate::cables::Cable;
use crate::peers::Process;
use crate::peers::process::free_loopback_addr;
use crate::system::{Durability, READY_LIMIT, Server, Setup, System, own_folder};
use sprat_measure::target::LoadTarget;

pub(crate) use connection::PING_BYTES;
pub use connection::{Connection, connect};
pub(crate) use sealed::Members;

/// The table that loads use.
pub const TABLE: &str = "sprat-bench";

/// How long one look at a starting server may take: short, for it counts in restart times.
const LOOK: Duration = Duration::from_millis(20);

/// How long making the table may take: it is synced.
const PATIENCE: Duration = Duration::from_secs(5);

/// The server's transport.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Transport {
    /// Kernel UDP under Sprat's own protocol: `fast+udp`.
    Udp,
    /// Kernel TCP.
    Tcp,
    /// Past the kernel, over memory that both processes share: `fast+dpdk` with `net_memif`.
    Memif,
    /// The same, as para-virtual devices do it: `net_vhost` and `net_virtio_user`.
    Virtio,
    /// `fast+dpdk` over a virtual cable, its ends driven by packet sockets of the kernel:
    /// `net_af_packet`.
    Packet(Cable),
    /// The same, driven by XDP sockets: `net_af_xdp`.
    Xdp(Cable),
}

impl Transport {
    /// Its name in locators.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Udp => "fast+udp",
            Self::Tcp => "tcp",
            Self::Memif => "fast+dpdk memif",
            Self::Virtio => "fast+dpdk virtio",
            Self::Packet(_) => "fast+dpdk af_packet",
            Self::Xdp(_) => "fast+dpdk af_xdp",
        }
    }

    /// Whether it is `fast+dpdk`, over whatever device.
    #[must_use]
    pub fn bypasses(self) -> bool {
        !matches!(self, Self::Udp | Self::Tcp)
    }

    /// Locators of the server's end and, where it has to be told, of the client's.
    fn ends(self, folder: &Path) -> Result<(String, Option<String>)> {
        let socket = folder.join("device.sock");
        let socket = socket.display();
        let (server, client) = match self {
            Self::Udp | Self::Tcp => {
                let address = free_loopback_addr()?;
                return Ok((
                    format!("{}:host={},port={}", self.word(), address.ip(), address.port()),
                    None,
                ));
            }
            Self::Memif => {
                let device = |role| {
                    format!("net_memif_{role},role={role},socket={socket},socket-abstract=no")
                };
                (device("server"), device("client"))
            }
            Self::Virtio => (
                format!("net_vhost_bench,iface={socket}"),
                format!("net_virtio_user_bench,path={socket}"),
            ),
            Self::Packet(cable) => {
                let device = |interface| format!("net_af_packet_bench,iface={interface}");
                (device(cable.server()), device(cable.client()))
            }
            Self::Xdp(cable) => {
                let device = |interface| format!("net_af_xdp_bench,iface={interface}");
                (device(cable.server()), device(cable.client()))
            }
        };
        let end = |host, port, device| format!("fast+dpdk:host={host},port={port},dev={device}");
        Ok((end("10.9.0.1", 7, server), Some(end("10.9.0.2", 0, client))))
    }
}

/// What N connections are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sockets {
    /// N clients, each with a socket and session of its own, as N processes have.
    Each,
    /// One client that multiplexes N users over one socket, as one node with many threads of work
    /// has.
    One,
}

/// Sprat's server and client.
#[derive(Clone, Debug)]
pub struct Sprat {
    name: String,
    program: PathBuf,
    transport: Transport,
    server: Mode,
    client: Mode,
    sockets: Sockets,
    timed: bool,
    counted: Option<PerfEvent>,
    members: Option<Members>,
}

impl Sprat {
    /// The binary `program` as a server on `transport` that waits as `server` says; every client
    /// has its own socket.
    #[must_use]
    pub fn new(program: PathBuf, transport: Transport, server: Mode) -> Self {
        let name = format!("sprat {}", transport.word());
        // A host that bypasses the kernel is one for all its clients.
        let sockets = if transport.bypasses() { Sockets::One } else { Sockets::Each };
        Self {
            name,
            program,
            transport,
            server,
            client: Mode::Sleep,
            sockets,
            timed: false,
            counted: None,
            members: None,
        }
    }

    /// The same, with clients over `sockets`.
    #[must_use]
    pub fn over(self, sockets: Sockets) -> Self {
        let name = match sockets {
            Sockets::Each => self.name.clone(),
            Sockets::One => format!("{}, one socket", self.name),
        };
        Self { name, sockets, ..self }
    }

    /// The same, with clients that wait as `client` says where the load would have them sleep.
    #[must_use]
    pub fn with_client(self, client: Mode) -> Self {
        Self { client, ..self }
    }

    /// The same; its server times requests, and tells.
    #[must_use]
    pub fn timed(self) -> Self {
        Self { timed: true, ..self }
    }

    /// The same; its server counts `event` in requests, and tells.
    #[must_use]
    pub fn counted(self, event: PerfEvent) -> Self {
        Self { counted: Some(event), ..self }
    }

    /// The same; server and clients are `members` of a cluster, and seal what they say.
    #[must_use]
    pub(crate) fn sealed(self, members: Members) -> Self {
        Self { members: Some(members), ..self }
    }

    /// The same under another name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// Starts one.
    ///
    /// # Errors
    /// When it does not answer, with what it said last.
    pub fn launch(&self, setup: &Setup) -> Result<SpratServer> {
        let folder = own_folder(&setup.data, "sprat")?;
        let coordinator = free_loopback_addr()?;
        let (listen, local) = self.transport.ends(folder.path())?;
        let locator = format!("tcp:host={},port={}", coordinator.ip(), coordinator.port());
        let mut server = SpratServer {
            process: None,
            arguments: self.arguments(setup, &locator, &listen, &folder),
            local,
            settings: self.clone(),
            core: setup.core,
            folder,
            coordinator: locator,
        };
        server.run()?;
        Ok(server)
    }

    fn identity(&self) -> Option<Arc<Identity>> {
        self.members.as_ref().map(|members| Arc::clone(&members.client))
    }

    fn arguments(
        &self,
        setup: &Setup,
        coordinator: &str,
        listen: &str,
        folder: &TempDir,
    ) -> Vec<OsString> {
        let durability = match setup.durability {
            Durability::Memory => "none",
            Durability::Buffered => "buffered",
            Durability::Sync => "sync",
        };
        let mut arguments: Vec<OsString> = vec!["server".into(), "--with-coordinator".into()];
        match &self.members {
            Some(members) => arguments.extend(["--identity".into(), members.server.clone().into()]),
            None => arguments.push("--insecure".into()),
        }
        let mut pair = |name: &str, value: OsString| arguments.extend([name.into(), value]);
        pair("-C", coordinator.into());
        pair("-L", listen.into());
        pair("--memory", setup.memory_bytes.to_string().into());
        pair("--data", folder.path().join("data").into());
        pair("--durability", durability.into());
        pair("--idle", word(self.server).into());
        pair("--metrics", "none".into());
        if self.timed {
            arguments.push("--timed".into());
        }
        if let Some(event) = self.counted {
            arguments.extend(["--counted".into(), event.word().into()]);
        }
        arguments
    }
}

fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Spin => "spin",
        Mode::Sleep => "sleep",
        Mode::Adaptive => "adaptive",
    }
}

impl System for Sprat {
    fn name(&self) -> &str {
        &self.name
    }

    fn offers(&self, _durability: Durability) -> bool {
        true
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Server>> {
        Ok(Box::new(self.launch(setup)?))
    }
}

/// A running server of ours.
pub struct SpratServer {
    // Killed before its folder goes.
    process: Option<Process>,
    settings: Sprat,
    arguments: Vec<OsString>,
    core: Option<usize>,
    folder: TempDir,
    coordinator: String,
    /// Of its clients' end, where that has to be told.
    local: Option<String>,
}

impl SpratServer {
    /// Locator of its coordinator.
    #[must_use]
    pub fn coordinator(&self) -> &str {
        &self.coordinator
    }

    /// How a client reaches it.
    #[must_use]
    pub fn client_options(&self) -> Options {
        Options { local: self.local.clone(), ..self.options(PATIENCE) }
    }

    /// What the server tells of itself, by counter.
    ///
    /// # Errors
    /// When it does not answer.
    ///
    /// One that was stopped for others to be measured goes on from here.
    pub fn counters(&self) -> Result<Vec<sprat_client::Counter>> {
        self.set_parked(false);
        let mut client = Client::connect(&self.options(PATIENCE))?;
        let servers = client.list_servers()?;
        let server = servers.first().context("a server that has enlisted")?;
        Ok(client.server_stats(&server.locator)?)
    }

    fn run(&mut self) -> Result<Duration> {
        let program = self.settings.program.to_str().context("a path of the program in UTF-8")?;
        let process =
            Process::spawn(program, &self.arguments, self.core, &self.folder.path().join("log"))?;
        // A client past the kernel opens the device: not for each look.
        let ready: fn(&dyn Fn(Duration) -> Options) -> bool =
            if self.local.is_none() { is_ready } else { has_enlisted };
        let options = |timeout| options(&self.coordinator, self.settings.identity(), timeout);
        self.process.insert(process).wait_ready(READY_LIMIT, || ready(&options))
    }

    /// Stops it while others are measured, for one that spins would take a core from them; or has
    /// it go on.
    pub(crate) fn set_parked(&self, parked: bool) {
        set_stopped(self.pid(), parked);
    }

    fn options(&self, timeout: Duration) -> Options {
        options(&self.coordinator, self.settings.identity(), timeout)
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("running since its launch")
    }
}

impl Server for SpratServer {
    fn pid(&self) -> u32 {
        self.process().pid()
    }

    fn connect(&self, connections: usize) -> Result<Box<dyn LoadTarget>> {
        self.set_parked(false);
        let Sprat { sockets, client, server, .. } = self.settings;
        let target = connect(&self.client_options(), connections, sockets, client)?;
        // Of those that spin, only the one that is measured may.
        Ok(Box::new(if server == Mode::Spin { target.parking(self.pid()) } else { target }))
    }

    fn restart(&mut self) -> Result<Duration> {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
        self.run()
    }
}

/// Drops the table that loads use, and all that is in it.
///
/// # Errors
/// When the cluster does not answer.
pub fn forget(options: &Options) -> Result<()> {
    Ok(Client::connect(options)?.drop_table(TABLE)?)
}

/// Stops a process, or lets it go on.
fn set_stopped(pid: u32, stopped: bool) {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    // One that has died shows so when it is next asked something.
    let _ = kill_process(pid, if stopped { Signal::STOP } else { Signal::CONT });
}

fn options(coordinator: &str, identity: Option<Arc<Identity>>, timeout: Duration) -> Options {
    Options {
        coordinator: coordinator.to_owned(),
        timeout,
        waiting: Mode::Sleep,
        identity,
        ..Options::default()
    }
}

/// Whether the coordinator has the table and its server answers for it; makes the table if it is
/// missing.
fn is_ready(options: &dyn Fn(Duration) -> Options) -> bool {
    let look = || -> Result<(), Error> {
        let mut quick = Client::connect(&options(LOOK))?;
        let table: Table = match quick.table(TABLE) {
            Err(Error::NoSuchTable(_)) => Client::connect(&options(PATIENCE))?.create_table(TABLE),
            found => found,
        }?;
        // A table just made is not known to this client.
        let mut quick = Client::connect(&options(LOOK))?;
        quick.table(TABLE)?;
        quick.get(table, b"ready?").map(drop)
    };
    look().is_ok()
}

/// Whether a server has enlisted. It opens its device right behind that, and clients wait for it.
fn has_enlisted(options: &dyn Fn(Duration) -> Options) -> bool {
    let look = || Client::connect(&options(LOOK))?.list_servers();
    look().is_ok_and(|servers| !servers.is_empty())
}
