//! A node, and somebody who asks it, in a network in memory and at whatever time it is.

use crate::common::ended::Ended;
use sprat_net::{Driver as _, Hub, Mem, Nanos};
use sprat_rpc::{CallId, Endpoint, SessionId};
use sprat_store::node::{Node, Service};
use sprat_wire::op::Request;
use std::net::SocketAddr;
use std::time::Duration;
use zerocopy::IntoBytes as _;

/// How much later it is after each step.
const STEP: Duration = Duration::from_micros(50);

/// Where the node is.
pub(crate) const NODE: u8 = 1;

const ASKING: u8 = 2;

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
    /// The node has the hub's port [`NODE`].
    pub(crate) fn of(hub: Hub, node: Node<Mem, S>, mut endpoint: Endpoint<()>) -> Self {
        let mut driver = hub.port(address(ASKING)).unwrap();
        let session = endpoint.connect(Nanos(0), address(NODE), driver.tx()).unwrap();
        Self { hub, node, driver, endpoint, ended: Ended::default(), session, now: Nanos(0) }
    }

    pub(crate) fn call(&mut self, request: &Request<'_>) -> CallId {
        let (header, key, value) = request.parts();
        let parts = [header.as_bytes(), key, value];
        let deadline = self.now + Duration::from_secs(100);
        self.endpoint.call(self.now, self.session, &parts, deadline, self.driver.tx()).unwrap()
    }

    /// A little later: what is on its way arrives, and is dealt with.
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
