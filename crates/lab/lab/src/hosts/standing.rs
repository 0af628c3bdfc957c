//! A lab as it stands: made, given its addresses, taken down.

use super::links::Links;
use super::namespace::{self, Found};
use super::state::{Entry, Lock, State, StateDir};
use super::{Cable, Error, Host, Plan, kernel, privilege, within};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// How long an owner has to take its lab down when it is asked to.
const OWNER_PATIENCE: Duration = Duration::from_secs(10);

/// How often a lock is asked for before it is somebody's.
const LOCK_TRIES: u32 = 10;

const GLANCE: Duration = Duration::from_millis(10);

/// A lab that stands until this goes.
#[derive(Debug)]
pub struct Standing {
    plan: Plan,
    dir: StateDir,
    state: State,
    namespaces: Vec<File>,
    links: Vec<Links>,
    lock: Option<Lock>,
}

/// What has the name of something of the lab's, and is another's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Left {
    /// Where it is.
    pub path: PathBuf,
    /// How that is known.
    pub why: &'static str,
}

impl Standing {
    /// Makes the hosts of a plan, with the settings of their kernels, and the cables. What a crash
    /// left of a lab of the same name is removed before.
    ///
    /// # Errors
    /// The plan is unfit, rights are missing, the lab stands already, a name is taken, or the
    /// kernel refuses. What was made by then is gone again.
    pub fn make(plan: Plan, dir: &StateDir) -> Result<Self, Error> {
        plan.check()?;
        privilege::check()?;
        let Some(lock) = lock_soon(dir, &plan.name)? else { return Err(stands(dir, &plan.name)) };
        if let Some(left) = dir.read(&plan.name)? {
            take_down(dir, &left)?;
        }
        let names: Vec<_> = plan.hosts.iter().map(|host| plan.namespace(host)).collect();
        if let Some(taken) = names.iter().find(|name| namespace::is_taken(name)) {
            return Err(Error::Taken { path: namespace::path(taken) });
        }
        let namespace = names.into_iter().map(|name| Entry { name, inode: None }).collect();
        let state = State { lab: plan.name.clone(), owner: std::process::id(), namespace };
        dir.write(&state)?;
        let (namespaces, links) = (Vec::new(), Vec::new());
        let mut standing =
            Self { plan, dir: dir.clone(), state, namespaces, links, lock: Some(lock) };
        // If it fails, dropping takes down what is there.
        standing.make_namespaces()?;
        standing.make_cables()?;
        Ok(standing)
    }

    /// What it was made of.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The namespace of a host, by its place in the plan.
    ///
    /// # Panics
    /// When there is no such host.
    #[must_use]
    pub fn namespace(&self, host: usize) -> &File {
        &self.namespaces[host]
    }

    /// Gives all interfaces their addresses and sets them up; then the routes. Those that no cable
    /// ends in have to be there by now: opening them as TAPs, in the host's namespace, makes
    /// them.
    ///
    /// # Errors
    /// An interface is not there, or the kernel refuses.
    pub fn configure(&mut self) -> Result<(), Error> {
        for (host, links) in self.plan.hosts.iter().zip(&mut self.links) {
            let refused = |what: String| Error::refused(format!("host.{}: {what}", host.name));
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
    /// connections and drops segments that receivers hold out of order: flows are slower than
    /// the lab's lines.
    ///
    /// # Errors
    /// The kernel's counters cannot be read.
    pub fn memory_shortages(&self) -> Result<u64, Error> {
        let of = |(host, namespace): (&Host, &File)| {
            let refused =
                || Error::refused(format!("host.{}: read its counters of TCP", host.name));
            within(namespace, kernel::memory_shortages)
                .and_then(|counted| counted)
                .map_err(refused())
        };
        self.plan.hosts.iter().zip(&self.namespaces).map(of).sum()
    }

    /// Ends all that runs in the hosts, and removes them.
    ///
    /// # Errors
    /// Processes do not end, or the kernel refuses; the state file stays, and `down` can be tried
    /// again.
    pub fn down(mut self) -> Result<Vec<Left>, Error> {
        self.lower()
    }

    /// Leaves it standing without an owner, until [`down`] takes it down by its name; whatever runs
    /// in it goes on.
    pub fn leave(mut self) {
        self.lock = None;
    }

    fn make_namespaces(&mut self) -> Result<(), Error> {
        for number in 0..self.state.namespace.len() {
            let name = self.state.namespace[number].name.clone();
            let (state, dir) = (&mut self.state, &self.dir);
            let made = namespace::make(&name, |inode| {
                state.namespace[number].inode = Some(inode);
                dir.write(state)
            });
            if let Err(Error::Taken { .. }) = made {
                self.state.namespace.truncate(number); // another was faster: it is not ours to remove
            }
            let namespace = made?;
            let host = &self.plan.hosts[number];
            let refused = |what| Error::refused(format!("host.{}: {what}", host.name));
            within(namespace.as_fd(), || kernel::set(host))
                .map_err(refused("enter its namespace"))??;
            let mut links = Links::of(&namespace).map_err(refused("open netlink"))?;
            links.loopback().map_err(refused("set up lo"))?;
            self.links.push(links);
            self.namespaces.push(namespace);
        }
        Ok(())
    }

    fn make_cables(&mut self) -> Result<(), Error> {
        for Cable { ends: [one, other] } in &self.plan.cables {
            let what = format!("make the cable from {} to {}", one.interface, other.interface);
            let there = &self.namespaces[other.host];
            self.links[one.host]
                .pair(&one.interface, &other.interface, there)
                .map_err(Error::refused(what))?;
        }
        Ok(())
    }

    fn lower(&mut self) -> Result<Vec<Left>, Error> {
        if self.lock.is_none() {
            return Ok(Vec::new());
        }
        // What holds a namespace open keeps it there.
        self.links.clear();
        self.namespaces.clear();
        let left = take_down(&self.dir, &self.state)?;
        self.lock = None;
        Ok(left)
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        // What cannot be removed now is named in the state file, for `down`.
        let _ = self.lower();
    }
}

/// Takes a lab down that another process made: asks that to do it if it lives, does it otherwise.
///
/// # Errors
/// No such lab; rights are missing; its owner does not do it; the kernel refuses.
pub fn down(lab: &str, dir: &StateDir) -> Result<Vec<Left>, Error> {
    let unknown = || Error::Unknown { lab: lab.to_owned(), path: dir.file(lab) };
    if dir.read(lab)?.is_none() {
        return Err(unknown());
    }
    let mut owner = None;
    let begun = Instant::now();
    let _lock = loop {
        if let Some(lock) = dir.lock(lab)? {
            break lock;
        }
        let holder = holder(dir, lab);
        // Never itself: a lock of its own passes, or it has a mistake that waiting tells.
        if holder.is_some() && holder != owner && holder != Some(std::process::id()) {
            privilege::check()?;
            owner = holder;
            end(dir, lab, holder);
        }
        if begun.elapsed() > OWNER_PATIENCE {
            return Err(Error::Stuck { lab: lab.to_owned(), owner: owner.unwrap_or_default() });
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a control thread that waits for another process"
        )]
        thread::sleep(GLANCE);
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

/// Takes a lock that may just be passing: a process that is being started has the files of its
/// parent for a moment.
pub(super) fn lock_soon(dir: &StateDir, lab: &str) -> Result<Option<Lock>, Error> {
    for _ in 0..LOCK_TRIES {
        if let Some(lock) = dir.lock(lab)? {
            return Ok(Some(lock));
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a control thread that waits for another process"
        )]
        thread::sleep(GLANCE);
    }
    dir.lock(lab)
}

/// Sends the owner of a lab the signal that ends it.
fn end(dir: &StateDir, lab: &str, owner: Option<u32>) {
    let pid = owner.and_then(|owner| Pid::from_raw(i32::try_from(owner).ok()?));
    let Some(process) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return;
    };
    // Only a process that has the lock, looked at again under a handle that stays with it.
    if holder(dir, lab) == owner {
        let _ = pidfd_send_signal(process, Signal::TERM);
    }
}

/// Which process holds the lock of a lab, as proc_locks(5) has it.
fn holder(dir: &StateDir, lab: &str) -> Option<u32> {
    let inode = fs::metadata(dir.path().join(format!("{lab}.lock"))).ok()?.ino().to_string();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let &[_, "FLOCK", _, "WRITE", pid, file, ..] = &fields[..] else { return None };
        let ours = file.rsplit(':').next() == Some(&inode);
        ours.then(|| pid.parse().ok()).flatten()
    })
}

pub(super) fn stands(dir: &StateDir, lab: &str) -> Error {
    let owner = holder(dir, lab).or_else(|| dir.read(lab).ok().flatten().map(|state| state.owner));
    Error::Stands { lab: lab.to_owned(), owner: owner.unwrap_or_default() }
}

/// Removes what a state names, as far as it is what was made.
fn take_down(dir: &StateDir, state: &State) -> Result<Vec<Left>, Error> {
    let mut left = Vec::new();
    // Those without a name yet, or no more, can have processes too.
    for Entry { name, inode } in &state.namespace {
        if let Some(inode) = *inode {
            namespace::evict(inode)
                .map_err(Error::refused(format!("empty the namespace {name}")))?;
        }
        let found = namespace::find(name)
            .map_err(Error::refused(format!("look at the namespace {name}")))?;
        match found {
            Found::Nothing => {}
            Found::Namespace(number) if Some(number) == *inode => namespace::remove(name)?,
            Found::Bare => namespace::remove(name)?,
            Found::Namespace(_) => left.push(Left {
                path: namespace::path(name),
                why: "another namespace, made by others",
            }),
            Found::Other => left.push(Left { path: namespace::path(name), why: "no namespace" }),
        }
    }
    dir.remove(&state.lab)?;
    Ok(left)
}
