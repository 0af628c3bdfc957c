//! A rack of network namespaces on this machine, for tests of `sprat rack`.

use super::{skip, sprat};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A rack. Dropping this value removes it.
pub(crate) struct Rack {
    pub(crate) folder: TempDir,
    tools: PathBuf,
    pub(crate) name: String,
}

impl Rack {
    /// Makes a rack without a description. If this machine cannot have one, returns `None` and
    /// prints that `what` is skipped. The rack's name begins with `letter`.
    pub(crate) fn new(what: &str, letter: char) -> Option<Self> {
        let tools =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/tools").canonicalize();
        let whole = |tools: &PathBuf| {
            tools.join("cassandra/lib").exists() && tools.join("ansible").exists()
        };
        let Some(tools) = tools.ok().filter(whole) else {
            skip(&format!(
                "{what}: Cassandra's jars or Ansible are not here (scripts/setup fetches them)"
            ));
            return None;
        };
        if !sprat_lab::hosts::missing_privileges().is_empty() {
            skip(&format!("{what}: hosts on this machine need root"));
            return None;
        }
        let name = format!("{letter}{}", std::process::id());
        Some(Self { folder: tempfile::tempdir().expect("a folder"), tools, name })
    }

    /// Writes the rack's description: `servers` small servers, and `more` appended.
    pub(crate) fn describe(&self, servers: usize, more: &str) {
        let toml = format!(
            "name = \"{}\"\n[server]\ncores = 2\nmemory = \"1GiB\"\ndisks = [\"10GB\"]\nport-rate \
             = \"1Gb/s\"\n[chassis]\nservers = {servers}\n{more}",
            self.name
        );
        fs::write(self.folder.path().join("rack.toml"), toml).expect("a file");
    }

    pub(crate) fn state(&self, name: &str) -> PathBuf {
        self.folder.path().join("rack").join(name)
    }

    /// Returns the command `sprat rack` with the subcommand, the description and the other
    /// arguments.
    pub(crate) fn command(&self, what: &[&str]) -> Command {
        let mut command = sprat();
        command
            .env("SPRAT_ANSIBLE", self.tools.join("ansible"))
            .env("SPRAT_CASSANDRA", self.tools.join("cassandra/lib"));
        let (words, more) = what.split_at(1 + usize::from(what[0] == "rolling"));
        command
            .arg("rack")
            .args(words)
            .arg(self.folder.path().join("rack.toml"))
            .args(more)
            .arg("--local");
        command.arg("--state").arg(self.folder.path().join("rack"));
        command
    }

    pub(crate) fn run(&self, what: &[&str]) -> Output {
        self.command(what).output().expect("the binary runs")
    }

    #[track_caller]
    pub(crate) fn ok(&self, what: &[&str]) -> String {
        let ran = self.run(what);
        assert!(ran.status.success(), "{what:?}: {}\n{}", text(&ran.stdout), text(&ran.stderr));
        text(&ran.stdout)
    }

    /// Runs a command that must fail, and returns its error message.
    #[track_caller]
    pub(crate) fn refused(&self, what: &[&str]) -> String {
        let ran = self.run(what);
        assert!(!ran.status.success(), "{what:?}: {}", text(&ran.stdout));
        text(&ran.stderr)
    }

    /// Returns the number of items that a command changes on each server.
    #[track_caller]
    pub(crate) fn changes(&self, what: &[&str]) -> Vec<u64> {
        let report: Value =
            serde_json::from_str(&self.ok(&[what, &["--json"]].concat())).expect("JSON");
        report
            .as_array()
            .expect("servers")
            .iter()
            .map(|host| host["changed"].as_u64().expect("a number"))
            .collect()
    }

    pub(crate) fn home(&self, host: &str) -> PathBuf {
        self.state(&format!("hosts/{host}/srv/cassandra/{host}-i1"))
    }

    pub(crate) fn pid(&self, host: &str) -> i32 {
        let text = fs::read_to_string(self.home(host).join("run/pid")).expect("it was started");
        text.trim().parse().expect("a number")
    }

    pub(crate) fn kill(&self, host: &str) {
        let pid = rustix::process::Pid::from_raw(self.pid(host)).expect("a number");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    }

    /// Runs `work` in a host's network namespace.
    pub(crate) fn within<T: Send>(&self, host: &str, work: impl FnOnce() -> T + Send) -> T {
        let namespace = fs::File::open(format!("/run/netns/{}-{host}", self.name)).expect("a host");
        sprat_lab::hosts::within(namespace, work).expect("a thread")
    }

    /// Runs `status`. Returns its exit code, and the name, process state and ring state of each
    /// instance.
    pub(crate) fn statuses(&self) -> (Option<i32>, Vec<[String; 3]>) {
        let ran = self.run(&["status", "--json"]);
        let report: Value =
            serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let all = report["instances"].as_array().expect("all of them");
        let one =
            |one: &Value| [word(&one["name"]), word(&one["process"]), word(&one["node"]["state"])];
        (ran.status.code(), all.iter().map(one).collect())
    }
}

impl Drop for Rack {
    fn drop(&mut self) {
        self.run(&["down"]);
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
