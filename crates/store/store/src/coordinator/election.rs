//! Leader election among several coordinators, as one of them sees it: a state machine without
//! clock, thread or network. Its driver calls [`Election::next`], carries out the action that it
//! returns, and reports the result before it calls `next` again.
//!
//! A *register* (etcd) names the leader. The coordinator that wrote it last leads; the revision of
//! that write is its *term*. A candidate writes the register on condition that no other coordinator
//! has written it since the candidate read it. The leader reads it every [`HEARTBEAT`]; a read that
//! still finds its own term lets it grant leases until [`LEADER_LEASE`] after it sent the read, by
//! its own clock. Followers ping the leader every [`PING`], and one of them takes over when the
//! leader has been silent for [`SILENCE`], or for longer if leaders have changed often.

use super::members::{DRIFT, LEASE};
use sprat_net::Nanos;
use std::collections::VecDeque;
use std::time::Duration;

/// Interval at which the leader reads the register to confirm that it still leads.
pub const HEARTBEAT: Duration = Duration::from_millis(500);

/// How long a leader may act as leader after it sent a read or claim that confirmed its term; by
/// its own clock one part in [`DRIFT`] less. This is longer than an election within etcd or a
/// restart of etcd takes.
pub const LEADER_LEASE: Duration = Duration::from_secs(3);

/// How long a leader may act as leader by its own clock, which may run fast.
pub(super) const OWN_LEASE: Duration = LEADER_LEASE
    .checked_sub(LEADER_LEASE.checked_div(DRIFT).expect("not zero"))
    .expect("a part of it");

/// Interval at which followers ping the leader.
pub const PING: Duration = Duration::from_millis(25);

/// How long the leader may be silent before a follower takes over, unless leaders have changed
/// often.
pub const SILENCE: Duration = Duration::from_millis(100);

/// How long a new leader may answer pings with "not leading" while it reads the metadata.
pub const SETTLE: Duration = Duration::from_secs(2);

/// If a follower was not run for longer than this (its process was suspended, say), it cannot
/// conclude that the leader was silent meanwhile.
const AWAY: Duration = Duration::from_millis(50);

/// Delay before another attempt after the register could not be read or written.
const RETRY: Duration = Duration::from_millis(100);

/// The number of changes of leader within [`CALM`] after which each further change doubles the
/// silence that a follower tolerates.
const CHANGES: usize = 2;
const CALM: Duration = Duration::from_secs(10);

/// The largest number of times that the tolerated silence is doubled: it is at most `SILENCE <<
/// MAX_DOUBLINGS`.
const MAX_DOUBLINGS: usize = 5;

/// How long after a takeover the new leader declares no server dead that may still hold a lease
/// from its predecessor. The predecessor may grant leases for [`LEADER_LEASE`], and the last of
/// these runs for [`LEASE`], by clocks that run apart by [`DRIFT`].
pub const TAKEOVER_GRACE: Duration = LEADER_LEASE
    .checked_add(LEASE)
    .expect("short")
    .checked_add(
        LEADER_LEASE.checked_add(LEASE).expect("short").checked_div(DRIFT).expect("not zero"),
    )
    .expect("short");

/// The register's content: which coordinator leads, and in which term.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LeaderRecord {
    /// The revision of the write, which is the leader's term.
    pub term: u64,
    /// The random number that the leader's process drew when it started.
    pub life: u64,
    /// The leader's locator, for clients, servers and other coordinators.
    pub locator: String,
}

impl LeaderRecord {
    /// Encodes the value that a leader writes. The term is not part of it: etcd assigns it.
    #[must_use]
    pub fn encode(life: u64, locator: &str) -> Vec<u8> {
        format!("{life:016x} {locator}").into_bytes()
    }

    /// Parses a value that was written at revision `term`; `None` if [`encode`](Self::encode)
    /// cannot have made it.
    #[must_use]
    pub fn parse(term: u64, value: &[u8]) -> Option<Self> {
        let (life, locator) = str::from_utf8(value).ok()?.split_once(' ')?;
        let life = u64::from_str_radix(life, 16).ok()?;
        (term > 0).then(|| Self { term, life, locator: locator.to_owned() })
    }
}

/// The next action for the driver of an [`Election`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ElectionAction {
    /// Read the register, then call [`Election::read`].
    Read,
    /// Write this coordinator's record if the register is still at term `over`, then call
    /// [`Election::claimed`].
    Claim {
        /// The term to replace; zero if the register must be empty.
        over: u64,
    },
    /// Ask this leader whether it still leads, waiting for at most [`SILENCE`], then call
    /// [`Election::pinged`].
    Ping {
        /// The leader's locator.
        locator: String,
    },
    /// Do nothing, and call [`Election::next`] again at this time at the latest.
    WaitUntil(Nanos),
}

/// A coordinator's reply to a ping.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PingReply {
    /// Whether the coordinator leads, as far as it knows.
    pub leads: bool,
    /// The coordinator's term; zero if the coordinator does not lead.
    pub term: u64,
}

#[derive(Clone, Debug)]
enum State {
    /// The leader is not known: the register has to be read.
    Looking,
    /// Another coordinator leads. It was found at `since` and last answered at `heard`.
    Following { leader: LeaderRecord, since: Nanos, heard: Nanos, ping_at: Nanos },
    /// This coordinator tries to replace the leader of term `over`.
    Claiming { over: u64 },
    /// This coordinator leads; a read or claim that it sent at `sent` confirmed that.
    Leading { term: u64, sent: Nanos },
}

/// One coordinator's part in the election of a leader.
///
/// It has no clock, thread or network. In a process a thread drives it; in the simulator the loop
/// of virtual time does. The driver repeats these steps: call [`next`](Self::next), carry out the
/// [`ElectionAction`], and report the result to [`read`](Self::read), [`claimed`](Self::claimed) or
/// [`pinged`](Self::pinged), with the times at which it sent the request and got the reply. Only
/// one action is under way at a time. An [`ElectionBridge`](super::ElectionBridge) passes the
/// values of [`term`](Self::term) and [`valid_until`](Self::valid_until) on to the coordinator's
/// node.
///
/// etcd refuses every change of the metadata that is not made in the latest term. A leader of an
/// earlier term, which does not know that it was deposed, stops at
/// [`valid_until`](Self::valid_until), if clocks run apart by no more than [`DRIFT`]. Until then it
/// answers from older metadata, unless it has to [confirm](Self::confirm) that it leads.
#[derive(Debug)]
pub struct Election {
    life: u64,
    locator: String,
    state: State,
    /// The next action must not begin before this time.
    not_before: Nanos,
    /// Whether the leader is to read the register at once.
    confirms: bool,
    /// When the driver last called the election.
    stepped: Nanos,
    /// Times of the latest changes of leader.
    changes: VecDeque<Nanos>,
    last_term: u64,
}

impl Election {
    /// Makes the state of a coordinator that others reach at `locator`. `life` is a random number
    /// by which the coordinator recognizes its own record in the register.
    #[must_use]
    pub fn new(life: u64, locator: String) -> Self {
        Self {
            life,
            locator,
            state: State::Looking,
            not_before: Nanos(0),
            confirms: false,
            stepped: Nanos(0),
            changes: VecDeque::new(),
            last_term: 0,
        }
    }

    /// Returns the life and locator to write in a [claim](ElectionAction::Claim).
    #[must_use]
    pub fn identity(&self) -> (u64, &str) {
        (self.life, &self.locator)
    }

    /// Returns the term in which this coordinator leads; `None` if it does not.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        match self.state {
            State::Leading { term, .. } => Some(term),
            _ => None,
        }
    }

    /// Returns the time until which this coordinator may act as leader, by its own clock; zero if
    /// it does not lead.
    #[must_use]
    pub fn valid_until(&self) -> Nanos {
        match self.state {
            State::Leading { sent, .. } => sent + OWN_LEASE,
            _ => Nanos(0),
        }
    }

    /// Returns the coordinator that this one follows, if it follows one.
    #[must_use]
    pub fn leader(&self) -> Option<&LeaderRecord> {
        match &self.state {
            State::Following { leader, .. } => Some(leader),
            _ => None,
        }
    }

    /// Returns the action to carry out now.
    pub fn next(&mut self, now: Nanos) -> ElectionAction {
        let away = now.since(self.stepped) > AWAY;
        self.stepped = now;
        if now < self.not_before {
            return ElectionAction::WaitUntil(self.not_before);
        }
        let tolerated = self.tolerated_silence(now);
        match &mut self.state {
            State::Looking => ElectionAction::Read,
            State::Claiming { over } => ElectionAction::Claim { over: *over },
            State::Leading { sent, .. } => match *sent + HEARTBEAT {
                due if due <= now || self.confirms => ElectionAction::Read,
                due => ElectionAction::WaitUntil(due),
            },
            State::Following { leader, heard, ping_at, .. } => {
                if away {
                    *heard = now;
                }
                if now.since(*heard) >= tolerated {
                    let over = leader.term;
                    self.state = State::Claiming { over };
                    return ElectionAction::Claim { over };
                }
                if *ping_at <= now {
                    ElectionAction::Ping { locator: leader.locator.clone() }
                } else {
                    ElectionAction::WaitUntil(*ping_at)
                }
            }
        }
    }

    /// Returns how long the leader may be silent: longer when leaders have changed often, so that
    /// coordinators that cannot keep up with [`SILENCE`] do not depose each other for ever.
    fn tolerated_silence(&self, now: Nanos) -> Duration {
        let recent = self.changes.iter().filter(|&&at| now.since(at) < CALM).count();
        SILENCE * (1 << recent.saturating_sub(CHANGES).min(MAX_DOUBLINGS))
    }

    /// Notes that a coordinator, this one or another, leads in `term`.
    fn note_term(&mut self, now: Nanos, term: u64) {
        if self.last_term != term {
            if self.last_term != 0 {
                self.changes.push_back(now);
            }
            while self.changes.len() > CHANGES + MAX_DOUBLINGS {
                self.changes.pop_front();
            }
            self.last_term = term;
        }
    }

    /// Reports a read of the register that was sent at `sent`. `found` is `None` if the read
    /// failed, and `Some(None)` if the register is empty because no coordinator ever led.
    pub fn read(&mut self, sent: Nanos, now: Nanos, found: Option<Option<LeaderRecord>>) {
        // The driver was waiting for the register, not suspended.
        self.stepped = now;
        let Some(found) = found else {
            self.not_before = now + RETRY;
            return;
        };
        self.not_before = now;
        self.confirms = false;
        match (found, &mut self.state) {
            (Some(leader), State::Leading { term, sent: confirmed }) if leader.term == *term => {
                *confirmed = sent
            }
            (None, _) => self.state = State::Claiming { over: 0 },
            // This coordinator wrote the record itself: in a claim whose outcome it did not get,
            // before it resigned, or before its process was restarted. No other coordinator leads.
            (Some(leader), _) if leader.life == self.life || leader.locator == self.locator => {
                self.note_term(now, leader.term);
                self.state = State::Claiming { over: leader.term };
            }
            (Some(leader), State::Following { leader: before, .. })
                if before.term == leader.term => {}
            (Some(leader), _) => {
                self.note_term(now, leader.term);
                self.state = State::Following { leader, since: now, heard: now, ping_at: now };
            }
        }
    }

    /// Reports a claim that was sent at `sent`. `outcome` is the new term; `Some(None)` if another
    /// coordinator wrote the register first; `None` if it is not known whether the claim was
    /// written.
    pub fn claimed(&mut self, sent: Nanos, now: Nanos, outcome: Option<Option<u64>>) {
        self.stepped = now;
        match outcome {
            Some(Some(term)) => {
                self.note_term(now, term);
                self.state = State::Leading { term, sent };
            }
            Some(None) => self.state = State::Looking,
            None => {
                self.state = State::Looking;
                self.not_before = now + RETRY;
            }
        }
    }

    /// Reports a ping of the leader. `reply` is `None` if the leader has not answered in time.
    pub fn pinged(&mut self, now: Nanos, reply: Option<PingReply>) {
        self.stepped = now;
        let State::Following { leader, since, heard, ping_at } = &mut self.state else { return };
        *ping_at = now + PING;
        match reply {
            Some(PingReply { leads: true, term }) if term == leader.term => *heard = now,
            Some(PingReply { leads: true, .. }) => self.state = State::Looking,
            // Within SETTLE the new leader may still be reading the metadata. Later its lease has
            // run out because it cannot reach etcd, and another coordinator perhaps can.
            Some(PingReply { leads: false, .. }) if now.since(*since) < SETTLE => *heard = now,
            Some(PingReply { leads: false, .. }) | None => {}
        }
    }

    /// Makes a leader read the register at once, to find out whether it still leads.
    pub fn confirm(&mut self) {
        self.confirms = true;
    }

    /// Reports that this coordinator gave up `term` by itself: it could not read the metadata, or
    /// does not know whether a change was made. It may lead again in a new term, which fences a
    /// change that is still on its way.
    pub fn resigned(&mut self, now: Nanos, term: u64) {
        if self.term() == Some(term) {
            self.state = State::Looking;
            self.not_before = now;
        }
    }
}
