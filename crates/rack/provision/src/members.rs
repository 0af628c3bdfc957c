//! Records in the rack's folder which instances are on its ring. The description alone does not say
//! this, because it may have changed since the ring was started.

use crate::{Error, Folder, InstanceProcess, ProcessState};
use serde::{Deserialize, Serialize};
use sprat_plan::ring::RingMember;
use sprat_plan::{Plan, Spec};
use sprat_rack::{Host, hosts};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::IpAddr;

/// Name of the file in the rack's folder.
const FILE: &str = "members.json";

/// The instances on a ring, as the rack's folder records them. [`Members::founding`] begins a ring
/// with all instances of a plan, [`Members::joined_by`] adds instances, and [`Members::adapt`] puts
/// the list into a description so that its plan keeps their tokens. Write the list to the folder
/// after each change.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Members {
    /// Instances on the ring, joining it or leaving it, by name.
    pub instances: BTreeMap<String, KnownInstance>,
    /// Names of instances that have left. They join again only if they are named.
    pub away: BTreeSet<String>,
    /// Names of instances whose disks still have rows that have moved to other instances.
    pub unclean: BTreeSet<String>,
}

/// The record of an instance.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct KnownInstance {
    /// The instance's address.
    pub address: IpAddr,
    /// The instance's tokens.
    pub tokens: Vec<i64>,
    /// Whether the instance joined an existing ring.
    pub joined: bool,
    /// Whether the instance has ever been up on the ring; if so, its disk has rows.
    #[serde(default)]
    pub begun: bool,
    /// Whether the instance is on the ring, joining it or leaving it.
    pub state: RingState,
}

/// The state of an instance on the ring.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RingState {
    /// The instance is on the ring.
    Here,
    /// The instance is joining the ring.
    Joining,
    /// The instance is leaving the ring.
    Leaving,
}

impl Members {
    /// Reads the list from a rack's folder. Returns `None` if no ring was started yet.
    ///
    /// # Errors
    /// The file exists but cannot be read, or is not the JSON of a list. The error has the path.
    pub fn read(folder: &Folder) -> Result<Option<Self>, Error> {
        let path = folder.file(FILE);
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => {
                let parsed =
                    read.and_then(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::other));
                parsed.map(Some).map_err(Error::file(path))
            }
        }
    }

    /// Writes the list to a rack's folder atomically.
    ///
    /// # Errors
    /// The new file cannot be written, synced or renamed. The error has the path.
    pub fn write(&self, folder: &Folder) -> Result<(), Error> {
        let path = folder.file(FILE);
        let text = serde_json::to_vec_pretty(self).expect("names and numbers have a form in JSON");
        sprat_host::replace(&path, &text).map_err(Error::file(&path))
    }

    /// Returns a list of all instances of a plan, which form a new ring.
    #[must_use]
    pub fn founding(hosts: &[Host]) -> Self {
        let all = hosts.iter().flat_map(|host| &host.instances);
        let known = |instance: &sprat_rack::Instance| KnownInstance {
            address: instance.address,
            tokens: instance.tokens.clone(),
            joined: false,
            begun: false,
            state: RingState::Here,
        };
        Self {
            instances: all.map(|one| (one.name.clone(), known(one))).collect(),
            ..Self::default()
        }
    }

    /// Returns the description with these instances as members.
    #[must_use]
    pub fn adapt(&self, mut spec: Spec) -> Spec {
        let member = |known: &KnownInstance| RingMember {
            tokens: known.tokens.clone(),
            joined: known.joined,
            begun: known.begun,
        };
        let all =
            self.instances.iter().map(|(name, known)| (name.clone(), member(known))).collect();
        spec.members = spec.cassandra.is_some().then_some(all);
        spec
    }

    /// Checks that a plan gives each instance the address that it has on the ring.
    ///
    /// # Errors
    /// [`Error::Moved`] for the first instance that would get another address.
    pub fn check(&self, plan: &Plan) -> Result<(), Error> {
        for instance in hosts(plan).iter().flat_map(|host| &host.instances) {
            let known = self.instances.get(&instance.name);
            if let Some(known) = known.filter(|known| known.address != instance.address) {
                let (name, was, is) = (instance.name.clone(), known.address, instance.address);
                return Err(Error::Moved { name, was, is });
            }
        }
        Ok(())
    }

    /// Adds the named instances as joining. Returns a plan that includes them, with tokens between
    /// those of the other instances.
    ///
    /// # Errors
    /// [`JoinError::Plan`] if the description gives no plan with these instances, and
    /// [`JoinError::Members`] if an instance on the ring would get another address.
    pub fn joined_by(&mut self, spec: &Spec, names: &[String]) -> Result<Plan, JoinError> {
        let mut with = self.adapt(spec.clone());
        let newcomer = || RingMember { joined: true, ..RingMember::default() };
        if let Some(members) = &mut with.members {
            for name in names {
                members.entry(name.clone()).or_insert_with(newcomer);
            }
        }
        let plan = Plan::new(with)?;
        self.check(&plan)?;
        for instance in hosts(&plan).iter().flat_map(|host| &host.instances) {
            let (address, tokens) = (instance.address, instance.tokens.clone());
            let known = KnownInstance {
                address,
                tokens,
                joined: true,
                begun: false,
                state: RingState::Joining,
            };
            self.instances.entry(instance.name.clone()).or_insert(known);
            self.away.remove(&instance.name);
        }
        // Plans again with the tokens, which are known now.
        Ok(Plan::new(self.adapt(spec.clone()))?)
    }

    /// Marks instances that run, and neither join nor leave, as having rows. Returns whether that
    /// changed the list.
    pub fn begun(&mut self, seen: &[InstanceProcess]) -> bool {
        let mut changed = false;
        for one in seen.iter().filter(|one| matches!(one.alive, ProcessState::Running { .. })) {
            if let Some(known) =
                self.instances.get_mut(&one.instance).filter(|known| known.state == RingState::Here)
            {
                changed |= !std::mem::replace(&mut known.begun, true);
            }
        }
        changed
    }

    /// Returns the names of instances in a state.
    pub fn in_state(&self, state: RingState) -> impl Iterator<Item = &String> {
        self.instances.iter().filter(move |(_, known)| known.state == state).map(|(name, _)| name)
    }

    /// Returns the instances of a description that are not on the ring and have not left it.
    ///
    /// # Errors
    /// The description gives no plan for a new ring.
    pub fn newcomers(&self, spec: &Spec) -> Result<Vec<String>, sprat_plan::PlanError> {
        let alone = Plan::new(Spec { members: None, ..spec.clone() })?;
        let all =
            hosts(&alone).into_iter().flat_map(|host| host.instances).map(|instance| instance.name);
        Ok(all
            .filter(|name| !self.instances.contains_key(name) && !self.away.contains(name))
            .collect())
    }
}

/// Why instances cannot join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The description gives no plan.
    #[error(transparent)]
    Plan(#[from] sprat_plan::PlanError),
    /// An instance on the ring would get another address.
    #[error(transparent)]
    Members(#[from] Error),
}
