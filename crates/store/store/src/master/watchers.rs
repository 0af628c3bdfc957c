//! Those who ask for a master's counters. They wait, for the rest of a turn, until the node tells
//! what the network has counted: the master knows nothing of networks.

use super::body::{Body, Held};
use crate::answers::answer;
use sprat_net::Figure;
use sprat_rpc::{Outcome, Repeat, RequestId};
use sprat_wire::op::{Status, push_counter};
use std::sync::mpsc::Sender;

/// Requests that wait in a turn; more are turned away.
pub(super) const MAX_WATCHERS: usize = 64;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Watchers {
    requests: Vec<RequestId>,
    commands: Vec<Sender<Vec<Figure>>>,
    answers: Vec<(RequestId, Outcome<Body>)>,
}

impl Watchers {
    /// Has a request wait; false when there are too many.
    pub(super) fn ask(&mut self, id: RequestId) -> bool {
        let room = self.requests.len() < MAX_WATCHERS;
        if room {
            self.requests.push(id);
        }
        room
    }

    /// Has somebody in this process wait. There are no more of them than the inbox takes.
    pub(super) fn command(&mut self, reply: Sender<Vec<Figure>>) {
        self.commands.push(reply);
    }

    #[inline]
    pub(super) fn are_waiting(&self) -> bool {
        !(self.requests.is_empty() && self.commands.is_empty())
    }

    /// Answers all. `version` is the map's that the master serves; `retry` asks those to come later
    /// for whom there is no room.
    pub(super) fn tell(&mut self, figures: &[Figure], version: u64, held: &mut Held, retry: u32) {
        for reply in self.commands.drain(..) {
            let _ = reply.send(figures.to_vec()); // who asked may have given up
        }
        for id in self.requests.drain(..) {
            let fill = |out: &mut Vec<u8>| {
                figures.iter().for_each(|figure| push_counter(out, &figure.name, figure.value))
            };
            let outcome = match held.made.make(id.session(), fill) {
                Some(body) => {
                    let reply = answer(Status::Ok, false, 0, version, Repeat::Retain);
                    Outcome::Reply(reply.with_body(Body::Made(body)))
                }
                None => Outcome::Retry(retry),
            };
            self.answers.push((id, outcome));
        }
    }

    /// An answer that may leave.
    #[inline]
    pub(super) fn take(&mut self) -> Option<(RequestId, Outcome<Body>)> {
        self.answers.pop()
    }
}
