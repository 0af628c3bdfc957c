//! Tests the bridge between a real store and a real Cassandra, as processes. Every acknowledged
//! write arrives, with the effect of a single write, even if a process is killed or stopped.

#[path = "../../../rack/load/tests/support/mod.rs"]
mod cassandra;

use crate::support;
use cassandra::Node;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sprat_bridge::{Consistency, Home, HomeOptions, HomeRow, HomeTable as _};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use support::{PATIENCE, ServerProcess, TCP, sprat};

type Figures = BTreeMap<String, u64>;

/// A process of the bridge.
struct Bridge {
    child: Child,
    listen: String,
}

impl Bridge {
    fn start(store: &ServerProcess, node: &Node, flags: &[&str]) -> Self {
        let mut command = sprat();
        command.args([
            "rack",
            "bridge",
            "users",
            "--json",
            "--contact",
            &node.contact,
            "-C",
            &store.coordinator,
        ]);
        command.args([
            "--replication",
            "1",
            "--listen",
            "127.0.0.1:0",
            "--every",
            "1h",
            "--sweep",
            "500ms",
        ]);
        let mut child =
            command.args(flags).stdout(Stdio::piped()).spawn().expect("the binary runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped"))
            .read_line(&mut line)
            .expect("it reports where it listens");
        let begun: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        let listen = begun["listen"].as_str().expect("an address").to_owned();
        Self { child, listen }
    }

    fn client(&self) -> Client {
        Client(BufReader::new(TcpStream::connect(&self.listen).expect("it listens")))
    }

    /// Waits until the bridge's figures satisfy `holds`, and returns them.
    fn until(&self, what: &str, holds: impl Fn(&Figures) -> bool) -> Figures {
        let (begun, mut client) = (Instant::now(), self.client());
        loop {
            let reply = String::from_utf8(client.ask(&[b"INFO"]).expect("figures")).expect("text");
            let number = |line: &str| {
                line.split_once(':')
                    .and_then(|(name, of)| Some((name.to_owned(), of.parse().ok()?)))
            };
            let figures: Figures = reply.lines().filter_map(number).collect();
            if holds(&figures) {
                return figures;
            }
            assert!(begun.elapsed() < PATIENCE, "{what}: {reply}");
            std::thread::yield_now();
        }
    }

    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("ours");
    }

    /// Interrupts the bridge, as Ctrl-C does. Returns its exit code.
    fn stop(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("it runs");
        self.child.wait().expect("ours").code()
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A minimal Redis client.
struct Client(BufReader<TcpStream>);

impl Client {
    fn send(&mut self, parts: &[&[u8]]) {
        let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
        for part in parts {
            bytes.extend(format!("${}\r\n", part.len()).bytes());
            bytes.extend_from_slice(part);
            bytes.extend(b"\r\n");
        }
        self.0.get_mut().write_all(&bytes).expect("it listens");
    }

    /// Reads the next answer. Returns the bytes of a bulk string, `None` for a missing key, and any
    /// other reply unchanged.
    fn answer(&mut self) -> Option<Vec<u8>> {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("it answers");
        let line = line.trim_end();
        match line.strip_prefix('$').map(|len| len.parse::<i64>().expect("a length")) {
            Some(-1) => None,
            Some(len) => {
                let mut bytes = vec![0; usize::try_from(len).expect("a length") + 2];
                self.0.read_exact(&mut bytes).expect("all of it");
                bytes.truncate(bytes.len() - 2);
                Some(bytes)
            }
            None => Some(line.as_bytes().to_vec()),
        }
    }

    fn ask(&mut self, parts: &[&[u8]]) -> Option<Vec<u8>> {
        self.send(parts);
        self.answer()
    }

    #[track_caller]
    fn set(&mut self, key: &str, value: &[u8]) {
        assert_eq!(
            self.ask(&[b"SET", key.as_bytes(), value]).as_deref(),
            Some(&b"+OK"[..]),
            "{key}"
        );
    }

    fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        self.ask(&[b"GET", key.as_bytes()])
    }
}

/// A direct connection to Cassandra, without the bridge.
struct Direct {
    runtime: tokio::runtime::Runtime,
    home: Home,
}

impl Direct {
    fn new(node: &Node) -> Self {
        let options = HomeOptions {
            contacts: vec![node.contact.clone()],
            keyspace: "sprat".to_owned(),
            table: "users".to_owned(),
            datacenter: "dc1".to_owned(),
            replication: 1,
            consistency: Consistency::LocalQuorum,
            timeout: Duration::from_secs(10),
        };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a thread");
        let home =
            runtime.block_on(Home::connect(&options)).unwrap_or_else(|error| panic!("{error}"));
        Self { runtime, home }
    }

    fn row(&self, key: &str) -> Option<HomeRow> {
        self.runtime
            .block_on(self.home.read(key.as_bytes()))
            .unwrap_or_else(|error| panic!("{error}"))
    }

    fn value(&self, key: &str) -> Option<Vec<u8>> {
        self.row(key).map(|row| row.value)
    }
}

fn nothing_pending(figures: &Figures) -> bool {
    figures["dirty"] == 0
}

fn key(number: usize) -> String {
    format!("key {number}")
}

#[test]
#[ignore = "starts Cassandra: make test-rack"]
fn acknowledged_writes_reach_home_once() {
    let Some(node) = Node::start() else { return };
    let data = tempfile::tempdir().expect("a folder");
    let flags = ["-L", TCP, "--memory", "256M", "--durability", "buffered"];
    let store = ServerProcess::start(data.path(), &flags).unwrap_or_else(|error| panic!("{error}"));
    let bridge = Bridge::start(&store, &node, &[]);
    let direct = Direct::new(&node);
    let mut client = bridge.client();

    // Writes reach Cassandra later; so do deletions.
    client.set("alice", b"likes tea");
    assert_eq!(client.get("alice").as_deref(), Some(&b"likes tea"[..]));
    bridge.until("alice is at home", nothing_pending);
    assert_eq!(direct.value("alice").as_deref(), Some(&b"likes tea"[..]));
    assert_eq!(client.ask(&[b"DEL", b"alice", b"bob"]).as_deref(), Some(&b":1"[..]));
    assert_eq!(client.get("alice"), None);
    bridge.until("alice is gone", nothing_pending);
    assert_eq!((direct.value("alice"), client.get("alice")), (None, None));
    client.send(&[b"MGET", b"alice", b"bob"]);
    assert_eq!(
        [client.answer(), client.answer(), client.answer()],
        [Some(b"*2".to_vec()), None, None]
    );

    // Writes that Cassandra can never store are refused at once, and leave nothing to be written
    // later.
    for refused in [&[&b"SET"[..], b"", b"v"][..], &[b"DEL", b""]] {
        let reply = client.ask(refused).expect("an answer");
        assert!(reply.starts_with(b"-ERR an empty key"), "{}", String::from_utf8_lossy(&reply));
    }
    assert_eq!(client.get(""), None);
    bridge.until("nothing of it waits", nothing_pending);

    // While Cassandra is stopped, writes are still acknowledged, and can be read.
    node.signal(Signal::STOP);
    (0..300).for_each(|number| client.set(&key(number), format!("one {number}").as_bytes()));
    assert_eq!(client.get(&key(299)).as_deref(), Some(&b"one 299"[..]));
    bridge.until("they wait", |figures| figures["dirty"] >= 300);
    node.signal(Signal::CONT);
    bridge.until("they are at home", nothing_pending);
    (0..300).for_each(|number| {
        assert_eq!(direct.value(&key(number)), Some(format!("one {number}").into_bytes()))
    });

    // A bridge is killed in the middle. The next bridge writes the remaining keys to Cassandra. It
    // repeats some writes, with the effect of a single write.
    for number in 0..2_000 {
        client.send(&[b"SET", key(number).as_bytes(), format!("two {number}").as_bytes()]);
    }
    (0..2_000).for_each(|_| assert_eq!(client.answer().as_deref(), Some(&b"+OK"[..])));
    bridge.kill();
    let stamps: Vec<Option<HomeRow>> = (0..2_000).map(|number| direct.row(&key(number))).collect();
    let bridge = Bridge::start(&store, &node, &[]);
    bridge.until("a sweep", |figures| figures["sweeps"] >= 1);
    bridge.until("the rest is at home", nothing_pending);
    let mut before = 0;
    for (number, stored) in stamps.into_iter().enumerate() {
        let value = format!("two {number}").into_bytes();
        let row = direct.row(&key(number)).expect("it was acknowledged");
        assert_eq!(row.value, value, "{number}");
        if let Some(stored) = stored.filter(|stored| stored.value == value) {
            before += 1;
            assert_eq!(row.stamp, stored.stamp, "{number}");
        }
    }
    eprintln!("killed in the middle: {before} of 2000 were at home by then");
    assert_eq!(bridge.stop(), Some(0));

    // There is more data than may stay in memory. Every key is found, in the store or in Cassandra.
    let bridge = Bridge::start(&store, &node, &["--memory", "1M"]);
    let mut client = bridge.client();
    let large = |number: usize| vec![u8::try_from(number % 251).expect("small"); 10_000];
    (0..400).for_each(|number| client.set(&key(number), &large(number)));
    let mut before = bridge.until("memory is given back", |figures| {
        nothing_pending(figures) && figures["evicted"] >= 300
    });
    loop {
        let now =
            bridge.until("another sweep", |figures| figures["sweeps"] >= before["sweeps"] + 2);
        let settled = now["evicted"] == before["evicted"];
        before = now;
        if settled {
            break;
        }
    }
    (0..400)
        .for_each(|number| assert_eq!(client.get(&key(number)), Some(large(number)), "{number}"));
    let figures = bridge.until("reads were told", |figures| figures["misses"] >= 250);
    eprintln!("of 400 reads {} found it in memory, {} at home", figures["hits"], figures["misses"]);

    // Compares reads of hot keys with reads of Cassandra.
    let (hot, beside) = medians(&mut client, &direct);
    eprintln!(
        "median of a hot read: {hot:?} through the bridge, {beside:?} from Cassandra (debug build)"
    );

    // A bridge that ends while Cassandra is away reports this, and no write is lost.
    assert_eq!(bridge.stop(), Some(0));
    let bridge = Bridge::start(&store, &node, &["--drain", "1s"]);
    node.signal(Signal::STOP);
    bridge.client().set("late", b"kept");
    bridge.until("it waits", |figures| figures["dirty"] == 1);
    assert_eq!(bridge.stop(), Some(7));
    node.signal(Signal::CONT);
    let bridge = Bridge::start(&store, &node, &[]);
    assert_eq!(bridge.client().get("late").as_deref(), Some(&b"kept"[..]));
    bridge.until("it was found", |figures| figures["applied"] >= 1);
    assert_eq!(direct.value("late").as_deref(), Some(&b"kept"[..]));

    // A Cassandra table other than the first is refused, and the error names it.
    let other = [
        "rack",
        "bridge",
        "users",
        "--contact",
        &node.contact,
        "-C",
        &store.coordinator,
        "--home-table",
        "others",
    ];
    let ran =
        support::run(&[&other[..], &["--listen", "127.0.0.1:0", "--replication", "1"]].concat());
    assert!(
        ran.code == Some(1) && ran.stderr.contains("this table is bridged to sprat.users"),
        "{ran:?}"
    );
}

fn medians(client: &mut Client, direct: &Direct) -> (Duration, Duration) {
    client.set("hot", b"value");
    let median = |mut all: Vec<Duration>| {
        all.sort_unstable();
        all[all.len() / 2]
    };
    let (mut through, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..500 {
        let begun = Instant::now();
        assert!(client.get("hot").is_some());
        through.push(begun.elapsed());
        let begun = Instant::now();
        direct.row(&key(1)).expect("it is there");
        beside.push(begun.elapsed());
    }
    (median(through), median(beside))
}
