//! Which of several coordinators leads, as one of them sees it: a state machine without clock,
//! thread or network. Whoever owns those does what [`Election::next`] says, one thing at a time,
//! and tells it what came of it.
//!
//! A *register* (etcd) holds who leads. To lead is to have been the last to write it: the revision
//! of that write is the leader's *term*. Who wants to lead writes it on condition that it was not
//! written since he looked. A leader reads it every [`HEARTBEAT`]; that it was still his when he
//! asked lets him grant leases until [`VALID`] after that, by his own clock. Those who do not lead
//! ask the leader whether he is there every [`PING`], and take his place when he has been silent
//! for [`SILENCE`].

use super::members::{DRIFT, LEASE};
use sprat_net::Nanos;
use std::collections::VecDeque;
use std::time::Duration;

/// How often a leader looks whether he still is the one.
pub const HEARTBEAT: Duration = Duration::from_millis(500);

/// For how long he may act as if he were, from when he asked: long enough for etcd to choose a new
/// leader of its own, or to be restarted.
pub const VALID: Duration = Duration::from_secs(3);

/// How often the others ask him whether he is there.
pub const PING: Duration = Duration::from_millis(25);

/// After which silence one of them takes his place.
pub const SILENCE: Duration = Duration::from_millis(100);

/// How long one who has just become the leader may say that he does not lead yet: he reads the
/// metadata.
pub const SETTLE: Duration = Duration::from_secs(2);

/// A coordinator that was not there to listen for so long has not heard a silence.
const AWAY: Duration = Duration::from_millis(50);

/// How long to wait after the register could not be read or written.
const RETRY: Duration = Duration::from_millis(100);

/// Leaders may change this often within [`CALM`] before those who follow become more patient, each
/// time twice as much.
const CHANGES: usize = 2;
const CALM: Duration = Duration::from_secs(10);

/// The most patient that they become: `SILENCE << MOST_PATIENCE`.
const MOST_PATIENCE: usize = 5;

/// Servers may not be declared dead before so long after a takeover, unless they are known to
/// listen to no other leader: until then the one before may have granted leases, and until then
/// these last.
pub const BURIAL_WAIT: Duration = VALID
    .checked_add(LEASE)
    .expect("short")
    .checked_add(VALID.checked_add(LEASE).expect("short").checked_div(DRIFT).expect("not zero"))
    .expect("short");

/// What the register holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Holder {
    /// The revision in which it was written.
    pub term: u64,
    /// The number that the leader drew when it started.
    pub life: u64,
    /// Where it is reached.
    pub locator: String,
}

impl Holder {
    /// What is written of a leader.
    #[must_use]
    pub fn encode(life: u64, locator: &str) -> Vec<u8> {
        format!("{life:016x} {locator}").into_bytes()
    }

    /// What was written; `None` if that is nothing that [`encode`](Self::encode) makes.
    #[must_use]
    pub fn parse(term: u64, value: &[u8]) -> Option<Self> {
        let (life, locator) = str::from_utf8(value).ok()?.split_once(' ')?;
        let life = u64::from_str_radix(life, 16).ok()?;
        (term > 0).then(|| Self { term, life, locator: locator.to_owned() })
    }
}

/// What is to be done next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Duty {
    /// Read the register, and tell [`Election::read`].
    Read,
    /// Write it, if it was not written since this term (zero: if it is empty), and tell
    /// [`Election::claimed`].
    Claim {
        /// The term.
        over: u64,
    },
    /// Ask this leader whether he is there, within [`SILENCE`], and tell [`Election::pinged`].
    Ping {
        /// Where he is reached.
        locator: String,
    },
    /// Nothing, until then at the latest.
    Rest(Nanos),
}

/// What a leader says of himself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pong {
    /// Whether he leads, as far as he knows.
    pub leads: bool,
    /// His term; zero if he does not lead.
    pub term: u64,
}

#[derive(Clone, Debug)]
enum State {
    /// Who leads is not known.
    Looking,
    /// Somebody does.
    Following { holder: Holder, since: Nanos, heard: Nanos, ping_at: Nanos },
    /// Somebody is to be replaced.
    Claiming { over: u64 },
    /// This one does; it knew that when it asked at `sent`.
    Leading { term: u64, sent: Nanos },
}

/// One coordinator's view.
#[derive(Debug)]
pub struct Election {
    life: u64,
    locator: String,
    state: State,
    /// Nothing is to be done before.
    not_before: Nanos,
    /// When this was last asked what to do.
    stepped: Nanos,
    /// When leaders changed lately.
    changes: VecDeque<Nanos>,
    last_term: u64,
}

impl Election {
    /// A coordinator that others reach at `locator`, and that has drawn `life` so that it knows
    /// what it has written itself.
    #[must_use]
    pub fn new(life: u64, locator: String) -> Self {
        Self {
            life,
            locator,
            state: State::Looking,
            not_before: Nanos(0),
            stepped: Nanos(0),
            changes: VecDeque::new(),
            last_term: 0,
        }
    }

    /// What it writes when it [claims](Duty::Claim): its life and its locator.
    #[must_use]
    pub fn identity(&self) -> (u64, &str) {
        (self.life, &self.locator)
    }

    /// The term in which it leads, as far as it knows.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        match self.state {
            State::Leading { term, .. } => Some(term),
            _ => None,
        }
    }

    /// Until when it may act as leader, by its own clock; zero if it does not lead.
    #[must_use]
    pub fn valid_until(&self) -> Nanos {
        match self.state {
            State::Leading { sent, .. } => sent + (VALID - VALID / DRIFT),
            _ => Nanos(0),
        }
    }

    /// Who leads, if that is known and another.
    #[must_use]
    pub fn leader(&self) -> Option<&Holder> {
        match &self.state {
            State::Following { holder, .. } => Some(holder),
            _ => None,
        }
    }

    /// What to do now.
    pub fn next(&mut self, now: Nanos) -> Duty {
        let away = now.since(self.stepped) > AWAY;
        self.stepped = now;
        if now < self.not_before {
            return Duty::Rest(self.not_before);
        }
        let patience = self.patience(now);
        match &mut self.state {
            State::Looking => Duty::Read,
            State::Claiming { over } => Duty::Claim { over: *over },
            State::Leading { sent, .. } => match *sent + HEARTBEAT {
                due if due <= now => Duty::Read,
                due => Duty::Rest(due),
            },
            State::Following { holder, heard, ping_at, .. } => {
                if away {
                    *heard = now;
                }
                if now.since(*heard) >= patience {
                    let over = holder.term;
                    self.state = State::Claiming { over };
                    return Duty::Claim { over };
                }
                if *ping_at <= now {
                    Duty::Ping { locator: holder.locator.clone() }
                } else {
                    Duty::Rest(*ping_at)
                }
            }
        }
    }

    /// For how long a leader may be silent.
    fn patience(&self, now: Nanos) -> Duration {
        let lately = self.changes.iter().filter(|&&at| now.since(at) < CALM).count();
        SILENCE * (1 << lately.saturating_sub(CHANGES).min(MOST_PATIENCE))
    }

    /// Somebody else leads, or this one does anew.
    fn changed(&mut self, now: Nanos, term: u64) {
        if self.last_term != term {
            if self.last_term != 0 {
                self.changes.push_back(now);
            }
            while self.changes.len() > CHANGES + MOST_PATIENCE {
                self.changes.pop_front();
            }
            self.last_term = term;
        }
    }

    /// The register was read, asked at `sent`; `None` if it could not be, or `Some(None)` if nobody
    /// ever led.
    pub fn read(&mut self, sent: Nanos, now: Nanos, found: Option<Option<Holder>>) {
        // A look at the register is no time away.
        self.stepped = now;
        let Some(found) = found else {
            self.not_before = now + RETRY;
            return;
        };
        self.not_before = now;
        match (found, &mut self.state) {
            (Some(holder), State::Leading { term, sent: confirmed }) if holder.term == *term => {
                *confirmed = sent
            }
            (None, _) => self.state = State::Claiming { over: 0 },
            // Written by this one, in a claim of unknown end or before it resigned, or by an
            // earlier life of its: nobody else is there.
            (Some(holder), _) if holder.life == self.life || holder.locator == self.locator => {
                self.changed(now, holder.term);
                self.state = State::Claiming { over: holder.term };
            }
            (Some(holder), State::Following { holder: before, .. })
                if before.term == holder.term => {}
            (Some(holder), _) => {
                self.changed(now, holder.term);
                self.state = State::Following { holder, since: now, heard: now, ping_at: now };
            }
        }
    }

    /// A claim has ended, made at `sent`: in this term; or, `Some(None)`, somebody was first; or,
    /// `None`, nobody knows how.
    pub fn claimed(&mut self, sent: Nanos, now: Nanos, outcome: Option<Option<u64>>) {
        self.stepped = now;
        match outcome {
            Some(Some(term)) => {
                self.changed(now, term);
                self.state = State::Leading { term, sent };
            }
            Some(None) => self.state = State::Looking,
            None => {
                self.state = State::Looking;
                self.not_before = now + RETRY;
            }
        }
    }

    /// The leader has answered, or, with `None`, has not.
    pub fn pinged(&mut self, now: Nanos, pong: Option<Pong>) {
        self.stepped = now;
        let State::Following { holder, since, heard, ping_at } = &mut self.state else { return };
        *ping_at = now + PING;
        match pong {
            Some(Pong { leads: true, term }) if term == holder.term => *heard = now,
            Some(Pong { leads: true, .. }) => self.state = State::Looking,
            // It reads the metadata; or it has not heard from etcd for long, and another may have
            // more luck.
            Some(Pong { leads: false, .. }) if now.since(*since) < SETTLE => *heard = now,
            Some(Pong { leads: false, .. }) | None => {}
        }
    }

    /// This coordinator does not lead in this term any more, of its own accord: it could not read
    /// the metadata, or does not know what became of a change. It may lead again in another
    /// term, which fences what it had on its way.
    pub fn resigned(&mut self, now: Nanos, term: u64) {
        if self.term() == Some(term) {
            self.state = State::Looking;
            self.not_before = now;
        }
    }
}
