//! Log entries: they round-trip, and damaged ones are refused.
#![allow(missing_docs, reason = "a test is no library")]

use proptest::prelude::*;
use sprat_wire::entry::{Entry, HEADER_BYTES, Kind, Malformed, Role, SegmentHeader, fill_gap};
use sprat_wire::expiry::{MAX_TIME, NEVER, Time};
use sprat_wire::value::{IncrementError, Number, ValueType};
use sprat_wire::{MAX_VALUE, MAX_VERSION};

fn bytes_of(entry: &Entry<'_>) -> Vec<u8> {
    let mut bytes = vec![0; entry.encoded_len()];
    assert_eq!(entry.encode(&mut bytes), bytes.len());
    bytes
}

/// Returns kinds of entries, each with when the entry expires.
fn kinds() -> impl Strategy<Value = (Kind, Time)> {
    prop_oneof![
        (Just(Kind::Object), prop_oneof![Just(NEVER), 1..=MAX_TIME]),
        Just((Kind::Tombstone, NEVER)),
        Just((Kind::Segment, NEVER)),
    ]
}

proptest! {
    #[test]
    fn an_entry_is_read_as_written(
        (kind, expires) in kinds(),
        successor: bool,
        table: u32,
        version in 0..=MAX_VERSION,
        key in prop::collection::vec(any::<u8>(), 0..300),
        value in prop::collection::vec(any::<u8>(), 0..3000),
        behind in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let entry = Entry {
            kind,
            successor,
            table,
            version,
            key: &key,
            value: &value,
            value_type: ValueType::Bytes,
            expires,
        };
        let mut bytes = bytes_of(&entry);
        let len = bytes.len();
        bytes.extend(behind);
        prop_assert_eq!(Entry::parse(&bytes), Ok(entry));
        prop_assert_eq!(Entry::parse_checked(&bytes), Ok(entry));
        for cut in 0..len {
            let is_truncated =
                matches!(Entry::parse(&bytes[..cut]), Err(Malformed::Truncated { .. }));
            prop_assert!(is_truncated, "cut to {} of {} bytes", cut, len);
        }
    }

    #[test]
    fn a_flipped_bit_is_noticed(
        value in prop::collection::vec(any::<u8>(), 0..300),
        at: prop::sample::Index,
        bit in 0..8u8,
    ) {
        let entry = Entry {
            kind: Kind::Object,
            successor: false,
            table: 7,
            version: 9,
            key: b"key",
            value: &value,
            value_type: ValueType::Bytes, expires: NEVER
        };
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
    fn a_gap_is_passed_over(
        len in prop_oneof![
            Just(0),
            HEADER_BYTES..5000,
            MAX_VALUE - 50..MAX_VALUE + 100,
            0..8usize << 20,
        ],
    ) {
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
    let entry = Entry {
        kind: Kind::Object,
        successor: true,
        table: 1,
        version: 2,
        key: b"k",
        value: b"vw",
        value_type: ValueType::Bytes,
        expires: NEVER,
    };
    let bytes = bytes_of(&entry);
    assert_eq!(
        bytes[4..],
        [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 0, 2, 0, 0x80 | 0x20, b'k', b'v', b'w']
    );
    assert_eq!(bytes[..4], crc32c::crc32c(&bytes[4..]).to_le_bytes());
}

/// Entries as programs wrote them before values had types: the 8 bytes of an integer counter, and
/// of a double counter.
const OLD_COUNTERS: [(&[u8], &[u8]); 2] =
    [(b"visits", b"\x05\0\0\0\0\0\0\0"), (b"heat", b"\0\0\0\0\0\0\xe0\x3f")];

#[test]
fn counters_from_before_types_are_read_and_take_a_type() {
    let entry = |key, value| Entry {
        kind: Kind::Object,
        successor: false,
        table: 1,
        version: 2,
        key,
        value,
        value_type: ValueType::Bytes,
        expires: NEVER,
    };
    for (key, value) in OLD_COUNTERS {
        let mut old = vec![
            0,
            0,
            0,
            0,
            1,
            0,
            0,
            0,
            2,
            0,
            0,
            0,
            0,
            0,
            u8::try_from(key.len()).unwrap(),
            0,
            8,
            0,
            0x20,
        ];
        old.extend(key.iter().chain(value));
        let crc = crc32c::crc32c(&old[4..]).to_le_bytes();
        old[..4].copy_from_slice(&crc);
        assert_eq!(Entry::parse_checked(&old), Ok(entry(key, value)));
        assert_eq!(bytes_of(&entry(key, value)), old, "plain bytes are encoded as before");
    }
    let [(_, five), (_, half)] = OLD_COUNTERS.map(|(key, value)| (key, (ValueType::Bytes, value)));
    assert_eq!(Number::Integer(1).added_to(Some(five)), Ok(Number::Integer(6)));
    assert_eq!(Number::Double(1.0).added_to(Some(half)), Ok(Number::Double(1.5)));
    assert_eq!(Number::Double(1.0).added_to(Some(five)), Err(IncrementError::NoDouble));
    let below_zero = (-5i64).to_le_bytes();
    assert_eq!(
        Number::Double(1.0).added_to(Some((ValueType::Bytes, &below_zero))),
        Err(IncrementError::NoDouble)
    );
}

#[test]
fn a_counter_has_a_type_where_its_length_stands() {
    for (number, length) in [(Number::Integer(-7), 1), (Number::Double(0.25), 2)] {
        let (value, value_type) = (number.bytes(), number.value_type());
        let entry = Entry {
            kind: Kind::Object,
            successor: false,
            table: 1,
            version: 2,
            key: b"k",
            value: &value,
            value_type,
            expires: NEVER,
        };
        let bytes = bytes_of(&entry);
        assert_eq!(bytes[16..19], [length, 0, 0x20 | 0x10], "1 MB and so much");
        assert_eq!(Entry::parse_checked(&bytes), Ok(entry));
        assert_eq!(Number::of(value_type, &value), Some(number));
        for kind in [0x40, 0x60] {
            let mut other = bytes.clone();
            other[18] = other[18] & 0x1f | kind;
            assert!(
                matches!(Entry::parse(&other), Err(Malformed::Length(_))),
                "only objects are counters"
            );
        }
        let mut longer = bytes;
        longer[16] = 4;
        assert_eq!(Entry::parse(&longer), Err(Malformed::Length(MAX_VALUE + 4)));
    }
}

#[test]
fn a_failed_increment_returns_its_reason() {
    let (integer, double) = (Number::Integer(1), Number::Double(1.0));
    let (most, small) = (i64::MAX.to_le_bytes(), 1e-310f64.to_le_bytes());
    let huge = 1e308f64.to_le_bytes();
    for (delta, present, sum) in [
        (integer, None, Ok(integer)),
        (double, None, Ok(double)),
        (integer, Some((ValueType::Double, &huge[..])), Err(IncrementError::IsDouble)),
        (double, Some((ValueType::Integer, &most[..])), Err(IncrementError::IsInteger)),
        (integer, Some((ValueType::Integer, &most[..])), Err(IncrementError::Overflow)),
        (integer, Some((ValueType::Bytes, &most[..])), Err(IncrementError::Overflow)),
        (integer, Some((ValueType::Bytes, b"seven b")), Err(IncrementError::Length)),
        (double, Some((ValueType::Bytes, b"")), Err(IncrementError::Length)),
        (
            Number::Double(1e308),
            Some((ValueType::Double, &huge[..])),
            Err(IncrementError::NotFinite),
        ),
        (Number::Double(f64::NAN), None, Err(IncrementError::NotFinite)),
        (Number::Double(f64::INFINITY), None, Err(IncrementError::NotFinite)),
        (Number::Double(0.0), Some((ValueType::Double, &small[..])), Ok(Number::Double(1e-310))),
        (double, Some((ValueType::Bytes, &[0; 8][..])), Ok(double)),
    ] {
        assert_eq!(delta.added_to(present), sum, "{delta:?} added to {present:?}");
    }
    for code in 0..=8 {
        let why = IncrementError::of_code(code);
        assert_eq!(why as u64, if code < 8 { code } else { 0 }, "{why}");
    }
}
