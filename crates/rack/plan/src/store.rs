//! Sprat's own servers on a rack, and the etcd in which several coordinators keep what they know:
//! `[store]` and `[etcd]` of a description.

use crate::quantity::Bytes;
use crate::spec::{Server, SpecError, value, within};
use serde::{Deserialize, Serialize};

/// Members of etcd where nobody tells, if there are so many servers: one may fail.
const USUAL_MEMBERS: usize = 3;

/// Coordinators of a cluster, at most.
const MAX_COORDINATORS: usize = 8;

/// Replicas on other servers, at most.
const MAX_REPLICAS: usize = 6;

/// The least memory of a server, bytes: a log of fewer segments cannot be cleaned.
const LEAST_MEMORY: f64 = 64e6;

/// Most arguments besides.
const MAX_ARGUMENTS: usize = 64;

/// etcd.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Etcd {
    /// On which servers, by name: 1, 3 or 5. None: on the first three, or the first.
    pub servers: Vec<String>,
    /// A program on the machine that controls the rack, which is brought to them; none: Debian's
    /// package.
    pub program: Option<String>,
}

/// Sprat's servers.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Store {
    /// On which servers coordinators are, by name. None: where etcd is; without etcd on the first.
    #[serde(default)]
    pub coordinators: Vec<String>,
    /// On which servers data is, by name. None: on all.
    #[serde(default)]
    pub servers: Vec<String>,
    /// Memory of each for its log.
    pub memory: Bytes,
    /// Disk of each for its own and others' logs; none: about 3.5 times the memory for each
    /// replica.
    pub disk: Option<Bytes>,
    /// Replicas of each log on other servers.
    #[serde(default = "two")]
    pub replicas: usize,
    /// What a write has survived when it is acknowledged.
    #[serde(default)]
    pub durability: Durability,
    /// Arguments of `sprat server` besides.
    #[serde(default)]
    pub arguments: Vec<String>,
}

/// What a write has survived.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// It is on disks.
    #[default]
    Sync,
    /// It is in others' memory.
    Buffered,
}

impl Durability {
    /// As `sprat server` names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Buffered => "buffered",
        }
    }
}

/// Who runs what, by the numbers of servers.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Services {
    /// Members of etcd.
    pub etcd: Vec<usize>,
    /// Coordinators.
    pub coordinators: Vec<usize>,
    /// Servers with data.
    pub stores: Vec<usize>,
}

/// What cannot be.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StoreError {
    /// No server is called that, or it is named twice.
    #[error("{key}: {name:?} {why}")]
    Name {
        /// Where.
        key: &'static str,
        /// The name.
        name: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A number of members that is no majority's.
    #[error(
        "etcd.servers: {0} members; want 1, 3 or 5: of an even number no more may fail than of one fewer"
    )]
    Members(usize),
    /// Several coordinators have nowhere to keep what they know.
    #[error(
        "store.coordinators: {0} of them keep what they know in etcd: say [etcd] too, or name one"
    )]
    NoEtcd(usize),
    /// There are too few servers for the replicas.
    #[error("store.replicas = {replicas}: a log is on that many others, which takes {} servers; there are {servers}", replicas + 1)]
    Few {
        /// Replicas.
        replicas: usize,
        /// Servers.
        servers: usize,
    },
}

impl Store {
    pub(crate) fn check(&self, server: &Server) -> Result<(), SpecError> {
        within("store.replicas", self.replicas, 0, MAX_REPLICAS)?;
        within("store.coordinators", self.coordinators.len(), 0, MAX_COORDINATORS)?;
        within("store.arguments", self.arguments.len(), 0, MAX_ARGUMENTS)?;
        if !(LEAST_MEMORY..=server.memory.0).contains(&self.memory.0) {
            let want = format!("64MB to the server's {}", server.memory);
            return Err(value("store.memory", self.memory.to_string(), want));
        }
        if let Some(disk) = self.disk.filter(|disk| disk.0 < self.memory.0) {
            return Err(value("store.disk", disk.to_string(), "as much as store.memory, or more"));
        }
        // Each is a line of a file.
        match self
            .arguments
            .iter()
            .find(|argument| argument.is_empty() || argument.contains(char::is_control))
        {
            Some(argument) => Err(value(
                "store.arguments",
                format!("{argument:?}"),
                "arguments of `sprat server`, one by one",
            )),
            None => Ok(()),
        }
    }
}

impl Etcd {
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        match &self.program {
            Some(path) if !path.starts_with('/') || path.contains(char::is_control) => Err(value(
                "etcd.program",
                format!("{path:?}"),
                "an absolute path on the machine that controls the rack",
            )),
            _ => Ok(()),
        }
    }
}

/// Who runs what, on servers of these names.
pub(crate) fn services(
    etcd: Option<&Etcd>,
    store: Option<&Store>,
    names: &[String],
) -> Result<Services, StoreError> {
    let numbers = |key: &'static str, told: &[String]| {
        let mut found = Vec::new();
        for name in told {
            let wrong = |why| StoreError::Name { key, name: name.clone(), why };
            let number = names
                .iter()
                .position(|one| one == name)
                .ok_or_else(|| wrong("is no server of the plan"))?;
            if found.contains(&number) {
                return Err(wrong("is named twice"));
            }
            found.push(number);
        }
        Ok(found)
    };
    let mut all = Services::default();
    if let Some(etcd) = etcd {
        all.etcd = match etcd.servers.is_empty() {
            true => (0..if names.len() < USUAL_MEMBERS { 1 } else { USUAL_MEMBERS }).collect(),
            false => numbers("etcd.servers", &etcd.servers)?,
        };
        if ![1, 3, 5].contains(&all.etcd.len()) {
            return Err(StoreError::Members(all.etcd.len()));
        }
    }
    if let Some(store) = store {
        all.coordinators = match (store.coordinators.is_empty(), all.etcd.is_empty()) {
            (true, true) => vec![0],
            (true, false) => all.etcd.clone(),
            (false, _) => numbers("store.coordinators", &store.coordinators)?,
        };
        if all.coordinators.len() > 1 && all.etcd.is_empty() {
            return Err(StoreError::NoEtcd(all.coordinators.len()));
        }
        all.stores = match store.servers.is_empty() {
            true => (0..names.len()).collect(),
            false => numbers("store.servers", &store.servers)?,
        };
        if store.replicas > 0 && all.stores.len() <= store.replicas {
            return Err(StoreError::Few { replicas: store.replicas, servers: all.stores.len() });
        }
    }
    Ok(all)
}

fn two() -> usize {
    2
}

#[cfg(test)]
mod tests {
    use crate::Plan;

    fn plan(more: &str) -> Result<Plan, String> {
        let text = format!(
            "name = \"r\"\n[server]\ncores = 1\nmemory = \"1GiB\"\nport-rate = \"1Gb/s\"\n[chassis]\nservers = 4\n{more}"
        );
        Plan::from_toml(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn who_runs_what_follows_or_is_told() {
        let found = plan("[etcd]\n[store]\nmemory = \"128MB\"").expect("fine").services;
        assert_eq!(
            (found.etcd, found.coordinators, found.stores),
            (vec![0, 1, 2], vec![0, 1, 2], vec![0, 1, 2, 3])
        );
        let told = "[etcd]\nservers = [\"c0-n4\"]\n[store]\nmemory = \"128MB\"\ncoordinators = [\"c0-n2\", \"c0-n1\"]\nservers = [\"c0-n3\"]\nreplicas = 0";
        let found = plan(told).expect("fine").services;
        assert_eq!((found.etcd, found.coordinators, found.stores), (vec![3], vec![1, 0], vec![2]));
        assert_eq!(
            plan("[store]\nmemory = \"128MB\"").expect("fine").services.coordinators,
            [0],
            "one keeps it in a file"
        );
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (more, word) in [
            ("[etcd]\nservers = [\"c0-n1\", \"c0-n2\"]", "want 1, 3 or 5"),
            ("[etcd]\nservers = [\"c0-n9\"]", "\"c0-n9\" is no server of the plan"),
            ("[etcd]\nservers = [\"c0-n1\", \"c0-n1\", \"c0-n2\"]", "twice"),
            ("[etcd]\nprogram = \"etcd\"", "etcd.program"),
            ("[store]\nmemory = \"1MB\"", "store.memory"),
            ("[store]\nmemory = \"2GiB\"", "store.memory"),
            ("[store]\nmemory = \"100MB\"\ndisk = \"1MB\"", "store.disk"),
            ("[store]\nmemory = \"100MB\"\nreplicas = 4", "takes 5 servers; there are 4"),
            ("[store]\nmemory = \"100MB\"\narguments = [\"a\\nb\"]", "store.arguments"),
            (
                "[store]\nmemory = \"100MB\"\ncoordinators = [\"c0-n1\", \"c0-n2\"]",
                "say [etcd] too",
            ),
        ] {
            let error = plan(more).expect_err(more);
            assert!(error.contains(word), "{more}: {error}");
        }
    }
}
