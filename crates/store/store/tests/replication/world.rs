//! A master, its backups and a client on a network in memory, in virtual time.

use crate::replication::backup::{Backup, room};
use crate::replication::client::{Client, removes, value};
use sprat_chance::xorshift;
use sprat_disk::MemDisk;
use sprat_log::{Config, Durability, Log};
use sprat_net::{AnyDriver, Fate, Hub, HubOptions, Nanos};
use sprat_rpc::Config as RpcConfig;
use sprat_store::master::{Command, Master, MasterAssignment, Outbox, inbox};
use sprat_store::node::{Node, Service};
use sprat_store::recovery::{Inventory, Lost, Plan};
use sprat_store::replication::{Member, Replicator};
use sprat_wire::entry::{Entry, Kind, Role, SegmentHeader};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// What a turn takes at least.
const STEP: Duration = Duration::from_micros(5);

/// Bytes of a segment, where nothing else is said.
const SEGMENT_BYTES: usize = 512 << 10;

/// Longest that the coordinator takes to note something.
const NOTING_MICROS: u64 = 20_000;

/// Server id of the master.
const MASTER: u32 = 100;

/// What came of recovery.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// All is there.
    Found,
    /// Something is missing, and nobody knew.
    Missing(String),
    /// Something is missing, as was said.
    Known(Lost),
}

enum Life {
    Up(Box<Node<AnyDriver, Backup>>),
    Down(Backup, Nanos),
    /// For good: the coordinator has declared it dead.
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
    backups: Vec<Life>,
    /// What the coordinator has noted, and what it is about to note.
    min_open: u64,
    noting: Option<(u64, Nanos)>,
    faults: bool,
    segment_bytes: usize,
}

fn address(host: usize) -> SocketAddr {
    ([10, 0, 0, 1], 1000 + u16::try_from(host).unwrap()).into()
}

/// Server id of a backup.
fn id(at: usize) -> u32 {
    u32::try_from(at).unwrap() + 1
}

fn members(backups: impl IntoIterator<Item = usize>) -> Vec<Member> {
    backups.into_iter().map(|at| Member { server: id(at), address: address(at), rack: 0 }).collect()
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
        let mut weather = seed | 1;
        hub.set_policy(move |_| {
            let draw = draw(&mut weather, 1000);
            if draw < 3 {
                Fate::Drop
            } else {
                Fate::Deliver(Duration::from_nanos(2_000 + draw * 10))
            }
        });
        let config =
            Config { segment_bytes, ..Config::new(32 * segment_bytes, Durability::Tracked) };
        let mut replicator = Replicator::new(MASTER, copies, room(segment_bytes), seed);
        let members = members(0..backups);
        replicator.set_members(&members);
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
            Life::Up(Box::new(Node::new(
                node(at),
                Backup::new(segment_bytes),
                &RpcConfig::default(),
                seed + 2,
            )))
        };
        let backups = (0..backups).map(up).collect();
        let (now, random) = (Nanos(0), seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let (version, min_open, noting, faults) = (1, 0, None, true);
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
            noting,
            faults,
            segment_bytes,
        }
    }

    /// Goes on for so many milliseconds.
    pub(crate) fn run(&mut self, millis: u64) {
        self.run_for(Duration::from_millis(millis));
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.hub.deliver_until(self.now);
            if self.faults {
                self.befall();
            }
            self.coordinate();
            let mut next = until.min(self.hub.next_delivery().unwrap_or(until));
            let mut worked =
                self.master.turn(self.now).unwrap() || self.master.service_mut().work_idle();
            worked |= self.client.turn(self.now).unwrap();
            for backup in &mut self.backups {
                match backup {
                    Life::Up(node) => {
                        worked |= node.turn(self.now).unwrap();
                        next = next.min(node.next_deadline());
                    }
                    Life::Down(_, up) => next = next.min(*up),
                    Life::Gone => {}
                }
            }
            next = next.min(self.master.next_deadline()).min(self.client.next_deadline());
            next = next
                .min(self.noting.map_or(until, |(_, at)| at))
                .min(self.now + Duration::from_millis(1));
            self.now = if worked { self.now + STEP } else { next.max(self.now + STEP) };
        }
    }

    /// No faults but those that are asked for.
    pub(crate) fn spare(&mut self) {
        self.faults = false;
    }

    /// No more faults; everybody is up.
    pub(crate) fn calm(&mut self) {
        self.spare();
        let until = self.now;
        self.backups.iter_mut().for_each(|backup| {
            if let Life::Down(_, up) = backup {
                *up = until;
            }
        });
        (0..self.backups.len()).for_each(|at| self.start(at));
        self.run(3000);
    }

    fn start(&mut self, at: usize) {
        if let Life::Down(backup, up) = &self.backups[at]
            && *up <= self.now
        {
            let driver = AnyDriver::from(self.hub.port(address(at)).unwrap());
            let backup = backup.clone().restart();
            self.backups[at] =
                Life::Up(Box::new(Node::new(driver, backup, &RpcConfig::default(), self.now.0)));
        }
    }

    /// A backup goes down now and then, and comes up again.
    fn befall(&mut self) {
        (0..self.backups.len()).for_each(|at| self.start(at));
        if draw(&mut self.random, 2000) == 0 {
            self.crash_some();
        }
    }

    /// The backup that keeps most of the head, and bytes of it.
    pub(crate) fn keeps_head(&self) -> (usize, usize) {
        let of = |at: usize| match &self.backups[at] {
            Life::Up(node) => node.service().newest_head(),
            Life::Down(..) | Life::Gone => (0, 0),
        };
        let at = (0..self.backups.len()).max_by_key(|&at| of(at)).expect("there are backups");
        (at, of(at).1)
    }

    /// This backup goes down, and comes up at once.
    pub(crate) fn restart(&mut self, at: usize) {
        if let Life::Up(node) = &self.backups[at] {
            self.backups[at] = Life::Down(node.service().clone(), self.now);
        }
        self.start(at);
    }

    /// A backup goes down.
    pub(crate) fn crash_some(&mut self) {
        let at = usize::try_from(draw(&mut self.random, self.backups.len() as u64)).unwrap();
        if let Life::Up(node) = &self.backups[at] {
            let kept = node.service().clone();
            let down = Duration::from_micros(draw(&mut self.random, 20_000));
            self.backups[at] = Life::Down(kept, self.now + down);
        }
    }

    /// So many backups, chosen by lot, are gone for good, and as many new ones come; the master is
    /// told.
    pub(crate) fn exchange(&mut self, count: usize) {
        for _ in 0..count {
            let left: Vec<usize> = self.alive().collect();
            let at = left[usize::try_from(draw(&mut self.random, left.len() as u64)).unwrap()];
            self.backups[at] = Life::Gone;
            let node = AnyDriver::from(self.hub.port(address(self.backups.len())).unwrap());
            let node = Node::new(
                node,
                Backup::new(self.segment_bytes),
                &RpcConfig::default(),
                self.random,
            );
            self.backups.push(Life::Up(Box::new(node)));
        }
        self.version += 1;
        let members = members(self.alive());
        let assigned =
            MasterAssignment { members, ..MasterAssignment::tables(self.version, vec![1]) };
        assert!(self.outbox.send(Command::Assign(Box::new(assigned))));
    }

    /// One more backup comes; the master is told.
    pub(crate) fn join(&mut self) {
        self.backups.push(Life::Gone);
        let at = self.backups.len() - 1;
        let driver = AnyDriver::from(self.hub.port(address(at)).unwrap());
        let node =
            Node::new(driver, Backup::new(self.segment_bytes), &RpcConfig::default(), self.random);
        self.backups[at] = Life::Up(Box::new(node));
        self.exchange(0);
    }

    /// A backup is gone for good, and the master is told.
    pub(crate) fn lose(&mut self) {
        let at = self.alive().next().expect("there are some");
        self.backups[at] = Life::Gone;
        self.exchange(0);
    }

    /// All backups that are up take nothing from here on, or again.
    pub(crate) fn fill(&mut self, full: bool) {
        for backup in &mut self.backups {
            if let Life::Up(node) = backup {
                node.service_mut().full = full;
            }
        }
    }

    /// What the client was refused, and whether it may count all the same, since this was last
    /// asked.
    pub(crate) fn take_refused(&mut self) -> Vec<(String, bool)> {
        std::mem::take(&mut self.client.service_mut().refused)
    }

    fn alive(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.backups.len()).filter(|&at| !matches!(self.backups[at], Life::Gone))
    }

    /// Waits until nothing is short of replicas, and looks whether that is so. Nothing else goes on
    /// meanwhile.
    pub(crate) fn heal(&mut self, copies: usize) -> u64 {
        self.client.service_mut().rest();
        // A backup that went down and came up is met as a stranger, and then shunned for seconds:
        // where it is the only one that may last.
        for _ in 0..1000 {
            self.run(100);
            if self.replicator().short() == 0 && self.client.service().rests() {
                break;
            }
        }
        assert_eq!(self.replicator().short(), 0, "{}", self.master.service().describe());
        for (segment, servers) in self.replicator().closed() {
            let whole = |&&server: &&u32| {
                let backup = match &self.backups[server as usize - 1] {
                    Life::Up(node) => node.service(),
                    Life::Down(backup, _) => backup,
                    Life::Gone => return false,
                };
                backup.kept.get(&segment).is_some_and(|kept| kept.sealed)
            };
            let different: std::collections::BTreeSet<_> = servers.iter().filter(whole).collect();
            assert_eq!(different.len(), copies, "segment {segment}");
        }
        self.replicator().counts().healed
    }

    /// The client goes on.
    pub(crate) fn go_on(&mut self) {
        self.client.service_mut().go_on();
    }

    fn replicator(&self) -> &Replicator {
        self.master.service().replicator().unwrap()
    }

    /// What a coordinator does for the master.
    fn coordinate(&mut self) {
        match self.noting {
            Some((segment, at)) if at <= self.now => {
                self.noting = None;
                self.min_open = self.min_open.max(segment);
                assert!(self.outbox.send(Command::Voided(segment)));
            }
            Some(_) => {}
            None if self.outbox.min_open() > self.min_open => {
                let takes = Duration::from_micros(draw(&mut self.random, NOTING_MICROS));
                self.noting = Some((self.outbox.min_open(), self.now + takes));
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

    /// The master dies, and so many backups, chosen by lot, are gone for good; the others come up
    /// again.
    pub(crate) fn recover_without(&mut self, gone: usize) -> Verdict {
        let mut left: Vec<usize> = self.alive().collect();
        for _ in 0..gone {
            let at = usize::try_from(draw(&mut self.random, left.len() as u64)).unwrap();
            left.remove(at);
        }
        self.recover(&left)
    }

    /// The master has died, and of these backups only is anything left.
    pub(crate) fn recover(&self, left: &[usize]) -> Verdict {
        let kept: BTreeMap<u32, &Backup> = left
            .iter()
            .map(|&at| match &self.backups[at] {
                Life::Up(node) => (id(at), node.service()),
                Life::Down(backup, _) => (id(at), backup),
                Life::Gone => unreachable!("it is not left"),
            })
            .collect();
        let mut inventory = Inventory::default();
        kept.iter().for_each(|(&server, backup)| inventory.add(server, backup.records()));
        if self.min_open == 0 {
            // Nobody was told anything.
            return if self.acknowledged() == 0 {
                Verdict::Found
            } else {
                Verdict::Missing("a log".into())
            };
        }
        let Some(newest) = inventory.newest_head() else { return Verdict::Known(Lost::Everything) };
        let bytes = &kept[&newest.servers[0]].kept[&newest.segment].bytes;
        let (header, len) = header_of(bytes).unwrap();
        match inventory.plan(&header.digest, len, self.min_open) {
            Ok(plan) => self.compare(&plan, &kept),
            Err(lost) => Verdict::Known(lost),
        }
    }

    /// Holds what is in the replicas against what the client was told.
    fn compare(&self, plan: &Plan, kept: &BTreeMap<u32, &Backup>) -> Verdict {
        // Newest version of each key, and whether it is a removal.
        let mut found: BTreeMap<u64, (u64, Option<Vec<u8>>)> = BTreeMap::new();
        for source in &plan.sources {
            let whole = source.servers.iter().map(|server| (server, source.len));
            // Each by itself says enough; which of them is read is left to chance.
            let any: Vec<_> =
                whole.chain(source.copies.iter().map(|(server, len)| (server, *len))).collect();
            let chosen = usize::try_from(source.segment ^ self.random).unwrap() % any.len();
            for (server, len) in &any[chosen..=chosen] {
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
            let is = found.get(key).and_then(|(_, value)| value.clone());
            let fits = |number: u64| if number == 0 || removes(number) { None } else { Some(value(number)) } == is;
            if !fits(known.acknowledged) && !known.perhaps.iter().any(|&number| fits(number)) {
                let is = is.map(|value| u64::from_le_bytes(value[..8].try_into().unwrap()));
                return Verdict::Missing(format!("key {key} has {is:?}, {known:?}"));
            }
        }
        Verdict::Found
    }
}

fn draw(state: &mut u64, below: u64) -> u64 {
    xorshift(state) % below
}
