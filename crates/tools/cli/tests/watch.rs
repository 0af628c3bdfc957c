//! `sprat watch`, as people use it.

use crate::support::{ServerProcess, run, sprat};
use serde_json::Value;
use sprat_testing::{PATIENCE, free_port};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// A running `sprat watch`, which ends when it is dropped.
struct WatchProcess {
    child: Child,
    lines: Receiver<String>,
}

impl WatchProcess {
    fn start(words: &[&str]) -> Self {
        let mut command = sprat();
        let mut child =
            command.args(words).stdout(Stdio::piped()).spawn().expect("the binary runs");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut lines = stdout.lines().map_while(Result::ok);
            while lines.next().is_some_and(|line| sender.send(line).is_ok()) {}
        });
        Self { child, lines }
    }

    /// Returns the next line.
    fn line(&mut self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a change is printed")
    }
}

impl Drop for WatchProcess {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it was started");
    }
}

#[test]
fn changes_are_printed_as_they_happen() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let coordinator = format!("tcp:host=127.0.0.1,port={}", free_port());
    let listen = format!("fast+udp:host=127.0.0.1,port={}", free_port());
    let at = ["-C", &coordinator];
    let flags = ["--with-coordinator", "-L", &listen, "--memory", "64M", "--disk", "256M"];
    let flags = [&at[..], &flags].concat();
    let start = || ServerProcess::start(&data, &flags).unwrap_or_else(|error| panic!("{error}"));
    let mut server = start();
    let ask = |words: &[&str]| run(&[words, &at].concat()).ok().to_owned();
    ask(&["table", "create", "users"]);
    ask(&["put", "users", "ada", "36"]);
    let all = "0000000000000000..ffffffffffffffff";
    let state = dir.path().join("state");
    let state = state.to_str().expect("text");
    let words = [&["watch", "users", "--state", state][..], &at].concat();
    let mut watch = WatchProcess::start(&words);
    assert_eq!(watch.line(), format!("list\t{all}"));
    assert_eq!(watch.line(), "put\tada\t1\t36");
    assert_eq!(watch.line(), format!("listed\t{all}"));
    ask(&["put", "users", "ada", "37"]);
    assert_eq!(watch.line(), "put\tada\t2\t37");
    ask(&["incr", "users", "visits", "5"]);
    assert!(watch.line().starts_with("put\tvisits\t"));
    ask(&["txn", "put users ada 38", "del users visits"]);
    let mut both = [watch.line(), watch.line()];
    both.sort();
    assert_eq!(both, ["put\tada\t3\t38", "removed\tvisits"]);
    ask(&["put", "users", "brief", "x", "--ttl", "50ms"]);
    let line = watch.line();
    if line.starts_with("put\tbrief\t") {
        assert_eq!(watch.line(), "removed\tbrief", "it expires");
    } else {
        assert_eq!(line, "removed\tbrief", "it has expired before the watch saw it");
    }
    drop(watch);

    // Another watch goes on where that one stopped.
    ask(&["put", "users", "ada", "39"]);
    let mut watch = WatchProcess::start(&[&words[..], &["--json"]].concat());
    let changed = loop {
        let line: Value = serde_json::from_str(&watch.line()).expect("JSON");
        if line["event"] == "put" && line["key"] == "ada" {
            break line;
        }
    };
    assert_eq!(changed["value"], "39");
    assert_eq!(changed["position"].as_str().map(str::len), Some(16), "{changed}");
    // After a crash of the server, what exists is listed.
    server.kill();
    let server = start();
    ask(&["put", "users", "new", "1"]);
    let mut seen = Vec::new();
    while seen.last().is_none_or(|line: &String| !line.contains("\"listed\"")) {
        seen.push(watch.line());
    }
    // What was printed just before the first watch ended may be printed again.
    assert!(seen.iter().any(|line| line.contains("\"list\"")), "{seen:?}");
    assert!(seen.iter().any(|line| line.contains("\"39\"")), "{seen:?}");
    if !seen.iter().any(|line| line.contains("\"new\"")) {
        assert!(watch.line().contains("\"new\""), "it was stored after the list");
    }
    drop(watch);

    fs::write(state, "{}").expect("written");
    let refused = run(&words);
    assert!(refused.stderr.contains("not a file of `sprat watch --state`"), "{refused:?}");
    let gone = run(&["watch", "none", "-C", &coordinator]);
    assert_eq!(gone.code, Some(3), "{gone:?}");
    let now = run(&["watch", "users", "--for", "300ms", "-C", &coordinator]);
    assert_eq!(now.ok(), "", "nothing changes");
    assert!(server.stop().success());
}
