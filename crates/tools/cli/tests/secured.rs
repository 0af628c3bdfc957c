//! Tests real processes with identities. Holders of an identity can do what their permissions
//! allow. Others get no answer.

use crate::support;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use support::{CommandResult, PATIENCE, ServerProcess, TCP, UDP, free_port, leased_sprat, run};

/// Timeout of requests that get no answer.
const SHORT: &str = "700ms";

/// Exit codes.
const UNREACHABLE: i32 = 5;
const DENIED: i32 = 8;

/// A cluster's root key, and the identities issued with it.
struct Keys(tempfile::TempDir);

impl Keys {
    fn make() -> Self {
        let keys = Self(tempfile::tempdir().expect("a directory"));
        run(&["key", "init", "--root", &keys.path("root")]).ok();
        keys
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("text").to_owned()
    }

    /// Issues an identity. Returns its file.
    fn issue(&self, name: &str, flags: &[&str]) -> String {
        let file = self.path(name);
        let words = ["key", "issue", "--root", &self.path("root"), "-o", &file, "--name", name];
        run(&[&words, flags].concat()).ok();
        file
    }
}

/// Runs a command against a coordinator, with an identity.
fn ask(coordinator: &str, identity: Option<&str>, words: &[&str]) -> CommandResult {
    let mut all = words.to_vec();
    all.extend(["-C", coordinator]);
    if let Some(identity) = identity {
        all.extend(["--identity", identity]);
    }
    run(&all)
}

fn small() -> [&'static str; 4] {
    ["--memory", "64M", "--disk", "256M"]
}

fn identities_have_their_permissions(listen: &str) {
    let keys = Keys::make();
    let (server, admin) =
        (keys.issue("s", &["--role", "server"]), keys.issue("a", &["--role", "admin"]));
    let reader = keys.issue("r", &["--role", "client", "--table", "log-*:r"]);
    let writer =
        keys.issue("w", &["--role", "client", "--table", "log-a:rw", "--table", "users:rw"]);
    let mixed = keys.issue("m", &["--role", "client", "--table", "log-a:r", "--table", "users:rw"]);
    let elsewhere = Keys::make();
    let stranger = elsewhere.issue("x", &["--role", "admin"]);
    let data = tempfile::tempdir().expect("a directory");
    let flags = [&small()[..], &["-L", listen, "--identity", &server]].concat();
    let process =
        ServerProcess::start(data.path(), &flags).unwrap_or_else(|error| panic!("{error}"));
    let at = process.coordinator.as_str();
    for table in ["log-a", "log-b", "users"] {
        ask(at, Some(&admin), &["table", "create", table]).ok();
    }
    let code = |identity: &str, words: &[&str]| ask(at, Some(identity), words).code;
    // The writer has its tables. The reader can read the tables that its pattern matches.
    ask(at, Some(&writer), &["put", "log-a", "k", "v"]).ok();
    ask(at, Some(&writer), &["put", "users", "u", "1"]).ok();
    assert_eq!(ask(at, Some(&reader), &["get", "log-a", "k"]).ok(), "v");
    assert_eq!(
        code(&reader, &["get", "log-b", "k"]),
        Some(3),
        "there is no object, and the reader may know this"
    );
    ask(at, Some(&reader), &["scan", "log-a"]).ok();
    for words in [
        &["put", "log-a", "k", "w"][..],
        &["del", "log-a", "k"],
        &["incr", "log-a", "n"],
        &["get", "users", "u"],
        // The refusal does not reveal whether the table exists.
        &["get", "none", "u"],
        &["table", "create", "log-c"],
        &["table", "drop", "log-a"],
        &["status"],
    ] {
        assert_eq!(code(&reader, words), Some(DENIED), "{words:?}");
    }
    assert_eq!(code(&writer, &["get", "log-b", "k"]), Some(DENIED));
    let (backups, refused) = (keys.path("backups"), keys.path("refused"));
    assert_eq!(code(&writer, &["backup", "create", &refused]), Some(DENIED));
    ask(at, Some(&admin), &["backup", "create", &backups]).ok();
    assert_eq!(code(&writer, &["restore", &backups, "users=log-a2"]), Some(DENIED));
    assert_eq!(code(&writer, &["table", "drop", "users"]), Some(DENIED));
    assert_eq!(code(&server, &["table", "create", "log-c"]), Some(DENIED));
    let listed = ask(at, Some(&writer), &["table", "list"]).ok().to_owned();
    assert!(
        listed.contains("log-a") && listed.contains("users") && !listed.contains("log-b"),
        "{listed}"
    );
    assert_eq!(ask(at, Some(&reader), &["get", "log-a", "k"]).ok(), "v", "nothing was changed");
    // A transaction needs the right to read the objects on which it depends, and the right to
    // change those that it changes. Without one of them nothing is changed.
    ask(at, Some(&reader), &["txn", "get log-a k", "get log-b k"]).ok();
    ask(at, Some(&mixed), &["txn", "equal log-a k v", "put users u 2"]).ok();
    for step in ["put log-a k x", "del log-a k", "put log-b k x", "get log-b k"] {
        assert_eq!(code(&mixed, &["txn", step, "put users u 3"]), Some(DENIED), "{step}");
    }
    assert_eq!(ask(at, Some(&mixed), &["get", "users", "u"]).ok(), "2");
    ask(at, Some(&admin), &["status"]).ok();
    // Clients without an identity of this cluster get no answer.
    for identity in [None, Some(stranger.as_str())] {
        let ran = ask(at, identity, &["get", "log-a", "k", "--timeout", SHORT]);
        assert_eq!(ran.code, Some(UNREACHABLE), "{ran:?}");
        assert!(ran.stderr.contains("--identity"), "{ran:?}");
    }
    // Garbage gets no answer either, if the server listens at a UDP port.
    for (at, is_udp) in [(process.listen.as_str(), listen == UDP), (at, false)] {
        let port: u16 = at.rsplit('=').next().and_then(|port| port.parse().ok()).expect("a port");
        if is_udp {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            socket.set_read_timeout(Some(Duration::from_millis(300))).expect("a time");
            for kind in [1u8, 4, 10, 0xc1, 0xc2, 0xc3, 0xc4] {
                socket.send_to(&[kind; 512], ("127.0.0.1", port)).expect("sent");
                let mut hello = [0; 512];
                (hello[0], hello[1]) = (kind, 1);
                socket.send_to(&hello, ("127.0.0.1", port)).expect("sent");
            }
            assert!(socket.recv(&mut [0; 2048]).is_err(), "no answer");
        }
    }
    assert_eq!(ask(at, Some(&reader), &["get", "log-a", "k"]).ok(), "v");
    assert!(process.stop().success());
}

#[test]
fn identities_have_their_permissions_over_udp() {
    identities_have_their_permissions(UDP);
}

#[test]
fn identities_have_their_permissions_over_tcp() {
    identities_have_their_permissions(TCP);
}

/// A coordinator in a separate process. Dropping this value kills the process.
struct Coordinator(Child);

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

fn coordinator(locator: &str, data: &Path, identity: &str) -> Coordinator {
    let mut command = leased_sprat();
    command.args(["coordinator", "-C", locator, "--identity", identity, "--data"]).arg(data);
    Coordinator(
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary runs"),
    )
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test's thread is no node")]
fn a_secured_cluster_outlives_a_server_and_admits_no_stranger() {
    let keys = Keys::make();
    let server = keys.issue("s", &["--role", "server"]);
    let client = keys.issue("c", &["--role", "client", "--table", "*:rw"]);
    let admin = keys.issue("a", &["--role", "admin"]);
    let elsewhere = Keys::make();
    let stranger = elsewhere.issue("x", &["--role", "server"]);
    let dir = tempfile::tempdir().expect("a directory");
    let at = format!("tcp:host=127.0.0.1,port={}", free_port());
    let _coordinator = coordinator(&at, &dir.path().join("coordinator"), &server);
    let start = |number: usize, identity: &str| {
        let listen = format!("fast+udp:host=127.0.0.1,port={}", free_port());
        let flags = [
            "-C", &at, "-L", &listen, "-r", "2", "--memory", "64M", "--disk", "1G", "--idle",
            "sleep",
        ];
        let flags = [&flags[..], &["--durability", "buffered", "--identity", identity]].concat();
        ServerProcess::start(&dir.path().join(number.to_string()), &flags)
    };
    let mut servers: Vec<_> =
        (0..4).map(|number| start(number, &server).expect("it starts")).collect();
    ask(&at, Some(&admin), &["table", "create", "t"]).ok();
    for number in 0..20 {
        ask(&at, Some(&client), &["put", "t", &number.to_string(), &format!("value {number}")])
            .ok();
    }
    let tables = ask(&at, Some(&admin), &["table", "list", "--json"]).ok().to_owned();
    let holder = servers
        .iter()
        .position(|server| tables.contains(&server.listen))
        .expect("a server has the table");
    servers[holder].kill();
    let until = Instant::now() + PATIENCE;
    while ask(&at, Some(&client), &["get", "t", "7"]).code != Some(0) {
        assert!(Instant::now() < until, "the table does not come back");
    }
    for number in 0..20 {
        let ran = ask(&at, Some(&client), &["get", "t", &number.to_string()]);
        assert_eq!(ran.ok(), format!("value {number}"));
    }
    // A client's identity cannot enlist as a server, nor can a server of another cluster.
    let refused = start(8, &client).err().expect("refused");
    assert!(refused.contains("this identity may not do that"), "{refused}");
    let mut outside = ServerProcess::spawn(
        &dir.path().join("outside"),
        &["-C", &at, "-L", UDP, "--memory", "64M", "--disk", "1G", "--identity", &stranger],
    );
    std::thread::sleep(Duration::from_secs(3));
    assert!(!outside.new_stderr().contains("ready"));
    outside.kill();
}

#[test]
fn reachable_addresses_need_an_identity() {
    let data = tempfile::tempdir().expect("a directory");
    let open = "fast+udp:host=0.0.0.0,port=0";
    let refused = ServerProcess::start(data.path(), &["-L", open]).err().expect("refused");
    for word in [open, "sprat key init", "--insecure"] {
        assert!(refused.contains(word), "{refused}");
    }
    let refused = run(&[
        "coordinator",
        "-C",
        "tcp:host=0.0.0.0,port=0",
        "--data",
        &data.path().display().to_string(),
    ]);
    assert!(refused.code == Some(1) && refused.stderr.contains("--insecure"), "{refused:?}");
    let flags = [&small()[..], &["-L", open, "--insecure"]].concat();
    let server = ServerProcess::start(data.path(), &flags).expect("--insecure allows it");
    assert!(server.startup_log.contains("WARNING"), "{}", server.startup_log);
    assert!(server.stop().success());
    let keys = Keys::make();
    let identity = keys.issue("s", &["--role", "server"]);
    let flags = [&small()[..], &["-L", open, "--identity", &identity]].concat();
    let server = ServerProcess::start(data.path(), &flags).expect("it has an identity");
    assert!(!server.startup_log.contains("WARNING"), "{}", server.startup_log);
    assert!(server.stop().success());
}

#[test]
fn keys_are_described_and_protected() {
    let keys = Keys::make();
    let client = keys.issue("c", &["--role", "client", "--table", "log-*:r", "--days", "3"]);
    let shown = run(&["key", "show", &client]).ok().to_owned();
    assert!(
        shown.starts_with("client `c` of cluster ") && shown.contains("reads log-*"),
        "{shown}"
    );
    let json: serde_json::Value =
        serde_json::from_str(run(&["key", "show", &client, "--json"]).ok()).expect("JSON");
    assert_eq!(
        (&json["role"], &json["tables"][0], &json["valid"]),
        (&"client".into(), &"log-*:r".into(), &true.into())
    );
    let root = run(&["key", "show", &keys.path("root")]).ok().to_owned();
    assert!(root.contains(json["cluster"].as_str().expect("text")), "{root}");
    for secret in [
        std::fs::read_to_string(&client).expect("ours"),
        std::fs::read_to_string(keys.path("root")).expect("ours"),
    ] {
        let line = secret.lines().nth(1).expect("lines");
        assert!(!shown.contains(line) && !root.contains(line));
    }
    // Existing keys are not overwritten, and keys that others can read are not used.
    assert_eq!(run(&["key", "init", "--root", &keys.path("root")]).code, Some(1));
    std::fs::set_permissions(PathBuf::from(&client), std::fs::Permissions::from_mode(0o644))
        .expect("ours");
    for words in [&["key", "show", &client][..], &["get", "t", "k", "--identity", &client]] {
        let ran = run(words);
        assert!(ran.code == Some(1) && ran.stderr.contains("chmod 600"), "{ran:?}");
    }
    for words in [
        &["--role", "client"][..],
        &["--role", "client", "--table", "t"],
        &["--role", "client", "--table", "t:w"],
        &["--role", "server", "--table", "t:r"],
        &["--role", "king"],
    ] {
        let ran =
            run(&[&["key", "issue", "--root", &keys.path("root"), "-o", &keys.path("no")], words]
                .concat());
        assert!(ran.code.is_some_and(|code| code > 0), "{words:?}");
    }
    assert!(!Path::new(&keys.path("no")).exists());
}
