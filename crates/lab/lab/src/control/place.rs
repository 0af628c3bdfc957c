//! Where boxes that run are found: a folder of sockets.
//!
//! A box of a lab is called `LAB.BOX`, and one by itself `BOX`. A socket outlives a process that
//! was killed; nobody listens there then, and the next box of that name takes its place.

use super::{Client, ControlError};
use crate::hosts::{StateDir, is_name};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Most boxes of one folder that are looked at.
pub const MAX_BOXES: usize = 4_096;

/// The folder's name among the states of labs, none of which has a name without a dot.
const FOLDER: &str = "control";

/// A folder of sockets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place(PathBuf);

/// A box that runs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Live {
    /// Its name.
    pub name: String,
    /// The process that runs it, as the kernel knows it.
    pub process: Option<u32>,
}

impl Place {
    /// That which belongs to these states of labs.
    #[must_use]
    pub fn of(states: &StateDir) -> Self {
        Self(states.path().join(FOLDER))
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The boxes that run, by their names; up to [`MAX_BOXES`].
    ///
    /// # Errors
    /// The folder cannot be read, or is open to others.
    pub fn list(&self) -> Result<Vec<Live>, ControlError> {
        let Some(folder) = self.open()? else { return Ok(Vec::new()) };
        let entries = fs::read_dir(&self.0).map_err(self.reading())?;
        let mut live = Vec::new();
        for entry in entries.take(MAX_BOXES) {
            let file = entry.map_err(self.reading())?.file_name();
            let name =
                file.to_str().and_then(|file| file.strip_suffix(".sock")).filter(|name| fits(name));
            let Some(name) = name else { continue };
            if let Ok(stream) = UnixStream::connect(short(&folder, name)) {
                live.push(Live { name: name.to_owned(), process: process(&stream) });
            }
        }
        live.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(live)
    }

    /// A way to the box of this name; of a box of a lab, its name without the lab's will do where
    /// only one has it. With none, to the only one that runs.
    ///
    /// # Errors
    /// There is no such box, there are several, or it does not answer.
    pub fn connect(&self, name: Option<&str>) -> Result<Client, ControlError> {
        let names = || {
            Ok::<_, ControlError>(
                self.list()?.into_iter().map(|live| live.name).collect::<Vec<_>>(),
            )
        };
        let name = match name {
            Some(name) if !fits(name) => return Err(ControlError::Name(name.to_owned())),
            Some(name) => {
                match self.open()?.map(|folder| UnixStream::connect(short(&folder, name))) {
                    Some(Ok(stream)) => return Client::over(stream, name),
                    _ => {
                        let running_boxes = names()?;
                        let ends = |full: &&String| {
                            full.rsplit_once('.').is_some_and(|(_, own)| own == name)
                        };
                        let found: Vec<_> = running_boxes.iter().filter(ends).cloned().collect();
                        match <[String; 1]>::try_from(found) {
                            Ok([name]) => name,
                            Err(found) if !found.is_empty() => {
                                return Err(ControlError::Several(found));
                            }
                            Err(_) => {
                                let (name, path) = (name.to_owned(), self.0.clone());
                                return Err(ControlError::NoSuchBox { name, path, running_boxes });
                            }
                        }
                    }
                }
            }
            None => match <[String; 1]>::try_from(names()?) {
                Ok([name]) => name,
                Err(names) if names.is_empty() => return Err(ControlError::NoBox(self.0.clone())),
                Err(names) => return Err(ControlError::Several(names)),
            },
        };
        let connect = |folder: File| UnixStream::connect(short(&folder, &name));
        let stream = self.open()?.map_or_else(|| Err(io::ErrorKind::NotFound.into()), connect);
        match stream {
            Ok(stream) => Client::over(stream, &name),
            Err(error) => Err(ControlError::Lost { name, error }),
        }
    }

    /// Listens under a name, which nobody else may then have.
    pub(super) fn listen(&self, name: &str) -> Result<Listening, ControlError> {
        if !fits(name) {
            return Err(ControlError::Name(name.to_owned()));
        }
        let making = || ControlError::system(format!("make {}", self.0.display()));
        let states = self.0.parent().unwrap_or(&self.0);
        DirBuilder::new().recursive(true).mode(0o755).create(states).map_err(making())?;
        match DirBuilder::new().mode(0o700).create(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(making())?,
        }
        let folder = self.open()?.ok_or_else(|| making()(io::ErrorKind::NotFound.into()))?;
        // Two that want one name at once take turns: between looking and listening there must be
        // nobody else.
        flock(&folder, FlockOperation::LockExclusive).map_err(|error| making()(error.into()))?;
        let path = short(&folder, name);
        match UnixStream::connect(&path) {
            Ok(stream) => {
                return Err(ControlError::Taken {
                    name: name.to_owned(),
                    process: process(&stream),
                });
            }
            // So many wait there to be heard that somebody lives.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(ControlError::Taken { name: name.to_owned(), process: None });
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(&path)
                    .map_err(ControlError::system(format!("remove {name}.sock, which is stale")))?;
            }
            Err(_) => {} // nothing is there; whatever else it is, listening will say
        }
        let listener = UnixListener::bind(&path).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let listener = listener
            .map_err(ControlError::system(format!("listen on {}/{name}.sock", self.0.display())))?;
        let inode = fs::symlink_metadata(&path).map(|file| file.ino()).ok();
        let _ = flock(&folder, FlockOperation::Unlock); // closing it would as well
        Ok(Listening { listener, folder, name: name.to_owned(), inode })
    }

    /// The folder, if it is there.
    fn open(&self) -> Result<Option<File>, ControlError> {
        let file = match File::open(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(self.reading())?,
        };
        let found = file.metadata().map_err(self.reading())?;
        let why = match found.uid() == rustix::process::geteuid().as_raw() {
            _ if !found.is_dir() => "is no folder",
            false => "belongs to another user",
            true if found.mode() & 0o077 != 0 => "is open to others",
            true => return Ok(Some(file)),
        };
        Err(ControlError::NotPrivate { path: self.0.clone(), why })
    }

    fn reading(&self) -> impl FnOnce(io::Error) -> ControlError + use<> {
        ControlError::system(format!("read {}", self.0.display()))
    }
}

/// A name that is listened under, until this is dropped.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) listener: UnixListener,
    pub(super) name: String,
    folder: File,
    inode: Option<u64>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let path = short(&self.folder, &self.name);
        // Only our own: somebody may have removed it, and another have taken the name.
        if fs::symlink_metadata(&path).is_ok_and(|file| Some(file.ino()) == self.inode) {
            let _ = fs::remove_file(&path); // a stale one is replaced later
        }
    }
}

/// The path of a socket by the open folder: however long the folder's own is, this fits into an
/// address.
fn short(folder: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}.sock", folder.as_raw_fd()))
}

/// `BOX` or `LAB.BOX`.
fn fits(name: &str) -> bool {
    match name.split_once('.') {
        Some((lab, own)) => is_name(lab) && is_name(own),
        None => is_name(name),
    }
}

/// Who listens at the far end.
fn process(stream: &UnixStream) -> Option<u32> {
    let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
    u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
}
