//! The state file of a lab: what was made, or was about to be, when its owner was last heard of.
//!
//! `NAME.toml` names the owner and every namespace. It is written before anything is made, and
//! again with each namespace's number (the inode by which the kernel knows it) before that gets its
//! name, so that what stands under the name later can be told from what another put there.
//! `NAME.lock` is held while the owner lives: the kernel lets go of it whichever way the owner
//! ends.

use super::plan::{MAX_HOSTS, NAME_RULE};
use super::{Error, is_name};
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

/// Most labs on a machine.
pub const MAX_LABS: usize = 256;

/// Longest state file, in bytes.
const MAX_STATE_BYTES: u64 = 256 * 1024;

/// The usual place before this process became root in namespaces of its own.
static KEPT: OnceLock<PathBuf> = OnceLock::new();

/// Where state files are kept.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StateDir(PathBuf);

/// A lab that stands, or stood when its owner was killed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// Who made it.
    pub owner: u32,
    /// Whether that process lives; if not, the lab is what a crash left, and `down` removes it.
    pub alive: bool,
    /// Its namespaces, by their names.
    pub namespaces: Vec<String>,
}

/// What the file says.
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
    /// Absent until the namespace is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) inode: Option<u64>,
}

/// Held by the owner of a lab.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "holds the lock until it is dropped")] File);

impl StateDir {
    /// The usual place: `/run/sprat/lab` for root, for others below `$XDG_RUNTIME_DIR`, or where
    /// there is none below `~/.local/state`.
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

    /// Lets the usual place stay what it is now, whoever this process becomes.
    pub(super) fn keep_usual() {
        let _ = KEPT.set(Self::usual().0); // it was kept before
    }

    /// Another place, that others cannot write to: labs here know nothing of labs there.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The labs that stand, by their names; up to [`MAX_LABS`].
    ///
    /// # Errors
    /// The folder cannot be read, or has a file that is no state.
    pub fn list(&self) -> Result<Vec<Summary>, Error> {
        let reading = || Error::refused(format!("read {}", self.0.display()));
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
            // One that ends while we look is one that does not stand.
            if labs.len() < MAX_LABS
                && let Some(state) = self.read(name)?
            {
                let alive = self.lock(name)?.is_none();
                let namespaces = state.namespace.into_iter().map(|entry| entry.name).collect();
                labs.push(Summary { name: state.lab, owner: state.owner, alive, namespaces });
            }
        }
        labs.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(labs)
    }

    pub(super) fn file(&self, lab: &str) -> PathBuf {
        self.0.join(format!("{lab}.toml"))
    }

    /// The state of a lab, if it has one.
    pub(super) fn read(&self, lab: &str) -> Result<Option<State>, Error> {
        check_name(lab)?;
        let path = self.file(lab);
        let mut text = String::new();
        match File::open(&path)
            .and_then(|file| file.take(MAX_STATE_BYTES + 1).read_to_string(&mut text))
        {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(Error::refused(format!("read {}", path.display())))?,
        };
        let state = |why: String| Error::State { path: path.clone(), why };
        if text.len() as u64 > MAX_STATE_BYTES {
            return Err(state(format!("longer than {MAX_STATE_BYTES} bytes")));
        }
        let parsed: State = toml::from_str(&text)
            .map_err(|error| state(error.to_string().trim_end().to_owned()))?;
        // Names become paths: only those that a lab can have.
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
            return Err(state("it names what is not this lab's".to_owned()));
        }
        Ok(Some(parsed))
    }

    /// Writes the state of a lab: a reader finds the old one or the new one, nothing between.
    pub(super) fn write(&self, state: &State) -> Result<(), Error> {
        let path = self.file(&state.lab);
        let text = toml::to_string(state).expect("names and numbers have a form in TOML");
        replace(&path, text.as_bytes()).map_err(Error::refused(format!("write {}", path.display())))
    }

    pub(super) fn remove(&self, lab: &str) -> Result<(), Error> {
        let path = self.file(lab);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(Error::refused(format!("remove {}", path.display()))),
        }
    }

    /// Takes the lock of a lab; `None` when its owner lives.
    pub(super) fn lock(&self, lab: &str) -> Result<Option<Lock>, Error> {
        check_name(lab)?;
        let path = self.0.join(format!("{lab}.lock"));
        let open = || {
            DirBuilder::new().recursive(true).mode(0o755).create(&self.0)?;
            File::options().create(true).truncate(false).write(true).open(&path)
        };
        // The file stays: were it removed, two could hold locks on two files of one name.
        let file = open().map_err(Error::refused(format!("open {}", path.display())))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(Error::refused(format!("lock {}", path.display()))(error.into())),
        }
    }
}

fn check_name(lab: &str) -> Result<(), Error> {
    if is_name(lab) {
        return Ok(());
    }
    let what = format!("{lab:?} {NAME_RULE}");
    Err(super::Unfit { place: "name".to_owned(), what }.into())
}
