//! A node and a client of it, in a network in memory and in virtual time.

use crate::common::ended::Ended;
use sprat_net::{Driver as _, Hub, Mem, Nanos};
use sprat_rpc::{CallId, Endpoint, SessionId};
use sprat_store::node::{Node, Service};
use sprat_wire::op::Request;
use std::net::SocketAddr;
use std::time::Duration;
use zerocopy::IntoBytes as _;

/// How far a step advances the clock.
const STEP: Duration = Duration::from_micros(50);

/// The last byte of the node's address.
pub(crate) const NODE: u8 = 1;

const CLIENT: u8 = 2;

pub(crate) fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 1))
}

pub(crate) struct World<S: Service> {
    hub: Hub,
    node: Node<Mem, S>,
    driver: Mem,
    endpoint: Endpoint<()>,
    pub(crate) ended: Ended,
    session: SessionId,
    pub(crate) now: Nanos,
}

impl<S: Service> World<S> {
    /// Builds the world; the node has the hub's port [`NODE`].
    pub(crate) fn of(hub: Hub, node: Node<Mem, S>, mut endpoint: Endpoint<()>) -> Self {
        let mut driver = hub.port(address(CLIENT)).unwrap();
        let session = endpoint.connect(Nanos(0), address(NODE), driver.tx()).unwrap();
        Self { hub, node, driver, endpoint, ended: Ended::default(), session, now: Nanos(0) }
    }

    pub(crate) fn call(&mut self, request: &Request<'_>) -> CallId {
        let (header, key, value) = request.parts();
        let parts = [header.as_bytes(), key, value];
        let deadline = self.now + Duration::from_secs(100);
        self.endpoint.call(self.now, self.session, &parts, deadline, self.driver.tx()).unwrap()
    }

    /// Advances the clock and lets both ends work.
    pub(crate) fn step(&mut self) {
        self.now = self.now + STEP;
        let Self { hub, node, driver, endpoint, ended, now, .. } = self;
        hub.deliver_until(*now);
        node.turn(*now).unwrap();
        hub.deliver_until(*now);
        driver
            .receive(&mut |tx, from, frame| endpoint.receive(*now, from, frame, ended, tx))
            .unwrap();
        endpoint.poll(*now, ended, driver.tx());
        endpoint.flush(driver.tx());
    }
}
