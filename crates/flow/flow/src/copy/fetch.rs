//! One transfer: where from, where to, and how. `job` runs it.

use super::error::Error;
use super::options::{MAX_HOSTS, Options};
use crate::file::Place;
use sprat_http::{Address, Cancel};
use std::fmt;
use std::path::{Path, PathBuf};

/// Where `/dev/null` is: what is copied there is received and verified, and thrown away.
const NOWHERE: &str = "/dev/null";

/// A transfer of one file to here: from a server, from several that may have it, or from another
/// disk of this machine.
///
/// [`Fetch::new`] says where from and where to, [`Fetch::also`] names more servers, and
/// [`Fetch::run`] does it, on the caller's thread and one more for each stream. It reports what
/// happens by a callback, and returns when the file has its name or cannot have it. Until then the
/// bytes lie beside the destination, with a journal of what is verified and durable, from which the
/// next run of an equal transfer goes on. [`Fetch::cancel`] returns a handle by which any thread
/// stops it. A transfer may run again after an error.
#[derive(Debug)]
pub struct Fetch {
    pub(super) origin: Origin,
    /// Other hosts that may have the same file.
    pub(super) others: Vec<Address>,
    pub(super) place: Place,
    pub(super) options: Options,
    pub(super) cancel: Cancel,
}

/// Where a file comes from.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    Server(Address),
    File(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(address) => address.fmt(f),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl Fetch {
    /// Fetches the file at an address, or a local one, to `target`: the name that it will have, or
    /// a directory in which it keeps its own.
    ///
    /// # Errors
    /// [`Error::Usage`], [`Error::Place`].
    pub fn new(source: &str, target: &Path, options: Options) -> Result<Self, Error> {
        if source.contains("://") {
            let address = Address::parse(source)?.with_token(options.token.as_deref());
            return Self::of(address, target, options);
        }
        let path = PathBuf::from(source);
        let name = path.file_name().map(PathBuf::from);
        Self::from(Origin::File(path), name, target, options)
    }

    /// Fetches the file at an address that was parsed before, with the credentials that it has.
    ///
    /// # Errors
    /// As [`Fetch::new`].
    pub fn of(address: Address, target: &Path, options: Options) -> Result<Self, Error> {
        let name = address.name().map(PathBuf::from);
        Self::from(Origin::Server(address), name, target, options)
    }

    fn from(
        origin: Origin,
        name: Option<PathBuf>,
        target: &Path,
        options: Options,
    ) -> Result<Self, Error> {
        options.check()?;
        let is_folder = target.is_dir() || target.as_os_str().as_encoded_bytes().ends_with(b"/");
        let target = match name {
            _ if !is_folder => target.to_owned(),
            Some(name) => target.join(name),
            None => {
                return Err(Error::Usage(format!(
                    "{origin}: has no name at its end; say what the file is to be called"
                )));
            }
        };
        Ok(Self {
            origin,
            others: Vec::new(),
            place: Place::of(&target)?,
            options,
            cancel: Cancel::default(),
        })
    }

    /// Another host that may have the same file: `HOST[:PORT]` for the same path there, by the same
    /// token; or an address, which is told nothing of who we are but what is in it. Every group
    /// that comes from it is held against what the first host says of it.
    ///
    /// # Errors
    /// [`Error::Usage`]: not an address, a host that is named already, more than [`MAX_HOSTS`], or the source is a local file.
    pub fn also(&mut self, host: &str) -> Result<(), Error> {
        let Origin::Server(first) = &self.origin else {
            return Err(Error::Usage(format!(
                "{host}: other hosts are for a file on a server, not for a local one"
            )));
        };
        let other =
            if host.contains("://") { Address::parse(host)? } else { first.at_host(host)? };
        if other.path().ends_with('/') {
            return Err(Error::Usage(format!("{other}: is a folder; name the file")));
        }
        if *first == other || self.others.contains(&other) {
            return Err(Error::Usage(format!("{other}: is named twice")));
        }
        if self.others.len() + 1 >= MAX_HOSTS {
            return Err(Error::Usage(format!("more than {MAX_HOSTS} hosts for one file")));
        }
        self.others.push(other);
        Ok(())
    }

    /// Whether what comes is thrown away.
    pub(super) fn is_for_nowhere(&self) -> bool {
        self.place.target() == Path::new(NOWHERE)
    }

    /// The file that will be there.
    #[must_use]
    pub fn target(&self) -> &Path {
        self.place.target()
    }

    /// A handle that stops it.
    #[must_use]
    pub fn cancel(&self) -> Cancel {
        self.cancel.clone()
    }

    /// Stops when this handle says so, which others may share.
    pub fn stop_with(&mut self, cancel: &Cancel) {
        self.cancel = cancel.clone();
    }
}
