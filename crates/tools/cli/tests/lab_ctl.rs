//! Tests `sprat lab ctl` by its binary. Boxes in network namespaces of the test are changed while
//! they run.

use crate::support;
use nix::sched::{CloneFlags, unshare};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::panic::resume_unwind;
use std::process::{Child, Stdio};
use std::thread;
use support::{CommandResult, run, skip, sprat};

/// The state directory of a test. The test runs on a thread in its own network namespace.
struct Test {
    folder: tempfile::TempDir,
}

/// Runs a test. If the machine does not allow it, skips the test with a message.
fn alone(test: impl FnOnce(&Test) + Send) {
    let run = || {
        unshare(CloneFlags::CLONE_NEWNET)
            .map_err(|error| format!("a network namespace: {error}"))?;
        std::fs::metadata("/dev/net/tun").map_err(|error| format!("/dev/net/tun: {error}"))?;
        test(&Test { folder: tempfile::tempdir().expect("a folder") });
        Ok::<_, String>(())
    };
    match thread::scope(|scope| scope.spawn(run).join()) {
        Ok(Ok(())) => {}
        Ok(Err(why)) => skip(&format!("sprat lab ctl: {why}")),
        Err(panic) => resume_unwind(panic),
    }
}

impl Test {
    fn state(&self) -> &str {
        self.folder.path().to_str().expect("text")
    }

    fn ctl(&self, words: &[&str]) -> CommandResult {
        run(&[&["lab", "ctl", "--state", self.state()], words].concat())
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(self.ctl(&[words, &["--json"]].concat()).ok()).expect("JSON")
    }

    /// Starts a box and waits until it runs. Returns the box, and the line that reports that it
    /// runs.
    fn started(&self, words: &[&str]) -> (KilledOnDrop, String) {
        let mut child = sprat()
            .args(["lab", "run", "--quiet", "--state", self.state()])
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut lines =
            BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
        let line = lines.find(|line| line.contains("the box runs")).expect("it ended instead");
        (KilledOnDrop(child), line)
    }
}

/// A process. Dropping this value kills the process.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

#[test]
fn a_box_is_shown_and_changed_by_its_name() {
    alone(|test| {
        let (_box, output) =
            test.started(&["--port", "tap:a0", "--port", "tap:b0", "--delay", "1ms"]);
        assert!(output.contains("runs as a0-b0"), "{output}");
        let (_other, _) = test.started(&["--port", "tap:c0", "--port", "tap:d0", "--name", "wan"]);
        let listed = run(&["lab", "ls", "--state", test.state()]);
        assert!(
            listed
                .ok()
                .lines()
                .map(|line| line.split_whitespace().next())
                .eq([Some("a0-b0"), Some("wan")])
        );

        let shown = test.ctl(&["a0-b0", "show"]);
        assert!(shown.ok().starts_with("a0-b0: cross, process "), "{shown:?}");
        assert!(shown.text().ends_with("  to a0: delay=1ms\n  to b0: delay=1ms\n"), "{shown:?}");
        let set = test.ctl(&[
            "a0-b0",
            "set",
            "--to",
            "b0",
            "delay=50ms",
            "rate=1Gb/s,buffer=100MB",
            "loss=bursts:1%,50%",
        ]);
        let line = "  to b0: delay=50ms rate=1Gb/s buffer=100MB loss=bursts:1%,50%,100%,0%\n";
        assert_eq!(set.ok(), line);
        assert!(set.stderr.contains("packet memory to b0 is 20 MB"), "{set:?}");
        assert!(
            test.ctl(&["a0-b0", "show"]).ok().ends_with(&format!("  to a0: delay=1ms\n{line}"))
        );
        let state = test.json(&["wan", "show"]);
        assert_eq!(
            (&state["name"], &state["ports"][0]["line"]["delay"]),
            (&"wan".into(), &"0".into()),
            "not this one"
        );
        assert_eq!(test.json(&["a0-b0", "report"])["lines"].as_array().map(Vec::len), Some(2));
    });
}

#[test]
fn mistakes_name_the_alternatives() {
    alone(|test| {
        let (_box, _) = test.started(&["--port", "tap:a0", "--port", "tap:b0", "--name", "wan"]);
        for (words, expected) in [
            (&["lan", "show"][..], "no box lan runs here"),
            (&["lan", "show"], "those that do: wan"),
            (&["wan", "set", "--to", "c0", "delay=1ms"], "no port \"c0\"; the ports are a0, b0"),
            (&["wan", "set", "delay=3s"], "delay \"3s\": want a time up to 500ms"),
            (&["wan", "set", "latency=3s"], "unknown field `latency`, expected one of `delay`"),
            (&["wan", "set", "delay"], "\"delay\": want SETTING=VALUE, such as delay=50ms"),
            (&["wan", "set", "delay=1ms", "delay=2ms"], "delay is set twice"),
            (&["wan", "filter", "remove", "0"], "no rule 0: there are 0"),
        ] {
            let ran = test.ctl(words);
            assert_eq!(ran.code, Some(1), "{words:?}: {ran:?}");
            assert!(ran.stderr.contains(expected), "{words:?}: {ran:?}");
        }
        let again = run(&[
            "lab",
            "run",
            "--port",
            "tap:e0",
            "--port",
            "tap:f0",
            "--name",
            "wan",
            "--state",
            test.state(),
        ]);
        assert_eq!(again.code, Some(1), "{again:?}");
        assert!(again.stderr.contains("a box called wan runs already (process "), "{again:?}");
    });
}

#[test]
fn a_filter_is_listed_and_changed() {
    if let Err(error) = sprat_lab::filter::Compiler::load() {
        return skip(&format!("sprat lab ctl filter: {error}"));
    }
    alone(|test| {
        let (_box, _) = test.started(&["--port", "tap:a0", "--port", "tap:b0"]);
        assert_eq!(test.ctl(&["filter", "list"]).ok(), "");
        let rule = "filters[0]: \"udp port 53\" from a0 drop: 0 packets, 0 bytes";
        assert_eq!(
            test.ctl(&["filter", "add", "udp port 53", "drop", "--from", "a0"]).ok(),
            format!("  {rule}\n")
        );
        let added = test.ctl(&["filter", "add", "ip", "rewrite:dscp=46", "--at", "0"]);
        assert!(added.ok().contains("filters[0]: \"ip\" rewrite:dscp=46: 0 packets"), "{added:?}");
        assert!(test.ctl(&["show"]).ok().contains("filters[1]: \"udp port 53\" from a0 drop"));
        let removed = test.ctl(&["filter", "remove", "0"]);
        assert_eq!(
            removed.ok(),
            format!("  removed: \"ip\" rewrite:dscp=46: 0 packets, 0 bytes\n  {rule}\n")
        );
        assert_eq!(test.json(&["filter", "list"])["rules"][0]["rule"]["match"], "udp port 53");
        let wrong = test.ctl(&["filter", "add", "udp porto 53", "drop"]);
        assert!(
            wrong.stderr.contains("filter \"udp porto 53\": ")
                && wrong.stderr.contains("pcap-filter"),
            "{wrong:?}"
        );
        assert_eq!(test.json(&["filter", "clear"])["rules"], Value::Array(Vec::new()));
    });
}

#[test]
fn stop_ends_it_as_ctrl_c_would() {
    alone(|test| {
        let (mut child, _) = test.started(&[
            "--port", "tap:a0", "--port", "tap:b0", "--port", "tap:c0", "--name", "hub",
        ]);
        assert_eq!(test.ctl(&["stop"]).ok(), "");
        let mut text = String::new();
        child.0.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
        assert!(text.contains("to a0: ") && text.contains("switch: "), "{text}");
        assert!([Some(0), Some(7)].contains(&child.0.wait().expect("it ends").code()));
        assert_eq!(run(&["lab", "ls", "--state", test.state()]).ok(), "");
        let (_box, _) = test.started(&["--port", "tap:a0", "--port", "tap:b0", "--name", "hub"]);
    });
}

#[test]
fn a_killed_box_leaves_its_name_to_the_next() {
    alone(|test| {
        let (child, _) = test.started(&["--port", "tap:a0", "--port", "tap:b0", "--name", "wan"]);
        drop(child);
        assert_eq!(
            run(&["lab", "ls", "--state", test.state()]).ok(),
            "",
            "no process listens any more"
        );
        let ran = test.ctl(&["wan", "show"]);
        assert!(ran.stderr.contains("no box wan runs here"), "{ran:?}");
        let (_box, output) =
            test.started(&["--port", "tap:a0", "--port", "tap:b0", "--name", "wan"]);
        assert!(output.contains("runs as wan"), "{output}");
    });
}
