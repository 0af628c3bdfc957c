//! A disk and random numbers for the tests.
#![allow(dead_code, reason = "each test uses its part")]

use sprat_chance::Chance;
use sprat_log::{Config, Log, Restore, Role};
use sprat_wire::entry::{Entry, Kind, SegmentHeader};
use sprat_wire::expiry::Time;
use sprat_wire::group::Group;
use sprat_wire::once::Completion;
use std::collections::{BTreeMap, VecDeque};

/// Returns the random numbers of a test case; `seed` determines the case.
pub(crate) fn chance(seed: u64) -> Chance {
    Chance::new(seed ^ 0x9E37_79B9_7F4A_7C15)
}

/// A disk that keeps flushed bytes. After a crash it may also have some of the bytes that were in
/// flight.
#[derive(Default)]
pub(crate) struct Disk {
    pub(crate) replicas: BTreeMap<u64, Vec<u8>>,
    flight: VecDeque<(u64, usize, Vec<u8>, bool)>,
    most: usize,
}

impl Disk {
    /// Takes up to `limit` pieces of the bytes that the log has to replicate.
    pub(crate) fn submit(&mut self, log: &mut Log, limit: usize) {
        for _ in 0..limit {
            let Some(pending) = log.next_pending() else { return };
            let bytes = pending.slices().concat();
            assert_eq!(bytes.len(), pending.len);
            let (segment, offset, sealed) = (pending.segment, pending.offset, pending.sealed);
            assert!(sealed || !bytes.is_empty());
            log.mark_submitted(segment, offset + bytes.len(), sealed);
            self.flight.push_back((segment, offset, bytes, sealed));
        }
    }

    /// Makes up to `limit` pieces durable, and frees the replicas that the log reclaims.
    pub(crate) fn flush(&mut self, log: &mut Log, limit: usize) {
        for _ in 0..limit {
            let Some((segment, offset, bytes, sealed)) = self.flight.pop_front() else { break };
            let up_to = offset + bytes.len();
            self.write(segment, offset, &bytes);
            log.mark_durable(segment, up_to, sealed);
        }
        for id in log.take_reclaimable() {
            assert!(
                self.replicas.remove(&id).is_some(),
                "segment {id} was freed twice, or never there"
            );
        }
        self.most = self.most.max(self.replicas.len());
        assert!(self.replicas.len() <= log.config().max_segments_on_disk);
    }

    /// Takes and flushes until everything is durable.
    pub(crate) fn settle(&mut self, log: &mut Log) {
        while log.next_pending().is_some() || !self.flight.is_empty() {
            self.submit(log, 8);
            self.flush(log, 8);
        }
        assert_eq!(log.position(), log.durable_position());
    }

    fn write(&mut self, segment: u64, offset: usize, bytes: &[u8]) {
        let replica = self.replicas.entry(segment).or_default();
        assert_eq!(replica.len(), offset, "segment {segment} is written in order");
        replica.extend_from_slice(bytes);
    }

    /// Simulates a power failure: each segment keeps a random prefix of its pieces in flight.
    pub(crate) fn crash(&mut self, chance: &mut Chance) {
        let flight = std::mem::take(&mut self.flight);
        let mut torn = Vec::new();
        for (segment, offset, bytes, _) in flight {
            if torn.contains(&segment) {
                continue;
            }
            let keep = if chance.one_in(2) { bytes.len() } else { chance.index(bytes.len() + 1) };
            self.write(segment, offset, &bytes[..keep]);
            if keep < bytes.len() {
                torn.push(segment);
            }
        }
    }

    /// Restarts the log: cuts torn tails, finds the newest head, frees segments that the head does
    /// not list, and replays the others.
    pub(crate) fn restore(&mut self, config: Config, tables: Option<&[u32]>) -> Log {
        self.restore_at(config, tables, 0)
    }

    /// Restarts the log at a time.
    pub(crate) fn restore_at(&mut self, config: Config, tables: Option<&[u32]>, now: Time) -> Log {
        let mut newest: Option<SegmentHeader> = None;
        let mut headers = BTreeMap::new();
        let highest = self.replicas.keys().next_back().copied().unwrap_or(0);
        for (&id, bytes) in &mut self.replicas {
            let (mut whole, mut group) = (0, None);
            while let Ok(entry) = Entry::parse_checked(&bytes[whole..]) {
                group = Group::at(whole, &entry).or(group);
                whole += entry.encoded_len();
            }
            bytes.truncate(group.filter(|group| group.end > whole).map_or(whole, |it| it.begin));
            if whole == 0 {
                continue;
            }
            let entry = Entry::parse(bytes).unwrap();
            assert_eq!(entry.kind, Kind::Segment, "a segment begins with its header");
            let header = SegmentHeader::parse(entry.value).unwrap();
            assert_eq!(header.id, id);
            headers.insert(id, header.clone());
            if header.role == Role::Head {
                newest = Some(header);
            }
        }
        let Some(newest) = newest else {
            self.replicas.clear();
            let mut restore = Restore::new(config, &[], tables).unwrap();
            restore.segment(0, 0, []).expect_err("nothing is expected");
            return restore.finish(highest).unwrap();
        };
        self.replicas.retain(|id, _| newest.digest.contains(id));
        assert_eq!(
            self.replicas.len(),
            newest.digest.len(),
            "everything the digest lists is there"
        );
        let mut restore = Restore::new(config, &newest.digest, tables).unwrap();
        restore.set_time(now);
        for (&id, bytes) in self.replicas.iter().rev() {
            let mut entries = Vec::new();
            let mut at = 0;
            while at < bytes.len() {
                let entry = Entry::parse(&bytes[at..]).unwrap();
                let len = entry.encoded_len();
                let is_mark = Group::at(at, &entry).is_some();
                let is_last = at + len == bytes.len();
                if !is_mark && (!is_last || !Completion::is_cut(&entry, headers[&id].role)) {
                    entries.push((restore.hash(entry.table, entry.key), &bytes[at..at + len]));
                }
                at += len;
            }
            restore.segment(id, headers[&id].safe_version, entries).unwrap();
        }
        restore.finish(highest).unwrap()
    }
}
