//! One flow on one line: which stamps it leaves, and which it answers.

use super::probe::{Probe, probe};
use super::{Key, RoundTrips, Stamps, hash};
use crate::frame::{Flow, Packet};
use crate::time::Time;
use std::time::Duration;

/// Least time between two stamps of a flow: what the time stamps of most senders tell apart. Bounds
/// what a flow takes of the table.
const GAP: Duration = Duration::from_millis(1);

/// What numbers are of, so that equal ones of two kinds are different keys.
const OF_CLOCK: u64 = 1 << 32;
const OF_SEQUENCE: u64 = 2 << 32;
const OF_ECHO: u64 = 3 << 32;

/// See the module.
#[derive(Debug)]
pub(crate) struct Tracker {
    /// Hashes of the flow, and of the one that goes the other way.
    own: u64,
    other: u64,
    /// The newest of its clock, or of its sequence numbers, that was seen; and when a stamp was
    /// left last.
    newest: Option<u32>,
    stamped: Option<Time>,
    /// By sequence numbers: the stamp that was left last, until something before it is sent again.
    pending: Option<u32>,
    /// The last echo, or acknowledgement.
    echoed: Option<u32>,
    /// When it was heard of last.
    heard: Time,
}

impl Tracker {
    pub(crate) fn new(flow: &Flow) -> Self {
        let (own, other) = (hash(flow), hash(&flow.reversed()));
        Self {
            own,
            other,
            newest: None,
            stamped: None,
            pending: None,
            echoed: None,
            heard: Time::ZERO,
        }
    }

    /// Looks at a packet of the flow that came now.
    pub(crate) fn look(
        &mut self,
        packet: &Packet,
        now: Time,
        stamps: &Stamps,
        told: &mut RoundTrips,
    ) {
        let Some(probe) = probe(packet) else { return };
        let silence = now.since(std::mem::replace(&mut self.heard, now));
        match probe {
            Probe::Stamped { value, echo, payload } => {
                if self.is_newer(value) && self.may_stamp(now) {
                    stamps.leave(Key::new(self.own, OF_CLOCK | u64::from(value)), payload, now);
                }
                if let Some(echo) = echo
                    && self.echoed.replace(echo) != Some(echo)
                {
                    self.answer(
                        Key::new(self.other, OF_CLOCK | u64::from(echo)),
                        now,
                        silence,
                        stamps,
                        told,
                    );
                }
            }
            Probe::Plain { end, ack } => {
                if let Some(end) = end {
                    self.sequence(end, now, stamps);
                }
                if let Some(ack) = ack
                    && self.echoed.replace(ack) != Some(ack)
                {
                    self.answer(
                        Key::new(self.other, OF_SEQUENCE | u64::from(ack)),
                        now,
                        silence,
                        stamps,
                        told,
                    );
                }
            }
            Probe::Request(number) => {
                if self.may_stamp(now) {
                    stamps.leave(Key::new(self.own, OF_ECHO | u64::from(number)), true, now);
                }
            }
            Probe::Reply(number) => {
                self.answer(
                    Key::new(self.other, OF_ECHO | u64::from(number)),
                    now,
                    silence,
                    stamps,
                    told,
                );
            }
        }
    }

    /// What is sent twice has two answers that look the same: neither counts (Karn and Partridge,
    /// 1987).
    fn sequence(&mut self, end: u32, now: Time, stamps: &Stamps) {
        if !self.is_newer(end) {
            if let Some(pending) = self.pending.take() {
                stamps.forget(Key::new(self.own, OF_SEQUENCE | u64::from(pending)));
            }
        } else if self.may_stamp(now) {
            self.pending = Some(end);
            stamps.leave(Key::new(self.own, OF_SEQUENCE | u64::from(end)), true, now);
        }
    }

    fn answer(
        &mut self,
        key: Key,
        now: Time,
        silence: Duration,
        stamps: &Stamps,
        told: &mut RoundTrips,
    ) {
        let Some((half, payload)) = stamps.take(key, now) else { return };
        // An acknowledgement without payload is not answered until there is something to say. When
        // the answer ends a silence that began before it came, the time is that of the
        // sender's pause.
        if payload || silence <= half {
            told.count(half);
        }
    }

    /// Whether it is beyond all that was seen, as numbers that come round are.
    fn is_newer(&mut self, value: u32) -> bool {
        let newer = self.newest.is_none_or(|newest| {
            let ahead = value.wrapping_sub(newest);
            ahead != 0 && ahead < 1 << 31
        });
        if newer {
            self.newest = Some(value);
        }
        newer
    }

    fn may_stamp(&mut self, now: Time) -> bool {
        let may = self.stamped.is_none_or(|stamped| now.since(stamped) >= GAP);
        if may {
            self.stamped = Some(now);
        }
        may
    }
}
