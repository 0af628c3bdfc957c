//! Entries: what is written is read, and nothing else is.
#![allow(missing_docs, reason = "a test is no library")]

use proptest::prelude::*;
use sprat_wire::entry::{Entry, HEADER_BYTES, Kind, Malformed, Role, SegmentHeader, fill_gap};
use sprat_wire::{MAX_VALUE, MAX_VERSION};

fn bytes_of(entry: &Entry<'_>) -> Vec<u8> {
    let mut bytes = vec![0; entry.encoded_len()];
    assert_eq!(entry.encode(&mut bytes), bytes.len());
    bytes
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Object), Just(Kind::Tombstone), Just(Kind::Segment)]
}

proptest! {
    #[test]
    fn an_entry_is_read_as_written(
        kind in kinds(),
        successor: bool,
        table: u32,
        version in 0..=MAX_VERSION,
        key in prop::collection::vec(any::<u8>(), 0..300),
        value in prop::collection::vec(any::<u8>(), 0..3000),
        behind in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let entry = Entry { kind, successor, table, version, key: &key, value: &value };
        let mut bytes = bytes_of(&entry);
        let len = bytes.len();
        bytes.extend(behind);
        prop_assert_eq!(Entry::parse(&bytes), Ok(entry));
        prop_assert_eq!(Entry::parse_checked(&bytes), Ok(entry));
        for cut in 0..len {
            let is_truncated = matches!(Entry::parse(&bytes[..cut]), Err(Malformed::Truncated { .. }));
            prop_assert!(is_truncated, "cut to {} of {} bytes", cut, len);
        }
    }

    #[test]
    fn a_flipped_bit_is_noticed(value in prop::collection::vec(any::<u8>(), 0..300), at: prop::sample::Index, bit in 0..8u8) {
        let entry = Entry { kind: Kind::Object, successor: false, table: 7, version: 9, key: b"key", value: &value };
        let mut bytes = bytes_of(&entry);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(Entry::parse_checked(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Entry::parse_checked(&bytes);
        let _ = SegmentHeader::parse(&bytes);
        if let Ok(entry) = Entry::parse(&bytes) {
            prop_assert!(entry.encoded_len() <= bytes.len());
        }
    }

    #[test]
    fn a_gap_is_passed_over(len in prop_oneof![Just(0), HEADER_BYTES..5000, MAX_VALUE - 50..MAX_VALUE + 100, 0..8usize << 20]) {
        prop_assume!(len == 0 || len >= HEADER_BYTES);
        let mut gap = vec![0xAA; len];
        fill_gap(&mut gap);
        let mut at = 0;
        while at < len {
            let entry = Entry::parse(&gap[at..]).unwrap();
            prop_assert_eq!(entry.kind, Kind::Segment);
            at += entry.encoded_len();
        }
        prop_assert_eq!(at, len);
    }

    #[test]
    fn a_segment_header_is_read_as_written(
        id: u64,
        safe_version in 0..=MAX_VERSION,
        head: bool,
        digest in prop::collection::btree_set(any::<u64>(), 0..50),
    ) {
        let role = if head { Role::Head } else { Role::Survivor };
        let header = SegmentHeader { id, safe_version, role, digest: digest.into_iter().collect() };
        let bytes = header.encode();
        prop_assert_eq!(SegmentHeader::parse(&bytes), Some(header));
        prop_assert!(SegmentHeader::parse(&bytes[..bytes.len() - 1]).is_none());
        prop_assert!(SegmentHeader::parse(&bytes[..16]).is_none());
    }
}

#[test]
fn the_layout_does_not_change() {
    let entry = Entry { kind: Kind::Object, successor: true, table: 1, version: 2, key: b"k", value: b"vw" };
    let bytes = bytes_of(&entry);
    assert_eq!(bytes[4..], [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 0, 2, 0, 0x80 | 0x20, b'k', b'v', b'w']);
    assert_eq!(bytes[..4], crc32c::crc32c(&bytes[4..]).to_le_bytes());
}
