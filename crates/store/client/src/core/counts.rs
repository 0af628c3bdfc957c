//! Counts of whole tables: a request to every server of the table, answered as one.

use super::{Core, Destination, OwnAnswer};
use crate::calls::{ATTEMPT_TIMEOUT, AnswerSink, LOCATE_INTERVAL};
use crate::error::Error;
use crate::types::TableStats;
use sprat_net::Nanos;
use sprat_wire::op::{Answer, Request, Status};

/// The largest number of counts in progress in one client; a further count fails with
/// `Error::TooManyPending`.
pub(super) const MAX_COUNTS: usize = 64;

/// Tag bit of the requests of counts; the other bits are the number of a round. In a round the
/// client asks every server of a table once.
pub(super) const COUNT_TAG: u64 = 1 << 62;

/// A count of a table in progress.
///
/// The client first asks the coordinator where the tablets are, because its own knowledge may be
/// older than a move: a server that gave a part of its tablet away counts the rest and reports no
/// error. Then the client asks each server of the table once. When a server does not answer, or no
/// longer has a tablet of the table, the count begins again.
pub(super) struct Count {
    tag: u64,
    table: u32,
    begun: Nanos,
    deadline: Nanos,
    step: Step,
    obstacle: Obstacle,
}

enum Step {
    /// Waits for the coordinator's answer where the tablets are. `sent`: whether the client has
    /// asked since this step began. If no such question is under way, the client asks at `due`.
    Locate { sent: bool, due: Nanos },
    /// Waits for `missing` answers to the requests of a round.
    Ask { round: u64, missing: usize, sum: TableStats },
}

/// The last reason for a count to begin again, for its error.
enum Obstacle {
    /// This coordinator or server did not answer.
    Silent(String),
    /// Some tablet had no server.
    Unserved,
}

impl Count {
    fn locate_again(&mut self, now: Nanos, obstacle: Obstacle) {
        self.step = Step::Locate { sent: false, due: now + LOCATE_INTERVAL };
        self.obstacle = obstacle;
    }

    /// Returns the error of a count whose deadline has passed.
    fn timeout(&self, now: Nanos) -> Error {
        let waited = now.since(self.begun);
        match &self.obstacle {
            Obstacle::Silent(server) => Error::Timeout { server: server.clone(), waited },
            Obstacle::Unserved => Error::Recovering { table: self.table, waited },
        }
    }
}

impl Core {
    /// Begins a count. Its answer has the form of a server's answer to [`Request::TableStats`], and
    /// contains the sums over all servers.
    pub(super) fn begin_count(
        &mut self,
        now: Nanos,
        tag: u64,
        table: u32,
        deadline: Nanos,
    ) -> Result<(), Error> {
        if self.tables.get(table).is_none() {
            return Err(Error::TableDropped(table));
        }
        if self.counts.len() >= MAX_COUNTS {
            return Err(Error::TooManyPending(MAX_COUNTS));
        }
        let step = Step::Locate { sent: false, due: now };
        let obstacle = Obstacle::Silent(self.coordinator().peer.to_string());
        self.counts.push(Count { tag, table, begun: now, deadline, step, obstacle });
        self.locate_counted(now);
        Ok(())
    }

    /// Ends the counts whose deadline has passed, and asks the coordinator for the tables of those
    /// that begin again.
    pub(super) fn poll_counts(&mut self, now: Nanos, sink: AnswerSink<'_>) {
        for index in (0..self.counts.len()).rev() {
            let count = &mut self.counts[index];
            if count.deadline <= now {
                let count = self.counts.swap_remove(index);
                sink(count.tag, Err(count.timeout(now)));
            }
        }
        self.locate_counted(now);
        // Otherwise the caller could sleep before the requests of this poll leave.
        self.flush();
    }

    fn locate_counted(&mut self, now: Nanos) {
        for index in 0..self.counts.len() {
            let count = &mut self.counts[index];
            if let Step::Locate { sent: false, due } = &mut count.step
                && *due <= now
                && !self.locating.contains(&count.table)
            {
                *due = now + LOCATE_INTERVAL; // if the question cannot be sent
                let table = count.table;
                self.send_locate(now, table);
            }
        }
    }

    /// Notes that the client asks the coordinator for a table.
    pub(super) fn count_locates(&mut self, table: u32) {
        for count in self.counts.iter_mut().filter(|count| count.table == table) {
            if let Step::Locate { sent, .. } = &mut count.step {
                *sent = true;
            }
        }
    }

    /// Continues the counts that waited for the location of a table. `status` is that of the
    /// coordinator's answer, from which the client has already learned the location; `None` when
    /// there was no answer.
    pub(super) fn count_located(
        &mut self,
        now: Nanos,
        table: u32,
        status: Option<Status>,
        sink: AnswerSink<'_>,
    ) {
        for index in (0..self.counts.len()).rev() {
            let count = &self.counts[index];
            if count.table != table || !matches!(count.step, Step::Locate { sent: true, .. }) {
                continue;
            }
            match status {
                Some(Status::Ok) => self.ask_servers(now, index),
                Some(Status::NoSuchTable) => {
                    let count = self.counts.swap_remove(index);
                    sink(count.tag, Err(Error::TableDropped(table)));
                }
                _ => {
                    let coordinator = self.coordinator().peer.to_string();
                    self.counts[index].locate_again(now, Obstacle::Silent(coordinator));
                }
            }
        }
    }

    /// Asks every server of a located table.
    fn ask_servers(&mut self, now: Nanos, index: usize) {
        let Count { table, deadline, .. } = self.counts[index];
        let servers = self.tables.get(table).and_then(|place| place.servers_of());
        let Some(servers) = servers else {
            return self.counts[index].locate_again(now, Obstacle::Unserved);
        };
        self.rounds += 1;
        // This is long enough for a running server. The tablets of a failed server move to others.
        let deadline = deadline.min(now + ATTEMPT_TIMEOUT);
        let tag = COUNT_TAG | self.rounds;
        for &server in &servers {
            let request = Request::TableStats { table };
            if self.begin(now, tag, Destination::Server(server), &request, deadline).is_err() {
                // Too many operations in progress. Answers to this round's requests are ignored.
                return self.counts[index]
                    .locate_again(now, Obstacle::Silent(server.peer.to_string()));
            }
        }
        let (round, missing, sum) = (self.rounds, servers.len(), TableStats::default());
        self.counts[index].step = Step::Ask { round, missing, sum };
    }

    /// Takes a server's answer to a count.
    pub(super) fn count_answered(
        &mut self,
        now: Nanos,
        answered: u64,
        answer: Result<OwnAnswer, Error>,
        sink: AnswerSink<'_>,
    ) {
        let round_of = |count: &Count| match count.step {
            Step::Ask { round, .. } => Some(round),
            Step::Locate { .. } => None,
        };
        let asks = |count: &Count| round_of(count) == Some(answered & !COUNT_TAG);
        // None when the count has ended, or begun again, before the last of its servers answered.
        let Some(index) = self.counts.iter().position(asks) else { return };
        let count = &mut self.counts[index];
        let Step::Ask { missing, sum, .. } = &mut count.step else { unreachable!("found above") };
        let answer = match answer {
            // A server gives this answer while its tablet moves to another server.
            Ok(answer) if answer.status == Status::UnknownTable => {
                return count.locate_again(now, Obstacle::Unserved);
            }
            Err(Error::Timeout { server, .. }) => {
                return count.locate_again(now, Obstacle::Silent(server));
            }
            Ok(answer) => answer,
            Err(error) => {
                let count = self.counts.swap_remove(index);
                return sink(count.tag, Err(error));
            }
        };
        let stats = TableStats::of(&answer.answer()).filter(|_| answer.status == Status::Ok);
        let Some(stats) = stats else {
            // A refusal or a malformed answer: the caller gets it as the answer to the whole count.
            let count = self.counts.swap_remove(index);
            return sink(count.tag, Ok(answer.answer()));
        };
        sum.add(&stats);
        *missing -= 1;
        if *missing == 0 {
            let (objects, mut body) = (sum.objects, Vec::new());
            sum.push_to(&mut body);
            let count = self.counts.swap_remove(index);
            let (status, body) = (Status::Ok, &body[..]);
            sink(
                count.tag,
                Ok(Answer { status, more: false, count: 0, ttl_high: 0, number: objects, body }),
            );
        }
    }

    /// Returns the time at which a count has something to do although nothing arrives.
    pub(super) fn next_count_deadline(&self) -> Nanos {
        let due = self.counts.iter().map(|count| match count.step {
            Step::Locate { sent: false, due } => due.min(count.deadline),
            _ => count.deadline,
        });
        due.min().unwrap_or(Nanos::NEVER)
    }
}
