//! Feeds of changes for clients that watch tablets ([`WatchCursor`]).

use super::Master;
use super::body::MasterBody;
use super::operations::{BUSY_MICROS, SCAN_BYTES, SCAN_OBJECTS};
use crate::answers::answer;
use crate::shares::Shares;
use sprat_disk::Disk;
use sprat_host::random;
use sprat_log::Log;
use sprat_net::Nanos;
use sprat_rpc::{Outcome, Repeat, RequestId};
use sprat_wire::expiry::Ttl;
use sprat_wire::op::{
    FEED_IDLE, Item, Status, WATCH_WAIT, WatchCursor, WatchHead, write_scan_record,
};
use sprat_wire::tablet::{Range, Tablet};
use sprat_wire::value::ValueType;
use std::collections::{BTreeMap, HashSet, VecDeque};
use zerocopy::IntoBytes as _;

/// Bytes that all feeds may have. Beyond that, the largest forgets its oldest changes.
const MAX_FEED_BYTES: usize = 64 << 20;

/// The largest number of feeds. Clients that watch further tablets must retry.
const MAX_FEEDS: usize = 4096;

/// Requests that wait for changes and that sessions share, in addition to one for each session.
const MAX_WAITING: usize = 4096;

/// Bytes of a change besides its key, for [`MAX_FEED_BYTES`].
const NOTE_BYTES: usize = size_of::<Note>() + 16;

/// A change.
struct Note {
    /// Log position behind the change.
    at: u64,
    key: Box<[u8]>,
    /// Whether there is no object after the change.
    is_gone: bool,
}

/// The changes of a tablet.
struct Feed {
    id: u64,
    /// The number of the oldest change in `notes`.
    first: u64,
    notes: VecDeque<Note>,
    bytes: usize,
    /// When the feed ends, unless a client asks for it before.
    idle_at: Nanos,
    waiters: Vec<Waiter>,
    /// Whether the feed is among [`Feeds::fresh`].
    is_fresh: bool,
}

/// A request that waits for changes.
struct Waiter {
    id: RequestId,
    next: u64,
    until: Nanos,
}

/// What a reply shows.
#[derive(Clone, Copy, Debug)]
enum Shown {
    /// The changes that the log has up to this position, if there are any.
    Changes(u64),
    /// That there are none.
    None,
    /// Where the feed is now: it does not go on from where the client was.
    Beginning,
}

/// All feeds of a master.
pub(super) struct Feeds {
    feeds: BTreeMap<Tablet, Feed>,
    bytes: usize,
    shares: Shares,
    /// The feeds with changes that waiting requests may lack.
    fresh: Vec<Tablet>,
    /// The log position up to which changes were shown last.
    shown: u64,
    /// When a request has waited long enough, or a feed ends, at the earliest.
    due: Nanos,
    answers: Vec<(RequestId, Outcome<MasterBody>)>,
}

impl Default for Feeds {
    fn default() -> Self {
        Self {
            feeds: BTreeMap::new(),
            bytes: 0,
            shares: Shares::new(MAX_WAITING),
            fresh: Vec::new(),
            shown: 0,
            due: Nanos::NEVER,
            answers: Vec::new(),
        }
    }
}

impl Feed {
    /// Returns the number that the next change gets.
    fn end(&self) -> u64 {
        self.first + self.notes.len() as u64
    }

    /// Forgets the oldest change. Returns its bytes.
    fn forget(&mut self) -> usize {
        let Some(note) = self.notes.pop_front() else { return 0 };
        let bytes = NOTE_BYTES + note.key.len();
        self.first += 1;
        self.bytes -= bytes;
        bytes
    }

    /// Returns the changes from number `next` on that are in the log up to `position`.
    fn shown(&self, next: u64, position: u64) -> impl Iterator<Item = &Note> {
        let from = usize::try_from(next - self.first).expect("a feed fits in memory");
        self.notes.range(from..).take_while(move |note| note.at <= position)
    }

    fn next_deadline(&self) -> Nanos {
        self.waiters.iter().map(|waiter| waiter.until).fold(self.idle_at, Nanos::min)
    }
}

impl Feeds {
    #[inline]
    pub(super) fn are_none(&self) -> bool {
        self.feeds.is_empty()
    }

    /// Notes that an object was changed or removed.
    pub(super) fn note(&mut self, log: &Log, table: u32, key: &[u8]) {
        let position = log.position_of(table, key);
        let behind = Tablet { table, range: Range { first: position, last: u64::MAX } };
        let Some((&tablet, feed)) = self.feeds.range_mut(..=behind).next_back() else { return };
        if tablet.table != table || !tablet.range.contains(position) {
            return;
        }
        let is_gone = log.find(table, key).is_none();
        feed.notes.push_back(Note { at: log.position(), key: key.into(), is_gone });
        let bytes = NOTE_BYTES + key.len();
        feed.bytes += bytes;
        self.bytes += bytes;
        if !feed.is_fresh && !feed.waiters.is_empty() {
            feed.is_fresh = true;
            self.fresh.push(tablet);
        }
        while self.bytes > MAX_FEED_BYTES {
            let largest = self.feeds.values_mut().max_by_key(|feed| feed.bytes);
            self.bytes -= largest.expect("there is one").forget();
        }
    }

    /// Ends the feeds of tablets that are not served any more.
    pub(super) fn assign(&mut self, served: &[Tablet]) {
        let gone = self.feeds.extract_if(.., |tablet, _| served.binary_search(tablet).is_err());
        for (_, feed) in gone {
            self.bytes -= feed.bytes;
            for waiter in feed.waiters {
                self.shares.give(waiter.id.session());
                let unknown = answer(Status::UnknownTable, false, 0, 0, Repeat::Retain);
                self.answers.push((waiter.id, Outcome::Reply(unknown)));
            }
        }
    }

    /// Returns the feed of a tablet, and begins one if there is none; `None` if there are too many.
    fn feed(&mut self, now: Nanos, tablet: Tablet) -> Option<&mut Feed> {
        if self.feeds.len() >= MAX_FEEDS && !self.feeds.contains_key(&tablet) {
            return None;
        }
        self.due = self.due.min(now + FEED_IDLE);
        let feed = self.feeds.entry(tablet).or_insert_with(|| Feed {
            id: random().max(1), // zero stands for no feed
            first: 1,
            notes: VecDeque::new(),
            bytes: 0,
            idle_at: now,
            waiters: Vec::new(),
            is_fresh: false,
        });
        feed.idle_at = now + FEED_IDLE;
        Some(feed)
    }

    /// Lets a request wait for changes of a tablet from number `next` on.
    fn wait(&mut self, tablet: Tablet, waiter: Waiter) {
        let feed = self.feeds.get_mut(&tablet).expect("it was just found");
        self.shares.take(waiter.id.session());
        self.due = self.due.min(waiter.until);
        if !feed.is_fresh && feed.end() > waiter.next {
            feed.is_fresh = true;
            self.fresh.push(tablet);
        }
        feed.waiters.push(waiter);
    }

    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        Some(self.due)
    }

    /// Takes a reply that is ready to leave.
    #[inline]
    pub(super) fn take(&mut self) -> Option<(RequestId, Outcome<MasterBody>)> {
        self.answers.pop()
    }

    /// Returns the sessions' shares of waiting requests.
    pub(super) fn shares(&self) -> &Shares {
        &self.shares
    }
}

impl<D: Disk> Master<D> {
    /// Answers with the changes of a tablet after those that the client has, or waits for some.
    pub(super) fn watch(
        &mut self,
        now: Nanos,
        id: RequestId,
        tablet: Tablet,
        from: &WatchCursor,
    ) -> Outcome<MasterBody> {
        self.counts.watches += 1;
        if !self.feeds.shares.admits(id.session()) {
            self.counts.turned_away += 1;
            return Outcome::Retry(BUSY_MICROS);
        }
        let Some(feed) = self.feeds.feed(now, tablet) else {
            self.counts.turned_away += 1;
            return Outcome::Retry(BUSY_MICROS);
        };
        let (next, end) = (from.next.get(), feed.end());
        let has_more = from.feed == feed.id && (feed.first..=end).contains(&next);
        if !has_more {
            return self
                .show(id, tablet, end, Shown::Beginning)
                .unwrap_or(Outcome::Retry(BUSY_MICROS));
        }
        let changes = Shown::Changes(self.shown_position());
        if let Some(outcome) = self.show(id, tablet, next, changes) {
            return outcome;
        }
        self.feeds.wait(tablet, Waiter { id, next, until: now + WATCH_WAIT });
        Outcome::Pending
    }

    /// Returns the log position up to which changes may be shown to clients.
    fn shown_position(&self) -> u64 {
        match self.durable.is_nothing() {
            true => self.log.position(),
            // While a backup holds answers back, an object that was changed after its cut must not
            // be shown, and may have been changed before, too.
            false if self.copies.holds() => 0,
            false => self.log.durable_position(),
        }
    }

    /// Makes the reply with the changes of a tablet's feed from number `next` on that the log has
    /// up to `position`; `None` if there are none, or no buffer is left.
    fn show(
        &mut self,
        id: RequestId,
        tablet: Tablet,
        next: u64,
        what: Shown,
    ) -> Option<Outcome<MasterBody>> {
        let Self { feeds, log, held, migration_sources, .. } = self;
        let feed = feeds.feeds.get(&tablet)?;
        let position = match what {
            Shown::Changes(position) => {
                // What expires or is evicted here now, while the tablet is moving, the target may
                // still have.
                if migration_sources.is_frozen(tablet) {
                    return None;
                }
                feed.shown(next, position).next()?;
                position
            }
            Shown::None | Shown::Beginning => 0,
        };
        let (mut until, mut present, mut removed) = (next, 0_u32, Vec::new());
        let body = held.made.make(id.session(), |out| {
            let begin = out.len();
            out.resize(begin + size_of::<WatchHead>(), 0);
            let mut seen = HashSet::new();
            for note in feed.shown(next, position) {
                let size = out.len() - begin;
                if size >= SCAN_BYTES || seen.len() >= SCAN_OBJECTS {
                    break;
                }
                until += 1;
                // If the object is not as the note says, or not durable, a later note shows it. So
                // does the end of a transaction that has locked it, which may be committed already;
                // and the removal of an object that has expired. Until that is durable, a server
                // whose clock is behind may get the object's tablet, and show it again.
                let found = log.find(tablet.table, &note.key);
                let entry = found.map(|found| log.entry(found));
                let is_shown = match (found, &entry) {
                    (Some(found), Some(entry)) => {
                        !note.is_gone && log.is_durable(found) && !log.is_expired(entry)
                    }
                    _ => note.is_gone,
                };
                if !is_shown
                    || log.is_locked(tablet.table, &note.key, false)
                    || !seen.insert(&note.key)
                {
                    continue;
                }
                match entry {
                    Some(entry) => {
                        let ttl = Ttl::left(log.time(), entry.expires);
                        let (version, key, value) = (entry.version, entry.key, entry.value);
                        let value_type = entry.value_type;
                        write_scan_record(out, &Item { version, key, value, value_type, ttl });
                        present += 1;
                    }
                    None => removed.push(&note.key),
                }
            }
            for key in &removed {
                let (version, value, value_type) = (0, &[][..], ValueType::Bytes);
                write_scan_record(out, &Item { version, key, value, value_type, ttl: None });
            }
            let head = WatchHead {
                feed: feed.id.into(),
                first: tablet.range.first.into(),
                last: tablet.range.last.into(),
                seed: log.config().seed.into(),
                present: present.into(),
            };
            out[begin..begin + size_of::<WatchHead>()].copy_from_slice(head.as_bytes());
        })?;
        let count = present + u32::try_from(removed.len()).expect("few");
        let begins = matches!(what, Shown::Beginning);
        let reply = answer(Status::Ok, begins, count, until, Repeat::Reexecute);
        Some(Outcome::Reply(reply.with_body(MasterBody::Made(body))))
    }

    /// Answers requests for which there are changes, or whose time is over, and ends feeds that no
    /// client asks for. Returns whether there was any.
    pub(super) fn poll_feeds(&mut self, now: Nanos) -> bool {
        let is_due = self.feeds.due <= now;
        if self.feeds.fresh.is_empty() && !is_due {
            return false;
        }
        let position = self.shown_position();
        if position == self.feeds.shown && !is_due {
            return false;
        }
        self.feeds.shown = position;
        let is_leased = self.is_leased(now);
        let mut tablets = std::mem::take(&mut self.feeds.fresh);
        if is_due {
            tablets = self.feeds.feeds.keys().copied().collect();
        }
        let answered = self.feeds.answers.len();
        for tablet in tablets {
            self.poll_feed(now, tablet, is_leased, position);
        }
        if is_due {
            self.feeds.feeds.retain(|_, feed| feed.idle_at > now);
            self.feeds.bytes = self.feeds.feeds.values().map(|feed| feed.bytes).sum();
            let deadlines = self.feeds.feeds.values().map(Feed::next_deadline);
            self.feeds.due = deadlines.fold(Nanos::NEVER, Nanos::min);
        }
        self.feeds.answers.len() > answered
    }

    fn poll_feed(&mut self, now: Nanos, tablet: Tablet, is_leased: bool, position: u64) {
        let Some(feed) = self.feeds.feeds.get_mut(&tablet) else { return };
        feed.is_fresh = false;
        let first = feed.first;
        for waiter in std::mem::take(&mut feed.waiters) {
            let Waiter { id, next, until } = waiter;
            let is_over = until <= now;
            let outcome = match is_leased {
                false => is_over.then_some(Outcome::Retry(BUSY_MICROS)),
                // The feed has forgotten changes that the client lacks: it learns that when it asks
                // again.
                true if next < first => Some(Outcome::Retry(BUSY_MICROS)),
                true => match self.show(id, tablet, next, Shown::Changes(position)) {
                    None if is_over => self.show(id, tablet, next, Shown::None),
                    shown => shown,
                },
            };
            self.feeds.shares.give(id.session());
            match outcome {
                Some(outcome) => self.feeds.answers.push((id, outcome)),
                None => self.feeds.wait(tablet, Waiter { id, next, until }),
            }
        }
    }
}
