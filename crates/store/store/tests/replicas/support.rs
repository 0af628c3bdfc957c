//! A node that keeps replicas, and a caller, in virtual time.

use crate::common::{ended, frames};
use sprat_chance::Chance;
use sprat_disk::{Disk, MemControl, MemDisk};
use sprat_net::{Driver as _, Figure, Hub, HubOptions, Mem, Nanos};
use sprat_rpc::{CallId, Config, Endpoint, SessionId};
use sprat_store::master::KnownServers;
use sprat_store::member::ReplicaStore as _;
use sprat_store::node::Node;
use sprat_store::replicas::{Durability, OpenReport, Options, Replicas};
use sprat_wire::op::{Answer, BackupRequest, Records, ReplicaId, ReplicaRecord, Request, Status};
use std::net::SocketAddr;
use std::time::Duration;
use zerocopy::IntoBytes as _;

use ended::Ended;

pub(crate) use frames::{FRAME, SEGMENT, disk};

/// How far an iteration moves the clock.
pub(crate) const STEP: Duration = Duration::from_micros(50);

/// Servers with lower numbers are members of the cluster.
pub(crate) const MEMBERS: u32 = 10;

/// Iterations after which no reply is expected any more.
const MANY_TURNS: usize = 20_000;

pub(crate) fn options(durability: Durability) -> Options {
    Options {
        durability,
        segment_bytes: SEGMENT,
        frame_bytes: FRAME,
        ..Options::new(*b"the test cluster", 5, 24)
    }
}

pub(crate) fn id(master: u32, segment: u64) -> ReplicaId {
    ReplicaId { master, segment }
}

/// Returns the bytes of a segment. They depend only on the replica's id, and each segment has
/// different bytes.
pub(crate) fn bytes_of(replica: ReplicaId, len: usize) -> Vec<u8> {
    let mut random = Chance::new(replica.word());
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| random.draw().to_le_bytes())
        .take(len / 8 + 1)
        .flatten()
        .collect();
    bytes.truncate(len);
    bytes
}

/// A copy of a reply.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: Status,
    pub(crate) more: bool,
    pub(crate) number: u64,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn records(&self) -> Vec<ReplicaRecord> {
        let mut records = Records::new(&self.body);
        let list = std::iter::from_fn(|| records.replica()).collect();
        assert!(records.is_done(), "only replicas");
        list
    }
}

/// A node that keeps replicas, and a caller.
pub(crate) struct World<D: Disk> {
    hub: Hub,
    node: Node<Mem, Replicas<D>>,
    driver: Mem,
    endpoint: Endpoint<()>,
    ended: Ended,
    session: SessionId,
    disk: Option<MemControl>,
    pub(crate) now: Nanos,
}

fn address(last: u8) -> SocketAddr {
    ([10, 0, 0, last], 1).into()
}

/// Opens the replicas on a disk in memory.
pub(crate) fn open(control: &MemControl, durability: Durability) -> (World<MemDisk>, OpenReport) {
    open_with(control, &options(durability))
}

pub(crate) fn open_with(control: &MemControl, options: &Options) -> (World<MemDisk>, OpenReport) {
    let (replicas, report) = Replicas::open(control.open().expect("closed"), options).unwrap();
    (World::new(replicas, Some(control.clone())), report)
}

impl<D: Disk> World<D> {
    pub(crate) fn new(mut replicas: Replicas<D>, disk: Option<MemControl>) -> Self {
        let hub = Hub::new(HubOptions { mtu: 9000, reliable: true });
        let port = |last| hub.port(address(last)).expect("free");
        replicas.set_servers(KnownServers {
            members: (1..MEMBERS).collect(),
            masters: Vec::new(),
            below: 0,
        });
        let node = Node::new(port(1), replicas, &Config::default(), 1);
        let mut driver = port(2);
        let mut endpoint = Endpoint::new(&Config { slots: 64, ..Config::default() }, 2);
        let now = Nanos(disk.as_ref().map_or(0, MemControl::now));
        let session = endpoint.connect(now, address(1), driver.tx()).expect("the first");
        Self { hub, node, driver, endpoint, ended: Ended::default(), session, disk, now }
    }

    /// Lets one step of time pass.
    pub(crate) fn turn(&mut self) {
        self.pass(STEP);
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        let now = self.now;
        self.hub.deliver_until(now);
        if let Some(disk) = &self.disk {
            disk.set_now(now.0);
        }
        self.node.turn(now).expect("a network in memory");
        self.hub.deliver_until(now);
        let Self { driver, endpoint, ended, .. } = self;
        driver
            .receive(&mut |tx, from, frame| endpoint.receive(now, from, frame, ended, tx))
            .expect("memory");
        endpoint.poll(now, ended, driver.tx());
        endpoint.flush(driver.tx());
    }

    /// Returns the time at which the node has something to do next.
    pub(crate) fn next_deadline(&self) -> Nanos {
        self.node.next_deadline()
    }

    /// Begins a call.
    pub(crate) fn begin(&mut self, request: BackupRequest<'_>) -> CallId {
        let (header, key, value) = Request::Backup(request).parts();
        self.begin_raw(&[header.as_bytes(), key, value].concat())
    }

    pub(crate) fn begin_raw(&mut self, payload: &[u8]) -> CallId {
        let deadline = self.now + Duration::from_secs(3600);
        loop {
            match self.endpoint.call(self.now, self.session, &[payload], deadline, self.driver.tx())
            {
                Ok(call) => return call,
                Err(_) => self.turn(), // every slot is taken
            }
        }
    }

    /// Takes the reply to a call, if it has arrived.
    pub(crate) fn take(&mut self, call: CallId) -> Option<Reply> {
        let bytes = self.ended.results.remove(&call)?.expect("the node lives");
        let answer = Answer::parse(&bytes).expect("an answer");
        let Answer { status, more, number, body, .. } = answer;
        Some(Reply { status, more, number, body: body.to_vec() })
    }

    /// Waits for the reply to a call, which must arrive.
    #[track_caller]
    #[expect(clippy::disallowed_methods, reason = "a real disk takes real time")]
    pub(crate) fn wait(&mut self, call: CallId) -> Reply {
        for _ in 0..MANY_TURNS {
            if let Some(reply) = self.take(call) {
                return reply;
            }
            if self.disk.is_none() {
                std::thread::sleep(STEP);
            }
            self.turn();
        }
        panic!("no answer");
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, request: BackupRequest<'_>) -> Reply {
        let call = self.begin(request);
        self.wait(call)
    }

    /// Writes a part of a segment, and its seal if `sealed`.
    #[track_caller]
    pub(crate) fn write(
        &mut self,
        replica: ReplicaId,
        part: std::ops::Range<usize>,
        sealed: bool,
    ) -> Reply {
        let call = self.begin_write(replica, part, sealed);
        self.wait(call)
    }

    pub(crate) fn begin_write(
        &mut self,
        replica: ReplicaId,
        part: std::ops::Range<usize>,
        sealed: bool,
    ) -> CallId {
        let bytes = bytes_of(replica, part.end);
        let offset = u32::try_from(part.start).unwrap();
        self.begin(BackupRequest::Write {
            replica,
            offset,
            sealed,
            replacement: false,
            edition: 0,
            bytes: &bytes[part.start..],
        })
    }

    /// Writes a part that must be accepted. Returns the room that is left.
    #[track_caller]
    pub(crate) fn put(
        &mut self,
        replica: ReplicaId,
        part: std::ops::Range<usize>,
        sealed: bool,
    ) -> u64 {
        let reply = self.write(replica, part, sealed);
        assert_eq!(reply.status, Status::Ok, "{}", reply.text());
        reply.number
    }

    /// Fences a master; returns the records of its replicas.
    #[track_caller]
    pub(crate) fn fence(&mut self, master: u32) -> Vec<ReplicaRecord> {
        let reply = self.ask(BackupRequest::Fence { master });
        assert_eq!(reply.status, Status::Ok, "{}", reply.text());
        reply.records()
    }

    #[track_caller]
    pub(crate) fn free(&mut self, replica: ReplicaId) {
        assert_eq!(self.ask(BackupRequest::Free { replica }).status, Status::Ok);
    }

    /// Reads all of a replica, or returns the reply that refuses this.
    #[track_caller]
    pub(crate) fn read(&mut self, replica: ReplicaId) -> Result<Vec<u8>, Reply> {
        let mut all = Vec::new();
        loop {
            let offset = u32::try_from(all.len()).unwrap();
            let reply = self.ask(BackupRequest::Read { replica, offset });
            if reply.status != Status::Ok {
                return Err(reply);
            }
            all.extend_from_slice(&reply.body);
            if !reply.more {
                return Ok(all);
            }
        }
    }

    /// Returns the value of the metric `name`.
    pub(crate) fn figure(&self, name: &str) -> u64 {
        let figures: Vec<Figure> = self.node.service().figures();
        figures
            .iter()
            .find(|figure| figure.name == name)
            .unwrap_or_else(|| panic!("no {name}"))
            .value
    }

    pub(crate) fn close(self) {
        let now = self.now;
        self.node.into_service().close(now).expect("the disk works");
    }
}
