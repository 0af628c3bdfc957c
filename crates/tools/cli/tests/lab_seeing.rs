//! Tests by the binary how traffic through boxes is shown: `--report`, `--series`, `lab report` and
//! `lab watch`.

use crate::support;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use support::{CommandResult, run, skip, sprat};

/// Round trip of the lab below, in milliseconds.
const ROUND_TRIP: f64 = 40.0;

/// Exit codes of a lab: 0 after success, 7 if the machine was too busy.
const WELL: [Option<i32>; 2] = [Some(0), Some(7)];

/// Twenty echoes in a second.
const PING: &str = "ping -q -i 0.05 -c 20 $RIGHT_V4";

#[test]
fn a_lab_is_recorded_and_drawn() {
    let Some(test) = Test::new("drawn") else { return };
    let (series, drawn) = (test.path("lab.jsonl"), test.path("lab.svg"));
    let ran = test.up(&[
        "--series", &series, "--report", &drawn, "--every", "50ms", "--in", "left", "--", PING,
    ]);
    assert!(WELL.contains(&ran.code), "{ran:?}");
    let text = std::fs::read_to_string(&series).expect("a series");
    let values: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(values[0]["lines"][1]["settings"], "delay 20 ms", "{}", values[0]);
    assert!(values.len() > 5, "{text}");
    assert!(values[1..].windows(2).all(|pair| pair[0]["to"] == pair[1]["from"]), "no gaps: {text}");
    let samples = values[1..].iter().flat_map(|sample| sample["lines"].as_array().expect("lines"));
    let flows = samples.flat_map(|line| line["flows"].as_array().expect("flows"));
    let pings =
        flows.filter(|flow| flow["flow"].as_str().is_some_and(|name| name.starts_with("icmp 10.")));
    let trips: Vec<_> = pings.filter_map(|flow| flow["rtt_ms"].as_f64()).collect();
    assert!(!trips.is_empty() && trips.iter().all(|trip| *trip >= ROUND_TRIP - 0.001), "{trips:?}");
    let svg = std::fs::read_to_string(&drawn).expect("a picture");
    assert!(
        svg.contains("box.wan: to right: delay 20 ms")
            && svg.contains("icmp 10.64.0.1 &gt; 10.64.0.2"),
        "{svg}"
    );

    let again = test.path("again.html");
    let ran = run(&["lab", "report", &series, "--out", &again]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let html = std::fs::read_to_string(&again).expect("a page");
    assert!(
        html.starts_with("<!doctype html>") && html.contains("icmp 10.64.0.1 &gt; 10.64.0.2"),
        "{html}"
    );
}

#[test]
fn invalid_series_are_reported_before_drawing() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let error_of = |name: &str, text: &str| {
        std::fs::write(path(name), text).expect("written");
        let ran = run(&["lab", "report", &path(name), "--out", &path("x.svg")]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        ran.stderr
    };
    let head = "{\"sprat_lab_series\":1,\"title\":\"t\",\"lines\":[]}\n";
    let good = "{\"from\":0.0,\"to\":1.0,\"lines\":[]}\n";
    assert!(error_of("a", "").contains("the file is empty"));
    assert!(error_of("b", "hello\n").contains("line 1: not of a series"));
    assert!(error_of("c", &head.replace(":1", ":9")).contains("reads version 1"));
    assert!(
        error_of("d", &format!("{head}{good}{good}")).contains("line 3: a sample from 0 s to 1 s")
    );
    assert!(error_of("e", &format!("{head}{good}[]\n")).contains("line 3: not of a series"));
    std::fs::write(path("f"), format!("{head}{good}{{\"from\":1.0,\"to")).expect("written");
    let ran = run(&["lab", "report", &path("f"), "--out", &path("x.svg")]);
    assert!(
        ran.code == Some(0) && ran.stderr.contains("line 3 was cut short"),
        "a series that a crash cut short: {ran:?}"
    );
    let ran = run(&["lab", "report", &path("f"), "--out", &path("x.png")]);
    assert!(ran.code == Some(1) && ran.stderr.contains("ends in .svg or .html"), "{ran:?}");
    let ran = run(&["lab", "up", "two-sites", "--report", "x.png"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("--report: x.png: want a name"), "{ran:?}");
    let ran = run(&["lab", "up", "two-sites", "--report", "x.svg", "--every", "1ms"]);
    assert!(
        ran.code == Some(2) && ran.stderr.contains("'1ms' for '--every <TIME>': want 10ms to 60s"),
        "{ran:?}"
    );
}

#[test]
fn a_box_is_watched_by_programs_and_as_text() {
    let Some(test) = Test::new("watched") else { return };
    let mut lab = test.start();
    let name = format!("{}.wan", test.name);
    let ran = run(&["lab", "watch", &name, "--once", "--every", "500ms", "--state", &test.state()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for expected in
        [&format!("box {name}"), "PORT", "right", "icmp 10.64.0.1 > 10.64.0.2", "ROUND TRIP"]
    {
        assert!(ran.text().contains(expected), "{expected:?} is not in {}", ran.text());
    }
    // Without a name, the only running box is watched. The watch ends when the box ends.
    let mut watch = sprat()
        .args(["lab", "watch", "--json", "--every", "200ms", "--state", &test.state()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("piped")).lines();
    let first: Value =
        serde_json::from_str(&lines.next().expect("one").expect("text")).expect("JSON");
    assert_eq!(first["box"], name);
    assert_eq!(first["lines"].as_array().map(Vec::len), Some(2), "{first}");
    stop(&mut lab);
    assert!(lines.all(|line| line.is_ok()));
    let mut stderr = String::new();
    watch.stderr.take().expect("piped").read_to_string(&mut stderr).expect("text");
    assert!(
        watch.wait().expect("waited for").success() && stderr.contains("has ended"),
        "{stderr}"
    );

    let none = run(&["lab", "watch", "--once", "--state", &test.state()]);
    assert_eq!(none.code, Some(1), "{none:?}");
}

#[test]
fn a_terminal_shows_a_box_and_is_given_back() {
    let Some(test) = Test::new("terminal") else { return };
    if Command::new("script").arg("--version").output().is_err() {
        return skip("sprat lab watch on a terminal: needs script, of util-linux");
    }
    let mut lab = test.start();
    let program = sprat().get_program().to_str().expect("text").to_owned();
    let state = test.state();
    // A terminal of a known size. Its settings are compared afterwards.
    let command = format!(
        "stty rows 40 cols 120; stty -g > {before}; timeout --foreground 60 {program} lab watch \
         --every 200ms --state {state}; echo code $?; stty -g > {after}",
        before = test.path("before"),
        after = test.path("after"),
    );
    let mut script = Command::new("script")
        .args(["-q", "-c", &command, "/dev/null"])
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut keys = script.stdin.take().expect("piped");
    let mut shown = Vec::new();
    let mut screen = script.stdout.take().expect("piped");
    let mut step = 0;
    let mut part = [0; 4096];
    // Presses the sort key and the pause key when the screen shows a flow, and the quit key when it
    // shows the pause. The screen writes only the cells that changed, and skips blanks.
    loop {
        let count = screen.read(&mut part).expect("a terminal");
        if count == 0 {
            break;
        }
        shown.extend_from_slice(&part[..count]);
        let text = String::from_utf8_lossy(&shown);
        if step == 0 && text.contains("10.64.0.1") {
            keys.write_all(b"sp").expect("it listens");
            step = 1;
        }
        if step == 1 && text.contains("PAUSED") {
            keys.write_all(b"q").expect("it listens");
            step = 2;
        }
    }
    script.wait().expect("waited for");
    stop(&mut lab);
    let text = String::from_utf8_lossy(&shown);
    assert_eq!(step, 2, "{text}");
    assert!(
        text.contains("\u{1b}[?1049h") && text.contains("\u{1b}[?1049l"),
        "it switches to the other screen, and back: {text}"
    );
    assert!(text.contains("code 0"), "{text}");
    let settings =
        ["before", "after"].map(|name| std::fs::read_to_string(test.path(name)).expect("written"));
    assert_eq!(settings[0], settings[1], "the terminal has its earlier settings");
}

struct Test {
    name: String,
    folder: tempfile::TempDir,
}

impl Test {
    fn new(what: &str) -> Option<Self> {
        let missing = sprat_lab::hosts::missing_privileges();
        if !missing.is_empty() || !Path::new("/dev/net/tun").exists() {
            skip(&format!("sprat lab, seen: needs /dev/net/tun, {}", missing.join(" and ")));
            return None;
        }
        if Command::new("ping").arg("-V").output().is_err() {
            skip("sprat lab, seen: needs ping");
            return None;
        }
        let folder = tempfile::tempdir().expect("a directory");
        let text = "name = \"x\"\n[host.left]\n[host.right]\n[box.wan]\nports = [\"left\", \
            \"right\"]\nline = { delay = \"20ms\" }\n";
        std::fs::write(folder.path().join("lab.toml"), text).expect("written");
        Some(Self { name: format!("s{}-{what}", std::process::id()), folder })
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("text").to_owned()
    }

    fn state(&self) -> String {
        self.path("labs")
    }

    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let (file, state) = (self.path("lab.toml"), self.state());
        let usual = ["lab", "up", &file, "--name", &self.name, "--state", &state];
        usual.iter().chain(more).map(|&word| word.to_owned()).collect()
    }

    fn up(&self, more: &[&str]) -> CommandResult {
        let arguments = self.arguments(more);
        run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Starts the lab with endless echoes, and waits for the first echo.
    fn start(&self) -> KilledOnDrop {
        let ping = "ping -i 0.05 $RIGHT_V4";
        let child = sprat()
            .args(self.arguments(&["--in", "left", "--", ping]))
            .stdout(Stdio::piped())
            .spawn();
        let mut child = KilledOnDrop(child.expect("starts"));
        let mut lines =
            BufReader::new(child.0.stdout.take().expect("piped")).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("bytes from")), "no echo came");
        // The test does not read further lines, but a closed pipe would end the lab.
        std::thread::spawn(move || lines.for_each(drop));
        child
    }
}

impl Drop for Test {
    fn drop(&mut self) {
        let _ = sprat_lab::hosts::down(
            &self.name,
            &sprat_lab::hosts::StateDir::at(PathBuf::from(self.state())),
        );
    }
}

/// A process. Dropping this value kills the process.
struct KilledOnDrop(Child);

/// Interrupts a lab, as Ctrl-C does.
fn stop(lab: &mut KilledOnDrop) {
    let id = rustix::process::Pid::from_child(&lab.0);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it runs");
    lab.0.wait().expect("it ends");
}

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
