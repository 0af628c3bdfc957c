//! Encodes the catalog as one sequence of bytes, a copy of which each server keeps in its data
//! directory.
//!
//! ```text
//! "SPRATCAT"
//! version 1, u32
//! rows, u32
//! (key length, u16   key   row length, u32   row) ...
//! CRC32C of all before it, u32
//! ```

use super::metadata::Change;
use std::collections::BTreeMap;

const MAGIC: &[u8; 8] = b"SPRATCAT";

/// Version of the layout.
const VERSION: u32 = 1;

/// Encodes rows that have their checksums.
pub(super) fn encode(rows: impl Iterator<Item = Change>) -> Vec<u8> {
    let mut out = [&MAGIC[..], &VERSION.to_le_bytes(), &[0; 4]].concat();
    let mut count = 0_u32;
    for (key, row) in rows {
        let row = row.expect("a catalog's rows are there");
        out.extend_from_slice(&u16::try_from(key.len()).expect("a short key").to_le_bytes());
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(&u32::try_from(row.len()).expect("a short row").to_le_bytes());
        out.extend_from_slice(&row);
        count += 1;
    }
    out[12..16].copy_from_slice(&count.to_le_bytes());
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// Decodes the rows with their checksums; `None` if `bytes` are not a copy of a catalog, or
/// damaged.
pub(super) fn decode(bytes: &[u8]) -> Option<BTreeMap<String, Vec<u8>>> {
    let (all, crc) = bytes.split_last_chunk::<4>()?;
    let mut rest = all.strip_prefix(MAGIC)?;
    if crc32c::crc32c(all) != u32::from_le_bytes(*crc) || take_u32(&mut rest)? != VERSION {
        return None;
    }
    let count = take_u32(&mut rest)?;
    let mut rows = BTreeMap::new();
    for _ in 0..count {
        let length = rest.split_off(..2)?;
        let key = rest.split_off(..usize::from(u16::from_le_bytes(length.try_into().ok()?)))?;
        let length = take_u32(&mut rest)?;
        let row = rest.split_off(..usize::try_from(length).ok()?)?;
        rows.insert(str::from_utf8(key).ok()?.to_owned(), row.to_vec());
    }
    rest.is_empty().then_some(rows)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(rest.split_off(..4)?.try_into().ok()?))
}
