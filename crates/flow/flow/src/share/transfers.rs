//! Statistics of the transfers in progress and of the last transfers that ended.

use serde::Serialize;
use sprat_host::lock;
use sprat_pace::path::Path;
use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Limit on the ended transfers that are kept.
pub const MAX_PAST: usize = 32;

/// Limit on the points of a transfer's history. With [`STEP`] they cover at least the last four
/// minutes.
pub const MAX_POINTS: usize = 120;

/// Shortest time between two points of a history.
pub const STEP: Duration = Duration::from_secs(2);

/// The transfers in progress, and the last transfers that ended.
#[derive(Debug, Default)]
pub struct Transfers {
    next: AtomicU64,
    live: Mutex<BTreeMap<u64, Arc<Transfer>>>,
    past: Mutex<VecDeque<Snapshot>>,
}

/// The transfer of one body.
#[derive(Debug)]
struct Transfer {
    id: u64,
    peer: SocketAddr,
    path: String,
    verified: bool,
    /// Whether the body is received (an upload) rather than sent.
    incoming: bool,
    total: u64,
    began: Instant,
    tcp: Arc<TcpStream>,
    /// Bytes passed to the kernel; for an upload, bytes of the file received.
    sent: AtomicU64,
    history: Mutex<VecDeque<Point>>,
}

/// Progress of a transfer at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Seconds since the transfer began.
    pub seconds: f64,
    /// Bytes transferred so far.
    pub bytes: u64,
}

/// A transfer as it is now, or as it ended.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// The number of the transfer, counted since the server started.
    pub id: u64,
    /// The client's address.
    pub peer: String,
    /// The percent-encoded path.
    pub path: String,
    /// Whether the body is in verified form.
    pub verified: bool,
    /// Whether the transfer is an upload.
    pub incoming: bool,
    /// Length of the body in bytes.
    pub total: u64,
    /// Bytes passed to the kernel so far; for an upload, bytes of the file received.
    pub sent: u64,
    /// Seconds from the beginning of the transfer until now, or until its end.
    pub seconds: f64,
    /// The outcome of the transfer: `done`, or the failure; `None` while it is in progress.
    pub ended: Option<String>,
    /// Round-trip time, in milliseconds; 0 if unknown.
    pub rtt_ms: f64,
    /// The kernel's last estimate of the delivery rate, in bytes per second.
    pub delivery_rate: u64,
    /// Bytes retransmitted on this connection.
    pub retransmitted: u64,
    /// The progress of the transfer, at intervals of at least [`STEP`], and now.
    pub history: Vec<Point>,
}

impl Transfers {
    /// Begins a transfer, which ends when the returned guard is dropped.
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

    /// Returns the transfers in progress, oldest first, and the transfers that ended, latest first.
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

/// A transfer in progress.
pub(super) struct ActiveTransfer {
    transfers: Arc<Transfers>,
    transfer: Arc<Transfer>,
    how: String,
}

impl ActiveTransfer {
    /// Adds bytes passed to the kernel, or received from it.
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

    /// Sets how the transfer has ended.
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
