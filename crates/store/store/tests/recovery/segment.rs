//! Segments of the log of a dead master, which never runs in the test.

use crate::recovery::world::{TABLE, World};
use sprat_wire::entry::{Entry, Kind, Role, SegmentHeader};
use sprat_wire::expiry::{NEVER, Time};
use sprat_wire::once::{COMPLETIONS, Completion, MAX_COMPLETION, OperationId};
use sprat_wire::op::{BackupRequest, ReplicaId, Request, Status};
use sprat_wire::value::ValueType;

/// Server id of the dead master.
pub(crate) const GONE: u32 = 9;

pub(crate) struct Segment(pub(crate) Vec<u8>);

impl Segment {
    pub(crate) fn begin(id: u64) -> Self {
        let header =
            SegmentHeader { id, safe_version: 1, role: Role::Head, digest: (1..=id).collect() }
                .encode();
        let mut segment = Self(Vec::new());
        segment.push((Kind::Segment, 0, 0), &[], &header);
        segment
    }

    pub(crate) fn push(&mut self, what: (Kind, u32, u64), key: &[u8], value: &[u8]) {
        self.append(what, key, value, (false, NEVER));
    }

    /// Adds an object that expires. Older versions of it are in other segments.
    pub(crate) fn push_expiring(
        &mut self,
        (table, version): (u32, u64),
        key: &[u8],
        value: &[u8],
        expires: Time,
    ) {
        self.append((Kind::Object, table, version), key, value, (true, expires));
    }

    fn append(
        &mut self,
        (kind, table, version): (Kind, u32, u64),
        key: &[u8],
        value: &[u8],
        (successor, expires): (bool, Time),
    ) {
        let value_type = ValueType::Bytes;
        let entry = Entry { kind, successor, table, version, key, value, value_type, expires };
        let at = self.0.len();
        self.0.resize(at + entry.encoded_len(), 0);
        entry.encode(&mut self.0[at..]);
    }

    pub(crate) fn complete(&mut self, id: OperationId, version: u64, result: &[u8]) {
        let mut value = [0; MAX_COMPLETION];
        let len = Completion { joined: true, status: Status::Ok, version, position: None, result }
            .encode(&mut value);
        self.push((Kind::Object, TABLE | COMPLETIONS, id.sequence), &id.key(), &value[..len]);
    }

    pub(crate) fn keep(&self, world: &mut World, server: u32, segment: u64, sealed: bool) {
        let replica = ReplicaId { master: GONE, segment };
        let write = BackupRequest::Write {
            replica,
            offset: 0,
            sealed,
            replacement: false,
            edition: 0,
            bytes: &self.0,
        };
        world.ask(server, &Request::Backup(write), None).expect("there is room");
    }
}
