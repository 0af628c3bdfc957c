//! Tests a cluster of real processes. Servers are killed while clients write, and no acknowledged
//! write is lost.

use crate::support;
use serde_json::json;
use sprat_chance::Chance;
use sprat_client::{
    Batch, Client, Condition, Error, Keys, Options, Table, TableOptions, TransactionAction,
    TransactionOperation,
};
use sprat_testing::until;
use sprat_wire::op::{Request, TableRecord};
use sprat_wire::tablet::position;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::{PATIENCE, ServerProcess, free_port, leased_sprat, sprat};

/// Number of servers, and number of replicas of each log.
const SERVERS: usize = 4;
const COPIES: &str = "2";

/// Number of kills when `SPRAT_KILLS` is not set.
const KILLS: u64 = 6;

const KEYS: u64 = 200;

/// One of this number of keys is incremented instead of written.
const ADDED: u64 = 4;

/// A coordinator in a separate process. Dropping this value kills the process.
struct Coordinator(Child);

impl Coordinator {
    fn start(locator: &str, data: &Path) -> Self {
        let mut command = leased_sprat();
        command.args(["coordinator", "-C", locator, "--data"]).arg(data);
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary runs"))
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

/// The values that a key may have: the last acknowledged value, and the values of later writes with
/// an unknown outcome.
#[derive(Default)]
struct Expected {
    acknowledged: Option<u64>,
    perhaps: Vec<u64>,
}

struct Cluster {
    dir: tempfile::TempDir,
    coordinator: String,
    durability: &'static str,
    _process: Coordinator,
    servers: Vec<Option<ServerProcess>>,
    ports: Vec<u16>,
}

impl Cluster {
    fn start(durability: &'static str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let coordinator = format!("tcp:host=127.0.0.1,port={}", free_port());
        let process = Coordinator::start(&coordinator, &dir.path().join("coordinator"));
        let ports = (0..SERVERS).map(|_| free_port()).collect();
        let servers = (0..SERVERS).map(|_| None).collect();
        let mut cluster = Self { dir, coordinator, durability, _process: process, servers, ports };
        (0..SERVERS).for_each(|server| cluster.start_server(server));
        cluster
    }

    fn start_server(&mut self, server: usize) {
        let data = self.dir.path().join(server.to_string());
        let listen = format!("fast+udp:host=127.0.0.1,port={}", self.ports[server]);
        let flags = [
            "-C",
            &self.coordinator,
            "-L",
            &listen,
            "-r",
            COPIES,
            "--memory",
            "64M",
            "--disk",
            "1G",
        ];
        let flags = [&flags[..], &["--durability", self.durability, "--idle", "sleep"]].concat();
        self.servers[server] =
            Some(ServerProcess::start(&data, &flags).unwrap_or_else(|error| panic!("{error}")));
    }

    fn client(&self) -> Client {
        client_of(&self.coordinator)
    }
}

/// Returns a client, and the first `tables` tables.
fn client_with_tables(coordinator: &str, tables: usize) -> (Client, Vec<Table>) {
    let mut client = client_of(coordinator);
    let tables = (0..tables)
        .map(|table| client.table(&format!("table {table}")).expect("it is there"))
        .collect();
    (client, tables)
}

fn client_of(coordinator: &str) -> Client {
    let options = Options {
        coordinator: coordinator.to_owned(),
        timeout: Duration::from_secs(8),
        ..Options::default()
    };
    Client::connect(&options).expect("the coordinator is there")
}

/// Writes or increments one key. Returns whether the change was acknowledged.
fn change(client: &mut Client, table: Table, key: u64, value: u64, known: &mut Expected) -> bool {
    let name = key.to_le_bytes();
    let before = known.acknowledged.unwrap_or(0);
    let (value, done) = if key.is_multiple_of(ADDED) {
        match client.increment_i64(table, &name, 1) {
            Ok((sum, _)) => {
                let sum = sum.cast_unsigned();
                let fits = sum == before + 1 || known.perhaps.contains(&(sum - 1));
                assert!(fits, "one was added to {before}, or {:?}, and it is {sum}", known.perhaps);
                (sum, Ok(()))
            }
            Err(error) => (known.perhaps.iter().copied().max().unwrap_or(before) + 1, Err(error)),
        }
    } else {
        (value, client.put(table, &name, &value.to_le_bytes()).map(drop))
    };
    let acknowledged = done.is_ok();
    match done {
        Ok(()) => *known = Expected { acknowledged: Some(value), perhaps: Vec::new() },
        Err(ref error) if error.is_indeterminate() => known.perhaps.push(value),
        Err(Error::Timeout { .. } | Error::Recovering { .. }) => {} // it was not executed
        Err(error) => panic!("{error}"),
    }
    acknowledged
}

/// Writes one key after another until the time `until`. Returns the number of acknowledged writes,
/// and the longest time without one.
fn write(
    client: &mut Client,
    tables: &[Table],
    known: &mut BTreeMap<u64, Expected>,
    random: &mut Chance,
    until: Instant,
) -> (u64, Duration) {
    let (mut done, mut last, mut longest) = (0, Instant::now(), Duration::ZERO);
    while Instant::now() < until {
        let (key, value) = (random.modulo(KEYS), random.draw());
        let table = tables[usize::try_from(key).expect("small") % tables.len()];
        if change(client, table, key, value, known.entry(key).or_default()) {
            done += 1;
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
    }
    (done, longest)
}

fn check(client: &mut Client, tables: &[Table], known: &BTreeMap<u64, Expected>) {
    for (key, known) in known {
        let table = tables[usize::try_from(*key).expect("small") % tables.len()];
        let begun = Instant::now();
        let found = loop {
            match client.get(table, &key.to_le_bytes()) {
                Ok(found) => break found,
                Err(Error::Timeout { .. } | Error::Recovering { .. })
                    if begun.elapsed() < PATIENCE => {}
                Err(error) => panic!("key {key}: {error}"),
            }
        };
        let found =
            found.map(|object| u64::from_le_bytes(object.value.try_into().expect("8 bytes")));
        let fits = found == known.acknowledged
            || found.is_some_and(|value| known.perhaps.contains(&value));
        assert!(
            fits,
            "key {key} has {found:?}, {:?} was acknowledged, {:?} perhaps",
            known.acknowledged, known.perhaps
        );
    }
}

/// Number of accounts of the bank.
const ACCOUNTS: u64 = 8;

/// Number of clients that move amounts between accounts.
const TELLERS: u64 = 2;

/// A client that moves amounts between accounts of different tables, whose sum never changes. Each
/// transaction also counts itself in an object of the teller.
struct Teller {
    client: Client,
    tables: Vec<Table>,
    random: Chance,
    /// The key of the teller's count, in the first table.
    key: Vec<u8>,
    /// Number of transfers that were acknowledged.
    done: u64,
    /// Number of later transfers whose outcome is unknown.
    perhaps: u64,
}

fn account(tables: &[Table], number: u64) -> (Table, Vec<u8>) {
    let table = usize::try_from(number).expect("small") % tables.len();
    (tables[table], format!("account {number}").into_bytes())
}

fn number_of(value: Option<Vec<u8>>) -> i64 {
    value.map_or(0, |value| i64::from_le_bytes(value.try_into().expect("8 bytes")))
}

impl Teller {
    fn new(coordinator: &str, tables: usize, number: u64) -> Self {
        let (client, tables) = client_with_tables(coordinator, tables);
        let (random, key) = (Chance::new(number), format!("teller {number}").into_bytes());
        Self { client, tables, random, key, done: 0, perhaps: 0 }
    }

    /// Chooses two accounts.
    fn draw(&mut self) -> [(Table, Vec<u8>); 2] {
        let from = self.random.modulo(ACCOUNTS);
        let to = (from + 1 + self.random.modulo(ACCOUNTS - 1)) % ACCOUNTS;
        [from, to].map(|number| account(&self.tables, number))
    }

    fn transfer(&mut self) {
        let [from, to] = self.draw();
        let amount = i64::try_from(self.random.modulo(100)).expect("small");
        let Self { client, tables, key, .. } = self;
        let counted = client.transact(|transaction| {
            for ((table, key), amount) in [(&from, -amount), (&to, amount)] {
                let balance = number_of(transaction.get(*table, key)?) + amount;
                transaction.put(*table, key, balance.to_le_bytes());
            }
            let count = number_of(transaction.get(tables[0], key)?) + 1;
            transaction.put(tables[0], key, count.to_le_bytes());
            Ok::<_, Error>(count.cast_unsigned())
        });
        match counted {
            Ok(count) => {
                let fits = self.done + 1..=self.done + 1 + self.perhaps;
                assert!(fits.contains(&count), "transfer {count}, it should be one of {fits:?}");
                (self.done, self.perhaps) = (count, 0);
            }
            Err(error) if error.is_indeterminate() => self.perhaps += 1,
            // It was not executed.
            Err(Error::Timeout { .. } | Error::Recovering { .. } | Error::TransactionConflict) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Begins a transfer, and leaves it to the servers: the client that sent it is gone.
    fn vanish(&mut self, coordinator: &str) {
        let accounts = self.draw();
        let (mut client, _) = client_with_tables(coordinator, self.tables.len());
        let amounts: Vec<_> = accounts
            .iter()
            .zip([-1, 1])
            .filter_map(|((table, key), amount)| {
                let found = client.get(*table, key).ok()?;
                let condition = found
                    .as_ref()
                    .map_or(Condition::Absent, |object| Condition::Version(object.version));
                let balance = number_of(found.map(|object| object.value)) + amount;
                Some((*table, key, condition, balance.to_le_bytes()))
            })
            .collect();
        let operations: Vec<_> = amounts
            .iter()
            .map(|(table, key, condition, value)| TransactionOperation {
                table: table.0,
                key,
                condition: *condition,
                action: TransactionAction::Write(value, None),
            })
            .collect();
        // While a server is away, an account may have had no answer.
        if operations.len() == accounts.len() {
            let (now, deadline) = (client.now(), client.now() + PATIENCE);
            let core = client.core_mut();
            core.submit_transaction(now, 1, &operations, deadline).expect("within limits");
            core.flush();
        }
    }

    /// Reads all accounts in a transaction.
    fn audit(&mut self) -> Result<(), Error> {
        let accounts: Vec<_> = (0..ACCOUNTS).map(|number| account(&self.tables, number)).collect();
        let keys: Vec<_> = accounts.iter().map(|(table, key)| (*table, &key[..])).collect();
        let balances = self.client.transact(|transaction| transaction.get_many(&keys))?;
        let balances: Vec<i64> = balances.into_iter().map(number_of).collect();
        assert_eq!(balances.iter().sum::<i64>(), 0, "{balances:?}");
        Ok(())
    }

    /// Makes transfers until `ends` is set, and then audits the accounts and its own count.
    fn work(mut self, coordinator: &str, ends: &AtomicBool) -> u64 {
        while !ends.load(Ordering::Acquire) {
            match self.random.modulo(64) {
                // Its accounts are locked for a second then.
                0 => self.vanish(coordinator),
                // While a server is away there may be no answer.
                1..4 => drop(self.audit()),
                _ => self.transfer(),
            }
        }
        until("all accounts are read", || self.audit().is_ok());
        let count = self.client.get(self.tables[0], &self.key).expect("it is there");
        let count = number_of(count.map(|object| object.value)).cast_unsigned();
        let fits = self.done..=self.done + self.perhaps;
        assert!(fits.contains(&count), "{count} transfers, it should be one of {fits:?}");
        count
    }
}

/// Servers are killed while a client writes single objects, and others move amounts between
/// accounts. Some of the latter vanish in the middle of a transaction.
#[test]
fn acknowledged_writes_survive_killed_servers() {
    let kills = std::env::var("SPRAT_KILLS")
        .map_or(KILLS, |text| text.parse().expect("SPRAT_KILLS is a number"));
    for (durability, kills) in [("sync", kills.div_ceil(2)), ("buffered", kills / 2)] {
        let mut cluster = Cluster::start(durability);
        let mut client = cluster.client();
        let tables: Vec<Table> = (0..SERVERS)
            .map(|table| client.create_table(&format!("table {table}")).expect("a server is there"))
            .collect();
        let mut known = BTreeMap::new();
        let mut random = Chance::new(kills + 1);
        let (ends, coordinator) = (AtomicBool::new(false), cluster.coordinator.clone());
        std::thread::scope(|scope| {
            let tellers: Vec<_> = (0..TELLERS)
                .map(|number| {
                    let (coordinator, ends) = (&coordinator, &ends);
                    let tables = tables.len();
                    scope.spawn(move || {
                        Teller::new(coordinator, tables, number).work(coordinator, ends)
                    })
                })
                .collect();
            let end = SetOnDrop(&ends);
            for kill in 0..kills {
                let life = Duration::from_millis(200 + random.modulo(400));
                write(&mut client, &tables, &mut known, &mut random, Instant::now() + life);
                let victim = usize::try_from(random.modulo(SERVERS as u64)).expect("few");
                cluster.servers[victim].as_mut().expect("it runs").kill();
                let until = Instant::now() + Duration::from_secs(3);
                let (done, longest) = write(&mut client, &tables, &mut known, &mut random, until);
                eprintln!(
                    "{durability}, kill {kill} of server {victim}: {done} writes, longest gap \
                 {longest:?}"
                );
                check(&mut client, &tables, &known);
                cluster.start_server(victim);
            }
            drop(end);
            let transfers: u64 = tellers
                .into_iter()
                .map(|teller| teller.join().expect("no transfer is lost or doubled"))
                .sum();
            eprintln!("{durability}: {transfers} transfers");
            assert!(transfers > 0);
        });
        check(&mut client, &tables, &known);
    }
}

/// A server that is stopped for longer than its lease is declared dead, and rejoins as a new server
/// as soon as it continues. In between it must not serve old values, nor answer late with them: a
/// counter that one client increments must never decrease for another client.
#[test]
#[expect(clippy::disallowed_methods, reason = "a process stands still for a time")]
fn a_server_that_was_stopped_rejoins() {
    let mut cluster = Cluster::start("buffered");
    let mut client = cluster.client();
    let tables: Vec<Table> = (0..SERVERS)
        .map(|table| client.create_table(&format!("table {table}")).expect("a server is there"))
        .collect();
    let (ends, raised, looks) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let coordinator = cluster.coordinator.clone();
    let mut longest = Duration::ZERO;
    std::thread::scope(|scope| {
        let raise = || {
            let (mut client, tables) = client_with_tables(&coordinator, tables.len());
            let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
            for turn in 1.. {
                if ends.load(Ordering::Acquire) {
                    break;
                }
                for &table in &tables {
                    let sum = client
                        .increment_i64(table, b"counter", 1)
                        .expect("it is tried until it is done")
                        .0;
                    assert_eq!(sum.cast_unsigned(), turn, "each counts once");
                    longest = longest.max(last.elapsed());
                    last = Instant::now();
                }
                raised.store(turn, Ordering::Release);
            }
            longest
        };
        let look = || {
            let (mut client, tables) = client_with_tables(&coordinator, tables.len());
            while !ends.load(Ordering::Acquire) {
                for &table in &tables {
                    let least = raised.load(Ordering::Acquire);
                    match client.get(table, b"counter") {
                        Ok(found) => {
                            let value = found.map_or(0, |object| {
                                i64::from_le_bytes(object.value.try_into().expect("8"))
                            });
                            assert!(
                                value.cast_unsigned() >= least,
                                "{value} was read after {least} was told"
                            );
                            looks.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(Error::Timeout { .. } | Error::Recovering { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        };
        let (raising, looking) = (scope.spawn(raise), scope.spawn(look));
        let end = SetOnDrop(&ends);
        let servers = &mut cluster.servers;
        for (victim, still) in [(0, 1000), (1, 700)] {
            std::thread::sleep(Duration::from_millis(500));
            let server = servers[victim].as_mut().expect("it runs");
            server.signal(rustix::process::Signal::STOP);
            std::thread::sleep(Duration::from_millis(still));
            server.signal(rustix::process::Signal::CONT);
            server.wait_ready().unwrap_or_else(|error| panic!("it has ended: {error}"));
        }
        std::thread::sleep(Duration::from_millis(500));
        drop(end);
        longest = raising.join().expect("no write is lost");
        looking.join().expect("no read is stale");
    });
    let (raised, looks) = (raised.into_inner(), looks.into_inner());
    eprintln!("{raised} rounds, {looks} reads, longest without a write {longest:?}");
    assert!(raised > 100 && looks > 100, "{raised} rounds, {looks} reads");
    // The servers that rejoined keep replicas for the others. One that was never stopped is killed
    // for good, and no data is lost.
    cluster.servers[2].as_mut().expect("it runs").kill();
    for &table in &tables {
        let (sum, _) = client.increment_i64(table, b"counter", 0).expect("it is brought back");
        assert!(sum.cast_unsigned() >= raised, "{sum}, {raised} were told");
    }
}

/// Sets a flag when dropped, also by a panic: a scope waits for its threads, and these would go on
/// for ever.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs a command against the cluster, and returns its JSON.
fn run_json(coordinator: &str, args: &[&str]) -> serde_json::Value {
    let output =
        sprat().args(args).args(["-C", coordinator, "--json"]).output().expect("the binary runs");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Returns the coordinator's record of a table.
fn record_of(client: &mut Client, table: &str) -> TableRecord {
    let tables = client.list_tables().expect("a coordinator");
    tables.into_iter().find(|record| record.name == table).expect("it is there")
}

fn servers_of(client: &mut Client, table: &str) -> Vec<u32> {
    let record = record_of(client, table);
    record.tablets.iter().map(|tablet| tablet.server).collect()
}

/// Clients do not notice that a server is drained and removed, nor that another receives tablets.
/// No write or read fails, and no object is lost.
#[test]
#[expect(clippy::disallowed_methods, reason = "servers are given tablets by and by")]
fn tablets_move_while_they_are_used() {
    let mut cluster = Cluster::start("buffered");
    let mut client = cluster.client();
    let tables = [client.create_table("table 0").expect("servers are there")];
    for key in KEYS..4 * KEYS {
        client.put(tables[0], &key.to_le_bytes(), &vec![7; 20_000]).expect("written");
    }
    let ends = AtomicBool::new(false);
    let coordinator = cluster.coordinator.clone();
    let (known, done, longest) = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let (mut client, tables) = client_with_tables(&coordinator, 1);
            let (mut known, mut random) = (BTreeMap::new(), Chance::new(5));
            let (mut done, mut longest) = (0, Duration::ZERO);
            while !ends.load(Ordering::Acquire) {
                let until = Instant::now() + Duration::from_millis(20);
                let (more, gap) = write(&mut client, &tables, &mut known, &mut random, until);
                (done, longest) = (done + more, longest.max(gap));
            }
            assert!(
                known.values().all(|known| known.perhaps.is_empty()),
                "every write was acknowledged"
            );
            (known, done, longest)
        });
        let end = SetOnDrop(&ends);
        let port = format!("port={}", cluster.ports[1]);
        let id = |client: &mut Client| {
            let servers = client.list_servers().expect("a coordinator");
            servers
                .iter()
                .filter(|server| server.locator.contains(&port))
                .map(|server| server.id)
                .max()
                .expect("enlisted")
        };
        let drained = id(&mut client);
        assert!(servers_of(&mut client, "table 0").contains(&drained), "one tablet each");
        let answer = run_json(&coordinator, &["server", "drain", &drained.to_string()]);
        assert_eq!(answer["tablets"], 0, "{answer}");
        assert!(!servers_of(&mut client, "table 0").contains(&drained));
        cluster.servers[1].as_mut().expect("it runs").kill();
        // An operator can move a part of a tablet. On a machine that stood still, the server may
        // have been declared dead and have another id by then.
        until("a part of a tablet has moved", || {
            let to = servers_of(&mut client, "table 0")[3].to_string();
            let mut command = sprat();
            command.args(["table", "move", "table 0", "--tablet", "0000..00ff", "--to", &to]);
            command.args(["-C", &coordinator, "--json"]);
            let moved = command.output().expect("the binary runs");
            if !moved.status.success() {
                return false;
            }
            let said: serde_json::Value = serde_json::from_slice(&moved.stdout).expect("JSON");
            assert_eq!(said["done"], true);
            servers_of(&mut client, "table 0")[0].to_string() == to
        });
        // A new server receives some tablets.
        cluster.start_server(1);
        let new = id(&mut client);
        let begun = Instant::now();
        while !servers_of(&mut client, "table 0").contains(&new) {
            assert!(
                begun.elapsed() < PATIENCE,
                "{:?} have the table, not {new}",
                servers_of(&mut client, "table 0")
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(end);
        writing.join().expect("no write fails")
    });
    eprintln!("{done} writes, longest time without one {longest:?}");
    check(&mut client, &tables, &known);
    for key in KEYS..4 * KEYS {
        let found = client
            .get(tables[0], &key.to_le_bytes())
            .expect("an answer")
            .expect("it migrated with the tablet");
        assert!(found.value == vec![7; 20_000], "key {key}");
    }
}

/// A server with far more requests than the others gives away half of its load. Clients do not
/// notice.
#[test]
fn a_hot_tablet_is_split() {
    let cluster = Cluster::start("buffered");
    let mut client = cluster.client();
    let table = client.create_table("table 0").expect("servers are there");
    let record = record_of(&mut client, "table 0");
    let before = record.tablets.len();
    let (first, _) = record.ranges().next().expect("there are tablets");
    let in_first = |key: &[u8; 8]| first.contains(position(record.seed, record.id, key));
    let keys: Vec<[u8; 8]> = (0_u64..).map(u64::to_le_bytes).filter(in_first).take(100).collect();
    for key in &keys {
        client.put(table, key, b"value").expect("written");
    }
    let begun = Instant::now();
    let mut reads = 0;
    while record_of(&mut client, "table 0").tablets.len() == before {
        assert!(begun.elapsed() < PATIENCE, "it is still in {before} after {reads} reads");
        let until = Instant::now() + Duration::from_millis(200);
        while Instant::now() < until {
            // Many reads at a time: one after another, a slow machine would not send enough
            // requests for a split.
            let tickets: Vec<_> = keys
                .iter()
                .map(|key| {
                    client.submit(&Request::Read { table: table.0, key }).expect("there is room")
                })
                .collect();
            for ticket in tickets {
                client
                    .wait(ticket, |answer| assert_eq!(answer.body, b"value"))
                    .expect("it is there");
                reads += 1;
            }
        }
    }
    eprintln!("divided after {:?} and {reads} reads", begun.elapsed());
    for key in &keys {
        assert_eq!(
            client.get(table, key).expect("an answer").expect("it migrated with the tablet").value,
            b"value"
        );
    }
}

/// Returns the keys of an ordered table, page by page.
fn scan_keys(client: &mut Client, table: Table, keys: Keys, limit: u32) -> Vec<Vec<u8>> {
    let (mut found, mut next) = (Vec::new(), Some(keys));
    while let Some(keys) = next {
        let page = client.scan_keys(table, keys, limit).expect("an answer");
        found.extend(page.rows.into_iter().map(|row| row.key));
        next = page.next;
    }
    found
}

/// A scan of a range, or of an index, has the objects of all servers in order, and each once, while
/// tablets move and after a server has died.
#[test]
fn ordered_tables_and_indexes_are_scanned_while_tablets_move() {
    let mut cluster = Cluster::start("buffered");
    let mut client = cluster.client();
    let options = TableOptions { ordered: true, ..TableOptions::of(8) };
    let table = client.create_table_with("log", options).expect("servers are there");
    let rows: Vec<Vec<u8>> =
        (0..3000).map(|number| format!("row {number:06}").into_bytes()).collect();
    let values: Vec<String> =
        (0..rows.len()).map(|number| format!(r#"{{"ten": {}}}"#, number % 10)).collect();
    let mut batch = Batch::new();
    for (key, value) in rows.iter().zip(&values) {
        batch.put(table, key, value.as_bytes());
    }
    assert!(client.batch(&batch).iter().all(Result::is_ok));
    client.put(table, b"a row without the field", b"value").expect("an answer");
    let coordinator = cluster.coordinator.clone();
    let by_ten = ["index", "create", "log", "by_ten", "--field", "ten", "--type", "integer"];
    let made = run_json(&coordinator, &by_ten);
    assert_eq!((&made["objects"], &made["without_field"]), (&json!(3000), &json!(1)), "{made}");
    client.remove(table, b"a row without the field").expect("an answer");
    let index = client.index("log", "by_ten").expect("it is there");
    let in_order = |client: &mut Client| {
        let sevens = scan_keys(client, table, index.equal(7).expect("an integer"), 10_000);
        assert!(sevens.iter().eq(rows.iter().skip(7).step_by(10)));
        assert!(scan_keys(client, table, index.range(3..5).expect("integers"), 99).len() == 600);

        assert!(scan_keys(client, table, Keys::all(), 10_000) == rows);
        let backwards = scan_keys(client, table, Keys::all().descending(), 10_000);
        assert!(backwards.iter().rev().eq(&rows));
        let some = Keys::prefix(b"row 0012");
        assert!(scan_keys(client, table, some, 7) == rows[1200..1300]);
    };
    in_order(&mut client);
    let ends = AtomicBool::new(false);
    let scans = std::thread::scope(|scope| {
        let scanning = scope.spawn(|| {
            let mut client = client_of(&coordinator);
            client.table("log").expect("it is there");
            let mut scans = 0;
            while !ends.load(Ordering::Acquire) {
                in_order(&mut client);
                scans += 1;
            }
            scans
        });
        let end = SetOnDrop(&ends);
        let drained = servers_of(&mut client, "log")[0].to_string();
        let answer = run_json(&coordinator, &["server", "drain", &drained]);
        assert_eq!(answer["tablets"], 0, "{answer}");
        drop(end);
        scanning.join().expect("no scan fails")
    });
    assert!(scans > 0);
    in_order(&mut client);
    cluster.servers[2].as_mut().expect("it runs").kill();
    in_order(&mut client);

    let scan = |more: &[&str]| {
        let output =
            sprat().args(["scan", "log", "-C", &coordinator, "--keys"]).args(more).output();
        let output = output.expect("the binary runs");
        assert!(output.status.success(), "{more:?}: {}", String::from_utf8_lossy(&output.stderr));
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text"))
    };
    let [printed, hint] = scan(&["--prefix", "row 0001", "--limit", "2"]);
    assert_eq!(printed, "row 000100\nrow 000101\n");
    assert_eq!(hint, "sprat: 2 objects so far; continue with --after 'row 000101'\n");
    let [printed, _] = scan(&["--prefix", "row 0001", "--limit", "2", "--after", "row 000101"]);
    assert_eq!(printed, "row 000102\nrow 000103\n");
    let between = ["--from", "row 002990", "--to", "row 002993", "--reverse"];
    assert_eq!(scan(&between)[0], "row 002992\nrow 002991\nrow 002990\n");
    assert_eq!(scan(&["--limit", "1", "--reverse"])[0], "row 002999\n");
    let of_index = ["--index", "by_ten", "--from", "8", "--limit", "2"];
    let [printed, hint] = scan(&of_index);
    assert_eq!(printed, "row 000008\nrow 000018\n");
    let go_on = "continue with --from '8' --after 'row 000018'";
    assert_eq!(hint, format!("sprat: 2 objects so far; {go_on}\n"));
    let [printed, _] = scan(&[&of_index[..], &["--after", "row 000018"]].concat());
    assert_eq!(printed, "row 000028\nrow 000038\n");
    let listed = run_json(&coordinator, &["index", "list", "log"]);
    assert_eq!((&listed[0]["name"], &listed[0]["left"]), (&json!("by_ten"), &json!(0)), "{listed}");
    run_json(&coordinator, &["index", "drop", "log", "by_ten"]);
    assert_eq!(run_json(&coordinator, &["index", "list", "log"]), json!([]));
}

/// Backups are made while tellers move amounts, some of them vanish in the middle of a transaction,
/// and tablets move. Each backup has every transfer whole, and all that was acknowledged before it.
#[test]
fn backups_have_every_transaction_whole() {
    const BACKUPS: u64 = 5;
    let cluster = Cluster::start("buffered");
    let mut client = cluster.client();
    let tables = [0, 1]
        .map(|table| client.create_table(&format!("table {table}")).expect("servers are there"));
    let folder = cluster.dir.path().join("backups").to_string_lossy().into_owned();
    let (ends, coordinator) = (AtomicBool::new(false), cluster.coordinator.clone());
    let counts = |client: &mut Client, table: Table| -> Vec<i64> {
        let count = |number: u64| {
            let key = format!("teller {number}");
            let found = client.get(table, key.as_bytes()).expect("an answer");
            number_of(found.map(|object| object.value))
        };
        (0..TELLERS).map(count).collect()
    };
    let backups = std::thread::scope(|scope| {
        for number in 0..TELLERS {
            let (coordinator, ends) = (&coordinator, &ends);
            scope.spawn(move || {
                Teller::new(coordinator, tables.len(), number).work(coordinator, ends)
            });
        }
        let _end = SetOnDrop(&ends);
        let mut backups = Vec::new();
        for backup in 0..BACKUPS {
            if backup == BACKUPS / 2 {
                let drained = servers_of(&mut client, "table 0")[0].to_string();
                run_json(&coordinator, &["server", "drain", &drained]);
            }
            let before = counts(&mut client, tables[0]);
            until("transfers go on", || counts(&mut client, tables[0]) != before);
            let before = counts(&mut client, tables[0]);
            let made = run_json(&coordinator, &["backup", "create", &folder]);
            let after = counts(&mut client, tables[0]);
            eprintln!("{made}, transfers {before:?} to {after:?}");
            backups.push((made["name"].as_str().expect("a name").to_owned(), before, after));
        }
        backups
    });
    for (number, (point, before, after)) in backups.iter().enumerate() {
        let names = [0, 1].map(|table| format!("copy {number} of {table}"));
        let chosen = [0, 1].map(|table| format!("table {table}={}", names[table]));
        let restore = ["restore", &folder, &chosen[0], &chosen[1], "--point", point];
        run_json(&coordinator, &restore);
        let copies = names.map(|name| client.table(&name).expect("it was restored"));
        let balance = |number: u64| {
            let (table, key) = account(&copies, number);
            number_of(client.get(table, &key).expect("an answer").map(|object| object.value))
        };
        let balances: Vec<i64> = (0..ACCOUNTS).map(balance).collect();
        assert_eq!(balances.iter().sum::<i64>(), 0, "{balances:?}");
        let found = counts(&mut client, copies[0]);
        for ((found, before), after) in found.iter().zip(before).zip(after) {
            assert!((before..=after).contains(&found), "{found}, not {before} to {after}");
        }
    }
    let output = sprat().args(["backup", "verify", &folder]).output().expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
