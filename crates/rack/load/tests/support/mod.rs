//! A real Cassandra: one instance with the files of a rack's instance, on a loopback address of its
//! own.

use sprat_plan::Plan;
use sprat_rack::{Instance, hosts, write_instance};
use sprat_testing::{skip, until_stopped};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use tempfile::TempDir;

/// An instance of Cassandra. Dropping it kills its process.
pub(crate) struct Node {
    instance: Instance,
    /// The instance's address.
    pub(crate) contact: String,
    _folder: TempDir,
}

impl Node {
    /// Starts an instance, and waits until it answers. Returns `None`, and counts a skipped test,
    /// if jars or Java are missing.
    pub(crate) fn start() -> Option<Self> {
        let library =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../target/tools/cassandra/lib");
        let Ok(library) = library.canonicalize() else {
            skip("load on a real Cassandra: its jars are not here (scripts/setup fetches them)");
            return None;
        };
        if Command::new("java").arg("-version").output().is_err() {
            skip("load on a real Cassandra: there is no java here");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let id = std::process::id();
        let toml = format!(
            "name = \"load\"\n[server]\ncores = 2\nmemory = \"1GiB\"\ndisks = [\"10GB\"]\n\
             port-rate = \"1Gb/s\"\n[chassis]\nservers = 1\n\
             [addresses]\nv4 = \"127.{}.{}.0/26\"\n[cassandra]\nreplication = 1\ntokens = 4\n\
             java = [\"-Dcassandra.skip_wait_for_gossip_to_settle=0\", \
             \"-Dcassandra.ring_delay_ms=0\"]\n\
             [provision]\nbase = \"{}\"\nlibrary = \"{}\"\n",
            128 + id / 250 % 120,
            id % 250,
            folder.path().display(),
            library.display()
        );
        let plan = Plan::from_toml(&toml).unwrap_or_else(|error| panic!("{error}\n{toml}"));
        let instance = hosts(&plan).remove(0).instances.remove(0);
        write_instance(&instance, &instance.home).expect("its files");
        let contact = format!("{}:9042", instance.address);
        let node = Self { instance, contact, _folder: folder };
        for what in ["start", "wait"] {
            let ran = node.run(what);
            assert!(ran.status.success(), "{what}: {}", String::from_utf8_lossy(&ran.stderr));
        }
        Some(node)
    }

    fn run(&self, what: &str) -> Output {
        let program = self.instance.home.join("instance");
        Command::new(&program)
            .arg(what)
            .output()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()))
    }

    /// Sends the instance's process a signal. After `STOP` the process is stopped.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = fs::read_to_string(self.instance.home.join("run/pid")).unwrap_or_default();
        if let Some(pid) = pid.trim().parse().ok().and_then(rustix::process::Pid::from_raw) {
            rustix::process::kill_process(pid, signal).expect("it runs");
            if signal == rustix::process::Signal::STOP {
                until_stopped(pid.as_raw_nonzero().get().cast_unsigned());
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.run("status").status.success() {
            // SIGKILL also ends a process that is stopped.
            self.signal(rustix::process::Signal::KILL);
        }
    }
}
