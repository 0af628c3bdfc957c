//! The layouts of the log file: they round-trip, and damaged ones are refused.

use proptest::prelude::*;
use sprat_wire::SEGMENT_BYTES;
use sprat_wire::frame::{
    BLOCK_BYTES, BadChunk, BadFileHeader, CHUNK_HEADER_BYTES, ChunkHeader, FRAME_BYTES, FileHeader,
    Seal, Seed, find_chunks,
};

fn file_header() -> FileHeader {
    FileHeader {
        cluster: *b"a cluster's uuid",
        server: 7,
        frame_bytes: u32::try_from(FRAME_BYTES).unwrap(),
        segment_bytes: u32::try_from(SEGMENT_BYTES).unwrap(),
        incarnation: 3,
        clean: Some((41, 99)),
        frames: 12,
    }
}

fn seal() -> impl Strategy<Value = Seal> {
    prop_oneof![Just(Seal::Open), Just(Seal::Sealed), Just(Seal::Cut)]
}

fn chunk() -> impl Strategy<Value = (ChunkHeader, Vec<u8>)> {
    let flags = (any::<bool>(), any::<bool>());
    (
        any::<u64>(),
        any::<u32>(),
        any::<u32>(),
        flags,
        seal(),
        prop::collection::vec(any::<u8>(), 0..300),
    )
        .prop_flat_map(
            |(segment, incarnation, offset, (head, buffered), seal, mut payload)| {
                if seal == Seal::Cut {
                    payload.clear();
                }
                let length = u32::try_from(payload.len()).unwrap();
                (0..=offset).prop_map(move |durable| {
                    let header = ChunkHeader {
                        segment,
                        incarnation,
                        offset,
                        length,
                        durable,
                        head,
                        seal,
                        buffered,
                    };
                    (header, payload.clone())
                })
            },
        )
}

fn encode(seed: Seed, header: &ChunkHeader, payload: &[u8]) -> Vec<u8> {
    let start = ChunkHeader::payload_seed(seed, header.segment, header.incarnation, header.offset);
    let mut bytes = header.encode(seed, crc32c::crc32c_append(start, payload)).to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

/// Returns the header of the chunk at the beginning of the bytes, or why the chunk is not whole and
/// intact.
fn read(seed: Seed, bytes: &[u8]) -> Result<ChunkHeader, BadChunk> {
    let chunk = ChunkHeader::parse(seed, bytes)?;
    let payload = &bytes[CHUNK_HEADER_BYTES..];
    let length = chunk.header.length as usize;
    let payload = payload.get(..length).ok_or(BadChunk::Short(bytes.len()))?;
    chunk.check(payload)?;
    Ok(chunk.header)
}

proptest! {
    #[test]
    fn chunks_come_back((header, payload) in chunk()) {
        let seed = file_header().seed();
        prop_assert_eq!(read(seed, &encode(seed, &header, &payload)), Ok(header));
    }

    #[test]
    fn a_flipped_bit_spoils_a_chunk(
        (header, payload) in chunk(),
        place: prop::sample::Index,
        bit in 0..8u32,
    ) {
        let seed = file_header().seed();
        let mut bytes = encode(seed, &header, &payload);
        let place = place.index(bytes.len());
        bytes[place] ^= 1u8.rotate_left(bit);
        prop_assert!(read(seed, &bytes).is_err());
    }

    #[test]
    fn a_chunk_of_another_file_does_not_count((header, payload) in chunk()) {
        let bytes = encode(file_header().seed(), &header, &payload);
        let other = FileHeader { server: 8, ..file_header() };
        prop_assert!(read(other.seed(), &bytes).is_err());
    }

    #[test]
    fn any_bytes_are_parsed(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = read(file_header().seed(), &bytes);
        prop_assert_eq!(find_chunks(file_header().seed(), &bytes).count(), 0);
    }

    #[test]
    fn chunks_are_found_wherever_they_lie((header, payload) in chunk(), before in 0..5000usize) {
        let seed = file_header().seed();
        let mut bytes = vec![0xc7; before];
        bytes.extend(encode(seed, &header, &payload));
        let found: Vec<_> =
            find_chunks(seed, &bytes).map(|(place, chunk)| (place, chunk.header)).collect();
        prop_assert_eq!(found, vec![(before, header)]);
    }

    #[test]
    fn a_flipped_bit_spoils_a_file_header(place in 0..BLOCK_BYTES, bit in 0..8u32) {
        let mut block = file_header().encode();
        block[place] ^= 1u8.rotate_left(bit);
        let refused = FileHeader::parse(&block);
        prop_assert!(
            matches!(refused, Err(BadFileHeader::Crc { .. } | BadFileHeader::Magic)),
            "{refused:?}"
        );
    }
}

#[test]
fn file_headers_come_back() {
    for clean in [None, Some((41, 99)), Some((u64::MAX, 0))] {
        let header = FileHeader { clean, ..file_header() };
        assert_eq!(FileHeader::parse(&header.encode()), Ok(header));
    }
    assert_eq!(FileHeader::parse(&[0; BLOCK_BYTES]), Err(BadFileHeader::Empty));
}

#[test]
fn a_newer_format_is_named_when_intact() {
    let mut block = file_header().encode();
    block[8..12].copy_from_slice(&3u32.to_le_bytes());
    assert!(matches!(FileHeader::parse(&block), Err(BadFileHeader::Crc { .. })));
    let mut of_version = |version: u32| {
        block[8..12].copy_from_slice(&version.to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&block[..12]), &block[16..]);
        block[12..16].copy_from_slice(&crc.to_le_bytes());
        FileHeader::parse(&block)
    };
    assert_eq!(of_version(3), Err(BadFileHeader::Newer(3)));
    assert_eq!(of_version(1), Ok(file_header()), "from before values had types");
    assert_eq!(of_version(0), Err(BadFileHeader::Field("version")));
}

#[test]
fn nonsense_in_an_intact_header_is_named() {
    let header = FileHeader { segment_bytes: 0, ..file_header() };
    assert_eq!(FileHeader::parse(&header.encode()), Err(BadFileHeader::Field("segment_bytes")));
    let header = FileHeader { frame_bytes: 8 << 20, ..file_header() };
    assert_eq!(FileHeader::parse(&header.encode()), Err(BadFileHeader::Field("frame_bytes")));
    let header = FileHeader { incarnation: 0, ..file_header() };
    assert_eq!(FileHeader::parse(&header.encode()), Err(BadFileHeader::Field("incarnation")));
}
