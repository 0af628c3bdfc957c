//! Requests over a plan, frame by frame, on virtual time: what latency its network gives, by how
//! far servers are apart.
//!
//! A request goes from a server to another as one frame or several; when its last bit is in, and
//! the other has taken its time for it, the answer comes back the same way. Each port sends one
//! frame after the other; what does not fit into its buffer is lost, and the request with it:
//! nothing here sends again. Servers' own time, for sending and receiving, is the caller's to
//! add; what is here is the network.

mod engine;
mod path;

use crate::Plan;
use crate::quantity::{BitRate, Bytes, Seconds};
use engine::Engine;
use path::Paths;
use serde::Serialize;
use sprat_chance::Chance;

/// What a frame of a request has in front of its payload: Ethernet, IPv4, UDP, and a transport's
/// own 16 bytes.
pub const HEADER_BYTES: u64 = 14 + 20 + 8 + 16;

/// What a frame takes on the wire besides: preamble, check sequence, and the gap to the next.
pub const WIRE_BYTES: u64 = 8 + 4 + 12;

/// Shortest frame, without preamble and gap: what is shorter is filled up.
pub const MIN_FRAME_BYTES: u64 = 64;

/// Payload of a full frame, where packets have 1,500 bytes.
pub const PAYLOAD_BYTES: u64 = 1_514 - HEADER_BYTES;

/// Most servers.
pub const MAX_SERVERS: usize = 20_000;

/// Most requests.
pub const MAX_REQUESTS: usize = 10_000_000;

/// Longest request or answer, bytes.
pub const MAX_MESSAGE: u64 = 16 << 20;

/// What is asked over the network.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Requests in all.
    pub requests: usize,
    /// Bytes of each.
    pub request: u64,
    /// Bytes of each answer.
    pub answer: u64,
    /// What a server takes for one.
    pub service: Seconds,
    /// Who asks whom, and when.
    pub pattern: Pattern,
    /// Where chance begins.
    pub seed: u64,
}

/// Who asks whom, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// One request at a time, between servers by chance: the network is empty.
    OneByOne,
    /// All servers ask others by chance, at random times, so often that answers take this part of a
    /// server's ports.
    Load(f64),
    /// All servers ask the first at once for an answer, again when all have come.
    Incast,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Report {
    /// Requests that were answered, by how many links between chassis were between.
    pub by_hops: Vec<Latency>,
    /// Requests of which a frame was lost, in a buffer that was full.
    pub lost: usize,
    /// Frames that were sent, by all ports.
    pub frames: u64,
    /// Most that waited at one port.
    pub backlog: Bytes,
    /// The port that sent most of the time, and of that time how much.
    pub fullest: (String, f64),
    /// Virtual time that passed.
    pub elapsed: Seconds,
    /// Answers' payload in that time.
    pub goodput: BitRate,
}

/// From the first bit of a request to the last of its answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Latency {
    /// Links between the chassis.
    pub hops: usize,
    /// Requests.
    pub count: usize,
    /// The shortest.
    pub min: Seconds,
    /// The median.
    pub p50: Seconds,
    /// Of a hundred, the longest but one.
    pub p99: Seconds,
    /// The longest.
    pub max: Seconds,
}

/// A simulation that cannot be.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{what}: {value}; want {want}")]
pub struct SimulateError {
    what: &'static str,
    value: String,
    want: String,
}

/// Runs it.
///
/// # Errors
/// There is too much of something, or too little.
pub fn simulate(plan: &Plan, workload: &Workload) -> Result<Report, SimulateError> {
    check(plan, workload)?;
    let paths = Paths::new(plan);
    let mut engine = Engine::new(plan, &paths, workload);
    let mut chance = Chance::new(workload.seed);
    let mut random = || chance.draw();
    engine.run(&mut random);
    Ok(engine.report())
}

fn check(plan: &Plan, workload: &Workload) -> Result<(), SimulateError> {
    let error = |what, value: String, want: String| Err(SimulateError { what, value, want });
    let servers = plan.summary.capacity.servers;
    if !(2..=MAX_SERVERS).contains(&servers) {
        return error(
            "servers",
            servers.to_string(),
            format!("2 to {MAX_SERVERS} of them in a simulation"),
        );
    }
    if !(1..=MAX_REQUESTS).contains(&workload.requests) {
        return error("requests", workload.requests.to_string(), format!("1 to {MAX_REQUESTS}"));
    }
    for (what, bytes) in [("request", workload.request), ("answer", workload.answer)] {
        if !(1..=MAX_MESSAGE).contains(&bytes) {
            return error(what, format!("{bytes} bytes"), format!("1 to {MAX_MESSAGE}"));
        }
    }
    match workload.pattern {
        Pattern::Load(load) if !(0.000_1..=2.0).contains(&load) => {
            error("load", load.to_string(), "a share of the servers' ports, 0.0001 to 2".to_owned())
        }
        _ => Ok(()),
    }
}

/// Frames of a message, by what each takes on the wire, bytes.
#[must_use]
pub fn frames(message: u64) -> Vec<u64> {
    let count = message.div_ceil(PAYLOAD_BYTES).max(1);
    let of = |number: u64| {
        let payload = PAYLOAD_BYTES.min(message - number * PAYLOAD_BYTES);
        (payload + HEADER_BYTES + 4).max(MIN_FRAME_BYTES) - 4 + WIRE_BYTES
    };
    (0..count).map(of).collect()
}
