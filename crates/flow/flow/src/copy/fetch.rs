//! The description of one fetch. The module `job` runs it.

use super::error::Error;
use super::options::{MAX_HOSTS, Options};
use crate::file::Destination;
use sprat_http::{Address, Cancel};
use std::fmt;
use std::path::{Path, PathBuf};

/// The destination with which a file is received and verified, but not stored.
const NOWHERE: &str = "/dev/null";

/// A fetch of one file to a local destination. The source is a server, several servers that may
/// have the same file, or a file on this machine.
///
/// [`Fetch::new`] takes source and destination, and [`Fetch::add_host`] adds servers.
/// [`Fetch::run`] transfers, with one thread for each stream, and returns when the file has its
/// name or the transfer has failed. It reports progress to a callback on the caller's thread.
///
/// Until the file has its name, its bytes are in a file next to the destination. A journal lists
/// the groups that are verified and durable. A later fetch with the same source and destination
/// resumes from the journal. [`Fetch::cancel`] returns a handle by which any thread stops the
/// fetch. A fetch may be run again after an error, unless it was cancelled.
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
    /// Creates a fetch of the file at an address, or of a local file, to `target`. `target` is the
    /// file's new name, or a directory in which the file keeps its name.
    /// # Errors
    /// [`Error::Usage`] if an option is invalid, `source` contains `://` and is not an address,
    /// `target` is a directory and `source` does not end in a name, or a SHA-256 is given for a
    /// file that is not kept (`/dev/null`). [`Error::Destination`] if the destination has no name.
    pub fn new(source: &str, target: &Path, options: Options) -> Result<Self, Error> {
        if source.contains("://") {
            let address = Address::parse(source)?.with_token(options.token.as_deref());
            return Self::from_address(address, target, options);
        }
        let path = PathBuf::from(source);
        let name = path.file_name().map(PathBuf::from);
        Self::from(Origin::File(path), name, target, options)
    }

    /// Creates a fetch of the file at a parsed address, with the credentials of the address.
    ///
    /// # Errors
    /// The errors of [`Fetch::new`].
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
        if target == Path::new(NOWHERE) && options.sums.sha256.is_some() {
            return Err(Error::Usage(
                "--sha256 reads the file again, which is impossible with /dev/null".to_owned(),
            ));
        }
        Ok(Self {
            origin,
            others: Vec::new(),
            destination: Destination::new(&target)?,
            options,
            cancel: Cancel::default(),
        })
    }

    /// Adds a host that may have the same file. `HOST[:PORT]` means the same path at that host,
    /// which gets the same credentials. A host given by a whole address gets only the credentials
    /// in the address. If the first host states values of groups, every group from the added host
    /// is compared with them.
    /// # Errors
    /// [`Error::Usage`] if `host` is neither a host nor an address, names a folder, or was added
    /// before. Also if there would be more than [`MAX_HOSTS`] hosts, or the source is a local file.
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

    /// Returns whether the bytes are only received and verified, but not stored.
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
