//! The packet filter: expressions mean what they mean in libpcap, and actions have their stated
//! effects.

use proptest::prelude::*;
use sprat_lab::filter::{
    Action, Change, CompileError, Compiler, Ecn, Instruction, Program, Rule, Rules,
};
use sprat_testing::skip;
use std::sync::LazyLock;

/// Expressions with every kind of primitive, and combinations that use jumps, arithmetic, the index
/// and memory.
const EXPRESSIONS: &[&str] = &[
    "",
    "ip",
    "ip6",
    "arp",
    "tcp",
    "udp port 53",
    "icmp or icmp6",
    "tcp port 80 or tcp port 443",
    "src host 10.0.0.1",
    "dst host 10.0.0.2 and not tcp",
    "net 10.0.0.0/24",
    "ip6 net fd00::/16",
    "src portrange 1000-2000",
    "vlan",
    "vlan 7 and ip",
    "vlan and vlan and tcp",
    "ether host 02:00:00:00:00:01",
    "ether multicast",
    "ether broadcast",
    "ether proto 0x88cc",
    "less 60",
    "greater 1000",
    "len > 100 and len < 200",
    "ip[0] & 0xf != 5",
    "ip[6:2] & 0x1fff = 0",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "tcp[13] = 18",
    "tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420",
    "ip[2:2] - ((ip[0] & 0xf) << 2) > 20",
    "ip[8] * 2 + 1 > 64",
    "ip[8] / 3 = 21 or ip[8] % 5 = 4",
    "ip[8] ^ 0x40 = 0 or ip[9] | 1 = 7",
    "ip[ip[8]] = 1",
    "len / ip[8] > 1",
    "ip proto 6 and (src port 22 or dst port 22) and not host 10.0.0.9",
    "ip6 proto 17 and dst port 5000",
    "ip multicast",
    "mpls",
    "pppoes",
    "llc",
];

static COMPILER: LazyLock<Option<Compiler>> = LazyLock::new(|| match Compiler::load() {
    Ok(compiler) => Some(compiler),
    Err(error) => {
        skip(&format!("the packet filter's compiler: {error}"));
        None
    }
});

static PROGRAMS: LazyLock<Vec<(&str, Program)>> = LazyLock::new(|| {
    let compile = |compiler: &Compiler| {
        EXPRESSIONS
            .iter()
            .map(|text| (*text, compiler.compile(text).unwrap_or_else(|e| panic!("{e}"))))
            .collect()
    };
    COMPILER.as_ref().map(compile).unwrap_or_default()
});

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn programs_match_as_libpcap_does(frame in frame(), cut in 0usize..2_000, more in 0u32..3_000) {
        let Some(compiler) = &*COMPILER else { return Ok(()) };
        let bytes = &frame[..frame.len().min(cut)];
        let length = u32::try_from(bytes.len()).unwrap() + more;
        for (expression, program) in &*PROGRAMS {
            let expected = compiler.reference(program, bytes, length);
            prop_assert_eq!(
                program.run(bytes, length),
                expected,
                "{:?} {:02x?}",
                expression,
                bytes
            );
        }
    }

    #[test]
    fn verified_programs_are_safe(
        raw in prop::collection::vec(
            (any_code(), 0u8..8, 0u8..8, prop_oneof![0u32..20, any::<u32>()]), 0..40
        ),
        bytes in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut instructions: Vec<_> = raw
            .into_iter()
            .map(|(code, on_true, on_false, k)| Instruction { code, on_true, on_false, k })
            .collect();
        instructions.push(Instruction { code: 0x16, ..Instruction::default() });
        if let Ok(program) = Program::verify(&instructions) {
            let _ = program.run(&bytes, 80); // it ends, and does not panic
        }
    }

    #[test]
    fn a_rewrite_changes_its_field_and_nothing_else(frame in frame(), change in change()) {
        let mut changed = frame.clone();
        let had = change.apply(&mut changed);
        prop_assert_eq!(changed.len(), frame.len());
        if !had {
            prop_assert_eq!(&changed, &frame);
        }
        // After the change is undone, the frame is as before. Checksums stay correct in between.
        if let (Ok(before), Ok(after)) = (
            etherparse::SlicedPacket::from_ethernet(&frame),
            etherparse::SlicedPacket::from_ethernet(&changed),
        ) {
            use etherparse::NetSlice::{Ipv4, Ipv6};
            let class = |sliced: &etherparse::SlicedPacket<'_>| match &sliced.net {
                Some(Ipv4(ip)) => Some((ip.header().dcp().value(), ip.header().ecn().value())),
                Some(Ipv6(ip)) => {
                    Some((ip.header().traffic_class() >> 2, ip.header().traffic_class() & 3))
                }
                _ => None,
            };
            let sum_is_right = |sliced: &etherparse::SlicedPacket<'_>| match &sliced.net {
                Some(Ipv4(ip)) => {
                    let header = ip.header().to_header();
                    header.calc_header_checksum() == header.header_checksum
                }
                _ => true,
            };
            prop_assert!(!sum_is_right(&before) || sum_is_right(&after));
            let expected = class(&before).map(|(dscp, ecn)| match change {
                Change::Dscp(new) => (new, ecn),
                Change::Ecn(new) => (dscp, new as u8),
                _ => (dscp, ecn),
            });
            prop_assert_eq!(class(&after), expected);
            if had && let Change::Destination(address) = change {
                prop_assert_eq!(&changed[..6], &address);
                prop_assert_eq!(&changed[6..], &frame[6..]);
            }
            if let Change::Vlan(vlan) = change {
                let kind = u16::from_be_bytes([frame[12], frame[13]]);
                prop_assert_eq!(had, matches!(kind, 0x8100 | 0x88a8 | 0x9100));
                prop_assert!(
                    !had || u16::from_be_bytes([changed[14], changed[15]]) & 0xfff == vlan
                );
            }
        }
    }

    #[test]
    fn parsing_actions_never_panics(text in ".{0,60}") {
        let _ = Action::parse(&text, &["left", "right"]);
        let _ = text.parse::<Change>();
    }
}

#[test]
fn every_primitive_matches_something_and_not_all() {
    if COMPILER.is_none() {
        return;
    }
    // If no expression told these frames apart, the comparison with libpcap would prove little.
    let frames = [tcp(80, &[]), tcp(22, &[7]), udp6(5000), tcp(80, &[7, 8])];
    let matched =
        |program: &Program| frames.iter().filter(|frame| program.run(frame, 100) != 0).count();
    let ways = PROGRAMS
        .iter()
        .filter(|(_, program)| (1..frames.len()).contains(&matched(program)))
        .count();
    assert!(ways >= 12, "{ways}");
}

#[test]
fn invalid_expressions_are_errors() {
    let Some(compiler) = &*COMPILER else { return };
    let error = compiler.compile("tcp prot 80").unwrap_err().to_string();
    assert!(error.contains("tcp prot 80") && error.contains("syntax error"), "{error}");
    assert!(matches!(compiler.compile("ip\0"), Err(CompileError::Length(3))));
    assert!(matches!(compiler.compile(&"ip or ".repeat(1_000)), Err(CompileError::Length(6_000))));
    let error = compiler.compile("ip6 protochain 6").unwrap_err().to_string();
    assert!(
        error.contains("backwards"),
        "a program that may never end is none for a packet's way: {error}"
    );
    for expression in ["inbound", "outbound and tcp", "not inbound"] {
        let error = compiler.compile(expression).unwrap_err().to_string();
        assert!(error.contains("only a kernel knows"), "it would never match, or always: {error}");
    }
    let error = compiler.compile("ip broadcast").unwrap_err().to_string();
    assert!(error.contains("netmask"), "a mask that nobody knows is not guessed: {error}");
}

#[test]
fn rules_count_drop_mirror_and_rewrite_in_order() {
    let Some(compiler) = &*COMPILER else { return };
    let ports = ["left", "right", "tap"];
    let rule = |from, expression: &str, action: &str| Rule {
        expression: expression.to_owned(),
        from,
        program: compiler.compile(expression).unwrap(),
        action: Action::parse(action, &ports).unwrap(),
    };
    let mut rules = Rules::new(vec![
        rule(None, "tcp", "count"),
        rule(Some(0), "tcp port 80", "mirror:tap"),
        rule(None, "ip", "rewrite:dscp=46, ecn=ce"),
        rule(None, "ip[1] = 187", "mirror:right"),
        rule(Some(1), "tcp port 80", "drop"),
        rule(None, "tcp port 80", "rewrite:vlan=9"),
    ])
    .unwrap();
    let mut frame = tcp(80, &[]);
    let verdict = rules.apply(0, &mut frame, 54, 1, 54);
    assert_eq!((verdict.dropped, verdict.mirrors), (false, 0b110));
    assert_eq!(frame[15], 46 << 2 | 3);
    let verdict = rules.apply(1, &mut tcp(80, &[]), 54, 3, 162);
    assert!(verdict.dropped);
    assert!(!rules.apply(1, &mut tcp(22, &[]), 54, 1, 54).dropped);
    let counted: Vec<_> =
        rules.counters().map(|(_, seen)| (seen.packets, seen.bytes, seen.lacking)).collect();
    assert_eq!(
        counted,
        [(5, 270, 0), (1, 54, 0), (5, 270, 0), (5, 270, 0), (3, 162, 0), (1, 54, 1)]
    );
}

#[test]
fn invalid_actions_are_errors() {
    let error = |text: &str| Action::parse(text, &["left", "right"]).unwrap_err().to_string();
    assert!(error("explode").contains("want count, drop, mirror:PORT or rewrite"));
    assert!(error("mirror:up").contains("the ports are left, right"));
    for text in [
        "rewrite:vlan=4096",
        "rewrite:dscp=64",
        "rewrite:destination=02:00",
        "rewrite:",
        "rewrite:ecn=4",
    ] {
        assert!(error(text).contains("is not a change; want destination=MAC"), "{text}");
    }
    assert!(
        error(&format!("rewrite:{}", ["vlan=1"; 9].join(",")))
            .contains("9 changes; 8 are the limit")
    );
}

fn tcp(port: u16, vlans: &[u16]) -> Vec<u8> {
    use etherparse::PacketBuilder;
    let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]);
    let mut frame = Vec::new();
    ethernet
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .tcp(40_000, port, 1, 1000)
        .syn()
        .write(&mut frame, &[])
        .unwrap();
    for vlan in vlans.iter().rev() {
        // The index chooses one of the known tag types.
        let kind: u16 = [0x8100, 0x88a8, 0x9100][usize::from(vlan % 3)];
        frame.splice(12..12, kind.to_be_bytes().into_iter().chain(vlan.to_be_bytes()));
    }
    frame
}

fn udp6(port: u16) -> Vec<u8> {
    use etherparse::PacketBuilder;
    let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]);
    let mut frame = Vec::new();
    let ip = ethernet.ipv6([0xfd; 16], [0xfe; 16], 64);
    ip.udp(40_000, port).write(&mut frame, b"GET /").unwrap();
    frame
}

/// Nearly valid frames of a few kinds, with some random bytes.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let port = prop_oneof![Just(80), Just(22), Just(53), Just(443), any::<u16>()];
    let base = prop_oneof![
        (port.clone(), prop::collection::vec(prop_oneof![Just(7), 0u16..4096], 0..3))
            .prop_map(|(p, v)| tcp(p, &v)),
        port.prop_map(udp6),
        prop::collection::vec(any::<u8>(), 0..120),
    ];
    let noise = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let payload = prop_oneof![
        Just(Vec::new()),
        Just(b"GET / HTTP".to_vec()),
        prop::collection::vec(any::<u8>(), 0..99)
    ];
    (base, noise, payload).prop_map(|(mut frame, noise, payload)| {
        frame.extend(payload);
        for (place, byte) in noise {
            if !frame.is_empty() {
                let place = place.index(frame.len());
                frame[place] = byte;
            }
        }
        frame
    })
}

fn change() -> impl Strategy<Value = Change> {
    let ecn = prop_oneof![
        Just(Ecn::NotCapable),
        Just(Ecn::Capable0),
        Just(Ecn::Capable1),
        Just(Ecn::Congested)
    ];
    prop_oneof![
        any::<[u8; 6]>().prop_map(Change::Destination),
        (0u16..4096).prop_map(Change::Vlan),
        (0u8..64).prop_map(Change::Dscp),
        ecn.prop_map(Change::Ecn),
    ]
}

/// Codes that are mostly valid.
fn any_code() -> impl Strategy<Value = u16> {
    const CODES: [u16; 14] =
        [0x00, 0x01, 0x20, 0x28, 0x30, 0x40, 0x50, 0x60, 0x61, 0x02, 0x03, 0xb1, 0x07, 0x87];
    prop_oneof![
        prop::sample::select(CODES.to_vec()),
        (0u16..11).prop_map(|kind| kind << 4 | 0x04),
        (0u16..11).prop_map(|kind| kind << 4 | 0x0c),
        (0u16..5).prop_map(|kind| kind << 4 | 0x05),
        (0u16..5).prop_map(|kind| kind << 4 | 0x0d),
        any::<u16>(),
    ]
}
