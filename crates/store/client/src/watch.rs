//! Watching the changes of a table.

use crate::asynchronous::{AsyncClient, Call, thread_waker};
use crate::error::Error;
use crate::types::{Page, Row, Table, TabletChanges};
use sprat_wire::op::{Answer, Request, WatchCursor};
use sprat_wire::tablet::{Range, position};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

/// The largest number of parts of a table that a watch keeps apart. They are more than the table's
/// tablets only if tablets were divided and joined again.
const MAX_PARTS: usize = 8192;

/// Bytes of a part in a cursor.
const PART_BYTES: usize = 4 * size_of::<u64>();

/// What a [`Watch`] reports.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Change {
    /// An object was stored or changed, or is listed; this is its state.
    Present(Row),
    /// The object of this key was removed, has expired or was evicted.
    Removed(Vec<u8>),
    /// The watch has missed changes of objects at these [positions](Watch::position), and lists all
    /// that exist there.
    ListBegins(Range),
    /// The list is complete. What was not reported at these positions since it began does not
    /// exist.
    ListEnds(Range),
}

/// Where a [`Watch`] begins.
#[derive(Clone, Copy, Debug)]
pub enum WatchFrom<'a> {
    /// Report what changes from now on.
    Now,
    /// First list all objects.
    List,
    /// Go on from the [cursor](Watch::cursor) of an earlier watch of the table.
    Cursor(&'a [u8]),
}

/// The changes of a table, from all its servers.
///
/// Every change is reported at least once, by the state that the object has then: a change is left
/// out if a later change of the same object is reported. Reports of one object are in order; those
/// of different objects are not, and a transaction is reported in parts. Nothing is reported that
/// a crash could undo.
///
/// Servers note changes in bounded memory while clients watch, and for a minute after. If a watch
/// was slower, or if a tablet has moved or was recovered, the watch lists the objects there again:
/// see [`Change::ListBegins`]. So it reports all that it needs to keep a copy, an index or a cache
/// of the table, whatever happens.
///
/// ```no_run
/// # fn main() -> Result<(), sprat_client::Error> {
/// use sprat_client::{AsyncClient, Change, Options, Watch, WatchFrom};
/// use std::time::Duration;
/// let client = AsyncClient::connect(&Options::default())?;
/// let users = client.table("users").wait()?;
/// let mut watch = Watch::new(&client, users, WatchFrom::Now)?;
/// for change in watch.wait(Duration::from_secs(10))? {
///     if let Change::Present(row) = change {
///         println!("{} has version {}", row.key.escape_ascii(), row.version);
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Watch {
    client: AsyncClient,
    watcher: Watcher,
    asked: VecDeque<(u64, Asked)>,
}

/// The part of a [`Watch`] that knows what to ask and what answers mean, without network or clock,
/// for the simulator. The owner asks each [`WatchQuestion`] that [`question`](Self::question)
/// returns, and passes the answers to [`answer`](Self::answer).
pub struct Watcher {
    table: Table,
    parts: Vec<Part>,
    seed: Option<u64>,
    tags: u64,
}

/// What to ask: the arguments of [`AsyncClient::watch_tablet`] or [`AsyncClient::scan`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WatchQuestion {
    /// What has changed in the tablet of a position, after a cursor.
    Changes(u64, WatchCursor),
    /// The objects behind a position.
    Page(Option<u64>),
}

/// The answer to a [`WatchQuestion`].
#[derive(Clone, Debug)]
pub enum WatchReply {
    /// What has changed.
    Changes(TabletChanges),
    /// Objects.
    Page(Page),
}

/// A part of the table, which lies within one tablet as far as the client knows.
struct Part {
    range: Range,
    state: State,
    /// The tag of the question about it, if there is one.
    asked: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The feed is not known. Whether the objects must be listed.
    Unknown(bool),
    /// The objects behind a position are to be listed. Then follow the changes of a feed.
    Listing(Option<u64>, WatchCursor),
    /// All changes of a feed up to here were reported.
    Live(WatchCursor),
}

enum Asked {
    Changes(Call<TabletChanges>),
    Page(Call<Page>),
}

impl Asked {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<WatchReply, Error>> {
        match self {
            Self::Changes(call) => {
                Pin::new(call).poll(context).map(|answer| answer.map(WatchReply::Changes))
            }
            Self::Page(call) => {
                Pin::new(call).poll(context).map(|answer| answer.map(WatchReply::Page))
            }
        }
    }
}

impl WatchQuestion {
    /// Returns the request to send.
    #[must_use]
    pub fn request(&self, table: Table) -> Request<'_> {
        match self {
            Self::Changes(position, from) => {
                Request::Watch { table: table.0, position: *position, from }
            }
            Self::Page(after) => Request::Scan { table: table.0, after: *after },
        }
    }

    /// Parses an answer whose status is `Ok`; `None` if it is malformed.
    #[must_use]
    pub fn parse(&self, answer: &Answer<'_>) -> Option<WatchReply> {
        match self {
            Self::Changes(..) => TabletChanges::of(answer).map(WatchReply::Changes),
            Self::Page(_) => Page::of(answer).map(WatchReply::Page),
        }
    }
}

impl Part {
    fn new(range: Range, state: State) -> Self {
        Self { range, state, asked: None }
    }
}

impl Watch {
    /// Begins to watch a table.
    ///
    /// # Errors
    /// [`Error::Refused`] when the cursor is not one.
    pub fn new(client: &AsyncClient, table: Table, from: WatchFrom<'_>) -> Result<Self, Error> {
        let watcher = Watcher::new(table, from)?;
        Ok(Self { client: client.clone(), watcher, asked: VecDeque::new() })
    }

    /// Returns where to go on, with [`WatchFrom::Cursor`], after all that was reported so far. The
    /// cursor of a watch that is listing objects begins that list again.
    #[must_use]
    pub fn cursor(&self) -> Vec<u8> {
        self.watcher.cursor()
    }

    /// Returns the position of a key, for the ranges of [lists](Change::ListBegins); `None` before
    /// the first report.
    #[must_use]
    pub fn position(&self, key: &[u8]) -> Option<u64> {
        self.watcher.position(key)
    }

    /// Waits for the next changes. They are at least one.
    ///
    /// # Errors
    /// [`Error`] when a server does not answer in time, the table was dropped, or this client has
    /// no right to read it. The watch goes on if it is called again, unless the table is gone.
    pub async fn next(&mut self) -> Result<Vec<Change>, Error> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Waits for the next changes on this thread, for callers that have no executor. There are none
    /// when the time is over.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn wait(&mut self, timeout: Duration) -> Result<Vec<Change>, Error> {
        let begun = Instant::now();
        let waker = thread_waker();
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(changes) = self.poll_next(&mut context) {
                return changes;
            }
            let Some(left) = timeout.checked_sub(begun.elapsed()).filter(|left| !left.is_zero())
            else {
                return Ok(Vec::new());
            };
            park_timeout(left);
        }
    }

    /// Polls for the next changes: see [`next`](Self::next).
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<Change>, Error>> {
        let Self { client, watcher, asked } = self;
        let table = watcher.table;
        loop {
            while let Some((tag, question)) = watcher.question() {
                let call = match question {
                    WatchQuestion::Changes(position, from) => {
                        Asked::Changes(client.watch_tablet(table, position, from))
                    }
                    WatchQuestion::Page(after) => Asked::Page(client.scan(table, after)),
                };
                asked.push_back((tag, call));
            }
            let ready =
                asked.iter_mut().enumerate().find_map(|(at, (_, call))| match call.poll(context) {
                    Poll::Ready(answer) => Some((at, answer)),
                    Poll::Pending => None,
                });
            let Some((at, answer)) = ready else { return Poll::Pending };
            // Those before it were pending: it goes to the end, so that each has its turn.
            let (tag, _) = asked.remove(at).expect("just found");
            let changes = watcher.answer(tag, answer)?;
            if !changes.is_empty() {
                return Poll::Ready(Ok(changes));
            }
        }
    }
}

impl Watcher {
    /// Begins to watch a table.
    ///
    /// # Errors
    /// [`Error::Refused`] when the cursor is not one.
    pub fn new(table: Table, from: WatchFrom<'_>) -> Result<Self, Error> {
        let all = |lists| vec![Part::new(Range::ALL, State::Unknown(lists))];
        let parts = match from {
            WatchFrom::Now => all(false),
            WatchFrom::List => all(true),
            WatchFrom::Cursor(bytes) => parts(bytes).ok_or_else(|| Error::Refused {
                server: "this client".to_owned(),
                reason: "the cursor from which to watch is malformed".to_owned(),
            })?,
        };
        Ok(Self { table, parts, seed: None, tags: 0 })
    }

    /// See [`Watch::cursor`].
    #[must_use]
    pub fn cursor(&self) -> Vec<u8> {
        let live = self.parts.iter().filter_map(|part| match part.state {
            State::Live(WatchCursor { feed, next }) => {
                Some([part.range.first, part.range.last, feed.get(), next.get()])
            }
            State::Unknown(_) | State::Listing(..) => None,
        });
        live.flat_map(|numbers| numbers.map(u64::to_le_bytes)).flatten().collect()
    }

    /// See [`Watch::position`].
    #[must_use]
    pub fn position(&self, key: &[u8]) -> Option<u64> {
        self.seed.map(|seed| position(seed, self.table.0, key))
    }

    /// Returns the next question, with the tag of its answer; `None` when all parts wait for an
    /// answer.
    pub fn question(&mut self) -> Option<(u64, WatchQuestion)> {
        let part = self.parts.iter_mut().find(|part| part.asked.is_none())?;
        self.tags += 1;
        part.asked = Some(self.tags);
        let question = match part.state {
            State::Unknown(_) => WatchQuestion::Changes(part.range.first, WatchCursor::default()),
            State::Listing(after, _) => WatchQuestion::Page(after),
            State::Live(from) => WatchQuestion::Changes(part.range.first, from),
        };
        Some((self.tags, question))
    }

    /// Takes the answer to a question. Returns what it reports, which may be nothing.
    ///
    /// # Errors
    /// The error of the answer. The question is asked again.
    pub fn answer(
        &mut self,
        tag: u64,
        answer: Result<WatchReply, Error>,
    ) -> Result<Vec<Change>, Error> {
        let Some(at) = self.parts.iter().position(|part| part.asked == Some(tag)) else {
            return Ok(Vec::new());
        };
        self.parts[at].asked = None;
        Ok(match answer? {
            WatchReply::Changes(changes) => self.take_changes(at, changes),
            WatchReply::Page(page) => self.take_page(at, page),
        })
    }

    fn take_changes(&mut self, at: usize, changes: TabletChanges) -> Vec<Change> {
        let TabletChanges { feed, continues, next, range, seed, present, removed } = changes;
        self.seed = Some(seed);
        let part = &mut self.parts[at];
        let whole = part.range;
        let now = WatchCursor { feed: feed.into(), next: next.into() };
        let contains = |key: &[u8]| whole.contains(position(seed, self.table.0, key));
        match part.state {
            State::Live(_) if continues => {
                part.state = State::Live(now);
                let present = present.into_iter().filter(|row| contains(&row.key));
                let removed = removed.into_iter().filter(|key| contains(key)).map(Change::Removed);
                return present.map(Change::Present).chain(removed).collect();
            }
            _ => {}
        }
        let lists = !matches!(part.state, State::Unknown(false));
        let Some(known) = whole.overlap(range).filter(|known| known.first == whole.first) else {
            return Vec::new(); // the tablet has moved meanwhile: ask again
        };
        part.range = known;
        part.state = match lists {
            true => State::Listing(known.first.checked_sub(1), now),
            false => State::Live(now),
        };
        if known.last < whole.last {
            let rest = Range { first: known.last + 1, last: whole.last };
            self.parts.push(Part::new(rest, State::Unknown(lists)));
        }
        if self.parts.len() > MAX_PARTS {
            self.parts = vec![Part::new(Range::ALL, State::Unknown(true))];
            return Vec::new();
        }
        if lists { vec![Change::ListBegins(known)] } else { Vec::new() }
    }

    fn take_page(&mut self, at: usize, page: Page) -> Vec<Change> {
        let part = &mut self.parts[at];
        let State::Listing(_, now) = part.state else { unreachable!("a page was asked for") };
        let seed = self.seed.expect("the feed was found");
        let is_its = |row: &Row| part.range.contains(position(seed, self.table.0, &row.key));
        let rows = page.rows.into_iter().filter(is_its).map(Change::Present);
        let mut changes: Vec<Change> = rows.collect();
        match page.next.filter(|next| *next < part.range.last) {
            Some(next) => part.state = State::Listing(Some(next), now),
            None => {
                part.state = State::Live(now);
                changes.push(Change::ListEnds(part.range));
            }
        }
        changes
    }
}

/// Returns the parts of a cursor, and what lies between them; `None` if it is malformed.
fn parts(bytes: &[u8]) -> Option<Vec<Part>> {
    let (live, []) = bytes.as_chunks::<PART_BYTES>() else { return None };
    let mut parts = Vec::new();
    for part in live {
        let (numbers, _) = part.as_chunks();
        let [first, last, feed, next] = [0, 1, 2, 3].map(|at| u64::from_le_bytes(numbers[at]));
        if first > last {
            return None;
        }
        let cursor = WatchCursor { feed: feed.into(), next: next.into() };
        parts.push(Part::new(Range { first, last }, State::Live(cursor)));
    }
    parts.sort_by_key(|part| part.range.first);
    let overlap = |pair: &[Part]| pair[0].range.last >= pair[1].range.first;
    if parts.len() > MAX_PARTS || parts.windows(2).any(overlap) {
        return None;
    }
    let gaps = Range::ALL.without(parts.iter().map(|part| part.range));
    parts.extend(gaps.into_iter().map(|range| Part::new(range, State::Unknown(true))));
    Some(parts)
}
