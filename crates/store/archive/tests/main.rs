//! All integration tests of the crate, as one program: backups of real servers, and tables restored
//! from them.

use sprat_archive::{
    CreateOptions, Created, Error, Folder, Keep, Point, TableChoice, create, restore,
};
use sprat_client::{
    AsyncClient, Batch, Client, Condition, CopyStep, FieldSource, IndexDefinition, Keys, Options,
    Table, TableOptions, Ttl, ValueType,
};
use sprat_store::server::{Server, ServerOptions};
use sprat_testing::{PATIENCE, until};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

/// Starts a server of two nodes, each with a log of its own.
fn serve(data: &Path) -> Server {
    let listen = vec!["fast+udp:host=127.0.0.1,port=0".to_owned(); 2];
    let (memory, disk) = (64 << 20, 256 << 20);
    let options = ServerOptions { listen, memory, disk, ..ServerOptions::alone(data) };
    Server::start(&options).expect("a server")
}

fn options_for(server: &Server) -> Options {
    let coordinator = server.coordinator.to_string();
    Options { coordinator, timeout: PATIENCE, ..Options::default() }
}

fn client_of(server: &Server) -> Client {
    Client::connect(&options_for(server)).expect("a client")
}

/// A server, and a folder for its backups.
struct Store {
    dir: tempfile::TempDir,
    server: Server,
}

impl Store {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let server = serve(&dir.path().join("data"));
        Self { dir, server }
    }

    fn backups(&self) -> PathBuf {
        self.dir.path().join("backups")
    }

    fn back_up(&self) -> Result<Created, Error> {
        let mut folder = Folder::lock(&self.backups(), true)?;
        let how = CreateOptions { rate: 1 << 40 };
        create(&options_for(&self.server), &mut folder, how, &mut |_| {})
    }

    /// Restores tables of a point into this store.
    fn restore(&self, point: &Point, choices: &[(&str, &str)]) -> Result<u64, Error> {
        let folder = Folder::open(&self.backups())?;
        let choice =
            |&(from, to): &(&str, &str)| TableChoice { from: from.to_owned(), to: to.to_owned() };
        let choices: Vec<_> = choices.iter().map(choice).collect();
        let mut client = client_of(&self.server);
        restore(&mut client, &folder, point, &choices, &mut |_| {}).map(|done| done.objects())
    }
}

/// What a table holds: by key, the version, type, value, and whether the object expires.
type Contents = BTreeMap<Vec<u8>, (u64, ValueType, Vec<u8>, bool)>;

fn contents(client: &mut Client, table: Table) -> Contents {
    let (mut all, mut after) = (Contents::new(), None);
    loop {
        let page = client.scan(table, after).expect("the server answers");
        for row in page.rows {
            let object = (row.version, row.value_type, row.value, row.ttl.is_some());
            assert!(all.insert(row.key, object).is_none(), "a key is there once");
        }
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

/// Returns the contents of the table of this name.
fn named(client: &mut Client, name: &str) -> Contents {
    let table = client.table(name).expect("it is there");
    contents(client, table)
}

fn put_many(client: &mut Client, table: Table, numbers: std::ops::Range<u32>, value: &[u8]) {
    let keys: Vec<_> = numbers.map(|number| format!("key {number}").into_bytes()).collect();
    let mut batch = Batch::new();
    for key in &keys {
        batch.put(table, key, value);
    }
    client.batch(&batch).into_iter().for_each(|result| drop(result.expect("written")));
}

fn by_age() -> IndexDefinition {
    let source = FieldSource::Json { path: "age".to_owned() };
    IndexDefinition { source, field_type: ValueType::Integer }
}

#[test]
fn a_table_comes_back_as_it_was() {
    let store = Store::start();
    let mut client = client_of(&store.server);
    let ordered = TableOptions { ordered: true, ..TableOptions::default() };
    let users = client.create_table_with("users", ordered).expect("a table");
    let index = client.create_index("users", "by_age", &by_age()).expect("an index");
    let other = client.create_table("other").expect("a table");
    put_many(&mut client, users, 0..5000, &[7; 300]);
    put_many(&mut client, other, 0..100, b"other");
    for number in (0..5000).step_by(3) {
        let key = format!("key {number}");
        client.put(users, key.as_bytes(), br#"{"age": 36}"#).expect("written");
    }
    for number in (0..5000).step_by(7) {
        client.remove(users, format!("key {number}").as_bytes()).expect("removed");
    }
    client.increment_i64(users, b"integer", -5).expect("a counter");
    client.increment_f64(users, b"double", 0.5).expect("a counter");
    let hour = Ttl::of(Duration::from_secs(3600)).expect("a time");
    let brief = Ttl::of(Duration::from_millis(1)).expect("a time");
    client.put_for(users, b"hour", b"1", hour, Condition::None).expect("written");
    client.put_for(users, b"gone", b"1", brief, Condition::None).expect("written");
    until("the object has expired", || client.get(users, b"gone").expect("read").is_none());
    let before = contents(&mut client, users);
    let created = store.back_up().expect("a backup");
    assert_eq!(created.point.servers.len(), 2, "two nodes have tables");
    // What happens later is not in the backup.
    client.put(users, b"later", b"1").expect("written");
    client.remove(users, b"integer").expect("removed");
    let count = store.restore(&created.point, &[("users", "copy")]).expect("restored");
    assert_eq!(count, before.len() as u64);
    assert_eq!(named(&mut client, "copy"), before);
    let copy = client.table("copy").expect("it was restored");
    let left = client.get(copy, b"hour").expect("read").expect("there").ttl.expect("it expires");
    assert!(left <= hour && left.millis() > hour.millis() / 2, "{left:?}");
    let keys = client.scan_keys(copy, Keys::prefix(b"key 1"), 3).expect("it is ordered");
    assert_eq!(keys.rows.len(), 3);
    let its = client.index("copy", "by_age").expect("the index was made again");
    assert_eq!(its.definition(), index.definition());
    until("the index is complete", || {
        let adults = its.range(30..40).expect("integers");
        client.scan_keys(copy, adults, 1).is_ok_and(|page| page.rows.len() == 1)
    });
    // Later writes have higher versions than those of the backup.
    let version = before[&b"hour".to_vec()].0;
    assert!(client.put(copy, b"hour", b"2").expect("written") > version);
    // A table that exists is not overwritten, and one that is not in the backup is named.
    let refused = store.restore(&created.point, &[("other", "users")]).expect_err("it exists");
    assert!(matches!(&refused, Error::TableExists(name) if name == "users"), "{refused}");
    let refused = store.restore(&created.point, &[("none", "any")]).expect_err("there is none");
    assert!(matches!(&refused, Error::NoTable(name) if name == "none"), "{refused}");
    store.server.stop().expect("stopped");
}

#[test]
fn a_later_backup_copies_only_what_is_new_and_both_are_whole() {
    let store = Store::start();
    let mut client = client_of(&store.server);
    let table = client.create_table("t").expect("a table");
    put_many(&mut client, table, 0..20_000, &[1; 500]);
    let first = store.back_up().expect("a backup").point;
    let was = contents(&mut client, table);
    put_many(&mut client, table, 0..200, &[2; 500]);
    client.remove(table, b"key 300").expect("removed");
    let is = contents(&mut client, table);
    let second = store.back_up().expect("a backup").point;
    assert!(
        second.copied_bytes * 10 < first.copied_bytes,
        "{} after {}",
        second.copied_bytes,
        first.copied_bytes
    );
    // Without any change nothing is copied.
    let third = store.back_up().expect("a backup").point;
    assert_eq!(third.copied_bytes, 0);
    let folder = Folder::open(&store.backups()).expect("backups");
    let names = [&first, &second, &third].map(|point| point.name.clone());
    assert_eq!(folder.names().expect("readable"), names);
    store.restore(&first, &[("t", "first")]).expect("restored");
    store.restore(&second, &[("t", "second")]).expect("restored");
    assert_eq!(named(&mut client, "first"), was);
    assert_eq!(named(&mut client, "second"), is);
    // The oldest point goes, and what only it had; the others stay whole.
    let locked = Folder::lock(&store.backups(), false).expect("backups");
    assert!(matches!(store.back_up(), Err(Error::Locked { .. })));
    let now = SystemTime::now();
    let dry = locked.prune(Keep::Newest(1), now, true).expect("readable");
    assert_eq!(dry.points, names[..2]);
    let pruned = locked.prune(Keep::Newest(2), now, false).expect("readable");
    assert_eq!(pruned.points, names[..1]);
    let young = Keep::Younger(Duration::from_secs(3600));
    assert_eq!(locked.prune(young, now, false).expect("readable").points.len(), 0);
    let verified = locked.verify(None, &mut |_| {}).expect("readable");
    assert_eq!((verified.faults, verified.points.len()), (vec![], 2));
    drop(locked);
    assert!(matches!(folder.point(Some(&names[0])), Err(Error::NoPoint { .. })));
    store.restore(&third, &[("t", "third")]).expect("restored");
    assert_eq!(named(&mut client, "third"), is);
    store.server.stop().expect("stopped");
}

#[test]
fn damage_is_named_and_nothing_damaged_is_restored() {
    let store = Store::start();
    let mut client = client_of(&store.server);
    let table = client.create_table("t").expect("a table");
    put_many(&mut client, table, 0..1000, &[1; 500]);
    let point = store.back_up().expect("a backup").point;
    let folder = Folder::open(&store.backups()).expect("backups");
    let (server, segment) = point.segments().next().expect("a segment");
    let file = store.backups().join("segments").join(segment.name(server));
    let whole = fs::read(&file).expect("it is there");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    for (bytes, what) in
        [(Some(&damaged[..]), "hash"), (Some(&whole[1..]), "hash"), (None, "missing")]
    {
        match bytes {
            Some(bytes) => fs::write(&file, bytes).expect("written"),
            None => fs::remove_file(&file).expect("removed"),
        }
        let faults = folder.verify(None, &mut |_| {}).expect("readable").faults;
        assert_eq!((faults.len(), &faults[0].file), (1, &file.display().to_string()), "{faults:?}");
        assert!(faults[0].what.contains(what), "{}", faults[0]);
        let refused = store.restore(&point, &[("t", "copy")]).expect_err("it is damaged");
        assert!(matches!(&refused, Error::Damaged(fault) if fault.file == file), "{refused}");
        assert!(client.table("copy").is_err(), "nothing was created");
    }
    // The next backup copies the segment again.
    let again = store.back_up().expect("a backup").point;
    assert!(again.copied_bytes > 0);
    assert_eq!(store.restore(&again, &[("t", "copy")]).expect("restored"), 1000);
    // A damaged point is named, and nothing is removed while it may list any segment.
    let path = store.backups().join("points").join(format!("{}.json", point.name));
    let text = fs::read_to_string(&path).expect("it is there");
    fs::write(&path, text.replace("made_ms", "made_ns")).expect("written");
    let faults = folder.verify(None, &mut |_| {}).expect("readable").faults;
    assert!(faults.iter().any(|fault| fault.file == path), "{faults:?}");
    let locked = Folder::lock(&store.backups(), false).expect("backups");
    let refused = locked.prune(Keep::Newest(1), SystemTime::now(), false).expect_err("damaged");
    assert!(matches!(&refused, Error::Damaged(fault) if fault.file == path), "{refused}");
    store.server.stop().expect("stopped");
}

#[test]
fn a_folder_of_something_else_is_refused() {
    let (store, other) = (Store::start(), Store::start());
    let files = store.dir.path().join("files");
    fs::create_dir(&files).expect("a folder");
    fs::write(files.join("file"), b"mine").expect("written");
    assert!(matches!(Folder::lock(&files, true), Err(Error::NotBackups(_))));
    assert!(matches!(Folder::open(&files), Err(Error::NotBackups(_))));
    assert!(matches!(Folder::lock(&store.backups(), false), Err(Error::NotBackups(_))));
    // A backup that reached no cluster leaves a folder without backups.
    drop(Folder::lock(&store.backups(), true).expect("a new folder"));
    let empty = Folder::open(&store.backups()).expect("a folder of backups");
    assert!(matches!(empty.point(None), Err(Error::NoPoint { .. })));
    client_of(&store.server).create_table("t").expect("a table");
    store.back_up().expect("a backup");
    let mut folder = Folder::lock(&store.backups(), true).expect("backups");
    let how = CreateOptions { rate: 1 << 40 };
    let refused = create(&options_for(&other.server), &mut folder, how, &mut |_| {});
    assert!(matches!(refused, Err(Error::OtherCluster { .. })), "{:?}", refused.err());
    store.server.stop().expect("stopped");
    other.server.stop().expect("stopped");
}

#[test]
fn one_client_at_a_time_copies_a_log() {
    let store = Store::start();
    let mut client = client_of(&store.server);
    client.create_table("t").expect("a table");
    let locator = client.list_tables().expect("tables")[0].tablets[0].locator.clone();
    client.copy_log(&locator, CopyStep::List).expect("a list");
    let refused = store.back_up().expect_err("another client copies");
    assert!(refused.to_string().contains("another backup"), "{refused}");
    client.copy_log(&locator, CopyStep::End).expect("an answer");
    store.back_up().expect("a backup");
    store.server.stop().expect("stopped");
}

/// Accounts in two tables, on two servers, and the sum of all.
const ACCOUNTS: u32 = 50;
const SUM: i64 = 100 * 2 * ACCOUNTS as i64;

fn balance(value: &[u8]) -> i64 {
    i64::from_le_bytes(value.try_into().expect("a number"))
}

/// Moves money between two accounts, until `stop` is set. After each transfer a witness of it is
/// written at the other server, and only then is the next made.
fn transfer(server: &Options, tables: [&str; 2], stop: &AtomicBool, thread: u32) {
    let mut client = Client::connect(server).expect("a client");
    let tables = tables.map(|name| client.table(name).expect("a table"));
    let witness = format!("witness {thread}").into_bytes();
    let mut round = 0_u32;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let account = |number: u32| format!("account {}", number % ACCOUNTS).into_bytes();
        let (from, to) = (account(round * 7 + thread), account(round * 3 + thread * 11));
        let (source, target) = (round as usize % 2, (round as usize / 2) % 2);
        if from == to && source == target {
            continue;
        }
        let moved = client.transact(|transaction| {
            let from_before = transaction.get(tables[source], &from)?.expect("an account");
            let to_before = transaction.get(tables[target], &to)?.expect("an account");
            let sum = |before: &[u8], add: i64| (balance(before) + add).to_le_bytes().to_vec();
            transaction.put(tables[source], &from, sum(&from_before, -1));
            transaction.put(tables[target], &to, sum(&to_before, 1));
            Ok::<_, sprat_client::Error>(())
        });
        match moved {
            Ok(()) => {}
            Err(sprat_client::Error::TransactionConflict) => continue,
            Err(error) => panic!("{error}"),
        }
        // A backup that has the second of these has the first.
        for table in tables {
            client.put(table, &witness, &round.to_le_bytes()).expect("written");
        }
    }
}

#[test]
fn backups_of_a_bank_are_of_one_moment() {
    let store = Store::start();
    let mut client = client_of(&store.server);
    // Tables of different servers.
    let names: Vec<String> = (0..8).map(|number| format!("bank {number}")).collect();
    for name in &names {
        client.create_table(name).expect("a table");
    }
    let tables = client.list_tables().expect("tables");
    let server = |table: &sprat_client::TableRecord| table.tablets[0].server;
    let second = tables.iter().find(|table| server(table) != server(&tables[0]));
    let pair = [tables[0].name.clone(), second.expect("on another server").name.clone()];
    for name in &pair {
        let table = client.table(name).expect("a table");
        for number in 0..ACCOUNTS {
            let key = format!("account {number}");
            client.put(table, key.as_bytes(), &100_i64.to_le_bytes()).expect("written");
        }
    }
    let (options, stop) = (options_for(&store.server), AtomicBool::new(false));
    let points: Vec<Point> = thread::scope(|scope| {
        for number in 0..3 {
            let (options, stop, pair) = (&options, &stop, [&pair[0][..], &pair[1][..]]);
            scope.spawn(move || transfer(options, pair, stop, number));
        }
        let points = (0..6).map(|_| store.back_up().map(|created| created.point)).collect();
        stop.store(true, Ordering::Relaxed);
        let points: Result<Vec<Point>, Error> = points;
        points
    })
    .expect("backups");
    for (number, point) in points.iter().enumerate() {
        let copies = [0, 1].map(|table| format!("copy {number} {table}"));
        let choices = [(&pair[0][..], &copies[0][..]), (&pair[1][..], &copies[1][..])];
        store.restore(point, &choices).expect("restored");
        let [first, second] = copies.map(|name| named(&mut client, &name));
        let accounts = first.iter().chain(&second).filter(|(key, _)| key.starts_with(b"account"));
        let sum: i64 = accounts.map(|(_, object)| balance(&object.2)).sum();
        assert_eq!(sum, SUM, "backup {number}");
        for thread in 0..3 {
            let witness = format!("witness {thread}").into_bytes();
            let round = |contents: &Contents| {
                let value = contents.get(&witness).map(|object| &object.2[..]);
                value.map_or(0, |value| u32::from_le_bytes(value.try_into().expect("a round")))
            };
            let (one, other) = (round(&first), round(&second));
            assert!(one >= other, "{one} at the first server, and {other} at the second");
        }
    }
    store.server.stop().expect("stopped");
}

#[test]
fn both_clients_copy_a_log() {
    let store = Store::start();
    client_of(&store.server).create_table("t").expect("a table");
    let client = AsyncClient::connect(&options_for(&store.server)).expect("a client");
    let (version, catalog) = client.copy_catalog().wait().expect("a catalog");
    assert!(version > 0 && !catalog.is_empty());
    let failed = client.copy_log("smoke:host=127.0.0.1", CopyStep::List).wait();
    assert!(failed.is_err(), "{failed:?}");
    store.server.stop().expect("stopped");
}

/// Sends a command to the server's Redis port, and returns `lines` lines of the reply.
fn say(stream: &mut BufReader<TcpStream>, command: &str, lines: usize) -> Vec<String> {
    stream.get_mut().write_all(format!("{command}\r\n").as_bytes()).expect("it is open");
    let line = |_| {
        let mut line = String::new();
        stream.read_line(&mut line).expect("a reply");
        line.trim_end().to_owned()
    };
    (0..lines).map(line).collect()
}

#[test]
fn hashes_of_redis_clients_are_restored() {
    let dir = tempfile::tempdir().expect("a folder");
    let redis = Some(([127, 0, 0, 1], 0).into());
    let options = ServerOptions { redis, ..ServerOptions::alone(&dir.path().join("data")) };
    let server = Server::start(&options).expect("a server");
    let stream = TcpStream::connect(server.redis.expect("as the options say")).expect("a port");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    let mut stream = BufReader::new(stream);
    assert_eq!(say(&mut stream, "HSET h a 1 b 2", 1), [":2"]);
    assert_eq!(say(&mut stream, "HSET other a x", 1), [":1"]);
    assert_eq!(say(&mut stream, "HSET gone a 1", 1), [":1"]);
    assert_eq!(say(&mut stream, "DEL gone", 1), [":1"]);
    let store = Store { dir, server };
    let point = store.back_up().expect("a backup").point;
    // What comes later is not in the point.
    assert_eq!(say(&mut stream, "HSET h c 3", 1), [":1"]);
    assert_eq!(store.restore(&point, &[("redis-0", "redis-1")]).expect("a new table"), 2);
    assert_eq!(say(&mut stream, "SELECT 1", 1), ["+OK"]);
    let all = ["*4", "$1", "a", "$1", "1", "$1", "b", "$1", "2"];
    assert_eq!(say(&mut stream, "HGETALL h", 9), all);
    assert_eq!(say(&mut stream, "HGET other a", 2), ["$1", "x"]);
    assert_eq!(say(&mut stream, "HSET h d 4", 1), [":1"]);
    assert_eq!(say(&mut stream, "DEL h", 1), [":1"]);
    assert_eq!(say(&mut stream, "KEYS *", 3), ["*1", "$5", "other"]);
    store.server.stop().expect("an end");
}
