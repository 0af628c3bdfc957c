//! A model of a backup, in memory.

use sprat_chance::mix;
use sprat_net::Nanos;
use sprat_rpc::{CallFailure, CallId, Handler, Outcome, Repeat, Reply, RequestId, Response};
use sprat_store::node::Service;
use sprat_store::replicas::BACKUP_LEASE;
use sprat_wire::op::{BackupRequest, ReplicaRecord, Request, Status, encode_answer};
use std::collections::BTreeMap;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Returns the number of bytes that a replica of a head can hold. That is less than a segment,
/// because many small writes take more of a frame. The cleaner writes large pieces.
pub(crate) fn room(segment_bytes: usize) -> usize {
    segment_bytes / 4 * 3
}

/// How long a backup refuses leases.
const SPAN: Duration = Duration::from_millis(600);

/// A replica.
#[derive(Clone, Default)]
pub(crate) struct Kept {
    pub(crate) bytes: Vec<u8>,
    pub(crate) sealed: bool,
    /// Whether the replica was begun since the backup started.
    pub(crate) appendable: bool,
    /// Whether the replica replaces another and still lacks durable bytes.
    pub(crate) anew: bool,
    /// The edition of the segment.
    pub(crate) edition: u8,
}

/// A backup: its replicas survive restarts.
#[derive(Clone)]
pub(crate) struct Backup {
    pub(crate) kept: BTreeMap<u64, Kept>,
    segment_bytes: usize,
    /// Whether the backup refuses writes.
    pub(crate) full: bool,
    /// Whether the backup lets another server recover the master's log.
    pub(crate) fenced: bool,
    /// When the master's lease ends. A restarted backup does not know it, but waits for at least as
    /// long.
    pub(crate) lease: Nanos,
    /// If this is not zero, the backup refuses leases for about half of the time, and for
    /// [`SPAN`] at least. The number determines when.
    pub(crate) refusals: u64,
    /// Whether the backup is faulty: it answers each second write as if it had a whole replica.
    pub(crate) faulty: bool,
    writes: u64,
}

/// The reason with which a full backup refuses.
pub(crate) const FULL: &str = "its disk is full";

impl Backup {
    pub(crate) fn new(segment_bytes: usize) -> Self {
        Self {
            kept: BTreeMap::new(),
            segment_bytes,
            full: false,
            fenced: false,
            lease: Nanos(0),
            refusals: 0,
            faulty: false,
            writes: 0,
        }
    }

    /// Returns the newest head of which the backup has a replica, and the replica's length in
    /// bytes.
    pub(crate) fn newest_head(&self) -> (u64, usize) {
        let head = self
            .kept
            .iter()
            .rev()
            .find(|(_, kept)| crate::replication::world::is_head(&kept.bytes));
        head.map_or((0, 0), |(&segment, kept)| (segment, kept.bytes.len()))
    }

    /// Restarts the backup: its replicas cannot be appended to any more.
    pub(crate) fn restart(mut self) -> Self {
        self.kept.values_mut().for_each(|kept| kept.appendable = false);
        self
    }

    fn refuses_lease(&self, now: Nanos) -> bool {
        let span = now.0 / u64::try_from(SPAN.as_nanos()).unwrap();
        self.refusals > 0 && mix(self.refusals ^ span).is_multiple_of(2)
    }

    pub(crate) fn records(&self) -> Vec<ReplicaRecord> {
        let record = |(&segment, kept): (&u64, &Kept)| ReplicaRecord {
            segment,
            len: u32::try_from(kept.bytes.len()).unwrap(),
            head: !kept.anew && crate::replication::world::is_head(&kept.bytes),
            sealed: kept.sealed,
            unsure: false,
        };
        self.kept.iter().map(record).collect()
    }

    fn write(
        &mut self,
        segment: u64,
        edition: u8,
        offset: usize,
        sealed: bool,
        bytes: &[u8],
    ) -> (Status, u64) {
        let begins = |kept: &Kept| !kept.appendable || kept.edition < edition;
        if offset == 0 && self.kept.get(&segment).is_none_or(begins) {
            self.kept.insert(segment, Kept { appendable: true, edition, ..Kept::default() });
        }
        let fits = |kept: &&mut Kept| {
            kept.appendable && kept.bytes.len() >= offset && kept.edition == edition
        };
        let Some(kept) = self.kept.get_mut(&segment).filter(fits) else {
            return (Status::NotFound, 0);
        };
        let known = (kept.bytes.len() - offset).min(bytes.len());
        assert_eq!(
            kept.bytes[offset..offset + known],
            bytes[..known],
            "a segment has the same bytes for ever"
        );
        assert!(!kept.sealed || known == bytes.len(), "nothing follows a seal");
        kept.bytes.extend_from_slice(&bytes[known..]);
        kept.sealed |= sealed;
        let room = if crate::replication::world::is_head(&kept.bytes) {
            room(self.segment_bytes)
        } else {
            self.segment_bytes
        };
        assert!(kept.bytes.len() <= room, "more than was offered");
        (Status::Ok, (room - kept.bytes.len()) as u64)
    }
}

impl Handler for Backup {
    type Body = ();

    fn request(&mut self, now: Nanos, _: RequestId, payload: &[u8]) -> Outcome<()> {
        let Ok(Request::Backup(request)) = Request::parse(payload) else {
            panic!("a request to a backup")
        };
        if self.full && matches!(request, BackupRequest::Write { .. }) {
            let refused =
                Reply::new(encode_answer(Status::Refused, false, 0, 0).as_bytes(), Repeat::Retain);
            return Outcome::Reply(refused.with_body(()));
        }
        if self.fenced {
            let fenced = encode_answer(Status::Fenced, false, 0, 0);
            return Outcome::Reply(Reply::new(fenced.as_bytes(), Repeat::Retain));
        }
        self.writes += u64::from(matches!(request, BackupRequest::Write { .. }));
        if self.faulty && self.writes.is_multiple_of(2) {
            let whole = encode_answer(Status::Ok, true, 0, 0);
            return Outcome::Reply(Reply::new(whole.as_bytes(), Repeat::Retain));
        }
        let (status, number) = match request {
            BackupRequest::Write { replica, edition, .. }
                if self.kept.get(&replica.segment).is_some_and(|kept| {
                    kept.sealed && (!kept.appendable || kept.edition < edition)
                }) =>
            {
                let whole = encode_answer(Status::Ok, true, 0, 0);
                return Outcome::Reply(Reply::new(whole.as_bytes(), Repeat::Retain));
            }
            BackupRequest::Write { replica, offset, sealed, replacement: anew, edition, bytes } => {
                let same = |kept: &&Kept| kept.appendable && kept.edition == edition;
                let before = self
                    .kept
                    .get(&replica.segment)
                    .filter(same)
                    .map(|kept| (kept.bytes.len(), kept.sealed));
                let written = self.write(replica.segment, edition, offset as usize, sealed, bytes);
                if let Some(kept) =
                    self.kept.get_mut(&replica.segment).filter(|kept| kept.edition == edition)
                    && before.is_none_or(|before| before < (kept.bytes.len(), kept.sealed))
                {
                    kept.anew = anew;
                }
                written
            }
            BackupRequest::Free { replica } => {
                self.kept.remove(&replica.segment);
                (Status::Ok, 0)
            }
            BackupRequest::Lease { .. } if self.refuses_lease(now) => (Status::Refused, 0),
            BackupRequest::Lease { .. } => {
                self.lease = now + BACKUP_LEASE;
                (Status::Ok, u64::try_from(BACKUP_LEASE.as_micros()).unwrap())
            }
            BackupRequest::Fence { .. }
            | BackupRequest::Read { .. }
            | BackupRequest::Select { .. } => {
                unreachable!("the test looks by itself")
            }
        };
        Outcome::Reply(Reply::new(
            encode_answer(status, false, 0, number).as_bytes(),
            Repeat::Retain,
        ))
    }

    fn gather(&self, (): ()) -> &[u8] {
        FULL.as_bytes()
    }

    fn release(&mut self, (): ()) {}

    fn completed(&mut self, _: Nanos, _: CallId, _: Result<Response<'_>, CallFailure>) {}
}

impl Service for Backup {
    fn poll(&mut self, _: Nanos) -> bool {
        false
    }

    fn take_ready(&mut self) -> Option<(RequestId, Outcome<()>)> {
        None
    }

    fn next_deadline(&self) -> Option<Nanos> {
        None
    }
}
