//! Asks hosts which processes run. nodetool reports what other instances know, which may be some
//! seconds old.

use crate::ansible::SshAccess;
use serde::Serialize;
use sprat_host::lock;
use sprat_rack::Host;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

/// Number of hosts that are asked at the same time.
const AT_ONCE: usize = 16;

/// Whether an instance's process runs.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "process")]
pub enum ProcessState {
    /// The process runs.
    Running {
        /// The id of the process.
        pid: u32,
    },
    /// The instance or service is installed and does not run.
    Stopped,
    /// The instance or service was never installed on its host.
    Absent,
    /// The host does not answer.
    Unreachable {
        /// The error.
        why: String,
    },
}

/// The process of an instance or service, as its host reports it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct InstanceProcess {
    /// Name of the instance or service.
    pub instance: String,
    /// The state of the process on its host.
    pub alive: ProcessState,
}

/// Asks all hosts about their instances of Cassandra, several hosts at a time. A host that does not
/// answer delays the result by ssh's timeout.
#[must_use]
pub fn survey(access: &SshAccess, user: &str, hosts: &[Host]) -> Vec<InstanceProcess> {
    survey_hosts(access, user, hosts, &|host| {
        host.instances.iter().map(|one| (&one.name[..], &*one.home)).collect()
    })
}

/// Asks all hosts about their services of etcd and Sprat.
#[must_use]
pub fn survey_services(access: &SshAccess, user: &str, hosts: &[Host]) -> Vec<InstanceProcess> {
    survey_hosts(access, user, hosts, &|host| {
        host.services.iter().map(|one| (&one.name[..], &*one.home)).collect()
    })
}

/// Lists the names and folders to ask a host for.
type Listed<'a> = dyn Fn(&Host) -> Vec<(&str, &Path)> + Sync + 'a;

fn survey_hosts(
    access: &SshAccess,
    user: &str,
    hosts: &[Host],
    processes: &Listed<'_>,
) -> Vec<InstanceProcess> {
    let left: Mutex<VecDeque<usize>> = Mutex::new((0..hosts.len()).collect());
    let found: Mutex<Vec<Vec<InstanceProcess>>> = Mutex::new(vec![Vec::new(); hosts.len()]);
    let work = || {
        loop {
            let next = lock(&left).pop_front();
            let Some(at) = next else { return };
            let seen = survey_host(access, user, &hosts[at], &processes(&hosts[at]));
            lock(&found)[at] = seen;
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(hosts.len()) {
            scope.spawn(work);
        }
    });
    found
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .into_iter()
        .flatten()
        .collect()
}

fn survey_host(
    access: &SshAccess,
    user: &str,
    host: &Host,
    processes: &[(&str, &Path)],
) -> Vec<InstanceProcess> {
    if processes.is_empty() {
        return Vec::new();
    }
    let mut script = String::new();
    for (_, home) in processes {
        let program = format!("{}/instance", home.display());
        writeln!(
            script,
            "if [ -e {program} ]; then {program} status || true; else echo absent; fi"
        )
        .expect("a string takes all");
    }
    let answer = access.run_command(user, &host.address.0.to_string(), &script);
    let state = |at: usize| match &answer {
        Err(error) => ProcessState::Unreachable { why: error.to_string() },
        Ok(text) => text.lines().nth(at).map_or(ProcessState::Stopped, parse_state),
    };
    let seen = |(at, (name, _)): (usize, &(&str, &Path))| InstanceProcess {
        instance: (*name).to_owned(),
        alive: state(at),
    };
    processes.iter().enumerate().map(seen).collect()
}

/// Parses a line of `instance status`.
fn parse_state(line: &str) -> ProcessState {
    match (line.trim(), line.trim().strip_prefix("running: ").and_then(|pid| pid.parse().ok())) {
        (_, Some(pid)) => ProcessState::Running { pid },
        ("absent", None) => ProcessState::Absent,
        _ => ProcessState::Stopped,
    }
}
