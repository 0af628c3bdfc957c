//! Simulates requests over a plan's network, frame by frame on virtual time. Reports latency by the
//! distance between servers.
//!
//! A request goes from one server to another in one or several frames. When its last bit has
//! arrived and the service time has passed, the response goes back, perhaps over another of the
//! shortest routes. Each port sends one frame after another. A frame that does not fit into a
//! port's buffer is lost, and so is its request, since the simulation retransmits nothing. The
//! simulation covers only the network: callers add the time that servers need to send and receive.

mod engine;
mod path;

use crate::Plan;
use crate::quantity::{BitRate, Bytes, Seconds};
use engine::Engine;
use path::Paths;
use serde::Serialize;
use sprat_chance::Chance;

/// Headers before a frame's payload, in bytes: Ethernet, IPv4, UDP, and 16 bytes of a transport.
pub const HEADER_BYTES: u64 = 14 + 20 + 8 + 16;

/// What a frame occupies on the wire in addition to headers and payload, in bytes: preamble, check
/// sequence and gap.
pub const WIRE_BYTES: u64 = 8 + 4 + 12;

/// Shortest frame with its check sequence, in bytes. Frames that would be shorter are padded.
pub const MIN_FRAME_BYTES: u64 = 64;

/// Payload in bytes of a full frame with an MTU of 1,500 bytes.
pub const PAYLOAD_BYTES: u64 = 1_514 - HEADER_BYTES;

/// Limit on the servers of a simulation.
pub const MAX_SERVERS: usize = 20_000;

/// Limit on the requests of a simulation.
pub const MAX_REQUESTS: usize = 10_000_000;

/// Limit on the length of a request or response, in bytes (16 MiB).
pub const MAX_MESSAGE: u64 = 16 << 20;

/// The requests to simulate.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Number of requests.
    pub requests: usize,
    /// Bytes of a request.
    pub request: u64,
    /// Bytes of a response.
    pub answer: u64,
    /// Time that a server takes to handle a request.
    pub service: Seconds,
    /// Which servers send requests to which, and when.
    pub pattern: Pattern,
    /// Seed of all random choices.
    pub seed: u64,
}

/// Which servers send requests to which, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// One request at a time between random servers, so the network is otherwise idle.
    OneByOne,
    /// Random servers send requests to each other at random times. The rate is such that responses
    /// occupy this share of a server's ports.
    Load(f64),
    /// The first server sends a request to each other server at once, so that their responses
    /// collide, and again when each of these requests is answered or lost.
    Incast,
}

/// The result of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SimulationReport {
    /// Latency of answered requests, by the number of links between the chassis.
    pub by_hops: Vec<Latency>,
    /// Number of requests that lost a frame at a full buffer.
    pub lost: usize,
    /// Number of frames that all ports sent.
    pub frames: u64,
    /// The largest number of bytes that waited at one port of a switch.
    pub backlog: Bytes,
    /// The busiest port, and the share of the elapsed time in which it was sending.
    pub fullest: (String, f64),
    /// Virtual time that passed.
    pub elapsed: Seconds,
    /// Rate at which the payload of responses arrived.
    pub goodput: BitRate,
}

/// Time from the first bit of a request to the last bit of its response.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Latency {
    /// Number of links between the two chassis.
    pub hops: usize,
    /// Number of requests.
    pub count: usize,
    /// The shortest time.
    pub min: Seconds,
    /// The median time.
    pub p50: Seconds,
    /// The 99th percentile.
    pub p99: Seconds,
    /// The longest time.
    pub max: Seconds,
}

/// A parameter of a simulation that is out of range.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{what}: {value}; want {want}")]
pub struct SimulateError {
    what: &'static str,
    value: String,
    want: String,
}

/// Runs a simulation.
///
/// # Errors
/// The plan has fewer than 2 or more than [`MAX_SERVERS`] servers; the workload has no request or
/// more than [`MAX_REQUESTS`]; a message has 0 or more than [`MAX_MESSAGE`] bytes; or the share of
/// [`Pattern::Load`] is not from 0.0001 to 2.
pub fn simulate(plan: &Plan, workload: &Workload) -> Result<SimulationReport, SimulateError> {
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

/// Returns the number of bytes that each frame of a message occupies on the wire.
#[must_use]
pub fn frames(message: u64) -> Vec<u64> {
    let count = message.div_ceil(PAYLOAD_BYTES).max(1);
    let of = |number: u64| {
        let payload = PAYLOAD_BYTES.min(message - number * PAYLOAD_BYTES);
        (payload + HEADER_BYTES + 4).max(MIN_FRAME_BYTES) - 4 + WIRE_BYTES
    };
    (0..count).map(of).collect()
}
