//! What is being sent, for those who watch: each body from its first byte, and the last ones that
//! ended.

use serde::Serialize;
use sprat_host::lock;
use sprat_pace::path::Path;
use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Transfers that ended and are still told of.
pub const MAX_PAST: usize = 32;

/// Points of a transfer's history: with [`STEP`] the last four minutes.
pub const MAX_POINTS: usize = 120;

/// Time between two points of a transfer's history.
pub const STEP: Duration = Duration::from_secs(2);

/// All that is known of bodies that are, or were lately, being sent.
#[derive(Debug, Default)]
pub struct Transfers {
    next: AtomicU64,
    live: Mutex<BTreeMap<u64, Arc<Transfer>>>,
    past: Mutex<VecDeque<Snapshot>>,
}

/// One body.
#[derive(Debug)]
struct Transfer {
    id: u64,
    peer: SocketAddr,
    path: String,
    verified: bool,
    /// Whether it comes here.
    incoming: bool,
    total: u64,
    began: Instant,
    tcp: Arc<TcpStream>,
    /// Bytes given to the kernel.
    sent: AtomicU64,
    history: Mutex<VecDeque<Point>>,
}

/// How far a transfer was at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Seconds since it began.
    pub seconds: f64,
    /// Bytes.
    pub bytes: u64,
}

/// A transfer as it is now, or as it ended.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// Its number since the server began.
    pub id: u64,
    /// To whom.
    pub peer: String,
    /// What, as an address has it.
    pub path: String,
    /// Whether in verified form.
    pub verified: bool,
    /// Whether it is received, and not sent.
    pub incoming: bool,
    /// Bytes of the whole body.
    pub total: u64,
    /// Bytes given to the kernel so far; of what is received, bytes of the file that are here.
    pub sent: u64,
    /// Seconds since it began; until its end when it has ended.
    pub seconds: f64,
    /// How it ended: `done`, or why not; none while it goes on.
    pub ended: Option<String>,
    /// Round-trip time, milliseconds.
    pub rtt_ms: f64,
    /// The rate that the kernel measured last, bytes a second.
    pub delivery_rate: u64,
    /// Bytes sent again on this connection.
    pub retransmitted: u64,
    /// How far it was, every [`STEP`] and now.
    pub history: Vec<Point>,
}

impl Transfers {
    /// A body begins; it ends when what is given back is dropped.
    #[must_use]
    pub(super) fn begin(
        self: &Arc<Self>,
        tcp: Arc<TcpStream>,
        peer: SocketAddr,
        path: &str,
        (verified, incoming): (bool, bool),
        total: u64,
    ) -> ActiveTransfer {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let transfer = Arc::new(Transfer {
            id,
            peer,
            path: path.to_owned(),
            verified,
            incoming,
            total,
            began: Instant::now(),
            tcp,
            sent: AtomicU64::new(0),
            history: Mutex::default(),
        });
        lock(&self.live).insert(id, transfer.clone());
        ActiveTransfer { transfers: self.clone(), transfer, how: "broken off".to_owned() }
    }

    /// What goes on, oldest first, and what ended lately, newest first.
    #[must_use]
    pub fn snapshot(&self) -> (Vec<Snapshot>, Vec<Snapshot>) {
        let live: Vec<_> = lock(&self.live).values().cloned().collect();
        let live = live.iter().map(|transfer| transfer.snapshot(None)).collect();
        (live, lock(&self.past).iter().cloned().collect())
    }
}

impl Transfer {
    fn now(&self) -> Point {
        Point {
            seconds: self.began.elapsed().as_secs_f64(),
            bytes: self.sent.load(Ordering::Relaxed),
        }
    }

    fn snapshot(&self, ended: Option<String>) -> Snapshot {
        let path = Path::of(&*self.tcp).unwrap_or_default();
        let now = self.now();
        let mut history: Vec<_> = lock(&self.history).iter().copied().collect();
        history.push(now);
        Snapshot {
            id: self.id,
            peer: self.peer.to_string(),
            path: self.path.clone(),
            verified: self.verified,
            incoming: self.incoming,
            total: self.total,
            sent: now.bytes,
            seconds: now.seconds,
            ended,
            rtt_ms: path.rtt.as_secs_f64() * 1e3,
            delivery_rate: path.delivery_rate,
            retransmitted: path.retransmitted,
            history,
        }
    }
}

/// A transfer under way.
pub(super) struct ActiveTransfer {
    transfers: Arc<Transfers>,
    transfer: Arc<Transfer>,
    how: String,
}

impl ActiveTransfer {
    /// So many bytes more were given to the kernel.
    pub(super) fn add(&self, bytes: u64) {
        self.transfer.sent.fetch_add(bytes, Ordering::Relaxed);
        let now = self.transfer.now();
        let mut history = lock(&self.transfer.history);
        if history.back().is_none_or(|last| now.seconds - last.seconds >= STEP.as_secs_f64()) {
            history.push_back(now);
            while history.len() > MAX_POINTS {
                history.pop_front();
            }
        }
    }

    pub(super) fn sent(&self) -> u64 {
        self.transfer.sent.load(Ordering::Relaxed)
    }

    /// How it ended.
    pub(super) fn end(&mut self, how: &str) {
        how.clone_into(&mut self.how);
    }
}

impl Drop for ActiveTransfer {
    fn drop(&mut self) {
        lock(&self.transfers.live).remove(&self.transfer.id);
        let mut past = lock(&self.transfers.past);
        past.push_front(self.transfer.snapshot(Some(std::mem::take(&mut self.how))));
        past.truncate(MAX_PAST);
    }
}
