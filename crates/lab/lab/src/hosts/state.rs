//! The state file of a lab: what its owner has made, or was about to make.
//!
//! `NAME.toml` names the owner and every namespace. It is written before anything is made. It is
//! written again, with a namespace's inode, before that namespace gets its name. The inode later
//! distinguishes the lab's namespace from one of the same name that others made. The owner holds
//! `NAME.lock` while it lives. The kernel releases the lock when the owner ends, however it ends.

use super::plan::{MAX_HOSTS, NAME_RULE};
use super::{HostsError, is_name};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use sprat_host::replace;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Limit on the labs that are listed. Further labs are left out.
pub const MAX_LABS: usize = 256;

/// Limit on the length of a state file, in bytes. A longer file is invalid.
const MAX_STATE_BYTES: u64 = 256 * 1024;

/// The usual directory, as it was before this process became root in namespaces of its own.
static KEPT: OnceLock<PathBuf> = OnceLock::new();

/// The directory of the state files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StateDir(PathBuf);

/// A lab that exists, whether or not its owner lives.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LabSummary {
    /// The lab's name.
    pub name: String,
    /// The number of the process that made the lab.
    pub owner: u32,
    /// Whether a process owns the lab now. If not, a crash left the lab, or its owner left it on
    /// purpose; `down` removes it.
    pub alive: bool,
    /// The names of the lab's namespaces.
    pub namespaces: Vec<String>,
}

/// The content of a state file.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    pub(super) lab: String,
    pub(super) owner: u32,
    #[serde(default)]
    pub(super) namespace: Vec<Entry>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) name: String,
    /// The namespace's inode. `None` until the namespace exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) inode: Option<u64>,
}

/// The lock that the owner of a lab holds.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "holds the lock until it is dropped")] File);

impl StateDir {
    /// Returns the usual directory: `/run/sprat/lab` for root. For other users it is `sprat/lab`
    /// below `$XDG_RUNTIME_DIR`, below `~/.local/state` if that variable is not set, or below
    /// `/run` if `$HOME` is not set either.
    #[must_use]
    pub fn usual() -> Self {
        if let Some(kept) = KEPT.get() {
            return Self(kept.clone());
        }
        let of = |variable| {
            std::env::var_os(variable).filter(|_| !geteuid().is_root()).map(PathBuf::from)
        };
        let home = || of("HOME").map(|home| home.join(".local/state"));
        let place = of("XDG_RUNTIME_DIR").or_else(home).unwrap_or_else(|| PathBuf::from("/run"));
        Self(place.join("sprat/lab"))
    }

    /// Fixes the usual directory as it is now. It then stays the same when this process becomes
    /// root in a namespace.
    pub(super) fn keep_usual() {
        let _ = KEPT.set(Self::usual().0); // it is set already
    }

    /// Returns a directory of the caller's choice, which other users must not be able to write.
    /// Labs in it are separate from labs in other directories.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Returns the directory's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Lists the labs, sorted by name. Lists at most [`MAX_LABS`].
    ///
    /// # Errors
    /// The directory cannot be read, the state file of a lab is invalid, or a lock file cannot be
    /// opened.
    pub fn list(&self) -> Result<Vec<LabSummary>, HostsError> {
        let reading = || HostsError::refused(format!("read {}", self.0.display()));
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(reading())?,
        };
        let mut labs = Vec::new();
        for entry in entries {
            let name = entry.map_err(reading())?.file_name();
            let Some(name) = name
                .to_str()
                .and_then(|name| name.strip_suffix(".toml"))
                .filter(|name| is_name(name))
            else {
                continue;
            };
            // A lab that ends in the meantime is not listed.
            if labs.len() < MAX_LABS
                && let Some(state) = self.read(name)?
            {
                let alive = self.lock(name)?.is_none();
                let namespaces = state.namespace.into_iter().map(|entry| entry.name).collect();
                labs.push(LabSummary { name: state.lab, owner: state.owner, alive, namespaces });
            }
        }
        labs.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(labs)
    }

    pub(super) fn file(&self, lab: &str) -> PathBuf {
        self.0.join(format!("{lab}.toml"))
    }

    /// Reads the state of a lab; `None` if there is no state file.
    pub(super) fn read(&self, lab: &str) -> Result<Option<State>, HostsError> {
        check_name(lab)?;
        let path = self.file(lab);
        let mut text = String::new();
        match File::open(&path)
            .and_then(|file| file.take(MAX_STATE_BYTES + 1).read_to_string(&mut text))
        {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(HostsError::refused(format!("read {}", path.display())))?,
        };
        let state = |why: String| HostsError::State { path: path.clone(), why };
        if text.len() as u64 > MAX_STATE_BYTES {
            return Err(state(format!("longer than {MAX_STATE_BYTES} bytes")));
        }
        let parsed: State = toml::from_str(&text)
            .map_err(|error| state(error.to_string().trim_end().to_owned()))?;
        // The names become paths, so only names that this lab can have are accepted.
        let ours = |entry: &Entry| {
            entry
                .name
                .strip_prefix(lab)
                .and_then(|rest| rest.strip_prefix('-'))
                .is_some_and(is_name)
        };
        if parsed.lab != lab
            || parsed.namespace.len() > MAX_HOSTS
            || !parsed.namespace.iter().all(ours)
        {
            return Err(state("it names things that are not this lab's".to_owned()));
        }
        Ok(Some(parsed))
    }

    /// Writes the state of a lab. Readers see either the old state or the new one.
    pub(super) fn write(&self, state: &State) -> Result<(), HostsError> {
        let path = self.file(&state.lab);
        let text = toml::to_string(state).expect("names and numbers have a form in TOML");
        replace(&path, text.as_bytes())
            .map_err(HostsError::refused(format!("write {}", path.display())))
    }

    pub(super) fn remove(&self, lab: &str) -> Result<(), HostsError> {
        let path = self.file(lab);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(HostsError::refused(format!("remove {}", path.display()))),
        }
    }

    /// Takes the lock of a lab; `None` if a process holds it.
    pub(super) fn lock(&self, lab: &str) -> Result<Option<Lock>, HostsError> {
        check_name(lab)?;
        let path = self.0.join(format!("{lab}.lock"));
        let open = || {
            DirBuilder::new().recursive(true).mode(0o755).create(&self.0)?;
            File::options().create(true).truncate(false).write(true).open(&path)
        };
        // The file is never removed: otherwise two processes could hold locks on two files of the
        // same name.
        let file = open().map_err(HostsError::refused(format!("open {}", path.display())))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => {
                Err(HostsError::refused(format!("lock {}", path.display()))(error.into()))
            }
        }
    }
}

fn check_name(lab: &str) -> Result<(), HostsError> {
    if is_name(lab) {
        return Ok(());
    }
    let what = format!("{lab:?} {NAME_RULE}");
    Err(super::InvalidPlan { place: "name".to_owned(), what }.into())
}
