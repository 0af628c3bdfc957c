//! What the segments of a point hold.

use crate::error::Error;
use crate::point::{PointServer, SegmentFile};
use sprat_store::coordinator::{Catalog, MetadataMemory, OwnedTablet};
use sprat_wire::entry::{Entry, Kind};
use sprat_wire::expiry::{NEVER, Time, time_record};
use sprat_wire::once::COMPLETIONS;
use sprat_wire::tablet::{position, table_of};
use std::collections::{BTreeMap, HashMap};

/// The largest number of entries of which the newest versions are held in memory at once. A server
/// with more is read in several parts of all keys.
const ENTRIES_AT_ONCE: u64 = 16 << 20;

/// Where the segments of a backup are.
pub trait Segments {
    /// Returns the bytes of a segment, which are those that were copied.
    ///
    /// # Errors
    /// [`Error::Damaged`] when they are not, [`Error::Io`] when they cannot be read.
    fn bytes(&self, server: u32, segment: &SegmentFile) -> Result<Vec<u8>, Error>;

    /// Returns where the file of a segment is, for errors.
    fn place(&self, server: u32, segment: &SegmentFile) -> String;
}

/// Passes the entries in the bytes of a segment to `take`. The error says what is wrong with them.
pub(crate) fn walk<'a>(bytes: &'a [u8], mut take: impl FnMut(&Entry<'a>)) -> Result<(), String> {
    let mut at = 0;
    while at < bytes.len() {
        let entry = Entry::parse_checked(&bytes[at..])
            .map_err(|malformed| format!("the entry at offset {at}: {malformed}"))?;
        take(&entry);
        at += entry.encoded_len();
    }
    Ok(())
}

/// Counts the entries in the bytes of a segment. The error says what is wrong with them.
pub(crate) fn count(bytes: &[u8]) -> Result<u64, String> {
    let mut count = 0;
    walk(bytes, |_| count += 1)?;
    Ok(count)
}

/// Checks that the bytes of a segment are as its point says.
pub(crate) fn check(bytes: &[u8], segment: &SegmentFile) -> Result<(), String> {
    match count(bytes)? {
        entries if entries == segment.entries => Ok(()),
        entries => Err(format!("it has {entries} entries, and should have {}", segment.entries)),
    }
}

/// The part of a server's log that counts: the tablets that the server had, from the segments on in
/// which it began to write them.
pub(crate) struct Owned {
    seed: u64,
    /// By table and first position, ascending.
    tablets: Vec<OwnedTablet>,
}

impl Owned {
    pub(crate) fn new(catalog: &Catalog<MetadataMemory>, server: u32) -> Self {
        Self { seed: catalog.cluster(), tablets: catalog.tablets_of(server) }
    }

    /// Returns whether an entry of an object, or a prepared entry, counts that lies in this
    /// segment.
    pub(crate) fn has(&self, segment: u64, entry: &Entry<'_>) -> bool {
        let table = table_of(entry.table);
        let from = self.tablets.partition_point(|owned| owned.tablet.table < table);
        let its = self.tablets[from..].iter().take_while(|owned| owned.tablet.table == table);
        let mut at = None;
        its.filter(|owned| owned.since <= segment).any(|owned| {
            // A log on a server's own disk has a seed of its own, and whole tables.
            owned.tablet.range.is_all()
                || owned.tablet.range.contains(
                    *at.get_or_insert_with(|| position(self.seed, entry.table, entry.key)),
                )
        })
    }
}

/// Reads the segments of a server, by ascending ids, and passes their entries to `take`.
pub(crate) fn read(
    segments: &dyn Segments,
    server: &PointServer,
    mut take: impl FnMut(&SegmentFile, &Entry<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    for segment in &server.segments {
        let bytes = segments.bytes(server.id, segment)?;
        let mut taken = Ok(());
        let walked = walk(&bytes, |entry| {
            if taken.is_ok() {
                taken = take(segment, entry);
            }
        });
        walked.map_err(|what| Error::damaged(segments.place(server.id, segment), what))?;
        taken?;
    }
    Ok(())
}

/// Passes the objects that tables had when the logs of these servers were cut to `take`, in no
/// order, each once: those of the tables for which `is_wanted` returns true. `catalog` is that of
/// the cut. What transactions had not done yet is not among them: see
/// [`last_changes`](crate::last_changes).
///
/// # Errors
/// Those of `segments` and of `take`.
pub fn objects(
    segments: &dyn Segments,
    servers: &[PointServer],
    catalog: &Catalog<MetadataMemory>,
    is_wanted: &dyn Fn(u32) -> bool,
    take: &mut dyn FnMut(&Entry<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    for server in servers {
        let owned = Owned::new(catalog, server.id);
        let counts = |segment: &SegmentFile, entry: &Entry<'_>| {
            is_wanted(entry.table) && owned.has(segment.id, entry)
        };
        let entries: u64 = server.segments.iter().map(|segment| segment.entries).sum();
        let parts = entries.div_ceil(ENTRIES_AT_ONCE).max(1);
        for part in 0..parts {
            let is_in = |hash: &KeyHash| {
                let (first, _) = hash.split_first_chunk().expect("16 bytes");
                u64::from_le_bytes(*first) % parts == part
            };
            let mut newest = Newest::default();
            let mut records = TimeRecords::default();
            read(segments, server, |segment, entry| {
                records.add(entry);
                if counts(segment, entry) {
                    let hash = key_hash(entry);
                    if is_in(&hash) {
                        newest.add(hash, entry);
                    }
                }
                Ok(())
            })?;
            read(segments, server, |segment, entry| {
                if !counts(segment, entry) {
                    return Ok(());
                }
                let hash = key_hash(entry);
                let is_there =
                    is_in(&hash) && newest.take(&hash, entry) && !records.has_expired(entry);
                if is_there { take(entry) } else { Ok(()) }
            })?;
        }
    }
    Ok(())
}

/// Identifies a table and key by a hash without collisions.
pub(crate) type KeyHash = [u8; 16];

/// Returns the identity of an entry's table and key.
pub(crate) fn key_hash(entry: &Entry<'_>) -> KeyHash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&entry.table.to_le_bytes());
    hasher.update(entry.key);
    *hasher.finalize().as_bytes().first_chunk().expect("32 bytes")
}

/// The newest version of each object in a part of all keys, as far as entries show.
#[derive(Default)]
pub(crate) struct Newest {
    versions: HashMap<KeyHash, (u64, bool)>,
}

impl Newest {
    /// Adds the entry of an object, or a tombstone.
    pub(crate) fn add(&mut self, hash: KeyHash, entry: &Entry<'_>) {
        let gone = match entry.kind {
            Kind::Object => false,
            Kind::Tombstone => true,
            Kind::Segment => return,
        };
        let known = self.versions.entry(hash).or_insert((entry.version, gone));
        // A tombstone has the version of the object that it removes.
        if (entry.version, gone) > *known {
            *known = (entry.version, gone);
        }
    }

    /// Returns whether this is the newest version of an object that exists.
    pub(crate) fn is(&self, hash: &KeyHash, version: u64) -> bool {
        self.versions.get(hash) == Some(&(version, false))
    }

    /// Returns whether an entry is the newest version of an object. Returns true once for each
    /// object: after a combination, an entry may be in two segments.
    pub(crate) fn take(&mut self, hash: &KeyHash, entry: &Entry<'_>) -> bool {
        entry.kind == Kind::Object
            && self.is(hash, entry.version)
            && self.versions.remove(hash).is_some()
    }
}

/// The time records of a server's tables: nothing that expired before these times exists.
#[derive(Default)]
pub(crate) struct TimeRecords(BTreeMap<u32, Time>);

impl TimeRecords {
    /// Adds an entry, if it is a time record.
    pub(crate) fn add(&mut self, entry: &Entry<'_>) {
        let is_record = entry.table & COMPLETIONS != 0 && entry.key == time_record(0).key();
        if is_record && entry.kind == Kind::Object {
            let time = self.0.entry(table_of(entry.table)).or_default();
            *time = entry.version.max(*time);
        }
    }

    /// Returns whether an object had expired.
    pub(crate) fn has_expired(&self, entry: &Entry<'_>) -> bool {
        let recorded = self.0.get(&entry.table).copied().unwrap_or_default();
        entry.expires != NEVER && entry.expires <= recorded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sprat_client::TableOptions;
    use sprat_wire::value::ValueType;

    #[test]
    fn what_an_earlier_owner_left_does_not_count() {
        let mut catalog = Catalog::open(MetadataMemory::default(), 1).expect("an empty one");
        let servers = ["a", "b"].map(|locator| catalog.enlist(0, (locator, ""), 2).expect("room"));
        let table = catalog.create("t", TableOptions::of(1), &servers[..1]).expect("room").id;
        let entry = |version| Entry {
            kind: Kind::Object,
            successor: false,
            table,
            version,
            key: b"key",
            value: b"",
            value_type: ValueType::Bytes,
            expires: NEVER,
        };
        let mut owned = Owned::new(&catalog, servers[0]);
        assert!(owned.has(1, &entry(1)), "it had the table from the beginning");
        assert!(!Owned::new(&catalog, servers[1]).has(1, &entry(1)));
        // The table has left, and came back when segment 7 was the head.
        owned.tablets[0].since = 7;
        assert!(!owned.has(6, &entry(1)));
        assert!(owned.has(7, &entry(2)));
    }
}
