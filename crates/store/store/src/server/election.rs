//! The election thread of a coordinator: it carries out the actions that its [`Election`] returns,
//! on etcd and on the current leader, and informs the coordinator's node.

use super::ServerError;
use super::run::{NodeHandle, pause};
use crate::coordinator::election::{Election, ElectionAction, PingReply, SILENCE};
use crate::coordinator::etcd::{Etcd, EtcdError, EtcdPlace, MetadataEtcd};
use crate::coordinator::{Catalog, ElectionBridge, LeaderMailbox};
use sprat_client::{Client, Identity, Options};
use sprat_host::retry;
use sprat_net::{Mode, Nanos};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The longest sleep before the thread checks whether the coordinator has resigned, or the process
/// ends.
const MAX_SLEEP: Duration = Duration::from_millis(25);

/// How long a coordinator that starts waits for an etcd that does not answer yet. After a power
/// failure both start together, and the members of etcd must first choose a leader of their own.
const ETCD_PATIENCE: Duration = Duration::from_secs(30);

/// Interval at which a coordinator that waits for etcd tries again and logs that it waits.
const ETCD_RETRY: Duration = Duration::from_secs(1);

/// Silence of etcd after which a warning is logged. While the silence lasts, the warning is
/// repeated at this interval.
const WARN_INTERVAL: Duration = Duration::from_secs(1);

/// Everything that the thread needs to stand for election.
pub(super) struct ElectionSettings {
    /// Where others reach the coordinator.
    pub(super) locator: String,
    pub(super) mailbox: LeaderMailbox<MetadataEtcd>,
    pub(super) node: NodeHandle,
    pub(super) place: EtcdPlace,
    pub(super) etcd: Etcd,
    pub(super) identity: Option<Arc<Identity>>,
}

struct Thread {
    settings: ElectionSettings,
    election: Election,
    bridge: ElectionBridge<MetadataEtcd>,
    /// The leader's locator and a connection to it.
    leader: Option<(String, Client)>,
    /// When etcd last answered, or when its silence was last logged.
    heard: Instant,
}

/// Waits until etcd answers.
///
/// # Errors
/// [`EtcdError`], when etcd refuses, or does not answer within [`ETCD_PATIENCE`].
pub(super) fn wait_for(etcd: &Etcd) -> Result<(), EtcdError> {
    let passes = |error: &EtcdError| {
        let passes = matches!(error, EtcdError::Unreachable(_) | EtcdError::Unknown { .. });
        if passes {
            tracing::info!("waiting for etcd: {error}");
        }
        passes
    };
    retry(ETCD_PATIENCE, ETCD_RETRY, passes, || etcd.leader()).map(drop)
}

/// Starts the thread, which runs until `ended` is set.
pub(super) fn start(
    settings: ElectionSettings,
    ended: &Arc<AtomicBool>,
) -> Result<JoinHandle<()>, ServerError> {
    let ended = Arc::clone(ended);
    let run = move || {
        let election = Election::new(super::random(), settings.locator.clone());
        let bridge = ElectionBridge::new(settings.mailbox.clone());
        let mut thread = Thread { settings, election, bridge, leader: None, heard: Instant::now() };
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
        self.settings.node.now()
    }

    /// Carries out the election's next action, and informs the coordinator of the outcome.
    fn step(&mut self) {
        self.bridge.relay(self.now(), &mut self.election);
        let sent = self.now();
        match self.election.next(sent) {
            ElectionAction::Read => {
                let found = self.settings.etcd.leader();
                let found = self.note_answer(found);
                self.election.read(sent, self.now(), found);
            }
            ElectionAction::Claim { over } => {
                let (life, locator) = self.election.identity();
                let claimed = self.settings.etcd.claim(over, life, locator);
                let claimed = self.note_answer(claimed);
                self.election.claimed(sent, self.now(), claimed);
            }
            ElectionAction::Ping { locator } => {
                let pong = self.ping(locator);
                self.election.pinged(self.now(), pong);
            }
            ElectionAction::WaitUntil(until) => pause(until.since(sent).min(MAX_SLEEP)),
        }
        // The action took time, so the coordinator is informed of the state at the present time.
        let now = self.now();
        let Self { settings: ElectionSettings { place, node, .. }, election, bridge, .. } = self;
        if bridge.publish(now, election, |term| open(place, term)) {
            node.ring();
        }
    }

    /// Records whether etcd answers, and logs long silences.
    fn note_answer<T>(&mut self, answer: Result<T, EtcdError>) -> Option<T> {
        match answer {
            Ok(answer) => {
                self.heard = Instant::now();
                Some(answer)
            }
            Err(error) => {
                if self.heard.elapsed() > WARN_INTERVAL {
                    tracing::warn!("{error}");
                    self.heard = Instant::now();
                }
                None
            }
        }
    }

    /// Asks a leader whether it still leads.
    fn ping(&mut self, locator: String) -> Option<PingReply> {
        if self.leader.as_ref().is_none_or(|(known, _)| *known != locator) {
            let identity = self.settings.identity.clone();
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
        client.coordinator_leads().ok().map(|(leads, term)| PingReply { leads, term })
    }
}

/// Opens the metadata in a term that has begun.
fn open(place: &EtcdPlace, term: u64) -> Result<Catalog<MetadataEtcd>, String> {
    let etcd = place.open().map_err(|error| error.to_string())?;
    Catalog::open(MetadataEtcd::new(etcd, term), super::random())
}
