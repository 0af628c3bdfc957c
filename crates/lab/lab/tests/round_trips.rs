//! Round trips of flows that pass, between hosts of the test's own, in virtual time.
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use crate::support;
use etherparse::PacketBuilder;
use proptest::prelude::*;
use sprat_lab::Time;
use sprat_lab::frame::VNET_BYTES;
use sprat_lab::line::{FlowCounters, Line, Settings};
use sprat_lab::memory::Memory;
use sprat_lab::rtt::{self, RoundTrips, STAMPS, Stamps};
use std::sync::Arc;
use std::time::Duration;
use support::packet_at;

/// Each stamp is rounded down to its grain.
const GRAIN: u64 = 64;

/// What hosts say to each other.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Stamped,
    Numbered,
    Echo,
}

/// A message: from the left host, or to it.
#[derive(Clone, Copy, Debug)]
struct Message {
    kind: Kind,
    v6: bool,
    to_right: bool,
    /// Its sender's clock, or sequence number, or the number of its echo; and what it answers.
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

/// Two lines, one each way.
struct Way {
    right: Line,
    left: Line,
    memory: Memory,
}

impl Way {
    fn new(right: Duration, left: Duration) -> Self {
        let stamps = Arc::new(Stamps::new());
        let line =
            |delay| Line::new(Settings { delay, ..Settings::default() }).timed(stamps.clone());
        Self { right: line(right), left: line(left), memory: Memory::of_cells(50) }
    }

    /// Takes a message that comes to the box now, and says when it comes out.
    fn pass(&mut self, message: Message, now: Time) -> Time {
        let line = if message.to_right { &mut self.right } else { &mut self.left };
        let packet = packet_at(&message.bytes(), &mut self.memory, now);
        line.push(packet, now, &mut self.memory);
        let out = line.next().expect("it is on the line");
        line.pop(out).expect("it comes through").free(&mut self.memory);
        out
    }

    /// What is known of the flow to the right, and of that to the left.
    fn told(&self, now: Time) -> [RoundTrips; 2] {
        let mut flows = [self.right.counters(now).flows, self.left.counters(now).flows].concat();
        rtt::join(&mut flows);
        let [right, left] = &flows[..] else { panic!("{flows:?}") };
        [right.1.round_trips, left.1.round_trips]
    }
}

#[track_caller]
fn close(told_ns: u64, is: Duration) {
    let is = is.as_nanos() as u64;
    assert!(told_ns.abs_diff(is) <= 2 * GRAIN, "{told_ns} ns, not {is} ns");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn halves_and_whole_are_what_the_way_takes(
        kind in prop_oneof![Just(Kind::Stamped), Just(Kind::Numbered), Just(Kind::Echo)],
        v6 in any::<bool>(),
        delays in (1u64..500_000_000, 1u64..500_000_000),
        hosts in (0u64..1_000_000, 2_000_000u64..3_000_000),
        first in (any::<u32>(), any::<u32>()),
        turns in 4u32..20,
    ) {
        let [to_right, to_left, right, left] = [delays.0, delays.1, hosts.0, hosts.1].map(Duration::from_nanos);
        let mut way = Way::new(to_right, to_left);
        let mut now = Time(12_345);
        for turn in 0..turns {
            // Each speaks with a payload, and answers what it heard last.
            let (value, echo) = (first.0.wrapping_add(turn * 100), first.1.wrapping_add(turn * 100));
            let ask = Message { kind, v6, to_right: true, value, echo, payload: 100 };
            now = way.pass(ask, now) + right;
            let said = Message { to_right: false, value: echo.wrapping_add(100), echo: value, ..ask };
            now = way.pass(said, now) + left;
        }
        let [sends, answers] = way.told(now);
        // Two stamps at a time have one place in 32,768 cases: the older is lost, and a sample with it.
        let all_but_one = |samples: u64, all: u32| samples == u64::from(all) || samples + 1 == u64::from(all);
        prop_assert!(all_but_one(answers.samples, turns), "{} of {turns}: each was answered once", answers.samples);
        for half in [answers.last_ns, answers.min_ns, answers.smoothed_ns] {
            close(half, to_right + right);
        }
        let whole = if kind == Kind::Echo { to_right + right + to_left } else { to_right + right + to_left + left };
        if kind != Kind::Echo {
            prop_assert!(all_but_one(sends.samples, turns - 1), "{} of {}", sends.samples, turns - 1);
            close(sends.smoothed_ns, to_left + left);
        }
        for told in [sends, answers] {
            let told = told.whole_ns.expect("both halves are known");
            prop_assert!(told.abs_diff(whole.as_nanos() as u64) <= 4 * GRAIN, "{} ns, not {:?}", told, whole);
        }
    }

    #[test]
    fn no_frame_makes_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 60..120), kind in 0u8..4, v6 in any::<bool>()) {
        let of = [Kind::Stamped, Kind::Numbered, Kind::Echo, Kind::Echo][usize::from(kind)];
        let good = Message { kind: of, v6, to_right: true, value: 1, echo: 2, payload: 3 }.bytes();
        // Headers up to where chance begins.
        let keep = usize::from(bytes[0]) % good.len().min(bytes.len());
        bytes[..keep].copy_from_slice(&good[..keep]);
        bytes[..VNET_BYTES].fill(0);
        let mut way = Way::new(Duration::ZERO, Duration::ZERO);
        let packet = packet_at(&bytes, &mut way.memory, Time::ZERO);
        way.right.push(packet, Time::ZERO, &mut way.memory);
    }
}

const MS: Duration = Duration::from_millis(1);

/// What is stamped with this clock, and answers that one.
fn stamped(to_right: bool, value: u32, echo: u32, payload: usize) -> Message {
    Message { kind: Kind::Stamped, v6: false, to_right, value, echo, payload }
}

#[test]
fn a_pause_is_no_round_trip() {
    let mut way = Way::new(10 * MS, 10 * MS);
    let now = way.pass(stamped(true, 1, 0, 100), Time::ZERO);
    way.pass(stamped(false, 501, 1, 0), now);
    // The sender has nothing more to say for a second; that is not how long the way is.
    let late = Time::ZERO + Duration::from_secs(1);
    way.pass(stamped(true, 1_001, 501, 100), late);
    assert_eq!(way.told(late)[0].samples, 0);
    // While it speaks all the time, its answers count.
    let now = late + 20 * MS;
    way.pass(stamped(false, 1_521, 1_001, 0), now);
    way.pass(stamped(true, 1_030, 501, 100), now + 9 * MS);
    way.pass(stamped(true, 1_040, 1_521, 100), now + 12 * MS);
    let told = way.told(now)[0];
    assert_eq!(told.samples, 1);
    close(told.last_ns, 12 * MS);
}

#[test]
fn an_echo_on_its_way_back_is_no_whole_round_trip_yet() {
    let mut way = Way::new(10 * MS, 10 * MS);
    let ask =
        Message { kind: Kind::Echo, v6: false, to_right: true, value: 1, echo: 0, payload: 100 };
    let now = way.pass(ask, Time::ZERO);
    let said = Message { to_right: false, value: 0, echo: 1, ..ask };
    let packet = packet_at(&said.bytes(), &mut way.memory, now);
    way.left.push(packet, now, &mut way.memory);
    let told = way.told(now)[1];
    assert_eq!((told.samples, told.whole_ns), (1, None));
    let back = way.left.next().expect("it is on the line");
    way.left.pop(back).expect("it comes through").free(&mut way.memory);
    close(way.told(back)[1].whole_ns.expect("it has come through"), 20 * MS);
}

#[test]
fn what_is_sent_again_is_not_timed() {
    let mut way = Way::new(MS, MS);
    let data = |value| Message {
        kind: Kind::Numbered,
        v6: false,
        to_right: true,
        value,
        echo: 1,
        payload: 100,
    };
    let ack = |echo| Message { to_right: false, value: 1, echo, payload: 0, ..data(0) };
    way.pass(data(100), Time::ZERO);
    way.pass(data(100), Time::ZERO + 50 * MS);
    way.pass(ack(100), Time::ZERO + 52 * MS);
    assert_eq!(way.told(Time::ZERO)[1].samples, 0, "which of the two was answered?");
    way.pass(data(200), Time::ZERO + 60 * MS);
    way.pass(ack(200), Time::ZERO + 63 * MS);
    let told = way.told(Time::ZERO)[1];
    assert_eq!(told.samples, 1);
    close(told.last_ns, 3 * MS);
}

#[test]
fn answers_that_come_again_or_much_too_late_count_for_nothing() {
    let mut way = Way::new(MS, MS);
    way.pass(stamped(true, 1, 0, 100), Time::ZERO);
    way.pass(stamped(false, 1, 1, 100), Time::ZERO + 2 * MS);
    way.pass(stamped(false, 2, 9, 100), Time::ZERO + 3 * MS);
    way.pass(stamped(false, 3, 1, 100), Time::ZERO + 4 * MS);
    assert_eq!(way.told(Time::ZERO)[1].samples, 1, "once each");
    way.pass(stamped(true, 2, 3, 100), Time::ZERO + 5 * MS);
    let late = Time::ZERO + rtt::LONGEST + 6 * MS;
    way.pass(stamped(false, 9_000, 2, 100), late);
    assert_eq!(way.told(late)[1].samples, 1);
}

#[test]
fn more_stamps_than_there_is_room_for_cost_samples_and_nothing_else() {
    let mut way = Way::new(MS, MS);
    let mut now = Time::ZERO;
    let count = STAMPS as u32 * 2;
    for value in 0..count {
        way.pass(stamped(true, value, 0, 100), now);
        now = now + MS;
    }
    let end = now;
    for value in (0..count).rev().take(5_000) {
        way.pass(stamped(false, 1, value, 0), end);
    }
    let told = way.told(end)[1];
    assert!((1_000..5_000).contains(&told.samples), "{told:?}");
    // Each answer that was found belongs to its own question.
    assert!(told.min_ns >= 1_000_000 - GRAIN && told.last_ns <= 5_001_000_000, "{told:?}");
}

#[test]
fn a_line_by_itself_times_nothing() {
    let mut memory = Memory::of_cells(5);
    let mut line = Line::new(Settings::default());
    line.push(
        packet_at(&stamped(true, 1, 0, 100).bytes(), &mut memory, Time::ZERO),
        Time::ZERO,
        &mut memory,
    );
    let flows: Vec<(_, FlowCounters)> = line.counters(Time::ZERO).flows;
    assert_eq!(flows[0].1.round_trips, RoundTrips::default());
}
