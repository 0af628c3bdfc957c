//! Tests `sprat lab run` by its binary, in network namespaces of the test.

use crate::support;
use nix::sched::{CloneFlags, unshare};
use rustix::process::Signal;
use serde_json::Value;
use sprat_testing::until_stopped;
use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::panic::resume_unwind;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use support::{run, skip, sprat};

/// Runs a test on a thread in its own network namespace. If the machine does not allow this, skips
/// the test with a message.
fn alone(test: impl FnOnce() + Send) {
    let run = || {
        unshare(CloneFlags::CLONE_NEWNET)
            .map_err(|error| format!("a network namespace: {error}"))?;
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

/// State directory of these tests, separate from the machine's own.
const STATE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/lab-run");

/// Exit codes of a box that ran to its end: 0 if it kept up, 7 if the machine was too busy.
const ENDED: [Option<i32>; 2] = [Some(0), Some(7)];

#[test]
fn it_runs_for_the_given_duration() {
    alone(|| {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("box.toml");
        let text = "[line]\ndelay = \"10ms\"\n[[port]]\nopen = \"tap:a0\"\n[[port]]\nopen = \
            \"tap:b0,mtu=9000\"\n";
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
        let lines: Vec<_> =
            report["lines"].as_array().expect("lines").iter().map(|line| &line["to"]).collect();
        assert_eq!(lines, ["b0", "a0"]);
        assert_eq!(report["inputs"].as_array().map(Vec::len), Some(2));
        assert!(report["lines"][0]["drops"]["loss"].is_u64(), "{report}");
        assert_eq!(
            report["behind"].as_array().map(Vec::is_empty),
            Some(ran.code == Some(0)),
            "{report}"
        );
    });
}

/// Starts a box without a time limit, and waits until it runs.
fn started() -> Child {
    let mut child = sprat()
        .args([
            "lab", "run", "--port", "tap:a0", "--port", "tap:b0", "--port", "tap:c0", "--quiet",
            "--state", STATE,
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut lines =
        BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
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

/// Number of datagrams that arrive while a box is stopped.
const WHILE_STOPPED: usize = 50;

/// Time for which a box is stopped: far longer than it sleeps on its own.
const STOPPED: Duration = Duration::from_millis(200);

/// Stops a box with this name and these flags while datagrams arrive, and lets it continue. Returns
/// its exit code and its final output.
fn paused(name: &str, flags: &[&str]) -> (Option<i32>, String) {
    let mut child = sprat()
        .args([
            "lab", "run", "--port", "tap:a0", "--port", "tap:b0", "--json", "--quiet", "--state",
            STATE,
        ])
        .args(["--name", name])
        .args(flags)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut lines =
        BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("the box runs")), "it ended instead");
    let ip = |words: &str| {
        let ran = Command::new("ip").args(words.split(' ')).status().expect("ip runs");
        assert!(ran.success(), "ip {words}");
    };
    ip("addr add 10.77.0.1/24 dev a0");
    ip("neigh replace 10.77.0.2 lladdr 02:00:00:00:00:02 dev a0 nud permanent");
    let id = rustix::process::Pid::from_child(&child);
    let signal = |signal| rustix::process::kill_process(id, signal).expect("it runs");
    let socket = UdpSocket::bind("10.77.0.1:0").expect("a port");
    signal(Signal::STOP);
    until_stopped(child.id());
    let begun = Instant::now();
    for _ in 0..WHILE_STOPPED {
        socket.send_to(b"late", "10.77.0.2:7000").expect("sent");
    }
    while begun.elapsed() < STOPPED {
        thread::yield_now();
    }
    signal(Signal::CONT);
    // All datagrams must have passed, because the box counts those that left.
    let until = Instant::now() + Duration::from_secs(30);
    while lines_to_b0(&run(&["lab", "ctl", name, "report", "--state", STATE]))["left"]["segments"]
        .as_u64()
        < Some(WHILE_STOPPED as u64)
    {
        assert!(Instant::now() < until, "it does not read");
    }
    signal(Signal::INT);
    let output = lines.collect::<Vec<_>>().join("\n");
    (child.wait().expect("it ends").code(), output)
}

/// Returns the line to b0 from a report.
fn lines_to_b0(ran: &support::CommandResult) -> Value {
    let report: Value = serde_json::from_str(ran.text()).expect("JSON");
    let lines = report["lines"].as_array().expect("lines");
    lines.iter().find(|line| line["to"] == "b0").expect("there").clone()
}

/// A TAP does not record when a packet arrived. That the box did not run is the only sign that
/// packets were late.
#[test]
fn a_box_that_was_stopped_says_that_packets_were_late() {
    alone(|| {
        let (code, output) = paused("stopped", &["--delay", "400ms"]);
        assert_eq!(code, Some(7), "{output}");
        assert!(output.contains("segments left more than 1ms late"), "{output}");
    });
}

#[test]
fn tolerated_lateness_is_no_failure() {
    alone(|| {
        let (code, output) = paused("tolerated", &["--delay", "400ms", "--tolerate", "100%"]);
        assert_eq!(code, Some(0), "{output}");
        let ran =
            run(&["lab", "run", "--port", "tap:a0", "--port", "tap:b0", "--tolerate", "1:much"]);
        assert!(ran.code == Some(1) && ran.stderr.contains("want SHARE or SHARE:TIME"), "{ran:?}");
    });
}

#[test]
fn a_tap_in_use_is_reported() {
    alone(|| {
        let mut child = started();
        let ran = run(&["lab", "run", "--port", "tap:a0", "--port", "tap:d0", "--state", STATE]);
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(
            ran.stderr.contains("port a0: making the TAP")
                && ran.stderr.contains("another process"),
            "{ran:?}"
        );
        let ran =
            run(&["lab", "run", "--port", "tap:d0", "--port", "tap:e0@nowhere", "--state", STATE]);
        assert!(ran.stderr.contains("make it with: ip netns add nowhere"), "{ran:?}");
    });
}

/// Runs the binary as an unprivileged user, with a folder for its state. If the kernel does not
/// allow such users to make namespaces, returns `None` and prints why.
fn run_unprivileged(words: &[&str]) -> Option<support::CommandResult> {
    const UNPRIVILEGED: u32 = 65_534;
    let state = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(state.path(), Permissions::from_mode(0o777)).expect("ours");
    let command = &mut sprat();
    let command = command
        .args(words)
        .env("SPRAT_LAB_STATE", state.path().join("lab"))
        .uid(UNPRIVILEGED)
        .gid(UNPRIVILEGED);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            skip(&format!("sprat lab without root: {error}"));
            return None;
        }
    };
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let ran = support::CommandResult { code: output.status.code(), stdout: output.stdout, stderr };
    if ran.stderr.contains("cannot create namespaces") || ran.stderr.contains("/dev/net/tun") {
        assert!(
            ran.code == Some(1)
                && (ran.stderr.contains("CAP_NET_ADMIN") || ran.stderr.contains("tun")),
            "{ran:?}"
        );
        skip(&format!("sprat lab without root: {}", ran.stderr));
        return None;
    }
    assert!(ran.stderr.contains("not root: in namespaces of its own"), "{ran:?}");
    Some(ran)
}

#[test]
fn an_ordinary_user_has_a_box_in_namespaces_of_its_own() {
    let ports = ["--port", "tap:a0@left", "--port", "tap:b0@right"];
    let words =
        [&["lab", "run", "--delay", "5ms", "--duration", "300ms", "--quiet", "--json"], &ports[..]]
            .concat();
    let Some(ran) = run_unprivileged(&words) else { return };
    assert!(ENDED.contains(&ran.code), "{ran:?}");
    let report: Value = serde_json::from_str(ran.text()).expect("JSON");
    assert_eq!(report["lines"].as_array().map(Vec::len), Some(2), "{ran:?}");
}

#[test]
fn an_ordinary_user_has_a_lab_in_namespaces_of_its_own() {
    let command = "cat /proc/net/dev; cat /proc/sys/net/ipv4/tcp_rmem";
    let Some(ran) = run_unprivileged(&["lab", "up", "two-sites", "--in", "left", "--", command])
    else {
        return;
    };
    assert!(ENDED.contains(&ran.code), "{ran:?}");
    assert!(ran.text().contains("left | ") && ran.text().contains("1073741824"), "{ran:?}");
}
