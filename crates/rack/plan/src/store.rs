//! `[store]` and `[etcd]` of a description: Sprat's servers on a rack, and the etcd cluster in
//! which several coordinators keep their state.

use crate::quantity::Bytes;
use crate::spec::{Server, SpecError, value, within};
use serde::{Deserialize, Serialize};

/// Number of etcd's members by default, if there are enough servers. One of these members may fail.
const USUAL_MEMBERS: usize = 3;

/// Limit on the coordinators of a cluster.
const MAX_COORDINATORS: usize = 8;

/// Limit on the replicas that a segment has on other servers.
const MAX_REPLICAS: usize = 6;

/// Smallest memory of a server's log, in bytes: with fewer segments the cleaner cannot work.
const LEAST_MEMORY: f64 = 64e6;

/// Limit on the additional arguments of a server.
const MAX_ARGUMENTS: usize = 64;

/// `[etcd]`: an etcd cluster on the servers.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Etcd {
    /// Names of the servers that run etcd: 1, 3 or 5. If empty, the first three servers, or only
    /// the first if there are fewer than three.
    pub servers: Vec<String>,
    /// Path of the etcd program on the machine that controls the rack; it is copied to the servers.
    /// If `None`, Debian's package is installed.
    pub program: Option<String>,
}

/// `[store]`: Sprat's store on the servers.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Store {
    /// Names of the servers that run coordinators. If empty, the servers that run etcd, or the
    /// first server if there is no etcd.
    #[serde(default)]
    pub coordinators: Vec<String>,
    /// Names of the servers that hold data. If empty, all servers.
    #[serde(default)]
    pub servers: Vec<String>,
    /// Memory for the log of each server.
    pub memory: Bytes,
    /// Disk space of each server: for the replicas that it keeps of other servers' logs, or, if
    /// `replicas` is 0, for its own log. By default about 3.5 times the memory for each replica, or
    /// 2.5 times the memory without replicas.
    pub disk: Option<Bytes>,
    /// Number of replicas that each log has on other servers.
    #[serde(default = "two")]
    pub replicas: usize,
    /// What an acknowledged write survives.
    #[serde(default)]
    pub durability: Durability,
    /// Additional arguments of `sprat server`.
    #[serde(default)]
    pub arguments: Vec<String>,
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// The loss of power: replicas are on disks.
    #[default]
    Sync,
    /// The loss of servers: replicas are in the memory of other servers.
    Buffered,
}

impl Durability {
    /// Returns the name of the durability on the command line of `sprat server`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Buffered => "buffered",
        }
    }
}

/// The servers that run each service, by number.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Services {
    /// Servers that run members of etcd.
    pub etcd: Vec<usize>,
    /// Servers that run coordinators.
    pub coordinators: Vec<usize>,
    /// Servers that hold data.
    pub stores: Vec<usize>,
}

/// Why etcd or Sprat's servers cannot be placed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StoreError {
    /// No server has that name, or the list names a server twice.
    #[error("{key}: {name:?} {why}")]
    Name {
        /// The key in the description.
        key: &'static str,
        /// The name.
        name: String,
        /// Why it is invalid.
        why: &'static str,
    },
    /// The number of etcd's members is not 1, 3 or 5.
    #[error(
        "etcd.servers: {0} members; want 1, 3 or 5: an even number survives no more failures than \
         one fewer"
    )]
    Members(usize),
    /// There are several coordinators but no etcd for their state.
    #[error("store.coordinators: {0} coordinators need etcd: add [etcd], or name one")]
    NoEtcd(usize),
    /// There are too few servers for the replicas.
    #[error(
        "store.replicas = {replicas}: each log has that many replicas on other servers, which \
         takes {} servers; there are {servers}",
        replicas + 1
    )]
    Few {
        /// Number of replicas on other servers.
        replicas: usize,
        /// Number of servers that hold data.
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
        // Each argument becomes a line of a file.
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

/// Chooses the servers that run etcd, coordinators and storage servers. `names` are the names of
/// all servers of the plan.
pub(crate) fn services(
    etcd: Option<&Etcd>,
    store: Option<&Store>,
    names: &[String],
) -> Result<Services, StoreError> {
    let numbers = |key: &'static str, given: &[String]| {
        let mut found = Vec::new();
        for name in given {
            let wrong = |why| StoreError::Name { key, name: name.clone(), why };
            let number = names
                .iter()
                .position(|one| one == name)
                .ok_or_else(|| wrong("is not a server of the plan"))?;
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
            "name = \"r\"\n[server]\ncores = 1\nmemory = \"1GiB\"\nport-rate = \"1Gb/s\"\n\
             [chassis]\nservers = 4\n{more}"
        );
        Plan::from_toml(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn services_are_placed_by_default_or_by_name() {
        let found = plan("[etcd]\n[store]\nmemory = \"128MB\"").expect("fine").services;
        assert_eq!(
            (found.etcd, found.coordinators, found.stores),
            (vec![0, 1, 2], vec![0, 1, 2], vec![0, 1, 2, 3])
        );
        let named = "[etcd]\nservers = [\"c0-n4\"]\n[store]\nmemory = \"128MB\"\ncoordinators = \
                     [\"c0-n2\", \"c0-n1\"]\nservers = [\"c0-n3\"]\nreplicas = 0";
        let found = plan(named).expect("fine").services;
        assert_eq!((found.etcd, found.coordinators, found.stores), (vec![3], vec![1, 0], vec![2]));
        assert_eq!(
            plan("[store]\nmemory = \"128MB\"").expect("fine").services.coordinators,
            [0],
            "one keeps it in a file"
        );
    }

    #[test]
    fn errors_name_the_invalid_value() {
        for (more, word) in [
            ("[etcd]\nservers = [\"c0-n1\", \"c0-n2\"]", "want 1, 3 or 5"),
            ("[etcd]\nservers = [\"c0-n9\"]", "\"c0-n9\" is not a server of the plan"),
            ("[etcd]\nservers = [\"c0-n1\", \"c0-n1\", \"c0-n2\"]", "twice"),
            ("[etcd]\nprogram = \"etcd\"", "etcd.program"),
            ("[store]\nmemory = \"1MB\"", "store.memory"),
            ("[store]\nmemory = \"2GiB\"", "store.memory"),
            ("[store]\nmemory = \"100MB\"\ndisk = \"1MB\"", "store.disk"),
            ("[store]\nmemory = \"100MB\"\nreplicas = 4", "takes 5 servers; there are 4"),
            ("[store]\nmemory = \"100MB\"\narguments = [\"a\\nb\"]", "store.arguments"),
            ("[store]\nmemory = \"100MB\"\ncoordinators = [\"c0-n1\", \"c0-n2\"]", "add [etcd]"),
        ] {
            let error = plan(more).expect_err(more);
            assert!(error.contains(word), "{more}: {error}");
        }
    }
}
