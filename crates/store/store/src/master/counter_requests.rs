//! Requests for a master's counters. They wait until the node reports the network's counters, later
//! in the same loop iteration: the master itself knows nothing of networks.

use super::body::{HeldBodies, MasterBody};
use crate::answers::answer;
use sprat_net::Figure;
use sprat_rpc::{Outcome, Repeat, RequestId};
use sprat_wire::op::{Status, push_counter};
use std::sync::mpsc::Sender;

/// The largest number of requests that wait in one iteration. The master asks further ones to
/// retry.
pub(super) const MAX_REQUESTS: usize = 64;

/// The waiting requests, and the replies that are ready.
#[derive(Default)]
pub(super) struct CounterRequests {
    requests: Vec<RequestId>,
    commands: Vec<Sender<Vec<Figure>>>,
    answers: Vec<(RequestId, Outcome<MasterBody>)>,
}

impl CounterRequests {
    /// Queues a request; returns false when there are too many.
    pub(super) fn add_request(&mut self, id: RequestId) -> bool {
        let room = self.requests.len() < MAX_REQUESTS;
        if room {
            self.requests.push(id);
        }
        room
    }

    /// Queues a reader in this process. The inbox bounds the number of readers.
    pub(super) fn add_command(&mut self, reply: Sender<Vec<Figure>>) {
        self.commands.push(reply);
    }

    #[inline]
    pub(super) fn are_waiting(&self) -> bool {
        !(self.requests.is_empty() && self.commands.is_empty())
    }

    /// Sends the figures to all readers in this process, and makes the replies to all requests.
    /// `version` is the version of the tablet map that the master serves; `retry` is the delay, in
    /// microseconds, for requests for which no buffer is left.
    pub(super) fn answer_all(
        &mut self,
        figures: &[Figure],
        version: u64,
        held: &mut HeldBodies,
        retry: u32,
    ) {
        for reply in self.commands.drain(..) {
            let _ = reply.send(figures.to_vec()); // the reader may have given up
        }
        for id in self.requests.drain(..) {
            let fill = |out: &mut Vec<u8>| {
                figures.iter().for_each(|figure| push_counter(out, &figure.name, figure.value))
            };
            let outcome = match held.made.make(id.session(), fill) {
                Some(body) => {
                    let reply = answer(Status::Ok, false, 0, version, Repeat::Retain);
                    Outcome::Reply(reply.with_body(MasterBody::Made(body)))
                }
                None => Outcome::Retry(retry),
            };
            self.answers.push((id, outcome));
        }
    }

    /// Takes a reply that is ready to leave.
    #[inline]
    pub(super) fn take(&mut self) -> Option<(RequestId, Outcome<MasterBody>)> {
        self.answers.pop()
    }
}
