//! Who is on a rack's ring: what its folder remembers, for a description does not tell who was
//! there before it was changed.

use crate::{Alive, Error, Folder, Seen};
use serde::{Deserialize, Serialize};
use sprat_plan::ring::RingMember;
use sprat_plan::{Plan, Spec};
use sprat_rack::{Host, hosts};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::IpAddr;

/// Where in a rack's folder.
const FILE: &str = "members.json";

/// Who is on a ring.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Members {
    /// By name.
    pub instances: BTreeMap<String, Known>,
    /// Who has left, and does not come back by itself.
    pub away: BTreeSet<String>,
    /// Who still has rows on its disks that went to others.
    pub unclean: BTreeSet<String>,
}

/// What is known of an instance.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// Its address.
    pub address: IpAddr,
    /// Its tokens.
    pub tokens: Vec<i64>,
    /// Whether it came when there was a ring already.
    pub joined: bool,
    /// Whether it has been up as a member, so that it has rows.
    #[serde(default)]
    pub begun: bool,
    /// What becomes of it.
    pub state: State,
}

/// What becomes of an instance.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is there.
    Here,
    /// It comes.
    Joining,
    /// It leaves.
    Leaving,
}

impl Members {
    /// What a rack's folder says; none: nobody was brought there yet.
    ///
    /// # Errors
    /// It cannot be read, or is not what was written.
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

    /// Writes it there, all of it or nothing.
    ///
    /// # Errors
    /// Whatever the filesystem says.
    pub fn write(&self, folder: &Folder) -> Result<(), Error> {
        let path = folder.file(FILE);
        let text = serde_json::to_vec_pretty(self).expect("names and numbers have a form in JSON");
        sprat_host::replace(&path, &text).map_err(Error::file(&path))
    }

    /// All instances of a plan, which begin together.
    #[must_use]
    pub fn founding(hosts: &[Host]) -> Self {
        let all = hosts.iter().flat_map(|host| &host.instances);
        let known = |instance: &sprat_rack::Instance| Known {
            address: instance.address,
            tokens: instance.tokens.clone(),
            joined: false,
            begun: false,
            state: State::Here,
        };
        Self {
            instances: all.map(|one| (one.name.clone(), known(one))).collect(),
            ..Self::default()
        }
    }

    /// A description that knows of them.
    #[must_use]
    pub fn adapt(&self, mut spec: Spec) -> Spec {
        let member = |known: &Known| RingMember {
            tokens: known.tokens.clone(),
            joined: known.joined,
            begun: known.begun,
        };
        let all =
            self.instances.iter().map(|(name, known)| (name.clone(), member(known))).collect();
        spec.members = spec.cassandra.is_some().then_some(all);
        spec
    }

    /// See that a plan has everybody where they are.
    ///
    /// # Errors
    /// Somebody would have another address.
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

    /// Takes newcomers in: a plan that has them, with tokens between those of the others.
    ///
    /// # Errors
    /// Some would move; the plan cannot be.
    pub fn joined_by(&mut self, spec: &Spec, names: &[String]) -> Result<Plan, Joining> {
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
            let known =
                Known { address, tokens, joined: true, begun: false, state: State::Joining };
            self.instances.entry(instance.name.clone()).or_insert(known);
            self.away.remove(&instance.name);
        }
        // Once more, for now they have theirs.
        Ok(Plan::new(self.adapt(spec.clone()))?)
    }

    /// Remembers who runs: members with rows from now on. Whether that is news.
    pub fn begun(&mut self, seen: &[Seen]) -> bool {
        let mut news = false;
        for one in seen.iter().filter(|one| matches!(one.alive, Alive::Running { .. })) {
            if let Some(known) =
                self.instances.get_mut(&one.instance).filter(|known| known.state == State::Here)
            {
                news |= !std::mem::replace(&mut known.begun, true);
            }
        }
        news
    }

    /// Those in a state, by their names.
    pub fn in_state(&self, state: State) -> impl Iterator<Item = &String> {
        self.instances.iter().filter(move |(_, known)| known.state == state).map(|(name, _)| name)
    }

    /// Instances that the description has, who are not on the ring and have not left it.
    ///
    /// # Errors
    /// The plan cannot be.
    pub fn newcomers(&self, spec: &Spec) -> Result<Vec<String>, sprat_plan::PlanError> {
        let alone = Plan::new(Spec { members: None, ..spec.clone() })?;
        let all =
            hosts(&alone).into_iter().flat_map(|host| host.instances).map(|instance| instance.name);
        Ok(all
            .filter(|name| !self.instances.contains_key(name) && !self.away.contains(name))
            .collect())
    }
}

/// Why nobody can be taken in.
#[derive(Debug, thiserror::Error)]
pub enum Joining {
    /// The plan cannot be.
    #[error(transparent)]
    Plan(#[from] sprat_plan::PlanError),
    /// Somebody is not where the plan has it.
    #[error(transparent)]
    Members(#[from] Error),
}
