//! Sends frames to a running node that are wrong on every layer.

use sprat_chance::Chance;
use std::time::Duration;

use sprat_wire::packet::Header;
use zerocopy::IntoBytes as _;

use crate::load::mixed;
use crate::net::{Plug, alone, wait};
use crate::{metrics, over_a_cable, table, until, until_nothing_is_in_use};

/// Number of rounds, and number of frames in each: fewer than the device's ring holds.
const ROUNDS: u64 = 100;
const ROUND: usize = 150;

const NODE: [u8; 4] = [10, 97, 0, 1];
const STRANGER: [u8; 4] = [10, 97, 0, 66];
const PORT: u16 = 7;

const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const ICMP: u8 = 1;
const UDP: u8 = 17;

/// The expected reaction of a node to a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Expectation {
    /// The node counts the frame as foreign, malformed or corrupt.
    Refused,
    /// The node passes the frame to the RPC layer, which cannot parse it.
    Delivered,
    /// The node may answer the frame, update its neighbour table, or ignore the frame.
    Heard,
}

#[test]
fn malformed_frames_are_counted_and_harmless() {
    alone(|| {
        let (_folder, server, mut client) = over_a_cable();
        let table = table(&mut client, "t");
        mixed(&mut client, table, 200, 1);
        let (node, plug) = (Plug::of("s0").mac, Plug::of("c0"));
        let mut random = Chance::new(2015);
        let first = metrics();
        for round in 0..ROUNDS {
            let (before, mut wanted) = (metrics(), [0, 0]);
            for _ in 0..ROUND {
                let (frame, expectation) = frame(&mut random, node, plug.mac);
                until("there is room to send", || plug.send(&frame));
                wanted[0] += u64::from(expectation == Expectation::Refused);
                wanted[1] += u64::from(expectation == Expectation::Delivered);
            }
            until(&format!("{wanted:?} frames of round {round} are counted"), || {
                let now = metrics();
                let grown = |name: &str| now[name] - before[name];
                let refused = ["malformed", "foreign", "corrupt"]
                    .map(|why| grown(&format!("network_{why}_total")));
                refused.iter().sum::<u64>() >= wanted[0]
                    && grown("network_frames_in_total") >= wanted[1]
            });
        }
        let last = metrics();
        for name in [
            "network_malformed_total",
            "network_foreign_total",
            "network_corrupt_total",
            "rpc_malformed_total",
            "rpc_unknown_session_total",
        ] {
            let grown = last[name] - first[name];
            eprintln!("{name}: {grown}");
            assert!(grown >= 100, "{name} has grown by {grown}");
        }
        // The node still answers requests, and pings from the host that sent the garbage.
        let fresh = crate::table(&mut client, "afterwards");
        mixed(&mut client, fresh, 500, 2);
        let echo = ethernet(node, plug.mac, IPV4, &ipv4(ICMP, &icmp(8, &[1, 2, 3, 4, 5])));
        until("a ping is answered", || {
            plug.send(&echo);
            wait([&plug, &plug], Duration::from_millis(1));
            std::iter::from_fn(|| plug.receive())
                .any(|frame| frame.ends_with(&icmp(0, &[1, 2, 3, 4, 5])))
        });
        until_nothing_is_in_use();
        assert!(server.stop().success());
    });
}

/// Draws a frame from `own` to `node` that has something wrong.
fn frame(random: &mut Chance, node: [u8; 6], own: [u8; 6]) -> (Vec<u8>, Expectation) {
    use Expectation::{Delivered, Heard, Refused};
    let noise = bytes(random, 300);
    let whole = |ethertype, packet: &[u8]| ethernet(node, own, ethertype, packet);
    match random.modulo(17) {
        // Ethernet.
        0 => (whole(0x88b5, &noise), Refused),
        1 => (whole([IPV4, IPV6, ARP][random.index(3)], &noise[..noise.len().min(7)]), Refused),
        2 => (ethernet([2, 0, 0, 0, 0, 9], own, IPV4, &ipv4(UDP, &udp(PORT, &noise))), Refused),
        3 => (ethernet([0xff; 6], own, IPV4, &ipv4(UDP, &udp(PORT, &noise))), Refused),
        4 => (whole(VLAN, &[&[0, 42, 8, 0][..], &ipv4(UDP, &udp(PORT, &noise))].concat()), Refused),
        // ARP: cut short, or with one bit flipped, which may make it one of an unknown kind.
        5 => (whole(ARP, &arp(own)[..random.index(28)]), Refused),
        6 => {
            let mut message = arp(own);
            message[random.index(8)] ^= 1 << random.modulo(8);
            (whole(ARP, &message), Heard) // the flipped bit may have made a request an answer
        }
        // IPv4: a contradictory header, a wrong checksum, fragments, or unknown protocols.
        7 => (whole(IPV4, &spoil_ipv4(random, ipv4(UDP, &udp(PORT, &noise)))), Refused),
        8 => (whole(IPV4, &flip(random, ipv4(UDP, &udp(PORT, &noise)), 20)), Refused),
        9 => (whole(IPV4, &ipv4(3 + random.modulo(14).to_le_bytes()[0], &noise)), Refused),
        // IPv6 and its neighbour discovery, which this node does not support.
        10 => (whole(IPV6, &[&[0x60, 0, 0, 0, 0, 32, 58, 255][..], &noise].concat()), Refused),
        // UDP: lengths that do not fit, closed ports, or wrong checksums.
        11 => {
            let mut datagram = udp(PORT, &noise);
            let len: u16 = if random.one_in(2) { 7 } else { 60_000 };
            datagram[4..6].copy_from_slice(&len.to_be_bytes());
            (whole(IPV4, &ipv4(UDP, &datagram)), Refused)
        }
        12 => (whole(IPV4, &ipv4(UDP, &udp(PORT + 1, &noise))), Refused),
        13 => {
            let datagram = udp(PORT, &[&noise[..], &[1]].concat());
            (whole(IPV4, &ipv4(UDP, &flip(random, datagram, 8 + noise.len()))), Refused)
        }
        // ICMP.
        14 => (whole(IPV4, &ipv4(ICMP, &flip(random, icmp(8, &noise), 4 + noise.len()))), Refused),
        15 => (whole(IPV4, &ipv4(ICMP, &icmp(random.draw().to_le_bytes()[0], &noise))), Heard),
        // Correct datagrams with a senseless payload.
        _ => (whole(IPV4, &ipv4(UDP, &udp(PORT, &packet(random)))), Delivered),
    }
}

/// Draws a payload that is all noise, or that resembles a packet of the protocol but has an unknown
/// session, an unknown kind, or a payload that is cut short.
fn packet(random: &mut Chance) -> Vec<u8> {
    let mut packet = [bytes(random, 100), vec![0]].concat(); // an empty datagram does not count
    let kind = 1 + random.modulo(20).to_le_bytes()[0];
    if random.one_in(2) {
        let payload = bytes(random, 100);
        let len = u16::try_from(payload.len()).expect("short") + u16::from(random.one_in(3));
        let draw = |random: &mut Chance| {
            u32::from_le_bytes(*random.draw().to_le_bytes().first_chunk().expect("8 bytes")).into()
        };
        let header = Header {
            kind,
            slot: random.draw().to_le_bytes()[0],
            payload: len.into(),
            session: u32::from(random.modulo(3).to_le_bytes()[0]).into(),
            token: draw(random),
            sequence: draw(random),
            offset: draw(random),
            total: draw(random),
        };
        packet = [header.as_bytes(), &payload].concat();
    }
    packet
}

fn bytes(random: &mut Chance, most: usize) -> Vec<u8> {
    let len = random.index(most);
    (0..len).map(|_| random.draw().to_le_bytes()[0]).collect()
}

/// Flips one bit of the first `within` bytes, without correcting checksums.
fn flip(random: &mut Chance, mut packet: Vec<u8>, within: usize) -> Vec<u8> {
    packet[random.index(within)] ^= 1 << random.modulo(8);
    packet
}

/// Makes an IPv4 header wrong, but its checksum right.
fn spoil_ipv4(random: &mut Chance, mut packet: Vec<u8>) -> Vec<u8> {
    match random.modulo(5) {
        0 => packet[0] = 0x65,
        1 => packet[0] = 0x44,
        2 => packet[2..4].copy_from_slice(&60_000_u16.to_be_bytes()),
        3 => packet[2..4].copy_from_slice(&19_u16.to_be_bytes()),
        _ => packet[6] = 0x20 | random.modulo(0x20).to_le_bytes()[0],
    }
    packet[10..12].fill(0);
    let sum = checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum);
    packet
}

fn ethernet(to: [u8; 6], from: [u8; 6], ethertype: u16, packet: &[u8]) -> Vec<u8> {
    [&to[..], &from, &ethertype.to_be_bytes(), packet].concat()
}

fn arp(own: [u8; 6]) -> Vec<u8> {
    [&[0, 1, 8, 0, 6, 4, 0, 1][..], &own, &STRANGER, &[0; 6], &NODE].concat()
}

fn ipv4(protocol: u8, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(20 + body.len()).expect("short").to_be_bytes();
    let mut packet =
        [&[0x45, 0, len[0], len[1], 0, 0, 0x40, 0, 64, protocol, 0, 0][..], &STRANGER, &NODE]
            .concat();
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum);
    packet.extend_from_slice(body);
    packet
}

fn udp(port: u16, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 + body.len()).expect("short").to_be_bytes();
    let mut datagram =
        [&4000_u16.to_be_bytes()[..], &port.to_be_bytes(), &len, &[0, 0], body].concat();
    let sum = checksum(&[&STRANGER[..], &NODE, &[0, UDP], &len, &datagram].concat());
    datagram[6..8].copy_from_slice(&if sum == [0, 0] { [0xff, 0xff] } else { sum });
    datagram
}

fn icmp(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = [&[kind, 0, 0, 0][..], body].concat();
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum);
    message
}

/// Computes the Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!u16::try_from(sum).expect("folded")).to_be_bytes()
}
