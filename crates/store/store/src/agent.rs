//! A node's session with its coordinator. It enlists, renews the lease, passes assignments to the
//! master, and reports the master's results. It has no clock, thread or network: the caller sends
//! what [`CoordinatorSession::next_request`] returns, one request at a time, and passes the answer
//! to [`CoordinatorSession::answered`].

use crate::coordinator::{DRIFT, RENEWAL};
use crate::master::{Command, MasterAssignment, Outbox, TabletAddresses};
use crate::replication::BackupServer;
use sprat_net::{Locator, Nanos};
use sprat_wire::op::{
    Answer, Assignment, ClusterSeen, Load, Records, RecoveredPart, Request, Status, TableRecord,
    TabletRecord,
};
use std::collections::BTreeSet;
use std::time::Duration;
use thiserror::Error;

/// How long a session waits for the answer of a cluster's only coordinator; also for the answer to
/// a request to enlist.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How long one of several coordinators may take to answer. After that another one may have taken
/// over, and the request may be sent a second time. A coordinator may leave a request for
/// assignments unanswered for [`RENEWAL`].
const PATIENCE: Duration = RENEWAL.saturating_mul(2);

/// How long a server with a lease waits before it requests another copy of the catalog, because a
/// copy is long, and tablets can move hundreds of times a second.
const COPY_PAUSE: Duration = Duration::from_millis(200);

/// The identity that a server has in its cluster.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Enlisted {
    /// The server's id; zero until the coordinator has given the server one.
    pub server: u32,
    /// The cluster's id; zero before it is known.
    pub cluster: u64,
}

/// Why the session has ended.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum SessionEnd {
    /// The coordinator has declared this server dead.
    #[error("the coordinator declared server {0} dead, and other servers took over its tables")]
    Dead(u32),
    /// The coordinator refuses the server, and says why.
    #[error("the coordinator refuses: {0}")]
    Refused(String),
    /// The coordinator's answer cannot be parsed, or answers no request.
    #[error("the coordinator sent an invalid answer")]
    Nonsense,
}

/// The kind of the last request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LastRequest {
    Nothing,
    Enlist,
    Assignments,
    Void(u64),
    Recovered,
    Loads,
    Copy,
    Locate(u32),
}

/// A copy of the coordinator's catalog, to be kept in the data directory.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CatalogCopy {
    /// The encoded catalog, which [`Catalog::from_copy`](crate::coordinator::Catalog::from_copy)
    /// reads.
    pub bytes: Vec<u8>,
}

/// A node's session with its coordinator.
///
/// The caller owns time and the network, and sends one request at a time: it takes
/// [`next_request`](Self::next_request), sends it with the timeout [`patience`](Self::patience),
/// and passes the answer, or `None` after a timeout, to [`answered`](Self::answered). Then it turns
/// to another coordinator if [`take_deposed`](Self::take_deposed) says so, and pauses if
/// [`take_wrong_cluster`](Self::take_wrong_cluster) returns a reason. The first request enlists the
/// server. Most later requests ask for assignments, which also renews the lease. A coordinator
/// leaves such a request unanswered until there are newer assignments or the lease must be renewed,
/// so after assignments the caller can ask again at once. In between, the session reports the
/// results that the master has left in its [`Outbox`], and fetches copies of the catalog if it
/// [keeps one](Self::keeping_copies). A [`SessionEnd`] error is final: the server must stop.
pub struct CoordinatorSession {
    enlisted: Enlisted,
    copies: u8,
    locator: String,
    rack: String,
    /// Whether the current coordinator knows this server.
    is_enlisted: bool,
    /// Version of the last assignment that was sent to the master; zero if none was sent since the
    /// server enlisted.
    assigned_version: u64,
    /// The highest catalog version that a coordinator has shown, or that this server's copy has. A
    /// coordinator that shows a lower one was deposed and does not know it yet: its assignments are
    /// ignored, and so are the leases in them.
    seen: u64,
    /// Cluster and version as the last request reported them.
    reported: ClusterSeen,
    /// Why the coordinator that answered last belongs to another cluster, if it does.
    wrong_cluster: Option<String>,
    /// The version of the catalog copy that this server keeps (`None` if it keeps none), a new copy
    /// that the caller has not taken yet, and the time before which no further copy is requested.
    copied: Option<u64>,
    copy: Option<CatalogCopy>,
    copy_from: Nanos,
    deposed: bool,
    last_request: LastRequest,
    requested_at: Nanos,
    /// The segment that the coordinator has recorded for the master. Recovery must not use open
    /// replicas of heads below it.
    voided: u64,
    result: Option<crate::master::RecoveryResult>,
    /// The part of `result` that is in the request.
    brought_back: RecoveredPart,
    /// The loads of the master's tablets. They are sent only after an answer to the request that
    /// renews the lease, since that request must not wait.
    loads: Option<(u64, Vec<Load>)>,
    may_report_loads: bool,
    /// The table whose tablets the master looks for, until the coordinator was asked.
    wanted_table: Option<u32>,
}

impl CoordinatorSession {
    /// Creates the session of a node that others reach at `locator`, and that keeps `copies`
    /// replicas of its log on other servers.
    #[must_use]
    pub fn new(enlisted: Enlisted, copies: u8, locator: String) -> Self {
        Self {
            enlisted,
            copies,
            locator,
            rack: String::new(),
            is_enlisted: false,
            assigned_version: 0,
            seen: 0,
            reported: ClusterSeen::default(),
            wrong_cluster: None,
            copied: None,
            copy: None,
            copy_from: Nanos(0),
            deposed: false,
            last_request: LastRequest::Nothing,
            requested_at: Nanos(0),
            voided: 0,
            result: None,
            brought_back: RecoveredPart { order: 0.into(), since: 0.into() },
            loads: None,
            may_report_loads: false,
            wanted_table: None,
        }
    }

    /// Sets the node's rack; an empty name means none.
    ///
    /// # Panics
    /// When the name is not valid for a rack.
    #[must_use]
    pub fn in_rack(self, rack: &str) -> Self {
        assert!(
            rack.is_empty() || sprat_wire::is_rack(rack),
            "{rack:?} is no rack: checked where it was given"
        );
        Self { rack: rack.to_owned(), ..self }
    }

    /// Makes the session fetch copies of the catalog. `copied` is the version of the copy that the
    /// server has; zero if it has none. Coordinators with older metadata are refused.
    #[must_use]
    pub fn keeping_copies(self, copied: u64) -> Self {
        Self { seen: self.seen.max(copied), copied: Some(copied), ..self }
    }

    /// Takes a copy of the catalog that has arrived, to be kept.
    pub fn take_copy(&mut self) -> Option<CatalogCopy> {
        self.copy.take()
    }

    /// Takes the reason if the coordinator that answered last belongs to another cluster.
    pub fn take_wrong_cluster(&mut self) -> Option<String> {
        self.wrong_cluster.take()
    }

    /// Returns the cluster and the newest catalog version that the server has seen.
    #[must_use]
    pub fn seen(&self) -> ClusterSeen {
        ClusterSeen { cluster: self.enlisted.cluster.into(), version: self.seen.into() }
    }

    /// Returns the server's identity in the cluster.
    #[must_use]
    pub fn enlisted(&self) -> Enlisted {
        self.enlisted
    }

    /// Returns whether the server has enlisted after the process started, and need not enlist
    /// again.
    #[must_use]
    pub fn has_enlisted(&self) -> bool {
        self.is_enlisted
    }

    /// Returns the version of the last assignment that was sent to the master; zero if none was
    /// sent since the server enlisted.
    #[must_use]
    pub fn assigned_version(&self) -> u64 {
        self.assigned_version
    }

    /// Sets the address at which others reach the node, once it listens. If the address differs
    /// from the one before, the server enlists again.
    ///
    /// # Panics
    /// When the address differs and the log is kept on other servers, which reach the node where it
    /// enlisted.
    pub fn set_locator(&mut self, locator: &str) {
        if self.locator != locator {
            assert!(self.copies == 0, "a server with copies stays where it enlisted");
            locator.clone_into(&mut self.locator);
            self.is_enlisted = false;
        }
    }

    /// Returns how long to wait for the answer to the last request, in a cluster with
    /// `coordinators` coordinators.
    #[must_use]
    pub fn patience(&self, coordinators: usize) -> Duration {
        // A request to enlist is not repeated early: a server that enlists twice gets two ids.
        if coordinators > 1 && self.last_request != LastRequest::Enlist {
            PATIENCE
        } else {
            TIMEOUT
        }
    }

    /// Returns whether an answer since the last call came from a coordinator that no longer leads,
    /// so that the caller must turn to another one.
    #[must_use]
    pub fn take_deposed(&mut self) -> bool {
        std::mem::take(&mut self.deposed)
    }

    /// Returns the request to send now.
    pub fn next_request(&mut self, now: Nanos, outbox: &Outbox) -> Request<'_> {
        self.reported = self.seen();
        let Self { enlisted: Enlisted { server, cluster }, copies, locator, rack, .. } = self;
        let (server, cluster) = (*server, *cluster);
        self.requested_at = now;
        if !self.is_enlisted {
            self.last_request = LastRequest::Enlist;
            return Request::Enlist { server, cluster, copies: *copies, locator, rack };
        }
        if outbox.min_open() > self.voided {
            let segment = outbox.min_open();
            self.last_request = LastRequest::Void(segment);
            return Request::Void { server, segment };
        }
        if self.result.is_none() {
            self.result = outbox.take_recovery_result();
        }
        if let Some(result) = &self.result {
            self.last_request = LastRequest::Recovered;
            self.brought_back =
                RecoveredPart { order: result.order.into(), since: result.since.into() };
            return Request::Recovered {
                server,
                part: &self.brought_back,
                failure: &result.failure,
                no_room: result.no_room,
            };
        }
        self.wanted_table = self.wanted_table.or_else(|| outbox.take_wanted_table());
        if self.may_report_loads
            && let Some(table) = self.wanted_table
        {
            self.last_request = LastRequest::Locate(table);
            return Request::LocateTable { table };
        }
        self.loads = outbox.take_loads().or(self.loads.take());
        if self.may_report_loads
            && let Some((capacity, loads)) = &self.loads
        {
            self.last_request = LastRequest::Loads;
            return Request::Loads { server, capacity: *capacity, loads };
        }
        if self.may_report_loads
            && self.copied.is_some_and(|copied| copied < self.seen)
            && now >= self.copy_from
        {
            self.last_request = LastRequest::Copy;
            return Request::CopyCatalog { server, seen: &self.reported };
        }
        self.last_request = LastRequest::Assignments;
        // An assignment that the master has not applied yet does not count as known.
        Request::Assignments {
            server,
            known: outbox.applied().min(self.assigned_version),
            seen: &self.reported,
        }
    }

    /// Handles the coordinator's answer, or its absence (`None`). Returns whether a command was
    /// left for the master, so that the caller must ring its bell.
    ///
    /// # Errors
    /// [`SessionEnd`] when the coordinator has declared this server dead or refuses it, or when its
    /// answer cannot be parsed.
    pub fn answered(
        &mut self,
        answer: Option<&Answer<'_>>,
        outbox: &Outbox,
    ) -> Result<bool, SessionEnd> {
        self.may_report_loads = self.last_request == LastRequest::Assignments && answer.is_some();
        let Some(answer) = answer else { return Ok(false) };
        let server = self.enlisted.server;
        let answered_version = match (self.last_request, answer.status) {
            (LastRequest::Assignments, Status::Ok | Status::NotFound)
            | (LastRequest::Copy, Status::Ok)
            | (_, Status::Fenced) => answer.number,
            _ => u64::MAX,
        };
        if answered_version < self.seen {
            self.deposed = true;
            return Ok(false);
        }
        match (self.last_request, answer.status) {
            (LastRequest::Nothing, _) => Err(SessionEnd::Nonsense),
            (LastRequest::Enlist, Status::Ok) => {
                let mut records = Records::new(answer.body);
                let cluster = records.named("cluster").ok_or(SessionEnd::Nonsense)?;
                self.seen = self.seen.max(records.named("version").ok_or(SessionEnd::Nonsense)?);
                let server = u32::try_from(answer.number).map_err(|_| SessionEnd::Nonsense)?;
                self.enlisted = Enlisted { server, cluster };
                (self.is_enlisted, self.assigned_version) = (true, 0);
                Ok(false)
            }
            (LastRequest::Assignments, Status::Ok) => {
                let assignment = Assignment::parse(answer.body).ok_or(SessionEnd::Nonsense)?;
                self.assign(answer.number, assignment, outbox)
            }
            // The master asks again if it still needs the table.
            (LastRequest::Locate(table), status) => {
                self.wanted_table = None;
                let addresses = match status {
                    Status::Ok => Records::new(answer.body).table().map(|table| addresses(&table)),
                    Status::NoSuchTable => Some(None),
                    _ => None,
                };
                let located = addresses.map(|addresses| Command::Located(table, addresses));
                Ok(located.is_some_and(|located| outbox.send(located)))
            }
            // A coordinator that has started again does not know servers without a lease.
            (LastRequest::Assignments, Status::NotFound) if self.copies == 0 => {
                self.is_enlisted = false;
                Ok(false)
            }
            (LastRequest::Assignments, Status::NotFound) | (_, Status::Fenced) => {
                Err(SessionEnd::Dead(server))
            }
            (LastRequest::Loads, Status::Ok) => {
                self.loads = None;
                Ok(false)
            }
            (LastRequest::Copy, Status::Ok) => {
                if self.copies > 0 {
                    self.copy_from = self.requested_at + COPY_PAUSE;
                }
                self.copied = Some(answer.number);
                self.copy = Some(CatalogCopy { bytes: answer.body.to_vec() });
                Ok(false)
            }
            // The operator may correct the mistake while this server runs: the session asks again,
            // and meanwhile the lease ends.
            (LastRequest::Assignments | LastRequest::Copy, Status::WrongCluster) => {
                self.wrong_cluster = Some(String::from_utf8_lossy(answer.body).into_owned());
                Ok(false)
            }
            (LastRequest::Void(segment), Status::Ok) => {
                // The master acknowledges nothing until it has this command. If its inbox is full,
                // the session sends the request again, which changes nothing at the coordinator.
                let sent = outbox.send(Command::Voided(segment));
                if sent {
                    self.voided = segment;
                }
                Ok(sent)
            }
            (LastRequest::Recovered, _) => {
                // If the report was refused, another server has the recovery or move by now. If the
                // answer was an error for another reason, the next assignment orders the recovery
                // or move again.
                self.result = None;
                Ok(false)
            }
            // No coordinator leads yet: the request is repeated.
            (_, Status::NotLeading) => Ok(false),
            (_, status) => {
                let words = String::from_utf8_lossy(answer.body);
                Err(SessionEnd::Refused(if words.is_empty() {
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
    ) -> Result<bool, SessionEnd> {
        assert!(version >= self.seen, "older ones are not taken");
        self.seen = version;
        let lease = match assignment.lease_micros {
            0 => Nanos::NEVER,
            micros => {
                let lease = Duration::from_micros(micros);
                self.requested_at + (lease - lease / DRIFT)
            }
        };
        outbox.set_lease(lease);
        // While recoveries or moves are under way, reports of their results may have been lost. So
        // the master gets the assignment again and repeats its report.
        let is_idle = assignment.orders.is_empty() && assignment.moves.is_empty();
        let unchanged = version == self.assigned_version && is_idle && outbox.applied() == version;
        if unchanged || assignment.next_server == 0 {
            return Ok(false);
        }
        // Racks become numbers, in the order of their names; the servers without a rack share one.
        let racks: BTreeSet<&str> =
            assignment.members.iter().map(|member| member.rack.as_str()).collect();
        let member = |member: &sprat_wire::op::ServerRecord| {
            let locator: Locator = member.locator.parse().ok()?;
            let rack = u32::try_from(racks.range(..member.rack.as_str()).count())
                .expect("fewer than servers");
            Some(BackupServer {
                server: member.id,
                address: *locator.resolve().ok()?.first()?,
                rack,
            })
        };
        let members = assignment.members.iter().filter_map(member).collect();
        let Assignment {
            tablets,
            masters,
            next_server,
            orders,
            names,
            moves,
            evicting,
            sort_orders,
            ..
        } = assignment;
        let (leaving, moves): (Vec<_>, Vec<_>) =
            moves.into_iter().partition(|order| order.from == self.enlisted.server);
        let arriving = moves.into_iter().filter(|order| order.to == self.enlisted.server).collect();
        let assigned = MasterAssignment {
            version,
            tablets,
            members,
            masters,
            next_server,
            orders,
            names,
            leaving,
            arriving,
            evicting,
            sort_orders,
        };
        let sent = outbox.send(Command::Assign(Box::new(assigned)));
        if sent {
            self.assigned_version = version;
        }
        Ok(sent)
    }
}

/// Returns the addresses of a table's tablets.
fn addresses(table: &TableRecord) -> TabletAddresses {
    let address = |tablet: &TabletRecord| {
        let locator: Locator = tablet.locator.parse().ok()?;
        locator.resolve().ok()?.first().copied()
    };
    Some(table.tablets.iter().map(|tablet| (tablet.first, address(tablet))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::master::inbox;
    use sprat_wire::op::{encode_answer, push_counter};
    use zerocopy::IntoBytes as _;

    fn answered(session: &mut CoordinatorSession, outbox: &Outbox, number: u64) -> bool {
        let header = answer(number);
        let answer = Answer::parse(&header);
        session.answered(answer.as_ref(), outbox).expect("an answer that is expected")
    }

    fn answer(number: u64) -> Vec<u8> {
        let mut bytes = encode_answer(Status::Ok, false, 0, number).as_bytes().to_vec();
        push_counter(&mut bytes, "cluster", 5);
        push_counter(&mut bytes, "version", 7);
        bytes
    }

    #[test]
    fn a_copy_of_an_earlier_leader_is_not_kept() {
        let (outbox, _inbox) = inbox();
        let at = "tcp:host=10.0.0.2,port=9".to_owned();
        let mut session = CoordinatorSession::new(Enlisted::default(), 2, at).keeping_copies(0);
        let _ = session.next_request(Nanos(0), &outbox);
        answered(&mut session, &outbox, 3);
        for (version, is_taken) in [(6, false), (7, true)] {
            let _ = session.next_request(Nanos(0), &outbox);
            let mut bytes = encode_answer(Status::Ok, false, 0, 7).as_bytes().to_vec();
            Assignment { next_server: 4, ..Assignment::default() }.encode(&mut bytes);
            session.answered(Answer::parse(&bytes).as_ref(), &outbox).expect("an assignment");
            let next = session.next_request(Nanos(0), &outbox);
            assert!(matches!(next, Request::CopyCatalog { .. }), "{next:?}");
            assert!(!answered(&mut session, &outbox, version));
            assert_eq!(session.take_deposed(), !is_taken, "version {version}");
            assert_eq!(session.take_copy().is_some(), is_taken, "version {version}");
        }
    }

    #[test]
    fn a_full_inbox_does_not_lose_the_confirmation_that_the_master_waits_for() {
        let (outbox, mut inbox) = inbox();
        let mut session =
            CoordinatorSession::new(Enlisted::default(), 2, "tcp:host=10.0.0.2,port=9".into());
        let _ = session.next_request(Nanos(0), &outbox);
        answered(&mut session, &outbox, 3);
        inbox.wants_min_open(8);
        while outbox.send(Command::Voided(1)) {}
        for _ in 0..2 {
            let request = session.next_request(Nanos(0), &outbox);
            assert!(matches!(request, Request::Void { segment: 8, .. }), "{request:?}");
            assert!(!answered(&mut session, &outbox, 8));
        }
        while inbox.take().is_some() {}
        assert!(matches!(session.next_request(Nanos(0), &outbox), Request::Void { .. }));
        assert!(answered(&mut session, &outbox, 8));
        assert!(!matches!(session.next_request(Nanos(0), &outbox), Request::Void { .. }));
    }
}
