//! A node and its client in virtual time: a network in memory, a disk in memory.

use crate::common::ended;
use sprat_disk::{MemControl, MemDisk};
use sprat_log::Config as LogConfig;
use sprat_net::{Driver as _, Hub, HubOptions, Mem, Nanos};
use sprat_rpc::{CallId, Config, Endpoint, SessionId};
use sprat_store::backup::Durability;
use sprat_store::master::{Command, Master, MasterAssignment, Outbox, inbox};
use sprat_store::node::{Node, Service};
use sprat_store::restart::{LogTables, OpenedLog, RestartError, configure, open};
use sprat_wire::expiry::Ttl;
use sprat_wire::op::{Answer, Request, Status};
use std::net::SocketAddr;
use std::time::Duration;

use ended::Ended;

/// The only table of the master.
pub(crate) const TABLE: u32 = 1;

/// How far an iteration advances the clock.
const STEP: Duration = Duration::from_micros(50);

/// Iterations after which no answer is expected any more.
const MANY_TURNS: usize = 20_000;

/// A copy of a reply.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: Status,
    pub(crate) more: bool,
    pub(crate) number: u64,
    /// Of an object that was read.
    pub(crate) ttl: Option<Ttl>,
    pub(crate) body: Vec<u8>,
}

/// A node with the service `S`, and a client of it.
pub(crate) struct World<S: Service> {
    hub: Hub,
    pub(crate) node: Node<Mem, S>,
    driver: Mem,
    endpoint: Endpoint<()>,
    ended: Ended,
    session: SessionId,
    disk: Option<MemControl>,
    pub(crate) now: Nanos,
}

pub(crate) fn address(last: u8) -> SocketAddr {
    ([10, 0, 0, last], 1).into()
}

impl<S: Service> World<S> {
    pub(crate) fn new(service: S, disk: Option<MemControl>) -> Self {
        let hub = Hub::new(HubOptions { mtu: 9000, reliable: true });
        let port = |last| hub.port(address(last)).expect("free");
        let node = Node::new(port(1), service, &Config::default(), 1);
        let mut driver = port(2);
        let mut endpoint = Endpoint::new(&Config { slots: 64, ..Config::default() }, 2);
        let session = endpoint.connect(Nanos(0), address(1), driver.tx()).expect("the first");
        Self { hub, node, driver, endpoint, ended: Ended::default(), session, disk, now: Nanos(0) }
    }

    /// Opens another port on the network.
    pub(crate) fn port(&self, last: u8) -> Mem {
        self.hub.port(address(last)).expect("free")
    }

    /// Advances the clock and lets both ends work.
    pub(crate) fn turn(&mut self) {
        self.now = self.now + STEP;
        let now = self.now;
        self.hub.deliver_until(now);
        if let Some(disk) = &self.disk {
            disk.set_now(now.0);
        }
        self.node.turn(now).expect("a network in memory");
        self.node.service_mut().work_idle();
        self.hub.deliver_until(now);
        let Self { driver, endpoint, ended, .. } = self;
        driver
            .receive(&mut |tx, from, frame| endpoint.receive(now, from, frame, ended, tx))
            .expect("memory");
        endpoint.poll(now, ended, driver.tx());
        endpoint.flush(driver.tx());
    }

    /// Begins a call with these bytes.
    pub(crate) fn call(&mut self, payload: &[u8]) -> CallId {
        let deadline = self.now + Duration::from_secs(3600);
        loop {
            match self.endpoint.call(self.now, self.session, &[payload], deadline, self.driver.tx())
            {
                Ok(call) => return call,
                Err(_) => self.turn(), // every slot is taken
            }
        }
    }

    pub(crate) fn begin(&mut self, request: &Request<'_>) -> CallId {
        self.call(&request.to_bytes(None))
    }

    /// Takes the answer to a call, if there is one.
    pub(crate) fn take(&mut self, call: CallId) -> Option<Reply> {
        let bytes = self.ended.results.remove(&call)?.expect("the node lives");
        let answer = Answer::parse(&bytes).expect("an answer");
        Some(Reply {
            status: answer.status,
            more: answer.more,
            number: answer.number,
            ttl: answer.ttl(),
            body: answer.body.to_vec(),
        })
    }

    /// Lets this many milliseconds pass.
    pub(crate) fn pass(&mut self, millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        self.turn();
        self.now = end;
        self.turn();
    }

    /// Waits for the answer to a call, which must come.
    #[track_caller]
    pub(crate) fn wait(&mut self, call: CallId) -> Reply {
        for _ in 0..MANY_TURNS {
            if let Some(reply) = self.take(call) {
                return reply;
            }
            self.turn();
        }
        panic!("no answer");
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, request: &Request<'_>) -> Reply {
        let call = self.begin(request);
        self.wait(call)
    }
}

/// Returns a master with 8 MB of memory, over a disk in memory, and the outbox that sends the
/// master commands. Its segments are small, so that they fill often.
pub(crate) fn master(
    control: &MemControl,
    durability: Durability,
) -> Result<(Master<MemDisk>, Outbox), RestartError> {
    let config = LogConfig { seed: 77, ..LogConfig::new(8 << 20, sprat_log::Durability::Tracked) };
    let (config, options) = configure(config, 64 << 20, (1, 1), durability).expect("enough disk");
    let disk = control.open().expect("nobody else has it");
    let OpenedLog { log, backup, .. } =
        open(disk, &config, &options, &LogTables::served(&[TABLE]), 0)?;
    let (outbox, inbox) = inbox();
    assert!(outbox.send(Command::Assign(Box::new(MasterAssignment::tables(1, vec![TABLE])))));
    Ok((Master::new(log, Some(backup), inbox), outbox))
}
