//! Compares the output of the command line with golden files: help, mistakes, and sessions on a
//! live server.
//!
//! The files are in `tests/golden/`; `UPDATE_GOLDEN=1 cargo test -p sprat-cli --test cli golden::`
//! rewrites them.

use crate::support;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{CommandResult, ServerProcess, UDP, run, run_with, skip, sprat};

/// Compares a text with its golden file, or rewrites the file.
#[track_caller]
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let written = fs::create_dir_all(path.parent().expect("a folder"))
            .and_then(|()| fs::write(&path, text));
        written.expect("the golden folder is writable");
        return;
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    if text != expected {
        let differs = expected.lines().zip(text.lines()).position(|(one, other)| one != other);
        let line = differs.unwrap_or_else(|| expected.lines().count().min(text.lines().count()));
        panic!(
            "{} differs from line {} on:\n  on file: {:?}\n  now:     {:?}\nall of it \
             now:\n{text}\n\
             if that is right: UPDATE_GOLDEN=1 cargo test -p sprat-cli --test cli golden::",
            path.display(),
            line + 1,
            expected.lines().nth(line),
            text.lines().nth(line),
        );
    }
}

/// Returns all commands as lists of words, beginning with the program itself, which has no words.
/// The commands are those for which the program writes man pages, except `ClusterPerf`.
fn commands() -> Vec<Vec<String>> {
    let dir = tempfile::tempdir().expect("a directory");
    run(&["man", dir.path().to_str().expect("text")]).ok();
    let names = fs::read_dir(dir.path()).expect("a directory").map(|entry| {
        let name = entry.expect("an entry").file_name().into_string().expect("text");
        name.trim_end_matches(".1").split('-').skip(1).map(str::to_owned).collect::<Vec<_>>()
    });
    let mut commands: Vec<_> =
        names.filter(|words| !words.iter().any(|word| word == "ClusterPerf")).collect();
    commands.sort();
    assert!(commands.len() > 50, "{commands:?}");
    commands
}

#[test]
fn help_is_as_written() {
    let mut pages = Vec::new();
    for command in commands() {
        let mut words: Vec<&str> = command.iter().map(String::as_str).collect();
        let name = ["help"].iter().chain(&words).copied().collect::<Vec<_>>().join("-") + ".txt";
        words.push("--help");
        let help = run(&words);
        golden(&name, help.ok());
        assert!(help.stderr.is_empty());
        // clap wraps at 100 columns. A line of examples that clap breaks is hard to copy.
        let wide = help.ok().lines().find(|line| line.chars().count() > 100);
        assert_eq!(wide, None, "{name}");
        pages.push(name);
    }
    let on_file = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden"));
    for entry in on_file.expect("the golden folder") {
        let name = entry.expect("an entry").file_name().into_string().expect("text");
        assert!(!name.starts_with("help") || pages.contains(&name), "{name}: no such command");
    }
    assert!(run(&["--version"]).ok().starts_with("sprat "));
    assert_eq!(run(&[]).code, Some(2), "without a command there is help, and a failure");
}

/// A transcript of commands and their output.
struct Transcript {
    text: String,
    at: Vec<(String, &'static str)>,
}

impl Transcript {
    fn new(at: Vec<(String, &'static str)>) -> Self {
        Self { text: String::new(), at }
    }

    /// Replaces the parts that differ between runs.
    fn stable(&self, text: &str) -> String {
        self.at.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from.as_str(), to))
    }

    fn add(&mut self, line: &str, ran: &CommandResult) {
        let (out, err) = (String::from_utf8_lossy(&ran.stdout), &ran.stderr);
        let mut entry = format!("$ sprat {line}\n{out}");
        if !entry.ends_with('\n') {
            entry.push_str("(no newline)\n");
        }
        for line in err.lines() {
            writeln!(entry, "! {line}").expect("a string");
        }
        match ran.code {
            Some(0) => entry.push('\n'),
            Some(code) => writeln!(entry, "exit {code}\n").expect("a string"),
            None => entry.push_str("killed\n\n"),
        }
        self.text += &self.stable(&entry);
    }

    fn run(&mut self, line: &str) -> CommandResult {
        self.run_with(line, b"")
    }

    fn run_with(&mut self, line: &str, input: &[u8]) -> CommandResult {
        let args: Vec<String> = line.split(' ').map(|word| word.replace('_', " ")).collect();
        let mut given: Vec<&str> = args.iter().map(String::as_str).collect();
        if let Some((coordinator, _)) = self.at.iter().find(|(_, name)| *name == "COORDINATOR") {
            given.extend(["-C", coordinator]);
        }
        // The flags that the test adds must precede the double dash, which ends the flags.
        if let Some(dashes) = given.iter().position(|word| *word == "--")
            && given.len() >= 2
        {
            let rest = given.split_off(dashes);
            let (tail, ours) = rest.split_at(rest.len() - 2);
            given.extend(ours);
            given.extend(tail);
        }
        let ran = run_with(&given, input);
        self.add(line, &ran);
        ran
    }
}

#[test]
fn mistakes_are_explained() {
    let mut transcript = Transcript::new(Vec::new());
    for line in [
        "gte users alice",
        "get",
        "get users",
        "incr counters visits 1 2",
        "txn",
        "txn swap_users_alice",
        "txn get_users",
        "txn add_users_alice_many",
        "txn put_users_alice_'tea",
        "put users alice tea --if-absent --if-version 3",
        "put users alice tea -i file",
        "del users alice --if-version many",
        "scan users --limit lots",
        "server --memory lots",
        "server --durability always",
        "server --idle never",
        "server -r 8",
        "server -C tcp:host=127.0.0.1,port=9 -L fast+udp:host=127.0.0.1,port=0 -r 2 --durability \
         none --memory 1G --disk 1G",
        "server --with-coordinator",
        "table rename users people",
        "bench basic --seconds soon",
        "sim --seed 1 --seeds 2",
        "completions tcsh",
        "share",
        "share /no/such/directory",
        "share Cargo.toml",
        "share . --listen somewhere",
        "share . --listen 192.0.2.1:0",
        "share . --pace fast",
        "share . --tls-cert cert.pem",
        "share . --tls-self --tls-cert cert.pem --tls-key key.pem",
        "share . --token-file /no/such/file",
        "browser install --downloads here --for firefox",
        "browser install --for lynx",
        "browser host",
        "lab run",
        "lab run --port tap:a0",
        "lab run --port a0 --port tap:b0",
        "lab run --port tap:a0 --port tap:b0 --delay 3s",
        "lab run --port tap:a0 --port tap:b0 --rate 100mbps",
        "lab run --port tap:a0 --port tap:b0 --rate 2GB",
        "lab run --port tap:a0 --port tap:b0 --loss 0.1",
        "lab run --port tap:a0 --port tap:b0 --duration 10",
        "lab run --port tap:a0 --port tap:b0 --to c0:rate=2Gb/s",
        "lab run --port tap:a0 --port tap:b0 --to b0:latency=1ms",
        "lab run --port tap:a0 --port tap:b0 --pair a0",
        "lab run --port tap:a0 --port tap:b0 --port tap:c0 --port tap:d0 --forward cross",
        "lab run --port tap:a0 --port tap:b0 --port tap:c0 --port tap:d0 --pair a0,b0",
        "lab run --config no/such.toml",
        "lab ctl",
        "lab ctl show --state no/such/folder",
        "lab ctl wan show --state no/such/folder",
        "lab ctl WAN show --state no/such/folder",
        "lab ctl wan set --state no/such/folder",
        "lab ctl wan filter add tcp --state no/such/folder",
        "lab up",
        "lab up three-sites",
        "lab up no/such.toml",
        "lab up two-sites -- true",
        "lab up two-sites --in middle -- true",
        "lab up two-sites --name UP",
        "lab down nothing --state no/such/folder",
        "lab topologies three-sites",
        "get users alice --timeout 5000",
        "get users alice --timeout 0",
        "cp --limit 0 a b",
        "get users alice -C nowhere",
        "get users alice -C tcp:host=127.0.0.1",
        "get users alice -C fast+ib:host=127.0.0.1,port=1",
        "get users alice -C tcp:host=127.0.0.1,port=99999",
        "import users /nowhere/at/all",
        "import users /nowhere.csv",
        "import users Cargo.toml",
        "export users -",
    ] {
        transcript.run(line);
    }
    golden("mistakes.txt", &transcript.text);
}

#[test]
fn kernels_and_their_machine_are_described() {
    let mut transcript = Transcript::new(Vec::new());
    for line in [
        "grape kernels",
        "grape kernels nearest",
        "grape asm nearest",
        "grape dgemm --size 64",
        "grape lu --size 96 --chips 4 --clock 400MHz",
        "grape run gravity",
        "grape run no/such.kernel",
        "grape sim gravity --clock 500",
    ] {
        transcript.run(line);
    }
    golden("grape.txt", &transcript.text);
}

#[test]
fn power_and_its_cost_are_described() {
    let mut transcript = Transcript::new(Vec::new());
    for line in [
        "rack cost",
        "rack cost cassandra-6 --carbon 350 --currency EUR --kwh 0.25 --json",
        "rack cost --option mini:72:2:1900 --option x86:1350W:4:9000 --instances 25 --years 4",
        "rack cost tests/golden/fat.toml --json",
        "rack cost --option mini",
        "rack cost --pue 0.5",
        "rack cost --measured tests/golden/measured.json --option x86:1350:4",
        "rack cost --measured /no/such/file",
        "rack power",
        "rack power cassandra-6",
        "rack power cassandra-6 --every 1ms",
        "rack power cassandra-6 --duration long",
        "rack power cassandra-6 --load /no/such/file",
        "rack power --here --operations 3 --load x",
    ] {
        transcript.run(line);
    }
    golden("power.txt", &transcript.text);
}

#[test]
fn racks_are_described() {
    let mut transcript = Transcript::new(Vec::new());
    for line in [
        "rack examples",
        "rack examples mms-5",
        "rack plan mms-16",
        "rack plan cassandra-6",
        "rack plan mms-65536",
        "rack plan mms-3 --json",
        "rack plan tests/golden/fat.toml",
        "rack plan tests/golden/trunk.toml",
        "rack simulate mms-cube --requests 1000",
        "rack simulate mms-5 --pattern incast --requests 219 --answer 20kB --forwarding \
         store-and-forward",
        "rack simulate mms-5 --requests 100 --answer 1MB --json",
        "rack plan nothing",
        "rack plan tests/golden/no-plan.toml",
        "rack examples nothing",
        "rack simulate mms-5 --answer lots",
        "rack simulate mms-65536",
        "rack simulate mms-5 --pattern load --load 900%",
        "rack up cassandra-6",
        "rack up cassandra-6 --jars /no/such/folder --state /no/such/rack",
        "rack down cassandra-6 --purge",
        "rack replace cassandra-6 c9-n9-i9 --jars /no/such/folder --state /no/such/rack",
        "rack load mms-5",
        "rack load cassandra-6 --rate fast",
        "rack load cassandra-6 --duration long",
        "rack load cassandra-6 --reads 0.5",
        "rack load cassandra-6 --rate 9999999",
        "rack load cassandra-6 --contact here",
        "rack load cassandra-6 --workload wide --verify",
        "rack load cassandra-6 --contact 127.0.0.1:9",
        "rack load cassandra-6 --local --state /no/such/rack",
    ] {
        transcript.run(line);
    }
    golden("racks.txt", &transcript.text);

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plan");
    run(&["rack", "plan", "cassandra-6", "--write", path.to_str().expect("text")]).ok();
    let read = |name: &str| {
        fs::read_to_string(path.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let lines = |name: &str| read(name).lines().count() - 1;
    assert_eq!((lines("cables.csv"), lines("hosts.csv"), lines("tokens.csv")), (12, 18, 192));
    assert!(read("plan.svg").ends_with("</svg>\n"));
    let plan: serde_json::Value = serde_json::from_str(&read("plan.json")).expect("JSON");
    assert_eq!(plan["cassandra"]["lost-with-server"], 0.0, "{plan}");
}

fn live(data: &Path) -> (ServerProcess, Transcript) {
    let flags = ["-L", UDP, "--memory", "64M", "--disk", "256M"];
    let server = ServerProcess::start(data, &flags).expect("it starts");
    let transcript = Transcript::new(vec![
        (server.coordinator.clone(), "COORDINATOR"),
        (server.listen.clone(), "SERVER"),
    ]);
    (server, transcript)
}

#[test]
fn objects_come_and_go() {
    let dir = tempfile::tempdir().expect("a directory");
    let (server, mut transcript) = live(&dir.path().join("data"));
    for line in [
        "table list",
        "get users alice",
        "table create users",
        "table create users",
        "get users alice",
        "put users alice likes_tea",
        "get users alice",
        "get users alice --json",
        "put users alice likes_coffee --if-absent",
        "put users bob likes_milk --if-exists",
        "put users alice likes_coffee --if-version 99",
        "put users bob likes_milk --if-absent --json",
        "del users bob --if-version 99",
        "del users bob",
        "del users bob",
        "del users alice --json",
        "del users alice --json",
        "table create counters",
        "incr counters visits",
        "incr counters visits 41 --json",
        "incr counters visits -- -50",
        "incr counters visits 0.5",
        "incr counters heat 0.5 --double",
        "incr counters heat -- x",
        "incr counters visits 1 --double",
        "incr counters heat",
        "incr counters heat 1e309 --double",
        "incr counters heat nan --double",
        "incr counters visits -- -9223372036854775808",
        "get counters visits --number",
        "get counters heat --number",
        "get counters visits --json",
        "put counters word tea",
        "incr counters word",
        "get counters word --number",
        "table create degrees",
        "incr degrees heat 0.5 --double",
        "scan degrees --json",
        "put users guest tea --ttl 365d",
        "put users guest tea --ttl 5",
        "put users guest tea --ttl 0s",
        "put users guest tea --ttl 40000d",
        "ttl users guest 90d",
        "ttl users guest --never --json",
        "ttl users guest",
        "ttl users guest --json",
        "ttl users stranger 1h",
        "ttl users stranger",
        "del users guest",
        "put users empty ",
        "get users empty --json",
        "put users one 1 two 2",
        "put users three 3 two 2 --if-absent --json",
        "put users one 1 two",
        "put users one 1 one 2",
        "get users one none two",
        "get users one none --json",
        "get users one two -o file",
        "get counters visits none word heat --number",
        "del users one none two",
        "del users three none --json",
        "del users three three",
        "table list",
        "table list --json",
        "table stats users",
        "table stats users --json",
        "table drop users",
        "table drop users",
        "get users alice",
        "table list",
    ] {
        transcript.run(line);
    }
    transcript.run("table create bytes");
    transcript.run_with("put bytes raw", &[0, 159, 146, 150, 10]);
    transcript.run("get bytes raw --json");
    transcript.run("scan bytes");
    transcript.run("scan bytes --keys");
    transcript.run("scan bytes --json");
    transcript.run("scan nothing");
    for line in [
        "table create accounts",
        "table create seats",
        "txn add_accounts_alice_-10 add_accounts_bob_10",
        "txn get_accounts_alice get_accounts_bob get_seats_12A",
        "txn get_accounts_alice get_seats_12A --json",
        "txn absent_seats_12A put_seats_12A_alice put_accounts_alice_0",
        "txn absent_seats_12A put_seats_12A_bob",
        "txn equal_accounts_alice_5 del_accounts_alice",
        "txn equal_accounts_alice_0 del_accounts_alice",
        "get accounts alice",
        "txn add_seats_12A_1",
        "txn put_seats_12B_bob_--ttl_1h",
        "txn put_seats_12B_bob_--ttl",
        "txn get_nothing_alice",
        "table create pages --when-full evict",
        "table create pages",
        "table create seats --when-full evict",
        "table list",
    ] {
        transcript.run(line);
    }
    let script = b"# two steps\nput seats 'row 12' \"some text\"\n\nget seats 'row 12'\n";
    transcript.run_with("txn", script);
    let status = transcript.at.clone();
    golden("objects.txt", &transcript.text);

    let raw = run(&["get", "bytes", "raw", "-C", &server.coordinator]);
    assert_eq!(raw.stdout, [0, 159, 146, 150, 10], "exactly the bytes");
    let file = dir.path().join("out");
    let path = file.to_str().expect("text");
    assert_eq!(run(&["get", "bytes", "raw", "-o", path, "-C", &server.coordinator]).code, Some(0));
    assert_eq!(fs::read(&file).expect("written"), [0, 159, 146, 150, 10]);
    assert_eq!(run(&["put", "bytes", "copy", "-i", path, "-C", &server.coordinator]).code, Some(0));
    assert_eq!(
        run(&["get", "bytes", "copy", "-C", &server.coordinator]).stdout,
        [0, 159, 146, 150, 10]
    );

    let json = run(&["status", "--json", "-C", &server.coordinator]);
    let value: serde_json::Value = serde_json::from_str(json.ok()).expect("JSON");
    let mut shape = String::new();
    shape_of(&value, "", &mut shape);
    golden("status-shape.txt", &shape);
    let text = run(&["status", "-C", &server.coordinator]);
    let stable = Transcript::new(status).stable(text.ok());
    assert!(stable.starts_with("coordinator COORDINATOR\nserver 1  SERVER  heard "), "{stable}");
    assert!(server.stop().success());
}

/// Lists every path in a JSON value with the type of its value.
fn shape_of(value: &serde_json::Value, path: &str, shape: &mut String) {
    let kind = match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                shape_of(value, &format!("{path}.{name}"), shape);
            }
            return;
        }
        serde_json::Value::Array(items) => {
            if let Some(first) = items.first() {
                shape_of(first, &format!("{path}[]"), shape);
            }
            return;
        }
        serde_json::Value::Null => "null",
        serde_json::Value::Bool(_) => "bool",
        serde_json::Value::Number(_) => "number",
        serde_json::Value::String(_) => "string",
    };
    writeln!(shape, "{path}: {kind}").expect("a string");
}

#[test]
fn scans_go_on_where_they_stopped() {
    let dir = tempfile::tempdir().expect("a directory");
    let (server, _) = live(dir.path());
    let at = ["-C", &server.coordinator];
    assert_eq!(run(&["table", "create", "t", "-C", at[1]]).code, Some(0));
    let lines: String = (0..1000)
        .map(|number| format!("{{\"key\":\"k{number}\",\"value\":\"v{number}\"}}\n"))
        .collect();
    let file = dir.path().join("in.jsonl");
    fs::write(&file, lines).expect("written");
    run(&["import", "t", file.to_str().expect("text"), "-q", "-C", at[1]]).ok();
    let (mut keys, mut after): (Vec<String>, Option<String>) = (Vec::new(), None);
    let mut pages = 0;
    loop {
        let mut args = vec!["scan", "t", "--keys", "--limit", "100", "-C", at[1]];
        if let Some(cursor) = &after {
            args.extend(["--after", cursor]);
        }
        let page = run(&args);
        keys.extend(page.ok().lines().map(str::to_owned));
        pages += 1;
        match page.stderr.split("--after ").nth(1) {
            Some(cursor) => after = Some(cursor.trim().to_owned()),
            None => break,
        }
    }
    assert!(pages > 2, "{pages} pages");
    keys.sort();
    let mut all: Vec<String> = (0..1000).map(|number| format!("k{number}")).collect();
    all.sort();
    assert_eq!(keys, all, "every key once");
    assert!(server.stop().success());
}

/// Returns the files below a directory, sorted: relative path and bytes.
fn tree(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = walkdir::WalkDir::new(root)
        .into_iter()
        .map(|entry| entry.expect("readable"))
        .filter(|entry| entry.file_type().is_file())
        .map(|entry| {
            let path = entry.path().strip_prefix(root).expect("below").to_owned();
            (path, fs::read(entry.path()).expect("readable"))
        })
        .collect();
    files.sort();
    files
}

fn sorted_lines(bytes: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_tree_comes_back_byte_for_byte() {
    let dir = tempfile::tempdir().expect("a directory");
    let (server, _) = live(&dir.path().join("data"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let made = dir.path().join("made");
    fs::create_dir_all(made.join("deep/er")).expect("made");
    for (name, bytes) in [
        ("empty", vec![]),
        ("a file with spaces, commas \"quotes\"", b"x".to_vec()),
        ("deep/er/zeros", vec![0; 1 << 20]),
        ("deep/newline\nin name", b"\r\n\0".to_vec()),
        ("ümläut", (0..=255).collect()),
    ] {
        fs::write(made.join(name), bytes).expect("written");
    }
    for (number, source) in [source, made].iter().enumerate() {
        let table = format!("tree{number}");
        let out = dir.path().join(format!("out{number}"));
        let (from, to) = (source.to_str().expect("text"), out.to_str().expect("text"));
        let imported = run(&["import", &table, from, "--json", "-C", &server.coordinator]);
        let totals: serde_json::Value = serde_json::from_str(imported.ok()).expect("JSON");
        assert_eq!(totals["objects"], tree(source).len());
        assert_eq!(run(&["export", &table, to, "-q", "-C", &server.coordinator]).code, Some(0));
        assert!(tree(source) == tree(&out), "{from} and {to} differ");
        let again = run(&["export", &table, to, "-q", "-C", &server.coordinator]);
        assert_eq!(again.code, Some(1), "nothing is overwritten: {again:?}");
    }
    assert!(server.stop().success());
}

#[test]
fn rows_come_back_byte_for_byte() {
    let dir = tempfile::tempdir().expect("a directory");
    let (server, _) = live(&dir.path().join("data"));
    let file = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let export = |table: &str, to: &str, more: &[&str]| {
        let args: Vec<&str> = ["export", table, to, "-q", "-C", &server.coordinator]
            .into_iter()
            .chain(more.iter().copied())
            .collect();
        let ran = run(&args);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.stdout
    };

    let csv = "id,name,remark\n1,Ann,\"said \"\"hi\"\", twice\"\n2,Bob,\"two\nlines\"\n3,Žofie,\n";
    fs::write(file("users.csv"), csv).expect("written");
    run(&["import", "users", &file("users.csv"), "--key", "id", "-q", "-C", &server.coordinator])
        .ok();
    assert_eq!(run(&["get", "users", "3", "-C", &server.coordinator]).ok(), "3,Žofie,");
    export("users", &file("back.csv"), &[]);
    let back = fs::read_to_string(file("back.csv")).expect("written");
    let (header, rest) = back.split_once('\n').expect("a header");
    assert_eq!(header, "id,name,remark");
    let rows: Vec<&str> = csv.split_once('\n').expect("a header").1.split_inclusive('\n').collect();
    let mut back_rows: Vec<&str> = rest.split_inclusive('\n').collect();
    let mut rows_sorted = rows;
    rows_sorted.sort_unstable();
    back_rows.sort_unstable();
    assert_eq!(back_rows, rows_sorted);

    let lines =
        "{\"uuid\":\"a\",\"n\": 1}\n{\"n\":2.50,\"uuid\":\"b\"}\n  {\"uuid\":\"\\u0063\"}\n";
    fs::write(file("events.jsonl"), lines).expect("written");
    run(&[
        "import",
        "events",
        &file("events.jsonl"),
        "--key",
        "uuid",
        "-q",
        "-C",
        &server.coordinator,
    ])
    .ok();
    export("events", &file("back.jsonl"), &["--rows"]);
    let back = fs::read(file("back.jsonl")).expect("written");
    assert_eq!(sorted_lines(&back), sorted_lines(lines.as_bytes()));
    let piped = export("events", "-", &["--rows", "--format", "jsonl"]);
    assert_eq!(sorted_lines(&piped), sorted_lines(lines.as_bytes()));

    // Pairs of any bytes are exported, imported and exported again. Each file has the order of its
    // table; both have equal lines.
    run(&["table", "create", "any", "-C", &server.coordinator]).ok();
    for (key, value) in [
        ("plain", &b"text"[..]),
        ("bytes", &[0, 255, 10, 13]),
        ("empty", b""),
        ("quote\"s,", b"\""),
    ] {
        assert_eq!(run_with(&["put", "any", key, "-C", &server.coordinator], value).code, Some(0));
    }
    for format in ["csv", "tsv", "jsonl"] {
        let (one, two) = (file(&format!("one.{format}")), file(&format!("two.{format}")));
        export("any", &one, &[]);
        let table = format!("any-{format}");
        run(&["import", &table, &one, "-q", "-C", &server.coordinator]).ok();
        export(&table, &two, &[]);
        let (one, two) = (fs::read(one).expect("written"), fs::read(two).expect("written"));
        assert_eq!(sorted_lines(&one), sorted_lines(&two), "{format}");
        assert_eq!(
            run(&["get", &table, "bytes", "-C", &server.coordinator]).stdout,
            [0, 255, 10, 13]
        );
    }
    assert!(server.stop().success());
}

#[test]
fn completions_parse_in_their_shells() {
    for (shell, check) in [
        ("bash", &["bash", "-n"][..]),
        ("zsh", &["zsh", "-n"]),
        ("fish", &["fish", "--no-execute"]),
    ] {
        let script = run(&["completions", shell]);
        let text = script.ok();
        for word in ["import", "durability", "coordinator", "buffered"] {
            assert!(text.contains(word), "{shell} lacks {word}");
        }
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), text).expect("written");
        match Command::new(check[0])
            .args(&check[1..])
            .arg(file.path())
            .stdin(Stdio::null())
            .output()
        {
            Ok(output) => assert!(
                output.status.success(),
                "{shell}: {}",
                String::from_utf8_lossy(&output.stderr)
            ),
            Err(error) => {
                skip(&format!("completions are not parsed by {shell}, which is not here: {error}"))
            }
        }
    }
}

#[test]
fn man_pages_are_made_for_every_command() {
    let dir = tempfile::tempdir().expect("a directory");
    let pages = dir.path().join("man");
    assert_eq!(run(&["man", pages.to_str().expect("text")]).code, Some(0));
    for command in commands() {
        let words = command.iter().map(String::as_str);
        let name = std::iter::once("sprat").chain(words).collect::<Vec<_>>().join("-");
        let page = fs::read_to_string(pages.join(format!("{name}.1")))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(".TH") && page.contains(".SH NAME"), "{name}");
    }
    let file = dir.path().join("file");
    fs::write(&file, "").expect("written");
    let refused = run(&["man", file.join("below").to_str().expect("text")]);
    assert_eq!(refused.code, Some(1));
}

#[test]
fn failed_writes_are_errors() {
    let dir = tempfile::tempdir().expect("a directory");
    let (server, _) = live(&dir.path().join("data"));
    run(&["table", "create", "t", "-C", &server.coordinator]).ok();
    run(&["put", "t", "k", "v", "-C", &server.coordinator]).ok();
    let to = |device: &str, line: &str, more: &[&str]| {
        let out = fs::File::options().write(true).open(device).expect("a device");
        let ran = sprat()
            .args(line.split(' '))
            .args(more)
            .stdout(out)
            .stderr(Stdio::piped())
            .output()
            .expect("it runs");
        (ran.status.code(), String::from_utf8(ran.stderr).expect("text"))
    };
    let alone = [
        "--help",
        "get --help",
        "--version",
        "completions bash",
        "lab topologies",
        "rack examples",
    ];
    let asking = [
        "get t k",
        "get t k --json",
        "scan t",
        "scan t --json",
        "scan t --keys",
        "table list",
        "status",
    ];
    let asking = asking.into_iter().chain([
        "export t - --format csv -q",
        "put t k w",
        "table stats t --json",
    ]);
    let asking = asking.map(|line| (line, vec!["-C", server.coordinator.as_str()]));
    for (line, more) in alone.map(|line| (line, Vec::new())).into_iter().chain(asking) {
        let (code, stderr) = to("/dev/full", line, &more);
        assert!(
            code == Some(1) && stderr.contains("standard output: No space left"),
            "{line}: {code:?}, {stderr}"
        );
        assert_eq!(to("/dev/null", line, &more).0, Some(0), "{line}");
    }
    assert!(server.stop().success());
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = sprat()
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
