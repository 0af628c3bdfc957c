//! Numbers the ports of a plan, and finds the port through which a frame leaves a node.

use crate::Plan;
use crate::fabric::{Neighbour, Routing};

/// A node at which a frame can be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Node {
    Server(usize),
    Switch(usize),
}

/// All ports of a plan, numbered in this order: from each server to its switch, from the switch to
/// each server, then both directions of each cable between switches.
#[derive(Debug)]
pub(super) struct Paths<'a> {
    pub(super) plan: &'a Plan,
    routing: Vec<Routing>,
    /// Number of servers in a chassis; `ports` is the number of ports of a server.
    servers: usize,
    ports: usize,
    /// Number of the first port of each directed link.
    first: Vec<usize>,
}

impl<'a> Paths<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        let (fabric, spec) = (&plan.fabric, &plan.spec);
        let (servers, ports) = (spec.chassis.servers, spec.server.ports);
        let to = |to| Routing::new(fabric, to, spec.fabric.routes);
        let mut next = 2 * fabric.stations * servers * ports;
        let mut begin = |directed: usize| {
            let first = next;
            next += fabric.links[directed / 2].count;
            first
        };
        let first = (0..2 * fabric.links.len()).map(&mut begin).collect();
        Self { plan, routing: (0..fabric.stations).map(to).collect(), servers, ports, first }
    }

    /// Returns the number of servers.
    pub(super) fn count(&self) -> usize {
        self.plan.fabric.stations * self.servers
    }

    /// Returns the number of ports between servers and switches, and the number of all ports.
    pub(super) fn ports(&self) -> (usize, usize) {
        let down = 2 * self.count() * self.ports;
        (down, down + 2 * self.plan.fabric.links.iter().map(|link| link.count).sum::<usize>())
    }

    pub(super) fn chassis(&self, server: usize) -> usize {
        server / self.servers
    }

    /// Returns the number of links between the chassis of two servers.
    pub(super) fn hops(&self, from: usize, to: usize) -> usize {
        self.routing[self.chassis(to)].hops[self.chassis(from)] as usize
    }

    /// Returns the port through which a frame for server `to` leaves `at`, and the next node.
    /// `flow` selects one of several equal routes, so that all frames of a message take the same
    /// route.
    pub(super) fn next(&self, at: Node, to: usize, flow: u64) -> (usize, Node) {
        let switch = match at {
            Node::Server(server) => {
                let port = server * self.ports + pick(flow, self.ports);
                return (port, Node::Switch(self.chassis(server)));
            }
            Node::Switch(switch) => switch,
        };
        if switch == self.chassis(to) {
            let port = (self.count() + to) * self.ports + pick(flow, self.ports);
            return (port, Node::Server(to));
        }
        let (fabric, routing) = (&self.plan.fabric, &self.routing[self.chassis(to)]);
        let cables = |way: &Neighbour| fabric.links[way.link].count;
        let all = routing.next(fabric, switch).map(|way| cables(&way)).sum();
        // The flow's hash is rotated, so that each switch chooses independently of the others.
        let mut cable = pick(flow.rotate_left(u32::try_from(switch % 64).unwrap_or(0)), all);
        for way in routing.next(fabric, switch) {
            if cable < cables(&way) {
                return (self.first[way.directed] + cable, Node::Switch(way.switch));
            }
            cable -= cables(&way);
        }
        unreachable!("one of the cables was picked")
    }

    /// Describes a port for the report.
    pub(super) fn name(&self, port: usize) -> String {
        let layout = self.plan.layout();
        let server =
            |number: usize| layout.server(number / self.servers, number % self.servers).name;
        let per_side = self.count() * self.ports;
        if port < per_side {
            return format!("{} to its switch", server(port / self.ports));
        }
        if port < 2 * per_side {
            return format!("the switch to {}", server((port - per_side) / self.ports));
        }
        let directed = self.first.partition_point(|first| *first <= port) - 1;
        let (from, to) = self.plan.fabric.directed(directed);
        format!("{} to {}", self.plan.fabric.name(from), self.plan.fabric.name(to))
    }
}

fn pick(flow: u64, of: usize) -> usize {
    usize::try_from(flow % of.max(1) as u64).unwrap_or(0)
}
