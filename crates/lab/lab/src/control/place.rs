//! The directory in which running boxes have their control sockets.
//!
//! A box of a lab is called `LAB.BOX`, and a box by itself `BOX`. The socket of a process that was
//! killed stays in the directory. No process listens on it, so the next box of that name replaces
//! it.

use super::{Client, ControlError};
use crate::hosts::{StateDir, is_name};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Limit on the entries of a directory that are examined. Further entries are ignored.
pub const MAX_BOXES: usize = 4_096;

/// The name of the directory. It is next to the state files of labs, all of which have a dot in
/// their names.
const FOLDER: &str = "control";

/// The directory of the control sockets, which lists the running boxes and connects to them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ControlDir(PathBuf);

/// A running box.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RunningBox {
    /// The box's name.
    pub name: String,
    /// The process that runs it, according to the kernel.
    pub process: Option<u32>,
}

impl ControlDir {
    /// Returns the directory of the control sockets that belongs to `states`.
    #[must_use]
    pub fn of(states: &StateDir) -> Self {
        Self(states.path().join(FOLDER))
    }

    /// Returns the directory's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Lists the running boxes, sorted by name. Examines at most [`MAX_BOXES`] entries of the
    /// directory.
    ///
    /// # Errors
    /// The directory cannot be read, or other users can access it.
    pub fn list(&self) -> Result<Vec<RunningBox>, ControlError> {
        let Some(folder) = self.open()? else { return Ok(Vec::new()) };
        let entries = fs::read_dir(&self.0).map_err(self.reading())?;
        let mut live = Vec::new();
        for entry in entries.take(MAX_BOXES) {
            let file = entry.map_err(self.reading())?.file_name();
            let name = file
                .to_str()
                .and_then(|file| file.strip_suffix(".sock"))
                .filter(|name| is_box_name(name));
            let Some(name) = name else { continue };
            if let Ok(stream) = UnixStream::connect(socket_path(&folder, name)) {
                live.push(RunningBox { name: name.to_owned(), process: process(&stream) });
            }
        }
        live.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(live)
    }

    /// Connects to the box of this name. For a box of a lab, the part after the lab's name is
    /// enough if only one running box has that part. With `None`, connects to the only running box.
    ///
    /// # Errors
    /// The name is invalid, no box has it, several boxes match, the box does not answer, or the
    /// directory cannot be read or other users can access it.
    pub fn connect(&self, name: Option<&str>) -> Result<Client, ControlError> {
        let names = || {
            Ok::<_, ControlError>(
                self.list()?.into_iter().map(|live| live.name).collect::<Vec<_>>(),
            )
        };
        let name = match name {
            Some(name) if !is_box_name(name) => return Err(ControlError::Name(name.to_owned())),
            Some(name) => {
                match self.open()?.map(|folder| UnixStream::connect(socket_path(&folder, name))) {
                    Some(Ok(stream)) => return Client::new(stream, name),
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
        let connect = |folder: File| UnixStream::connect(socket_path(&folder, &name));
        let stream = self.open()?.map_or_else(|| Err(io::ErrorKind::NotFound.into()), connect);
        match stream {
            Ok(stream) => Client::new(stream, &name),
            Err(error) => Err(ControlError::Lost { name, error }),
        }
    }

    /// Listens under a name. No other box can use that name until the result is dropped.
    pub(super) fn listen(&self, name: &str) -> Result<Listening, ControlError> {
        if !is_box_name(name) {
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
        // The lock covers both the test whether a process listens and the making of the socket. So
        // if two processes want the same name, only one gets it.
        flock(&folder, FlockOperation::LockExclusive).map_err(|error| making()(error.into()))?;
        let path = socket_path(&folder, name);
        match UnixStream::connect(&path) {
            Ok(stream) => {
                return Err(ControlError::Taken {
                    name: name.to_owned(),
                    process: process(&stream),
                });
            }
            // The queue of connections is full, so a process is listening.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(ControlError::Taken { name: name.to_owned(), process: None });
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(&path)
                    .map_err(ControlError::system(format!("remove {name}.sock, which is stale")))?;
            }
            Err(_) => {} // nothing is there, or binding fails too and reports why
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

    /// Opens the directory; `None` if it does not exist.
    fn open(&self) -> Result<Option<File>, ControlError> {
        let file = match File::open(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(self.reading())?,
        };
        let found = file.metadata().map_err(self.reading())?;
        let why = match found.uid() == rustix::process::geteuid().as_raw() {
            _ if !found.is_dir() => "is not a folder",
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

/// A socket on which a box listens. Dropping it removes the socket's file.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) listener: UnixListener,
    pub(super) name: String,
    folder: File,
    inode: Option<u64>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let path = socket_path(&self.folder, &self.name);
        // Removes the file only if it is still the one that this box made: the file may have been
        // removed, and another box may use the name now.
        if fs::symlink_metadata(&path).is_ok_and(|file| Some(file.ino()) == self.inode) {
            let _ = fs::remove_file(&path); // a stale one is replaced later
        }
    }
}

/// Returns the path of a socket below the open directory. The path is short enough for a socket
/// address, however long the directory's own path is.
fn socket_path(folder: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}.sock", folder.as_raw_fd()))
}

/// Returns whether a name has the form `BOX` or `LAB.BOX`.
fn is_box_name(name: &str) -> bool {
    match name.split_once('.') {
        Some((lab, own)) => is_name(lab) && is_name(own),
        None => is_name(name),
    }
}

/// Returns the process at the other end of the connection, if the kernel knows it.
fn process(stream: &UnixStream) -> Option<u32> {
    let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
    u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
}
