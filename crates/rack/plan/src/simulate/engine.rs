//! The event loop of the simulation.

use super::path::{Node, Paths};
use super::{HEADER_BYTES, Latency, Pattern, SimulationReport, Workload, frames};
use crate::Plan;
use crate::layout::link_rate;
use crate::quantity::{BitRate, Bytes, Seconds};
use crate::spec::{Forwarding, Switch};
use sprat_chance::Chance;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Virtual time in picoseconds: a bit at 100 Gb/s takes ten of them.
type Time = u64;

const PICOS: f64 = 1e12;

/// A port. It sends one frame after another, so the time at which the port becomes free also shows
/// how many bytes wait.
#[derive(Clone, Copy, Debug, Default)]
struct Port {
    /// Time to send a byte, in picoseconds.
    byte: f64,
    /// Capacity of the port's buffer, as the time to send it. `None` for a server's own port, whose
    /// frames wait in the server.
    buffer: Option<Time>,
    free: Time,
    busy: Time,
}

/// A frame, and the node where it is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Frame {
    request: u32,
    /// Whether the frame belongs to a response.
    back: bool,
    /// Whether the frame is the last one of its message.
    last: bool,
    /// Length of the frame on the wire, in bytes.
    bytes: u32,
    at_server: bool,
    at: u32,
}

/// An action and the time at which it happens. The number between both keeps actions at the same
/// time in the order in which they were scheduled.
type Event = Reverse<(Time, u64, Action)>;

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Action {
    /// The requesting server sends its request.
    Send(u32),
    /// A frame can leave the node at which it is.
    Forward(Frame),
    /// A server has received the last frame of a request, or, if the flag is true, of a response.
    Receive(u32, bool),
}

#[derive(Clone, Copy, Debug)]
struct Request {
    from: usize,
    to: usize,
    flow: u64,
    begun: Time,
    lost: bool,
    ended: Option<Time>,
}

#[derive(Debug)]
pub(super) struct Engine<'a> {
    paths: &'a Paths<'a>,
    workload: &'a Workload,
    switch: Switch,
    ports: Vec<Port>,
    events: BinaryHeap<Event>,
    scheduled: u64,
    now: Time,
    requests: Vec<Request>,
    /// Bytes on the wire of each frame of a request and of each frame of a response.
    frames: [Vec<u64>; 2],
    sent: u64,
    backlog: f64,
    /// Number of requests that are neither answered nor lost.
    open: usize,
}

impl<'a> Engine<'a> {
    pub(super) fn new(plan: &Plan, paths: &'a Paths<'a>, workload: &'a Workload) -> Self {
        let (down, all) = paths.ports();
        let byte = |rate: f64| 8.0 * PICOS / rate.max(1.0);
        let switch = plan.spec.chassis.switch;
        let (server, link) = (plan.spec.server.port_rate.0, link_rate(&plan.spec));
        let port = |number: usize| {
            let rate = if number < down { server } else { link };
            let buffer = (number >= down / 2).then(|| time(switch.buffer.0 * 8.0 / rate));
            Port { byte: byte(rate), buffer, ..Port::default() }
        };
        Self {
            paths,
            workload,
            switch,
            ports: (0..all).map(port).collect(),
            events: BinaryHeap::new(),
            scheduled: 0,
            now: 0,
            requests: Vec::with_capacity(workload.requests),
            frames: [frames(workload.request), frames(workload.answer)],
            sent: 0,
            backlog: 0.0,
            open: 0,
        }
    }

    pub(super) fn run(&mut self, random: &mut dyn FnMut() -> u64) {
        self.begin(random);
        while let Some(Reverse((at, _, action))) = self.events.pop() {
            debug_assert!(at >= self.now, "time goes on");
            self.now = at;
            match action {
                Action::Send(request) => {
                    self.requests[request as usize].begun = at;
                    self.send(request, false, random);
                }
                Action::Forward(frame) => self.pass(frame, random),
                Action::Receive(request, _) if self.requests[request as usize].lost => {}
                Action::Receive(request, false) => self.send(request, true, random),
                Action::Receive(request, true) => {
                    self.requests[request as usize].ended = Some(at);
                    self.end_request(random);
                }
            }
        }
    }

    /// Schedules all requests that do not wait for others.
    fn begin(&mut self, random: &mut dyn FnMut() -> u64) {
        let (servers, all) = (self.paths.count(), self.workload.requests);
        match self.workload.pattern {
            Pattern::OneByOne => self.request_random(0, random),
            Pattern::Incast => self.request_incast(0, random),
            Pattern::Load(load) => {
                // Each response occupies a server's ports for its bytes. The requests of all
                // servers together form a Poisson process.
                let wire: u64 = self.frames[1].iter().sum();
                let spec = &self.paths.plan.spec.server;
                let ports = spec.port_rate.0 * spec.ports as f64 / 8.0;
                let mean = wire as f64 / (ports * load * servers as f64) * PICOS;
                let mut at = 0.0;
                for _ in 0..all {
                    let chance = (random() >> 11) as f64 / (1_u64 << 53) as f64;
                    at += -mean * (1.0 - chance).ln();
                    self.request_random(time(at / PICOS), random);
                }
            }
        }
    }

    /// Schedules a request from one random server to another.
    fn request_random(&mut self, at: Time, random: &mut dyn FnMut() -> u64) {
        let servers = self.paths.count() as u64;
        let from = random() % servers;
        let to = (from + 1 + random() % (servers - 1)) % servers;
        let [from, to] = [from, to].map(|server| usize::try_from(server).unwrap_or(0));
        self.request(at, from, to, random());
    }

    /// Schedules requests from the first server to all others.
    fn request_incast(&mut self, at: Time, random: &mut dyn FnMut() -> u64) {
        let left = self.workload.requests - self.requests.len();
        for to in (1..self.paths.count()).take(left) {
            self.request(at, 0, to, random());
        }
    }

    fn request(&mut self, at: Time, from: usize, to: usize, flow: u64) {
        let number = u32::try_from(self.requests.len()).unwrap_or(u32::MAX);
        self.open += 1;
        self.requests.push(Request { from, to, flow, begun: at, lost: false, ended: None });
        self.schedule(at, Action::Send(number));
    }

    fn schedule(&mut self, at: Time, action: Action) {
        self.scheduled += 1;
        self.events.push(Reverse((at, self.scheduled, action)));
    }

    /// Queues all frames of a message at its sender's port.
    fn send(&mut self, request: u32, back: bool, random: &mut dyn FnMut() -> u64) {
        let Request { from, to, .. } = self.requests[request as usize];
        let at = u32::try_from(if back { to } else { from }).unwrap_or(u32::MAX);
        let count = self.frames[usize::from(back)].len();
        for number in 0..count {
            let bytes = u32::try_from(self.frames[usize::from(back)][number]).unwrap_or(u32::MAX);
            self.pass(
                Frame { request, back, last: number + 1 == count, bytes, at_server: true, at },
                random,
            );
        }
    }

    /// Sends a frame on from the node at which it is, after the earlier frames on its port. A frame
    /// that does not fit into the port's buffer is lost.
    fn pass(&mut self, frame: Frame, random: &mut dyn FnMut() -> u64) {
        let Request { from, to, flow, .. } = self.requests[frame.request as usize];
        let (target, flow) = if frame.back { (from, Chance::new(flow).draw()) } else { (to, flow) };
        let at = if frame.at_server {
            Node::Server(frame.at as usize)
        } else {
            Node::Switch(frame.at as usize)
        };
        let (number, next) = self.paths.next(at, target, flow);
        let port = &mut self.ports[number];
        let takes = picos(f64::from(frame.bytes) * port.byte);
        let start = port.free.max(self.now);
        let waits = start - self.now;
        if port.buffer.is_some_and(|buffer| waits + takes > buffer) {
            return self.drop_request(frame.request, random);
        }
        if port.buffer.is_some() {
            self.backlog = self.backlog.max((waits + takes) as f64 / port.byte);
        }
        port.free = start + takes;
        port.busy += takes;
        self.sent += 1;
        let (tail, byte) = (start + takes, port.byte);
        match next {
            Node::Server(_) => {
                if frame.last {
                    let service = if frame.back { 0 } else { time(self.workload.service.0) };
                    self.schedule(tail + service, Action::Receive(frame.request, frame.back));
                }
            }
            Node::Switch(switch) => {
                let delay = time(self.switch.delay.0);
                let ready = match self.switch.forwarding {
                    Forwarding::StoreAndForward => tail + delay,
                    Forwarding::CutThrough => {
                        // The header suffices, unless the outgoing port is faster: then the port
                        // must start late enough not to run out of bits.
                        let head =
                            start + picos((HEADER_BYTES.min(u64::from(frame.bytes))) as f64 * byte);
                        let (port, _) = self.paths.next(next, target, flow);
                        let faster = picos(f64::from(frame.bytes) * self.ports[port].byte);
                        head.max(tail.saturating_sub(faster)) + delay
                    }
                };
                let at = u32::try_from(switch).unwrap_or(u32::MAX);
                self.schedule(ready, Action::Forward(Frame { at_server: false, at, ..frame }));
            }
        }
    }

    fn drop_request(&mut self, request: u32, random: &mut dyn FnMut() -> u64) {
        let lost = &mut self.requests[request as usize].lost;
        if !std::mem::replace(lost, true) {
            self.end_request(random);
        }
    }

    /// Ends a request, and schedules the requests that waited for its end.
    fn end_request(&mut self, random: &mut dyn FnMut() -> u64) {
        self.open -= 1;
        let more = self.requests.len() < self.workload.requests;
        match self.workload.pattern {
            Pattern::OneByOne if more => self.request_random(self.now, random),
            Pattern::Incast if more && self.open == 0 => self.request_incast(self.now, random),
            _ => {}
        }
    }

    pub(super) fn report(&self) -> SimulationReport {
        assert_eq!(self.open, 0, "every request is answered or lost");
        let elapsed = self.now.max(1);
        let mut took = Vec::<Vec<Time>>::new();
        for request in &self.requests {
            let hops = self.paths.hops(request.from, request.to);
            took.resize(took.len().max(hops + 1), Vec::new());
            took[hops].extend(request.ended.map(|ended| ended - request.begun));
        }
        let answered: usize = took.iter().map(Vec::len).sum();
        let fullest = (0..self.ports.len()).max_by_key(|port| self.ports[*port].busy).unwrap_or(0);
        let bits = answered as f64 * self.workload.answer as f64 * 8.0;
        SimulationReport {
            by_hops: took
                .into_iter()
                .enumerate()
                .filter_map(|(hops, took)| latency(hops, took))
                .collect(),
            lost: self.requests.len() - answered,
            frames: self.sent,
            backlog: Bytes(self.backlog.round()),
            fullest: (self.paths.name(fullest), self.ports[fullest].busy as f64 / elapsed as f64),
            elapsed: seconds(elapsed),
            goodput: BitRate(bits / seconds(elapsed).0),
        }
    }
}

fn latency(hops: usize, mut took: Vec<Time>) -> Option<Latency> {
    took.sort_unstable();
    let of = |share: usize| seconds(took[(took.len() * share).div_ceil(100).max(1) - 1]);
    let (min, max) = (seconds(*took.first()?), seconds(*took.last()?));
    Some(Latency { hops, count: took.len(), min, p50: of(50), p99: of(99), max })
}

fn time(seconds: f64) -> Time {
    picos(seconds * PICOS)
}

fn picos(picos: f64) -> Time {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not below zero, and far from the end"
    )]
    let time = picos.round() as Time;
    time
}

fn seconds(time: Time) -> Seconds {
    Seconds(time as f64 / PICOS)
}
