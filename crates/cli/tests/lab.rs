//! `sprat lab run`, by its binary: in network namespaces of the test's own.

mod support;

use nix::sched::{CloneFlags, unshare};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::panic::resume_unwind;
use std::process::{Child, Stdio};
use std::thread;
use support::{run, skip, sprat};

/// Runs a test on a thread in a network namespace of its own. Says so where the machine does not allow that.
fn alone(test: impl FnOnce() + Send) {
    let run = || {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|error| format!("a network namespace: {error}"))?;
        std::fs::metadata("/dev/net/tun").map_err(|error| format!("/dev/net/tun: {error}"))?;
        test();
        Ok::<_, String>(())
    };
    match thread::scope(|scope| scope.spawn(run).join()) {
        Ok(Ok(())) => {}
        Ok(Err(why)) => skip(&format!("sprat lab run: {why}")),
        Err(panic) => resume_unwind(panic),
    }
}

/// Where the boxes of these tests are found, and none of the machine's.
const STATE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/lab-run");

/// Exit codes of a box that ran to its end: it kept up, or the machine was too busy for that.
const ENDED: [Option<i32>; 2] = [Some(0), Some(7)];

#[test]
fn it_runs_for_as_long_as_it_was_told() {
    alone(|| {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("box.toml");
        let text = "[line]\ndelay = \"10ms\"\n[[port]]\nopen = \"tap:a0\"\n[[port]]\nopen = \"tap:b0,mtu=9000\"\n";
        std::fs::write(&path, text).expect("written");
        let config = path.to_str().expect("text");
        let ran = run(&[
            "lab",
            "run",
            "--config",
            config,
            "--to",
            "b0:rate=1Gb/s,loss=list:1,2",
            "--duration",
            "300ms",
            "--json",
            "--state",
            STATE,
        ]);
        assert!(ENDED.contains(&ran.code), "{ran:?}");
        assert!(ran.stderr.contains("tap:a0 <-> tap:b0,mtu=9000"), "{ran:?}");
        let report: Value = serde_json::from_str(ran.text()).expect("JSON");
        let lines: Vec<_> = report["lines"].as_array().expect("lines").iter().map(|line| &line["to"]).collect();
        assert_eq!(lines, ["b0", "a0"]);
        assert_eq!(report["inputs"].as_array().map(Vec::len), Some(2));
        assert!(report["lines"][0]["drops"]["loss"].is_u64(), "{report}");
        assert_eq!(report["behind"].as_array().map(Vec::is_empty), Some(ran.code == Some(0)), "{report}");
    });
}

/// Starts a box that nobody told when to end, and waits until it runs.
fn started() -> Child {
    let mut child = sprat()
        .args(["lab", "run", "--port", "tap:a0", "--port", "tap:b0", "--port", "tap:c0", "--quiet", "--state", STATE])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("the box runs")), "it ended instead");
    child
}

#[test]
fn ctrl_c_ends_it_with_its_counters() {
    alone(|| {
        let mut child = started();
        let id = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it runs");
        let mut text = String::new();
        child.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
        let code = child.wait().expect("it ends").code();
        assert!(ENDED.contains(&code), "{code:?}");
        assert!(text.contains("to a0: ") && text.contains("switch: "), "{text}");
    });
}

#[test]
fn a_tap_that_somebody_has_is_said() {
    alone(|| {
        let mut child = started();
        let ran = run(&["lab", "run", "--port", "tap:a0", "--port", "tap:d0", "--state", STATE]);
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains("port a0: making the TAP") && ran.stderr.contains("another process"), "{ran:?}");
        let ran = run(&["lab", "run", "--port", "tap:d0", "--port", "tap:e0@nowhere", "--state", STATE]);
        assert!(ran.stderr.contains("make it with: ip netns add nowhere"), "{ran:?}");
    });
}

#[test]
fn without_rights_it_says_which() {
    const NOBODY: u32 = 65_534;
    let command = &mut sprat();
    let command = command.args(["lab", "run", "--port", "tap:a0", "--port", "tap:b0"]).uid(NOBODY).gid(NOBODY);
    match command.output() {
        Ok(output) => {
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{told}");
            assert!(told.contains("CAP_NET_ADMIN") || told.contains("/dev/net/tun"), "{told}");
        }
        Err(error) => skip(&format!("sprat lab run without rights: {error}")),
    }
}
