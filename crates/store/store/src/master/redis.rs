//! The objects of a master, as its Redis clients use them: the same checks and the same log as for
//! the store's own clients, without a request and a response in between.

use super::Master;
use super::body::MasterBody;
use sprat_disk::Disk;
use sprat_log::{Content, Full, Ref};
use sprat_net::Nanos;
use sprat_redis::{Access, Front, NO_NUMBER, Objects, Unready};
use sprat_rpc::Outcome;
use sprat_wire::elements::{CollectionId, CollectionKind, ELEMENTS, OwnerKey};
use sprat_wire::entry::{Entry, HEADER_BYTES, entry_len};
use sprat_wire::expiry::{NEVER, Time};
use sprat_wire::group::MARK_BYTES;
use sprat_wire::op::{Answer, Condition, Request, Status};
use sprat_wire::order::KeyRange;
use sprat_wire::tablet::Tablet;
use sprat_wire::value::ValueType;

/// Why a command waits for a moment, in all cases that have no text of their own.
const BUSY: &str = "it waits for its coordinator, for a transaction, or for its disk";

/// Why a command waits that needs a collection.
const NOT_IN_ORDER: &str = "after the restart, it is putting the elements of collections in order";

/// The reply to a command of a transaction for which the transaction has no room.
const TOO_LARGE: &str = "ERR the commands of the transaction change more bytes than was foreseen";

/// The reply to a command that makes a collection in a table that an older server has divided.
const DIVIDED: &str = "ERR the table of this database is divided where collections cannot be: use \
                       a database whose table was made by this version";

/// Bytes of a group for what happens beside its changes, such as a record of the time.
const GROUP_SPARE: usize = 1 << 10;

/// A master, and the time.
struct LocalObjects<'a, D: Disk> {
    master: &'a mut Master<D>,
    now: Nanos,
    /// The log position for which the reply to the command at hand must wait.
    position: u64,
    /// In a group: the bytes that its changes may still have.
    room: Option<usize>,
}

impl<D: Disk> Master<D> {
    /// Serves Redis clients.
    #[must_use]
    pub fn with_redis(self, front: Option<Front>) -> Self {
        Self { redis: front.map(Box::new), ..self }
    }

    /// Executes what Redis clients have sent; returns whether there was anything to do.
    pub(super) fn turn_redis(&mut self, now: Nanos) -> bool {
        let Some(mut front) = self.redis.take() else { return false };
        let worked = front.turn(now, &mut LocalObjects::new(self, now));
        self.redis = Some(front);
        worked
    }

    /// Sends the replies to Redis clients that may leave; returns whether there were any.
    pub(super) fn reply_to_redis(&mut self, now: Nanos) -> bool {
        let Some(mut front) = self.redis.take() else { return false };
        let worked = front.send(now, &LocalObjects::new(self, now));
        self.redis = Some(front);
        worked
    }

    /// Returns what a reply to one of the store's own clients says to a Redis client.
    fn unready(&mut self, outcome: Outcome<MasterBody>) -> Unready {
        let Outcome::Reply(reply) = outcome else { return Unready::Later(BUSY) };
        let status = Answer::parse(reply.head()).map(|answer| answer.status);
        let text = reply.body().map(|body| {
            let text = String::from_utf8_lossy(self.held.bytes(&self.log, body)).into_owned();
            self.held.release(&mut self.log, body);
            text
        });
        let text = text.unwrap_or_default();
        match status {
            Some(Status::UnknownTable) => Unready::NoTable,
            Some(Status::MemoryFull) => {
                let reason = "OOM command not allowed: the server's memory is full; remove keys";
                Unready::Refused(reason.to_owned())
            }
            Some(Status::DiskFull) => {
                Unready::Refused(format!("MISCONF the server's disk is full: {text}"))
            }
            Some(Status::TooFewServers) => Unready::Refused(format!("NOREPLICAS {text}")),
            Some(status) => Unready::Refused(format!("MISCONF {status}: {text}")),
            None => Unready::Later(BUSY),
        }
    }
}

impl<'a, D: Disk> LocalObjects<'a, D> {
    fn new(master: &'a mut Master<D>, now: Nanos) -> Self {
        Self { master, now, position: 0, room: None }
    }

    /// Makes sure that a command may meet an object, and returns the object's tablet.
    fn settle(&mut self, table: u32, request: &Request<'_>) -> Result<Tablet, Unready> {
        let Self { master, now, .. } = self;
        master.note_evicted();
        let settled = match master.locate(request, table) {
            Err(outcome) => Err(outcome),
            Ok(_) if !master.is_leased(*now) => Err(Outcome::Retry(0)),
            Ok(tablet) => {
                master.decide_before(*now, request);
                master.settle_object(*now, request).map(|()| tablet)
            }
        };
        settled.map_err(|outcome| master.unready(outcome))
    }

    /// Notes that the reply reveals an object, or that there is none.
    fn reveals(&mut self, found: Option<Ref>) {
        let position = self.master.position_of(found);
        self.position = self.position.max(position);
    }

    /// Notes that the reply reveals which elements there are.
    fn reveals_elements(&mut self) {
        self.position = self.position.max(self.master.elements_changed_at);
    }

    /// Changes the log by an entry of up to `len` bytes.
    fn change(
        &mut self,
        (len, removes): (usize, bool),
        change: impl FnOnce(&mut Master<D>) -> Result<(), Full>,
    ) -> Result<(), Unready> {
        let Self { master, room, .. } = self;
        if let Some(outcome) = master.reject_change(None) {
            return Err(master.unready(outcome));
        }
        if let Some(room) = room {
            let left = room.checked_sub(len);
            *room = left.ok_or_else(|| Unready::Refused(TOO_LARGE.to_owned()))?;
        }
        let changed = master.seal_if_short(len, removes).and_then(|()| change(master));
        if let Err(log_full) = changed {
            let outcome = master.log_full(log_full, None);
            return Err(master.unready(outcome));
        }
        master.durable.arrived();
        self.position = master.log.position();
        Ok(())
    }
}

impl<D: Disk> Objects for LocalObjects<'_, D> {
    fn find(
        &mut self,
        table: u32,
        key: &[u8],
        access: Access,
    ) -> Result<Option<Entry<'_>>, Unready> {
        let condition = Condition::None;
        let request = match access {
            Access::Read => Request::Read { table, key },
            Access::Change => Request::Remove { table, key, condition },
        };
        self.settle(table, &request)?;
        let found = self.master.log.find(table, key);
        self.master.counts.reads += 1;
        self.reveals(found);
        if let Some(found) = found {
            self.master.log.note_used(table, found);
            if self.master.log.entry(found).value_type == ValueType::Collection
                && !self.has_elements(table)
            {
                return Err(Unready::Later(NOT_IN_ORDER));
            }
        }
        Ok(found.map(|found| self.master.log.entry(found)))
    }

    fn put(&mut self, table: u32, key: &[u8], content: Content<'_>) -> Result<(), Unready> {
        let len = entry_len(key.len(), content.value.len(), content.expires);
        self.master.counts.writes += 1;
        self.change((len, false), |master| {
            master.log.put_content(table, key, content, None).map(drop)
        })?;
        self.master.note_change(table, key, None);
        Ok(())
    }

    fn remove(&mut self, table: u32, key: &[u8]) -> Result<(), Unready> {
        let len = HEADER_BYTES + key.len() + size_of::<u64>();
        self.master.counts.removes += 1;
        self.change((len, true), |master| {
            master.log.remove(table, key)?;
            master.removed_at = master.log.position();
            Ok(())
        })?;
        self.master.note_change(table, key, None);
        Ok(())
    }

    fn new_collection(
        &mut self,
        table: u32,
        key: &[u8],
        kind: CollectionKind,
    ) -> Result<CollectionId, Unready> {
        if !self.has_elements(table) {
            return Err(Unready::Later(NOT_IN_ORDER));
        }
        let condition = Condition::None;
        let tablet = self.settle(table, &Request::Remove { table, key, condition })?;
        if !tablet.range.has_whole_places() {
            return Err(Unready::Refused(DIVIDED.to_owned()));
        }
        let id = self.master.log.new_collection(table, key, kind);
        id.ok_or_else(|| Unready::Refused(NO_NUMBER.to_owned()))
    }

    fn find_element(&mut self, table: u32, key: &[u8]) -> Option<Entry<'_>> {
        let found = self.master.log.find(table | ELEMENTS, key);
        self.master.counts.reads += 1;
        self.reveals(found);
        found.map(|found| self.master.log.entry(found))
    }

    fn put_element(&mut self, table: u32, key: &[u8], value: &[u8]) -> Result<(), Unready> {
        let len = entry_len(key.len(), value.len(), NEVER);
        self.master.counts.writes += 1;
        self.change((len, false), |master| master.log.put(table | ELEMENTS, key, value).map(drop))?;
        self.master.note_element(table, key, None);
        Ok(())
    }

    fn remove_element(&mut self, table: u32, key: &[u8]) -> Result<(), Unready> {
        let len = HEADER_BYTES + key.len() + size_of::<u64>();
        self.master.counts.removes += 1;
        self.change((len, true), |master| {
            master.log.remove(table | ELEMENTS, key)?;
            master.removed_at = master.log.position();
            Ok(())
        })?;
        self.master.note_element(table, key, None);
        Ok(())
    }

    fn count_elements(&mut self, table: u32, range: &KeyRange<'_>) -> usize {
        self.reveals_elements();
        self.master.log.count_elements(table, range)
    }

    fn visit_elements(
        &mut self,
        table: u32,
        range: &KeyRange<'_>,
        (skip, limit): (usize, usize),
        visit: &mut dyn FnMut(&Entry<'_>),
    ) {
        self.reveals_elements();
        let log = &self.master.log;
        let mut found = Vec::new();
        log.scan_elements(table, range, skip, limit, &mut found);
        self.master.counts.reads += found.len() as u64;
        found.iter().for_each(|at| visit(&self.master.log.entry(*at)));
    }

    fn has_elements(&self, table: u32) -> bool {
        self.master.log.has_elements_in_order(table)
    }

    fn take_gone_collection(&mut self) -> Option<(u32, OwnerKey)> {
        self.master.log.take_gone_collection()
    }

    fn forgot_gone_collections(&mut self) -> bool {
        self.master.log.forgot_gone_collections()
    }

    fn most_at_once(&self) -> usize {
        self.master.log.max_group() - GROUP_SPARE
    }

    fn begin(&mut self, len: usize, only_removes: bool) -> Result<(), Unready> {
        let most = self.most_at_once();
        let Self { master, room, .. } = self;
        let bytes = len + GROUP_SPARE;
        if len > most {
            let reason = format!("ERR {len} bytes of keys and values at once; the limit is {most}");
            return Err(Unready::Refused(reason));
        }
        if let Some(outcome) = master.reject_change(None) {
            return Err(master.unready(outcome));
        }
        let begun = master
            .seal_if_short(MARK_BYTES + bytes, only_removes)
            .and_then(|()| master.log.begin_group(bytes, only_removes));
        match begun {
            Ok(()) => *room = Some(len),
            Err(log_full) => {
                let outcome = master.log_full(log_full, None);
                return Err(master.unready(outcome));
            }
        }
        Ok(())
    }

    fn check_room(&mut self, len: usize) -> Result<(), Unready> {
        match self.room.is_some_and(|room| room < len) {
            true => Err(Unready::Refused(TOO_LARGE.to_owned())),
            false => Ok(()),
        }
    }

    fn end(&mut self) {
        self.room = None;
        self.master.log.end_group();
    }

    fn keys(
        &mut self,
        table: u32,
        after: Option<u64>,
        limit: usize,
        found: &mut Vec<Vec<u8>>,
    ) -> Result<Option<u64>, Unready> {
        let tablet = self.settle(table, &Request::Scan { table, after })?;
        let master = &mut *self.master;
        let mut page = Vec::new();
        let next = master.find_page(tablet, after, limit, &mut page);
        let next = next.map_err(|_| Unready::Later(BUSY))?;
        found.extend(page.iter().map(|at| master.log.entry(*at).key.to_vec()));
        let position = master.position_of_page(&page);
        self.position = self.position.max(position);
        Ok(next)
    }

    fn count(&self, table: u32) -> u64 {
        self.master.log.table_stats(table).objects
    }

    fn time(&mut self) -> Time {
        self.master.state_time(self.now);
        self.master.log.time()
    }

    fn take_position(&mut self) -> u64 {
        match self.master.durable.is_nothing() {
            true => 0,
            false => std::mem::take(&mut self.position),
        }
    }

    fn durable(&self) -> u64 {
        match self.master.durable.is_nothing() {
            true => u64::MAX,
            false => self.master.log.durable_position().min(self.master.copies.revealed()),
        }
    }

    fn stopped(&self) -> Option<String> {
        self.master.stopped.clone()
    }
}
