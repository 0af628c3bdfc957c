//! The engine between ports that are pairs of sockets, which needs no privileges.

#![allow(clippy::cast_possible_truncation, reason = "small numbers that become bytes")]

use crate::support;
use proptest::prelude::*;
use sprat_lab::chance::Probability;
use sprat_lab::engine::{Engine, EngineError, EnginePlan, Forwarding, Memories, Report, Tolerance};
use sprat_lab::frame::VNET_BYTES;
use sprat_lab::line::{LineSettings, Loss};
use sprat_lab::memory::Memory;
use sprat_lab::port::{Sent, pair};
use sprat_lab::switch::{AGEING, Egress, MAX_STATIONS, Switch};
use sprat_lab::{Time, config};
use std::time::{Duration, Instant};
use support::far::{PATIENCE, running};
use support::{Sample, numbered, packet};

#[test]
fn frames_pass_both_ways_in_order() {
    let (engine, mut fars) =
        running(&[LineSettings::default(), LineSettings::default()], Forwarding::Cross, None);
    for number in 0..500 {
        fars[0].send(&numbered(number, 60 + number as usize));
        fars[1].send(&numbered(number + 1_000, 60));
        assert_eq!(fars[1].number(), number);
        assert_eq!(fars[0].number(), number + 1_000);
    }
    let long = Sample { payload: 60_000, ..Sample::default() }.bytes();
    fars[0].send(&long);
    let whole = fars[1].receive();
    assert_eq!(whole.to_vec(), long, "a super-packet passes as it is");
    whole.free(&mut fars[1].memory);
    let report = engine.stop().expect("it ran");
    let line = |to: &str| report.lines.iter().find(|line| line.to == to).expect("there");
    assert_eq!(line("p1").counters.left.segments, 500 + 42);
    assert_eq!(line("p0").counters.left.segments, 500);
    assert_eq!(report.lines.iter().map(|line| line.counters.drops.total()).sum::<u64>(), 0);
}

#[test]
fn pairs_are_isolated_from_each_other() {
    let lost = LineSettings { loss: Loss::Random(Probability::ALWAYS), ..LineSettings::default() };
    let lines = [LineSettings::default(), LineSettings::default(), lost, LineSettings::default()];
    let (engine, mut fars) = running(&lines, Forwarding::Cross, None);
    for number in 0..50 {
        fars[0].send(&numbered(number, 60));
        fars[1].send(&numbered(number + 100, 60));
        fars[2].send(&numbered(number + 200, 60));
        fars[3].send(&numbered(number + 300, 60));
        assert_eq!(
            (fars[1].number(), fars[0].number(), fars[3].number()),
            (number, number + 100, number + 200)
        );
    }
    // A lost packet cannot be seen, so the test waits until the box has read it before the line
    // changes.
    let read = |port: &str| {
        let report = engine.report().expect("it runs");
        report.inputs.iter().find(|input| input.port == port).map_or(0, |input| input.packets)
    };
    let begun = Instant::now();
    while read("p3") < 50 {
        assert!(begun.elapsed() < PATIENCE, "the box does not read all packets");
    }
    engine.set("p2", LineSettings::default()).expect("a port");
    engine.report().expect("a report after a change shows it");
    fars[3].send(&numbered(999, 60));
    assert_eq!(fars[2].number(), 999, "the earlier packets were lost on the line to p2");
    let report = engine.stop().expect("it ran");
    let to = |to: &str| {
        report.lines.iter().find(|line| line.to == to).map(|line| line.counters.left.segments)
    };
    assert_eq!(["p0", "p1", "p2", "p3"].map(to), [Some(50), Some(50), Some(1), Some(50)]);
    assert_eq!(
        report.inputs.iter().map(|input| &input.port[..]).collect::<Vec<_>>(),
        ["p0", "p1", "p2", "p3"]
    );
}

#[test]
fn no_packet_leaves_early() {
    let delay = Duration::from_millis(30);
    let (engine, mut fars) = running(
        &[LineSettings::default(), LineSettings { delay, ..LineSettings::default() }],
        Forwarding::Cross,
        None,
    );
    for number in 0..3 {
        let sent = Instant::now();
        fars[0].send(&numbered(number, 60));
        assert_eq!(fars[1].number(), number);
        assert!(sent.elapsed() >= delay, "{:?}", sent.elapsed());
    }
    drop(engine);
}

#[test]
fn lines_change_while_it_runs() {
    let (engine, mut fars) =
        running(&[LineSettings::default(), LineSettings::default()], Forwarding::Cross, None);
    fars[0].send(&numbered(1, 60));
    assert_eq!(fars[1].number(), 1);
    engine
        .set(
            "p1",
            LineSettings { loss: Loss::Random(Probability::ALWAYS), ..LineSettings::default() },
        )
        .expect("a port");
    engine.report().expect("a report after a change shows it");
    fars[0].send(&numbered(2, 60));
    while engine.report().expect("it runs").lines[0].counters.drops.loss == 0 {}
    engine.set("p1", LineSettings::default()).expect("a port");
    engine.report().expect("a report after a change shows it");
    fars[0].send(&numbered(3, 60));
    assert_eq!(fars[1].number(), 3, "2 was lost");
    let error = engine.set("p9", LineSettings::default()).expect_err("no such port");
    assert_eq!(error.to_string(), "no port \"p9\"; the ports are p0, p1");
}

#[test]
fn exhausted_memory_is_reported() {
    let delay = Duration::from_millis(500);
    let slow = LineSettings { delay, ..LineSettings::default() };
    let (engine, mut fars) = running(&[slow.clone(), slow], Forwarding::Cross, Some(0));
    // The smallest memory is 2,048 cells, and each frame occupies one cell for half a second.
    let began = Instant::now();
    for number in 0..3_000 {
        fars[0].send(&numbered(number, 60));
    }
    let in_time = began.elapsed() < delay / 2;
    let report = engine.stop().expect("it ran");
    assert!(!in_time || !report.kept_up(), "{report:?}");
    let read: u64 = report.inputs.iter().map(|input| input.packets + input.exhausted).sum();
    assert!(read > 2_000, "{report:?}");
}

#[test]
fn refused_packets_are_counted_and_reported() {
    const FRAMES: u32 = 3_000;
    let (engine, mut fars) =
        running(&[LineSettings::default(), LineSettings::default()], Forwarding::Cross, None);
    // The far end is not read, so the socket buffers between fill up.
    (0..FRAMES).for_each(|number| fars[0].send(&numbered(number, 60)));
    let until = Instant::now() + PATIENCE;
    let report = loop {
        let report = engine.report().expect("it runs");
        if report.inputs[0].packets == u64::from(FRAMES) && report.lines[0].counters.on_line == 0 {
            break report;
        }
        assert!(Instant::now() < until, "{report:?}");
    };
    let counters = &report.lines[0].counters;
    assert_eq!(counters.left.segments + counters.drops.refused, u64::from(FRAMES));
    assert!(counters.drops.refused > 0, "{report:?}");
    assert!(report.behind.iter().any(|why| why.contains("refused")), "{report:?}");
    for _ in 0..counters.left.segments {
        fars[1].number();
    }
    drop(engine);
}

#[test]
fn a_failed_port_ends_the_box() {
    let (engine, mut fars) =
        running(&[LineSettings::default(), LineSettings::default()], Forwarding::Cross, None);
    drop(fars.pop());
    let until = Instant::now() + PATIENCE;
    while !engine.ended() {
        assert!(Instant::now() < until, "the engine does not report that a worker ended");
        std::thread::yield_now();
    }
    let error = engine.stop().expect_err("it ended by itself").to_string();
    assert!(error.starts_with("port p1: reading from it"), "{error}");
}

/// Frames that wait in a port before the box runs count as late.
#[test]
fn packets_that_waited_before_the_start_are_late() {
    const FRAMES: u32 = 20;
    let late = Tolerance::default().late * 10;
    for (tolerance, kept_up) in [
        (Tolerance::default(), false),
        (Tolerance { share: Probability::ALWAYS, ..Tolerance::default() }, true),
        (Tolerance { late: Duration::from_secs(3_600), ..Tolerance::default() }, true),
    ] {
        let [near, far] = pair(["a", "far"]).expect("sockets");
        let [other, sink] = pair(["b", "sink"]).expect("sockets");
        let mut memory = Memory::of_cells(200);
        for number in 0..FRAMES {
            let packet = packet(&numbered(number, 60), &mut memory);
            assert_eq!(far.send(&packet), Sent::Accepted);
            packet.free(&mut memory);
        }
        let begun = Instant::now();
        while begun.elapsed() < late {
            std::thread::yield_now();
        }
        let ports = vec![(near, LineSettings::default()), (other, LineSettings::default())];
        let plan = EnginePlan { tolerance, ..EnginePlan::new(ports, Forwarding::Cross) };
        let engine = Engine::start(plan).expect("it starts");
        let until = Instant::now() + PATIENCE;
        let left = |report: &Report| {
            let line = report.lines.iter().find(|line| line.to == "b").expect("there");
            (line.counters.left.segments, line.lateness)
        };
        while left(&engine.report().expect("it runs")).0 < u64::from(FRAMES) {
            assert!(Instant::now() < until, "the packets do not pass");
        }
        let report = engine.stop().expect("it ran");
        drop((far, sink));
        let matters = tolerance.late < late;
        assert_eq!(left(&report).1.late_packets >= u64::from(FRAMES), matters, "{report:?}");
        assert_eq!(report.kept_up(), kept_up, "{report:?}");
    }
}

#[test]
fn too_much_memory_is_refused() {
    let lines = [LineSettings::default(), LineSettings::default()];
    let made = Memories::make(Forwarding::Cross, &[false; 2], lines.iter(), Some(1 << 60));
    let error = made.expect_err("no machine has an exabyte");
    assert!(matches!(error, EngineError::Memory { .. }), "{error}");
}

#[test]
fn ports_that_cannot_be_joined_are_refused() {
    let ports = (0..3).map(|_| {
        (
            pair(["a", "b"]).expect("sockets").into_iter().next().expect("two"),
            LineSettings::default(),
        )
    });
    let plan = EnginePlan::new(ports.collect(), Forwarding::Cross);
    assert!(matches!(Engine::start(plan), Err(EngineError::Ports(3))));
}

/// A frame from one station to another.
fn between(source: u8, destination: u8, number: u32) -> Vec<u8> {
    let mut bytes = numbered(number, 60);
    bytes[VNET_BYTES + 5] = destination;
    bytes[VNET_BYTES + 11] = source;
    bytes
}

#[test]
fn a_switch_floods_unknown_destinations() {
    let (engine, mut fars) =
        running(&vec![LineSettings::default(); 3], Forwarding::Switch(AGEING), None);
    fars[0].send(&between(1, 2, 1));
    assert_eq!(
        (fars[1].number(), fars[2].number()),
        (1, 1),
        "station 2 is unknown, so the frame is flooded"
    );
    fars[1].send(&between(2, 1, 2));
    assert_eq!(fars[0].number(), 2);
    fars[0].send(&between(1, 2, 3));
    fars[2].send(&between(3, 2, 4));
    // Frames arrive at two ports at the same time. The box may read either one first.
    let mut two = [fars[1].number(), fars[1].number()];
    two.sort_unstable();
    assert_eq!(two, [3, 4]);
    // Station 3 received only the flooded frame.
    fars[0].send(&between(1, 3, 5));
    assert_eq!(fars[2].number(), 5);
    let switch = engine.stop().expect("it ran").switch.expect("it is one");
    assert_eq!((switch.flooded, switch.forwarded, switch.learnt, switch.stations), (1, 4, 3, 3));
}

#[test]
fn a_switch_forgets_moves_and_keeps_vlans_apart() {
    let second = |seconds| Time::ZERO + Duration::from_secs(seconds);
    let mut switch = Switch::new(Duration::from_secs(10));
    let station = |number: u8| [2, 0, 0, 0, 0, number];
    assert_eq!(switch.forward(0, 0, station(2), station(1), second(0)), Egress::Flood);
    assert_eq!(switch.forward(1, 0, station(1), station(2), second(5)), Egress::To(0));
    assert_eq!(
        switch.forward(1, 7, station(1), station(2), second(5)),
        Egress::Flood,
        "not in VLAN 7"
    );
    assert_eq!(
        switch.forward(1, 0, station(1), station(2), second(11)),
        Egress::Flood,
        "not heard for long"
    );
    assert_eq!(switch.forward(2, 0, station(9), station(1), second(12)), Egress::Flood);
    assert_eq!(switch.forward(1, 0, station(1), station(2), second(12)), Egress::To(2), "it moved");
    assert_eq!(
        switch.forward(2, 0, station(1), station(5), second(12)),
        Egress::Nowhere,
        "on its own port"
    );
    assert_eq!(switch.forward(2, 0, [0xff; 6], station(5), second(12)), Egress::Flood);
    assert_eq!(
        switch.forward(2, 0, [1, 0x80, 0xc2, 0, 0, 1], station(5), second(12)),
        Egress::Nowhere,
        "pause frames"
    );
}

#[test]
fn a_full_table_floods_until_it_forgets() {
    let mut switch = Switch::new(Duration::from_secs(10));
    let station =
        |number: usize| [2, 0, 0, (number >> 16) as u8, (number >> 8) as u8, number as u8];
    for number in 0..MAX_STATIONS + 5 {
        switch.forward(0, 0, [0xff; 6], station(number), Time(number as u64));
    }
    let counters = switch.counters();
    assert_eq!((counters.stations, counters.table_full), (MAX_STATIONS as u64, 5));
    let later = Time::ZERO + Duration::from_secs(60);
    switch.forward(1, 0, [0xff; 6], station(MAX_STATIONS + 1), later);
    assert_eq!(switch.counters().stations, 1);
    assert_eq!(switch.forward(0, 0, station(MAX_STATIONS + 1), station(3), later), Egress::To(1));
}

#[test]
fn a_box_config_is_parsed() {
    let text = "forward = \"switch\"\nmemory = \"1GB\"\n[line]\ndelay = \"100ms\"\nseed = \
                7\n[[port]]\nopen = \"tap:a0@left\"\n[[port]]\nopen = \"tap:b0,mtu=9000\"\nline = \
                { rate = \"2Gb/s\", queue = \"harmonize\", loss = \"list:3,1\" }\n";
    let config = config::BoxWords::from_toml(text).expect("TOML").check().expect("a box");
    assert_eq!(
        (config.memory, config.forwarding),
        (Some(1_000_000_000), Forwarding::Switch(AGEING))
    );
    let [(a, to_a), (b, to_b)] = &config.ports[..] else { panic!("{config:?}") };
    assert_eq!((a.to_string(), b.to_string()), ("tap:a0@left".into(), "tap:b0,mtu=9000".into()));
    assert_eq!((to_a.delay, to_a.seed, to_a.rate), (Duration::from_millis(100), 7, None));
    assert_eq!(to_b.rate.map(|rate| rate.bits_per_second()), Some(2_000_000_000));
    assert_eq!(to_b.loss, Loss::Listed(vec![1, 3]));
}

#[test]
fn configured_pairs_are_neighbours() {
    let ports = ["a", "b", "c", "d"].map(|name| {
        format!("[[port]]\nopen = \"tap:{name}\"\nline.seed = \"{}\"\n", name.as_bytes()[0])
    });
    let text = format!("pairs = [[\"a\", \"d\"], [\"c\", \"b\"]]\n{}", ports.concat());
    let config = config::BoxWords::from_toml(&text).expect("TOML").check().expect("a box");
    assert_eq!(config.forwarding, Forwarding::Cross);
    let order: Vec<_> = config.ports.iter().map(|(spec, line)| (spec.name(), line.seed)).collect();
    assert_eq!(order, [("a", 97), ("d", 100), ("c", 99), ("b", 98)]);
    for (pairs, expected) in [
        ("", "4 ports are joined in pairs: say which"),
        ("pairs = [[\"a\", \"b\"]]\n", "c is in no pair"),
        ("pairs = [[\"a\", \"b\"], [\"c\", \"a\"]]\n", "a is named twice"),
        ("pairs = [[\"a\", \"a\"], [\"c\", \"d\"]]\n", "a is named twice"),
        ("pairs = [[\"a\", \"e\"], [\"c\", \"d\"]]\n", "no port \"e\"; the ports are a, b, c, d"),
        ("pairs = [[\"a\"]]\n", "line 2"),
    ] {
        let text = format!("forward = \"cross\"\n{pairs}{}", ports.concat());
        let error = config::BoxWords::from_toml(&text)
            .and_then(|words| words.check())
            .expect_err(pairs)
            .to_string();
        assert!(error.contains(expected), "{error:?} for {pairs:?}");
    }
    let text = text.replace("pairs", "forward = \"switch\"\npairs");
    let error = config::BoxWords::from_toml(&text)
        .expect("TOML")
        .check()
        .expect_err("no pairs in a switch");
    assert!(error.to_string().contains("a switch joins every port"), "{error}");
}

#[test]
fn config_errors_name_the_place_and_the_fix() {
    let two = "[[port]]\nopen = \"tap:a0\"\n[[port]]\nopen = \"tap:b0\"\n";
    for (text, expected) in [
        (
            format!("{two}line = {{ rate = \"2GB\" }}\n"),
            "the line to b0: rate \"2GB\": want 2Gb/s or 2GB/s",
        ),
        (format!("colour = 3\n{two}"), "line 1, column 1"),
        (format!("{two}line = {{ latency = \"1ms\" }}\n"), "unknown field `latency`"),
        (
            format!("[line]\ndelay = \"3s\"\n{two}"),
            "every line: delay \"3s\": want a time up to 500ms",
        ),
        ("[[port]]\nopen = \"tap:a0\"\n".into(), "ports given: 1"),
        (format!("{two}[[port]]\nopen = \"tap:b0@x\"\n"), "two ports are called b0"),
        (format!("{two}[[port]]\nopen = \"eth0\"\n"), "no kind"),
        (format!("forward = \"hub\"\n{two}"), "the box: forward \"hub\": want cross or switch"),
        (format!("forward = \"cross\"\n{two}[[port]]\nopen = \"tap:c0\"\n"), "ports given: 3"),
        ("not TOML".into(), "line 1"),
    ] {
        let error = config::BoxWords::from_toml(&text)
            .and_then(|words| words.check())
            .expect_err(&text)
            .to_string();
        assert!(error.contains(expected), "{error:?} for {text:?}");
    }
}

proptest! {
    #[test]
    fn parsing_a_config_never_panics(key in "[a-z-]{0,12}", value in ".{0,30}", port in ".{0,20}") {
        let mut settings = LineSettings::default();
        let _ = config::set(&mut settings, &key, &value);
        for key in
            ["delay", "rate", "buffer", "queue", "loss", "reorder", "overhead", "seed", "duplicate"]
        {
            let _ = config::set(&mut settings, key, &value);
            let _ = config::set(&mut settings, key, &format!("bursts:{value},1%"));
        }
        let _ = format!("tap:{port}").parse::<config::PortSpec>();
        let _ = config::BoxWords::from_toml(&value);
    }
}
