//! Runs the script that controls a service, with a service that a few lines of shell stand for.

use sprat_plan::Plan;
use sprat_plan::racks::ready;
use sprat_rack::{hosts, write_instance};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A folder with the script and a service. Dropping it kills the service's process.
struct Service {
    home: PathBuf,
    _folder: TempDir,
}

impl Service {
    /// Returns a service that runs `program`, a text of shell.
    fn new(program: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let home = folder.path().join("service");
        let text = ready("cassandra-6").expect("it is there").toml;
        let plan = Plan::from_toml(text).unwrap_or_else(|error| panic!("{error}"));
        write_instance(&hosts(&plan).remove(0).instances.remove(0), &home).expect("its files");
        let kind = "kind=test\nmark=\"$home/program\"\ncheck() { :; }\nserve() { exec \
                    \"$home/program\"; }\nready() { return 1; }\nwords() { :; }\n";
        fs::write(home.join("kind"), kind).expect("writable");
        write_program(&home.join("program"), program);
        Self { home, _folder: folder }
    }

    fn run(&self, what: &str) -> Output {
        Command::new(self.home.join("instance")).arg(what).output().expect("it runs")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let pid = fs::read_to_string(self.home.join("run/pid")).unwrap_or_default();
        if let Some(pid) = pid.trim().parse().ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

fn write_program(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}")).expect("writable");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
}

// A Cassandra was reported as ended just when the script's process had become Java's: between two
// programs, a process has no command line.
#[test]
fn a_service_runs_while_its_process_becomes_another_program() {
    let service = Service::new("exec \"$0\"\n");
    let started = service.run("start");
    assert!(started.status.success(), "{started:?}");
    for look in 0..200 {
        let status = service.run("status");
        assert!(status.status.success(), "look {look}: {status:?}");
    }
}

#[test]
fn a_service_that_has_ended_does_not_run() {
    let service = Service::new("echo no disk is here; exit 3\n");
    let started = service.run("start");
    // The process may have ended before `start` looks for it.
    let ended = if started.status.success() { service.run("wait") } else { started };
    let text = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && text.contains("no disk is here"), "{ended:?}");
    assert_eq!(service.run("status").status.code(), Some(3));
}
