//! The description of one fetch; `job` runs it.

use super::error::Error;
use super::options::{MAX_HOSTS, Options};
use crate::file::Destination;
use sprat_http::{Address, Cancel};
use std::fmt;
use std::path::{Path, PathBuf};

/// A destination for which a file is received and verified, but not stored.
const NOWHERE: &str = "/dev/null";

/// A fetch of one file to a local destination: from a server, from several that may hold the same
/// file, or from another disk of this machine.
///
/// [`Fetch::new`] takes source and destination, [`Fetch::add_host`] adds servers, and
/// [`Fetch::run`] transfers, on the caller's thread and one more for each stream. It reports
/// progress to a callback on the caller's thread, and returns when the file has its name or cannot
/// get it. Until then the bytes are in a file beside the destination, with a journal of the groups
/// that are verified and durable, from which the next run of an equal fetch resumes.
/// [`Fetch::cancel`] returns a handle by which any thread stops it. A fetch may be run again after
/// an error.
#[derive(Debug)]
pub struct Fetch {
    pub(super) origin: Origin,
    /// Other hosts that may have the same file.
    pub(super) others: Vec<Address>,
    pub(super) destination: Destination,
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
    /// Fetches the file at an address, or a local one, to `target`: the name it will have, or a
    /// directory where it keeps its own.
    /// # Errors
    /// [`Error::Usage`] if an option is invalid, `source` contains `://` and is not an address, or
    /// `target` is a directory and `source` does not end in a name; [`Error::Destination`] if the
    /// destination has no name.
    pub fn new(source: &str, target: &Path, options: Options) -> Result<Self, Error> {
        if source.contains("://") {
            let address = Address::parse(source)?.with_token(options.token.as_deref());
            return Self::from_address(address, target, options);
        }
        let path = PathBuf::from(source);
        let name = path.file_name().map(PathBuf::from);
        Self::from(Origin::File(path), name, target, options)
    }

    /// Fetches the file at a parsed address, with its credentials.
    ///
    /// # Errors
    /// As [`Fetch::new`].
    pub fn from_address(address: Address, target: &Path, options: Options) -> Result<Self, Error> {
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
                    "{origin}: does not end in a name; name the destination file"
                )));
            }
        };
        Ok(Self {
            origin,
            others: Vec::new(),
            destination: Destination::new(&target)?,
            options,
            cancel: Cancel::default(),
        })
    }

    /// Adds a host that may have the same file. `HOST[:PORT]` means the same path there and gets
    /// the same credentials; a whole address gets only the credentials in it. Every group from that
    /// host is compared with the value that the first host states.
    /// # Errors
    /// [`Error::Usage`]: not an address, a host that was added before, more than [`MAX_HOSTS`]
    /// hosts, or a local source.
    pub fn add_host(&mut self, host: &str) -> Result<(), Error> {
        let Origin::Server(first) = &self.origin else {
            return Err(Error::Usage(format!(
                "{host}: only a file on a server can have other hosts, not a local one"
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

    /// Returns whether the bytes are only received and verified, not stored.
    pub(super) fn is_discarding(&self) -> bool {
        self.destination.target() == Path::new(NOWHERE)
    }

    /// Returns the path that the file will have.
    #[must_use]
    pub fn target(&self) -> &Path {
        self.destination.target()
    }

    /// Returns a handle that cancels the fetch.
    #[must_use]
    pub fn cancel(&self) -> Cancel {
        self.cancel.clone()
    }

    /// Uses this handle, which may be shared, for cancellation.
    pub fn stop_with(&mut self, cancel: &Cancel) {
        self.cancel = cancel.clone();
    }
}
