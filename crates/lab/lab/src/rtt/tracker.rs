//! Records the stamps of one flow on one line, and matches answers with them.

use super::probe::{Probe, probe};
use super::{Key, RoundTrips, Stamps, hash};
use crate::frame::{Flow, Packet};
use crate::time::Time;
use std::time::Duration;

/// Minimum interval between two stamps of a flow: the resolution of most senders' time stamps. It
/// limits the part of the table that one flow uses.
const GAP: Duration = Duration::from_millis(1);

/// The kinds of numbers. Equal numbers of different kinds give different keys.
const OF_CLOCK: u64 = 1 << 32;
const OF_SEQUENCE: u64 = 2 << 32;
const OF_ECHO: u64 = 3 << 32;

/// Records the stamps of one flow on one line, and matches answers with them.
#[derive(Debug)]
pub(crate) struct Tracker {
    /// Hashes of the flow, and of the flow in the opposite direction.
    own: u64,
    other: u64,
    /// The newest time stamp or sequence number of the flow, and when a stamp was last recorded.
    newest: Option<u32>,
    stamped: Option<Time>,
    /// With sequence numbers: the number of the last stamp. `None` once data has been sent again.
    pending: Option<u32>,
    /// The last echoed time stamp or acknowledgement number of the flow.
    echoed: Option<u32>,
    /// When a packet of the flow last arrived.
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

    /// Handles a packet of the flow, which arrived at `now`.
    pub(crate) fn observe(
        &mut self,
        packet: &Packet,
        now: Time,
        stamps: &Stamps,
        round_trips: &mut RoundTrips,
    ) {
        let Some(probe) = probe(packet) else { return };
        let silence = now.since(std::mem::replace(&mut self.heard, now));
        match probe {
            Probe::Stamped { value, echo, payload } => {
                if self.is_newer(value) && self.may_stamp(now) {
                    stamps.record(Key::new(self.own, OF_CLOCK | u64::from(value)), payload, now);
                }
                if let Some(echo) = echo
                    && self.echoed.replace(echo) != Some(echo)
                {
                    self.answer(
                        Key::new(self.other, OF_CLOCK | u64::from(echo)),
                        now,
                        silence,
                        stamps,
                        round_trips,
                    );
                }
            }
            Probe::Unstamped { end, ack } => {
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
                        round_trips,
                    );
                }
            }
            Probe::EchoRequest(number) => {
                if self.may_stamp(now) {
                    stamps.record(Key::new(self.own, OF_ECHO | u64::from(number)), true, now);
                }
            }
            Probe::EchoReply(number) => {
                self.answer(
                    Key::new(self.other, OF_ECHO | u64::from(number)),
                    now,
                    silence,
                    stamps,
                    round_trips,
                );
            }
        }
    }

    /// Records a stamp for new data. If data is sent again, removes the last stamp: the answers to
    /// both transmissions look the same, so neither counts (Karn and Partridge, 1987).
    fn sequence(&mut self, end: u32, now: Time, stamps: &Stamps) {
        if !self.is_newer(end) {
            if let Some(pending) = self.pending.take() {
                stamps.forget(Key::new(self.own, OF_SEQUENCE | u64::from(pending)));
            }
        } else if self.may_stamp(now) {
            self.pending = Some(end);
            stamps.record(Key::new(self.own, OF_SEQUENCE | u64::from(end)), true, now);
        }
    }

    fn answer(
        &mut self,
        key: Key,
        now: Time,
        silence: Duration,
        stamps: &Stamps,
        round_trips: &mut RoundTrips,
    ) {
        let Some((half, payload)) = stamps.take(key, now) else { return };
        // An acknowledgement without payload is only answered when its receiver has something to
        // send. If the answer ends a silence that began before the acknowledgement arrived, the
        // measured time is only the pause of that receiver.
        if payload || silence <= half {
            round_trips.count(half);
        }
    }

    /// Returns whether `value` is newer than all earlier values, in modular arithmetic.
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
