//! Whether what is written now can be acknowledged, and why not.
//!
//! A log with N replicas needs N + 1 servers. With fewer, nothing becomes durable however long a
//! client waits, so a master that has lacked servers for [`FEW_FOR`] says so instead of letting its
//! clients run into their timeouts. Neither does anything become durable while the servers that
//! there are take no replicas: their disks are full, or have failed. A backup's refusal is known
//! only by trying, so that counts when something has waited for [`STUCK_FOR`] without progress.

use super::Replicator;
use sprat_log::Log;
use sprat_net::Nanos;
use std::time::Duration;

/// How long servers may be too few before changes are refused for it. Shorter absences are waited
/// for: a server that restarts, or one of several that start together.
pub const FEW_FOR: Duration = Duration::from_secs(2);

/// How long what was written may wait for servers that refuse it before that is reported.
pub const STUCK_FOR: Duration = Duration::from_secs(5);

/// Whether what is written now will be acknowledged.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Outlook {
    /// As far as is known it will.
    #[default]
    Good,
    /// Not now, but perhaps in a moment: ask again.
    Waiting,
    /// Not before somebody does something: add servers, or give those that there are room.
    Bleak,
}

/// Since when something is amiss.
#[derive(Default)]
pub(super) struct Lookout {
    /// Since when there are fewer servers than are needed.
    few: Option<Nanos>,
    /// Up to where the log was durable when something began to wait, and when that was.
    stuck: Option<(u64, Nanos)>,
    outlook: Outlook,
}

impl Lookout {
    /// When the outlook becomes bleak if nothing changes.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        let few = self.few.map(|since| since + FEW_FOR);
        let stuck = self.stuck.map(|(_, since)| since + STUCK_FOR);
        few.into_iter().chain(stuck).min().filter(|_| self.outlook != Outlook::Bleak)
    }
}

impl Replicator {
    /// Takes note of how the log stands.
    pub fn look_out(&mut self, now: Nanos, log: &Log) {
        let is_few = self.peers.len() < self.copies;
        let durable = log.durable_position();
        let is_stuck = durable < log.position() && self.lacks_willing();
        let Lookout { few, stuck, outlook } = &mut self.lookout;
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

    /// Whether what is written now will be acknowledged, as of the last
    /// [`look_out`](Self::look_out).
    #[must_use]
    pub fn outlook(&self) -> Outlook {
        self.lookout.outlook
    }

    /// Servers that the log needs, its own included; those that there are; and of these, those that
    /// took no replica when last asked.
    #[must_use]
    pub fn servers(&self) -> (usize, usize, usize) {
        (self.copies + 1, self.peers.len() + 1, self.peers.refuse())
    }

    fn lacks_willing(&self) -> bool {
        let (needed, here, refusing) = self.servers();
        here - refusing < needed
    }

    /// Why nothing can be acknowledged, for people: how many servers are needed, how many there
    /// are, and which take no replicas.
    #[must_use]
    pub fn shortage(&self) -> String {
        let (needed, here, refusing) = self.servers();
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
