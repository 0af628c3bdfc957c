//! Tests tuning of a real rack: a host made by the test, with a real Cassandra. Only the kernel
//! settings of the host's network namespace are changed.

use crate::support;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use support::{skip, sprat};
use tempfile::TempDir;

/// A rack of one server. Dropping this value removes it.
struct Rack {
    folder: TempDir,
    tools: PathBuf,
    name: String,
}

impl Rack {
    fn run(&self, what: &str, args: &[&str]) -> Output {
        let mut command = sprat();
        command
            .env("SPRAT_ANSIBLE", self.tools.join("ansible"))
            .env("SPRAT_CASSANDRA", self.tools.join("cassandra/lib"));
        command.arg("rack").arg(what).arg(self.folder.path().join("rack.toml")).arg("--local");
        command.arg("--state").arg(self.folder.path().join("rack")).args(args);
        command.output().expect("the binary runs")
    }

    #[track_caller]
    fn ok(&self, what: &str, args: &[&str]) -> String {
        let ran = self.run(what, args);
        assert!(
            ran.status.success(),
            "{what} {args:?}: {}\n{}",
            text(&ran.stdout),
            text(&ran.stderr)
        );
        text(&ran.stdout)
    }

    /// Returns a kernel setting of the host. Each network namespace has its own.
    fn keep_alive(&self) -> String {
        let file = "/proc/sys/net/ipv4/tcp_keepalive_time";
        let netns = format!("{}-c0-n1", self.name);
        let setting =
            std::process::Command::new("ip").args(["netns", "exec", &netns, "cat", file]).output();
        text(&setting.expect("iproute2").stdout).trim().to_owned()
    }
}

impl Drop for Rack {
    fn drop(&mut self) {
        self.run("down", &[]);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
#[ignore = "starts Cassandra: make test-rack"]
fn what_is_advised_is_tried_and_taken_back() {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/tools").canonicalize();
    let Some(tools) = tools
        .ok()
        .filter(|tools| tools.join("cassandra/lib").exists() && tools.join("ansible").exists())
    else {
        return skip(
            "tuning a real rack: Cassandra's jars or Ansible are not here (scripts/setup fetches \
             them)",
        );
    };
    if !sprat_lab::hosts::missing_privileges().is_empty() {
        return skip("tuning a real rack: hosts on this machine need root");
    }
    let name = format!("t{}", std::process::id());
    let toml = format!(
        "name = \"{name}\"\n[server]\ncores = 2\nmemory = \"2GiB\"\ndisks = [\"10GB\"]\nport-rate \
         = \"1Gb/s\"\n[chassis]\nservers = 1\n\
         [cassandra]\nreplication = 1\ntokens = 4\nheap = \"300MiB\"\nyaml = \
         {{ concurrent_reads = 99 }}\n\
         java = [\"-Dcassandra.skip_wait_for_gossip_to_settle=0\", \
         \"-Dcassandra.ring_delay_ms=0\"]\n"
    );
    let rack = Rack { folder: tempfile::tempdir().expect("a folder"), tools, name };
    std::fs::write(rack.folder.path().join("rack.toml"), toml).expect("a file");
    rack.ok("up", &[]);

    let checked = rack.run("tune", &["--check", "--only", "concurrency,network,collector"]);
    assert_eq!(checked.status.code(), Some(6), "{}", text(&checked.stderr));
    for told in [
        "concurrent_reads 99 -> concurrent_reads 16",
        "300 MiB, serial -> 512 MiB",
        "tcp_keepalive_time 60",
    ] {
        assert!(text(&checked.stdout).contains(told), "{told}: {}", text(&checked.stdout));
    }
    assert_eq!(rack.keep_alive(), "7200", "a check changes nothing");

    // Network settings that are not worse are kept. Instance settings are tried, with any outcome.
    let quick = ["--duration", "3s", "--warm", "1s", "--rate", "50", "--keys", "100", "--json"];
    let mut apply = vec!["--apply", "--only", "concurrency,network"];
    apply.extend(quick);
    let journal: Value = serde_json::from_str(&rack.ok("tune", &apply)).expect("JSON");
    let entries = journal["entries"].as_array().expect("entries");
    assert_eq!(entries.len(), 3, "{journal}");
    assert!(
        entries.iter().all(|entry| entry["state"] == "kept" || entry["state"] == "undone"),
        "{journal}"
    );
    let network = &entries[2];
    let kept = if network["state"] == "kept" { "60" } else { "7200" };
    assert_eq!((network["class"].as_str(), rack.keep_alive().as_str()), (Some("network"), kept));
    assert!(journal["after"]["p99"].as_f64().is_some_and(|p99| p99 > 0.0), "{journal}");

    // A later `up` applies the settings found for instances. All settings can be reverted.
    let tuned = rack.folder.path().join("rack/tuned.json");
    assert_eq!(tuned.exists(), entries[..2].iter().any(|entry| entry["state"] == "kept"));
    rack.ok("tune", &["--undo"]);
    assert_eq!(rack.keep_alive(), "7200");
    assert!(!tuned.exists());
    let yaml =
        rack.folder.path().join("rack/hosts/c0-n1/srv/cassandra/c0-n1-i1/conf/cassandra.yaml");
    assert!(std::fs::read_to_string(yaml).expect("its settings").contains("concurrent_reads: 99"));
    assert_eq!(rack.run("status", &[]).status.code(), Some(0));
}
