//! Decides which of the two copies of a file header counts.

use super::OpenError;
use super::report::Corruption;
use sprat_disk::{AlignedBuf, BLOCK_BYTES, ReadAt};
use sprat_wire::frame::{BadFileHeader, FILE_HEADERS, FRAMES_OFFSET, FileHeader};

/// The file header that counts.
pub(super) struct Current {
    pub(super) header: FileHeader,
    /// Index of the copy that has this header.
    copy: usize,
    /// Whether the other copy is damaged or was never written.
    pub(super) alone: bool,
}

/// Reads both copies of the file header; `None` when the file is new: empty, or its creation was
/// torn.
pub(super) fn read_headers(
    reader: &impl ReadAt,
    name: &str,
    size: u64,
) -> Result<Option<Current>, OpenError> {
    let mut buffer = AlignedBuf::zeroed(BLOCK_BYTES);
    let mut copies = Vec::with_capacity(FILE_HEADERS);
    for copy in 0..FILE_HEADERS as u64 {
        let offset = copy * BLOCK_BYTES as u64;
        if size < offset + BLOCK_BYTES as u64 {
            copies.push(Err(BadFileHeader::Empty));
            continue;
        }
        let read = reader.read_at(&mut buffer, BLOCK_BYTES, offset);
        read.map_err(|source| OpenError::Read { file: name.to_owned(), offset, source })?;
        copies.push(FileHeader::parse(buffer[..].try_into().expect("a block")));
    }
    for copy in &copies {
        if let Err(BadFileHeader::Newer(version)) = copy {
            return Err(OpenError::Newer { file: name.to_owned(), version: *version });
        }
    }
    let alone = copies.iter().any(Result::is_err);
    let valid =
        copies.iter().enumerate().filter_map(|(copy, header)| Some((copy, *header.as_ref().ok()?)));
    if let Some((copy, header)) = valid.max_by_key(|(_, header)| header.incarnation) {
        return Ok(Some(Current { header, copy, alone }));
    }
    let bad = copies[0].expect_err("no valid copy");
    // Nothing is written behind the headers before they are durable.
    if size <= FRAMES_OFFSET && matches!(bad, BadFileHeader::Empty) {
        return Ok(None);
    }
    let expected = "the header of a Sprat log".to_owned();
    Err(Corruption {
        file: name.to_owned(),
        offset: 0,
        segment: None,
        expected,
        found: bad.to_string(),
    }
    .into())
}

/// Returns the incarnation to write next. If one copy is damaged, that copy may have been the newer
/// one, by `step` at most. In this case the incarnations that it may have had are skipped, and the
/// copy to be written first is the damaged one, never the only valid one.
pub(super) fn next_incarnation(current: &Current, step: u32) -> u32 {
    let now = current.header.incarnation;
    if !current.alone {
        return now + 1;
    }
    let next = now + step + 1;
    let overwrites = next as usize % FILE_HEADERS == current.copy;
    next + u32::from(overwrites)
}
