//! Sprat itself as a system to measure: its binary is started, killed and restarted like a peer's.

mod connection;
mod contender;
mod sealed;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use sprat_client::{Client, Error, Identity, Mode, Options, Table};
use sprat_net::PerfEvent;
use tempfile::TempDir;

use self::contender::SpratContender;

use crate::cables::Cable;
use crate::peers::Process;
use crate::peers::process::free_loopback_addr;
use crate::scenarios::OpenContender;
use crate::system::{Durability, READY_LIMIT, Server, Setup, System, own_folder};
use sprat_measure::target::LoadTarget;

pub(crate) use connection::PING_BYTES;
pub use connection::{Connection, connect};
pub(crate) use sealed::Members;

/// The table that loads use.
pub const TABLE: &str = "sprat-bench";

/// Timeout of a readiness check of a starting server. It is short, since restart times include it.
const CHECK_TIMEOUT: Duration = Duration::from_millis(20);

/// Timeout for making the table, which includes a sync.
const PATIENCE: Duration = Duration::from_secs(5);

/// The transport between server and clients, and what drives its ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Transport {
    /// Sprat's own protocol over kernel UDP: `fast+udp`.
    Udp,
    /// Kernel TCP.
    Tcp,
    /// `fast+dpdk` over memory that both processes share, with `net_memif`.
    Memif,
    /// `fast+dpdk` over shared memory with para-virtual devices: `net_vhost` and `net_virtio_user`.
    Virtio,
    /// `fast+dpdk` over a virtual cable, whose ends are driven by the kernel's packet sockets:
    /// `net_af_packet`.
    Packet(Cable),
    /// `fast+dpdk` over a virtual cable, whose ends are driven by XDP sockets: `net_af_xdp`.
    Xdp(Cable),
}

impl Transport {
    /// Returns the transport's name in locators and tables.
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

    /// Returns whether the transport is `fast+dpdk`, over any device.
    #[must_use]
    pub fn bypasses(self) -> bool {
        !matches!(self, Self::Udp | Self::Tcp)
    }

    /// Returns the locator of the server's end, and that of the client's end if clients need one.
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

/// How N connections use sockets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sockets {
    /// N clients, each with its own socket and session, like N processes.
    Each,
    /// One client that multiplexes N users over one socket, like one node with many threads.
    One,
}

/// The configuration of Sprat's server and clients. Builder methods change it; [`launch`] starts
/// the server.
///
/// [`launch`]: Self::launch
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
    /// Configures the binary `program` as a server on `transport`; `server` is how it waits. Every
    /// client has its own socket, except over transports that bypass the kernel.
    #[must_use]
    pub fn new(program: PathBuf, transport: Transport, server: Mode) -> Self {
        let name = format!("sprat {}", transport.word());
        // A kernel-bypass device belongs to one host, which all clients share.
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

    /// Sets the sockets of clients.
    #[must_use]
    pub fn over(self, sockets: Sockets) -> Self {
        let name = match sockets {
            Sockets::Each => self.name.clone(),
            Sockets::One => format!("{}, one socket", self.name),
        };
        Self { name, sockets, ..self }
    }

    /// Sets how clients wait if the load lets them sleep.
    #[must_use]
    pub fn with_client(self, client: Mode) -> Self {
        Self { client, ..self }
    }

    /// Makes the server time requests and report the times as counters.
    #[must_use]
    pub fn timed(self) -> Self {
        Self { timed: true, ..self }
    }

    /// Makes the server count `event` in requests and report the counts as counters.
    #[must_use]
    pub fn counted(self, event: PerfEvent) -> Self {
        Self { counted: Some(event), ..self }
    }

    /// Makes server and clients encrypt (seal), with the identities of `members`.
    #[must_use]
    pub(crate) fn sealed(self, members: Members) -> Self {
        Self { members: Some(members), ..self }
    }

    /// Sets the name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// Starts a server.
    ///
    /// # Errors
    /// When the server's folder or address cannot be made, or the server cannot be started or does
    /// not become ready in time; the error then contains its last output.
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
    // Dropped before the folder, so that the process is killed before the folder is removed.
    process: Option<Process>,
    settings: Sprat,
    arguments: Vec<OsString>,
    core: Option<usize>,
    folder: TempDir,
    coordinator: String,
    /// Locator of the clients' end, if clients need one.
    local: Option<String>,
}

impl SpratServer {
    /// Returns the locator of its coordinator.
    #[must_use]
    pub fn coordinator(&self) -> &str {
        &self.coordinator
    }

    /// Returns a command of this program for the server.
    #[must_use]
    pub fn command<const COUNT: usize>(&self, words: [&str; COUNT]) -> Command {
        let mut command = Command::new(&self.settings.program);
        command.args(words).args(["-C", &self.coordinator]);
        command
    }

    /// Returns the options for clients of the server.
    #[must_use]
    pub fn client_options(&self) -> Options {
        Options { local: self.local.clone(), ..self.options(PATIENCE) }
    }

    /// Queries the server's counters. Unparks the server.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn counters(&self) -> Result<Vec<sprat_client::Counter>> {
        self.set_parked(false);
        let mut client = Client::connect(&self.options(PATIENCE))?;
        let servers = client.list_servers()?;
        let server = servers.first().context("a server that has enlisted")?;
        Ok(client.server_stats(&server.locator)?)
    }

    /// Queries one of the server's counters. Unparks the server.
    ///
    /// # Errors
    /// When the server does not answer, or has no counter of this name.
    pub(crate) fn counter(&self, name: &str) -> Result<u64> {
        let counters = self.counters()?;
        let found = counters.iter().find(|counter| counter.name == name);
        found.map(|counter| counter.value).with_context(|| format!("no counter `{name}`"))
    }

    fn run(&mut self) -> Result<Duration> {
        let program = self.settings.program.to_str().context("a path of the program in UTF-8")?;
        let process =
            Process::spawn(program, &self.arguments, self.core, &self.folder.path().join("log"))?;
        // A kernel-bypass client opens the device, which takes too long for a repeated check.
        let ready: fn(&dyn Fn(Duration) -> Options) -> bool =
            if self.local.is_none() { is_ready } else { has_enlisted };
        let options = |timeout| options(&self.coordinator, self.settings.identity(), timeout);
        self.process.insert(process).wait_ready(READY_LIMIT, || ready(&options))
    }

    /// Stops the server's process while other systems are measured, or lets it continue. A server
    /// that spins would take a core from them.
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
        // Only the measured server may spin; a server that spins is stopped while others are
        // measured.
        Ok(Box::new(if server == Mode::Spin { target.parking(self.pid()) } else { target }))
    }

    fn contenders(&self) -> Result<OpenContender> {
        self.set_parked(false);
        let options = self.client_options();
        Ok(Box::new(move || Ok(Box::new(SpratContender::connect(&options)?))))
    }

    fn restart(&mut self) -> Result<Duration> {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
        self.run()
    }
}

/// Drops the table that loads use.
///
/// # Errors
/// When the cluster does not answer, or refuses to drop the table.
pub fn drop_table(options: &Options) -> Result<()> {
    Ok(Client::connect(options)?.drop_table(TABLE)?)
}

/// Stops or continues a process.
fn set_stopped(pid: u32, stopped: bool) {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    // Fails if the process has died. The next operation then reports this.
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

/// Returns whether the coordinator has the table and the table's server answers. Makes the table if
/// it is missing.
fn is_ready(options: &dyn Fn(Duration) -> Options) -> bool {
    let check = || -> Result<(), Error> {
        let mut quick = Client::connect(&options(CHECK_TIMEOUT))?;
        let table: Table = match quick.table(TABLE) {
            Err(Error::NoSuchTable(_)) => Client::connect(&options(PATIENCE))?.create_table(TABLE),
            found => found,
        }?;
        // The first client does not know a table that another client has just made.
        let mut quick = Client::connect(&options(CHECK_TIMEOUT))?;
        quick.table(TABLE)?;
        quick.get(table, b"ready?").map(drop)
    };
    check().is_ok()
}

/// Returns whether the server has enlisted with its coordinator. The server opens its device right
/// after that, and clients wait for the device.
fn has_enlisted(options: &dyn Fn(Duration) -> Options) -> bool {
    let servers = || Client::connect(&options(CHECK_TIMEOUT))?.list_servers();
    servers().is_ok_and(|servers| !servers.is_empty())
}
