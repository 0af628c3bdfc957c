//! A stopped store in which one file at a time is damaged: the start reports the damage, or the
//! damage does no harm.

use super::scan;
use crate::common::clients::client_of;
use sprat_client::Client;
use sprat_store::coordinator::{Catalog, MetadataFile};
use sprat_store::salvage::{Objects, Salvage, survey};
use sprat_store::server::{Guard, Server, ServerOptions};
use sprat_wire::frame::FileHeader;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The memory of the store, in bytes: small, since every trial copies the files.
const MEMORY: u64 = 16 << 20;

/// The largest number of flipped bits that the first test tries in each file; the numbers of other
/// trials are multiples or fractions of it. With `SPRAT_SWEEP=K/N` the tests instead try every N-th
/// of the possible bytes, beginning with byte K. N processes, with K from 0 to N - 1, thus try all
/// bytes. A trial waits most of its time, so N may be ten times the number of processors.
const TRIALS: usize = 60;

fn options(data: &Path) -> ServerOptions {
    ServerOptions { memory: MEMORY, disk: 64 << 20, ..ServerOptions::alone(data) }
}

/// Every table with its objects.
type Content = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn content(client: &mut Client) -> Content {
    let tables = client.list_tables().unwrap();
    let mut all = Content::new();
    for table in tables {
        let id = client.table(&table.name).unwrap();
        let objects = scan(client, id).into_iter().map(|key| {
            let value = client.get(id, &key).unwrap().expect("just scanned").value;
            (key, value)
        });
        let objects = objects.collect();
        all.insert(table.name, objects);
    }
    all
}

fn fill(client: &mut Client, table: &str, count: usize) {
    let id = client.create_table(table).unwrap();
    for number in 0..count {
        client
            .put(id, format!("{table} {number}").as_bytes(), format!("value {number}").as_bytes())
            .unwrap();
    }
}

/// A store that was stopped, its contents, and its files after an earlier stop.
struct Stopped {
    dir: tempfile::TempDir,
    content: Content,
}

impl Stopped {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(&options(&dir.path().join("base"))).unwrap();
        fill(&mut client_of(&server), "precious", 50);
        fill(&mut client_of(&server), "dropped", 20);
        server.stop().unwrap();
        copy(&dir.path().join("base"), &dir.path().join("older"));
        let server = Server::start(&options(&dir.path().join("base"))).unwrap();
        let mut client = client_of(&server);
        client.drop_table("dropped").unwrap();
        fill(&mut client, "secret", 30);
        let precious = client.table("precious").unwrap();
        client.remove(precious, b"precious 7").unwrap();
        client.put(precious, b"precious 8", b"newer").unwrap();
        let content = content(&mut client);
        server.stop().unwrap();
        Self { dir, content }
    }

    fn base(&self) -> PathBuf {
        self.dir.path().join("base")
    }

    fn files(&self) -> Vec<String> {
        let names = fs::read_dir(self.base())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        // No start reads the previous versions of files.
        let mut names: Vec<String> = names.filter(|name| !name.ends_with(".new")).collect();
        names.sort();
        names
    }

    /// Starts a copy of the store to which `change` was applied.
    fn try_with(&self, what: &str, change: impl FnOnce(&Path)) -> Outcome {
        let data = self.dir.path().join("trial");
        let _ = fs::remove_dir_all(&data);
        copy(&self.base(), &data);
        change(&data);
        let server = match Server::start(&options(&data)) {
            Ok(server) => server,
            Err(error) => {
                let error = error.to_string();
                let named = self.files().iter().any(|file| error.contains(file.as_str()));
                assert!(named, "{what}: the error names no file: {error}");
                return Outcome::Named(error);
            }
        };
        let is_same = content(&mut client_of(&server)) == self.content;
        server.stop().unwrap();
        if is_same { Outcome::Harmless } else { Outcome::Silent }
    }
}

#[derive(Debug, Eq, PartialEq)]
enum Outcome {
    Named(String),
    Harmless,
    Silent,
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Returns `count` numbers spread over `0..len`, the same in each run, or those that `SPRAT_SWEEP`
/// selects.
fn sample(len: usize, count: usize) -> Vec<usize> {
    if let Ok(sweep) = std::env::var("SPRAT_SWEEP") {
        let parts =
            sweep.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
        let (first, step) =
            parts.unwrap_or_else(|| panic!("SPRAT_SWEEP={sweep}: want K/N, such as 0/20"));
        return (first..len).step_by(step).collect();
    }
    if len <= count {
        return (0..len).collect();
    }
    (0..count).map(|at| at * len / count + at % (len / count)).collect()
}

/// Returns the positions of all bytes of a log that are not zero, and of a few zero bytes.
fn significant_bytes(bytes: &[u8]) -> Vec<usize> {
    let positions = bytes.iter().enumerate().filter(|(at, byte)| **byte != 0 || at % 65_521 == 0);
    positions.map(|(at, _)| at).collect()
}

#[test]
fn no_damage_of_any_file_is_silent() {
    let store = Stopped::new();
    assert_eq!(store.files(), ["catalog.sprat", "coordinator.redb", "identity.toml", "log.sprat"]);
    let mut counts: BTreeMap<(String, &str), [usize; 2]> = BTreeMap::new();
    let mut silent = Vec::new();
    let mut note = |file: &str, kind: &'static str, what: String, outcome: Outcome| {
        let [named, harmless] = counts.entry((file.to_owned(), kind)).or_default();
        match outcome {
            Outcome::Named(_) => *named += 1,
            Outcome::Harmless => *harmless += 1,
            Outcome::Silent => silent.push(what),
        }
    };
    for file in store.files() {
        let bytes = fs::read(store.base().join(&file)).unwrap();
        let places = significant_bytes(&bytes);
        for at in sample(places.len(), TRIALS).into_iter().map(|at| places[at]) {
            let what = format!("bit {} of byte {at} of {file}", at % 8);
            let outcome = store.try_with(&what, |data| {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << (at % 8);
                fs::write(data.join(&file), flipped).unwrap();
            });
            note(&file, "flipped", what, outcome);
        }
        let pages: Vec<usize> = (0..bytes.len())
            .step_by(4096)
            .filter(|&at| bytes[at..].iter().take(4096).any(|byte| *byte != 0))
            .collect();
        for at in sample(pages.len(), TRIALS / 4).into_iter().map(|at| pages[at]) {
            let what = format!("the page at {at} of {file}");
            let outcome = store.try_with(&what, |data| {
                let mut zeroed = bytes.clone();
                let end = bytes.len().min(at + 4096);
                zeroed[at..end].fill(0);
                fs::write(data.join(&file), zeroed).unwrap();
            });
            note(&file, "zeroed", what, outcome);
        }
        for len in [
            0,
            1,
            bytes.len() / 2,
            4096.min(bytes.len() - 1),
            8192.min(bytes.len() - 1),
            bytes.len() - 1,
        ] {
            let what = format!("{len} bytes of {file}");
            let outcome =
                store.try_with(&what, |data| fs::write(data.join(&file), &bytes[..len]).unwrap());
            note(&file, if len == 0 { "emptied" } else { "cut" }, what, outcome);
        }
        let outcome = store.try_with("missing", |data| fs::remove_file(data.join(&file)).unwrap());
        note(&file, "missing", format!("{file} is missing"), outcome);
        let older = store.dir.path().join("older").join(&file);
        let outcome = store.try_with("older", |data| {
            fs::copy(&older, data.join(&file)).unwrap();
        });
        note(&file, "older", format!("{file} is older"), outcome);
    }
    eprintln!("file, kind of damage: trials, named, harmless");
    for ((file, kind), [named, harmless]) in &counts {
        eprintln!("{file}, {kind}: {}, {named}, {harmless}", named + harmless);
    }
    assert!(silent.is_empty(), "damage that was not reported: {silent:#?}");
    for (file, kind) in
        [("log.sprat", "older"), ("log.sprat", "emptied"), ("coordinator.redb", "older")]
    {
        assert_eq!(counts[&(file.to_owned(), kind)], [1, 0], "{file}, {kind}: refused");
    }
}

/// Tries all bytes of the metadata with their parser alone, which is quick.
#[test]
fn no_flipped_bit_of_the_metadata_is_silent() {
    let store = Stopped::new();
    let path = store.base().join("coordinator.redb");
    let bytes = fs::read(&path).unwrap();
    let trial = store.dir.path().join("trial.redb");
    let tables = |path: &Path| {
        let metadata = MetadataFile::open(path).map_err(|error| error.to_string())?;
        let catalog = Catalog::open_standalone(metadata, 1, 1)?;
        Ok::<_, String>((
            catalog.tables().collect::<Vec<_>>(),
            catalog.version(),
            catalog.cluster(),
        ))
    };
    fs::write(&trial, &bytes).unwrap();
    let right = tables(&trial).unwrap();
    let places = significant_bytes(&bytes);
    let (mut named, mut harmless) = (0, 0);
    for at in sample(places.len(), TRIALS * 20).into_iter().map(|at| places[at]) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        fs::write(&trial, flipped).unwrap();
        match tables(&trial) {
            Err(error) => {
                assert!(error.contains("trial.redb"), "{error}");
                named += 1;
            }
            Ok(found) => {
                assert_eq!(found, right, "bit {} of byte {at}", at % 8);
                harmless += 1;
            }
        }
    }
    eprintln!(
        "coordinator.redb, {} bytes: {named} flipped bits named, {harmless} harmless",
        bytes.len()
    );
}

#[test]
fn objects_of_tables_that_were_never_made_stop_a_server() {
    let store = Stopped::new();
    // This catalog of the cluster has no tables, and would use their ids again.
    let outcome = store.try_with("forgetful", |data| {
        let older = store.dir.path().join("older");
        fs::copy(older.join("coordinator.redb"), data.join("coordinator.redb")).unwrap();
        fs::remove_file(data.join("catalog.sprat")).unwrap();
    });
    let Outcome::Named(error) = outcome else { panic!("{outcome:?}") };
    assert!(error.contains("30 of table 3, which was never created"), "{error}");
}

#[test]
fn a_directory_from_before_there_were_ages_is_taken_over() {
    let store = Stopped::new();
    let as_before = |data: &Path| {
        let text = fs::read_to_string(data.join("identity.toml")).unwrap();
        let known = ["cluster", "server", "seed"];
        let lines = text.lines().filter(|line| known.iter().any(|name| line.starts_with(name)));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        fs::write(data.join("identity.toml"), format!("format = 1\n{text}")).unwrap();
        fs::remove_file(data.join("catalog.sprat")).unwrap();
    };
    assert_eq!(store.try_with("format 1", as_before), Outcome::Harmless);
    let now = fs::read_to_string(store.dir.path().join("trial/identity.toml")).unwrap();
    assert!(
        now.starts_with("format = 2") && now.contains("log = ") && now.contains("checksum = 0x"),
        "{now}"
    );
    let emptied = store.try_with("format 1, emptied", |data| {
        as_before(data);
        fs::write(data.join("log.sprat"), b"").unwrap();
    });
    assert!(matches!(emptied, Outcome::Named(_)), "{emptied:?}");
}

#[test]
fn a_coordinator_that_lost_its_metadata_is_made_again_from_a_server() {
    let store = Stopped::new();
    let outcome = store.try_with("rebuilt", |data| {
        fs::remove_file(data.join("coordinator.redb")).unwrap();
        let bytes = fs::read(data.join("catalog.sprat")).unwrap();
        let copy = Catalog::<sprat_store::coordinator::MetadataMemory>::from_copy(&bytes).unwrap();
        copy.rebuild(MetadataFile::open(&data.join("coordinator.redb")).unwrap()).unwrap();
    });
    assert_eq!(outcome, Outcome::Harmless);
}

#[test]
fn a_coordinator_by_itself_notices_that_its_metadata_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let start =
        || Server::start_coordinator("tcp:host=127.0.0.1,port=0", dir.path(), &Guard::default());
    start().unwrap().stop().unwrap();
    let metadata = dir.path().join("coordinator.redb");
    let bytes = fs::read(&metadata).unwrap();
    for (what, change) in [("missing", None), ("empty", Some(&b""[..]))] {
        match change {
            None => fs::remove_file(&metadata).unwrap(),
            Some(bytes) => fs::write(&metadata, bytes).unwrap(),
        }
        let error = start().err().unwrap_or_else(|| panic!("{what}")).to_string();
        assert!(error.contains("coordinator.redb") && error.contains(what), "{error}");
    }
    fs::write(&metadata, bytes).unwrap();
    start().unwrap().stop().unwrap();
}

fn salvage(log: &Path, cluster: u64, server: u32) -> Salvage {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&cluster.to_le_bytes());
    let fallback = FileHeader {
        cluster: id,
        server: server.into(),
        frame_bytes: 4096,
        segment_bytes: 1,
        incarnation: 1,
        clean: None,
        frames: 0,
    };
    survey(log, fallback, 100).unwrap()
}

/// Returns the undamaged objects of a log, by table id and key.
fn salvaged(salvage: &mut Salvage) -> BTreeMap<u32, BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut objects = Objects::default();
    salvage.read(true, |entry| objects.add(entry)).unwrap();
    let mut all: BTreeMap<u32, BTreeMap<Vec<u8>, Vec<u8>>> = BTreeMap::new();
    let take = |entry: &sprat_wire::entry::Entry<'_>| {
        if objects.take(entry) {
            all.entry(entry.table).or_default().insert(entry.key.to_vec(), entry.value.to_vec());
        }
    };
    salvage.read(false, take).unwrap();
    all.remove(&2); // the table that was dropped: its objects stay until they are cleaned away
    all
}

#[test]
fn salvage_reads_undamaged_objects_of_a_damaged_log() {
    let store = Stopped::new();
    let path = store.base().join("log.sprat");
    let bytes = fs::read(&path).unwrap();
    let identity = fs::read_to_string(store.base().join("identity.toml")).unwrap();
    let number = |name: &str| {
        let line = identity.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let (cluster, server) = (number("cluster = "), u32::try_from(number("server = ")).unwrap());
    let right: BTreeMap<u32, _> =
        [(1, store.content["precious"].clone()), (3, store.content["secret"].clone())].into();
    let mut whole = salvage(&path, cluster, server);
    assert_eq!(salvaged(&mut whole), right);
    assert_eq!(whole.faults.count, 0, "{:?}", whole.faults);

    let trial = store.dir.path().join("trial.log");
    let places = significant_bytes(&bytes[8192..]);
    let (mut lost, mut flips) = (0, 0);
    // Damage to the last chunk or its header is tried too, because no later chunk shows that the
    // last one is missing.
    let last = bytes.windows(5).rposition(|five| five == b"newer").expect("the newest value");
    let sampled = sample(places.len(), TRIALS * 2).into_iter().map(|at| 8192 + places[at]);
    for at in sampled.chain(last - 100..last + 5) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        fs::write(&trial, flipped).unwrap();
        let mut damaged = salvage(&trial, cluster, server);
        let found = salvaged(&mut damaged);
        let missing = right.iter().flat_map(|(table, objects)| {
            let there = found.get(table).cloned().unwrap_or_default();
            objects
                .iter()
                .filter(move |(key, value)| there.get(*key) != Some(*value))
                .map(|(key, _)| key.clone())
        });
        // Each trial loses at most one object, whose entry or newer version or tombstone is
        // damaged.
        let missing: Vec<_> = missing.collect();
        assert!(missing.len() <= 1, "byte {at}: {missing:?}");
        assert!(
            missing.is_empty() || damaged.faults.count > 0,
            "byte {at}: it is not said that {missing:?} is lost"
        );
        if let Some(fault) = damaged.faults.kept.iter().find(|fault| fault.offset > 0) {
            assert!(fault.offset.abs_diff(at as u64) < 9 << 20, "{fault}");
        }
        lost += missing.len();
        flips += 1;
    }
    eprintln!("salvage: {lost} objects lost in {flips} flipped bits");
    // If both headers of the file are damaged, the identity says to which server the chunks belong.
    let mut headless = bytes.clone();
    headless[..8192].fill(0);
    fs::write(&trial, headless).unwrap();
    let mut damaged = salvage(&trial, cluster, server);
    assert_eq!(salvaged(&mut damaged), right);
    assert_eq!(damaged.faults.count, 2, "{:?}", damaged.faults);
}
