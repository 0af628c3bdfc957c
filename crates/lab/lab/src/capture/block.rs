//! Blocks of pcapng (draft-ietf-opsawg-pcapng), little endian.
//!
//! ```text
//! type 4 | total length 4 | body, filled up to 4 | total length 4
//! option: code 2 | length 2 | value, filled up to 4; code 0 ends the list
//! ```

/// Bytes that a packet's block takes in addition to the packet and the comment.
pub(super) const PACKET_OVERHEAD: usize = 32;

/// Bytes reserved for a packet's comment.
pub(super) const MAX_COMMENT: usize = 96;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

const ETHERNET: u16 = 1;

/// Writes the block that begins a file.
pub(super) fn section(to: &mut Vec<u8>) {
    block(to, SECTION, |to| {
        to.extend(0x1a2b_3c4d_u32.to_le_bytes());
        to.extend(1u16.to_le_bytes());
        to.extend(0u16.to_le_bytes());
        to.extend(u64::MAX.to_le_bytes()); // length unknown
        option(to, 4, concat!("sprat ", env!("CARGO_PKG_VERSION")).as_bytes());
        option(to, 0, &[]);
    });
}

/// Writes an interface's block. Interfaces are numbered in the order in which they are written.
pub(super) fn interface(to: &mut Vec<u8>, name: &str, snap: u32) {
    block(to, INTERFACE, |to| {
        to.extend(ETHERNET.to_le_bytes());
        to.extend(0u16.to_le_bytes());
        to.extend(snap.to_le_bytes());
        option(to, 2, name.as_bytes());
        option(to, 9, &[9]); // stamps in units of 10^-9 s
        option(to, 0, &[]);
    });
}

/// Writes the counters of an interface: packets seen, and how many of these the capture lacks.
pub(super) fn statistics(to: &mut Vec<u8>, interface: u32, at: u64, seen: u64, dropped: u64) {
    block(to, STATISTICS, |to| {
        to.extend(interface.to_le_bytes());
        to.extend(stamp(at));
        option(to, 4, &seen.to_le_bytes());
        option(to, 5, &dropped.to_le_bytes());
        option(to, 0, &[]);
    });
}

/// Writes a packet's block: `captured` bytes, in parts, of a packet of `length` bytes.
pub(super) fn packet<'a>(
    to: &mut Vec<u8>,
    interface: u32,
    at: u64,
    (captured, length): (usize, u32),
    parts: impl IntoIterator<Item = &'a [u8]>,
    comment: &str,
) {
    block(to, PACKET, |to| {
        to.extend(interface.to_le_bytes());
        to.extend(stamp(at));
        to.extend(u32::try_from(captured).expect("no more than the snap length").to_le_bytes());
        to.extend(length.to_le_bytes());
        let mut left = captured;
        for part in parts {
            let taken = &part[..part.len().min(left)];
            to.extend_from_slice(taken);
            left -= taken.len();
        }
        assert_eq!(left, 0, "the parts have the stated length");
        fill(to, captured);
        if !comment.is_empty() {
            option(to, 1, comment.as_bytes());
            option(to, 0, &[]);
        }
    });
}

/// Returns an upper bound on the length, in bytes, of a block with this many captured bytes.
pub(super) fn packet_room(captured: usize) -> usize {
    PACKET_OVERHEAD + captured + 3 + 8 + MAX_COMMENT + 3
}

/// Returns the length of the first block, in bytes.
pub(super) fn length(blocks: &[u8]) -> usize {
    let length =
        blocks.get(4..).and_then(<[u8]>::first_chunk).map(|bytes| u32::from_le_bytes(*bytes));
    length
        .and_then(|length| usize::try_from(length).ok())
        .expect("blocks are whole: a recorder wrote them")
}

fn block(to: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = to.len();
    to.extend(kind.to_le_bytes());
    to.extend(0u32.to_le_bytes());
    body(to);
    let total = u32::try_from(to.len() + 4 - start).expect("blocks are short").to_le_bytes();
    to.extend(total);
    to[start + 4..start + 8].copy_from_slice(&total);
}

fn option(to: &mut Vec<u8>, code: u16, value: &[u8]) {
    to.extend(code.to_le_bytes());
    to.extend(u16::try_from(value.len()).expect("options are short").to_le_bytes());
    to.extend_from_slice(value);
    fill(to, value.len());
}

fn fill(to: &mut Vec<u8>, length: usize) {
    to.extend_from_slice(&[0; 3][..length.next_multiple_of(4) - length]);
}

/// Encodes a time stamp: the upper half comes first, whatever the byte order.
fn stamp(at: u64) -> [u8; 8] {
    at.rotate_left(32).to_le_bytes()
}
