//! A folder of backups.
//!
//! ```text
//! DIR/backups.sprat          the cluster whose backups these are; locked while they change
//! DIR/points/NAME.json       a point each
//! DIR/segments/SERVER-SEGMENT-HASH
//! ```
//!
//! A point's file is written last, when all its segments are durable. So a backup that was
//! interrupted leaves at most segments that no point lists, which the next one may use, and which
//! [`Folder::prune`] removes.

use crate::contents::{self, Segments};
use crate::error::{Error, Fault};
use crate::point::{Point, SegmentFile};
use rustix::fs::OFlags;
use rustix::io::Errno;
use sprat_host::replace;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Name of the file that says whose backups these are.
const MARKER: &str = "backups.sprat";

const POINTS: &str = "points";
const SEGMENTS: &str = "segments";

/// First line of the marker: its format.
const FORMAT: &str = "sprat backups 1";

/// A folder of backups of one cluster.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The cluster of the backups; `None` if there are none yet.
    cluster: Option<u64>,
    /// Held while the folder is changed.
    _lock: Option<File>,
}

/// Which points to keep when others are removed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Keep {
    /// This number of the newest.
    Newest(usize),
    /// Those that are not older than this, and the newest.
    Younger(Duration),
}

/// What [`Folder::prune`] removed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Pruned {
    /// The names of the points.
    pub points: Vec<String>,
    /// Number of segments that no point lists any more.
    pub segments: u64,
    /// Bytes of these segments.
    pub bytes: u64,
}

/// What [`Folder::verify`] found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Verified {
    /// Names of the points that were verified.
    pub points: Vec<String>,
    /// Number of segments that were verified; those of several points count once.
    pub segments: u64,
    /// Bytes of these segments.
    pub bytes: u64,
    /// Files that are damaged or missing.
    pub faults: Vec<Fault>,
}

impl Folder {
    /// Opens a folder of backups, to read it.
    ///
    /// # Errors
    /// [`Error`] when it is not one, or cannot be read.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let marker = path.join(MARKER);
        let text = match fs::read_to_string(&marker) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::NotBackups(path.to_owned()));
            }
            Err(error) => return Err(Error::io(marker)(error)),
        };
        let cluster = read_marker(&text).map_err(|what| Error::damaged(marker, what))?;
        Ok(Self { path: path.to_owned(), cluster, _lock: None })
    }

    /// Opens a folder of backups to change it, and keeps others from changing it until it is
    /// dropped. If `create`, makes the folder if there is none.
    ///
    /// # Errors
    /// [`Error`] when it is not one but has other files, another process changes it, or it cannot
    /// be read or made.
    pub fn lock(path: &Path, create: bool) -> Result<Self, Error> {
        let marker = path.join(MARKER);
        let is_new = !marker.exists();
        if is_new {
            if !create {
                return Err(Error::NotBackups(path.to_owned()));
            }
            fs::create_dir_all(path).map_err(Error::io(path))?;
            if fs::read_dir(path).map_err(Error::io(path))?.next().is_some() {
                return Err(Error::NotBackups(path.to_owned()));
            }
        }
        let locked = sprat_disk::open_locked(&marker, OFlags::empty());
        let lock = locked.map_err(|error| match error {
            Errno::WOULDBLOCK => Error::Locked(path.to_owned()),
            error => Error::io(&marker)(error.into()),
        })?;
        let text = fs::read_to_string(&marker).map_err(Error::io(&marker))?;
        let cluster = read_marker(&text).map_err(|what| Error::damaged(&marker, what))?;
        Ok(Self { path: path.to_owned(), cluster, _lock: Some(lock) })
    }

    /// Makes the folder one for backups of this cluster.
    ///
    /// # Errors
    /// [`Error::OtherCluster`] when it has those of another, [`Error::Io`] when it cannot be
    /// written.
    pub(crate) fn claim(&mut self, ours: u64) -> Result<(), Error> {
        let folder = self.path.clone();
        match self.cluster {
            Some(theirs) if theirs != ours => {
                return Err(Error::OtherCluster { folder, theirs, ours });
            }
            Some(_) => return Ok(()),
            None => {}
        }
        for part in [POINTS, SEGMENTS] {
            let part = self.path.join(part);
            fs::create_dir_all(&part).map_err(Error::io(&part))?;
        }
        // Written in place, because the file is locked.
        let marker = self.path.join(MARKER);
        let text = format!("{FORMAT}\ncluster {ours:016x}\n");
        fs::write(&marker, text).map_err(Error::io(&marker))?;
        let sync = File::open(&marker).and_then(|file| file.sync_all());
        sync.map_err(Error::io(&marker))?;
        self.cluster = Some(ours);
        Ok(())
    }

    /// Returns the names of all points, the oldest first.
    ///
    /// # Errors
    /// [`Error::Io`] when the folder cannot be read.
    pub fn names(&self) -> Result<Vec<String>, Error> {
        let files = self.files(POINTS)?;
        let names = files.iter().filter_map(|(name, _)| name.to_str()?.strip_suffix(".json"));
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Returns a point; the newest if `name` is `None`.
    ///
    /// # Errors
    /// [`Error::NoPoint`] when there is none, [`Error::Damaged`] when its file is damaged,
    /// [`Error::Io`] when it cannot be read.
    pub fn point(&self, name: Option<&str>) -> Result<Point, Error> {
        let absent = || Error::NoPoint { folder: self.path.clone(), name: name.map(str::to_owned) };
        let names = self.names()?;
        let found = match name {
            Some(name) => names.iter().find(|known| *known == name),
            None => names.last(),
        };
        self.read_point(found.ok_or_else(absent)?)
    }

    fn read_point(&self, name: &str) -> Result<Point, Error> {
        let path = self.point_path(name);
        let bytes = fs::read(&path).map_err(Error::io(&path))?;
        let point = Point::decode(&bytes).map_err(|what| Error::damaged(&path, what))?;
        match point.name == name {
            true => Ok(point),
            false => Err(Error::damaged(path, format!("it is point {}, renamed", point.name))),
        }
    }

    /// Returns the file of a point.
    #[must_use]
    pub fn point_path(&self, name: &str) -> PathBuf {
        self.path.join(POINTS).join(format!("{name}.json"))
    }

    /// Returns all points, the oldest first.
    ///
    /// # Errors
    /// As [`point`](Self::point).
    pub fn points(&self) -> Result<Vec<Point>, Error> {
        self.names()?.iter().map(|name| self.read_point(name)).collect()
    }

    /// Adds a point, whose segments are here.
    pub(crate) fn add_point(&self, point: &Point) -> Result<(), Error> {
        let segments = self.path.join(SEGMENTS);
        let sync = File::open(&segments).and_then(|folder| folder.sync_all());
        sync.map_err(Error::io(&segments))?;
        let path = self.point_path(&point.name);
        replace(&path, &point.encode()).map_err(Error::io(&path))
    }

    /// Adds a segment, which is durable once the next point is added.
    pub(crate) fn add_segment(
        &self,
        server: u32,
        segment: &SegmentFile,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let path = self.path(server, segment);
        replace(&path, bytes).map_err(Error::io(&path))
    }

    /// Returns the newest copy of each segment that points list and that is here with the length
    /// that it should have, by server and segment.
    pub(crate) fn known(&self) -> Result<BTreeMap<(u32, u64), SegmentFile>, Error> {
        let lengths: BTreeMap<OsString, u64> = self.files(SEGMENTS)?.into_iter().collect();
        let mut known = BTreeMap::new();
        for point in self.points()? {
            for (server, segment) in point.segments() {
                let length = lengths.get(&OsString::from(segment.name(server)));
                if length == Some(&segment.bytes) {
                    known.insert((server, segment.id), segment.clone());
                }
            }
        }
        Ok(known)
    }

    /// Returns the names and lengths of the files in a part of the folder.
    fn files(&self, part: &str) -> Result<Vec<(OsString, u64)>, Error> {
        let path = self.path.join(part);
        let list = match fs::read_dir(&path) {
            Ok(list) => list,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io(path)(error)),
        };
        let file = |entry: io::Result<fs::DirEntry>| {
            let entry = entry?;
            Ok((entry.file_name(), entry.metadata()?.len()))
        };
        list.map(file).collect::<io::Result<_>>().map_err(Error::io(path))
    }

    /// Verifies points, the newest first: all, or the one of this name. Reads every segment of
    /// theirs once. Calls `show` with the bytes read so far.
    ///
    /// # Errors
    /// [`Error::NoPoint`] when there is no such point, [`Error::Io`] when the folder cannot be
    /// read. Damage is no error.
    pub fn verify(&self, name: Option<&str>, show: &mut dyn FnMut(u64)) -> Result<Verified, Error> {
        let names = match name {
            Some(name) => vec![name.to_owned()],
            None => self.names()?,
        };
        let mut verified = Verified::default();
        let mut seen = BTreeSet::new();
        for name in names.into_iter().rev() {
            let point = match self.point(Some(&name)) {
                Ok(point) => point,
                Err(Error::Damaged(fault)) => {
                    verified.faults.push(fault);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if let Err(what) = point.catalog() {
                verified.faults.push(Fault { file: self.point_path(&name), what });
            }
            for (server, segment) in point.segments() {
                if !seen.insert(segment.name(server)) {
                    continue;
                }
                match self.bytes(server, segment) {
                    Ok(bytes) => {
                        if let Err(what) = contents::check(&bytes, segment) {
                            let file = self.path(server, segment);
                            verified.faults.push(Fault { file, what });
                        }
                        verified.segments += 1;
                        verified.bytes += segment.bytes;
                        show(verified.bytes);
                    }
                    Err(Error::Damaged(fault)) => verified.faults.push(fault),
                    Err(error) => return Err(error),
                }
            }
            verified.points.push(name);
        }
        Ok(verified)
    }

    /// Removes points that need not be kept, and segments that no other point lists. If `dry`, only
    /// returns what it would remove.
    ///
    /// # Errors
    /// [`Error::Damaged`] when a point's file is damaged: it may list any segment. [`Error::Io`]
    /// when the folder cannot be read or changed.
    pub fn prune(&self, keep: Keep, now: SystemTime, dry: bool) -> Result<Pruned, Error> {
        let points = self.points()?;
        let is_young = |point: &Point, age| {
            now.duration_since(point.made()).map_or(true, |since| since <= age)
        };
        let newest = points.len().saturating_sub(1);
        let is_kept = |at: usize, point: &Point| match keep {
            Keep::Newest(count) => at + count.max(1) > newest,
            Keep::Younger(age) => at == newest || is_young(point, age),
        };
        let (kept, gone): (Vec<_>, Vec<_>) =
            points.iter().enumerate().partition(|(at, point)| is_kept(*at, point));
        let listed: BTreeSet<OsString> = kept
            .iter()
            .flat_map(|(_, point)| point.segments())
            .map(|(server, segment)| segment.name(server).into())
            .collect();
        let mut pruned = Pruned::default();
        // Points first: a point that is left has all its segments, wherever this is interrupted.
        for (_, point) in gone {
            let path = self.point_path(&point.name);
            if !dry {
                fs::remove_file(&path).map_err(Error::io(path))?;
            }
            pruned.points.push(point.name.clone());
        }
        for (name, bytes) in self.files(SEGMENTS)? {
            if listed.contains(&name) {
                continue;
            }
            let path = self.path.join(SEGMENTS).join(&name);
            if !dry {
                fs::remove_file(&path).map_err(Error::io(path))?;
            }
            pruned.segments += 1;
            pruned.bytes += bytes;
        }
        Ok(pruned)
    }
}

impl Segments for Folder {
    fn bytes(&self, server: u32, segment: &SegmentFile) -> Result<Vec<u8>, Error> {
        let path = self.path(server, segment);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::damaged(path, "it is missing"));
            }
            Err(error) => return Err(Error::io(path)(error)),
        };
        match blake3::hash(&bytes).to_hex().as_str() == segment.blake3 {
            true => Ok(bytes),
            false => Err(Error::damaged(path, "its hash differs: it is damaged, or was changed")),
        }
    }

    fn path(&self, server: u32, segment: &SegmentFile) -> PathBuf {
        self.path.join(SEGMENTS).join(segment.name(server))
    }
}

/// Reads the cluster's id from the text of a marker; `None` if there is no backup yet, because the
/// first one failed before it had reached a cluster. The error says what is wrong with the text.
fn read_marker(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let mut lines = text.lines();
    match lines.next() {
        Some(FORMAT) => {}
        Some(line) if line.starts_with("sprat backups ") => {
            return Err(format!("it is of another version of Sprat: {line}"));
        }
        _ => return Err("it is damaged, or not of Sprat".to_owned()),
    }
    let cluster = lines.next().and_then(|line| line.strip_prefix("cluster "));
    let cluster = cluster.and_then(|text| u64::from_str_radix(text, 16).ok());
    cluster.map(Some).ok_or_else(|| "it does not name a cluster".to_owned())
}
