//! Predicts whether a write can be acknowledged, and explains why not.
//!
//! A log with N replicas needs N + 1 servers. With fewer, nothing becomes durable however long a
//! client waits. So a master that has lacked servers for [`FEW_FOR`] refuses changes, and does not
//! let its clients run into their timeouts. Nothing becomes durable either while too many of the
//! servers take no replicas because their disks are full or have failed. A backup shows this only
//! when something is sent to it, so refusals count only once a write has waited for [`STUCK_FOR`]
//! without progress.

use super::Replicator;
use sprat_log::Log;
use sprat_net::Nanos;
use std::time::Duration;

/// How long there may be too few servers before changes are refused. During a shorter absence, for
/// example while a server restarts or several start together, clients wait.
pub const FEW_FOR: Duration = Duration::from_secs(2);

/// How long a write may wait for servers that refuse it before changes are refused.
pub const STUCK_FOR: Duration = Duration::from_secs(5);

/// Whether a write can be acknowledged.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Outlook {
    /// The master accepts changes. As far as is known it can acknowledge them, or writes have
    /// waited for less than [`STUCK_FOR`].
    #[default]
    Good,
    /// The master cannot acknowledge changes now, but perhaps in a moment: the client should retry.
    Waiting,
    /// The master cannot acknowledge changes before servers return, or an operator adds servers or
    /// makes room on the existing ones.
    Bleak,
}

/// The times since which writes cannot be acknowledged.
#[derive(Default)]
pub(super) struct OutlookState {
    /// The time since which there are too few servers; `None` if there are enough.
    few: Option<Nanos>,
    /// Set while writes wait for servers that are missing or refuse replicas: the log's durable
    /// position, and the time since which it has not grown.
    stuck: Option<(u64, Nanos)>,
    outlook: Outlook,
}

impl OutlookState {
    /// Returns the time at which the outlook becomes bleak unless something changes.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        let few = self.few.map(|since| since + FEW_FOR);
        let stuck = self.stuck.map(|(_, since)| since + STUCK_FOR);
        few.into_iter().chain(stuck).min().filter(|_| self.outlook != Outlook::Bleak)
    }
}

/// Numbers of servers that a log needs and has, its own server included.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ServerCounts {
    /// Servers that the log needs: one more than its replicas.
    pub needed: usize,
    /// Servers that the log has.
    pub present: usize,
    /// Servers among `present` whose last write of a replica failed: the server refused it, or did
    /// not answer in time.
    pub refusing: usize,
}

impl Replicator {
    /// Updates the outlook for the present state of the log and of the servers.
    pub fn update_outlook(&mut self, now: Nanos, log: &Log) {
        let is_few = self.peers.len() < self.copies;
        let durable = log.durable_position();
        let is_stuck = durable < log.position() && self.lacks_backups();
        let OutlookState { few, stuck, outlook } = &mut self.outlook_state;
        *few = is_few.then(|| few.unwrap_or(now));
        *stuck = is_stuck
            .then(|| stuck.filter(|&(before, _)| before == durable).unwrap_or((durable, now)));
        let is_bleak = few.is_some_and(|since| since + FEW_FOR <= now)
            || stuck.is_some_and(|(_, since)| since + STUCK_FOR <= now);
        *outlook = match (is_bleak, is_few) {
            (true, _) => Outlook::Bleak,
            (false, true) => Outlook::Waiting,
            (false, false) => Outlook::Good,
        };
    }

    /// Returns whether a write can be acknowledged, as of the last
    /// [`update_outlook`](Self::update_outlook).
    #[must_use]
    pub fn outlook(&self) -> Outlook {
        self.outlook_state.outlook
    }

    /// Counts the servers that the log needs and has.
    #[must_use]
    pub fn servers(&self) -> ServerCounts {
        ServerCounts {
            needed: self.copies + 1,
            present: self.peers.len() + 1,
            refusing: self.peers.refusing_count(),
        }
    }

    fn lacks_backups(&self) -> bool {
        let ServerCounts { needed, present, refusing } = self.servers();
        present - refusing < needed
    }

    /// Describes for an operator why nothing can be acknowledged: how many servers are needed, how
    /// many there are, how many of them take no replicas, and the reason of one.
    #[must_use]
    pub fn shortage(&self) -> String {
        let ServerCounts { needed, present: here, refusing } = self.servers();
        let servers = format!("{needed} servers needed (-r {}), {here} here", self.copies);
        let mut names =
            self.peers.refusing().map(|(server, why)| format!("server {server}: {why}"));
        match names.next() {
            None => servers,
            Some(first) => {
                let more = if refusing > 1 {
                    format!(", and {} more", refusing - 1)
                } else {
                    String::new()
                };
                format!("{servers}, {refusing} of them without room for replicas ({first}{more})")
            }
        }
    }
}
