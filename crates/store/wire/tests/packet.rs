//! The packet header: it round-trips, and invalid ones are refused.

use proptest::prelude::*;
use sprat_wire::packet::{
    self, FROM_SERVER, HEADER_BYTES, HELD, Header, Kind, MAX_SLOTS, Malformed, Refusal,
};
use zerocopy::IntoBytes;

fn header(kind: u8, slot: u8, payload: u16) -> Header {
    Header {
        kind,
        slot,
        payload: payload.into(),
        session: 7.into(),
        token: 0xdead_beef.into(),
        sequence: 9.into(),
        offset: 10.into(),
        total: 11.into(),
    }
}

#[test]
fn layout_is_fixed() {
    let bytes =
        [1, 0x85, 3, 0, 7, 0, 0, 0, 0xef, 0xbe, 0xad, 0xde, 9, 0, 0, 0, 10, 0, 0, 0, 11, 0, 0, 0];
    assert_eq!(header(1, 5 | FROM_SERVER, 3).as_bytes(), bytes);
}

#[test]
fn flags_do_not_disturb_the_slot() {
    for slot in 0..MAX_SLOTS {
        let bits = u8::try_from(slot).unwrap();
        for (flags, from_server, held) in
            [(0, false, false), (FROM_SERVER, true, false), (HELD, false, true)]
        {
            let header = header(5, bits | flags, 0);
            assert_eq!(
                (header.slot_index(), header.from_server(), header.held()),
                (slot, from_server, held)
            );
        }
    }
}

#[test]
fn every_kind_and_refusal_has_one_number() {
    let kinds: Vec<u8> = (0..=255).filter(|&byte| Kind::try_from(byte).is_ok()).collect();
    assert_eq!(kinds, (1..=13).collect::<Vec<u8>>());
    for byte in kinds {
        assert_eq!(Kind::try_from(byte).unwrap() as u8, byte);
    }
    for word in 0..4 {
        assert_eq!(Refusal::try_from(word).unwrap() as u32, word);
    }
    assert_eq!(Refusal::try_from(4), Err(Malformed::Refusal(4)));
}

#[test]
fn short_and_truncated_frames_differ() {
    assert_eq!(packet::split(&[]).unwrap_err(), Malformed::Short(0));
    let bytes = header(4, 0, 2);
    assert_eq!(packet::split(&bytes.as_bytes()[..23]).unwrap_err(), Malformed::Short(23));
    assert_eq!(
        packet::split(bytes.as_bytes()).unwrap_err(),
        Malformed::Truncated { promised: 2, present: 0 }
    );
    assert_eq!(packet::split(header(99, 0, 0).as_bytes()).unwrap_err(), Malformed::Kind(99));
}

proptest! {
    #[test]
    fn packed_packets_come_apart_again(
        packets in prop::collection::vec(
            (1u8..=13, any::<u8>(), prop::collection::vec(any::<u8>(), 0..200)),
            0..20,
        ),
    ) {
        let mut frame = Vec::new();
        for (kind, slot, payload) in &packets {
            frame.extend_from_slice(
                header(*kind, *slot, u16::try_from(payload.len()).unwrap()).as_bytes(),
            );
            frame.extend_from_slice(payload);
        }
        let mut rest = &frame[..];
        for (kind, slot, payload) in &packets {
            let (packet, behind) = packet::split(rest).unwrap();
            prop_assert_eq!(
                (packet.kind as u8, packet.header.slot, packet.payload),
                (*kind, *slot, &payload[..])
            );
            rest = behind;
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn any_bytes_split_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok((packet, rest)) = packet::split(&bytes) {
            prop_assert_eq!(HEADER_BYTES + packet.payload.len() + rest.len(), bytes.len());
        }
    }
}
