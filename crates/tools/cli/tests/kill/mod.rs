//! Kills the real server at random moments while clients write. After each restart, everything that
//! was acknowledged or returned by a read must exist, nothing removed may reappear, and versions
//! may only increase.
//!
//! `SPRAT_KILLS` sets the total number of kills (`make kills`: 1000).

mod model;
mod redis;
mod writer;

use crate::support;
use model::{Counter, Found, Owned, Register, take};
use sprat_chance::Chance;
use sprat_client::{Client, Options, Table};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use support::{ServerProcess, TCP, UDP};
use writer::{SHARED, Signals, Writer, key_name};

/// Number of kills when `SPRAT_KILLS` is not set.
const KILLS: u64 = 100;

const WRITERS: usize = 3;

const TABLE: &str = "kill test";

/// Exclusive limit on the random time after which a server is killed, in milliseconds.
const LONGEST_LIFE: u64 = 400;

/// Exclusive limit on the random time after which a starting server is killed, in milliseconds.
const LONGEST_START: u64 = 60;

struct Trial {
    durability: &'static str,
    transport: &'static str,
    kills: u64,
    seed: u64,
}

#[test]
fn acknowledged_writes_survive_kills() {
    let kills = match std::env::var("SPRAT_KILLS") {
        Ok(text) => text.parse().expect("SPRAT_KILLS is a number"),
        Err(_) => KILLS,
    };
    let started = Instant::now();
    let trials = [
        Trial { durability: "sync", transport: UDP, kills: kills.div_ceil(2), seed: 1 },
        Trial { durability: "buffered", transport: UDP, kills: kills / 4, seed: 2 },
        Trial { durability: "sync", transport: TCP, kills: kills / 4, seed: 3 },
    ];
    for trial in &trials {
        trial.run();
    }
    eprintln!("{kills} kills in {:.0} s", started.elapsed().as_secs_f64());
}

#[derive(Default)]
struct Account {
    acknowledged: u64,
    bytes: u64,
    unknown: u64,
    kept: u64,
    during_start: u64,
    cleaned: u64,
}

impl Trial {
    fn run(&self) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut random = Chance::new(self.seed);
        let mut writers: Vec<Writer> =
            (0..WRITERS).map(|number| Writer::new(number, random.draw())).collect();
        let mut counters = vec![Counter::default(); SHARED];
        let mut registers = vec![Register::default(); SHARED];
        let mut account = Account::default();
        for _ in 0..self.kills {
            if random.one_in(5) {
                let mut server = self.spawn(dir.path());
                thread::park_timeout(Duration::from_millis(random.modulo(LONGEST_START)));
                server.kill();
                account.during_start += 1;
                continue;
            }
            let mut server = self.start(dir.path());
            let (mut client, table) = connect(&server);
            let found = all_of(&mut client, table);
            check(&mut writers, &mut counters, &mut registers, found, &mut account);
            let life = Duration::from_millis(random.modulo(LONGEST_LIFE));
            live(&mut server, table, &mut writers, life, &mut account);
            for writer in &mut writers {
                for (counter, other) in counters.iter_mut().zip(&mut writer.counters) {
                    counter.merge(&std::mem::take(other));
                }
                for (register, other) in registers.iter_mut().zip(&mut writer.registers) {
                    register.merge(std::mem::take(other));
                }
            }
        }
        let server = self.start(dir.path());
        let (mut client, table) = connect(&server);
        let found = all_of(&mut client, table);
        check(&mut writers, &mut counters, &mut registers, found, &mut account);
        assert!(server.stop().success());
        self.report(&writers, &account);
    }

    fn flags(&self) -> [&'static str; 8] {
        ["-L", self.transport, "--durability", self.durability, "--memory", "64M", "--disk", "256M"]
    }

    fn spawn(&self, data: &Path) -> ServerProcess {
        ServerProcess::spawn(data, &self.flags())
    }

    fn start(&self, data: &Path) -> ServerProcess {
        ServerProcess::start(data, &self.flags())
            .unwrap_or_else(|error| panic!("it does not start again: {error}"))
    }

    fn report(&self, writers: &[Writer], account: &Account) {
        let acknowledged: u64 = account.acknowledged;
        let objects = writers
            .iter()
            .flat_map(|writer| &writer.keys)
            .filter(|owned| owned.certain.is_some())
            .count();
        eprintln!(
            "{} over {}: {} kills ({} of them during the start), {acknowledged} answers, {} MB \
             written, {} changes of unknown \
             fate ({} of them kept), {} segments cleaned, {objects} objects at the end: every \
             promise held",
            self.durability,
            self.transport.split(':').next().unwrap_or_default(),
            self.kills,
            account.during_start,
            account.bytes >> 20,
            account.unknown,
            account.kept,
            account.cleaned,
        );
        if self.kills >= 20 {
            assert!(
                acknowledged > 1000 && account.unknown > 0,
                "too little happened to prove anything"
            );
        }
    }
}

fn connect(server: &ServerProcess) -> (Client, Table) {
    let options = Options { coordinator: server.coordinator.clone(), ..Options::default() };
    let mut client = Client::connect(&options).expect("a client");
    let table = client.create_table(TABLE).expect("a table");
    (client, table)
}

fn all_of(client: &mut Client, table: Table) -> Found {
    let (mut found, mut after) = (Found::new(), None);
    loop {
        let page = client.scan(table, after).expect("a page");
        for row in page.rows {
            let (key, version) = (row.key.clone(), row.version);
            let twice = found.insert(row.key.clone(), row);
            assert!(
                twice.is_none(),
                "a scan gave {} twice: {version}",
                String::from_utf8_lossy(&key)
            );
        }
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

/// Lets the writers write for a while, and kills the server while they do.
fn live(
    server: &mut ServerProcess,
    table: Table,
    writers: &mut [Writer],
    life: Duration,
    account: &mut Account,
) {
    let signals = Signals::new(writers.len());
    let coordinator = server.coordinator.clone();
    thread::scope(|scope| {
        for writer in writers.iter_mut() {
            let (coordinator, signals) = (&coordinator, &signals);
            scope.spawn(move || writer.run(coordinator, table, signals));
        }
        signals.connected.wait();
        thread::park_timeout(life);
        let (mut client, _) = connect(server);
        let counters = client.server_stats(&server.listen).expect("counters");
        let count =
            |name| counters.iter().find(|counter| counter.name == name).expect("known").value;
        assert_eq!(count("writes_stopped"), 0);
        account.cleaned += count("cleaner_combined_segments_total");
        signals.killing.store(true, Ordering::Release);
        server.kill();
        signals.gone.store(true, Ordering::Release);
    });
    account.acknowledged = writers.iter().map(|writer| writer.acknowledged).sum();
    account.bytes = writers.iter().map(|writer| writer.bytes).sum();
}

/// Compares the table with what the server has acknowledged. The next run continues from the
/// table's state.
fn check(
    writers: &mut [Writer],
    counters: &mut [Counter],
    registers: &mut [Register],
    mut found: Found,
    account: &mut Account,
) {
    for (number, writer) in writers.iter_mut().enumerate() {
        for (key, owned) in writer.keys.iter_mut().enumerate() {
            let name = key_name(number, key);
            let row = take(&mut found, &name);
            let before = owned.certain;
            owned.record_read(&name, row.as_ref().map(|row| (row.version, &row.value[..])));
            if owned.pending.take().is_some() {
                account.unknown += 1;
                account.kept += u64::from(owned.certain != before);
            }
            *owned = Owned { pending: None, ..owned.clone() };
        }
    }
    for (number, counter) in counters.iter_mut().enumerate() {
        let name = format!("counter {number}");
        let row = take(&mut found, &name);
        counter.check(&name, row.as_ref().map(|row| (row.version, &row.value[..])));
    }
    for (number, register) in registers.iter_mut().enumerate() {
        let name = format!("register {number}");
        let row = take(&mut found, &name);
        register.check(&name, row.as_ref().map(|row| (row.version, &row.value[..])));
    }
    let strays: Vec<_> =
        found.keys().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
    assert!(strays.is_empty(), "keys that nobody wrote: {strays:?}");
}
