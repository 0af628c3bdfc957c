//! A folder of backups.
//!
//! ```text
//! DIR/backups.sprat          the cluster whose backups these are
//! DIR/lock                   locked while backups are made or removed
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
use crate::storage::{Disk, Storage};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Name of the file that says whose backups these are.
const MARKER: &str = "backups.sprat";

const POINTS: &str = "points";
const SEGMENTS: &str = "segments";

/// First line of the marker: its format.
const FORMAT: &str = "sprat backups 1";

/// Backups of one cluster: a folder, or another [`Storage`].
pub struct Folder {
    storage: Box<dyn Storage>,
    /// The cluster of the backups; `None` if there are none yet.
    cluster: Option<u64>,
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
        Self::open_in(Box::new(Disk::new(path)))
    }

    /// Opens backups, to read them: see [`open`](Self::open).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_in(storage: Box<dyn Storage>) -> Result<Self, Error> {
        let mut folder = Self { storage, cluster: None };
        match folder.read_marker()? {
            true => Ok(folder),
            false => Err(Error::NotBackups(folder.storage.place(""))),
        }
    }

    /// Opens a folder of backups to change it, and keeps others from changing it until it is
    /// dropped. If `create`, makes the folder if there is none.
    ///
    /// # Errors
    /// [`Error`] when it is not one but has other files, another process changes it, or it cannot
    /// be read or made.
    pub fn lock(path: &Path, create: bool) -> Result<Self, Error> {
        Self::lock_in(Box::new(Disk::new(path)), create)
    }

    /// Opens backups to change them: see [`lock`](Self::lock).
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn lock_in(storage: Box<dyn Storage>, create: bool) -> Result<Self, Error> {
        let mut folder = Self { storage, cluster: None };
        let is_one = folder.read_marker()?;
        let may_become_one = || {
            let is_empty = folder.storage.is_empty().map_err(folder.fault(""))?;
            Ok::<_, Error>(create && is_empty)
        };
        if !is_one && !may_become_one()? {
            return Err(Error::NotBackups(folder.storage.place("")));
        }
        if let Some(by) = folder.storage.lock().map_err(folder.fault(""))? {
            return Err(Error::Locked { folder: folder.storage.place(""), by });
        }
        // Another process may have made it one, and be done with it.
        if !folder.read_marker()? {
            folder.write(MARKER, format!("{FORMAT}\n").as_bytes())?;
        }
        Ok(folder)
    }

    /// Makes the folder one for backups of this cluster.
    ///
    /// # Errors
    /// [`Error::OtherCluster`] when it has those of another, [`Error::Io`] when it cannot be
    /// written.
    pub(crate) fn claim(&mut self, ours: u64) -> Result<(), Error> {
        match self.cluster {
            Some(theirs) if theirs != ours => {
                let folder = self.storage.place("");
                return Err(Error::OtherCluster { folder, theirs, ours });
            }
            Some(_) => return Ok(()),
            None => {}
        }
        self.write(MARKER, format!("{FORMAT}\ncluster {ours:016x}\n").as_bytes())?;
        self.cluster = Some(ours);
        Ok(())
    }

    /// Reads the marker, if there is one. Returns whether there is.
    fn read_marker(&mut self) -> Result<bool, Error> {
        let Some(bytes) = self.read(MARKER)? else { return Ok(false) };
        let cluster = parse_marker(&String::from_utf8_lossy(&bytes));
        self.cluster = cluster.map_err(|what| Error::damaged(self.storage.place(MARKER), what))?;
        Ok(true)
    }

    /// Returns what makes an error of the storage one that names the file.
    fn fault(&self, name: &str) -> impl FnOnce(io::Error) -> Error + use<> {
        let place = self.storage.place(name);
        move |source| Error::Io { place, source }
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        self.storage.read(name).map_err(self.fault(name))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        self.storage.write(name, bytes).map_err(self.fault(name))
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        self.storage.remove(name).map_err(self.fault(name))
    }

    fn list(&self, part: &str) -> Result<Vec<(String, u64)>, Error> {
        self.storage.list(part).map_err(self.fault(part))
    }

    /// Returns whether its files are better kept on this machine while they are in use.
    pub(crate) fn is_remote(&self) -> bool {
        self.storage.is_remote()
    }

    /// Returns the names of all points, the oldest first.
    ///
    /// # Errors
    /// [`Error::Io`] when the folder cannot be read.
    pub fn names(&self) -> Result<Vec<String>, Error> {
        let files = self.list(POINTS)?;
        let names = files.iter().filter_map(|(name, _)| name.strip_suffix(".json"));
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
        let absent =
            || Error::NoPoint { folder: self.storage.place(""), name: name.map(str::to_owned) };
        let names = self.names()?;
        let found = match name {
            Some(name) => names.iter().find(|known| *known == name),
            None => names.last(),
        };
        self.read_point(found.ok_or_else(absent)?)
    }

    fn read_point(&self, name: &str) -> Result<Point, Error> {
        let damaged = |what| Error::damaged(self.point_place(name), what);
        let bytes = self.read(&point_file(name))?;
        let point = Point::decode(&bytes.ok_or_else(|| damaged("it is missing".to_owned()))?);
        let point = point.map_err(damaged)?;
        match point.name == name {
            true => Ok(point),
            false => Err(damaged(format!("it is point {}, renamed", point.name))),
        }
    }

    /// Returns where the file of a point is, for messages.
    #[must_use]
    pub fn point_place(&self, name: &str) -> String {
        self.storage.place(&point_file(name))
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
        self.write(&point_file(&point.name), &point.encode())
    }

    /// Adds a segment.
    pub(crate) fn add_segment(
        &self,
        server: u32,
        segment: &SegmentFile,
        bytes: &[u8],
    ) -> Result<(), Error> {
        self.write(&segment_file(server, segment), bytes)
    }

    /// Returns the newest copy of each segment that points list and that is here with the length
    /// that it should have, by server and segment.
    pub(crate) fn known(&self) -> Result<BTreeMap<(u32, u64), SegmentFile>, Error> {
        let lengths: BTreeMap<String, u64> = self.list(SEGMENTS)?.into_iter().collect();
        let mut known = BTreeMap::new();
        for point in self.points()? {
            for (server, segment) in point.segments() {
                if lengths.get(&segment.name(server)) == Some(&segment.bytes) {
                    known.insert((server, segment.id), segment.clone());
                }
            }
        }
        Ok(known)
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
                verified.faults.push(Fault { file: self.point_place(&name), what });
            }
            for (server, segment) in point.segments() {
                if !seen.insert(segment.name(server)) {
                    continue;
                }
                match self.bytes(server, segment) {
                    Ok(bytes) => {
                        if let Err(what) = contents::check(&bytes, segment) {
                            let file = self.place(server, segment);
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
        let listed: BTreeSet<String> = kept
            .iter()
            .flat_map(|(_, point)| point.segments())
            .map(|(server, segment)| segment.name(server))
            .collect();
        let mut pruned = Pruned::default();
        // Points first: a point that is left has all its segments, wherever this is interrupted.
        for (_, point) in gone {
            if !dry {
                self.remove(&point_file(&point.name))?;
            }
            pruned.points.push(point.name.clone());
        }
        for (name, bytes) in self.list(SEGMENTS)? {
            if listed.contains(&name) {
                continue;
            }
            if !dry {
                self.remove(&format!("{SEGMENTS}/{name}"))?;
            }
            pruned.segments += 1;
            pruned.bytes += bytes;
        }
        Ok(pruned)
    }
}

impl Segments for Folder {
    fn bytes(&self, server: u32, segment: &SegmentFile) -> Result<Vec<u8>, Error> {
        let damaged = |what: &str| Error::damaged(self.place(server, segment), what);
        let bytes = self.read(&segment_file(server, segment))?;
        let bytes = bytes.ok_or_else(|| damaged("it is missing"))?;
        match blake3::hash(&bytes).to_hex().as_str() == segment.blake3 {
            true => Ok(bytes),
            false => Err(damaged("its hash differs: it is damaged, or was changed")),
        }
    }

    fn place(&self, server: u32, segment: &SegmentFile) -> String {
        self.storage.place(&segment_file(server, segment))
    }
}

fn point_file(name: &str) -> String {
    format!("{POINTS}/{name}.json")
}

fn segment_file(server: u32, segment: &SegmentFile) -> String {
    format!("{SEGMENTS}/{}", segment.name(server))
}

/// Reads the cluster's id from the text of a marker; `None` if there is no backup yet, because the
/// first one failed before it had reached a cluster. The error says what is wrong with the text.
fn parse_marker(text: &str) -> Result<Option<u64>, String> {
    let mut lines = text.lines();
    match lines.next() {
        None => return Ok(None),
        Some(FORMAT) => {}
        Some(line) if line.starts_with("sprat backups ") => {
            return Err(format!("it is of another version of Sprat: {line}"));
        }
        _ => return Err("it is damaged, or not of Sprat".to_owned()),
    }
    let Some(line) = lines.next() else { return Ok(None) };
    let cluster = line.strip_prefix("cluster ");
    let cluster = cluster.and_then(|text| u64::from_str_radix(text, 16).ok());
    cluster.map(Some).ok_or_else(|| "it does not name a cluster".to_owned())
}
