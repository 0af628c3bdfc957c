//! The bytes of a journal.
//!
//! ```text
//! file    = "SPRTJRNL" version:u32 record*
//! record  = length:u32 crc32c(kind payload):u32 kind:u8 payload      length: of the payload
//! kind 1  = the source, once, at the beginning: JSON of `Identity`
//! kind 2  = groups that are durable: first:u64 value:[u8; 32]*
//! ```
//! Numbers are little-endian. The first record that is cut short or has another sum is the
//! journal's end: it was being written when the machine stopped.

use crate::group::{self, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The first bytes of every journal.
const MAGIC: [u8; 8] = *b"SPRTJRNL";

/// The only version so far.
const VERSION: u32 = 1;

const SOURCE: u8 = 1;
const GROUPS: u8 = 2;

/// Bytes before a record's payload.
const HEAD_BYTES: usize = 9;

/// Most bytes of a payload; what claims more is no record.
const MAX_PAYLOAD: usize = 64 << 10;

/// Most groups of one record.
const RECORD_GROUPS: usize = 1024;
const _: () = assert!(8 + RECORD_GROUPS * 32 <= MAX_PAYLOAD);

/// Which file a transfer fetches: what must be the same for it to go on.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Identity {
    /// Where from, without credentials.
    pub source: String,
    /// Bytes of the file.
    pub length: u64,
    /// What tells this state of the file from others, as the source says it: an entity tag, or a
    /// date.
    pub validator: String,
    /// What tells the file that the bytes were written to from another of that name.
    pub part: String,
    /// The boot of this machine in which the journal was begun or last taken up; empty when not
    /// known.
    pub boot: String,
}

/// What a journal says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Parsed {
    /// The source.
    pub identity: Identity,
    /// The groups that are durable, and their values.
    pub groups: BTreeMap<u64, Value>,
    /// Bytes up to where the journal is whole.
    pub whole: usize,
}

/// A journal's beginning, for a source.
#[must_use]
pub fn begin(identity: &Identity) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    let text = serde_json::to_vec(identity).expect("strings and a number are JSON");
    record(&mut bytes, SOURCE, &text);
    bytes
}

/// Appends the records of some groups, in any order.
pub fn groups(bytes: &mut Vec<u8>, groups: &BTreeMap<u64, Value>) {
    let mut payload: Vec<u8> = Vec::new();
    let mut next = None;
    for (index, value) in groups {
        let full = payload.len() >= 8 + RECORD_GROUPS * value.len();
        if next != Some(*index) || full {
            if !payload.is_empty() {
                record(bytes, GROUPS, &payload);
            }
            payload.clear();
            payload.extend(index.to_le_bytes());
        }
        payload.extend(value);
        next = index.checked_add(1);
    }
    if !payload.is_empty() {
        record(bytes, GROUPS, &payload);
    }
}

/// Reads a journal. None: it is none of ours, of another version, or was cut before it said what it
/// is for.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<Parsed> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (version, rest) = rest.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != VERSION {
        return None;
    }
    let (kind, payload, mut rest) = split(rest)?;
    if kind != SOURCE {
        return None;
    }
    let identity: Identity = serde_json::from_slice(payload).ok()?;
    let mut parsed = Parsed { identity, groups: BTreeMap::new(), whole: bytes.len() - rest.len() };
    let count = group::count(parsed.identity.length);
    while let Some((kind, payload, behind)) = split(rest) {
        if kind != GROUPS || parsed.take(count, payload).is_none() {
            break;
        }
        rest = behind;
        parsed.whole = bytes.len() - rest.len();
    }
    Some(parsed)
}

impl Parsed {
    /// Takes a record of groups, all of it or nothing.
    fn take(&mut self, count: u64, payload: &[u8]) -> Option<()> {
        let (first, values) = payload.split_first_chunk::<8>()?;
        let first = u64::from_le_bytes(*first);
        let (values, odd) = values.as_chunks::<{ size_of::<Value>() }>();
        if !odd.is_empty() || first.checked_add(values.len() as u64)? > count {
            return None;
        }
        self.groups.extend((first..).zip(values.iter().copied()));
        Some(())
    }
}

fn record(bytes: &mut Vec<u8>, kind: u8, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("a payload is short");
    bytes.extend(length.to_le_bytes());
    bytes.extend(sum(kind, payload).to_le_bytes());
    bytes.push(kind);
    bytes.extend(payload);
}

/// The first record's kind and payload, and what is behind it.
fn split(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let [l0, l1, l2, l3, s0, s1, s2, s3, kind] = *head;
    let length = usize::try_from(u32::from_le_bytes([l0, l1, l2, l3])).ok()?;
    if length > MAX_PAYLOAD {
        return None;
    }
    let (payload, rest) = rest.split_at_checked(length)?;
    (sum(kind, payload) == u32::from_le_bytes([s0, s1, s2, s3])).then_some((kind, payload, rest))
}

fn sum(kind: u8, payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&[kind]), payload)
}
