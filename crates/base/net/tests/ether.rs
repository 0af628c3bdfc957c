//! Tests the host on Ethernet against another host and against frames of all kinds.

#![allow(clippy::cast_possible_truncation, reason = "lengths and sums here are small")]

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use proptest::prelude::*;
use sprat_net::ether::{
    Checksums, EtherHost, FrameEvent, HostSettings, LinkSettings, MAX_HEADERS, Unroutable,
    group_mac, port_of,
};
use sprat_net::{Counters, Mac, Nanos};

const MTU: usize = 1500;

fn mac(number: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, number])
}

fn settings(address: &str) -> HostSettings {
    HostSettings {
        address: address.parse().expect("an address"),
        prefix: 0,
        gateway: None,
        vlan: None,
        mtu: MTU,
    }
}

fn link(number: u8) -> LinkSettings {
    LinkSettings { mac: mac(number), checksums: Checksums::Software }
}

/// A host and its counters.
struct Node {
    host: EtherHost,
    counters: Counters,
}

impl Node {
    fn new(settings: HostSettings, number: u8) -> Self {
        Self { host: EtherHost::new(settings, &[link(number)]), counters: Counters::default() }
    }

    fn read(&mut self, frame: &[u8]) -> FrameEvent {
        self.host.read(0, frame, false, &mut self.counters)
    }

    /// Composes a frame with a datagram to a peer whose hardware address is known.
    fn frame(&mut self, peer: SocketAddr, payload: &[u8]) -> Vec<u8> {
        let route = self.host.route(peer, || Nanos(0)).expect("a known peer");
        let mut frame = vec![0; route.len() + payload.len()];
        frame[route.len()..].copy_from_slice(payload);
        route.finish(&mut frame);
        frame
    }

    fn address(&self) -> SocketAddr {
        self.host.address()
    }
}

/// Lets `a` resolve `b` by a solicitation and its reply.
fn introduce(a: &mut Node, b: &mut Node) {
    let peer = b.address();
    assert_eq!(a.host.route(peer, || Nanos(0)).map(drop), Err(Unroutable::Resolving(true)));
    let solicitation = a.host.solicitation(peer.ip(), 0).to_vec();
    assert_eq!(b.read(&solicitation), FrameEvent::Request);
    let answer = b.host.reply().to_vec();
    assert_eq!(a.read(&answer), FrameEvent::Nothing);
    assert!(a.host.is_settled());
}

fn pair(first: HostSettings, second: HostSettings) -> (Node, Node) {
    let (mut a, mut b) = (Node::new(first, 1), Node::new(second, 2));
    introduce(&mut a, &mut b);
    (a, b)
}

const PAIRS: [[&str; 2]; 2] =
    [["10.0.0.1:7000", "10.0.0.2:7001"], ["[fd00::1]:7000", "[fd00::2]:7001"]];

#[test]
fn datagrams_of_all_sizes_arrive_and_are_answered() {
    for [first, second] in PAIRS {
        for vlan in [None, Some(77)] {
            let (mut a, mut b) = pair(
                HostSettings { vlan, ..settings(first) },
                HostSettings { vlan, ..settings(second) },
            );
            let most = a.host.mtu(b.address().ip());
            for len in [1, 2, 3, 63, 100, most - 1, most] {
                let payload: Vec<u8> = (0..len).map(|at| (at * 7 % 251) as u8).collect();
                let frame = a.frame(b.address(), &payload);
                assert!(frame.len() - len <= MAX_HEADERS);
                let FrameEvent::Datagram { from, payload: range } = b.read(&frame) else {
                    panic!("{first} {len}")
                };
                assert_eq!((from, &frame[range]), (a.address(), &payload[..]));
                // A host that has received a datagram need not resolve its sender.
                let frame = b.frame(a.address(), &payload);
                let FrameEvent::Datagram { from, payload: range } = a.read(&frame) else {
                    panic!("{first} {len}")
                };
                assert_eq!((from, &frame[range]), (b.address(), &payload[..]));
            }
            assert_eq!((a.counters.malformed, b.counters.corrupt, b.counters.foreign), (0, 0, 0));
        }
    }
}

#[test]
fn the_port_a_frame_is_for_is_seen_at_a_glance() {
    for [first, second] in PAIRS {
        for vlan in [None, Some(7)] {
            let tagged = |address| HostSettings { vlan, ..settings(address) };
            let (mut a, mut b) = pair(tagged(first), tagged(second));
            let frame = a.frame(b.address(), b"datagram");
            assert_eq!(port_of(&frame), Some(7001));
            let end = frame.len() - b"datagram".len();
            for len in 0..frame.len() {
                // `port_of` reads nothing after the ports. A frame that is cut before them has no
                // port.
                assert_eq!(port_of(&frame[..len]), (len + 4 >= end).then_some(7001), "{len} bytes");
            }
            assert_eq!(port_of(a.host.solicitation(b.address().ip(), 0)), None);
            let (_, echo) = a.host.echo(b.address().ip(), 1, 64, Nanos(0)).expect("a known peer");
            assert_eq!(port_of(echo), None);
            let event = b.read(&frame);
            assert!(matches!(event, FrameEvent::Datagram { .. }), "{event:?}");
        }
    }
}

#[test]
fn what_is_for_others_is_passed_over() {
    let (mut a, mut b) = pair(settings("10.0.0.1:7"), settings("10.0.0.2:8"));
    let frame = a.frame(b.address(), b"for b");
    let mut other = Node::new(settings("10.0.0.3:8"), 3);
    assert_eq!(other.read(&frame), FrameEvent::Nothing);
    assert_eq!(other.counters.foreign, 1, "the frame is for another host");
    let mut port = Node::new(settings("10.0.0.2:9"), 2);
    assert_eq!(port.read(&frame), FrameEvent::Nothing, "another port");
    let mut tagged = Node::new(HostSettings { vlan: Some(5), ..settings("10.0.0.2:8") }, 2);
    assert_eq!(tagged.read(&frame), FrameEvent::Nothing, "another network");
    let solicitation = a.host.solicitation("10.0.0.9".parse().expect("an address"), 0).to_vec();
    assert_eq!(b.read(&solicitation), FrameEvent::Nothing, "the solicitation is for another host");
    assert!(matches!(b.read(&frame), FrameEvent::Datagram { .. }));
}

#[test]
fn a_flipped_bit_is_never_taken_for_the_truth() {
    for [first, second] in PAIRS {
        let (mut a, mut b) = pair(settings(first), settings(second));
        let payload = b"what was sent";
        let frame = a.frame(b.address(), payload);
        for bit in 0..frame.len() * 8 {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            if let FrameEvent::Datagram { from, payload: range } = b.read(&damaged) {
                // No checksum covers the sender's hardware address, or the traffic class, hop limit
                // and flow label in the IPv6 header.
                assert_eq!(
                    (from, &damaged[range]),
                    (a.address(), &payload[..]),
                    "bit {bit} of {first}"
                );
                let class_and_flow =
                    from.is_ipv6() && ((112..116).contains(&bit) || (120..144).contains(&bit));
                let hops = from.is_ipv6() && (168..176).contains(&bit);
                assert!((48..96).contains(&bit) || class_and_flow || hops, "bit {bit} of {first}");
            }
        }
        assert!(b.counters.corrupt > 0 && b.counters.foreign > 0);
    }
}

#[test]
fn echoes_are_answered_and_their_answers_known() {
    for [first, second] in PAIRS {
        let (mut a, mut b) = pair(settings(first), settings(second));
        for len in [4, 5, 64, 1400] {
            let (_, frame) =
                a.host.echo(b.address().ip(), 0xdead_beef, len, Nanos(0)).expect("a known peer");
            let frame = frame.to_vec();
            assert_eq!(b.read(&frame), FrameEvent::Request);
            let answer = b.host.reply().to_vec();
            assert_eq!(answer.len(), frame.len());
            assert_eq!(
                a.read(&answer),
                FrameEvent::EchoReply { from: b.address().ip(), number: 0xdead_beef }
            );
        }
    }
}

#[test]
fn a_silent_neighbour_is_asked_for_again_and_then_no_more() {
    let mut a = Node::new(settings("10.0.0.1:7"), 1);
    let peer: SocketAddr = "10.0.0.2:8".parse().expect("an address");
    assert_eq!(a.host.route(peer, || Nanos(0)).map(drop), Err(Unroutable::Resolving(true)));
    assert_eq!(
        a.host.route(peer, || Nanos(0)).map(drop),
        Err(Unroutable::Resolving(false)),
        "the resolution has already begun"
    );
    let mut solicited = Vec::new();
    for millis in 0..5000 {
        while let Some(ip) = a.host.take_due(Nanos(0) + Duration::from_millis(millis)) {
            assert_eq!(ip, peer.ip());
            solicited.push(millis);
        }
    }
    assert_eq!(solicited, [5, 25, 125, 525], "waits grow");
    // A later frame starts the resolution again.
    assert_eq!(a.host.route(peer, || Nanos(0)).map(drop), Err(Unroutable::Resolving(true)));
}

#[test]
fn what_is_far_goes_to_the_gateway() {
    let gateway: IpAddr = "10.0.0.254".parse().expect("an address");
    let mut a =
        Node::new(HostSettings { prefix: 24, gateway: Some(gateway), ..settings("10.0.0.1:7") }, 1);
    let mut router = Node::new(settings("10.0.0.254:1"), 9);
    introduce(&mut a, &mut router);
    let far: SocketAddr = "192.0.2.7:8".parse().expect("an address");
    let frame = a.frame(far, b"far away");
    assert_eq!(frame[..6], mac(9).0, "to the router's hardware address");
    let mut there = Node::new(settings("192.0.2.7:8"), 9);
    assert!(
        matches!(there.read(&frame), FrameEvent::Datagram { .. }),
        "the frame is for the far peer"
    );
    // Datagrams through the gateway teach nothing about neighbours.
    let mut there = Node::new(settings("192.0.2.7:8"), 9);
    introduce(&mut there, &mut Node::new(settings("10.0.0.1:7"), 1));
    let answer = there.frame(a.address(), b"back");
    assert!(matches!(a.read(&answer), FrameEvent::Datagram { from, .. } if from == far));
    assert_eq!(a.frame(far, b"again")[..6], mac(9).0);
    let near: SocketAddr = "10.0.0.77:8".parse().expect("an address");
    assert!(
        matches!(a.host.route(near, || Nanos(0)), Err(Unroutable::Resolving(true))),
        "an address of our subnet is resolved, not sent to the router"
    );
}

#[test]
fn the_family_must_fit() {
    let mut a = Node::new(settings("10.0.0.1:7"), 1);
    let peer: SocketAddr = "[fd00::2]:8".parse().expect("an address");
    assert_eq!(a.host.route(peer, || Nanos(0)).map(drop), Err(Unroutable::Family));
}

#[test]
fn a_neighbour_that_moves_is_followed() {
    let (mut a, b) = pair(settings("10.0.0.1:7"), settings("10.0.0.2:8"));
    assert_eq!(a.frame(b.address(), b"x")[..6], mac(2).0);
    let mut b = Node::new(settings("10.0.0.2:8"), 2);
    let mut moved = Node::new(settings("10.0.0.2:8"), 5);
    introduce(&mut moved, &mut a);
    assert_eq!(a.frame(b.address(), b"x")[..6], mac(5).0);
    // Datagrams from the neighbour, without a reply to a solicitation, have the same effect.
    introduce(&mut b, &mut a);
    let frame = b.frame(a.address(), b"here");
    assert!(matches!(a.read(&frame), FrameEvent::Datagram { .. }));
    assert_eq!(a.frame(b.address(), b"x")[..6], mac(2).0);
}

#[test]
fn a_host_that_takes_over_an_address_announces_it() {
    for [first, second] in PAIRS {
        let (mut a, b) = pair(settings(first), settings(second));
        let mut heir = Node::new(settings(second), 5);
        let announcement = heir.host.announcement(0).to_vec();
        let everybody = if a.address().is_ipv4() { [0xff; 6] } else { [0x33, 0x33, 0, 0, 0, 1] };
        assert_eq!(announcement[..6], everybody);
        if a.address().is_ipv6() {
            let (kind, flags) = (announcement[54], announcement[58]);
            assert_eq!(
                (kind, flags),
                (136, 0x20),
                "an unsolicited advertisement that overrides old entries"
            );
        }
        assert_eq!(a.read(&announcement), FrameEvent::Nothing, "an announcement is not answered");
        assert_eq!(a.frame(b.address(), b"x")[..6], mac(5).0);
        let mut stranger = Node::new(settings(first), 6);
        assert_eq!(stranger.read(&announcement), FrameEvent::Nothing);
        assert_eq!(
            stranger.host.route(b.address(), || Nanos(0)).map(drop),
            Err(Unroutable::Resolving(true))
        );
        // A link that was down may lead to another network now.
        assert!(!a.host.set_link(0, false) && a.host.set_link(0, true));
        assert_eq!(
            a.host.route(b.address(), || Nanos(0)).map(drop),
            Err(Unroutable::Resolving(true))
        );
    }
}

#[test]
fn two_links_share_peers_and_stand_in_for_one_another() {
    let mut a = EtherHost::new(settings("10.0.0.1:7"), &[link(1), link(11)]);
    let mut counters = Counters::default();
    let mut used = [0; 2];
    let peers: Vec<SocketAddr> =
        (2..34).map(|last| format!("10.0.0.{last}:8").parse().expect("an address")).collect();
    for &peer in &peers {
        let mut b = EtherHost::new(
            HostSettings { address: peer, ..settings("10.0.0.2:8") },
            &[link(50), link(51)],
        );
        for at in 0..2 {
            let solicitation = b.solicitation(a.address().ip(), at).to_vec();
            assert_eq!(a.read(at, &solicitation, false, &mut counters), FrameEvent::Request);
        }
        used[a.route(peer, || Nanos(0)).expect("known").link()] += 1;
    }
    assert!(used[0] > 8 && used[1] > 8, "{used:?}");
    a.set_link(1, false);
    assert!(peers.iter().all(|&peer| a.route(peer, || Nanos(0)).expect("known").link() == 0));
    a.set_link(0, false);
    assert!(a.route(peers[0], || Nanos(0)).is_ok(), "a link that is down is better than none");
}

/// Two hosts with two cables between them. Each direction of each cable may lose all frames.
struct Cables {
    hosts: [EtherHost; 2],
    counters: Counters,
    /// Whether frames are lost, by sender and link.
    broken: [[bool; 2]; 2],
    now: Nanos,
}

impl Cables {
    fn new(pair: [&str; 2]) -> Self {
        let host = |at: usize| {
            EtherHost::new(settings(pair[at]), &[link(10 * at as u8), link(10 * at as u8 + 1)])
        };
        let hosts = [host(0), host(1)];
        let mut cables =
            Self { hosts, counters: Counters::default(), broken: [[false; 2]; 2], now: Nanos(1) };
        for from in 0..2 {
            for at in 0..2 {
                let other = cables.hosts[1 - from].address().ip();
                let solicitation = cables.hosts[from].solicitation(other, at).to_vec();
                cables.carry(from, at, &solicitation);
            }
        }
        cables
    }

    fn carry(&mut self, from: usize, at: usize, frame: &[u8]) -> bool {
        if self.broken[from][at] {
            return false;
        }
        match self.hosts[1 - from].read(at, frame, false, &mut self.counters) {
            FrameEvent::Request => {
                let answer = self.hosts[1 - from].reply().to_vec();
                self.carry(1 - from, at, &answer);
                false
            }
            event => matches!(event, FrameEvent::Datagram { .. }),
        }
    }

    /// Sends a datagram. Returns the link it took, and whether it arrived.
    fn send(&mut self, from: usize, len: usize) -> (usize, bool) {
        let peer = self.hosts[1 - from].address();
        let route = self.hosts[from].route_of(peer, len, || Nanos(0)).expect("known");
        let (at, mut frame) = (route.link(), vec![0; route.len() + len]);
        route.finish(&mut frame);
        (at, self.carry(from, at, &frame))
    }

    /// Advances time by a millisecond.
    fn tick(&mut self) {
        self.now = self.now + Duration::from_millis(1);
        for from in 0..2 {
            let mut probes = Vec::new();
            self.hosts[from].watch(self.now, |at, frame| probes.push((at, frame.to_vec())));
            for (at, frame) in probes {
                self.carry(from, at, &frame);
            }
        }
    }
}

#[test]
fn long_datagrams_take_all_links_and_short_ones_their_own() {
    for pair in PAIRS {
        let mut cables = Cables::new(pair);
        let own = cables.send(0, 100).0;
        assert!((0..10).all(|_| cables.send(0, 100).0 == own));
        let used: Vec<_> = (0..10).map(|_| cables.send(0, 1400).0).collect();
        assert_eq!(used.iter().filter(|&&at| at == 0).count(), 5, "{used:?}");
        let peer = cables.hosts[1].address();
        cables.hosts[0].set_link(own, false);
        assert!((0..10).all(|_| cables.send(0, 1400) == (1 - own, true)), "{peer}");
    }
}

#[test]
fn a_link_that_swallows_frames_in_silence_is_left_within_100_ms_and_taken_up_again() {
    for pair in PAIRS {
        for directions in [&[0][..], &[1], &[0, 1]] {
            let mut cables = Cables::new(pair);
            let own = cables.send(0, 100).0;
            // A request and its reply, as calls do.
            let call = |cables: &mut Cables| cables.send(0, 100).1 && cables.send(1, 100).1;
            for _ in 0..300 {
                assert!(call(&mut cables));
                cables.tick();
            }
            assert_eq!(cables.send(0, 100).0, own, "a link that works is kept");
            for at in 0..2 {
                let mut cables = Cables::new(pair);
                directions.iter().for_each(|&from| cables.broken[from][at] = true);
                let mut lost = 0;
                for _ in 0..2000 {
                    lost += u32::from(!call(&mut cables));
                    cables.tick();
                }
                assert!(lost < 100, "{lost} ms with link {at} broken from {directions:?}");
                assert!(lost == 0 || cables.hosts.iter().any(EtherHost::is_watching));
                cables.broken = [[false; 2]; 2];
                (0..600).for_each(|_| {
                    assert!(call(&mut cables));
                    cables.tick();
                });
                assert_eq!(cables.send(0, 100).0, own, "its own link is used again");
                let links: Vec<_> = (0..2).map(|_| cables.send(1, 1400).0).collect();
                assert_ne!(links[0], links[1], "the other host uses both links again");
            }
        }
    }
}

#[test]
fn a_peer_silent_on_all_links_keeps_the_last() {
    let mut cables = Cables::new(PAIRS[0]);
    cables.broken = [[true; 2]; 2];
    for _ in 0..3000 {
        assert!(!cables.send(0, 100).1);
        cables.tick();
    }
    cables.broken = [[false; 2]; 2];
    assert!((0..20).any(|_| {
        cables.tick();
        cables.send(0, 100).1
    }));
}

#[test]
fn a_narrow_path_is_believed_within_reason() {
    let (mut a, b) =
        pair(HostSettings { mtu: 9000, ..settings("10.0.0.1:7") }, settings("10.0.0.2:8"));
    let peer = b.address().ip();
    let full = a.host.mtu(peer);
    assert_eq!(full, 9000 - 28);
    // A router's ICMP message "fragmentation needed" (type 3, code 4) about a packet of ours, with
    // the packet's header quoted.
    let complain = |a: &mut Node, mtu: u16, quoted_source: [u8; 4]| {
        let mut icmp = vec![3, 4, 0, 0, 0, 0];
        icmp.extend_from_slice(&mtu.to_be_bytes());
        icmp.extend_from_slice(&[0x45, 0, 0x20, 0, 0, 0, 0x40, 0, 64, 17, 0, 0]);
        icmp.extend_from_slice(&quoted_source);
        icmp.extend_from_slice(&[10, 0, 0, 2, 0, 7, 0, 8, 0, 0, 0, 0]);
        let sum = checksum(&icmp);
        icmp[2..4].copy_from_slice(&sum);
        let total = (20 + icmp.len()) as u16;
        let mut ip = vec![
            0x45,
            0,
            (total >> 8) as u8,
            total as u8,
            0,
            0,
            0,
            0,
            64,
            1,
            0,
            0,
            10,
            0,
            0,
            9,
            10,
            0,
            0,
            1,
        ];
        let sum = checksum(&ip);
        ip[10..12].copy_from_slice(&sum);
        let mut frame = [mac(1).0, mac(9).0].concat();
        frame.extend_from_slice(&[8, 0]);
        frame.extend_from_slice(&ip);
        frame.extend_from_slice(&icmp);
        assert_eq!(a.read(&frame), FrameEvent::Nothing);
    };
    complain(&mut a, 100, [10, 0, 0, 1]);
    assert_eq!(a.host.mtu(peer), full, "an MTU that no path can have is ignored");
    complain(&mut a, 1400, [10, 9, 9, 9]);
    assert_eq!(a.host.mtu(peer), full, "the error is not about a packet of ours");
    complain(&mut a, 1400, [10, 0, 0, 1]);
    assert_eq!(a.host.mtu(peer), 1400 - 28);
    assert_eq!(a.counters.corrupt + a.counters.malformed, 0);
}

/// The checksum of RFC 1071 in its simplest form.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!sum as u16).to_be_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn checksums_are_those_of_the_standard(payload in prop::collection::vec(any::<u8>(), 1..1400)) {
        let (mut a, b) = pair(settings("10.0.0.1:7"), settings("10.0.0.2:8"));
        let frame = a.frame(b.address(), &payload);
        prop_assert_eq!(checksum(&frame[14..34]), [0, 0]);
        let mut covered = frame[26..34].to_vec();
        covered.extend_from_slice(&[0, 17]);
        covered.extend_from_slice(&((8 + payload.len()) as u16).to_be_bytes());
        covered.extend_from_slice(&frame[34..]);
        prop_assert_eq!(checksum(&covered), [0, 0]);
    }

    #[test]
    fn no_bytes_do_harm(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8),
        head in 0..3usize,
    ) {
        let (mut a, _) = pair(settings("10.0.0.1:7"), settings("10.0.0.2:8"));
        for rest in frames {
            let mut frame = mac(1).0.to_vec();
            frame.extend_from_slice(&[2, 0, 0, 0, 0, 9]);
            frame.extend_from_slice([&[8, 0][..], &[8, 6], &[0x86, 0xdd]][head]);
            frame.extend_from_slice(&rest);
            if let FrameEvent::Datagram { payload, .. } = a.read(&frame) {
                prop_assert!(payload.end <= frame.len());
            }
        }
    }

    #[test]
    fn no_mutation_does_harm(
        edits in prop::collection::vec((0..200usize, any::<u8>()), 1..6),
        cut in 0..200usize,
    ) {
        for [first, second] in PAIRS {
            let (mut a, mut b) = pair(settings(first), settings(second));
            let echo = a.host.echo(b.address().ip(), 1, 60, Nanos(0)).expect("known").1.to_vec();
            let solicitation = a.host.solicitation(b.address().ip(), 0).to_vec();
            for mut frame in [a.frame(b.address(), &[7; 100]), echo, solicitation] {
                for &(at, value) in &edits {
                    if let Some(byte) = frame.get_mut(at) {
                        *byte = value;
                    }
                }
                frame.truncate(cut.max(1));
                let _ = b.read(&frame);
            }
        }
    }
}

#[test]
fn a_host_of_ipv6_is_looked_for_in_its_group() {
    // The example of RFC 4291, 2.7.1, with the hardware address derived from it by RFC 2464, 7.
    let host: IpAddr = "4037::1:800:200e:8c6c".parse().expect("an address");
    assert_eq!(group_mac(host), Some(Mac([0x33, 0x33, 0xff, 0x0e, 0x8c, 0x6c])));
    assert_eq!(group_mac("10.0.0.1".parse().expect("an address")), None);

    // A neighbour's solicitation goes to that group.
    let mut soliciting = Node::new(settings("[fd00::1]:7"), 1);
    let solicitation = soliciting.host.solicitation("fd00::2".parse().expect("an address"), 0);
    assert_eq!(
        Some(Mac(solicitation[..6].try_into().expect("six"))),
        group_mac("fd00::2".parse().expect("an address"))
    );
}
