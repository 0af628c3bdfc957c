//! Connects a planned rack with its servers.

use crate::{Error, Event, Watcher};
use sprat_plan::{Plan, Spec};
use sprat_provision::ansible::{Recap, SshAccess, playbook};
use sprat_provision::{Folder, Local, Members, Node, RingState, nodes, survey};
use sprat_rack::{Host, Instance};
use sprat_tune::Overlay;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The machines on which a rack's servers run.
#[derive(Clone, Debug)]
pub enum Machines {
    /// Real servers, which ssh reaches at the addresses of the plan.
    Servers,
    /// Namespaces on this machine, each with an ssh server.
    Namespaces,
    /// Guests on this machine: virtual machines, started from images in this folder.
    Guests {
        /// The folder of images, shared by all racks.
        images: PathBuf,
    },
}

/// Where to find a rack: its folder, its machines and Ansible.
#[derive(Clone, Debug)]
pub struct Location {
    /// The rack's folder on this machine, with inventory, files, keys and the list of the ring's
    /// members.
    pub folder: PathBuf,
    /// The machines that are the rack's servers.
    pub machines: Machines,
    /// The folder into which pip installed Ansible. If `None`, `ansible-playbook` must be on the
    /// path.
    pub ansible: Option<PathBuf>,
}

/// A planned rack together with its servers: what all operations of this crate work on.
///
/// [`Self::open`] only reads the rack's folder. The plan is that of the description with two
/// changes: instances that are on the ring already keep their addresses and tokens, and settings
/// that tuning found are applied. Hold [`Self::lock`] while you change the rack. [`Self::up`] and
/// [`Self::down`] start and stop the complete rack, [`Self::status`](crate::Deployment::status)
/// reports what runs, and [`Self::run_command`] runs a command on one server. Every method that
/// reaches servers blocks until they have answered.
#[derive(Debug)]
pub struct Deployment {
    /// The plan of the rack, including the settings that tuning found.
    pub plan: Plan,
    /// The description of the rack, without the settings that tuning found.
    pub described: Spec,
    /// The rack's folder.
    pub folder: Folder,
    /// The hosts, if they are on this machine; otherwise `None`.
    pub local: Option<Local>,
    /// The instances on the ring; `None` if nothing was installed yet.
    pub members: Option<Members>,
    /// The settings with which ssh and Ansible reach the servers.
    pub access: SshAccess,
}

impl Deployment {
    /// Opens the rack that `spec` describes, at `location`. `rack` names the description in errors.
    ///
    /// # Errors
    /// The list of members or the tuned settings cannot be read or parsed, the plan cannot be
    /// built, or an instance on the ring would get another address.
    pub fn open(rack: &str, mut spec: Spec, location: &Location) -> Result<Self, Error> {
        let folder = Folder::at(&location.folder);
        let local = match &location.machines {
            Machines::Servers => None,
            Machines::Namespaces => Some(Local::new(&folder)),
            Machines::Guests { images } => Some(Local::with_guests(&folder, images)),
        };
        let mut access = SshAccess::default();
        if let Some(local) = &local {
            access = local.ssh_access(&spec.name);
            spec = local.adapt(spec);
        }
        access.ansible.clone_from(&location.ansible);
        let members = Members::read(&folder)?;
        if let Some(members) = &members {
            spec = members.adapt(spec);
        }
        let overlay = Overlay::read(folder.path()).map_err(Error::Overlay)?;
        let plan = Plan::new(overlay.adapt(spec.clone())).map_err(Error::during(rack))?;
        if let Some(members) = &members {
            members.check(&plan)?;
        }
        Ok(Self { plan, described: spec, folder, local, members, access })
    }

    /// Locks the rack for this process until the returned file is dropped. Without a lock, two
    /// processes that change the same servers would undo each other's work.
    ///
    /// # Errors
    /// Another process holds the lock, or has changed the ring after [`Self::open`] read the
    /// folder; or the lock file or the list of members cannot be opened.
    pub fn lock(&self) -> Result<File, Error> {
        let lock = self.folder.lock()?;
        if Members::read(&self.folder)? != self.members {
            return Err(Error::Refused(
                "another run has just changed the ring: run the command again".to_owned(),
            ));
        }
        Ok(lock)
    }

    /// Returns the rack's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.plan.spec.name
    }

    /// Runs `work` in the hosts' network. If the hosts are on this machine, this network is that of
    /// their namespace, and threads that `work` starts stay in it.
    ///
    /// # Errors [`Error::Namespace`] if the namespace cannot be opened, and [`Error::Enter`] if the
    /// thread cannot enter it. In both cases `work` has not run.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        let Some(name) = &self.access.namespace else { return Ok(work()) };
        let path = PathBuf::from(format!("/run/netns/{name}"));
        let namespace = File::open(&path).map_err(|source| Error::Namespace { path, source })?;
        sprat_lab::hosts::within(namespace, work).map_err(Error::Enter)
    }

    /// Runs a shell command on a host, and returns what it prints.
    ///
    /// # Errors
    /// ssh is not installed, the host cannot be reached, or the command exits with another status
    /// than 0.
    pub fn run_command(&self, host: &Host, command: &str) -> Result<String, Error> {
        Ok(self.access.run_command(
            &self.plan.spec.provision.user,
            &host.address.0.to_string(),
            command,
        )?)
    }

    /// Returns the instances on the ring.
    ///
    /// # Errors
    /// The description has no Cassandra, or no ring exists yet.
    pub(crate) fn begun(&self) -> Result<Members, Error> {
        if self.plan.spec.cassandra.is_none() {
            return Err(Error::Refused(
                "the description has no [cassandra], and thus no ring".to_owned(),
            ));
        }
        let none = || "this rack has no ring yet: `sprat rack up` creates it".to_owned();
        self.members.clone().ok_or_else(|| Error::Refused(none()))
    }

    /// Checks that no instance is leaving the ring: an instance that leaves must not be started
    /// again.
    ///
    /// # Errors
    /// [`Error::Refused`] if an instance is leaving the ring.
    pub(crate) fn check_none_leaves(&self) -> Result<(), Error> {
        let leaving =
            self.members.as_ref().and_then(|members| members.in_state(RingState::Leaving).next());
        leaving.map_or(Ok(()), |name| {
            Err(Error::Refused(format!(
                "{name} is leaving the ring: continue with `sprat rack remove` of it"
            )))
        })
    }

    /// Asks the instances that `may` accepts for the state of the ring, in the plan's order.
    /// Returns the first answer, and the name of the instance that gave it.
    ///
    /// # Errors
    /// [`Error::Refused`] with the first instance's error if no instance answers, or `may` accepts
    /// none.
    pub(crate) fn look(
        &self,
        hosts: &[Host],
        may: impl Fn(&Instance) -> bool,
    ) -> Result<(String, Vec<Node>), Error> {
        let mut why = None;
        for (host, instance) in instances(hosts).filter(|(_, instance)| may(instance)) {
            match self.run_command(host, &format!("{}/nodetool status", instance.home.display())) {
                Ok(text) => return Ok((instance.name.clone(), nodes(&text))),
                Err(error) => _ = why.get_or_insert_with(|| format!("{}: {error}", instance.name)),
            }
        }
        let why = why.as_deref().unwrap_or("the plan has none");
        Err(Error::Refused(format!("no instance answers: {why}")))
    }

    /// Installs on the servers what the plan describes, and starts instances and services that do
    /// not run. If the hosts are on this machine, they are made first. `jars` is the folder of
    /// Cassandra's jars; it may be empty if the description has no Cassandra. With `check`, nothing
    /// on the servers is changed, but the rack's folder is written and hosts on this machine are
    /// made. `limit` names servers, separated by commas; `None` means all servers.
    ///
    /// Returns Ansible's recap of each server.
    ///
    /// # Errors
    /// An instance is leaving the ring, a file cannot be read or written, the jars are missing,
    /// hosts on this machine cannot be made, the watcher cannot show an event, or Ansible fails.
    pub fn up(
        &self,
        jars: &Path,
        check: bool,
        limit: Option<&str>,
        watcher: &mut dyn Watcher,
    ) -> Result<Vec<Recap>, Error> {
        self.check_none_leaves()?;
        let hosts = self.folder.write(&self.plan, jars)?;
        match &self.local {
            Some(local) if local.is_up(self.name()) => local.grow(&self.plan, &hosts)?,
            Some(local) => local.up(&self.plan, &hosts)?,
            None => {}
        }
        match &self.members {
            None if check || self.plan.ring.is_none() => {}
            // The list of members is written before any instance starts with these tokens.
            None => Members::founding(&hosts).write(&self.folder)?,
            Some(members) => {
                for name in members.newcomers(&self.plan.spec)? {
                    watcher.event(Event::NotOnRing(&name)).map_err(Error::Watcher)?;
                }
            }
        }
        let mut more = Vec::new();
        if check {
            more.extend(["--check", "--diff"]);
        }
        if let Some(names) = limit {
            more.extend(["--limit", names]);
        }
        let recaps = self.play("site.yml", &more, check, watcher);
        if !check {
            // An instance that started has rows, even if other instances failed.
            self.remember_begun(&hosts)?;
        }
        recaps
    }

    /// Stops all instances and services. Hosts on this machine are removed, and with `purge` also
    /// the rack's folder; for real servers, `purge` has no effect.
    ///
    /// # Errors Ansible fails, the watcher cannot show an event, or a host on this machine or the
    /// folder cannot be removed.
    pub fn down(&self, purge: bool, watcher: &mut dyn Watcher) -> Result<(), Error> {
        let Some(local) = &self.local else {
            return self.play("stop.yml", &[], false, watcher).map(drop);
        };
        if local.is_up(self.name()) {
            local.down(self.name())?;
        }
        let path = self.folder.path();
        if purge && path.exists() {
            std::fs::remove_dir_all(path)
                .map_err(|source| Error::File { path: path.to_owned(), source })?;
        }
        Ok(())
    }

    /// Runs a playbook, and reports its tasks; with `check` also each line of output.
    pub(crate) fn play(
        &self,
        name: &str,
        more: &[&str],
        check: bool,
        watcher: &mut dyn Watcher,
    ) -> Result<Vec<Recap>, Error> {
        let mut shown = Ok(());
        let mut line = |line: &str| {
            if let Some(task) = line.strip_prefix("TASK [").filter(|_| shown.is_ok()) {
                shown = watcher.event(Event::Doing(task.trim_end_matches(['*', ' ', ']'])));
            }
            if check && shown.is_ok() {
                shown = watcher.event(Event::Checked(line));
            }
        };
        let recaps = playbook(&self.folder, &self.access, name, more, &mut line)?;
        shown.map_err(Error::Watcher)?;
        Ok(recaps)
    }

    /// Brings all servers to the plan, including those that only need new names or settings after
    /// the set of instances has changed.
    pub(crate) fn settle(&self, watcher: &mut dyn Watcher) -> Result<(), Error> {
        let doing = "the ring has changed, but not all servers have the new settings; `sprat rack \
                     up` completes this";
        self.play("site.yml", &[], false, watcher).map(drop).map_err(Error::during(doing))
    }

    /// Records which instances run: they have rows, and must never be started without them.
    fn remember_begun(&self, hosts: &[Host]) -> Result<(), Error> {
        let Some(mut members) = Members::read(&self.folder)? else { return Ok(()) };
        if members.begun(&survey(&self.access, &self.plan.spec.provision.user, hosts)) {
            members.write(&self.folder)?;
        }
        Ok(())
    }
}

/// Returns all instances, each with its host, in the plan's order.
pub(crate) fn instances(hosts: &[Host]) -> impl Iterator<Item = (&Host, &Instance)> {
    hosts.iter().flat_map(|host| host.instances.iter().map(move |instance| (host, instance)))
}

/// Returns the hosts with only those instances whose names `belongs` accepts, and omits hosts that
/// then have no instance.
pub(crate) fn only(hosts: &[Host], belongs: impl Fn(&String) -> bool) -> Vec<Host> {
    let part = |host: &Host| {
        let instances: Vec<Instance> =
            host.instances.iter().filter(|one| belongs(&one.name)).cloned().collect();
        (!instances.is_empty()).then(|| Host { instances, ..host.clone() })
    };
    hosts.iter().filter_map(part).collect()
}

/// Returns whether `name` is the instance `instance`, or the server that runs it.
pub(crate) fn names_instance(name: &str, instance: &str) -> bool {
    name == instance || instance.strip_prefix(name).is_some_and(|rest| rest.starts_with("-i"))
}
