//! Tests `sprat browser host` as a browser uses it: with frames on its standard input and output.

use crate::support;
use serde_json::{Value, json};
use sprat_browser::protocol::frame;
use sprat_browser::{MAX_RUNNING, MAX_WAITING};
use sprat_flow::share::{Options, Pace, Share};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use support::sprat;

/// A process of the native messaging host, and its pipes.
struct Host {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
}

impl Host {
    /// Starts a host that saves files in `folder`, and sends the host the hello.
    fn start(folder: &Path) -> Self {
        let mut host = Self::without_hello(folder);
        host.send(&json!({ "type": "hello", "protocol": 1 }));
        let hello = host.report();
        assert_eq!((&hello["type"], &hello["protocol"]), (&"hello".into(), &1.into()), "{hello}");
        assert_eq!(hello["folder"], folder.to_str().unwrap());
        host
    }

    fn without_hello(folder: &Path) -> Self {
        Self::run(sprat(), folder)
    }

    /// Starts a host with the desktop's programs in `path`.
    fn start_with(folder: &Path, path: &Path) -> Self {
        let mut command = sprat();
        command.env("PATH", path);
        let mut host = Self::run(command, folder);
        host.send(&json!({ "type": "hello", "protocol": 1 }));
        host.until("hello");
        host
    }

    fn run(mut command: Command, folder: &Path) -> Self {
        let mut child = command
            .args([
                "browser",
                "host",
                "--downloads",
                folder.to_str().unwrap(),
                "--",
                "manifest.json",
                "browser@sprat",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        Self { child, stdin, stdout }
    }

    fn send(&mut self, request: &Value) {
        frame::write(self.stdin.as_mut().unwrap(), request.to_string().as_bytes()).unwrap();
    }

    fn report(&mut self) -> Value {
        let mut head = [0; 4];
        self.stdout.read_exact(&mut head).unwrap();
        let mut body = vec![0; u32::from_ne_bytes(head) as usize];
        self.stdout.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    /// Reads reports until one has the type `kind`, and returns this report. Panics if `failed`,
    /// `refused` or `done` comes first.
    #[track_caller]
    fn until(&mut self, kind: &str) -> Value {
        loop {
            let report = self.report();
            if report["type"] == kind {
                return report;
            }
            assert!(
                !matches!(report["type"].as_str(), Some("failed" | "refused" | "done")),
                "{kind}? {report}"
            );
        }
    }

    /// Closes the host's input, as a browser does, and waits. Returns the host's exit code and
    /// standard error.
    fn close(mut self) -> (Option<i32>, String) {
        self.stdin = None;
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (self.child.wait().unwrap().code(), stderr)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The rate of each of sixteen connections. It is slow enough that a copy does not end before the
/// test stops it.
const SLOW: Pace = Pace::Limit(100_000_000 / 8 / 16);

/// Shares a directory. Each connection has this rate.
fn share(directory: &Path, pace: Pace) -> (Share, String) {
    let mut options = Options::new(directory.to_owned(), vec!["127.0.0.1:0".parse().unwrap()]);
    options.pace = pace;
    let share = Share::start(options).unwrap();
    let url = format!("http://{}", share.addresses()[0]);
    (share, url)
}

fn content(bytes: usize) -> Vec<u8> {
    (0..u32::try_from(bytes).unwrap())
        .map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3])
        .collect()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn downloads_are_verified_and_never_replace_another_file() {
    let (source, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bytes = content((3 << 20) + 5);
    fs::write(source.path().join("a b.tar.gz"), &bytes).unwrap();
    let (_share, url) = share(source.path(), Pace::Off);
    let mut host = Host::start(folder.path());
    for (id, name) in [("1", "a b.tar.gz"), ("2", "a b (1).tar.gz")] {
        host.send(&json!({
            "type": "start", "id": id, "source": format!("{url}/a%20b.tar.gz?download=sprat"),
        }));
        let opened = host.until("opened");
        assert_eq!(
            (&opened["id"], &opened["name"], &opened["verified"]),
            (&id.into(), &name.into(), &true.into())
        );
        let done = host.until("done");
        assert_eq!(
            (&done["id"], &done["name"], &done["verified"]),
            (&id.into(), &name.into(), &true.into())
        );
        assert_eq!(done["blake3"].as_str().map(str::len), Some(64));
        assert_eq!(fs::read(folder.path().join(name)).unwrap(), bytes);
    }
    // A download that fails because of the source's answer.
    host.send(&json!({ "type": "start", "id": "3", "source": format!("{url}/none") }));
    let failed = host.until("failed");
    assert_eq!((&failed["id"], &failed["code"]), (&"3".into(), &"not_found".into()));
    host.send(&json!({ "type": "probe", "id": "4", "source": format!("{url}/a%20b.tar.gz") }));
    assert_eq!(host.until("probed")["verified"], true);
    host.send(&json!({ "type": "probe", "id": "5", "source": "http://127.0.0.1:1/x" }));
    assert_eq!(host.until("probed")["verified"], false);
    assert_eq!(names(folder.path()), ["a b (1).tar.gz", "a b.tar.gz"]);
    assert_eq!(host.close(), (Some(0), String::new()));
}

#[test]
fn a_pause_keeps_the_partial_file_and_a_cancel_does_not() {
    let (source, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bytes = content(64 << 20);
    fs::write(source.path().join("file"), &bytes).unwrap();
    let (slow, fast) = (share(source.path(), SLOW), share(source.path(), Pace::Off));
    let url = format!("{}/file", slow.1);
    let mut host = Host::start(folder.path());
    let begin = |host: &mut Host, id: &str, name: Option<&str>| {
        let mut request = json!({ "type": "start", "id": id, "source": url });
        name.inspect(|name| request["name"] = (*name).into());
        host.send(&request);
        let opened = host.until("opened");
        loop {
            let done = host.until("progress")["done"].as_u64().unwrap();
            if done >= (2 << 20) {
                break (opened, done);
            }
        }
    };
    // At least: the resumed bytes alone can be enough, so that the copy is stopped at once.
    let resumes = |opened: &Value, done: u64| {
        assert!(opened["resumed"].as_u64() >= Some(done), "{opened}: {done} B were done before");
    };
    let (_, done) = begin(&mut host, "1", None);
    host.send(&json!({ "type": "cancel", "id": "1", "discard": false }));
    assert_eq!(host.until("stopped")["discarded"], false);
    assert_eq!(names(folder.path()), ["file.sprat-journal", "file.sprat-part"]);
    // A different source with the same name gets another file. The original source resumes its
    // file, with or without `resume`.
    host.send(&json!({ "type": "start", "id": "2", "source": format!("{}/file", fast.1) }));
    assert_eq!(host.until("done")["name"], "file (1)");
    let (opened, more) = begin(&mut host, "3", Some("file"));
    resumes(&opened, done);
    host.send(&json!({ "type": "cancel", "id": "3", "discard": false }));
    host.until("stopped");
    let (opened, done) = begin(&mut host, "4", None);
    assert_eq!(opened["name"], "file");
    resumes(&opened, more);
    // The browser closes the connection: partial files stay.
    assert_eq!(host.close(), (Some(0), String::new()));
    let mut host = Host::start(folder.path());
    let (opened, _) = begin(&mut host, "5", Some("file"));
    resumes(&opened, done);
    host.send(&json!({ "type": "cancel", "id": "5", "discard": true }));
    assert_eq!(host.until("stopped")["discarded"], true);
    assert_eq!(names(folder.path()), ["file (1)"]);
    // A download that is not running can also be cancelled.
    begin(&mut host, "6", None);
    host.send(&json!({ "type": "cancel", "id": "6", "discard": false }));
    host.until("stopped");
    host.send(&json!({ "type": "discard", "id": "6", "name": "file" }));
    assert_eq!(host.until("stopped")["discarded"], true);
    assert_eq!(names(folder.path()), ["file (1)"]);
    assert_eq!(fs::read(folder.path().join("file (1)")).unwrap(), bytes);
}

#[test]
fn a_killed_host_leaves_downloads_that_the_next_one_resumes() {
    let (source, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bytes = content(24 << 20);
    fs::write(source.path().join("file"), &bytes).unwrap();
    let (_share, url) = share(source.path(), SLOW);
    let start = json!({ "type": "start", "id": "1", "source": format!("{url}/file") });
    let mut host = Host::start(folder.path());
    host.send(&start);
    while host.until("progress")["done"].as_u64().unwrap() < (2 << 20) {}
    host.child.kill().unwrap();
    drop(host);
    assert!(!folder.path().join("file").exists());
    let mut host = Host::start(folder.path());
    host.send(&start);
    assert_eq!(host.until("opened")["name"], "file");
    host.until("done");
    assert_eq!(fs::read(folder.path().join("file")).unwrap(), bytes);
    assert_eq!(names(folder.path()), ["file"]);
}

#[test]
fn many_wait_for_their_turn_and_too_many_are_refused() {
    let (source, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(source.path().join("file"), content(8 << 20)).unwrap();
    let (_share, url) = share(source.path(), Pace::Limit(1_000_000));
    let mut host = Host::start(folder.path());
    let most = MAX_RUNNING + MAX_WAITING;
    for id in 0..=most {
        host.send(
            &json!({ "type": "start", "id": id.to_string(), "source": format!("{url}/file") }),
        );
    }
    let (mut waiting, mut opened) = (0, 0);
    loop {
        let report = host.report();
        match report["type"].as_str().unwrap() {
            "waiting" => waiting += 1,
            "opened" => opened += 1,
            "refused" => {
                assert_eq!(report["id"], most.to_string(), "the last: {report}");
                break;
            }
            other => assert_eq!(other, "progress", "{report}"),
        }
    }
    assert_eq!(waiting, MAX_WAITING);
    // A download that ends makes room. A waiting download stops at once.
    host.send(&json!({ "type": "cancel", "id": "5", "discard": true }));
    loop {
        // Running downloads may begin meanwhile.
        let report = host.report();
        match report["type"].as_str().unwrap() {
            "stopped" => {
                assert_eq!(report["id"], "5");
                break;
            }
            "opened" => opened += 1,
            other => assert_eq!(other, "progress", "{report}"),
        }
    }
    while opened < MAX_RUNNING {
        host.until("opened");
        opened += 1;
    }
    host.send(&json!({ "type": "cancel", "id": "0", "discard": true }));
    assert_eq!(host.until("stopped")["id"], "0");
    assert_eq!(host.until("opened")["id"], "4", "the first of the waiting downloads");
    assert_eq!(host.close().0, Some(0));
}

#[test]
fn nonsense_is_refused_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = Host::without_hello(folder.path());
    let start = |name: &str, source: &str| {
        json!({
            "type": "start", "id": "1", "source": source, "name": name,
        })
    };
    for request in [
        json!({ "type": "show", "id": "1" }),
        json!({ "type": "hello", "protocol": 2 }),
        json!({ "type": "hello", "protocol": 1, "more": true }),
        json!([]),
        json!({ "type": "remove", "id": "1" }),
        start("ok", "file:///etc/passwd"),
        start("ok", "/etc/passwd"),
        start("../ok", "http://127.0.0.1/x"),
        start(".ssh", "http://127.0.0.1/x"),
        start("x.sprat-part", "http://127.0.0.1/x"),
        json!({ "type": "start", "id": "../1", "source": "http://127.0.0.1/x" }),
        json!({ "type": "discard", "id": "1", "name": "/etc/passwd" }),
    ] {
        host.send(&request);
        let report = host.report();
        assert_eq!(report["type"], "refused", "{request}: {report}");
    }
    host.send(&json!({ "type": "hello", "protocol": 1 }));
    assert_eq!(host.report()["type"], "hello");
    host.send(&json!({ "type": "cancel", "id": "1", "discard": true }));
    assert_eq!(host.report()["type"], "refused", "no download of that name runs");
    assert!(names(folder.path()).is_empty());
    // After a frame that is too long, the host cannot find the next one, and ends.
    host.stdin.as_mut().unwrap().write_all(&u32::MAX.to_ne_bytes()).unwrap();
    let (code, stderr) = host.close();
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("a message of 4294967295 B"), "{stderr}");
}

#[test]
fn the_folder_is_shown_by_the_desktop() {
    let (folder, desktop) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (opens, opened) = (desktop.path().join("xdg-open"), desktop.path().join("opened"));
    let mut host = Host::start_with(folder.path(), desktop.path());
    host.send(&json!({ "type": "show", "id": "1" }));
    let report = host.report();
    assert_eq!(
        (&report["type"], &report["id"]),
        (&"refused".into(), &"1".into()),
        "there is no file yet: {report}"
    );
    let script = format!(
        "#!/bin/sh\nprintf %s \"$1\" >'{0}.new' && /bin/mv '{0}.new' '{0}'\n",
        opened.display()
    );
    fs::write(&opens, script).unwrap();
    fs::set_permissions(&opens, fs::Permissions::from_mode(0o755)).unwrap();
    host.send(&json!({ "type": "show", "id": "2" }));
    assert_eq!(host.until("shown")["id"], "2");
    while !opened.exists() {
        std::thread::yield_now();
    }
    assert_eq!(fs::read_to_string(opened).unwrap(), folder.path().to_str().unwrap());
}
