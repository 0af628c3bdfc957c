//! The thread by which a coordinator finds out whether it leads: it does what its [`Election`]
//! says, with etcd and the leader of the moment, and tells the coordinator on its node.

use super::ServerError;
use super::run::{Stop, pause};
use crate::coordinator::election::{Duty, Election, Pong, SILENCE};
use crate::coordinator::etcd::{Etcd, EtcdError, EtcdPlace, MetadataEtcd};
use crate::coordinator::{Catalog, Envoy, Office};
use sprat_client::{Client, Identity, Options};
use sprat_host::retry;
use sprat_net::{Mode, Nanos};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the thread sleeps at most before it looks whether the coordinator has given up, or the
/// process is to end.
const LOOK_AROUND: Duration = Duration::from_millis(25);

/// For how long a coordinator that starts waits for an etcd that is not there yet: with the power
/// both come back, and the members of etcd have a leader of their own to choose first.
const ETCD_PATIENCE: Duration = Duration::from_secs(30);

/// How often it looks meanwhile, and says so.
const ETCD_RETRY: Duration = Duration::from_secs(1);

/// Silence of etcd after which that is told, and again each time that it has lasted so long.
const TELL: Duration = Duration::from_secs(1);

/// What the thread speaks for.
pub(super) struct Seat {
    /// Where others reach the coordinator.
    pub(super) locator: String,
    pub(super) office: Office<MetadataEtcd>,
    pub(super) node: Stop,
    pub(super) place: EtcdPlace,
    pub(super) etcd: Etcd,
    pub(super) identity: Option<Arc<Identity>>,
}

struct Thread {
    seat: Seat,
    election: Election,
    envoy: Envoy<MetadataEtcd>,
    /// A way to a leader.
    leader: Option<(String, Client)>,
    /// When etcd last answered, or that it does not was told.
    heard: Instant,
}

/// Waits until etcd answers.
///
/// # Errors
/// [`EtcdError`], when it does not within [`ETCD_PATIENCE`], or refuses.
pub(super) fn wait_for(etcd: &Etcd) -> Result<(), EtcdError> {
    let passes = |error: &EtcdError| {
        let passes = matches!(error, EtcdError::Unreachable(_) | EtcdError::Unknown { .. });
        if passes {
            tracing::info!("waiting for etcd: {error}");
        }
        passes
    };
    retry(ETCD_PATIENCE, ETCD_RETRY, passes, || etcd.holder()).map(drop)
}

/// Starts the thread, which ends when `ended` says so.
pub(super) fn start(seat: Seat, ended: &Arc<AtomicBool>) -> Result<JoinHandle<()>, ServerError> {
    let ended = Arc::clone(ended);
    let run = move || {
        let election = Election::new(super::random(), seat.locator.clone());
        let envoy = Envoy::new(seat.office.clone());
        let mut thread = Thread { seat, election, envoy, leader: None, heard: Instant::now() };
        while !ended.load(Ordering::Acquire) {
            thread.step();
        }
    };
    thread::Builder::new()
        .name("sprat-election".into())
        .spawn(run)
        .map_err(ServerError::system("start a thread"))
}

impl Thread {
    fn now(&self) -> Nanos {
        self.seat.node.now()
    }

    /// Does what is next, and tells the coordinator what came of it.
    fn step(&mut self) {
        self.envoy.hear(self.now(), &mut self.election);
        let sent = self.now();
        match self.election.next(sent) {
            Duty::Read => {
                let found = self.seat.etcd.holder();
                let found = self.note(found);
                self.election.read(sent, self.now(), found);
            }
            Duty::Claim { over } => {
                let (life, locator) = self.election.identity();
                let claimed = self.seat.etcd.claim(over, life, locator);
                let claimed = self.note(claimed);
                self.election.claimed(sent, self.now(), claimed);
            }
            Duty::Ping { locator } => {
                let pong = self.ping(locator);
                self.election.pinged(self.now(), pong);
            }
            Duty::Rest(until) => pause(until.since(sent).min(LOOK_AROUND)),
        }
        // Whatever it was, it took time: what is told is told as of now.
        let now = self.now();
        let Self { seat: Seat { place, node, .. }, election, envoy, .. } = self;
        if envoy.tell(now, election, |term| open(place, term)) {
            node.ring();
        }
    }

    /// Notes whether etcd answers.
    fn note<T>(&mut self, answer: Result<T, EtcdError>) -> Option<T> {
        match answer {
            Ok(answer) => {
                self.heard = Instant::now();
                Some(answer)
            }
            Err(error) => {
                if self.heard.elapsed() > TELL {
                    tracing::warn!("{error}");
                    self.heard = Instant::now();
                }
                None
            }
        }
    }

    /// Asks a leader whether it is there.
    fn ping(&mut self, locator: String) -> Option<Pong> {
        if self.leader.as_ref().is_none_or(|(known, _)| *known != locator) {
            let identity = self.seat.identity.clone();
            let coordinator = locator.clone();
            let options = Options {
                coordinator,
                timeout: SILENCE,
                patient: true,
                waiting: Mode::Sleep,
                identity,
                ..Options::default()
            };
            self.leader = Some((locator, Client::connect(&options).ok()?));
        }
        let (_, client) = self.leader.as_mut()?;
        client.coordinator_leads().ok().map(|(leads, term)| Pong { leads, term })
    }
}

/// The metadata as they are in a term that has begun.
fn open(place: &EtcdPlace, term: u64) -> Result<Catalog<MetadataEtcd>, String> {
    let etcd = place.open().map_err(|error| error.to_string())?;
    Catalog::open(MetadataEtcd::new(etcd, term), super::random())
}
