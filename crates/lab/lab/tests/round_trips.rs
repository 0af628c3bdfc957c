//! Round trips of flows between simulated hosts, in virtual time.
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use crate::support;
use etherparse::PacketBuilder;
use proptest::prelude::*;
use sprat_lab::Time;
use sprat_lab::frame::VNET_BYTES;
use sprat_lab::line::{FlowCounters, Line, LineSettings};
use sprat_lab::memory::Memory;
use sprat_lab::rtt::{self, RoundTrips, STAMPS, Stamps};
use std::sync::Arc;
use std::time::Duration;
use support::packet_at;

/// Resolution of a stamp in nanoseconds. Each stamp is rounded down to it.
const GRAIN: u64 = 64;

/// Kinds of messages between the two hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Stamped,
    Numbered,
    Echo,
}

/// A message from the left host or to it.
#[derive(Clone, Copy, Debug)]
struct Message {
    kind: Kind,
    v6: bool,
    to_right: bool,
    /// The sender's clock, sequence number or echo number; and the number that the message answers.
    value: u32,
    echo: u32,
    payload: usize,
}

impl Message {
    fn bytes(&self) -> Vec<u8> {
        let (from, to, source, destination) =
            if self.to_right { (1, 2, 1000, 2000) } else { (2, 1, 2000, 1000) };
        let end = |last| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
        let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let ip = match self.v6 {
            true => ethernet.ipv6(end(from), end(to), 64),
            false => ethernet.ipv4([10, 0, 0, from], [10, 0, 0, to], 64),
        };
        let mut bytes = vec![0; VNET_BYTES];
        let payload = vec![7; self.payload];
        let Self { value, echo, .. } = *self;
        match (self.kind, self.v6) {
            (Kind::Stamped, _) => {
                let stamps =
                    [&[1, 1, 8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat();
                let tcp = ip
                    .tcp(source, destination, 5, 100)
                    .ack(9)
                    .options_raw(&stamps)
                    .expect("they fit");
                tcp.write(&mut bytes, &payload).expect("written");
            }
            (Kind::Numbered, _) => {
                let tcp = ip
                    .tcp(source, destination, value.wrapping_sub(self.payload as u32), 100)
                    .ack(echo);
                tcp.write(&mut bytes, &payload).expect("written");
            }
            (Kind::Echo, false) if self.to_right => {
                ip.icmpv4_echo_request(3, value as u16)
                    .write(&mut bytes, &payload)
                    .expect("written");
            }
            (Kind::Echo, false) => {
                ip.icmpv4_echo_reply(3, echo as u16).write(&mut bytes, &payload).expect("written")
            }
            (Kind::Echo, true) if self.to_right => {
                ip.icmpv6_echo_request(3, value as u16)
                    .write(&mut bytes, &payload)
                    .expect("written");
            }
            (Kind::Echo, true) => {
                ip.icmpv6_echo_reply(3, echo as u16).write(&mut bytes, &payload).expect("written")
            }
        }
        bytes.resize(bytes.len().max(VNET_BYTES + 60), 0); // as cards pad
        bytes
    }
}

/// A box of two lines, one in each direction.
struct TwoLines {
    right: Line,
    left: Line,
    memory: Memory,
}

impl TwoLines {
    fn new(right: Duration, left: Duration) -> Self {
        let stamps = Arc::new(Stamps::new());
        let line = |delay| {
            Line::new(LineSettings { delay, ..LineSettings::default() }).with_stamps(stamps.clone())
        };
        Self { right: line(right), left: line(left), memory: Memory::of_cells(50) }
    }

    /// Passes a message that arrives at the box at `now`. Returns the time at which it leaves.
    fn transfer(&mut self, message: Message, now: Time) -> Time {
        let line = if message.to_right { &mut self.right } else { &mut self.left };
        let packet = packet_at(&message.bytes(), &mut self.memory, now);
        line.push(packet, now, &mut self.memory);
        let out = line.next().expect("it is on the line");
        line.pop(out).expect("it leaves the line").free(&mut self.memory);
        out
    }

    /// Returns the round trips of the flow to the right, and those of the flow to the left.
    fn round_trips(&self, now: Time) -> [RoundTrips; 2] {
        let mut flows = [self.right.counters(now).flows, self.left.counters(now).flows].concat();
        rtt::join(&mut flows);
        let [right, left] = &flows[..] else { panic!("{flows:?}") };
        [right.1.round_trips, left.1.round_trips]
    }
}

#[track_caller]
fn close(measured_ns: u64, is: Duration) {
    let is = is.as_nanos() as u64;
    assert!(measured_ns.abs_diff(is) <= 2 * GRAIN, "{measured_ns} ns, not {is} ns");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn halves_add_up_to_the_round_trip(
        kind in prop_oneof![Just(Kind::Stamped), Just(Kind::Numbered), Just(Kind::Echo)],
        v6 in any::<bool>(),
        delays in (1u64..500_000_000, 1u64..500_000_000),
        hosts in (0u64..1_000_000, 2_000_000u64..3_000_000),
        first in (any::<u32>(), any::<u32>()),
        turns in 4u32..20,
    ) {
        let [to_right, to_left, right, left] =
            [delays.0, delays.1, hosts.0, hosts.1].map(Duration::from_nanos);
        let mut lines = TwoLines::new(to_right, to_left);
        let mut now = Time(12_345);
        for turn in 0..turns {
            // Each message has a payload, and answers the last one that its sender received.
            let (value, echo) =
                (first.0.wrapping_add(turn * 100), first.1.wrapping_add(turn * 100));
            let request = Message { kind, v6, to_right: true, value, echo, payload: 100 };
            now = lines.transfer(request, now) + right;
            let reply =
                Message { to_right: false, value: echo.wrapping_add(100), echo: value, ..request };
            now = lines.transfer(reply, now) + left;
        }
        let [sends, answers] = lines.round_trips(now);
        // In one of 32,768 cases two stamps have the same index. The older stamp is then lost, and
        // with it a sample.
        let all_but_one =
            |samples: u64, all: u32| samples == u64::from(all) || samples + 1 == u64::from(all);
        prop_assert!(
            all_but_one(answers.samples, turns),
            "{} of {turns}: each was answered once",
            answers.samples
        );
        for half in [answers.last_ns, answers.min_ns, answers.smoothed_ns] {
            close(half, to_right + right);
        }
        let whole = if kind == Kind::Echo {
            to_right + right + to_left
        } else {
            to_right + right + to_left + left
        };
        if kind != Kind::Echo {
            prop_assert!(
                all_but_one(sends.samples, turns - 1),
                "{} of {}",
                sends.samples,
                turns - 1
            );
            close(sends.smoothed_ns, to_left + left);
        }
        for round_trips in [sends, answers] {
            let measured = round_trips.whole_ns.expect("both halves are known");
            prop_assert!(
                measured.abs_diff(whole.as_nanos() as u64) <= 4 * GRAIN,
                "{} ns, not {:?}",
                measured,
                whole
            );
        }
    }

    #[test]
    fn no_frame_makes_it_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 60..120),
        kind in 0u8..4,
        v6 in any::<bool>(),
    ) {
        let of = [Kind::Stamped, Kind::Numbered, Kind::Echo, Kind::Echo][usize::from(kind)];
        let good = Message { kind: of, v6, to_right: true, value: 1, echo: 2, payload: 3 }.bytes();
        // The bytes behind a random position are random. The virtio-net header is always empty.
        let keep = usize::from(bytes[0]) % good.len().min(bytes.len());
        bytes[..keep].copy_from_slice(&good[..keep]);
        bytes[..VNET_BYTES].fill(0);
        let mut lines = TwoLines::new(Duration::ZERO, Duration::ZERO);
        let packet = packet_at(&bytes, &mut lines.memory, Time::ZERO);
        lines.right.push(packet, Time::ZERO, &mut lines.memory);
    }
}

const MS: Duration = Duration::from_millis(1);

/// Returns a message with the clock `value` that answers the clock `echo`.
fn stamped(to_right: bool, value: u32, echo: u32, payload: usize) -> Message {
    Message { kind: Kind::Stamped, v6: false, to_right, value, echo, payload }
}

#[test]
fn a_senders_pause_is_not_measured() {
    let mut lines = TwoLines::new(10 * MS, 10 * MS);
    let now = lines.transfer(stamped(true, 1, 0, 100), Time::ZERO);
    lines.transfer(stamped(false, 501, 1, 0), now);
    // The sender has nothing to send for a second. This second is not a part of the round trip.
    let late = Time::ZERO + Duration::from_secs(1);
    lines.transfer(stamped(true, 1_001, 501, 100), late);
    assert_eq!(lines.round_trips(late)[0].samples, 0);
    // While the sender sends all the time, its answers count.
    let now = late + 20 * MS;
    lines.transfer(stamped(false, 1_521, 1_001, 0), now);
    lines.transfer(stamped(true, 1_030, 501, 100), now + 9 * MS);
    lines.transfer(stamped(true, 1_040, 1_521, 100), now + 12 * MS);
    let round_trips = lines.round_trips(now)[0];
    assert_eq!(round_trips.samples, 1);
    close(round_trips.last_ns, 12 * MS);
}

#[test]
fn an_echo_reply_on_the_line_gives_no_round_trip_yet() {
    let mut lines = TwoLines::new(10 * MS, 10 * MS);
    let request =
        Message { kind: Kind::Echo, v6: false, to_right: true, value: 1, echo: 0, payload: 100 };
    let now = lines.transfer(request, Time::ZERO);
    let reply = Message { to_right: false, value: 0, echo: 1, ..request };
    let packet = packet_at(&reply.bytes(), &mut lines.memory, now);
    lines.left.push(packet, now, &mut lines.memory);
    let round_trips = lines.round_trips(now)[1];
    assert_eq!((round_trips.samples, round_trips.whole_ns), (1, None));
    let back = lines.left.next().expect("it is on the line");
    lines.left.pop(back).expect("it leaves the line").free(&mut lines.memory);
    close(lines.round_trips(back)[1].whole_ns.expect("it has left the line"), 20 * MS);
}

#[test]
fn retransmissions_are_not_timed() {
    let mut lines = TwoLines::new(MS, MS);
    let data = |value| Message {
        kind: Kind::Numbered,
        v6: false,
        to_right: true,
        value,
        echo: 1,
        payload: 100,
    };
    let ack = |echo| Message { to_right: false, value: 1, echo, payload: 0, ..data(0) };
    lines.transfer(data(100), Time::ZERO);
    lines.transfer(data(100), Time::ZERO + 50 * MS);
    lines.transfer(ack(100), Time::ZERO + 52 * MS);
    assert_eq!(
        lines.round_trips(Time::ZERO)[1].samples,
        0,
        "it is unknown which of the two was answered"
    );
    lines.transfer(data(200), Time::ZERO + 60 * MS);
    lines.transfer(ack(200), Time::ZERO + 63 * MS);
    let round_trips = lines.round_trips(Time::ZERO)[1];
    assert_eq!(round_trips.samples, 1);
    close(round_trips.last_ns, 3 * MS);
}

#[test]
fn duplicate_and_late_answers_are_ignored() {
    let mut lines = TwoLines::new(MS, MS);
    lines.transfer(stamped(true, 1, 0, 100), Time::ZERO);
    lines.transfer(stamped(false, 1, 1, 100), Time::ZERO + 2 * MS);
    lines.transfer(stamped(false, 2, 9, 100), Time::ZERO + 3 * MS);
    lines.transfer(stamped(false, 3, 1, 100), Time::ZERO + 4 * MS);
    assert_eq!(lines.round_trips(Time::ZERO)[1].samples, 1, "once each");
    lines.transfer(stamped(true, 2, 3, 100), Time::ZERO + 5 * MS);
    let late = Time::ZERO + rtt::LONGEST + 6 * MS;
    lines.transfer(stamped(false, 9_000, 2, 100), late);
    assert_eq!(lines.round_trips(late)[1].samples, 1);
}

#[test]
fn a_full_stamp_table_only_loses_samples() {
    let mut lines = TwoLines::new(MS, MS);
    let mut now = Time::ZERO;
    let count = STAMPS as u32 * 2;
    for value in 0..count {
        lines.transfer(stamped(true, value, 0, 100), now);
        now = now + MS;
    }
    let end = now;
    for value in (0..count).rev().take(5_000) {
        lines.transfer(stamped(false, 1, value, 0), end);
    }
    let round_trips = lines.round_trips(end)[1];
    assert!((1_000..5_000).contains(&round_trips.samples), "{round_trips:?}");
    // Each matched answer belongs to its own packet.
    assert!(
        round_trips.min_ns >= 1_000_000 - GRAIN && round_trips.last_ns <= 5_001_000_000,
        "{round_trips:?}"
    );
}

#[test]
fn a_line_without_stamps_measures_nothing() {
    let mut memory = Memory::of_cells(5);
    let mut line = Line::new(LineSettings::default());
    line.push(
        packet_at(&stamped(true, 1, 0, 100).bytes(), &mut memory, Time::ZERO),
        Time::ZERO,
        &mut memory,
    );
    let flows: Vec<(_, FlowCounters)> = line.counters(Time::ZERO).flows;
    assert_eq!(flows[0].1.round_trips, RoundTrips::default());
}
