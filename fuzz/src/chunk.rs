//! Chunks of a frame are found after damage, parsed and checked.

use sprat_wire::frame::{
    CHUNK_HEADER_BYTES, ChunkHeader, FRAME_BYTES, FileHeader, Seal, extend_crc, find_chunks,
};

pub(crate) fn run(bytes: &[u8]) {
    let file = FileHeader {
        cluster: [7; 16],
        server: 1,
        frames: 1,
        frame_bytes: u32::try_from(FRAME_BYTES).expect("small"),
        segment_bytes: 1 << 20,
        incarnation: 1,
        clean: None,
    };
    let seed = file.seed();
    for (place, _) in find_chunks(seed, bytes) {
        assert!(place + CHUNK_HEADER_BYTES <= bytes.len());
    }
    // Both checksums are made right, so that the fields after them are reached.
    let Some((head, payload)) = bytes.split_at_checked(CHUNK_HEADER_BYTES) else { return };
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
    let segment = u64::from_le_bytes(head[12..20].try_into().expect("8 bytes"));
    let (incarnation, offset, length, durable) = (word(20), word(24), word(28), word(32));
    let Some(payload) = usize::try_from(length).ok().and_then(|length| payload.get(..length))
    else {
        return;
    };
    if durable > offset {
        return;
    }
    let (head, buffered, seal) = (head[10] & 2 != 0, head[10] & 8 != 0, Seal::Open);
    let header =
        ChunkHeader { segment, incarnation, offset, length, durable, head, seal, buffered };
    let start = ChunkHeader::payload_seed(seed, segment, incarnation, offset);
    let encoded = header.encode(seed, extend_crc(start, payload));
    let chunk = ChunkHeader::parse(seed, &encoded).expect("what we write, we read");
    assert_eq!(chunk.header, header);
    assert_eq!(chunk.check(payload), Ok(()));
    let whole = [&encoded[..], payload].concat();
    assert_eq!(find_chunks(seed, &whole).next(), Some((0, chunk)));
}
