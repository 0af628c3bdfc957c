//! What passes between the coordinator on its node and whoever drives its
//! [election](super::election): the one is told when it leads, with the catalog as it then is, and
//! until when; the other when the first has to begin anew.

use super::catalog::Catalog;
use super::election::Election;
use super::metadata::Metadata;
use sprat_host::lock;
use sprat_net::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A coordinator's time as leader.
pub struct Reign<M> {
    /// Its term.
    pub term: u64,
    /// When it was known to have begun, by the node's clock; not before it began.
    pub taken: Nanos,
    /// What the metadata were after it had begun.
    pub catalog: Catalog<M>,
    /// Until when it may act as leader.
    pub valid: Valid,
}

/// Until when a leader may act as such in one term, by the node's clock. Both ends have it.
#[derive(Clone, Debug, Default)]
pub struct Valid(Arc<AtomicU64>);

impl Valid {
    /// Until then; [`Nanos`] 0 for not at all any more.
    pub fn set(&self, until: Nanos) {
        self.0.store(until.0, Ordering::Release);
    }

    /// Whether it is valid now.
    #[must_use]
    pub fn at(&self, now: Nanos) -> bool {
        now < self.until()
    }

    /// When it ends, as far as known.
    #[must_use]
    pub fn until(&self) -> Nanos {
        Nanos(self.0.load(Ordering::Acquire))
    }
}

/// What the service has not heard of yet.
pub(super) struct News<M> {
    /// It leads.
    pub(super) reign: Option<Reign<M>>,
    /// Somebody else does, in this term, and there; an empty text when nobody knows who.
    pub(super) leader: Option<(u64, String)>,
}

impl<M> News<M> {
    /// Whether there is none: it was taken together with what came before.
    pub(super) fn is_empty(&self) -> bool {
        self.reign.is_none() && self.leader.is_none()
    }
}

struct Inner<M> {
    news: News<M>,
    resigned: Option<u64>,
}

/// Both ends of what passes.
pub struct Office<M> {
    inner: Arc<Mutex<Inner<M>>>,
    /// Counts what was left for the service.
    told: Arc<AtomicU64>,
}

impl<M> Clone for Office<M> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), told: Arc::clone(&self.told) }
    }
}

impl<M> Default for Office<M> {
    fn default() -> Self {
        let news = News { reign: None, leader: None };
        Self { inner: Arc::new(Mutex::new(Inner { news, resigned: None })), told: Arc::default() }
    }
}

impl<M> Office<M> {
    fn change<T>(&self, change: impl FnOnce(&mut Inner<M>) -> T) -> T {
        change(&mut lock(&self.inner))
    }

    /// The coordinator leads from here on; ring its node's bell afterwards.
    pub fn appoint(&self, reign: Reign<M>) {
        self.change(|inner| inner.news = News { reign: Some(reign), leader: None });
        self.told.fetch_add(1, Ordering::Release);
    }

    /// It does not lead, or no more; ring its node's bell afterwards. `leader`: the term and
    /// locator of who does, if known.
    pub fn depose(&self, leader: Option<(u64, String)>) {
        let leader = leader.unwrap_or_default();
        self.change(|inner| inner.news = News { reign: None, leader: Some(leader) });
        self.told.fetch_add(1, Ordering::Release);
    }

    /// The term in which the service has given up to lead, if it has since this was last asked.
    #[must_use]
    pub fn take_resigned(&self) -> Option<u64> {
        self.change(|inner| inner.resigned.take())
    }

    /// The service leads no more in this term.
    pub(super) fn resign(&self, term: u64) {
        self.change(|inner| inner.resigned = Some(term));
    }

    /// What is new since `heard`, which then counts it.
    pub(super) fn news(&self, heard: &mut u64) -> Option<News<M>> {
        let told = self.told.load(Ordering::Acquire);
        if told == *heard {
            return None;
        }
        *heard = told;
        Some(
            self.change(|inner| {
                std::mem::replace(&mut inner.news, News { reign: None, leader: None })
            }),
        )
    }
}

/// Whoever drives an election, at its office.
pub struct Envoy<M> {
    office: Office<M>,
    /// The term in which the coordinator was told to lead, and until when it may.
    reign: Option<(u64, Valid)>,
    /// The term of the leader that the coordinator was told of.
    told: Option<u64>,
}

impl<M: Metadata> Envoy<M> {
    /// One who has told nothing yet.
    #[must_use]
    pub fn new(office: Office<M>) -> Self {
        Self { office, reign: None, told: None }
    }

    /// Tells the election when the coordinator has given up.
    pub fn hear(&self, now: Nanos, election: &mut Election) {
        if let Some(term) = self.office.take_resigned() {
            election.resigned(now, term);
        }
    }

    /// Tells the coordinator what the election has come to by `now`, with the catalog that `open`
    /// reads if it begins to lead. Returns whether there was anything new: then ring its node's
    /// bell.
    pub fn tell(
        &mut self,
        now: Nanos,
        election: &mut Election,
        open: impl FnOnce(u64) -> Result<Catalog<M>, String>,
    ) -> bool {
        let term = election.term();
        if let Some((reigns, valid)) = &self.reign {
            let was = valid.at(now);
            if term == Some(*reigns) {
                valid.set(election.valid_until());
                return !was && valid.at(now);
            }
            // First of all nothing is granted any more.
            valid.set(Nanos(0));
            (self.reign, self.told) = (None, None);
        }
        let Some(term) = term else {
            let leader = election.leader();
            let known = leader.map_or(0, |leader| leader.term);
            if self.told == Some(known) {
                return false;
            }
            self.office.depose(leader.map(|leader| (leader.term, leader.locator.clone())));
            self.told = Some(known);
            return true;
        };
        match open(term) {
            Ok(catalog) => {
                let valid = Valid::default();
                valid.set(election.valid_until());
                self.reign = Some((term, valid.clone()));
                self.office.appoint(Reign { term, taken: now, catalog, valid });
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
