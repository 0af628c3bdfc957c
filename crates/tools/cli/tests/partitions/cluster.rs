//! A cluster in which each process has its own machine.

use crate::partitions::network::{NamespaceHandle, Network, address};
use crate::partitions::support::{BEFORE_OTHERS, ServerProcess, run, sprat};
use sprat_client::{Client, Identity, Options, Table};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Number of servers, and number of replicas of each log.
pub(crate) const SERVERS: usize = 4;
const COPIES: &str = "2";

/// Number of tables. Each table has a tablet for every server.
const TABLES: usize = 4;

/// Timeout of clients: longer than any fault in these tests.
const PATIENCE: Duration = Duration::from_secs(25);

/// Timeout of requests for a server's counters.
const SOON: Duration = Duration::from_millis(500);

/// Numbers of the machines.
pub(crate) const COORDINATOR: usize = 1;
const CLIENTS: usize = 2;
const FIRST_SERVER: usize = 3;

/// Returns the machine of a server.
pub(crate) fn machine(server: usize) -> usize {
    FIRST_SERVER + server
}

/// Returns the beginning of a command that runs the rest on a machine, [before
/// others](BEFORE_OTHERS).
fn on(network: &Network, machine: usize) -> [String; 7] {
    let namespace = network.namespace(machine);
    let [nice, flag, priority] = BEFORE_OTHERS;
    ["ip", "netns", "exec", &namespace, nice, flag, priority].map(str::to_owned)
}

/// A process. Dropping this value kills the process.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

/// A running cluster.
pub(crate) struct Cluster {
    // Declared first, so that processes end before their network and their files are removed.
    pub(crate) servers: Vec<ServerProcess>,
    _coordinator: KilledOnDrop,
    pub(crate) clients: Clients,
    pub(crate) network: Network,
    dir: tempfile::TempDir,
}

impl Cluster {
    /// Starts a cluster. If this machine cannot run one, returns `None` and prints why.
    pub(crate) fn start(test: &str) -> Option<Self> {
        let servers = (0..SERVERS).map(|server| format!("s{server}"));
        let machines: Vec<_> =
            ["coordinator".to_owned(), "clients".to_owned()].into_iter().chain(servers).collect();
        let network = Network::make(test, &machines)?;
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
        run(&["key", "init", "--root", &path("root")]).ok();
        for role in ["server", "admin"] {
            run(&["key", "issue", "--root", &path("root"), "--role", role, "-o", &path(role)]).ok();
        }
        let admin = Arc::new(Identity::load(&PathBuf::from(path("admin"))).expect("just made"));
        let own = sprat();
        let [program, within @ ..] = on(&network, COORDINATOR);
        let mut command = Command::new(program);
        command.args(within).arg(own.get_program());
        command.args([
            "coordinator",
            "-C",
            &coordinator(),
            "--data",
            &path("metadata"),
            "--identity",
            &path("server"),
        ]);
        command.env_remove("SPRAT_COORDINATOR").env_remove("SPRAT_IDENTITY").stdin(Stdio::null());
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("ip runs");
        let clients = Clients { handle: network.handle(CLIENTS), admin };
        let mut cluster = Self {
            servers: Vec::new(),
            _coordinator: KilledOnDrop(process),
            clients,
            network,
            dir,
        };
        for server in 0..SERVERS {
            let started = cluster.start_server(server);
            cluster.servers.push(started);
        }
        Some(cluster)
    }

    fn start_server(&self, server: usize) -> ServerProcess {
        let path = |name: &str| self.dir.path().join(name).to_str().expect("text").to_owned();
        let within = on(&self.network, machine(server));
        let within: Vec<&str> = within.iter().map(String::as_str).collect();
        let (at, listen, identity) = (coordinator(), locator(server), path("server"));
        let flags = [
            "-C", &at, "-L", &listen, "-r", COPIES, "--memory", "64M", "--disk", "1G", "--idle",
            "sleep",
        ];
        let flags = [&flags[..], &["--durability", "buffered", "--identity", &identity]].concat();
        let data = self.dir.path().join(server.to_string());
        ServerProcess::start_within(&within, &data, &flags)
            .unwrap_or_else(|error| panic!("{error}"))
    }
}

/// The clients. They have their own machine.
pub(crate) struct Clients {
    handle: NamespaceHandle,
    admin: Arc<Identity>,
}

impl Clients {
    /// Runs `work` on the clients' machine.
    pub(crate) fn on<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.handle.within(work)
    }

    /// Makes a client and the missing tables. Call it on the clients' machine.
    pub(crate) fn client(&self) -> (Client, Vec<Table>) {
        let mut client = self.connect(PATIENCE);
        let names = (0..TABLES).map(|table| format!("table {table}"));
        let tables =
            names.map(|name| client.create_table(&name).expect("a server is there")).collect();
        (client, tables)
    }

    fn connect(&self, timeout: Duration) -> Client {
        let identity = Some(Arc::clone(&self.admin));
        let options =
            Options { coordinator: coordinator(), timeout, identity, ..Options::default() };
        Client::connect(&options).expect("locators")
    }

    /// Returns a server's counter of this name, or zero if the server has no such counter. Returns
    /// `None` if the server does not answer soon.
    pub(crate) fn counter(&self, server: usize, name: &str) -> Option<u64> {
        self.on(|| {
            let counters = self.connect(SOON).server_stats(&locator(server)).ok()?;
            Some(
                counters
                    .iter()
                    .find(|counter| counter.name == name)
                    .map_or(0, |counter| counter.value),
            )
        })
    }

    /// Returns the number of a server's tablets, according to the coordinator.
    pub(crate) fn tablets(&self, server: usize) -> usize {
        self.on(|| {
            let tables = self.connect(PATIENCE).list_tables().expect("the coordinator is there");
            let tablets = tables.iter().flat_map(|table| &table.tablets);
            tablets.filter(|tablet| tablet.locator == locator(server)).count()
        })
    }
}

fn coordinator() -> String {
    format!("tcp:host={},port=11100", address(COORDINATOR))
}

fn locator(server: usize) -> String {
    format!("fast+udp:host={},port=11101", address(machine(server)))
}
