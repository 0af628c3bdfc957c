//! The hosts of a lab: makes them, gives them addresses, and takes them down.

use super::links::Links;
use super::namespace::{self, Found};
use super::state::{Entry, Lock, State, StateDir};
use super::{Cable, Host, HostsError, HostsPlan, kernel, privilege, within};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// Limit on the time in which another process takes its lab down after SIGTERM.
const OWNER_PATIENCE: Duration = Duration::from_secs(10);

/// Number of attempts to take a lock, each followed by a pause if it fails. One more attempt comes
/// after them and is the last.
const LOCK_TRIES: u32 = 10;

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The hosts of a lab, as they exist in the kernel. Dropping this removes the hosts.
///
/// Call [`make`](Self::make), then open the interfaces that boxes need in the hosts' namespaces,
/// then call [`configure`](Self::configure). A state file names everything that was made, so that
/// the function [`down`] can remove it after a crash. [`Self::down`] removes the lab and reports
/// what could not be removed; dropping does this without a report. [`leave`](Self::leave) keeps the
/// lab without an owner.
#[derive(Debug)]
pub struct LabHosts {
    plan: HostsPlan,
    dir: StateDir,
    state: State,
    namespaces: Vec<File>,
    links: Vec<Links>,
    lock: Option<Lock>,
}

/// Something that has a name of the lab but was made by others, and so was not removed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Leftover {
    /// The path of what was left.
    pub path: PathBuf,
    /// Why it was not removed.
    pub why: &'static str,
}

impl LabHosts {
    /// Makes the hosts of a plan, with their kernel settings, and the cables. If there is a lab of
    /// the same name without an owner, because its owner crashed or called [`leave`](Self::leave),
    /// the old lab is removed first.
    ///
    /// # Errors
    /// The plan is invalid, privileges are missing, the lab exists already, a name is taken, or the
    /// kernel refuses a step. What was already made is removed.
    pub fn make(plan: HostsPlan, dir: &StateDir) -> Result<Self, HostsError> {
        plan.check()?;
        privilege::check()?;
        let Some(lock) = lock_with_retries(dir, &plan.name)? else {
            return Err(exists_already(dir, &plan.name));
        };
        if let Some(left) = dir.read(&plan.name)? {
            take_down(dir, &left)?;
        }
        let names: Vec<_> = plan.hosts.iter().map(|host| plan.namespace(host)).collect();
        if let Some(taken) = names.iter().find(|name| namespace::is_taken(name)) {
            return Err(HostsError::Taken { path: namespace::path(taken) });
        }
        let namespace = names.into_iter().map(|name| Entry { name, inode: None }).collect();
        let state = State { lab: plan.name.clone(), owner: std::process::id(), namespace };
        dir.write(&state)?;
        let (namespaces, links) = (Vec::new(), Vec::new());
        let mut standing =
            Self { plan, dir: dir.clone(), state, namespaces, links, lock: Some(lock) };
        // If a step fails, dropping `standing` removes what was made.
        standing.make_namespaces()?;
        standing.make_cables()?;
        Ok(standing)
    }

    /// Returns the plan.
    #[must_use]
    pub fn plan(&self) -> &HostsPlan {
        &self.plan
    }

    /// Returns the namespace of a host, by its index in the plan.
    ///
    /// # Panics
    /// There is no such host.
    #[must_use]
    pub fn namespace(&self, host: usize) -> &File {
        &self.namespaces[host]
    }

    /// Sets up all interfaces with their addresses, then the bridges and routes. Interfaces in
    /// which no cable ends must already exist: the caller makes them by opening TAPs in the host's
    /// namespace.
    ///
    /// # Errors
    /// An interface does not exist, or the kernel refuses to set up an interface, a bridge or a
    /// route.
    pub fn configure(&mut self) -> Result<(), HostsError> {
        for (host, links) in self.plan.hosts.iter().zip(&mut self.links) {
            let refused = |what: String| HostsError::refused(format!("host.{}: {what}", host.name));
            for interface in &host.interfaces {
                let what = format!("set up interface {}", interface.name);
                links.configure(interface).map_err(refused(what))?;
            }
            if let Some(bridge) = &host.bridge {
                links
                    .bridge(bridge, &host.interfaces)
                    .map_err(refused(format!("make bridge {bridge}")))?;
            }
            for route in &host.routes {
                links
                    .add_route(route)
                    .map_err(refused(format!("route to {} via {}", route.to, route.via)))?;
            }
        }
        Ok(())
    }

    /// Returns how often connections of hosts have found the kernel short of memory for TCP
    /// (`net.ipv4.tcp_mem`) since the lab was made. The kernel then cuts the windows of all
    /// connections and drops segments that receivers hold out of order: flows are slower than the
    /// lab's lines.
    ///
    /// # Errors
    /// The kernel's counters cannot be read.
    pub fn memory_shortages(&self) -> Result<u64, HostsError> {
        let of = |(host, namespace): (&Host, &File)| {
            let refused =
                || HostsError::refused(format!("host.{}: read its counters of TCP", host.name));
            within(namespace, kernel::memory_shortages)
                .and_then(|counted| counted)
                .map_err(refused())
        };
        self.plan.hosts.iter().zip(&self.namespaces).map(of).sum()
    }

    /// Ends all processes in the hosts, and removes the hosts. Returns what was left because others
    /// made it.
    ///
    /// # Errors
    /// Processes do not end, or the kernel refuses to remove something. The state file stays, so
    /// that `down` can be tried again.
    pub fn down(mut self) -> Result<Vec<Leftover>, HostsError> {
        self.remove()
    }

    /// Keeps the lab without an owner, until [`down`] removes it by name or [`make`](Self::make)
    /// replaces it. Processes in the lab continue to run.
    pub fn leave(mut self) {
        self.lock = None;
    }

    fn make_namespaces(&mut self) -> Result<(), HostsError> {
        for number in 0..self.state.namespace.len() {
            let name = self.state.namespace[number].name.clone();
            let (state, dir) = (&mut self.state, &self.dir);
            let made = namespace::make(&name, |inode| {
                state.namespace[number].inode = Some(inode);
                dir.write(state)
            });
            if let Err(HostsError::Taken { .. }) = made {
                // Another process made a namespace of this name in the meantime. That namespace
                // must stay.
                self.state.namespace.truncate(number);
            }
            let namespace = made?;
            let host = &self.plan.hosts[number];
            let refused = |what| HostsError::refused(format!("host.{}: {what}", host.name));
            within(namespace.as_fd(), || kernel::set(host))
                .map_err(refused("enter its namespace"))??;
            let mut links = Links::of(&namespace).map_err(refused("open netlink"))?;
            links.loopback().map_err(refused("set up lo"))?;
            self.links.push(links);
            self.namespaces.push(namespace);
        }
        Ok(())
    }

    fn make_cables(&mut self) -> Result<(), HostsError> {
        for Cable { ends: [one, other] } in &self.plan.cables {
            let what = format!("make the cable from {} to {}", one.interface, other.interface);
            let there = &self.namespaces[other.host];
            self.links[one.host]
                .pair(&one.interface, &other.interface, there)
                .map_err(HostsError::refused(what))?;
        }
        Ok(())
    }

    fn remove(&mut self) -> Result<Vec<Leftover>, HostsError> {
        if self.lock.is_none() {
            return Ok(Vec::new());
        }
        // An open descriptor would keep the namespace alive.
        self.links.clear();
        self.namespaces.clear();
        let left = take_down(&self.dir, &self.state)?;
        self.lock = None;
        Ok(left)
    }
}

impl Drop for LabHosts {
    fn drop(&mut self) {
        // What cannot be removed now stays in the state file, so that `down` can remove it later.
        let _ = self.remove();
    }
}

/// Takes down a lab by name. If its owner lives, sends SIGTERM to the owner, which then takes the
/// lab down; otherwise removes the lab directly.
///
/// # Errors
/// There is no such lab, its state file is invalid, privileges are missing, its owner does not end
/// within 10 seconds, or the kernel refuses a step.
pub fn down(lab: &str, dir: &StateDir) -> Result<Vec<Leftover>, HostsError> {
    let unknown = || HostsError::Unknown { lab: lab.to_owned(), path: dir.file(lab) };
    if dir.read(lab)?.is_none() {
        return Err(unknown());
    }
    let mut owner = None;
    let begun = Instant::now();
    let _lock = loop {
        if let Some(lock) = dir.lock(lab)? {
            break lock;
        }
        let holder = lock_holder(dir, lab);
        // This process never sends the signal to itself. If this process holds the lock, either it
        // soon releases the lock, or a mistake in the program keeps it, and the time limit ends the
        // wait.
        if holder.is_some() && holder != owner && holder != Some(std::process::id()) {
            privilege::check()?;
            owner = holder;
            terminate_owner(dir, lab, holder);
        }
        if begun.elapsed() > OWNER_PATIENCE {
            return Err(HostsError::Stuck {
                lab: lab.to_owned(),
                owner: owner.unwrap_or_default(),
            });
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a control thread that waits for another process"
        )]
        thread::sleep(POLL_INTERVAL);
    };
    match dir.read(lab)? {
        Some(state) => {
            privilege::check()?;
            take_down(dir, &state)
        }
        None if owner.is_some() => Ok(Vec::new()),
        None => Err(unknown()),
    }
}

/// Takes a lab's lock, with retries: a process that is being started has the open files of its
/// parent for a moment, and holds the lock through them.
pub(super) fn lock_with_retries(dir: &StateDir, lab: &str) -> Result<Option<Lock>, HostsError> {
    for _ in 0..LOCK_TRIES {
        if let Some(lock) = dir.lock(lab)? {
            return Ok(Some(lock));
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a control thread that waits for another process"
        )]
        thread::sleep(POLL_INTERVAL);
    }
    dir.lock(lab)
}

/// Sends SIGTERM to the owner of a lab.
fn terminate_owner(dir: &StateDir, lab: &str, owner: Option<u32>) {
    let pid = owner.and_then(|owner| Pid::from_raw(i32::try_from(owner).ok()?));
    let Some(process) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return;
    };
    // The lock is checked again while the pidfd keeps the process number from being reused.
    if lock_holder(dir, lab) == owner {
        let _ = pidfd_send_signal(process, Signal::TERM);
    }
}

/// Returns the process that holds a lab's lock, from `/proc/locks` (proc_locks(5)).
fn lock_holder(dir: &StateDir, lab: &str) -> Option<u32> {
    let inode = fs::metadata(dir.path().join(format!("{lab}.lock"))).ok()?.ino().to_string();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let &[_, "FLOCK", _, "WRITE", pid, file, ..] = &fields[..] else { return None };
        let ours = file.rsplit(':').next() == Some(&inode);
        ours.then(|| pid.parse().ok()).flatten()
    })
}

pub(super) fn exists_already(dir: &StateDir, lab: &str) -> HostsError {
    let owner =
        lock_holder(dir, lab).or_else(|| dir.read(lab).ok().flatten().map(|state| state.owner));
    HostsError::Exists { lab: lab.to_owned(), owner: owner.unwrap_or_default() }
}

/// Removes what a state file names, except what others made.
fn take_down(dir: &StateDir, state: &State) -> Result<Vec<Leftover>, HostsError> {
    let mut left = Vec::new();
    // A namespace can contain processes even if it has no name yet, or no longer has one.
    for Entry { name, inode } in &state.namespace {
        if let Some(inode) = *inode {
            namespace::end_processes(inode)
                .map_err(HostsError::refused(format!("empty the namespace {name}")))?;
        }
        let found = namespace::find(name)
            .map_err(HostsError::refused(format!("look at the namespace {name}")))?;
        match found {
            Found::Nothing => {}
            Found::Namespace(number) if Some(number) == *inode => namespace::remove(name)?,
            Found::Bare => namespace::remove(name)?,
            Found::Namespace(_) => left.push(Leftover {
                path: namespace::path(name),
                why: "another namespace, made by others",
            }),
            Found::Other => {
                left.push(Leftover { path: namespace::path(name), why: "no namespace" })
            }
        }
    }
    dir.remove(&state.lab)?;
    Ok(left)
}
