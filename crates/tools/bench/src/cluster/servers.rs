//! A cluster of processes on this machine: a coordinator, and servers that keep replicas for each
//! other.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sprat_client::{Client, Mode, Options};
use tempfile::TempDir;

use crate::ours::{Sockets, TABLE, connect};
use crate::peers::Process;
use crate::peers::process::free_loopback_addr;
use crate::system::{Durability, READY_LIMIT, Server, Setup, System, own_folder};
use sprat_measure::target::LoadTarget;
use sprat_measure::usage;

/// Timeout of an operation, long enough for a server's death and the recovery from it.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The configuration of a cluster to start.
#[derive(Clone, Debug)]
pub(super) struct Replicated {
    pub(super) program: PathBuf,
    /// Number of servers.
    pub(super) servers: usize,
    /// Replicas of each log.
    pub(super) copies: usize,
    name: String,
}

impl Replicated {
    /// Configures a cluster with one server more than the replicas need.
    pub(super) fn new(program: PathBuf, copies: usize) -> Self {
        Self { program, servers: copies + 2, copies, name: format!("sprat -r {copies}") }
    }

    /// Starts the cluster, and waits until the coordinator knows all servers.
    pub(super) fn launch(&self, setup: &Setup) -> Result<Cluster> {
        let folder = own_folder(&setup.data, "cluster")?;
        let locator = |transport: &str| -> Result<String> {
            let address = free_loopback_addr()?;
            Ok(format!("{transport}:host={},port={}", address.ip(), address.port()))
        };
        let coordinator = locator("tcp")?;
        let listens: Vec<String> =
            (0..self.servers).map(|_| locator("fast+udp")).collect::<Result<_>>()?;
        let program = self.program.to_str().context("a path of the program in UTF-8")?;
        let data = folder.path().join("coordinator");
        let data = data.to_str().context("a folder in UTF-8")?;
        let arguments = ["coordinator", "-C", &coordinator, "--data", data];
        let process =
            Process::spawn(program, arguments, None, &folder.path().join("coordinator.log"))?;
        let mut cluster = Cluster {
            servers: listens.iter().map(|_| None).collect(),
            _process: process,
            config: self.clone(),
            setup: setup.clone(),
            folder,
            coordinator,
            listens,
        };
        (0..self.servers).try_for_each(|server| cluster.start(server))?;
        Ok(cluster)
    }
}

impl System for Replicated {
    fn name(&self) -> &str {
        &self.name
    }

    fn offers(&self, durability: Durability) -> bool {
        durability != Durability::Memory
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Server>> {
        Ok(Box::new(self.launch(setup)?))
    }
}

/// A running cluster. Its processes are killed when this value is dropped.
pub(super) struct Cluster {
    // Dropped before the folder, so that the servers are killed before the folder is removed.
    servers: Vec<Option<Process>>,
    _process: Process,
    config: Replicated,
    setup: Setup,
    folder: TempDir,
    coordinator: String,
    listens: Vec<String>,
}

impl Cluster {
    /// Starts a server that is not running, and waits until the coordinator knows it.
    pub(super) fn start(&mut self, server: usize) -> Result<()> {
        let durability = match self.setup.durability {
            Durability::Memory => bail!("replicas are on disk in the end"),
            Durability::Buffered => "buffered",
            Durability::Sync => "sync",
        };
        let program = self.config.program.to_str().context("a path of the program in UTF-8")?;
        let data = self.folder.path().join(format!("server-{server}"));
        let (memory, copies) =
            (self.setup.memory_bytes.to_string(), self.config.copies.to_string());
        let disk = (self.setup.memory_bytes * 2).to_string();
        let data = data.to_str().context("a folder in UTF-8")?;
        let flags = [
            "server",
            "-C",
            &self.coordinator,
            "-L",
            &self.listens[server],
            "--data",
            data,
            "-r",
            &copies,
        ];
        let more = ["--memory", &memory, "--disk", &disk, "--durability", durability];
        let more = more.into_iter().chain(["--idle", "sleep", "--metrics", "none"]);
        let log = self.folder.path().join(format!("server-{server}.log"));
        let process = Process::spawn(program, flags.into_iter().chain(more), None, &log)?;
        let process = self.servers[server].insert(process);
        // Until a dead server's tables are recovered, the coordinator still lists it at its
        // locator. Only the counters of the new process show that the new process is ready.
        let (options, listen) =
            (options(&self.coordinator, Duration::from_secs(1)), &self.listens[server]);
        process.wait_ready(READY_LIMIT, || {
            let counters = || Client::connect(&options)?.server_stats(listen);
            counters().is_ok_and(|counters| {
                counters
                    .iter()
                    .any(|counter| counter.name == "assignments_version" && counter.value > 0)
            })
        })?;
        Ok(())
    }

    /// Kills a server with SIGKILL.
    pub(super) fn kill(&mut self, server: usize) {
        if let Some(mut process) = self.servers[server].take() {
            process.kill();
        }
    }

    /// Restarts servers that have ended by themselves, because they stalled and were declared dead.
    /// Returns the number of these servers.
    pub(super) fn revive(&mut self) -> Result<usize> {
        let ended =
            |process: &mut Option<Process>| process.as_mut().is_some_and(Process::has_ended);
        let ended: Vec<usize> =
            (0..self.servers.len()).filter(|&server| ended(&mut self.servers[server])).collect();
        ended.iter().try_for_each(|&server| self.start(server))?;
        Ok(ended.len())
    }

    /// Returns the options for clients of the cluster.
    pub(super) fn client_options(&self) -> Options {
        options(&self.coordinator, PATIENCE)
    }

    /// Connects a client to the cluster.
    pub(super) fn client(&self) -> Result<Client> {
        Ok(Client::connect(&self.client_options())?)
    }

    /// Returns the locators of the servers.
    pub(super) fn locators(&self) -> &[String] {
        &self.listens
    }

    /// Returns the indices of the servers that have a table's tablets.
    pub(super) fn servers_of(&self, table: &str) -> Result<Vec<usize>> {
        self.servers_seen_by(&mut self.client()?, table)
    }

    /// Returns the indices of the servers that have a table's tablets, as `client` finds them.
    /// [`servers_of`](Self::servers_of) does this with a new connection.
    pub(super) fn servers_seen_by(&self, client: &mut Client, table: &str) -> Result<Vec<usize>> {
        let tables = client.list_tables()?;
        let record =
            tables.into_iter().find(|record| record.name == table).context("a table just made")?;
        let index = |locator| self.listens.iter().position(|listen| *listen == locator);
        let indices = record
            .locators()
            .into_iter()
            .map(|locator| index(locator).context("a server of this cluster"));
        indices.collect()
    }

    /// Returns the CPU seconds that a server has used.
    pub(super) fn cpu_seconds(&self, server: usize) -> Result<f64> {
        let process = self.servers[server].as_ref().context("a server that runs")?;
        Ok(usage::cpu_time(process.pid())?.as_secs_f64())
    }

    /// Returns a counter of a server, or zero if the server has no counter of that name.
    pub(super) fn counter(&self, server: usize, name: &str) -> Result<u64> {
        let counters = self.client()?.server_stats(&self.listens[server])?;
        Ok(counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value))
    }
}

impl Server for Cluster {
    fn pid(&self) -> u32 {
        self.servers[0].as_ref().map_or(0, Process::pid)
    }

    fn connect(&self, connections: usize) -> Result<Box<dyn LoadTarget>> {
        self.client()?.create_table(TABLE)?;
        Ok(Box::new(connect(&self.client_options(), connections, Sockets::Each, Mode::Sleep)?))
    }

    fn restart(&mut self) -> Result<Duration> {
        bail!("the servers of a cluster are killed one by one")
    }
}

fn options(coordinator: &str, timeout: Duration) -> Options {
    Options {
        coordinator: coordinator.to_owned(),
        timeout,
        waiting: Mode::Sleep,
        ..Options::default()
    }
}
