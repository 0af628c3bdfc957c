//! Ports, and which of them a frame comes by.

use crate::Plan;
use crate::fabric::{Neighbour, Routing};

/// Where a frame is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Node {
    Server(usize),
    Switch(usize),
}

/// All ports of a plan by number: each server's to its switch, its switch's to each, then each
/// cable's two directions.
#[derive(Debug)]
pub(super) struct Paths<'a> {
    pub(super) plan: &'a Plan,
    routing: Vec<Routing>,
    /// Servers of a chassis, and ports of each.
    servers: usize,
    ports: usize,
    /// Where the ports of a directed link begin.
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

    /// Servers in all.
    pub(super) fn count(&self) -> usize {
        self.plan.fabric.stations * self.servers
    }

    /// Ports in all, and of each whether it is a server's or leads to one, or joins chassis.
    pub(super) fn ports(&self) -> (usize, usize) {
        let down = 2 * self.count() * self.ports;
        (down, down + 2 * self.plan.fabric.links.iter().map(|link| link.count).sum::<usize>())
    }

    pub(super) fn chassis(&self, server: usize) -> usize {
        server / self.servers
    }

    /// Links between the chassis of two servers.
    pub(super) fn hops(&self, from: usize, to: usize) -> usize {
        self.routing[self.chassis(to)].hops[self.chassis(from)] as usize
    }

    /// By which port a frame leaves where it is for a server, and where it is then. `flow` decides
    /// between equal ways: all frames of a message take the same.
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
        // Each switch decides anew, or all would choose alike.
        let mut cable = pick(flow.rotate_left(u32::try_from(switch % 64).unwrap_or(0)), all);
        for way in routing.next(fabric, switch) {
            if cable < cables(&way) {
                return (self.first[way.directed] + cable, Node::Switch(way.switch));
            }
            cable -= cables(&way);
        }
        unreachable!("one of the cables was picked")
    }

    /// A port in words.
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
