//! Connects a coordinator on its node with the driver of its [election](super::election), which
//! runs on another thread. The driver appoints the coordinator as leader, with the catalog and the
//! end of its lease; the coordinator resigns when it has to start a new term.

use super::catalog::Catalog;
use super::election::{Election, OWN_LEASE};
use super::metadata::Metadata;
use sprat_host::lock;
use sprat_net::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A term that a coordinator leads, with what the coordinator needs to begin it.
pub struct LeaderTerm<M> {
    /// The term's number.
    pub term: u64,
    /// When the driver learned that the term has begun, by the node's clock. The term began before.
    pub taken: Nanos,
    /// The catalog, read from the metadata after the term had begun.
    pub catalog: Catalog<M>,
    /// The lease during which the coordinator may act as leader; the driver extends it.
    pub valid: LeaderLease,
}

/// The end of a leader's lease in one term, by the node's clock. The driver of the election sets it
/// and the coordinator reads it: clones share one value.
#[derive(Clone, Debug, Default)]
pub struct LeaderLease(Arc<AtomicU64>);

impl LeaderLease {
    /// Sets the end of the lease; [`Nanos`] 0 ends it at once.
    pub fn set(&self, until: Nanos) {
        self.0.store(until.0, Ordering::Release);
    }

    /// Returns whether the lease holds at `now`.
    #[must_use]
    pub fn is_valid(&self, now: Nanos) -> bool {
        now < self.until()
    }

    /// Returns whether the leader has found since `time` that it still leads.
    #[must_use]
    pub fn is_confirmed_since(&self, time: Nanos) -> bool {
        self.until() >= time + OWN_LEASE
    }

    /// Returns the time at which the lease ends, unless it is extended.
    #[must_use]
    pub fn until(&self) -> Nanos {
        Nanos(self.0.load(Ordering::Acquire))
    }
}

/// The latest change of leader, which the service takes from the mailbox.
pub(super) struct LeaderUpdate<M> {
    /// Set if the service leads now.
    pub(super) term: Option<LeaderTerm<M>>,
    /// Set if the service does not lead: the leader's term and locator, or zero and "" if they are
    /// not known.
    pub(super) leader: Option<(u64, String)>,
}

impl<M> LeaderUpdate<M> {
    /// Returns whether an earlier call of [`LeaderMailbox::take_update`] took this update already.
    pub(super) fn is_empty(&self) -> bool {
        self.term.is_none() && self.leader.is_none()
    }
}

struct Inner<M> {
    update: LeaderUpdate<M>,
    resigned: Option<u64>,
    /// Whether the service waits until its lease is confirmed.
    confirms: bool,
}

/// Carries changes of leader from the driver of an election to the coordinator's service, and
/// resignations and requests for confirmation back. The driver and the service each hold a clone.
///
/// The mailbox holds only the latest update: a deposition replaces an appointment that the service
/// has not taken. The driver rings the bell of the coordinator's node after each update, so that
/// the node's loop reads the mailbox. A [`LeaderLease`] is shared outside the mailbox, because it
/// must end a leader's rights at once, even if the service has not read the mailbox.
pub struct LeaderMailbox<M> {
    inner: Arc<Mutex<Inner<M>>>,
    /// Number of updates so far. The service locks the mailbox only if this number has changed.
    updates: Arc<AtomicU64>,
}

impl<M> Clone for LeaderMailbox<M> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), updates: Arc::clone(&self.updates) }
    }
}

impl<M> Default for LeaderMailbox<M> {
    fn default() -> Self {
        let update = LeaderUpdate { term: None, leader: None };
        let inner = Arc::new(Mutex::new(Inner { update, resigned: None, confirms: false }));
        Self { inner, updates: Arc::default() }
    }
}

impl<M> LeaderMailbox<M> {
    fn change<T>(&self, change: impl FnOnce(&mut Inner<M>) -> T) -> T {
        change(&mut lock(&self.inner))
    }

    /// Makes the coordinator the leader; ring its node's bell afterwards.
    pub fn appoint(&self, term: LeaderTerm<M>) {
        self.change(|inner| inner.update = LeaderUpdate { term: Some(term), leader: None });
        self.updates.fetch_add(1, Ordering::Release);
    }

    /// Makes the coordinator a follower; ring its node's bell afterwards. `leader` is the term and
    /// the locator of the leader, if they are known.
    pub fn depose(&self, leader: Option<(u64, String)>) {
        let leader = leader.unwrap_or_default();
        self.change(|inner| inner.update = LeaderUpdate { term: None, leader: Some(leader) });
        self.updates.fetch_add(1, Ordering::Release);
    }

    /// Takes the term from which the service has resigned, if it has.
    #[must_use]
    pub fn take_resigned(&self) -> Option<u64> {
        self.change(|inner| inner.resigned.take())
    }

    /// Resigns from `term`: called by the service.
    pub(super) fn resign(&self, term: u64) {
        self.change(|inner| inner.resigned = Some(term));
    }

    /// Asks the driver to find out at once whether the coordinator still leads: called by the
    /// service.
    pub(super) fn confirm(&self) {
        self.change(|inner| inner.confirms = true);
    }

    /// Takes the latest update, if it is newer than number `seen`, and sets `seen` to its number.
    pub(super) fn take_update(&self, seen: &mut u64) -> Option<LeaderUpdate<M>> {
        let updates = self.updates.load(Ordering::Acquire);
        if updates == *seen {
            return None;
        }
        *seen = updates;
        Some(self.change(|inner| {
            std::mem::replace(&mut inner.update, LeaderUpdate { term: None, leader: None })
        }))
    }
}

/// Keeps a coordinator's [`LeaderMailbox`] and its [`Election`] in step, for the election's driver.
///
/// The driver calls [`relay`](Self::relay) before each step of the election and
/// [`publish`](Self::publish) after it.
pub struct ElectionBridge<M> {
    mailbox: LeaderMailbox<M>,
    /// The term for which the coordinator was appointed, and its lease.
    appointed: Option<(u64, LeaderLease)>,
    /// Whether the coordinator waits until its lease is extended.
    confirms: bool,
    /// The term of the leader that was last reported to the coordinator; zero for an unknown
    /// leader.
    notified: Option<u64>,
}

impl<M: Metadata> ElectionBridge<M> {
    /// Makes a bridge that has published nothing yet.
    #[must_use]
    pub fn new(mailbox: LeaderMailbox<M>) -> Self {
        Self { mailbox, appointed: None, confirms: false, notified: None }
    }

    /// Passes a resignation of the coordinator on to the election, or its wish to be confirmed.
    pub fn relay(&mut self, now: Nanos, election: &mut Election) {
        if let Some(term) = self.mailbox.take_resigned() {
            election.resigned(now, term);
        }
        if self.mailbox.change(|inner| std::mem::take(&mut inner.confirms)) {
            self.confirms = true;
            election.confirm();
        }
    }

    /// Notifies the coordinator of the election's state as of `now`. If the coordinator begins to
    /// lead, `open` reads the catalog in the new term; if that fails, the election resigns from the
    /// term. Returns whether to ring the bell of the coordinator's node, because the mailbox has an
    /// update, or the lease has become valid again, or it was extended and the coordinator waits
    /// for that.
    pub fn publish(
        &mut self,
        now: Nanos,
        election: &mut Election,
        open: impl FnOnce(u64) -> Result<Catalog<M>, String>,
    ) -> bool {
        let term = election.term();
        if let Some((appointed, valid)) = &self.appointed {
            let was_valid = valid.is_valid(now);
            if term == Some(*appointed) {
                let before = valid.until();
                valid.set(election.valid_until());
                let confirmed = self.confirms && valid.until() > before;
                self.confirms &= !confirmed;
                return confirmed || !was_valid && valid.is_valid(now);
            }
            // This comes first, because the coordinator must grant no more leases.
            valid.set(Nanos(0));
            (self.appointed, self.notified) = (None, None);
        }
        let Some(term) = term else {
            let leader = election.leader();
            let known = leader.map_or(0, |leader| leader.term);
            if self.notified == Some(known) {
                return false;
            }
            self.mailbox.depose(leader.map(|leader| (leader.term, leader.locator.clone())));
            self.notified = Some(known);
            return true;
        };
        match open(term) {
            Ok(catalog) => {
                let valid = LeaderLease::default();
                valid.set(election.valid_until());
                self.appointed = Some((term, valid.clone()));
                self.mailbox.appoint(LeaderTerm { term, taken: now, catalog, valid });
                true
            }
            Err(error) => {
                tracing::warn!("cannot lead in term {term}: {error}");
                election.resigned(now, term);
                false
            }
        }
    }
}
