//! What speaks to the coordinator for a node: enlists, renews the lease, leaves assignments with
//! the master, and tells the coordinator what the master wants known. Without clock, thread or
//! network: whoever owns those asks what [`Agent::next`] says, one request at a time, and hands the
//! answer to [`Agent::answered`].

use crate::coordinator::{DRIFT, RENEWAL};
use crate::master::{Assigned, Command, Outbox};
use crate::replication::Member;
use sprat_net::{Locator, Nanos};
use sprat_wire::op::{
    Answer, Assignment, ClusterSeen, Load, Records, RecoveredPart, Request, Status,
};
use std::collections::BTreeSet;
use std::time::Duration;
use thiserror::Error;

/// How long a coordinator may take to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How long it may take where there are others, one of which may have taken its place; what is
/// asked then may be asked twice. A question stays unanswered for [`RENEWAL`].
const PATIENCE: Duration = RENEWAL.saturating_mul(2);

/// How long a server with a lease goes without asking for a copy of the catalog again: a copy is
/// long, and tablets can move hundreds of times a second.
const COPY_PAUSE: Duration = Duration::from_millis(200);

/// What a server is in its cluster.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Enlisted {
    /// Its id; zero before it has one.
    pub server: u32,
    /// The cluster's; zero before it is known.
    pub cluster: u64,
}

/// Why there is nothing more to ask.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum Gone {
    /// The coordinator has declared this server dead.
    #[error("the coordinator has declared server {0} dead, and others have what it had")]
    Dead(u32),
    /// The coordinator does not want it.
    #[error("the coordinator refuses: {0}")]
    Refused(String),
    /// An answer that is none.
    #[error("the coordinator's answer makes no sense")]
    Nonsense,
}

/// What the last request was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Asked {
    Nothing,
    Enlist,
    Assignments,
    Void(u64),
    Recovered,
    Loads,
    Copy,
}

/// A copy of the catalog, to be kept.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CatalogCopy {
    /// What [`Catalog::of_copy`](crate::coordinator::Catalog::of_copy) reads.
    pub bytes: Vec<u8>,
}

/// The agent of a node.
pub struct Agent {
    enlisted: Enlisted,
    copies: u8,
    locator: String,
    rack: String,
    /// Whether the coordinator that is there now knows this server.
    known_there: bool,
    /// Version of the assignments that the master was given.
    given: u64,
    /// The highest version that a coordinator has told of. One that tells of less was deposed, and
    /// has yet to hear of it: nothing of what it says counts, a lease least of all.
    seen: u64,
    /// The cluster and `seen`, as the last request reports them to the coordinator.
    reported: ClusterSeen,
    /// Why the coordinator that answers is not this server's.
    foreign: Option<String>,
    /// Version of the copy of the catalog that this server keeps, if it is to keep one; the next,
    /// and from when to ask.
    copied: Option<u64>,
    copy: Option<CatalogCopy>,
    copy_from: Nanos,
    strayed: bool,
    asked: Asked,
    asked_at: Nanos,
    /// What the master wants told; the coordinator has noted the first so far.
    voided: u64,
    report: Option<crate::master::Recovered>,
    /// The same as it is told.
    brought: RecoveredPart,
    /// What the master's tablets are to it, to be told behind an answer to the question that
    /// renews the lease, which must not wait.
    loads: Option<(u64, Vec<Load>)>,
    may_tell_loads: bool,
}

impl Agent {
    /// The agent of a node that others reach at `locator`, and that keeps `copies` replicas of its
    /// log on others.
    #[must_use]
    pub fn new(enlisted: Enlisted, copies: u8, locator: String) -> Self {
        Self {
            enlisted,
            copies,
            locator,
            rack: String::new(),
            known_there: false,
            given: 0,
            seen: 0,
            reported: ClusterSeen::default(),
            foreign: None,
            copied: None,
            copy: None,
            copy_from: Nanos(0),
            strayed: false,
            asked: Asked::Nothing,
            asked_at: Nanos(0),
            voided: 0,
            report: None,
            brought: RecoveredPart { order: 0.into(), since: 0.into() },
            loads: None,
            may_tell_loads: false,
        }
    }

    /// The same, of a node in a rack; an empty name is none.
    ///
    /// # Panics
    /// When the name is none of a rack's.
    #[must_use]
    pub fn in_rack(self, rack: &str) -> Self {
        assert!(
            rack.is_empty() || sprat_wire::is_rack(rack),
            "{rack:?} is no rack: checked where it was given"
        );
        Self { rack: rack.to_owned(), ..self }
    }

    /// An agent that asks for copies of the catalog, and whose server has one of version `copied`,
    /// or, with zero, none: coordinators with older metadata are refused.
    #[must_use]
    pub fn keeping_copies(self, copied: u64) -> Self {
        Self { seen: self.seen.max(copied), copied: Some(copied), ..self }
    }

    /// The copy of the catalog that has come, to be kept.
    pub fn take_copy(&mut self) -> Option<CatalogCopy> {
        self.copy.take()
    }

    /// Why the coordinator that answered last is not this server's, if it is not.
    pub fn take_foreign(&mut self) -> Option<String> {
        self.foreign.take()
    }

    /// What it knows of its cluster.
    #[must_use]
    pub fn seen(&self) -> ClusterSeen {
        ClusterSeen { cluster: self.enlisted.cluster.into(), version: self.seen.into() }
    }

    /// What it is.
    #[must_use]
    pub fn enlisted(&self) -> Enlisted {
        self.enlisted
    }

    /// Whether it has enlisted in this life.
    #[must_use]
    pub fn has_enlisted(&self) -> bool {
        self.known_there
    }

    /// Version of the assignments that the master was given.
    #[must_use]
    pub fn given(&self) -> u64 {
        self.given
    }

    /// Others reach the node there, as is known now that it listens.
    ///
    /// # Panics
    /// When its log is kept by others, which reach it where it enlisted.
    pub fn moved(&mut self, locator: &str) {
        if self.locator != locator {
            assert!(self.copies == 0, "a server with copies stays where it enlisted");
            locator.clone_into(&mut self.locator);
            self.known_there = false;
        }
    }

    /// How long to wait for the answer to what was asked last, of one of so many coordinators.
    #[must_use]
    pub fn patience(&self, coordinators: usize) -> Duration {
        // Whoever enlists twice has two ids.
        if coordinators > 1 && self.asked != Asked::Enlist { PATIENCE } else { TIMEOUT }
    }

    /// Whether the last answer came from a coordinator that leads no more, so that another is to be
    /// asked.
    #[must_use]
    pub fn take_strayed(&mut self) -> bool {
        std::mem::take(&mut self.strayed)
    }

    /// What to ask now.
    pub fn next(&mut self, now: Nanos, outbox: &Outbox) -> Request<'_> {
        self.reported = self.seen();
        let Self { enlisted: Enlisted { server, cluster }, copies, locator, rack, .. } = self;
        let (server, cluster) = (*server, *cluster);
        self.asked_at = now;
        if !self.known_there {
            self.asked = Asked::Enlist;
            return Request::Enlist { server, cluster, copies: *copies, locator, rack };
        }
        if outbox.min_open() > self.voided {
            let segment = outbox.min_open();
            self.asked = Asked::Void(segment);
            return Request::Void { server, segment };
        }
        if self.report.is_none() {
            self.report = outbox.take_recovered();
        }
        if let Some(report) = &self.report {
            self.asked = Asked::Recovered;
            self.brought = RecoveredPart { order: report.order.into(), since: report.since.into() };
            return Request::Recovered { server, part: &self.brought, failure: &report.failure };
        }
        self.loads = outbox.take_loads().or(self.loads.take());
        if self.may_tell_loads
            && let Some((capacity, loads)) = &self.loads
        {
            self.asked = Asked::Loads;
            return Request::Loads { server, capacity: *capacity, loads };
        }
        if self.may_tell_loads
            && self.copied.is_some_and(|copied| copied < self.seen)
            && now >= self.copy_from
        {
            self.asked = Asked::Copy;
            return Request::CopyCatalog { server, seen: &self.reported };
        }
        self.asked = Asked::Assignments;
        // What the master has not taken yet is not known to be served.
        Request::Assignments {
            server,
            known: outbox.applied().min(self.given),
            seen: &self.reported,
        }
    }

    /// The coordinator has answered, or, with `None`, has not. Returns whether there is something
    /// for the master to look at.
    ///
    /// # Errors
    /// [`Gone`].
    pub fn answered(&mut self, answer: Option<&Answer<'_>>, outbox: &Outbox) -> Result<bool, Gone> {
        self.may_tell_loads = self.asked == Asked::Assignments && answer.is_some();
        let Some(answer) = answer else { return Ok(false) };
        let server = self.enlisted.server;
        let told_version = match (self.asked, answer.status) {
            (Asked::Assignments, Status::Ok | Status::NotFound) | (_, Status::Fenced) => {
                answer.number
            }
            _ => u64::MAX,
        };
        if told_version < self.seen {
            self.strayed = true;
            return Ok(false);
        }
        match (self.asked, answer.status) {
            (Asked::Nothing, _) => Err(Gone::Nonsense),
            (Asked::Enlist, Status::Ok) => {
                let mut records = Records::new(answer.body);
                let cluster = records.named("cluster").ok_or(Gone::Nonsense)?;
                self.seen = self.seen.max(records.named("version").ok_or(Gone::Nonsense)?);
                let server = u32::try_from(answer.number).map_err(|_| Gone::Nonsense)?;
                self.enlisted = Enlisted { server, cluster };
                (self.known_there, self.given) = (true, 0);
                Ok(false)
            }
            (Asked::Assignments, Status::Ok) => {
                let assignment = Assignment::parse(answer.body).ok_or(Gone::Nonsense)?;
                self.assign(answer.number, assignment, outbox)
            }
            // A coordinator that has started again knows nothing of servers without a lease.
            (Asked::Assignments, Status::NotFound) if self.copies == 0 => {
                self.known_there = false;
                Ok(false)
            }
            (Asked::Assignments, Status::NotFound) | (_, Status::Fenced) => Err(Gone::Dead(server)),
            (Asked::Loads, Status::Ok) => {
                self.loads = None;
                Ok(false)
            }
            (Asked::Copy, Status::Ok) => {
                if self.copies > 0 {
                    self.copy_from = self.asked_at + COPY_PAUSE;
                }
                self.copied = Some(answer.number);
                self.copy = Some(CatalogCopy { bytes: answer.body.to_vec() });
                Ok(false)
            }
            // It may be put right while this server runs: it asks again, and a lease ends
            // meanwhile.
            (Asked::Assignments | Asked::Copy, Status::WrongCluster) => {
                self.foreign = Some(String::from_utf8_lossy(answer.body).into_owned());
                Ok(false)
            }
            (Asked::Void(segment), Status::Ok) => {
                self.voided = segment;
                Ok(outbox.send(Command::Voided(segment)))
            }
            (Asked::Recovered, _) => {
                // If it was refused, it was somebody else's by then; if not, the next assignment
                // says so.
                self.report = None;
                Ok(false)
            }
            // There is none yet that leads: it is asked again.
            (_, Status::NotLeading) => Ok(false),
            (_, status) => {
                let words = String::from_utf8_lossy(answer.body);
                Err(Gone::Refused(if words.is_empty() {
                    status.to_string()
                } else {
                    words.into_owned()
                }))
            }
        }
    }

    fn assign(
        &mut self,
        version: u64,
        assignment: Assignment,
        outbox: &Outbox,
    ) -> Result<bool, Gone> {
        assert!(version >= self.seen, "older ones are not taken");
        self.seen = version;
        let lease = match assignment.lease_micros {
            0 => Nanos::NEVER,
            micros => {
                let lease = Duration::from_micros(micros);
                self.asked_at + (lease - lease / DRIFT)
            }
        };
        outbox.set_lease(lease);
        // What was to be told of what is under way may have been lost: it is done again.
        let is_idle = assignment.orders.is_empty() && assignment.moves.is_empty();
        let unchanged = version == self.given && is_idle && outbox.applied() == version;
        if unchanged || assignment.next_server == 0 {
            return Ok(false);
        }
        // Numbers in place of names; those without a name have a number too, that of all of them.
        let racks: BTreeSet<&str> =
            assignment.members.iter().map(|member| member.rack.as_str()).collect();
        let member = |member: &sprat_wire::op::ServerRecord| {
            let locator: Locator = member.locator.parse().ok()?;
            let rack = u32::try_from(racks.range(..member.rack.as_str()).count())
                .expect("fewer than servers");
            Some(Member { server: member.id, address: *locator.resolve().ok()?.first()?, rack })
        };
        let members = assignment.members.iter().filter_map(member).collect();
        let Assignment { tablets, masters, next_server, orders, names, moves, .. } = assignment;
        let (leaving, moves): (Vec<_>, Vec<_>) =
            moves.into_iter().partition(|order| order.from == self.enlisted.server);
        let arriving = moves.into_iter().filter(|order| order.to == self.enlisted.server).collect();
        let assigned = Assigned {
            version,
            tablets,
            members,
            masters,
            next_server,
            orders,
            names,
            leaving,
            arriving,
        };
        let sent = outbox.send(Command::Assign(Box::new(assigned)));
        if sent {
            self.given = version;
        }
        Ok(sent)
    }
}
