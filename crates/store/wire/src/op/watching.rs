//! Watching the changes of a table, tablet by tablet.
//!
//! A server notes the changes of a tablet from the first [`Request::Watch`](super::Request::Watch)
//! for it on, in its memory, as long as clients ask for them. The notes are a *feed*, with a number
//! that no other feed has. A client asks for what came after the last answer. It learns the newest
//! state of each object that has changed, not all states in between. If the feed is another than
//! before, or has forgotten some of what the client lacks, the client must list the tablet's
//! objects: that is so after the tablet has moved or was recovered, and if the client was slow.

use super::answer::Answer;
use super::records::{Item, Items};
use crate::tablet::Range;
use std::time::Duration;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// How long a server keeps a feed, counted from the last request for it.
pub const FEED_IDLE: Duration = Duration::from_secs(60);

/// How long a server waits for changes before it answers that there are none. Clients take a server
/// for silent that does not answer for twice that time.
pub const WATCH_WAIT: Duration = Duration::from_millis(200);

/// What a client has of a feed.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Eq,
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    PartialEq,
    Unaligned,
)]
#[repr(C)]
pub struct WatchCursor {
    /// The feed; zero to begin.
    pub feed: U64,
    /// The number of the first change that the client lacks.
    pub next: U64,
}

/// The beginning of the body of an answer. [`Items`] follow.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct WatchHead {
    /// The feed.
    pub feed: U64,
    /// The first position of the feed's tablet.
    pub first: U64,
    /// The last position of the feed's tablet.
    pub last: U64,
    /// The seed of positions: see [`tablet::position`](crate::tablet::position).
    pub seed: U64,
    /// How many of the items are objects that exist. The others were removed; of them only the key
    /// counts.
    pub present: U32,
}

/// The answer to [`Request::Watch`](super::Request::Watch).
#[derive(Clone, Debug)]
pub struct WatchPage<'a> {
    /// The feed.
    pub feed: u64,
    /// Whether the page goes on from where the client was (`more` of the answer is not set).
    /// Otherwise the client must list the objects in the range.
    pub continues: bool,
    /// The number of the first change that this page does not cover.
    pub next: u64,
    /// The positions of the feed's tablet.
    pub range: Range,
    /// The seed of positions.
    pub seed: u64,
    /// The objects that were changed and exist.
    pub present: Vec<Item<'a>>,
    /// The objects that were removed.
    pub removed: Vec<Item<'a>>,
}

impl<'a> WatchPage<'a> {
    /// Parses an answer; `None` if it is malformed.
    #[must_use]
    pub fn parse(answer: &Answer<'a>) -> Option<Self> {
        let (head, items) = WatchHead::ref_from_prefix(answer.body).ok()?;
        let (first, last) = (head.first.get(), head.last.get());
        let mut items = Items::new(items, answer.count).collect::<Option<Vec<_>>>()?;
        let present = usize::try_from(head.present.get()).ok()?;
        if first > last || present > items.len() {
            return None;
        }
        let removed = items.split_off(present);
        Some(Self {
            feed: head.feed.get(),
            continues: !answer.more,
            next: answer.number,
            range: Range { first, last },
            seed: head.seed.get(),
            present: items,
            removed,
        })
    }
}
