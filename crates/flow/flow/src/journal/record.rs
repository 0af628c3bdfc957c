//! The bytes of a journal.
//!
//! ```text
//! file    = "SPRTJRNL" version:u32 record*
//! record  = length:u32 crc32c(kind payload):u32 kind:u8 payload      length: of the payload
//! kind 1  = the source, once, at the beginning: JSON of `Identity`
//! kind 2  = groups that are durable: first:u64 value:[u8; 32]*
//! ```
//! Numbers are little-endian. The journal ends before the first record that is cut short or has a
//! wrong sum, because that record was being written when the machine stopped.

use crate::group::{self, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The first bytes of every journal.
const MAGIC: [u8; 8] = *b"SPRTJRNL";

/// The version of the format. There is only one so far.
const VERSION: u32 = 1;

const SOURCE: u8 = 1;
const GROUPS: u8 = 2;

/// Length of a record before its payload, in bytes.
const HEAD_BYTES: usize = 9;

/// Limit on the length of a payload, in bytes. If a record states a longer payload, this record and
/// all later records are ignored.
const MAX_PAYLOAD: usize = 64 << 10;

/// Limit on the groups of one record. A longer run of groups is written as several records.
const RECORD_GROUPS: usize = 1024;
const _: () = assert!(8 + RECORD_GROUPS * 32 <= MAX_PAYLOAD);

/// Identifies the file of a transfer. A transfer can resume if all fields except `boot` are equal,
/// or if the source confirms the values of the groups.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Identity {
    /// The source, without credentials.
    pub source: String,
    /// Length of the file in bytes.
    pub length: u64,
    /// Identifies the file's state at the source: an entity tag, a date, or the tag of an upload.
    pub validator: String,
    /// Identifies the local file to which the bytes were written, so that another file of the same
    /// name is not mistaken for it.
    pub part: String,
    /// The boot of this machine in which the journal was begun; empty if unknown.
    pub boot: String,
}

/// The content of a journal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Parsed {
    /// Which file the groups belong to.
    pub identity: Identity,
    /// The durable groups and their values.
    pub groups: BTreeMap<u64, Value>,
    /// Length of the journal up to the end of the last complete record, in bytes.
    pub whole: usize,
}

/// Encodes the beginning of a journal.
#[must_use]
pub fn begin(identity: &Identity) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    let text = serde_json::to_vec(identity).expect("strings and a number are JSON");
    record(&mut bytes, SOURCE, &text);
    bytes
}

/// Appends the records of groups.
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

/// Parses a journal. `None` if the bytes are not a journal, have another version, or do not have a
/// complete and valid identity.
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
    /// Adds the groups of a record. Returns `None`, and adds no group, if the record is invalid.
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

/// Splits off the first record. Returns its kind, its payload, and the bytes after it.
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
