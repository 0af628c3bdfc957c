//! Frames: splitting a packet gives what a sender with a smaller offload would have sent. An
//! independent parser checks this.

use crate::support;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use sprat_lab::Time;
use sprat_lab::chance::salted;
use sprat_lab::frame::{Malformed, Packet, Received, VNET_BYTES, VnetHeader, parse};
use sprat_lab::memory::Memory;
use support::{Sample, packet};

/// What the independent parser reads from a frame with complete checksums.
#[derive(Debug, Eq, PartialEq)]
struct Parsed {
    sequence: u32,
    flags: u8,
    id: Option<u16>,
    payload: Vec<u8>,
}

fn parse_independently(bytes: &[u8]) -> Parsed {
    let sliced = SlicedPacket::from_ethernet(bytes).expect("the independent parser reads it");
    let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else { panic!("no TCP in {sliced:?}") };
    let header = tcp.to_header();
    let (id, right) = match sliced.net.as_ref().expect("a network layer") {
        NetSlice::Ipv4(v4) => {
            let ip = v4.header();
            assert_eq!(
                ip.to_header().calc_header_checksum(),
                ip.header_checksum(),
                "the header's checksum"
            );
            assert_eq!(usize::from(ip.total_len()), ip.slice().len() + tcp.slice().len());
            let right = header.calc_checksum_ipv4_raw(ip.source(), ip.destination(), tcp.payload());
            (Some(ip.identification()), right)
        }
        NetSlice::Ipv6(v6) => {
            let ip = v6.header();
            let right = header.calc_checksum_ipv6_raw(ip.source(), ip.destination(), tcp.payload());
            (None, right)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(right.expect("short enough"), header.checksum, "the checksum of TCP");
    let flags = tcp.slice()[13];
    Parsed { sequence: tcp.sequence_number(), flags, id, payload: tcp.payload().to_vec() }
}

/// Splits a packet into the frames that a wire would carry.
fn frames(packet: Packet, memory: &mut Memory) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut rest = packet;
    loop {
        let (mut one, more) = if rest.count() > 1 {
            let (one, more) = rest.split(1, memory).expect("memory");
            (one, Some(more))
        } else {
            (rest, None)
        };
        one.complete_checksum();
        all.push(one.to_vec()[VNET_BYTES..].to_vec());
        one.free(memory);
        match more {
            Some(more) => rest = more,
            None => return all,
        }
    }
}

fn samples() -> impl Strategy<Value = Sample> {
    (
        any::<bool>(),
        1u16..9000,
        1usize..60_000,
        any::<u32>(),
        any::<u16>(),
        any::<u8>(),
        0usize..3,
        any::<bool>(),
    )
        .prop_map(|(v6, mss, payload, sequence, id, flags, tags, options)| {
            // The kernel never makes very small segments. At most 300 of them keep the test short.
            let mss = mss.max(u16::try_from(payload / 300 + 1).expect("small"));
            Sample { v6, mss, payload, sequence, id, flags, tags, options, ..Sample::default() }
        })
}

proptest! {
    #[test]
    fn split_frames_are_what_a_wire_would_carry(sample in samples()) {
        let mut memory = Memory::of_cells(400);
        let whole = packet(&sample.bytes(), &mut memory);
        let segments = whole.frame().segments;
        let seen = frames(whole, &mut memory);
        prop_assert_eq!(memory.free(), memory.total());
        prop_assert_eq!(seen.len(), segments.count as usize);
        let wire: u64 = seen.iter().map(|frame| frame.len().max(60) as u64 + 24).sum();
        prop_assert_eq!(segments.wire_bytes(24), wire);
        let mut payload = Vec::new();
        for (at, frame) in seen.iter().enumerate() {
            let (first, last) = (at == 0, at + 1 == seen.len());
            let seen = parse_independently(frame);
            prop_assert_eq!(
                seen.sequence,
                sample.sequence.wrapping_add(u32::try_from(payload.len()).unwrap())
            );
            if let Some(id) = seen.id {
                prop_assert_eq!(id, sample.id.wrapping_add(u16::try_from(at).unwrap()));
            }
            let mut flags = sample.flags;
            if !first {
                flags &= !0x80
            }
            if !last {
                flags &= !0x09
            }
            prop_assert_eq!(seen.flags, flags);
            payload.extend(seen.payload);
        }
        prop_assert_eq!(payload, sample.payload_bytes());
    }

    /// Wherever a packet is split first, a wire carries the same frames.
    #[test]
    fn splitting_twice_gives_the_same_frames(
        sample in samples(),
        at in any::<prop::sample::Index>(),
        second in any::<prop::sample::Index>(),
    ) {
        let mut memory = Memory::of_cells(400);
        let bytes = sample.bytes();
        let whole = packet(&bytes, &mut memory);
        let count = whole.count();
        prop_assume!(count > 1);
        let expected = frames(whole, &mut memory);
        let cut = 1 + u32::try_from(at.index(count as usize - 1)).unwrap();
        let (front, rest) = packet(&bytes, &mut memory).split(cut, &mut memory).expect("memory");
        prop_assert_eq!(front.count() + rest.count(), count);
        let mut seen = frames(front, &mut memory);
        if rest.count() > 1 {
            let again = 1 + u32::try_from(second.index(rest.count() as usize - 1)).unwrap();
            let (middle, rest) = rest.split(again, &mut memory).expect("memory");
            seen.extend(frames(middle, &mut memory));
            seen.extend(frames(rest, &mut memory));
        } else {
            seen.extend(frames(rest, &mut memory));
        }
        prop_assert_eq!(&seen, &expected);
        let mut kept = packet(&bytes, &mut memory);
        kept.truncate(cut, &mut memory);
        prop_assert_eq!(&frames(kept, &mut memory)[..], &expected[..cut as usize]);
        prop_assert_eq!(memory.free(), memory.total());
    }

    /// The parts of a split packet are parsed to what their fields say.
    #[test]
    fn split_parts_parse(sample in samples(), at in any::<prop::sample::Index>()) {
        let mut memory = Memory::of_cells(100);
        let whole = packet(&sample.bytes(), &mut memory);
        prop_assume!(whole.count() > 1);
        let flow = whole.frame().flow;
        let cut = 1 + u32::try_from(at.index(whole.count() as usize - 1)).unwrap();
        let (front, rest) = whole.split(cut, &mut memory).expect("memory");
        // Only the first segment tells the peer that the congestion window was reduced.
        prop_assert_eq!(
            front.count() > 1 && sample.flags & 0x80 != 0,
            front.vnet().gso_type & 0x80 != 0
        );
        prop_assert_eq!(rest.vnet().gso_type & 0x80, 0);
        for part in [front, rest] {
            let bytes = part.to_vec();
            let parsed = parse(&bytes[..bytes.len().min(2000)], bytes.len());
            prop_assert_eq!(parsed, Ok(*part.frame()));
            prop_assert_eq!(part.frame().flow, flow);
            part.free(&mut memory);
        }
    }

    #[test]
    fn parsing_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        let mut memory = Memory::of_cells(100);
        if let Received::Packet(packet) = Packet::of(&bytes, &mut memory, Time::ZERO) {
            prop_assert_eq!(packet.to_vec(), bytes);
            packet.free(&mut memory);
        }
        prop_assert_eq!(memory.free(), memory.total());
    }

    /// One bit behind the Ethernet header differs, and the checksum is wrong.
    #[test]
    fn corrupt_flips_one_bit(sample in samples(), seed in any::<u64>()) {
        let sample = Sample { mss: 9000, payload: sample.payload % 9000 + 1, ..sample };
        let mut memory = Memory::of_cells(100);
        let mut packet = packet(&sample.bytes(), &mut memory);
        packet.complete_checksum();
        let before = packet.to_vec();
        packet.corrupt(&mut salted(seed, &[]));
        let after = packet.to_vec();
        let turned: u32 = before.iter().zip(&after).map(|(a, b)| (a ^ b).count_ones()).sum();
        prop_assert_eq!(turned, 1);
        let first = before.iter().zip(&after).position(|(a, b)| a != b).unwrap();
        prop_assert!(first >= VNET_BYTES + 14);
        prop_assert!(!packet.vnet().needs_checksum());
        packet.free(&mut memory);
    }
}

#[test]
fn flows_are_read_behind_tags_and_extensions() {
    let mut memory = Memory::of_cells(100);
    for (sample, expected) in [
        (Sample::default(), "tcp 10.0.0.1:1000 > 10.0.0.2:2000"),
        (Sample { tags: 2, ..Sample::default() }, "tcp 10.0.0.1:1000 > 10.0.0.2:2000"),
        (Sample { v6: true, ..Sample::default() }, "tcp [fd00::1]:1000 > [fd00::2]:2000"),
    ] {
        let packet = packet(&sample.bytes(), &mut memory);
        assert_eq!(packet.frame().flow.to_string(), expected);
        assert_eq!(packet.frame().vlan, (sample.tags > 0).then_some(7));
        packet.free(&mut memory);
    }
}

#[test]
fn fragments_have_no_ports() {
    let mut bytes = Sample { mss: 0, payload: 100, ..Sample::default() }.bytes();
    bytes[VNET_BYTES + 14 + 6] = 0x20; // more fragments follow
    let frame = parse(&bytes, bytes.len()).expect("a frame");
    assert_eq!(
        (frame.flow.source_port, frame.flow.destination_port, frame.flow.protocol),
        (0, 0, 6)
    );
}

#[test]
fn contradictory_headers_are_refused() {
    let good = Sample { mss: 1000, payload: 5000, ..Sample::default() }.bytes();
    assert!(parse(&good, good.len()).is_ok());
    let vnet = VnetHeader::read(&good).expect("ten bytes");
    let with = |change: &dyn Fn(&mut VnetHeader)| {
        let (mut changed, mut bytes) = (vnet, good.clone());
        change(&mut changed);
        bytes[..VNET_BYTES].copy_from_slice(&changed.bytes());
        parse(&bytes, bytes.len())
    };
    assert_eq!(with(&|vnet| vnet.gso_type = 9), Err(Malformed::Kind));
    assert_eq!(
        with(&|vnet| vnet.gso_type = 4),
        Err(Malformed::Segmentation),
        "IPv6, and it is IPv4"
    );
    assert_eq!(with(&|vnet| vnet.gso_size = 0), Err(Malformed::Segmentation));
    assert_eq!(with(&|vnet| vnet.flags = 0), Err(Malformed::Segmentation));
    assert_eq!(with(&|vnet| vnet.csum_start += 1), Err(Malformed::Segmentation));
    assert_eq!(with(&|vnet| vnet.csum_start = 60_000), Err(Malformed::Checksum));
    assert_eq!(parse(&good, good.len() - 1), Err(Malformed::Segmentation), "shorter than it says");
    assert_eq!(parse(&good[..VNET_BYTES + 13], VNET_BYTES + 13), Err(Malformed::Short));
    assert_eq!(parse(&good[..9], 9), Err(Malformed::Short));
    assert_eq!(parse(&good, 70_000), Err(Malformed::Long));
}

#[test]
fn exhausted_memory_is_reported() {
    let mut memory = Memory::of_cells(10);
    let long = Sample { payload: 40_000, ..Sample::default() }.bytes();
    assert!(matches!(Packet::of(&long, &mut memory, Time::ZERO), Received::Exhausted));
    assert_eq!((memory.free(), memory.least_free()), (10, 0));
    let short = packet(&Sample { payload: 18_000, ..Sample::default() }.bytes(), &mut memory);
    assert_eq!(memory.free(), 1);
    let short = short.split(3, &mut memory).expect_err("a cut may need two cells");
    assert!(short.copy(&mut memory).is_none());
    short.free(&mut memory);
    assert_eq!(memory.free(), 10);
}
