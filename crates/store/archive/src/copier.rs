//! The part of a backup that talks to servers, without clock, network or disk of its own: the
//! simulator runs the same code.
//!
//! The owner sends each [`Question`] that [`Copier::question`] returns, passes the answers to
//! [`Copier::answer`], and stores the segments that [`Copier::take_segment`] returns. A server has
//! one question at a time.
//!
//! 1. Read the catalog, once all tablets have live servers.
//! 2. From each server, copy the segments that the folder has not, and those that the server has
//!    sealed or cleaned meanwhile, up to [`ROUNDS`] times.
//! 3. Read the catalog's version: it must be the same until step 5. Cut all logs.
//! 4. Release all servers. Each must have held back until then what it wrote after its cut.
//! 5. Read the catalog's version again. If it, or a server, does not agree, begin again.
//! 6. Copy the rest of the cut's segments.

use crate::contents;
use crate::error::Error;
use crate::point::SegmentFile;
use sprat_client::CopiedPiece;
use sprat_net::Nanos;
use sprat_store::coordinator::{Catalog, MetadataMemory};
use sprat_wire::SEGMENT_BYTES;
use sprat_wire::op::{COPY_IDLE, CopyCursor, CopyStep};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use zerocopy::byteorder::little_endian::U64;

/// How often the logs are cut, until no tablet has moved and no server was slow meanwhile.
pub const CUTS: usize = 10;

/// How long a backup waits for other servers to recover the tablets of one that has failed.
pub const RECOVERY_WAIT: Duration = Duration::from_secs(60);

/// Interval at which it looks whether they have.
const RECOVERY_POLL: Duration = Duration::from_millis(200);

/// Number of rounds in which segments are copied before the cut.
const ROUNDS: usize = 4;

/// Interval at which a server is asked for something while its segments cannot be read, so that it
/// does not give up its cut.
const KEEP_INTERVAL: Duration = COPY_IDLE.checked_div(4).expect("a divisor");

/// How often a segment is begun again, because an answer was lost.
const ATTEMPTS: usize = 8;

/// What to ask.
#[derive(Clone, Debug)]
pub enum Question {
    /// The leading coordinator, for a copy of the catalog.
    Catalog,
    /// The server at a locator, for a step of a copy of its log.
    Log(String, LogQuestion),
}

/// A [`CopyStep`] that owns what it has.
#[derive(Clone, Debug)]
pub enum LogQuestion {
    /// List the segments.
    List,
    /// Cut the log.
    Cut,
    /// Release this cut, and keep these segments.
    Release(u64, Vec<U64>),
    /// Read entries.
    Read(CopyCursor),
    /// The client is done.
    End,
}

impl LogQuestion {
    /// Returns the step to send.
    #[must_use]
    pub fn step(&self) -> CopyStep<'_> {
        match self {
            Self::List => CopyStep::List,
            Self::Cut => CopyStep::Cut,
            Self::Release(cut, wanted) => CopyStep::Release { cut: *cut, wanted },
            Self::Read(cursor) => CopyStep::Read(cursor),
            Self::End => CopyStep::End,
        }
    }
}

/// The answer to a [`Question`].
#[derive(Clone, Debug)]
pub enum Reply {
    /// The catalog's version, and its bytes.
    Catalog(u64, Vec<u8>),
    /// What a server returned.
    Piece(CopiedPiece),
}

/// A segment that was copied.
#[derive(Clone, Debug)]
pub struct CopiedSegment {
    /// The server whose log it belongs to.
    pub server: u32,
    /// Its description.
    pub file: SegmentFile,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// All logs at one moment.
#[derive(Clone, Debug)]
pub struct Copied {
    /// When the logs were cut.
    pub cut_at: Nanos,
    /// The longest time for which servers held back answers to clients.
    pub held: Duration,
    /// The catalog at that moment.
    pub catalog: Vec<u8>,
    /// The segments of each server's log.
    pub servers: Vec<(u32, Vec<SegmentFile>)>,
    /// Bytes of segments that were copied.
    pub copied_bytes: u64,
}

/// What all servers, or the coordinator, are to do now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// Read the catalog, not before this time.
    Catalog(Nanos),
    Ahead,
    /// Read the catalog's version before the cut.
    Before,
    Cut,
    Release,
    /// Read the catalog's version after the cut.
    After,
    Rest,
    End,
    Over,
}

/// What a server is to do.
#[derive(Clone, Debug)]
enum Todo {
    Nothing,
    /// List its segments, in this round.
    List(usize),
    Read(Reading),
    Cut,
    Release,
    End,
}

/// Segments that are read from a server.
#[derive(Clone, Debug)]
struct Reading {
    /// The cut that they belong to; zero for none.
    cut: u64,
    round: usize,
    /// The segments that are still to be read; the first is being read.
    left: VecDeque<u64>,
    /// What was read of the first.
    first: Partial,
    attempts: usize,
}

/// The entries of a segment that were read so far. They are counted and hashed piece by piece: a
/// whole segment would take milliseconds, for which clients of a server on the same processor wait.
#[derive(Clone, Debug, Default)]
struct Partial {
    bytes: Vec<u8>,
    entries: u64,
    hash: Box<blake3::Hasher>,
}

struct ServerCopy {
    id: u32,
    locator: String,
    todo: Todo,
    /// The tag of its question, if it has one.
    asked: Option<u64>,
    /// Whether the answer to that question does not matter any more.
    is_late: bool,
    /// When it was asked last.
    asked_at: Nanos,
    /// When it may be read again, by the rate.
    due: Nanos,
    /// The number of its cut, and the segments.
    cut: (u64, Vec<u64>),
    was_held: bool,
}

/// A backup of all logs in progress.
pub struct Copier {
    /// Bytes a second that are read from each server.
    rate: u64,
    /// The segments that the folder has, by server and id.
    known: BTreeMap<(u32, u64), SegmentFile>,
    phase: Phase,
    /// The tag of the question to the coordinator, if there is one.
    asked: Option<u64>,
    /// When this began to wait for tablets to be recovered.
    waits_since: Option<Nanos>,
    version: u64,
    catalog: Vec<u8>,
    servers: Vec<ServerCopy>,
    cuts: usize,
    cut_at: Nanos,
    held: Duration,
    tags: u64,
    stored: VecDeque<CopiedSegment>,
    copied_bytes: u64,
    failed: Option<Error>,
}

impl Copier {
    /// Begins a backup, which reads up to `rate` bytes a second from each server, and none of the
    /// `known` segments.
    #[must_use]
    pub fn new(known: BTreeMap<(u32, u64), SegmentFile>, rate: u64) -> Self {
        Self {
            rate: rate.max(1),
            known,
            phase: Phase::Catalog(Nanos(0)),
            asked: None,
            waits_since: None,
            version: 0,
            catalog: Vec::new(),
            servers: Vec::new(),
            cuts: 0,
            cut_at: Nanos(0),
            held: Duration::ZERO,
            tags: 0,
            stored: VecDeque::new(),
            copied_bytes: 0,
            failed: None,
        }
    }

    /// Returns the bytes of whole segments copied so far.
    #[must_use]
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }

    /// Returns the next question that is to be sent, with the tag of its answer; `None` when there
    /// is none before an answer arrives or [`next_deadline`](Self::next_deadline) passes. Unless
    /// `may_read`, asks for no entries: the owner has no room for more segments yet.
    pub fn question(&mut self, now: Nanos, may_read: bool) -> Option<(u64, Question)> {
        match self.phase {
            Phase::Catalog(due) if due > now => return None,
            Phase::Catalog(_) | Phase::Before | Phase::After => {
                if self.asked.is_some() {
                    return None;
                }
                self.tags += 1;
                self.asked = Some(self.tags);
                return Some((self.tags, Question::Catalog));
            }
            _ => {}
        }
        let known = &self.known;
        let is_due = |server: &&mut ServerCopy| server.asked.is_none() && server.due <= now;
        let mut due = self.servers.iter_mut().filter(is_due);
        let (server, question) = due.find_map(|server| {
            let question = match server.todo {
                Todo::Read(_) if !may_read => {
                    if now.since(server.asked_at) < KEEP_INTERVAL {
                        return None;
                    }
                    server.is_late = true;
                    LogQuestion::List
                }
                _ => server.question(known)?,
            };
            Some((server, question))
        })?;
        self.tags += 1;
        (server.asked, server.asked_at) = (Some(self.tags), now);
        Some((self.tags, Question::Log(server.locator.clone(), question)))
    }

    /// Takes the answer to a question.
    pub fn answer(&mut self, now: Nanos, tag: u64, answer: Result<Reply, sprat_client::Error>) {
        let at = self.servers.iter().position(|server| server.asked == Some(tag));
        let taken = match (at, answer) {
            (None, answer) if self.asked == Some(tag) => {
                self.asked = None;
                match answer {
                    Ok(Reply::Catalog(version, bytes)) => self.take_catalog(now, version, bytes),
                    Ok(Reply::Piece(_)) => unreachable!("the question was for the catalog"),
                    Err(error) => Err(error.into()),
                }
            }
            (None, _) => return, // the question was to a server that has no tablets any more
            (Some(at), answer) => {
                let server = &mut self.servers[at];
                server.asked = None;
                match answer {
                    _ if std::mem::take(&mut server.is_late) => Ok(()),
                    Ok(Reply::Piece(piece)) => self.take_piece(now, at, &piece),
                    Ok(Reply::Catalog(..)) => unreachable!("the question was for a step"),
                    // It notices by itself that the backup is over.
                    Err(_) if self.phase == Phase::End => {
                        server.todo = Todo::Nothing;
                        Ok(())
                    }
                    Err(error) => {
                        self.fail(error.into());
                        self.servers[at].todo = Todo::Nothing;
                        Ok(())
                    }
                }
            }
        };
        if let Err(error) = taken {
            self.fail(error);
        }
        self.go_on(now);
    }

    /// Returns a segment that is to be stored.
    pub fn take_segment(&mut self) -> Option<CopiedSegment> {
        self.stored.pop_front()
    }

    /// Returns the time at which there may be a question even if no answer arrives.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        if let Phase::Catalog(due) = self.phase {
            return self.asked.is_none().then_some(due);
        }
        let is_waiting =
            |server: &&ServerCopy| server.asked.is_none() && !matches!(server.todo, Todo::Nothing);
        self.servers.iter().filter(is_waiting).map(|server| server.due).min()
    }

    /// Returns the result, once the backup is over and all segments were taken. Call it no more
    /// after that.
    pub fn take_result(&mut self) -> Option<Result<Copied, Error>> {
        if self.phase != Phase::Over || !self.stored.is_empty() {
            return None;
        }
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        let files = |server: &ServerCopy| {
            let file = |id: &u64| self.known[&(server.id, *id)].clone();
            (server.id, server.cut.1.iter().map(file).collect())
        };
        Some(Ok(Copied {
            cut_at: self.cut_at,
            held: self.held,
            catalog: std::mem::take(&mut self.catalog),
            servers: self.servers.iter().map(files).collect(),
            copied_bytes: self.copied_bytes,
        }))
    }

    fn set(&mut self, phase: Phase, todo: &Todo) {
        self.phase = phase;
        for server in &mut self.servers {
            server.todo = todo.clone();
            server.is_late = server.asked.is_some();
        }
    }

    /// Ends the backup, once the servers know of it.
    fn fail(&mut self, error: Error) {
        self.failed.get_or_insert(error);
        if self.phase != Phase::End {
            self.set(Phase::End, &Todo::End);
        }
    }

    /// Begins again, unless that was done often enough.
    fn begin_again(&mut self, now: Nanos, obstacle: &'static str) {
        self.cuts += 1;
        match self.cuts < CUTS {
            true => self.set(Phase::Catalog(now), &Todo::Nothing),
            false => self.fail(Error::NoCut(obstacle.to_owned())),
        }
    }

    /// Goes on to the next phase if all servers are done with this one, and so on.
    fn go_on(&mut self, now: Nanos) {
        let is_done =
            |server: &ServerCopy| server.asked.is_none() && matches!(server.todo, Todo::Nothing);
        while self.servers.iter().all(is_done) {
            match self.phase {
                Phase::Ahead => self.phase = Phase::Before,
                Phase::Cut => self.set(Phase::Release, &Todo::Release),
                Phase::Release => {
                    self.held = now.since(self.cut_at);
                    self.phase = Phase::After;
                }
                Phase::Rest => self.set(Phase::End, &Todo::End),
                Phase::End => self.phase = Phase::Over,
                Phase::Catalog(_) | Phase::Before | Phase::After | Phase::Over => return,
            }
        }
    }

    fn take_catalog(&mut self, now: Nanos, version: u64, bytes: Vec<u8>) -> Result<(), Error> {
        const CHANGED: &str = "tablets moved, or tables were made or dropped";
        match self.phase {
            Phase::Before | Phase::After if version != self.version => {
                self.begin_again(now, CHANGED);
            }
            Phase::Before => {
                self.cut_at = now;
                self.set(Phase::Cut, &Todo::Cut);
            }
            Phase::After if !self.servers.iter().all(|server| server.was_held) => {
                self.begin_again(now, "a server was not released within half a second");
            }
            Phase::After => {
                self.phase = Phase::Rest;
                for server in &mut self.servers {
                    let (cut, segments) = &server.cut;
                    let lacks = |id: &&u64| !self.known.contains_key(&(server.id, **id));
                    let left = segments.iter().filter(lacks).copied().collect();
                    server.todo = Todo::read(*cut, ROUNDS, left);
                }
            }
            _ => return self.take_whole_catalog(now, version, bytes),
        }
        Ok(())
    }

    /// Takes the catalog from which a cut begins.
    fn take_whole_catalog(
        &mut self,
        now: Nanos,
        version: u64,
        bytes: Vec<u8>,
    ) -> Result<(), Error> {
        let catalog = Catalog::<MetadataMemory>::from_copy(&bytes)
            .map_err(|what| Error::Server { server: 0, what: format!("its catalog: {what}") })?;
        let owns = |id: u32| !catalog.tablets_of(id).is_empty();
        let owners: Vec<_> = catalog.servers().filter(|(id, _)| owns(*id)).collect();
        if let Some((lost, _)) = owners.iter().find(|(_, entry)| entry.dead) {
            let since = *self.waits_since.get_or_insert(now);
            if now.since(since) > RECOVERY_WAIT {
                return Err(Error::Recovering(*lost));
            }
            self.phase = Phase::Catalog(now + RECOVERY_POLL);
            return Ok(());
        }
        self.waits_since = None;
        self.servers.retain(|server| {
            owners.iter().any(|(id, entry)| (*id, &entry.locator) == (server.id, &server.locator))
        });
        for (id, entry) in owners {
            if !self.servers.iter().any(|server| server.id == id) {
                self.servers.push(ServerCopy {
                    id,
                    locator: entry.locator.clone(),
                    todo: Todo::Nothing,
                    asked: None,
                    is_late: false,
                    asked_at: now,
                    due: now,
                    cut: (0, Vec::new()),
                    was_held: false,
                });
            }
        }
        (self.version, self.catalog) = (version, bytes);
        self.set(Phase::Ahead, &Todo::List(0));
        Ok(())
    }

    fn take_piece(&mut self, now: Nanos, at: usize, piece: &CopiedPiece) -> Result<(), Error> {
        let server = &mut self.servers[at];
        let id = server.id;
        let fault = |what: &str| Error::Server { server: id, what: what.to_owned() };
        let list = || {
            let segments = piece.segments().ok_or_else(|| fault("its list is malformed"))?;
            Ok::<_, Error>(segments.iter().map(|segment| segment.id.get()).collect::<Vec<_>>())
        };
        let lacks = |segment: &u64| !self.known.contains_key(&(id, *segment));
        let mut todo = std::mem::replace(&mut server.todo, Todo::Nothing);
        match &mut todo {
            Todo::Nothing => unreachable!("it was asked for something"),
            Todo::List(round) => {
                let left = list()?.into_iter().filter(lacks).collect();
                server.todo = Todo::read(0, *round, left);
            }
            Todo::Cut => server.cut = (piece.number, list()?),
            Todo::Release => server.was_held = piece.found,
            Todo::End => {}
            Todo::Read(reading) => {
                let read = reading.take(piece).map_err(|what| fault(&what))?;
                let nanos = piece.bytes.len() as u64 * 1_000_000_000 / self.rate;
                // What was missed while the client did something else is not made up for.
                server.due = server.due.max(now) + Duration::from_nanos(nanos);
                if let Some((file, bytes)) = read {
                    self.copied_bytes += file.bytes;
                    self.known.insert((id, file.id), file.clone());
                    self.stored.push_back(CopiedSegment { server: id, file, bytes });
                }
                server.todo = match reading.left.is_empty() {
                    false => todo,
                    true if reading.round + 1 < ROUNDS => Todo::List(reading.round + 1),
                    true => Todo::Nothing,
                };
            }
        }
        Ok(())
    }
}

impl Todo {
    /// Returns what reads these segments.
    fn read(cut: u64, round: usize, left: VecDeque<u64>) -> Self {
        match left.is_empty() {
            true => Self::Nothing,
            false => {
                let first = Partial::default();
                Self::Read(Reading { cut, round, left, first, attempts: 0 })
            }
        }
    }
}

impl Reading {
    /// Takes an answer. Returns the segment that it completes, if it does. The error says what is
    /// wrong with the answer.
    fn take(&mut self, piece: &CopiedPiece) -> Result<Option<(SegmentFile, Vec<u8>)>, String> {
        if !piece.found {
            let is_gone = self.first.bytes.is_empty();
            match (is_gone, self.cut) {
                (true, 0) => drop(self.left.pop_front()), // its entries are in others now
                (true, _) => {
                    return Err("it gave up the cut: it was not read for 10 s, or restarted".into());
                }
                (false, _) => self.attempts += 1, // an answer was lost
            }
            self.first = Partial::default();
            return match self.attempts < ATTEMPTS {
                true => Ok(None),
                false => {
                    Err("a segment could not be read: answers were lost again and again".into())
                }
            };
        }
        let Partial { bytes, entries, hash } = &mut self.first;
        // Each piece has whole entries.
        *entries += contents::count(&piece.bytes).map_err(|what| {
            format!("segment {}, from byte {}: {what}", self.left[0], bytes.len())
        })?;
        hash.update(&piece.bytes);
        bytes.extend_from_slice(&piece.bytes);
        if piece.number != bytes.len() as u64 || bytes.len() > 2 * SEGMENT_BYTES {
            return Err("it returned other entries than it was asked for".into());
        }
        if piece.more {
            return Ok(None);
        }
        self.attempts = 0;
        let id = self.left.pop_front().expect("the one that is read");
        let Partial { bytes, entries, hash } = std::mem::take(&mut self.first);
        let blake3 = hash.finalize().to_hex().to_string();
        Ok(Some((SegmentFile { id, bytes: bytes.len() as u64, entries, blake3 }, bytes)))
    }
}

impl ServerCopy {
    /// Returns what to ask the server, if there is anything.
    fn question(&self, known: &BTreeMap<(u32, u64), SegmentFile>) -> Option<LogQuestion> {
        Some(match &self.todo {
            Todo::Nothing => return None,
            Todo::List(_) => LogQuestion::List,
            Todo::Cut => LogQuestion::Cut,
            Todo::End => LogQuestion::End,
            Todo::Release => {
                let (cut, segments) = &self.cut;
                let wanted = segments.iter().filter(|id| !known.contains_key(&(self.id, **id)));
                LogQuestion::Release(*cut, wanted.map(|&id| id.into()).collect())
            }
            Todo::Read(Reading { cut, left, first, .. }) => LogQuestion::Read(CopyCursor {
                cut: (*cut).into(),
                segment: left[0].into(),
                from: u32::try_from(first.bytes.len()).expect("at most two segments").into(),
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sprat_client::TableOptions;

    /// Runs a copy of two servers with empty logs. `version` returns the version of the catalog, by
    /// how often it was asked for; `holds` says whether the servers have held answers back until
    /// the release, by the number of cuts before. Returns the result, and how often the logs were
    /// cut.
    fn copy(
        version: impl Fn(usize) -> u64,
        holds: impl Fn(usize) -> bool,
    ) -> (Result<Copied, Error>, usize) {
        let mut catalog = Catalog::open(MetadataMemory::default(), 1).expect("an empty one");
        let servers = ["a", "b"].map(|locator| catalog.enlist(0, (locator, ""), 2).expect("room"));
        catalog.create("t", TableOptions::of(2), &servers).expect("room");
        let bytes = catalog.copy();
        let (mut copier, mut asked, mut cuts) = (Copier::new(BTreeMap::new(), 1), 0, 0);
        for now in (0..).map(Nanos) {
            while let Some((tag, question)) = copier.question(now, true) {
                let mut found = true;
                let reply = match question {
                    Question::Catalog => {
                        asked += 1;
                        Reply::Catalog(version(asked), bytes.clone())
                    }
                    Question::Log(_, question) => {
                        cuts += usize::from(matches!(question, LogQuestion::Cut));
                        if matches!(question, LogQuestion::Release(..)) {
                            found = holds(cuts / servers.len());
                        }
                        let (more, number, bytes) = (false, 1, Vec::new());
                        Reply::Piece(CopiedPiece { found, more, number, bytes })
                    }
                };
                copier.answer(now, tag, Ok(reply));
            }
            if let Some(result) = copier.take_result() {
                return (result, cuts / servers.len());
            }
        }
        unreachable!("it ends")
    }

    #[test]
    fn a_cut_counts_if_nothing_has_moved_and_all_servers_held_answers_back() {
        let (copied, cuts) = copy(|_| 5, |_| true);
        assert_eq!((copied.expect("a copy").servers.len(), cuts), (2, 1));
        // The catalog changes after the first cut. It is read before that, at its begin, and after.
        let (copied, cuts) = copy(|asked| if asked < 3 { 5 } else { 6 }, |_| true);
        assert_eq!((copied.expect("a copy").servers.len(), cuts), (2, 2));
        // It changes before the first cut: that is none.
        let (copied, cuts) = copy(|asked| if asked < 2 { 5 } else { 6 }, |_| true);
        assert_eq!((copied.expect("a copy").servers.len(), cuts), (2, 1));
        let (copied, cuts) = copy(|_| 5, |cut| cut > 3);
        assert_eq!((copied.expect("a copy").servers.len(), cuts), (2, 4));
    }

    #[test]
    fn cuts_end_at_a_limit() {
        let (refused, cuts) = copy(|_| 5, |_| false);
        assert!(matches!(refused, Err(Error::NoCut(_))), "{refused:?}");
        assert_eq!(cuts, CUTS);
        let (refused, _) = copy(|asked| asked as u64, |_| true);
        assert!(matches!(refused, Err(Error::NoCut(_))), "{refused:?}");
    }
}
