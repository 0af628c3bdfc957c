//! A network in virtual time that loses, repeats, reorders and delays frames, and nodes on it.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sprat_key::{Certificate, Identity};
use sprat_net::{Nanos, Transmit};
use sprat_rpc::{
    CallFailure, CallId, Config, Credentials, Endpoint, Handler, Outcome, Repeat, Reply, RequestId,
    Requester, Response, SessionId,
};
use sprat_wire::packet;
use zerocopy::IntoBytes;

/// A small random generator: the same seed gives the same history.
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        u64::try_from((u128::from(self.next()) * u128::from(bound)) >> 64).unwrap()
    }

    pub fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap()
    }

    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

/// What the simulated network does to frames. Probabilities are in thousandths.
#[derive(Clone, Debug)]
pub struct Weather {
    pub loss: u64,
    pub repeat: u64,
    pub reorder: u64,
    pub delay: Duration,
    pub mtu: usize,
    pub reliable: bool,
    /// Bytes that each node can send per second; 0 for no limit.
    pub rate: u64,
}

impl Weather {
    pub fn calm(mtu: usize) -> Self {
        Self {
            loss: 0,
            repeat: 0,
            reorder: 0,
            delay: Duration::from_micros(5),
            mtu,
            reliable: false,
            rate: 0,
        }
    }

    pub fn rough(mtu: usize) -> Self {
        Self { loss: 50, repeat: 50, reorder: 200, ..Self::calm(mtu) }
    }
}

pub fn address(node: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], u16::try_from(1000 + node).unwrap()))
}

/// Frames that a node has sent and the network has not taken yet.
pub struct Wire {
    weather: Weather,
    /// The path MTU that a router has reported, in bytes.
    pub reported_mtu: usize,
    pub sent: Vec<(SocketAddr, Vec<u8>)>,
}

impl Transmit for Wire {
    fn mtu(&mut self, _: SocketAddr) -> usize {
        self.weather.mtu.min(self.reported_mtu)
    }

    fn reliable(&self) -> bool {
        self.weather.reliable
    }

    fn send(&mut self, peer: SocketAddr, parts: &[IoSlice<'_>]) {
        let frame = parts.iter().flat_map(|part| part.iter().copied()).collect::<Vec<u8>>();
        assert!(frame.len() <= self.weather.mtu, "frame of {} bytes", frame.len());
        assert!(!frame.is_empty());
        if frame.len() <= self.reported_mtu {
            self.sent.push((peer, frame));
        }
    }

    fn flush(&mut self) {}
}

/// Pseudo-random bytes of `seed`, so that each message can be checked.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut dice = Dice::new(seed ^ 0x5eed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&dice.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Makes a request of the tests: the operation's number, how the server is to handle it, and
/// filler.
pub fn request(op: u64, want: Want, response: usize, filler: usize) -> Vec<u8> {
    let mut bytes = op.to_le_bytes().to_vec();
    bytes.push(want as u8);
    bytes.extend_from_slice(&u32::try_from(response).unwrap().to_le_bytes());
    bytes.extend_from_slice(&pattern(op, filler));
    bytes
}

/// Makes a packet's bytes. `slot` includes its flags.
pub fn packet(kind: u8, slot: u8, fields: [u32; 5], payload: &[u8]) -> Vec<u8> {
    let [session, token, sequence, offset, total] = fields.map(Into::into);
    let payload_len = u16::try_from(payload.len()).unwrap().into();
    let header = packet::Header {
        kind,
        slot,
        payload: payload_len,
        session,
        token,
        sequence,
        offset,
        total,
    };
    [header.as_bytes(), payload].concat()
}

/// Makes a frame that opens a session.
pub fn connect_frame(nonce: u32) -> Vec<u8> {
    let connect = packet::Connect {
        version: packet::PROTOCOL_VERSION.into(),
        slots: 8.into(),
        session: 0.into(),
        nonce: nonce.into(),
        mtu: 1500.into(),
    };
    packet(packet::Kind::Connect as u8, 0, [0; 5], connect.as_bytes())
}

pub const REQUEST_HEADER: usize = 13;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Want {
    Retain,
    Reexecute,
    /// Answer later, and retain the response.
    Later,
    /// Answer `Retry` a few times, then answer and retain the response.
    Turned,
    /// Always answer `Retry`.
    Never,
}

/// A handler that counts requests, checks their bytes, and records what happened.
#[derive(Default)]
pub struct App {
    pub executed: HashMap<u64, u32>,
    /// Requests announced by `prefetch`, each with the number of requests executed before.
    pub prefetched: Vec<(u64, usize)>,
    pub turned: HashMap<u64, u32>,
    pub bodies: HashMap<u64, Vec<u8>>,
    pub next_body: u64,
    pub pending: Vec<(Nanos, RequestId, u64, usize)>,
    pub results: HashMap<CallId, (Nanos, Result<Vec<u8>, CallFailure>)>,
    /// Number of calls that completed twice.
    pub doubles: u32,
    pub think: Duration,
    /// Whether requests may be forged: the handler then answers them without checking them.
    pub forged: bool,
    /// Members that have proven their identity, and their certificates.
    pub admitted: Vec<(Requester, Certificate)>,
    /// The requester of each request.
    pub asked: Vec<Requester>,
}

impl App {
    pub fn reply(&mut self, op: u64, len: usize, repeat: Repeat) -> Reply<u64> {
        let bytes = pattern(op ^ 0xff, len);
        let head = len.min(usize::try_from(op % 65).unwrap());
        let reply = Reply::new(&bytes[..head], repeat);
        if head == len {
            return reply;
        }
        self.next_body += 1;
        self.bodies.insert(self.next_body, bytes[head..].to_vec());
        reply.with_body(self.next_body)
    }
}

impl Handler for App {
    type Body = u64;

    fn request(&mut self, now: Nanos, id: RequestId, payload: &[u8]) -> Outcome<u64> {
        self.asked.push(id.requester());
        if self.forged {
            return Outcome::Reply(self.reply(
                payload.len() as u64,
                3 * payload.len(),
                Repeat::Retain,
            ));
        }
        let op = u64::from_le_bytes(payload[..8].try_into().unwrap());
        let response = u32::from_le_bytes(payload[9..13].try_into().unwrap()) as usize;
        assert_eq!(
            payload[REQUEST_HEADER..],
            pattern(op, payload.len() - REQUEST_HEADER),
            "request {op}"
        );
        match payload[8] {
            3 if self.turned.get(&op).is_none_or(|&times| times < 3) => {
                *self.turned.entry(op).or_default() += 1;
                return Outcome::Retry(500);
            }
            4 => return Outcome::Retry(500),
            _ => *self.executed.entry(op).or_default() += 1,
        }
        match payload[8] {
            0 | 3 => Outcome::Reply(self.reply(op, response, Repeat::Retain)),
            1 => Outcome::Reply(self.reply(op, response, Repeat::Reexecute)),
            2 => {
                self.pending.push((now + self.think, id, op, response));
                Outcome::Pending
            }
            other => panic!("want {other}"),
        }
    }

    fn prefetch(&mut self, payload: &[u8]) {
        if let Some(op) = payload.first_chunk() {
            self.prefetched.push((u64::from_le_bytes(*op), self.executed.len()));
        }
    }

    fn admitted(&mut self, requester: Requester, certificate: &Certificate) {
        self.admitted.push((requester, certificate.clone()));
    }

    fn gather(&self, body: u64) -> &[u8] {
        &self.bodies[&body]
    }

    fn release(&mut self, body: u64) {
        self.bodies.remove(&body).expect("a body is released once");
    }

    fn completed(&mut self, now: Nanos, call: CallId, result: Result<Response<'_>, CallFailure>) {
        let result = result.map(Response::into_vec);
        self.doubles += u32::from(self.results.insert(call, (now, result)).is_some());
    }
}

pub struct Node {
    pub endpoint: Endpoint<u64>,
    pub app: App,
    pub wire: Wire,
    /// When the node's link is free again.
    busy_until: Nanos,
}

pub struct World {
    pub now: Nanos,
    pub nodes: Vec<Node>,
    pub weather: Weather,
    pub dice: Dice,
    flying: BinaryHeap<Reverse<(Nanos, u64, usize, usize)>>,
    frames: HashMap<u64, Vec<u8>>,
    count: u64,
    /// Frames that arrived since [`take_heard`](Self::take_heard) was called, each with its
    /// receiver.
    heard: Vec<(usize, Vec<u8>)>,
    /// Nodes that are cut off: they neither receive nor send.
    pub cut: Vec<bool>,
    /// The largest frame that the network carries from each node, in bytes; the node does not know
    /// this limit.
    pub narrow: Vec<usize>,
    pub config: Config,
    /// The identity of each node that has one.
    identities: HashMap<usize, Arc<Identity>>,
}

/// Seconds since 1970 at the beginning of a world.
pub const BEGINNING: u64 = 1_000_000;

impl World {
    pub fn new(seed: u64, nodes: usize, weather: Weather, config: &Config) -> Self {
        let mut world = Self {
            now: Nanos(1_000_000),
            nodes: Vec::new(),
            dice: Dice::new(seed),
            flying: BinaryHeap::new(),
            frames: HashMap::new(),
            count: 0,
            heard: Vec::new(),
            cut: vec![false; nodes],
            narrow: vec![usize::MAX; nodes],
            config: config.clone(),
            identities: HashMap::new(),
            weather,
        };
        for _ in 0..nodes {
            let node = world.fresh(usize::MAX);
            world.nodes.push(node);
        }
        world
    }

    /// Gives a node an identity: from now on it communicates only through channels, with members.
    pub fn secure(&mut self, node: usize, identity: &Arc<Identity>) {
        self.identities.insert(node, Arc::clone(identity));
        self.restart(node);
    }

    fn fresh(&mut self, node: usize) -> Node {
        let wire =
            Wire { weather: self.weather.clone(), reported_mtu: usize::MAX, sent: Vec::new() };
        let mut endpoint = Endpoint::new(&self.config, self.dice.next());
        if let Some(identity) = self.identities.get(&node) {
            let mut seed = [0; 32];
            seed.chunks_mut(8)
                .for_each(|chunk| chunk.copy_from_slice(&self.dice.next().to_le_bytes()));
            let credentials = Credentials::new(Arc::clone(identity), &seed, BEGINNING);
            endpoint = endpoint.secured(&self.config, credentials);
        }
        Node {
            endpoint,
            app: App { think: Duration::from_millis(30), ..App::default() },
            wire,
            busy_until: Nanos(0),
        }
    }

    /// Restarts a node without its memory; the records of its application are kept.
    pub fn restart(&mut self, node: usize) {
        let mut fresh = self.fresh(node);
        fresh.app = std::mem::take(&mut self.nodes[node].app);
        fresh.app.think = Duration::from_millis(30);
        fresh.app.pending.clear();
        fresh.app.bodies.clear();
        self.nodes[node] = fresh;
    }

    pub fn connect(&mut self, from: usize, to: usize) -> SessionId {
        let node = &mut self.nodes[from];
        node.endpoint.connect(self.now, address(to), &mut node.wire).unwrap()
    }

    pub fn call(
        &mut self,
        from: usize,
        session: SessionId,
        bytes: &[u8],
        patience: Duration,
    ) -> CallId {
        let node = &mut self.nodes[from];
        let (first, second) = bytes.split_at(bytes.len() / 2);
        node.endpoint
            .call(self.now, session, &[first, second], self.now + patience, &mut node.wire)
            .unwrap()
    }

    pub fn result(&self, node: usize, call: CallId) -> Option<&Result<Vec<u8>, CallFailure>> {
        self.nodes[node].app.results.get(&call).map(|(_, result)| result)
    }

    pub fn inject(&mut self, from: SocketAddr, to: usize, frame: &[u8]) {
        let node = &mut self.nodes[to];
        node.endpoint.receive(self.now, from, frame, &mut node.app, &mut node.wire);
    }

    /// Runs each node's loop once, and hands the frames that the nodes sent to the network.
    pub fn iterate(&mut self) {
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            let app = &mut node.app;
            let due = app
                .pending
                .iter()
                .filter(|pending| pending.0 <= self.now)
                .copied()
                .collect::<Vec<_>>();
            app.pending.retain(|pending| pending.0 > self.now);
            for (_, id, op, len) in due {
                let reply = app.reply(op, len, Repeat::Retain);
                node.endpoint.respond(self.now, id, Outcome::Reply(reply), app, &mut node.wire);
            }
            node.endpoint.poll(self.now, app, &mut node.wire);
            node.endpoint.flush(&mut node.wire);
            for (peer, frame) in std::mem::take(&mut node.wire.sent) {
                self.carry(index, peer, frame);
            }
        }
    }

    fn carry(&mut self, from: usize, to: SocketAddr, frame: Vec<u8>) {
        let to = usize::from(to.port() - 1000);
        if self.cut[from]
            || frame.len() > self.narrow[from]
            || self.dice.chance(self.weather.loss)
            || to >= self.nodes.len()
        {
            return;
        }
        let nanos =
            (frame.len() as u64 * 1_000_000_000).checked_div(self.weather.rate).unwrap_or(0);
        let node = &mut self.nodes[from];
        let leaves = node.busy_until.max(self.now) + Duration::from_nanos(nanos);
        node.busy_until = leaves;
        let copies = 1 + u64::from(self.dice.chance(self.weather.repeat));
        for _ in 0..copies {
            let mut at = leaves + self.weather.delay;
            if self.dice.chance(self.weather.reorder) {
                at = at + self.weather.delay * u32::try_from(self.dice.below(20)).unwrap();
            }
            if self.dice.chance(self.weather.reorder / 50) {
                at = at + Duration::from_millis(self.dice.below(200));
            }
            self.count += 1;
            self.frames.insert(self.count, frame.clone());
            self.flying.push(Reverse((at, self.count, from, to)));
        }
    }

    /// Advances the time to the next event; returns `false` when there is none.
    pub fn step(&mut self) -> bool {
        self.iterate();
        let mut next = self.flying.peek().map(|Reverse((at, ..))| *at);
        for node in &self.nodes {
            let thinking = node.app.pending.iter().map(|pending| pending.0).min();
            next = [next, node.endpoint.next_deadline(), thinking].into_iter().flatten().min();
        }
        let Some(next) = next else { return false };
        self.now = self.now.max(next);
        while let Some(&Reverse((at, number, from, to))) = self.flying.peek()
            && at <= self.now
        {
            self.flying.pop();
            let frame = self.frames.remove(&number).unwrap();
            if !self.cut[to] {
                self.inject(address(from), to, &frame);
                if self.heard.len() < 1000 {
                    self.heard.push((to, frame));
                }
            }
        }
        true
    }

    /// Returns the frames that arrived since the last call, up to a thousand.
    pub fn take_heard(&mut self) -> Vec<(usize, Vec<u8>)> {
        std::mem::take(&mut self.heard)
    }

    /// Runs the world up to the first event after this time, or until there are no further events.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end && self.step() {}
    }

    /// Runs until every endpoint is idle.
    pub fn settle(&mut self) {
        for _ in 0..5_000_000u32 {
            if !self.step() || self.nodes.iter().all(|node| node.endpoint.is_idle()) {
                self.iterate();
                return;
            }
        }
        panic!("some endpoint never becomes idle");
    }
}
