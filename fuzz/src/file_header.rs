//! Headers of log files. The checksum is made right, so that the fields after it are reached.

use sprat_wire::frame::{BLOCK_BYTES, FILE_MAGIC, FileHeader};

pub(crate) fn run(bytes: &[u8]) {
    let mut block = [0; BLOCK_BYTES];
    let len = bytes.len().min(BLOCK_BYTES);
    block[..len].copy_from_slice(&bytes[..len]);
    let _ = FileHeader::parse(&block);

    block[..8].copy_from_slice(&FILE_MAGIC);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&block[..12]), &block[16..]);
    block[12..16].copy_from_slice(&crc.to_le_bytes());
    if let Ok(header) = FileHeader::parse(&block) {
        assert_eq!(FileHeader::parse(&header.encode()), Ok(header));
    }
}
