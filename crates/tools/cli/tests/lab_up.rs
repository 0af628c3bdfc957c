//! Tests `sprat lab up` and related commands by the binary.

use crate::support;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{CommandResult, run, skip, sprat};

#[test]
fn a_command_runs_in_its_host_and_its_exit_code_is_returned() {
    let Some(test) = Test::new("command") else { return };
    let ran = test.up(&["--in", "left", "--", "echo $SPRAT_HOST at $LEFT_V4; echo oh >&2; exit 3"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.text().contains("left | left at 10.64.0.1\n"), "{ran:?}");
    assert!(
        ran.stderr.contains("left | oh\n") && ran.stderr.contains("left: exit status: 3"),
        "{ran:?}"
    );
    assert!(ran.stderr.contains("box.wan: to right: "), "the report counts the packets: {ran:?}");
    // A process that a command leaves in the background does not keep the lab running.
    assert!(WELL.contains(&test.up(&["--in", "left", "--", "sleep 1000 & true"]).code));
    let words = test.up(&["--in", "right", "--", "printf", "%s/", "two words", "it's"]);
    assert!(words.text().contains("right | two words/it's/\n"), "{words:?}");
    test.assert_gone();
}

#[test]
fn json_is_a_value_on_each_line() {
    let Some(test) = Test::new("json") else { return };
    let ran = test.up(&["--json", "--in", "left", "--", "echo said; kill -9 $$"]);
    assert_eq!(ran.code, Some(137), "{ran:?}");
    let values: Vec<Value> =
        ran.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    // The end of a command may be reported before its last line of output.
    let line = serde_json::json!({ "host": "left", "stream": "output", "text": "said" });
    assert!(values[..2].contains(&line), "{values:?}");
    let end = values[..2]
        .iter()
        .find(|value| value["ended"] != Value::Null)
        .expect("its end is reported");
    assert_eq!((&end["host"], &end["ended"]), (&"left".into(), &137.into()));
    assert_eq!(values[2]["box"], "wan");
    assert_eq!(values[2]["lines"].as_array().map(Vec::len), Some(2));
    assert!(values[3]["tcp_memory_shortages"].is_u64(), "{values:?}");
}

#[test]
fn it_stands_until_a_signal_and_is_listed() {
    let Some(test) = Test::new("signal") else { return };
    let child = sprat()
        .args(test.arguments(&[]))
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("starts");
    let mut child = killed_on_drop(child);
    let mut lines = BufReader::new(child.0.stderr.take().expect("piped")).lines();
    assert!(
        lines.any(|line| line.expect("text").contains("the lab is up")),
        "it reports that the lab is up"
    );
    let listed: Value =
        serde_json::from_str(run(&["lab", "ls", "--json", "--state", &test.state()]).ok())
            .expect("one");
    assert_eq!((&listed["name"], &listed["alive"]), (&test.name.clone().into(), &true.into()));
    assert_eq!(listed["owner"], child.0.id());
    assert!(test.namespaces().iter().all(|path| path.exists()));

    let name = format!("{}.wan", test.name);
    assert_eq!(listed["boxes"], serde_json::json!([name]));
    let set =
        run(&["lab", "ctl", "wan", "set", "--to", "left", "delay=5ms", "--state", &test.state()]);
    assert_eq!(set.ok(), "  to left: delay=5ms\n");
    assert!(
        run(&["lab", "ctl", &name, "show", "--state", &test.state()])
            .ok()
            .contains("  to right: delay=100ms\n")
    );

    let again = test.up(&[]);
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("is up already, started by process"), "{again:?}");

    assert_eq!(run(&["lab", "down", &test.name, "--state", &test.state()]).ok(), "");
    assert!(
        WELL.contains(&child.0.wait().expect("waited for").code()),
        "the signal of `lab down` ends it cleanly"
    );
    test.assert_gone();
}

#[test]
fn remains_of_a_killed_lab_are_reported_and_removed() {
    let Some(test) = Test::new("killed") else { return };
    let child = sprat()
        .args(test.arguments(&[]))
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("starts");
    let mut child = killed_on_drop(child);
    let mut lines = BufReader::new(child.0.stderr.take().expect("piped")).lines();
    assert!(lines.any(|line| line.expect("text").contains("the lab is up")));
    child.0.kill().expect("killed");
    child.0.wait().expect("waited for");
    let listed = run(&["lab", "ls", "--state", &test.state()]);
    assert!(listed.ok().contains(&format!("sprat lab down {}", test.name)), "{listed:?}");
    run(&["lab", "down", &test.name, "--state", &test.state()]).ok();
    test.assert_gone();
}

#[test]
fn host_commands_run_and_failures_are_reported() {
    let Some(test) = Test::new("hosts") else { return };
    let file = test.folder.path().join("lab.toml");
    let text = r#"
        name = "x"
        [host.left]
        run = "exit 1"
        [host.right]
        run = "echo fine"
        [[cable]]
        ends = ["left", "right"]
    "#;
    std::fs::write(&file, text).expect("written");
    let file = file.to_str().expect("text");
    let ran = run(&["lab", "up", file, "--name", &test.name, "--state", &test.state()]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.text().contains("right | fine\n") && ran.stderr.contains("left: exit status: 1"),
        "{ran:?}"
    );
    std::fs::write(file, text.replace("exit 1", "sleep 1000")).expect("written");
    let ran = run(&[
        "lab",
        "up",
        file,
        "--name",
        &test.name,
        "--state",
        &test.state(),
        "--duration",
        "100ms",
    ]);
    assert_eq!(ran.code, Some(0), "commands that still ran are no failure: {ran:?}");
    test.assert_gone();
}

/// The first `ip netns add` since boot bind-mounts the folder of namespace names on itself, with
/// all names in it. The names of a lab that already exists are then mounted twice.
#[test]
fn it_goes_when_somebody_has_made_a_namespace_meanwhile() {
    let Some(test) = Test::new("names") else { return };
    let script = r#"mount -t tmpfs tmpfs /run
        "$@" 2>/run/said & lab=$!
        looks=0
        until grep -q "the lab is up" /run/said; do
            kill -0 $lab && [ $looks -lt 600 ] || { kill -9 $lab; exit 99; }
            looks=$((looks + 1)); sleep 0.05
        done
        ip netns add somebody || exit 98
        kill -INT $lab; wait $lab; code=$?
        ls /run/netns; tail -n 3 /run/said >&2; exit $code"#;
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        script,
        "sh",
        env!("CARGO_BIN_EXE_sprat"),
    ]);
    let ran = command.args(test.arguments(&[])).output().expect("unshare runs");
    assert!(WELL.contains(&ran.status.code()), "{ran:?}");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "somebody\n", "{ran:?}");
}

struct Test {
    name: String,
    folder: tempfile::TempDir,
}

impl Test {
    fn new(what: &str) -> Option<Self> {
        let missing = sprat_lab::hosts::missing_privileges();
        if !missing.is_empty() || !Path::new("/dev/net/tun").exists() {
            skip(&format!("sprat lab up: needs /dev/net/tun, {}", missing.join(" and ")));
            return None;
        }
        let folder = tempfile::tempdir().expect("a directory");
        Some(Self { name: format!("t{}-{what}", std::process::id()), folder })
    }

    fn state(&self) -> String {
        self.folder.path().join("labs").to_str().expect("text").to_owned()
    }

    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let state = self.state();
        let usual = ["lab", "up", "two-sites", "--name", &self.name, "--state", &state];
        usual.iter().chain(more).map(|&word| word.to_owned()).collect()
    }

    fn up(&self, more: &[&str]) -> CommandResult {
        let arguments = self.arguments(more);
        run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn namespaces(&self) -> Vec<PathBuf> {
        ["left", "right"]
            .iter()
            .map(|host| Path::new("/run/netns").join(format!("{}-{host}", self.name)))
            .collect()
    }

    fn assert_gone(&self) {
        assert!(self.namespaces().iter().all(|path| !path.exists()));
        assert_eq!(run(&["lab", "ls", "--state", &self.state()]).ok(), "");
    }
}

impl Drop for Test {
    fn drop(&mut self) {
        let _ = sprat_lab::hosts::down(&self.name, &sprat_lab::hosts::StateDir::at(self.state()));
    }
}

/// Exit codes of a lab: 0 after success, 7 if the machine was too busy.
const WELL: [Option<i32>; 2] = [Some(0), Some(7)];

/// A process. Dropping this value kills the process.
struct KilledOnDrop(std::process::Child);

fn killed_on_drop(child: std::process::Child) -> KilledOnDrop {
    KilledOnDrop(child)
}

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
