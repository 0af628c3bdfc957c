//! Tests clusters of real processes with faults, and their messages. Damaged files are named and
//! replaced by other replicas, files of another cluster are refused, and recoveries are visible.

use crate::support;
use sprat_client::{Client, Error, Options};
use sprat_store::coordinator::{Catalog, LEASE, MetadataFile, MetadataMemory};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use support::small::SmallFilesystem;
use support::{PATIENCE, ServerProcess, free_port, leased_sprat, run, skip};

/// Number of servers. They keep replicas of each other's logs. Some tests add a server later.
const SERVERS: usize = 3;
const COPIES: &str = "2";

/// A coordinator's log line after which it accepts requests.
const READY: &str = "coordinator ready";

/// The racks of the servers.
const RACKS: [&str; 3] = ["left", "middle", "right"];

/// Number of objects, and bytes of each object: a few segments for every server.
const OBJECTS: u64 = 800;
const OBJECT_BYTES: usize = 100_000;

/// Block size of [`spoil`], which changes one byte in each block that contains data.
const BLOCK: usize = 4096;

/// Number of blocks at the beginning of a file that are not damaged: the file's two headers.
const HEADERS: u64 = 16;

/// A process. Dropping this value kills the process.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

struct Cluster {
    servers: Vec<ServerProcess>,
    listens: Vec<String>,
    coordinator: String,
    durability: &'static str,
    /// Flags for the memory and disk of each server.
    size: &'static [&'static str],
    process: KilledOnDrop,
    dir: tempfile::TempDir,
}

impl Cluster {
    fn start(servers: usize, durability: &'static str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let coordinator = format!("tcp:host=127.0.0.1,port={}", free_port());
        let process = coordinate(&coordinator, &dir.path().join("coordinator"));
        let size = &["--memory", "128M", "--disk", "1G"];
        let mut cluster = Self {
            servers: Vec::new(),
            listens: Vec::new(),
            coordinator,
            durability,
            size,
            process,
            dir,
        };
        (0..servers).for_each(|_| cluster.add());
        cluster
    }

    /// Ends the coordinator, and starts one on other data. Its standard error is appended to a file
    /// next to that directory, with the extension `said`.
    fn coordinate_from(&mut self, data: &Path) {
        self.end_coordinator();
        let log = || std::fs::read_to_string(data.with_extension("said")).unwrap_or_default();
        let before = log().matches(READY).count();
        self.process = coordinate(&self.coordinator, data);
        until(READY, || log().matches(READY).count() > before);
    }

    fn end_coordinator(&mut self) {
        let _ = self.process.0.kill();
        self.process.0.wait().expect("it ends");
    }

    fn data(&self, server: usize) -> PathBuf {
        self.dir.path().join(server.to_string())
    }

    /// Fails the test because of an object, with the cluster's status and the coordinator's log.
    fn fail(&self, object: u64, error: &sprat_client::Error) -> ! {
        let status = run(&["status", "-C", &self.coordinator]);
        panic!("object {object}: {error}; {}\n{}", status.text(), self.coordinator_log());
    }

    /// Returns what the first coordinator has logged.
    fn coordinator_log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("coordinator.said")).unwrap_or_default()
    }

    /// Starts one more server.
    fn add(&mut self) {
        self.listens.push(format!("fast+udp:host=127.0.0.1,port={}", free_port()));
        let number = self.servers.len();
        let started =
            self.serve(number, &self.data(number)).unwrap_or_else(|error| panic!("{error}"));
        self.servers.push(started);
    }

    /// Starts a server on a data directory.
    fn serve(&self, server: usize, data: &Path) -> Result<ServerProcess, String> {
        let flags = ["-C", &self.coordinator, "-L", &self.listens[server], "-r", COPIES];
        let more = [
            "--durability",
            self.durability,
            "--idle",
            "sleep",
            "--rack",
            RACKS[server % RACKS.len()],
        ];
        let flags = [&flags[..], self.size, &more].concat();
        ServerProcess::start(data, &flags)
    }

    fn client(&self) -> Client {
        self.client_within(PATIENCE)
    }

    fn client_within(&self, timeout: Duration) -> Client {
        let options =
            Options { coordinator: self.coordinator.clone(), timeout, ..Options::default() };
        Client::connect(&options).expect("locators")
    }

    fn counter(&self, server: usize, name: &str) -> u64 {
        let counters = self.client().server_stats(&self.listens[server]).expect("it runs");
        counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
    }

    /// Returns a server's part of `sprat status --json`.
    fn status_of(&self, server: usize) -> serde_json::Value {
        let report = run(&["status", "--json", "-C", &self.coordinator, "--timeout", "3s"]);
        let report: serde_json::Value = serde_json::from_str(report.ok()).expect("JSON");
        let servers = report["servers"].as_array().expect("a list");
        servers
            .iter()
            .find(|status| status["locator"] == *self.listens[server])
            .expect("it is a member")
            .clone()
    }

    /// Returns the recoveries for which this server lacks a segment.
    fn lost(&self, server: usize) -> Vec<serde_json::Value> {
        let tasks = self.status_of(server)["recoveries"].as_array().expect("a list").clone();
        tasks.into_iter().filter(|task| task["failed"] == "lost").collect()
    }

    /// Waits until the logs of these servers have all their replicas.
    fn settle(&self, servers: &[usize]) {
        let begun = Instant::now();
        while servers.iter().any(|&server| self.counter(server, "segments_short") > 0) {
            assert!(begun.elapsed() < PATIENCE, "replicas are missing for good");
            pause();
        }
    }
}

/// Starts a coordinator.
fn coordinate(locator: &str, data: &Path) -> KilledOnDrop {
    std::fs::create_dir_all(data).expect("a directory");
    let log = File::options()
        .create(true)
        .append(true)
        .open(data.with_extension("said"))
        .expect("a file");
    let mut command = leased_sprat();
    command
        .args(["coordinator", "-C", locator, "--data"])
        .arg(data)
        .stdout(Stdio::null())
        .stderr(log);
    KilledOnDrop(command.spawn().expect("the binary runs"))
}

/// Waits until a condition holds.
fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
        pause();
    }
}

#[expect(clippy::disallowed_methods, reason = "a test's thread is no node")]
fn pause() {
    std::thread::sleep(Duration::from_millis(100));
}

fn value(number: u64) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(OBJECT_BYTES).collect()
}

fn fill(cluster: &Cluster) {
    fill_table(cluster, "t", OBJECTS);
}

fn fill_table(cluster: &Cluster, name: &str, objects: u64) {
    let mut client = cluster.client();
    let table = client.create_table(name).expect("servers are there");
    for number in 0..objects {
        let put = client.put(table, &number.to_le_bytes(), &value(number));
        put.unwrap_or_else(|error| cluster.fail(number, &error));
    }
}

fn assert_whole(cluster: &Cluster) {
    assert_table_whole(cluster, "t", OBJECTS);
}

fn assert_table_whole(cluster: &Cluster, name: &str, objects: u64) {
    let mut client = cluster.client();
    let table = client.table(name).expect("it is listed");
    for number in 0..objects {
        let found = client.get(table, &number.to_le_bytes());
        let found = found.unwrap_or_else(|error| cluster.fail(number, &error));
        assert!(found.is_some_and(|object| object.value == value(number)), "object {number}");
    }
}

/// Changes a byte in each block that contains data, but in at most `most` blocks. Returns the
/// number of blocks that it changed.
fn spoil(data: &Path, most: u64) -> u64 {
    let file =
        File::options().read(true).write(true).open(data.join("replicas.sprat")).expect("replicas");
    let blocks = file.metadata().expect("a file").len() / BLOCK as u64;
    let (mut block, mut spoilt) = ([0; BLOCK], 0);
    for at in HEADERS..blocks {
        file.read_exact_at(&mut block, at * BLOCK as u64).expect("within the file");
        if let Some(last) = block.iter().rposition(|byte| *byte != 0).filter(|_| spoilt < most) {
            block[last] ^= 0x10;
            file.write_all_at(&block[last..=last], at * BLOCK as u64 + last as u64)
                .expect("written");
            spoilt += 1;
        }
    }
    file.sync_all().expect("synced");
    spoilt
}

#[test]
fn replicas_that_rot_while_their_server_runs_are_named_and_others_read() {
    // It is not fixed which of two backups is asked first for a segment, so each is damaged once.
    let mut named = 0;
    for bad in [1, 2] {
        let mut cluster = Cluster::start(SERVERS, "buffered");
        fill(&cluster);
        cluster.settle(&[0, 1, 2]);
        cluster.add();
        assert!(spoil(&cluster.data(bad), u64::MAX) > 100, "the replicas contained data");
        cluster.servers[0].kill();
        assert_whole(&cluster);
        let counted = cluster.counter(bad, "replicas_damaged_total");
        named += counted;
        let stderr = cluster.servers[bad].new_stderr();
        assert_eq!(
            stderr.contains("replicas.sprat is damaged at offset"),
            counted > 0,
            "{counted}: {stderr}"
        );
        eprintln!("server {bad} named {counted} damaged replicas");
    }
    assert!(named > 0, "a damaged replica was requested");
}

#[test]
fn replicas_that_rot_while_their_server_is_away_are_named_when_it_starts() {
    // Unsynced data may be missing after the kill. It could not be distinguished from data that is
    // damaged later.
    let mut cluster = Cluster::start(SERVERS + 1, "sync");
    fill(&cluster);
    cluster.settle(&[0, 1, 2, 3]);
    cluster.servers[1].kill();
    assert!(spoil(&cluster.data(1), u64::MAX) > 100, "the replicas contained data");
    let started = cluster.serve(1, &cluster.data(1)).unwrap_or_else(|error| panic!("{error}"));
    cluster.servers[1] = started;
    let counted = cluster.counter(1, "replicas_damaged_total");
    let log = &cluster.servers[1].startup_log;
    assert!(counted > 0 && log.contains("replicas.sprat is damaged at offset"), "{counted}: {log}");
    assert_whole(&cluster);
    cluster.settle(&[0, 1, 2, 3]);
    cluster.servers[0].kill();
    assert_whole(&cluster);
    eprintln!("named {counted} damaged replicas when it started");
}

#[test]
fn a_server_with_the_data_of_another_cluster_is_refused() {
    let mut one = Cluster::start(1, "buffered");
    let mut other = Cluster::start(1, "buffered");
    one.servers[0].kill();
    other.servers[0].kill();
    let message = one.serve(0, &other.data(0)).err().expect("refused");
    for word in ["the data belongs to cluster", "this is cluster", "--data"] {
        assert!(message.contains(word), "{message}");
    }
    // Neither cluster is affected.
    one.serve(0, &one.data(0)).unwrap_or_else(|error| panic!("{error}"));
    other.serve(0, &other.data(0)).unwrap_or_else(|error| panic!("{error}"));
}

/// Only one server remains. It recovers everything, but cannot end the recovery, because no other
/// server keeps replicas.
#[test]
fn recoveries_and_missing_replicas_are_shown() {
    let mut cluster = Cluster::start(SERVERS, "buffered");
    fill(&cluster);
    cluster.settle(&[0, 1, 2]);
    let idle = cluster.status_of(2);
    assert_eq!(
        (&idle["recoveries"], &idle["counters"]["segments_short"]),
        (&serde_json::json!([]), &0.into())
    );
    assert_eq!(
        (&idle["rack"], &idle["counters"]["segments_in_few_racks"]),
        (&"right".into(), &0.into())
    );
    cluster.servers[0].kill();
    cluster.servers[1].kill();
    let begun = Instant::now();
    let report = loop {
        let report = cluster.status_of(2);
        let tasks = report["recoveries"].as_array().expect("a list").clone();
        if tasks.len() == 2 && tasks.iter().all(|task| task["stage"] == "settling") {
            break report;
        }
        assert!(begun.elapsed() < PATIENCE, "{report}");
        pause();
    };
    for task in report["recoveries"].as_array().expect("seen") {
        assert!(task["server"].as_u64().is_some_and(|server| server > 0), "{task}");
        assert!(
            task["tablets"].as_u64() > Some(0) && task["segments_read"].as_u64() > Some(0),
            "{task}"
        );
        assert_eq!(task["segments_left"], 0, "{task}");
    }
    assert!(report["counters"]["segments_short"].as_u64() > Some(0), "{report}");
    let text = run(&["status", "-C", &cluster.coordinator, "--timeout", "3s"]).ok().to_owned();
    for words in [
        "recovering ",
        "segments read, being replicated to other servers",
        "fewer replicas than they should",
        "  rack right  ",
    ] {
        assert!(text.contains(words), "{text}");
    }
    // The error of a client whose request concerns a tablet under recovery states this, and does
    // not blame a silent server.
    let mut hasty = cluster.client_within(Duration::from_secs(1));
    let table = hasty.table("t").expect("the table exists, whichever server has it");
    let lost = (0..OBJECTS).find_map(|number| hasty.get(table, &number.to_le_bytes()).err());
    assert!(matches!(lost, Some(Error::Recovering { .. })), "{lost:?}");
    let counted = hasty.table_stats(table);
    assert!(matches!(counted, Err(Error::Recovering { .. })), "{counted:?}");
    for server in [0, 1] {
        cluster.servers[server] =
            cluster.serve(server, &cluster.data(server)).unwrap_or_else(|error| panic!("{error}"));
    }
    assert_whole(&cluster);
    cluster.settle(&[0, 1, 2]);
    let report = cluster.status_of(2);
    assert_eq!(
        (&report["recoveries"], &report["counters"]["segments_short"]),
        (&serde_json::json!([]), &0.into())
    );
}

/// Both replicas of a segment are damaged. `status` names the segment, even while the next attempt
/// runs.
#[test]
fn a_segment_without_a_whole_replica_is_named() {
    let mut cluster = Cluster::start(SERVERS, "buffered");
    fill(&cluster);
    cluster.settle(&[0, 1, 2]);
    // Each server keeps replicas of two thirds of all data. Half of these replicas are damaged: the
    // first segments, but not the newest, which lists the others.
    let half = OBJECTS * OBJECT_BYTES as u64 / BLOCK as u64 / 3;
    (1..SERVERS).for_each(|server| assert_eq!(spoil(&cluster.data(server), half), half));
    cluster.servers[0].kill();
    until("both say so", || cluster.lost(1).len() + cluster.lost(2).len() == 2);
    for _ in 0..4 {
        let tasks = [cluster.lost(1), cluster.lost(2)].concat();
        assert_eq!(tasks.len(), 2, "{tasks:?}");
        assert!(
            tasks.iter().all(|task| task["lost_segment"].is_u64() && task["backups_silent"] == 0),
            "{tasks:?}"
        );
        pause();
    }
    let text = run(&["status", "-C", &cluster.coordinator, "--timeout", "3s"]).ok().to_owned();
    assert!(text.contains("LOG INCOMPLETE: no backup that answers has all of segment "), "{text}");
}

/// All servers lost power, and a server without any data starts first. It reports the data that it
/// lacks until the others are back.
#[test]
fn a_log_is_reported_lost_while_its_servers_are_away() {
    let mut cluster = Cluster::start(SERVERS, "sync");
    fill(&cluster);
    cluster.settle(&[0, 1, 2]);
    cluster.servers.iter_mut().for_each(ServerProcess::kill);
    cluster.add();
    until("what it lacks of all three", || cluster.lost(3).len() == SERVERS);
    let text = run(&["status", "-C", &cluster.coordinator, "--timeout", "3s"]).ok().to_owned();
    assert!(
        text.contains("LOG INCOMPLETE: no backup that answers has all of its newest segment"),
        "{text}"
    );
    for server in 0..SERVERS {
        cluster.servers[server] =
            cluster.serve(server, &cluster.data(server)).unwrap_or_else(|error| panic!("{error}"));
    }
    assert_whole(&cluster);
    until("it has what it lacked", || cluster.lost(3).is_empty());
}

#[test]
fn reads_and_writes_go_on_while_the_coordinator_is_gone() {
    let mut cluster = Cluster::start(SERVERS, "buffered");
    fill(&cluster);
    let mut client = cluster.client();
    let table = client.table("t").expect("it is listed");
    let mut rewrite = |number: u64| {
        let key = number.to_le_bytes();
        let found = client.get(table, &key).expect("its server answers").expect("it was written");
        assert!(found.value == value(number), "object {number}");
        client.put(table, &key, &found.value).expect("its server answers");
    };
    rewrite(0); // the client learns which servers have the tablets
    cluster.end_coordinator();
    let (begun, mut longest) = (Instant::now(), Duration::ZERO);
    for number in (0..OBJECTS).cycle() {
        let sent = Instant::now();
        rewrite(number);
        longest = longest.max(sent.elapsed());
        if begun.elapsed() > 8 * LEASE {
            break;
        }
    }
    eprintln!("longest read and write without a coordinator: {longest:?}");
    let data = cluster.dir.path().join("coordinator");
    cluster.coordinate_from(&data);
    assert_whole(&cluster);
    for server in 0..SERVERS {
        assert!(cluster.counter(server, "leases_granted_total") > 0, "it keeps replicas");
        assert_eq!(cluster.counter(server, "masters_fenced"), 0, "nothing was recovered");
    }
}

/// A coordinator that restarts with older metadata, or with none, is refused by running and by
/// starting servers, and both sides log this. With metadata restored from a server's copy, the
/// cluster works again.
#[test]
fn a_coordinator_that_is_not_the_clusters_is_refused_on_both_sides() {
    let mut cluster = Cluster::start(SERVERS, "buffered");
    let at = |name: &str, cluster: &Cluster| cluster.dir.path().join(name);
    let copy = |from: &Path, to: &Path| {
        std::fs::create_dir_all(to).expect("a directory");
        for file in ["identity.toml", "coordinator.redb"] {
            std::fs::copy(from.join(file), to.join(file)).expect("it is there");
        }
    };
    let (now, older, empty, again) = (
        at("coordinator", &cluster),
        at("older", &cluster),
        at("empty", &cluster),
        at("again", &cluster),
    );
    cluster.client().create_table("early").expect("servers are there");
    cluster.end_coordinator();
    copy(&now, &older);
    cluster.coordinate_from(&now.clone());
    fill(&cluster);
    assert_whole(&cluster);

    for (data, reason) in [(older, "they are an older copy"), (empty, "they started empty")] {
        cluster.coordinate_from(&data);
        let log = || std::fs::read_to_string(data.with_extension("said")).expect("a file");
        until(reason, || log().contains(reason));
        for server in &mut cluster.servers {
            until(reason, || server.new_stderr().contains(reason));
            assert!(server.runs(), "it waits for its own coordinator");
        }
        // A starting server logs the refusal and ends.
        let mut last = cluster.servers.pop().expect("three");
        last.kill();
        let number = cluster.servers.len();
        let refused = cluster.serve(number, &cluster.data(number)).err().expect("it is refused");
        assert!(
            refused.contains(reason) || refused.contains("give the -C of that cluster"),
            "{refused}"
        );
        cluster.coordinate_from(&now);
        let started =
            cluster.serve(number, &cluster.data(number)).unwrap_or_else(|error| panic!("{error}"));
        cluster.servers.push(started);
        assert_whole(&cluster);
        cluster.settle(&[0, 1, 2]);
    }

    let copies: Vec<String> = (0..SERVERS)
        .map(|server| cluster.data(server).join("catalog.sprat").display().to_string())
        .collect();
    // The last death has been handled, and every server has the last copy. The coordinator may move
    // a tablet at any time, and then a newer copy is needed.
    let begun = Instant::now();
    loop {
        // A copy that is replaced while it is read counts as missing.
        let of =
            |path: &String| Catalog::<MetadataMemory>::from_copy(&std::fs::read(path).ok()?).ok();
        let state = |copy: Catalog<MetadataMemory>| {
            (copy.version(), copy.servers().filter(|(_, known)| known.dead).count())
        };
        let all: Vec<_> = copies.iter().map(|path| of(path).map(state)).collect();
        if all.iter().all(|copy| copy.is_some_and(|(_, dead)| dead == 0) && *copy == all[0]) {
            cluster.end_coordinator();
            let last = MetadataFile::open(&now.join("coordinator.redb")).expect("no longer in use");
            let last = Catalog::open_standalone(last, 1, 1).expect("it is whole");
            if all[0].is_some_and(|(version, _)| version == last.version()) {
                break;
            }
            drop(last);
            cluster.coordinate_from(&now.clone());
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "versions and dead servers in the copies: {all:?}; {}",
            cluster.coordinator_log()
        );
        pause();
    }
    let made = again.display().to_string();
    let mut command = vec!["store", "rebuild", &made];
    copies.iter().for_each(|copy| command.extend(["--from", copy]));
    let text = run(&command).ok().to_owned();
    assert!(text.contains("2 tables"), "{text}");
    cluster.coordinate_from(&again);
    assert_whole(&cluster);
    cluster.client().create_table("new").expect("it leads");
    let old = cluster.client().table("t").expect("it is there");
    let new = cluster.client().table("new").expect("just made");
    assert!(new.0 > old.0 + 1000, "ids go on far above: {} and {}", old.0, new.0);
}

/// The log of a stopped server is damaged. The server does not start, `store verify` names the
/// place of the damage, and all undamaged objects can be exported and imported into another server.
#[test]
fn a_damaged_store_is_salvaged() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let data = dir.path().join("data");
    let flags =
        ["-C", support::COORDINATOR, "--with-coordinator", "-L", support::UDP, "--memory", "64M"];
    let server = ServerProcess::start(&data, &flags).unwrap_or_else(|error| panic!("{error}"));
    let coordinator = server.coordinator.clone();
    for table in ["users", "odd name"] {
        run(&["table", "create", table, "-C", &coordinator]).ok();
        for number in 0..20 {
            let (key, value) = (format!("key {number}"), format!("{table} value {number}"));
            run(&["put", table, &key, &value, "-C", &coordinator]).ok();
        }
    }
    assert!(server.stop().success());
    run(&["store", "verify", &at("data")]).ok();

    let log = data.join("log.sprat");
    let mut bytes = std::fs::read(&log).expect("a log");
    let hit =
        bytes.windows(14).position(|window| window == b"users value 11").expect("it is there");
    bytes[hit] ^= 1;
    std::fs::write(&log, &bytes).expect("it is written");
    let refused =
        ServerProcess::start(&data, &flags).err().expect("it does not start with a damaged log");
    assert!(refused.contains("log.sprat is damaged"), "{refused}");
    let verified = run(&["store", "verify", &at("data")]);
    assert_eq!(verified.code, Some(10), "{}", verified.text());
    assert!(verified.text().contains("log.sprat at offset"), "{}", verified.text());

    std::fs::remove_file(data.join("coordinator.redb")).expect("it is there");
    let exported = run(&["store", "export", &at("data"), &at("saved"), "--json"]);
    assert_eq!(exported.code, Some(10), "{}", exported.text());
    let lines = |name: &str| {
        let text = std::fs::read_to_string(dir.path().join("saved").join(name)).expect("a table");
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines("users.jsonl").len(), 19);
    assert_eq!(lines("table-2.jsonl").len(), 20, "the name of a file cannot have a blank");
    assert!(lines("users.jsonl").iter().all(|line| !line.contains("value 11")));

    let server = ServerProcess::start(&dir.path().join("new"), &flags)
        .unwrap_or_else(|error| panic!("{error}"));
    run(&["import", "users", &at("saved/users.jsonl"), "-q", "-C", &server.coordinator]).ok();
    let got = run(&["get", "users", "key 7", "-C", &server.coordinator]);
    assert_eq!(got.ok(), "users value 7");
    server.stop();
}

/// With too few servers for a write, `table create`, `put` and `status` report the number of
/// missing servers, at once rather than after the client's timeout. One more server is enough.
#[test]
fn too_few_servers_are_reported_at_once() {
    let mut cluster = Cluster::start(SERVERS - 1, "buffered");
    let words = "3 servers needed (-r 2), 2 here";
    let to = cluster.coordinator.clone();
    let created = run(&["table", "create", "t", "-C", &to]);
    created.ok();
    assert!(created.stderr.contains("WARNING") && created.stderr.contains(words), "{created:?}");
    let status = run(&["status", "-C", &to]);
    assert!(status.ok().matches(&format!("CANNOT WRITE: {words}")).count() == 2, "{status:?}");
    // The first put may arrive while the cluster still waits for servers. The client then sends it
    // more than once, and it may take effect.
    for _ in 0..2 {
        let put = run(&["put", "t", "k", "v", "-C", &to]);
        assert!(put.code == Some(5) && put.stderr.contains(words), "{put:?}");
    }
    let put = run(&["put", "t", "k", "v", "-C", &to]);
    assert!(put.code == Some(5) && put.stderr.contains("nothing was changed"), "{put:?}");
    cluster.add();
    let begun = Instant::now();
    while run(&["put", "t", "k", "v", "-C", &to]).code != Some(0) {
        assert!(begun.elapsed() < PATIENCE, "there are enough now");
        pause();
    }
    let status = run(&["status", "-C", &to]);
    assert!(!status.ok().contains("CANNOT WRITE"), "{status:?}");
}

/// All servers of a cluster lose power after their logs have filled up. Recovery writes new logs
/// while the old logs still exist. The default disk size has room for both.
#[test]
fn a_cluster_recovers_from_power_loss_with_the_default_disk_size() {
    // With "buffered", the backups' memory is lost when all of them are killed.
    let mut cluster = Cluster::start(0, "sync");
    cluster.size = &["--memory", "64M"];
    (0..=SERVERS).for_each(|_| cluster.add());
    // The cleaner begins when memory runs out. Until then, overwritten objects also take disk
    // space.
    (0..3).for_each(|_| fill(&cluster));
    cluster.servers.iter_mut().for_each(ServerProcess::kill);
    cluster.coordinate_from(&cluster.dir.path().join("coordinator"));
    for server in 0..=SERVERS {
        let started =
            cluster.serve(server, &cluster.data(server)).unwrap_or_else(|error| panic!("{error}"));
        cluster.servers[server] = started;
    }
    assert_whole(&cluster);
}

/// Two servers have no room for a dead server's table. A server that comes later recovers what does
/// not fit into theirs.
#[test]
fn tables_that_do_not_fit_into_a_server_go_to_others() {
    // A server of 64 MB has room for one table of so many objects, and for less than half of
    // another.
    const PER_TABLE: u64 = 450;
    let mut cluster = Cluster::start(0, "buffered");
    cluster.size = &["--memory", "64M"];
    (0..SERVERS).for_each(|_| cluster.add());
    let tables = ["one", "two", "three"];
    tables.iter().for_each(|name| fill_table(&cluster, name, PER_TABLE));
    cluster.settle(&[0, 1, 2]);
    cluster.servers[0].kill();
    // Each tries smaller and smaller parts, and some fit.
    until("a server has no room", || cluster.coordinator_log().contains("do not fit"));
    cluster.add();
    tables.iter().for_each(|name| assert_table_whole(&cluster, name, PER_TABLE));
}

/// A server whose disk is full to the last byte is killed. It starts again under its next id,
/// because its replicas of other logs may be the only ones. It accepts new replicas as long as it
/// has free frames.
#[test]
fn a_member_starts_on_a_full_disk() {
    let small = match SmallFilesystem::mount(96 << 20) {
        Ok(small) => small,
        Err(why) => {
            return skip(&format!(
                "a member on a full disk: no small filesystem can be mounted here: {why}"
            ));
        }
    };
    // There are enough other servers for a log and its replicas, so this server need not accept
    // replicas.
    let mut cluster = Cluster::start(SERVERS, "sync");
    std::os::unix::fs::symlink(small.root(), cluster.data(SERVERS)).expect("a link");
    cluster.add();
    let mut client = cluster.client();
    let table = client.create_table("t").expect("servers are there");
    let key = |number: u64| number.to_le_bytes();
    for number in 0..50 {
        client.put(table, &key(number), &value(number)).expect("a write");
    }
    small.fill();
    for life in 0..3 {
        cluster.servers[SERVERS].kill();
        let started = cluster.serve(SERVERS, &cluster.data(SERVERS));
        cluster.servers[SERVERS] = started.unwrap_or_else(|error| panic!("life {life}: {error}"));
        for number in 0..50 {
            let found = client.get(table, &key(number)).expect("it is brought back");
            assert!(
                found.is_some_and(|object| object.value == value(number)),
                "object {number}, life {life}"
            );
        }
    }
}
