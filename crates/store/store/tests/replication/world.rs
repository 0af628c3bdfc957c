//! A master, its backups and a client on a network in memory, in virtual time.

use crate::replication::backup::{Backup, room};
use crate::replication::client::{Client, removes, value};
use sprat_chance::xorshift;
use sprat_disk::MemDisk;
use sprat_log::{Config, Durability, Log};
use sprat_net::{AnyDriver, Delivery, Hub, HubOptions, Nanos};
use sprat_rpc::Config as RpcConfig;
use sprat_store::master::{Command, Master, MasterAssignment, Outbox, inbox};
use sprat_store::node::{Node, Service};
use sprat_store::recovery::{Inventory, Lost, RecoveryPlan};
use sprat_store::replication::{BackupServer, Replicator};
use sprat_wire::entry::{Entry, Kind, Role, SegmentHeader};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// The least time that an iteration of a node's loop takes.
const STEP: Duration = Duration::from_micros(5);

/// Default bytes of a segment.
const SEGMENT_BYTES: usize = 512 << 10;

/// The longest time that the coordinator takes to confirm a new `min_open`, in microseconds.
const CONFIRM_MICROS: u64 = 20_000;

/// The longest time that a silent coordinator takes for it: longer than leases of backups.
const LATE_MICROS: u64 = 2_000_000;

/// Server id of the master.
const MASTER: u32 = 100;

/// The result of a recovery.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// A recovery would find everything that was acknowledged.
    Complete,
    /// A recovery would miss something that was acknowledged, although the plan did not report a
    /// loss.
    Missing(String),
    /// The plan reported the loss.
    Reported(Lost),
}

enum BackupState {
    Up(Box<Node<AnyDriver, Backup>>),
    Down(Backup, Nanos),
    /// The coordinator has declared the backup dead: it never returns.
    Gone,
}

pub(crate) struct World {
    random: u64,
    hub: Hub,
    now: Nanos,
    master: Node<AnyDriver, Master<MemDisk>>,
    outbox: Outbox,
    version: u64,
    client: Node<AnyDriver, Client>,
    backups: Vec<BackupState>,
    /// The `min_open` that the coordinator has confirmed.
    min_open: u64,
    /// The `min_open` that the coordinator confirms next, and when.
    confirming: Option<(u64, Nanos)>,
    faults: bool,
    silent: bool,
    segment_bytes: usize,
}

fn address(host: usize) -> SocketAddr {
    ([10, 0, 0, 1], 1000 + u16::try_from(host).unwrap()).into()
}

/// Server id of a backup.
fn id(at: usize) -> u32 {
    u32::try_from(at).unwrap() + 1
}

fn members(backups: impl IntoIterator<Item = usize>) -> Vec<BackupServer> {
    backups
        .into_iter()
        .map(|at| BackupServer { server: id(at), address: address(at), rack: 0 })
        .collect()
}

fn header_of(bytes: &[u8]) -> Option<(SegmentHeader, usize)> {
    let entry = Entry::parse(bytes).ok().filter(|entry| entry.kind == Kind::Segment)?;
    Some((SegmentHeader::parse(entry.value)?, entry.encoded_len()))
}

pub(crate) fn is_head(bytes: &[u8]) -> bool {
    header_of(bytes).is_some_and(|(header, _)| header.role == Role::Head)
}

impl World {
    pub(crate) fn new(seed: u64, copies: usize, backups: usize) -> Self {
        Self::with_segments(seed, copies, backups, SEGMENT_BYTES)
    }

    pub(crate) fn with_segments(
        seed: u64,
        copies: usize,
        backups: usize,
        segment_bytes: usize,
    ) -> Self {
        let hub = Hub::new(HubOptions::default());
        let mut chance = seed | 1;
        hub.set_policy(move |_| {
            let draw = draw(&mut chance, 1000);
            if draw < 3 {
                Delivery::Drop
            } else {
                Delivery::Deliver(Duration::from_nanos(2_000 + draw * 10))
            }
        });
        let config =
            Config { segment_bytes, ..Config::new(32 * segment_bytes, Durability::Tracked) };
        let mut replicator = Replicator::new(MASTER, copies, room(segment_bytes), seed);
        let members = members(0..backups);
        replicator.set_backups(&members);
        let (outbox, commands) = inbox();
        assert!(outbox.send(Command::Assign(Box::new(MasterAssignment {
            members,
            ..MasterAssignment::tables(1, vec![1])
        }))));
        let master = Master::replicated(Log::new(config).unwrap(), replicator, commands);
        let node = |host| AnyDriver::from(hub.port(address(host)).unwrap());
        let master = Node::new(node(MASTER as usize), master, &RpcConfig::default(), seed);
        let client = Client::new(address(MASTER as usize), seed);
        let client = Node::new(node(200), client, &RpcConfig::default(), seed + 1);
        let up = |at| {
            BackupState::Up(Box::new(Node::new(
                node(at),
                Backup::new(segment_bytes),
                &RpcConfig::default(),
                seed + 2,
            )))
        };
        let backups = (0..backups).map(up).collect();
        let (now, random) = (Nanos(0), seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let (version, min_open, confirming, faults) = (1, 0, None, true);
        Self {
            random,
            hub,
            now,
            master,
            outbox,
            version,
            client,
            backups,
            min_open,
            confirming,
            faults,
            silent: false,
            segment_bytes,
        }
    }

    /// Runs for `millis` milliseconds.
    pub(crate) fn run(&mut self, millis: u64) {
        self.run_for(Duration::from_millis(millis));
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.hub.deliver_until(self.now);
            if self.faults {
                self.inject_faults();
            }
            self.coordinate();
            let mut next = until.min(self.hub.next_delivery().unwrap_or(until));
            let mut worked =
                self.master.turn(self.now).unwrap() || self.master.service_mut().work_idle();
            worked |= self.client.turn(self.now).unwrap();
            for backup in &mut self.backups {
                match backup {
                    BackupState::Up(node) => {
                        worked |= node.turn(self.now).unwrap();
                        next = next.min(node.next_deadline());
                    }
                    BackupState::Down(_, up) => next = next.min(*up),
                    BackupState::Gone => {}
                }
            }
            next = next.min(self.master.next_deadline()).min(self.client.next_deadline());
            next = next
                .min(self.confirming.map_or(until, |(_, at)| at))
                .min(self.now + Duration::from_millis(1));
            self.now = if worked { self.now + STEP } else { next.max(self.now + STEP) };
        }
    }

    /// Stops random faults.
    pub(crate) fn stop_faults(&mut self) {
        self.faults = false;
    }

    /// Stops random faults, starts all backups that are not gone for good, and runs for three
    /// seconds.
    pub(crate) fn calm(&mut self) {
        self.stop_faults();
        let until = self.now;
        self.backups.iter_mut().for_each(|backup| {
            if let BackupState::Down(_, up) = backup {
                *up = until;
            }
        });
        (0..self.backups.len()).for_each(|at| self.start(at));
        self.run(3000);
    }

    fn start(&mut self, at: usize) {
        if let BackupState::Down(backup, up) = &self.backups[at]
            && *up <= self.now
        {
            let driver = AnyDriver::from(self.hub.port(address(at)).unwrap());
            let backup = backup.clone().restart();
            self.backups[at] = BackupState::Up(Box::new(Node::new(
                driver,
                backup,
                &RpcConfig::default(),
                self.now.0,
            )));
        }
    }

    /// Crashes a backup now and then, and restarts those whose time has come.
    fn inject_faults(&mut self) {
        (0..self.backups.len()).for_each(|at| self.start(at));
        if draw(&mut self.random, 2000) == 0 {
            self.crash_some();
        }
    }

    /// Returns the backup that has the most bytes of the newest head, and the number of these
    /// bytes.
    pub(crate) fn keeps_head(&self) -> (usize, usize) {
        let head_of = |at: usize| match &self.backups[at] {
            BackupState::Up(node) => node.service().newest_head(),
            BackupState::Down(..) | BackupState::Gone => (0, 0),
        };
        let at = (0..self.backups.len()).max_by_key(|&at| head_of(at)).expect("there are backups");
        (at, head_of(at).1)
    }

    /// Restarts a backup at once.
    pub(crate) fn restart(&mut self, at: usize) {
        if let BackupState::Up(node) = &self.backups[at] {
            self.backups[at] = BackupState::Down(node.service().clone(), self.now);
        }
        self.start(at);
    }

    /// Crashes a random backup if it is up. If faults go on, it restarts within 20 ms.
    pub(crate) fn crash_some(&mut self) {
        let at = usize::try_from(draw(&mut self.random, self.backups.len() as u64)).unwrap();
        if let BackupState::Up(node) = &self.backups[at] {
            let kept = node.service().clone();
            let down = Duration::from_micros(draw(&mut self.random, 20_000));
            self.backups[at] = BackupState::Down(kept, self.now + down);
        }
    }

    /// Removes `count` random backups for good and adds as many new ones, and informs the master.
    pub(crate) fn exchange(&mut self, count: usize) {
        for _ in 0..count {
            let left: Vec<usize> = self.alive().collect();
            let at = left[usize::try_from(draw(&mut self.random, left.len() as u64)).unwrap()];
            self.backups[at] = BackupState::Gone;
            let node = AnyDriver::from(self.hub.port(address(self.backups.len())).unwrap());
            let node = Node::new(
                node,
                Backup::new(self.segment_bytes),
                &RpcConfig::default(),
                self.random,
            );
            self.backups.push(BackupState::Up(Box::new(node)));
        }
        self.version += 1;
        let members = members(self.alive());
        let assigned =
            MasterAssignment { members, ..MasterAssignment::tables(self.version, vec![1]) };
        assert!(self.outbox.send(Command::Assign(Box::new(assigned))));
    }

    /// Adds a backup and informs the master.
    pub(crate) fn join(&mut self) {
        self.backups.push(BackupState::Gone);
        let at = self.backups.len() - 1;
        let driver = AnyDriver::from(self.hub.port(address(at)).unwrap());
        let node =
            Node::new(driver, Backup::new(self.segment_bytes), &RpcConfig::default(), self.random);
        self.backups[at] = BackupState::Up(Box::new(node));
        self.exchange(0);
    }

    /// Removes a backup for good and informs the master.
    pub(crate) fn lose(&mut self) {
        let at = self.alive().next().expect("there are some");
        self.backups[at] = BackupState::Gone;
        self.exchange(0);
    }

    /// Makes all running backups refuse writes, or accept them again.
    pub(crate) fn set_full(&mut self, full: bool) {
        for backup in &mut self.backups {
            if let BackupState::Up(node) = backup {
                node.service_mut().full = full;
            }
        }
    }

    /// Makes all running backups let another server recover the master's log.
    pub(crate) fn set_fenced(&mut self) {
        for backup in &mut self.backups {
            if let BackupState::Up(node) = backup {
                node.service_mut().fenced = true;
            }
        }
    }

    /// Returns the number of writes for which the master referred to the server that takes over.
    pub(crate) fn passed_on(&mut self) -> u64 {
        self.client.service_mut().passed_on
    }

    /// Makes a backup faulty: it says of replicas that are not whole that they are.
    pub(crate) fn make_faulty(&mut self, at: usize) {
        if let BackupState::Up(node) = &mut self.backups[at] {
            node.service_mut().faulty = true;
        }
    }

    /// Takes the refusals that the client got since the last call: the reason, and whether the
    /// operation may nevertheless have been executed.
    pub(crate) fn take_refused(&mut self) -> Vec<(String, bool)> {
        std::mem::take(&mut self.client.service_mut().refused)
    }

    fn alive(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.backups.len()).filter(|&at| !matches!(self.backups[at], BackupState::Gone))
    }

    /// Runs without new writes until all segments are re-replicated, and checks that they are.
    /// Returns the number of replicas re-replicated so far.
    pub(crate) fn re_replicate(&mut self, copies: usize) -> u64 {
        self.client.service_mut().rest();
        // A restarted backup does not know its sessions. After such a failure the master avoids the
        // backup for seconds, so re-replication takes seconds if no other backup is left.
        for _ in 0..1000 {
            self.run(100);
            if self.replicator().under_replicated() == 0 && self.client.service().rests() {
                break;
            }
        }
        assert_eq!(self.replicator().under_replicated(), 0, "{}", self.master.service().describe());
        for (segment, servers) in self.replicator().sealed_segments() {
            let whole = |&&server: &&u32| {
                let backup = match &self.backups[server as usize - 1] {
                    BackupState::Up(node) => node.service(),
                    BackupState::Down(backup, _) => backup,
                    BackupState::Gone => return false,
                };
                backup.kept.get(&segment).is_some_and(|kept| kept.sealed)
            };
            let different: std::collections::BTreeSet<_> = servers.iter().filter(whole).collect();
            assert_eq!(different.len(), copies, "segment {segment}");
        }
        self.replicator().counts().re_replicated
    }

    /// Lets the client write again.
    pub(crate) fn go_on(&mut self) {
        self.client.service_mut().go_on();
    }

    /// Ends the coordinator's lease: from now on the master depends on leases of backups.
    pub(crate) fn silence_coordinator(&mut self) {
        self.silent = true;
        self.outbox.set_lease(self.now);
    }

    /// Makes backups refuse leases for about half of the time, each at other times.
    pub(crate) fn refuse_leases(&mut self) {
        for backup in &mut self.backups {
            if let BackupState::Up(node) = backup {
                node.service_mut().refusals = xorshift(&mut self.random);
            }
        }
    }

    /// Returns whether the master has a lease from backups. If so, checks that no recovery can
    /// succeed with the backups that would answer a fence now.
    pub(crate) fn check_lease(&self) -> bool {
        if self.replicator().leased_until() <= self.now {
            return false;
        }
        let would_answer = |&at: &usize| match &self.backups[at] {
            BackupState::Up(node) => node.service().lease <= self.now,
            BackupState::Down(backup, _) => backup.lease <= self.now,
            BackupState::Gone => false,
        };
        let left: Vec<usize> = (0..self.backups.len()).filter(would_answer).collect();
        let verdict = self.recover(&left);
        assert!(matches!(verdict, Verdict::Reported(_)), "recovered from {left:?}: {verdict:?}");
        true
    }

    fn replicator(&self) -> &Replicator {
        self.master.service().replicator().unwrap()
    }

    /// Plays the coordinator: confirms the `min_open` that the master reports.
    fn coordinate(&mut self) {
        match self.confirming {
            Some((segment, at)) if at <= self.now => {
                self.confirming = None;
                self.min_open = self.min_open.max(segment);
                assert!(self.outbox.send(Command::Voided(segment)));
            }
            Some(_) => {}
            None if self.outbox.min_open() > self.min_open => {
                let most = if self.silent { LATE_MICROS } else { CONFIRM_MICROS };
                let takes = Duration::from_micros(draw(&mut self.random, most));
                self.confirming = Some((self.outbox.min_open(), self.now + takes));
            }
            None => {}
        }
    }

    pub(crate) fn acknowledged(&self) -> u64 {
        self.client.service().acknowledged
    }

    pub(crate) fn replaced(&self) -> u64 {
        self.replicator().counts().replaced
    }

    /// Recovers the master's log after its death, without `gone` random backups.
    pub(crate) fn recover_without(&mut self, gone: usize) -> Verdict {
        let mut left: Vec<usize> = self.alive().collect();
        for _ in 0..gone {
            let at = usize::try_from(draw(&mut self.random, left.len() as u64)).unwrap();
            left.remove(at);
        }
        self.recover(&left)
    }

    /// Recovers the master's log after its death, from these backups only.
    pub(crate) fn recover(&self, left: &[usize]) -> Verdict {
        let kept: BTreeMap<u32, &Backup> = left
            .iter()
            .map(|&at| match &self.backups[at] {
                BackupState::Up(node) => (id(at), node.service()),
                BackupState::Down(backup, _) => (id(at), backup),
                BackupState::Gone => unreachable!("it is not left"),
            })
            .collect();
        let mut inventory = Inventory::default();
        kept.iter().for_each(|(&server, backup)| inventory.add(server, backup.records()));
        if self.min_open == 0 {
            // No write can have been acknowledged.
            return if self.acknowledged() == 0 {
                Verdict::Complete
            } else {
                Verdict::Missing("a log".into())
            };
        }
        let Some(newest) = inventory.newest_head() else {
            return Verdict::Reported(Lost::Everything);
        };
        let bytes = &kept[&newest.servers[0]].kept[&newest.segment].bytes;
        let (header, len) = header_of(bytes).unwrap();
        match inventory.plan(&header.digest, len, self.min_open) {
            Ok(plan) => self.compare(&plan, &kept),
            Err(lost) => Verdict::Reported(lost),
        }
    }

    /// Compares the content of the replicas with the acknowledgements that the client got.
    fn compare(&self, plan: &RecoveryPlan, kept: &BTreeMap<u32, &Backup>) -> Verdict {
        // The newest version of each key with the value, or `None` if the object was removed.
        let mut found: BTreeMap<u64, (u64, Option<Vec<u8>>)> = BTreeMap::new();
        for source in &plan.sources {
            let whole = source.servers.iter().map(|server| (server, source.len));
            // Any replica must suffice, so one of them is chosen at random.
            let replicas: Vec<_> =
                whole.chain(source.copies.iter().map(|(server, len)| (server, *len))).collect();
            let chosen = usize::try_from(source.segment ^ self.random).unwrap() % replicas.len();
            for (server, len) in &replicas[chosen..=chosen] {
                let mut rest = &kept[server].kept[&source.segment].bytes[..*len as usize];
                while !rest.is_empty() {
                    let entry = Entry::parse_checked(rest).expect("whole entries");
                    rest = &rest[entry.encoded_len()..];
                    if entry.kind == Kind::Segment {
                        continue;
                    }
                    let key = u64::from_le_bytes(entry.key.try_into().unwrap());
                    let value = (entry.kind == Kind::Object).then(|| entry.value.to_vec());
                    let known = found.entry(key).or_insert((0, None));
                    // A tombstone has its object's version.
                    if entry.version > known.0 || entry.version == known.0 && value.is_none() {
                        *known = (entry.version, value);
                    }
                }
            }
        }
        for (key, known) in &self.client.service().known {
            let actual = found.get(key).and_then(|(_, value)| value.clone());
            let fits = |number: u64| {
                let expected = (number != 0 && !removes(number)).then(|| value(number));
                expected == actual
            };
            if !fits(known.acknowledged) && !known.perhaps.iter().any(|&number| fits(number)) {
                let actual = actual.map(|value| u64::from_le_bytes(value[..8].try_into().unwrap()));
                return Verdict::Missing(format!("key {key} has {actual:?}, {known:?}"));
            }
        }
        Verdict::Complete
    }
}

fn draw(state: &mut u64, below: u64) -> u64 {
    xorshift(state) % below
}
