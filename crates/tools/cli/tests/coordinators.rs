//! Tests several coordinators over a real etcd, as real processes. The coordinators and etcd are
//! killed and stopped while a client writes. The client sees no error, and no acknowledged write is
//! lost.

#[path = "../../../store/store/tests/etcd/process.rs"]
#[allow(dead_code, reason = "others use the rest")]
mod etcd;

use crate::support;
use etcd::EtcdProcess;
use rustix::process::{Pid, Signal, kill_process};
use sprat_chance::Chance;
use sprat_client::{Client, Options, Table};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use support::{PATIENCE, ServerProcess, alone, free_port, leased_sprat, run};

const COORDINATORS: usize = 3;
const SERVERS: usize = 3;
const COPIES: &str = "2";
const KEYS: u64 = 100;

/// Number of kills when `SPRAT_KILLS` is not set.
const KILLS: usize = 3;

struct Coordinator {
    locator: String,
    /// File with the process's standard error.
    log: PathBuf,
    child: Option<Child>,
}

impl Coordinator {
    fn new(log: PathBuf) -> Self {
        Self { locator: format!("tcp:host=127.0.0.1,port={}", free_port()), log, child: None }
    }

    fn start(&mut self, etcd: &str) {
        let mut command = leased_sprat();
        command.args(["coordinator", "-C", &self.locator, "--etcd", etcd, "--name", "test"]);
        let log = File::options().create(true).append(true).open(&self.log).expect("a file");
        self.child =
            Some(command.stdout(Stdio::null()).stderr(log).spawn().expect("the binary runs"));
    }

    /// Returns the process's standard error so far.
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends the coordinator a signal. After `STOP` it is stopped.
    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        kill_process(Pid::from_child(child), signal).expect("ours");
        if signal == Signal::STOP {
            sprat_testing::until_stopped(child.id());
        }
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill(); // it may have ended
            let _ = child.wait();
        }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Cluster {
    etcd: EtcdProcess,
    coordinators: Vec<Coordinator>,
    servers: Vec<ServerProcess>,
    _dir: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Option<Self> {
        let etcd = EtcdProcess::start()?;
        let dir = tempfile::tempdir().expect("a directory");
        let coordinator = |number| {
            let mut one = Coordinator::new(dir.path().join(format!("coordinator {number} said")));
            one.start(&etcd.url);
            one
        };
        let coordinators: Vec<_> = (0..COORDINATORS).map(coordinator).collect();
        let mut cluster = Self { etcd, coordinators, servers: Vec::new(), _dir: dir };
        for server in 0..SERVERS {
            let listen = format!("fast+udp:host=127.0.0.1,port={}", free_port());
            let list = cluster.list();
            let flags =
                ["-C", &list, "-L", &listen, "-r", COPIES, "--memory", "64M", "--disk", "1G"];
            let flags = [&flags[..], &["--durability", "buffered", "--idle", "sleep"]].concat();
            let data = cluster._dir.path().join(server.to_string());
            let started = ServerProcess::start(&data, &flags).unwrap_or_else(|log| {
                panic!(
                    "{log}coordinators: {:#?}",
                    cluster.coordinators.iter().map(Coordinator::log).collect::<Vec<_>>()
                )
            });
            cluster.servers.push(started);
        }
        Some(cluster)
    }

    /// Returns the list of coordinators in the form that clients and servers accept.
    fn list(&self) -> String {
        self.coordinators.iter().map(|one| one.locator.as_str()).collect::<Vec<_>>().join(",")
    }

    fn client(&self) -> Client {
        connect(&self.list())
    }

    /// Waits until a coordinator other than `not` leads. Returns this leader and its term.
    fn leader(&self, not: Option<usize>) -> (usize, u64) {
        let mut client = self.client();
        let begun = Instant::now();
        loop {
            if let Ok((term, locator)) = client.leader()
                && let Some(at) = self.coordinators.iter().position(|one| one.locator == locator)
                && Some(at) != not
            {
                return (at, term);
            }
            assert!(begun.elapsed() < PATIENCE, "no coordinator leads");
            pause(Duration::from_millis(20));
        }
    }

    fn server_ids(&self) -> Vec<u32> {
        self.client()
            .list_servers()
            .expect("a coordinator leads")
            .iter()
            .map(|server| server.id)
            .collect()
    }
}

fn connect(coordinators: &str) -> Client {
    let options =
        Options { coordinator: coordinators.to_owned(), timeout: PATIENCE, ..Options::default() };
    Client::connect(&options).expect("locators")
}

#[expect(clippy::disallowed_methods, reason = "a test's thread is no node")]
fn pause(duration: Duration) {
    thread::sleep(duration);
}

/// A client that writes one key after another, on a separate thread, until `finish`. It then reads
/// every key that it has written.
struct Writer {
    stop: Arc<AtomicBool>,
    /// The longest time without an acknowledged write since this was last read, and the number of
    /// acknowledged writes.
    progress: Arc<Mutex<(Duration, u64)>>,
    thread: JoinHandle<()>,
}

impl Writer {
    fn start(coordinators: String) -> Self {
        let (stop, progress) =
            (Arc::<AtomicBool>::default(), Arc::<Mutex<(Duration, u64)>>::default());
        let (ended, progress_there) = (Arc::clone(&stop), Arc::clone(&progress));
        let thread = thread::spawn(move || {
            let mut client = connect(&coordinators);
            let tables: Vec<Table> = (0..SERVERS)
                .map(|table| client.create_table(&format!("table {table}")).expect("a table"))
                .collect();
            let (mut known, mut random) = (BTreeMap::new(), Chance::new(1));
            let mut last = Instant::now();
            while !ended.load(Ordering::Acquire) {
                let (key, value) = (random.modulo(KEYS), random.draw());
                let table = tables[random.index(tables.len())];
                client
                    .put(table, &key.to_le_bytes(), &value.to_le_bytes())
                    .expect("no error reaches the client");
                known.insert((table.0, key), value);
                let mut progress_there = progress_there.lock().expect("nobody panics with it");
                *progress_there = (progress_there.0.max(last.elapsed()), progress_there.1 + 1);
                last = Instant::now();
            }
            for (&(table, key), value) in &known {
                let found = client
                    .get(Table(table), &key.to_le_bytes())
                    .expect("no error reaches the client");
                let found = found.expect("it was acknowledged").value;
                assert_eq!(found, value.to_le_bytes(), "key {key} of table {table}");
            }
        });
        let writer = Self { stop, progress, thread };
        writer.wait_for_writes();
        writer
    }

    /// Waits until another hundred writes are acknowledged. Returns the longest time without an
    /// acknowledged write since the last call.
    fn wait_for_writes(&self) -> Duration {
        let begun = Instant::now();
        let before = self.progress.lock().expect("nobody panics with it").1;
        while self.progress.lock().expect("nobody panics with it").1 < before + 100 {
            assert!(!self.thread.is_finished(), "the writer has ended");
            assert!(begun.elapsed() < PATIENCE, "no write is acknowledged any more");
            pause(Duration::from_millis(10));
        }
        std::mem::take(&mut self.progress.lock().expect("nobody panics with it").0)
    }

    fn finish(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("it saw no error, and all that was acknowledged");
    }
}

#[test]
fn clients_do_not_notice_killed_coordinators() {
    let _alone = alone();
    let Some(mut cluster) = Cluster::start() else { return };
    let writer = Writer::start(cluster.list());
    let servers = cluster.server_ids();
    let kills = std::env::var("SPRAT_KILLS")
        .map_or(KILLS, |text| text.parse().expect("SPRAT_KILLS is a number"));
    let mut term = 0;
    for kill in 0..kills {
        let before = writer.wait_for_writes();
        let (leader, its) = cluster.leader(None);
        assert!(its > term, "terms only grow");
        term = its;
        cluster.coordinators[leader].kill();
        let begun = Instant::now();
        let (next, _) = cluster.leader(Some(leader));
        let took = begun.elapsed();
        pause(Duration::from_millis(700)); // longer than a lease
        let gap = writer.wait_for_writes();
        eprintln!(
            "kill {kill}: {next} leads {took:?} after {leader} was killed; longest time without \
             an acknowledged write {gap:?}, \
             {before:?} before"
        );
        let url = cluster.etcd.url.clone();
        cluster.coordinators[leader].start(&url);
        pause(Duration::from_secs(4)); // lets followers keep up with the changes of leader
    }
    assert_eq!(cluster.server_ids(), servers, "no server was declared dead");
    cluster.client().create_table("one more").expect("the coordinators still work");
    let status = run(&["status", "-C", &cluster.list()]);
    let (leader, term) = cluster.leader(None);
    let wanted = format!("leader {}, term {term}\n", cluster.coordinators[leader].locator);
    assert!(status.ok().contains(&wanted), "{status:?}");
    writer.finish();
}

#[test]
fn a_coordinator_that_was_stopped_is_fenced() {
    let _alone = alone();
    let Some(cluster) = Cluster::start() else { return };
    let writer = Writer::start(cluster.list());
    let servers = cluster.server_ids();
    let (old, _) = cluster.leader(None);
    writer.wait_for_writes();
    cluster.coordinators[old].signal(Signal::STOP);
    cluster.leader(Some(old));
    cluster.client().create_table("made meanwhile").expect("another leads");
    pause(Duration::from_secs(1));
    let gap = writer.wait_for_writes();
    cluster.coordinators[old].signal(Signal::CONT);
    // The old leader takes itself for the leader until it reads etcd. Its changes until then are
    // rejected.
    let locator = &cluster.coordinators[old].locator;
    let begun = Instant::now();
    while connect(locator).coordinator_leads().is_ok_and(|(leads, _)| leads) {
        assert!(begun.elapsed() < PATIENCE, "it never notices that it was deposed");
        pause(Duration::from_millis(20));
    }
    writer.wait_for_writes();
    // The old leader redirects a client that knows only itself to the new leader.
    connect(locator).table("made meanwhile").expect("the old one names the new one");
    assert_eq!(cluster.server_ids(), servers, "no server was declared dead");
    eprintln!("stopped leader: longest time without an acknowledged write {gap:?}");
    writer.finish();
}

#[test]
fn etcd_is_away_for_a_while() {
    let _alone = alone();
    let Some(mut cluster) = Cluster::start() else { return };
    let writer = Writer::start(cluster.list());
    let servers = cluster.server_ids();
    let (leader, term) = cluster.leader(None);
    writer.wait_for_writes();
    cluster.etcd.kill();
    pause(Duration::from_millis(300));
    cluster.etcd.restart();
    pause(Duration::from_secs(2));
    let short = writer.wait_for_writes();
    assert_eq!(cluster.leader(None), (leader, term), "no other coordinator tried to lead");

    cluster.etcd.kill();
    pause(Duration::from_secs(6));
    cluster.etcd.restart();
    cluster.leader(None);
    let long = writer.wait_for_writes();
    assert_eq!(cluster.server_ids(), servers, "no server was declared dead");
    cluster.client().create_table("one more").expect("it goes on");
    eprintln!(
        "longest time without an acknowledged write: etcd away for 0.3 s {short:?}, for 6 s \
         {long:?}"
    );
    writer.finish();
}

#[test]
fn a_missing_etcd_is_reported_and_waited_for() {
    let _alone = alone();
    let Some(mut etcd) = EtcdProcess::start() else { return };
    etcd.kill();
    let dir = tempfile::tempdir().expect("a directory");
    let mut coordinator = Coordinator::new(dir.path().join("said"));
    coordinator.start(&etcd.url);
    let wait_for_log = |part: &str| {
        let begun = Instant::now();
        while !coordinator.log().contains(part) {
            assert!(begun.elapsed() < PATIENCE, "{}", coordinator.log());
            pause(Duration::from_millis(20));
        }
    };
    wait_for_log("waiting for etcd");
    assert!(coordinator.log().contains("is etcd running"), "{}", coordinator.log());
    etcd.restart();
    wait_for_log("coordinator ready");
    assert_eq!(connect(&coordinator.locator).list_servers().expect("it leads").len(), 0);
}

#[test]
fn impossible_settings_are_refused() {
    let refused =
        run(&["coordinator", "-C", "tcp:host=127.0.0.1,port=0", "--etcd", "http://127.0.0.1:1"]);
    assert_ne!(refused.code, Some(0));
    assert!(refused.stderr.contains("give an address and a port"), "{refused:?}");
    let refused =
        run(&["coordinator", "-C", "tcp:host=127.0.0.1,port=1", "--etcd", "http://127.0.0.1:1"]);
    assert_ne!(refused.code, Some(0));
    assert!(
        refused.stderr.contains("http://127.0.0.1:1") && refused.stderr.contains("is etcd running"),
        "{refused:?}"
    );
    let refused = run(&["coordinator", "--etcd", "127.0.0.1:2379"]);
    assert!(refused.stderr.contains("not a URL"), "{refused:?}");
}
