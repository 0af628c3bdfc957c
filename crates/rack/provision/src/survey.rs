//! What runs on hosts, as they say themselves: nodetool tells what others believe, and believes it
//! for some seconds too long.

use crate::ansible::Reach;
use serde::Serialize;
use sprat_host::lock;
use sprat_rack::Host;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

/// Hosts that are asked at once.
const AT_ONCE: usize = 16;

/// Whether an instance runs.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "process")]
pub enum Alive {
    /// It does.
    Running {
        /// Its process.
        pid: u32,
    },
    /// It does not.
    Stopped,
    /// It was never brought there.
    Absent,
    /// Its host cannot be asked.
    Unreachable {
        /// Why.
        why: String,
    },
}

/// An instance, as its host sees it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Seen {
    /// Its name.
    pub instance: String,
    /// Whether it runs.
    pub alive: Alive,
}

/// Asks all hosts, several at once. One that cannot be asked keeps nobody waiting but for ssh's own
/// patience.
#[must_use]
pub fn survey(reach: &Reach, user: &str, hosts: &[Host]) -> Vec<Seen> {
    all(reach, user, hosts, &|host| {
        host.instances.iter().map(|one| (&one.name[..], &*one.home)).collect()
    })
}

/// The same of what is on hosts of etcd and Sprat.
#[must_use]
pub fn survey_services(reach: &Reach, user: &str, hosts: &[Host]) -> Vec<Seen> {
    all(reach, user, hosts, &|host| {
        host.services.iter().map(|one| (&one.name[..], &*one.home)).collect()
    })
}

/// Of a host the names and folders of those who are asked for.
type Asked<'a> = dyn Fn(&Host) -> Vec<(&str, &Path)> + Sync + 'a;

fn all(reach: &Reach, user: &str, hosts: &[Host], asked: &Asked<'_>) -> Vec<Seen> {
    let left: Mutex<VecDeque<usize>> = Mutex::new((0..hosts.len()).collect());
    let found: Mutex<Vec<Vec<Seen>>> = Mutex::new(vec![Vec::new(); hosts.len()]);
    let work = || {
        loop {
            let next = lock(&left).pop_front();
            let Some(at) = next else { return };
            let seen = ask(reach, user, &hosts[at], &asked(&hosts[at]));
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

fn ask(reach: &Reach, user: &str, host: &Host, asked: &[(&str, &Path)]) -> Vec<Seen> {
    if asked.is_empty() {
        return Vec::new();
    }
    let mut script = String::new();
    for (_, home) in asked {
        let program = format!("{}/instance", home.display());
        writeln!(
            script,
            "if [ -e {program} ]; then {program} status || true; else echo absent; fi"
        )
        .expect("a string takes all");
    }
    let answer = reach.ask(user, &host.address.0.to_string(), &script);
    let told = |at: usize| match &answer {
        Err(error) => Alive::Unreachable { why: error.to_string() },
        Ok(text) => text.lines().nth(at).map_or(Alive::Stopped, alive),
    };
    let seen = |(at, (name, _)): (usize, &(&str, &Path))| Seen {
        instance: (*name).to_owned(),
        alive: told(at),
    };
    asked.iter().enumerate().map(seen).collect()
}

/// What `instance status` says, a line.
fn alive(line: &str) -> Alive {
    match (line.trim(), line.trim().strip_prefix("running: ").and_then(|pid| pid.parse().ok())) {
        (_, Some(pid)) => Alive::Running { pid },
        ("absent", None) => Alive::Absent,
        _ => Alive::Stopped,
    }
}
