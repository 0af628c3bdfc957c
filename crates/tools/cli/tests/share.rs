//! Tests `sprat share` by its binary.

use crate::support;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Stdio};
use support::{run, sprat};

/// A server and its output.
struct Server {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Server {
    fn start(flags: &[&str], directory: &std::path::Path) -> Self {
        let mut child = sprat()
            .args(["share", directory.to_str().expect("text"), "--port", "0"])
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("another line").expect("text")
    }

    fn json(&mut self) -> Value {
        serde_json::from_str(&self.line()).expect("JSON")
    }

    fn interrupt(&self) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it runs");
    }

    fn end(mut self) -> (Option<i32>, String) {
        let mut stderr = String::new();
        self.child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("text");
        (self.child.wait().expect("it ends").code(), stderr)
    }
}

fn get(host: &str, path: &str) -> String {
    let mut tcp = TcpStream::connect(host).expect("it listens");
    write!(tcp, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).expect("text");
    answer
}

#[test]
fn it_prints_its_address_and_its_files() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("file"), "content").expect("written");
    let mut server = Server::start(&["--listen", "127.0.0.1"], directory.path());
    assert!(server.line().starts_with("sharing "));
    let url = server.line();
    let host = url
        .trim()
        .strip_prefix("http://")
        .and_then(|url| url.strip_suffix('/'))
        .expect("an address");
    assert_eq!(server.line(), format!("fetch a file with: sprat cp sprat://{host}/NAME ."));
    assert!(get(host, "/file").ends_with("\r\n\r\ncontent"));
    assert!(server.line().contains(" GET /file 200, 7 B in "));
    assert!(get(host, "/%0afile").starts_with("HTTP/1.1 404"));
    assert!(server.line().contains(" GET /%0Afile 404"), "a path is one line");
    server.interrupt();
    assert_eq!(server.end(), (Some(0), String::new()));
}

#[test]
fn programs_read_json() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("file"), "content").expect("written");
    let mut server = Server::start(&["--json", "--tls-self"], directory.path());
    let listening = server.json();
    assert_eq!(listening["event"], "listening");
    let urls = listening["urls"].as_array().expect("addresses");
    assert!(
        urls.iter()
            .any(|url| url.as_str().is_some_and(|url| url.starts_with("https://127.0.0.1:"))),
        "{urls:?}"
    );
    assert_eq!(listening["fingerprint"].as_str().map(str::len), Some(32 * 3 - 1));
    let url = urls
        .iter()
        .filter_map(Value::as_str)
        .find(|url| url.contains("127.0.0.1"))
        .expect("loopback");
    let Ok(fetched) =
        std::process::Command::new("curl").args(["-sk", &format!("{url}file")]).output()
    else {
        return support::skip("curl is not installed: sprat share with TLS was not tried with it");
    };
    assert_eq!(fetched.stdout, b"content");
    let answer = server.json();
    assert_eq!(
        (&answer["path"], &answer["status"], &answer["bytes"]),
        (&"/file".into(), &200.into(), &7.into())
    );
    assert!(answer["rtt_ms"].is_f64() && answer["retransmitted"].is_u64(), "{answer}");
    server.interrupt();
    assert_eq!(server.json()["event"], "stopped");
    let (code, stderr) = server.end();
    assert_eq!(code, Some(0));
    assert!(stderr.contains("--token-file"), "it warns about other machines: {stderr}");
}

#[test]
fn programs_receive_progress() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::File::create(directory.path().join("large"))
        .expect("made")
        .set_len(4 << 30)
        .expect("a hole");
    let mut server = Server::start(&["--json", "--listen", "127.0.0.1"], directory.path());
    let url = server.json()["urls"][0].as_str().expect("an address").to_owned();
    let mut tcp = TcpStream::connect(url.trim_start_matches("http://").trim_end_matches('/'))
        .expect("it listens");
    write!(tcp, "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let progress = server.json();
    assert_eq!(
        (&progress["event"], &progress["path"], &progress["total"]),
        (&"transfer".into(), &"/large".into(), &(4u64 << 30).into())
    );
    assert!(
        progress["sent"].as_u64() < progress["total"].as_u64()
            && progress["rtt_ms"].is_f64()
            && progress["history"].is_null()
    );
    server.interrupt();
    drop(tcp);
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_certificate_is_written_for_clients() {
    let directory = tempfile::tempdir().expect("a directory");
    let (served, pem) = (directory.path().join("served"), directory.path().join("cert.pem"));
    std::fs::create_dir(&served).expect("made");
    std::fs::write(served.join("file"), "content").expect("written");
    let save = pem.to_str().expect("text");
    let mut server =
        Server::start(&["--listen", "127.0.0.1", "--tls-self", "--tls-save", save], &served);
    server.line();
    let url = format!("{}file", server.line().trim());
    let fetched = std::process::Command::new("curl").args(["-s", "--cacert", save, &url]).output();
    match fetched {
        Ok(fetched) => assert_eq!(fetched.stdout, b"content"),
        Err(_) => {
            support::skip("curl is not installed: sprat share with TLS was not tried with it")
        }
    }
    server.interrupt();
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let ran = run(&["share", ".", "--listen", &address]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains(&format!("cannot listen at {address}: ")), "{ran:?}");
}

#[test]
fn tokens_are_read_again_on_demand() {
    let directory = tempfile::tempdir().expect("a directory");
    let (served, tokens) = (directory.path().join("served"), directory.path().join("tokens"));
    std::fs::create_dir(&served).expect("made");
    std::fs::write(served.join("file"), "content").expect("written");
    std::fs::write(&tokens, "a-token-of-long-ago\n").expect("written");
    let flags = ["--listen", "127.0.0.1", "--token-file", tokens.to_str().expect("text")];
    let mut server = Server::start(&flags, &served);
    server.line();
    let url = server.line();
    let host = url.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
    assert!(get(&host, "/file?token=a-token-of-long-ago").ends_with("content"));
    std::fs::write(&tokens, "a-token-of-today\n").expect("written");
    let id = rustix::process::Pid::from_child(&server.child);
    rustix::process::kill_process(id, rustix::process::Signal::HUP).expect("it runs");
    let begun = std::time::Instant::now();
    while !get(&host, "/file?token=a-token-of-today").ends_with("content") {
        // Each request makes a line of output, which the test must read.
        server.line();
        #[expect(clippy::disallowed_methods, reason = "the test waits for another process")]
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "they are not read again");
    }
    assert!(get(&host, "/file?token=a-token-of-long-ago").starts_with("HTTP/1.1 401"));
    server.interrupt();
    assert_eq!(server.end().0, Some(0));
}
