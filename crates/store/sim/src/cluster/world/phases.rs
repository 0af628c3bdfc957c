//! The world takes a history through its phases. Before the next phase begins, it checks what must
//! be true by then.

use super::World;
use crate::client::{Client, Errand};
use crate::cluster::COPIES;
use crate::cluster::server::Server;
use sprat_net::Nanos;
use std::time::Duration;

/// Time within which lost replicas must be created again, after all faults have ended and every
/// table is served.
const WHOLE_AFTER: Duration = Duration::from_secs(30);

/// Interval at which the world checks whether all replicas exist.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Timeout of the last, undisturbed calls.
const LAST_PATIENCE: Duration = Duration::from_secs(30);

/// Number of sessions that a server may have at the end, beyond as many as there are servers,
/// because a tablet may be moving to balance load.
const SPARE_SESSIONS: usize = 2;

/// The phases of a history.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// Servers enlist, and tables are created.
    Begin,
    /// Work and faults.
    Work,
    /// All faults have ended; the world waits until every table is recovered.
    Heal,
    /// Every segment must have all its replicas at this time at the latest.
    Whole(Nanos),
    /// A backup is made, undisturbed.
    Backup,
    /// A client reads everything, writes everything once more, and reads it again. The number is
    /// that of the first of these calls.
    Last(usize),
    /// Every server must have closed its sessions for work that has ended, and the watch must have
    /// reported everything. They are checked at the first of these times, and must be so at the
    /// second.
    End(Nanos, Nanos),
}

impl World {
    /// Enters the next phase if the present phase is over. Returns whether the history has ended.
    pub(super) fn next_phase(&mut self) -> Result<bool, String> {
        let idle = self.clients.iter().all(Client::is_done);
        match self.phase {
            Phase::Begin if self.created_tables == self.settings.work.tables => {
                self.phase = Phase::Work;
                self.refresh_at = self.now;
                self.refresh_tables();
                let offset = self.now.since(Nanos(0));
                self.faults.iter_mut().for_each(|(at, _)| *at = *at + offset);
                let calls = self.settings.work.operations / self.clients.len() as u64;
                for client in &mut self.clients {
                    client.work(calls, self.now + self.random.micros(0, 10_000));
                }
            }
            Phase::Work if self.faults.is_empty() && idle && self.backup.is_idle() => {
                self.weather.borrow_mut().clear(false);
                self.weather.borrow_mut().cut_links.clear();
                self.cuts.clear();
                for server in &mut self.servers {
                    server.paused_until = server.paused_until.min(self.now);
                    server.up_at = server.up_at.min(self.now);
                    server.disk().set_latency(self.settings.work.latency);
                    server.disk_faulty_until =
                        server.disk_faulty_until.map(|until| until.min(self.now));
                }
                for coordinator in &mut self.coordinators {
                    coordinator.paused_until = coordinator.paused_until.min(self.now);
                    coordinator.up_at = coordinator.up_at.min(self.now);
                    coordinator.cut_until = coordinator.cut_until.min(self.now);
                }
                self.note(format_args!("healed"));
                self.phase = Phase::Heal;
            }
            // A request to the coordinator may be to drop a table.
            Phase::Heal if self.all_serve() && !self.is_busy => {
                self.note(format_args!("all tables are served"));
                self.phase = Phase::Whole(self.now + WHOLE_AFTER);
                self.refresh_at = self.now;
            }
            Phase::Whole(until) => {
                if let Err(why) = self.is_whole() {
                    self.refresh_at = self.refresh_at.min(self.now + CHECK_INTERVAL);
                    return if self.now < until { Ok(false) } else { Err(why) };
                }
                if !self.backup.may_begin(self.now) {
                    self.refresh_at = self.refresh_at.min(self.now + CHECK_INTERVAL);
                    return Ok(false);
                }
                self.note(format_args!("every segment is where it should be"));
                let spare = self.servers.len() > usize::from(COPIES) + 1;
                if self.lost.is_none() && spare && self.random.chance(1, 2) {
                    let lost =
                        usize::try_from(self.random.below(self.servers.len() as u64)).expect("few");
                    let gone = self.lost_together(lost);
                    self.summary.racks_lost += u64::from(gone.len() > usize::from(COPIES));
                    for gone in gone {
                        self.note(format_args!("server {gone} is gone for good"));
                        self.count(gone);
                        self.servers[gone].crash(Nanos::NEVER, false);
                    }
                    self.lost = Some(lost);
                    self.phase = Phase::Heal;
                    return Ok(false);
                }
                self.refresh_at = self.now;
                self.refresh_tables();
                if !self.settings.is_beyond() {
                    self.backup.begin(1, Nanos::NEVER);
                }
                self.phase = Phase::Backup;
            }
            Phase::Backup if self.backup.is_idle() => {
                if let Err(error) = self.backup.outcome() {
                    return Err(format!("undisturbed, and yet no backup: {error}"));
                }
                self.phase = Phase::Last(self.history.operations.len());
                let errands = self.last_errands();
                self.clients[0].send(errands, LAST_PATIENCE);
            }
            Phase::Last(first) if idle => {
                if let Some(call) = self.history.unanswered(first) {
                    return Err(format!("undisturbed, and yet without an answer: {call}"));
                }
                if self.settings.is_beyond() {
                    self.history.forgive(first);
                }
                self.phase = Phase::End(self.now, self.now + WHOLE_AFTER);
            }
            Phase::End(check_at, until) if check_at <= self.now => {
                let nodes = || self.servers.iter().filter_map(Server::node);
                nodes().for_each(|node| node.service().master().log().check_invariants());
                let sessions = nodes().map(|node| node.endpoint().client_sessions()).max();
                let sessions = sessions.unwrap_or(0);
                let has_closed = match sessions <= self.servers.len() + SPARE_SESSIONS {
                    true => Ok(()),
                    false => Err(format!("a server has {sessions} sessions with others")),
                };
                let is_watched = match self.settings.is_beyond() {
                    true => Ok(()),
                    false => {
                        self.watch.is_complete(self.settings.work.keys, &self.tables, &self.history)
                    }
                };
                match has_closed.and(is_watched) {
                    Ok(()) => return Ok(true),
                    Err(what) if self.now >= until => {
                        return Err(format!("undisturbed, and yet {what}"));
                    }
                    Err(_) => {}
                }
                let check_at = self.now + CHECK_INTERVAL;
                self.phase = Phase::End(check_at, until);
                self.refresh_at = self.refresh_at.min(check_at);
            }
            _ => {}
        }
        Ok(false)
    }

    /// Returns the servers that are lost for good together with `server`: its whole rack, if every
    /// log has replicas in other racks, enough servers remain, and no bit was flipped; otherwise
    /// only `server`.
    fn lost_together(&self, server: usize) -> Vec<usize> {
        let spread = self
            .servers
            .iter()
            .filter_map(Server::replicator)
            .all(|replicator| replicator.in_too_few_racks() == 0);
        let shares = |&other: &usize| {
            other == server || self.servers[other].shares_rack(&self.servers[server])
        };
        let rack: Vec<usize> = (0..self.servers.len()).filter(shares).collect();
        let enough = self.servers.len() - rack.len() > usize::from(COPIES);
        // A rack may have all replicas of a segment except one, and a flipped bit may have damaged
        // that one.
        let sound = self.summary.flips == 0;
        if spread && enough && sound { rack } else { vec![server] }
    }

    /// Checks that each closed segment of each live server's log has all its replicas. The error
    /// says which segments lack replicas, or that no coordinator leads.
    fn is_whole(&self) -> Result<(), String> {
        let Some(leading) = self.leading() else { return Err("no coordinator leads".into()) };
        let catalog = leading.catalog();
        let server_by_id =
            |id: &u32| self.servers.iter().find(|server| server.is_up() && server.id() == *id);
        for server in &self.servers {
            let lives = catalog.server(server.id()).is_some_and(|known| !known.dead);
            let Some(replicator) = server.replicator().filter(|_| lives) else { continue };
            let log = server.node().map(|node| node.service().master().log());
            if log.is_some_and(|log| log.has_prepared()) {
                return Err(format!(
                    "server {} has operations of transactions that are not ended",
                    server.id()
                ));
            }
            if replicator.under_replicated() > 0 {
                let short = replicator.under_replicated();
                return Err(format!(
                    "{short} segments of server {} are short of replicas",
                    server.id()
                ));
            }
            for (segment, servers) in replicator.sealed_segments() {
                let whole = |id: &&u32| {
                    server_by_id(id).is_some_and(|holder| holder.keeps(server.id(), segment))
                };
                let count = servers.iter().filter(whole).count();
                if count < usize::from(COPIES) {
                    return Err(format!(
                        "segment {segment} of server {} is on {count} of {servers:?}",
                        server.id()
                    ));
                }
            }
        }
        Ok(())
    }

    /// Returns whether every tablet has a live server that knows its assignment.
    fn all_serve(&self) -> bool {
        let Some(leading) = self.leading() else { return false };
        let catalog = leading.catalog();
        let version = catalog.version();
        let lives = |id: u32| {
            let known = catalog.server(id).is_some_and(|known| !known.dead);
            known
                && self
                    .servers
                    .iter()
                    .any(|server| server.is_up() && server.id() == id && server.serves(version))
        };
        catalog.tables().all(|table| table.tablets.iter().all(|tablet| lives(tablet.server)))
    }

    /// Returns the calls that read everything, write everything once more, and read it again.
    fn last_errands(&self) -> Vec<Errand> {
        let mut errands = Vec::new();
        for table in self.tables.iter().map(|table| table.id) {
            errands.extend(Errand::last(table, self.settings.work.keys));
        }
        errands
    }
}
