//! The wheel: threads that read ports, put packets on lines, and write what has come through.
//!
//! A *lane* is one thread with packet memory of its own. A pair of ports joined to each other is two lanes, one for each direction, or one
//! if either is a device past the kernel, which is for one thread; a switch is one. What a lane does may be changed, and is told, between
//! its turns: nobody takes a lock while packets pass.

mod control;
mod handle;
mod inspect;
mod lane;
mod report;
mod rules;

use crate::filter::MAX_RULES;
use crate::line::{Line, Rate, Settings};
use crate::memory::Memory;
use crate::port::{Port, PortError};
use crate::rtt::Stamps;
use crate::switch::Switch;
use crate::time::Time;
use control::{Inbox, Remote, inbox};
use handle::Lane as Told;
use inspect::Inspector;
use lane::{Forward, Input, Lane, Output};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use handle::{Changed, Handle, Short};
pub use inspect::Inspection;
pub use report::{InputReport, Lateness, LineReport, Report};
pub use rules::Seen;

/// Most ports of a box.
pub const MAX_PORTS: usize = 16;

/// What a line without a rate is taken to carry, when memory is made for it: 20 Gb/s, about what one
/// thread can copy.
pub const ASSUMED_BITS_PER_SECOND: u64 = 20_000_000_000;

/// Memory made beyond what the lines hold: packets do not fill their last cells.
const CELL_WASTE_PERCENT: u64 = 150;

/// Memory made beyond that for bursts: bytes.
const BURST_MEMORY: u64 = 16 << 20;

/// Departures later than this, and wishes to be told of it, show in the report.
pub const LATE: Duration = Duration::from_millis(1);

/// How a box passes packets on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Forwarding {
    /// Pairs of ports: each two that follow each other are each other's far end.
    Cross,
    /// A learning switch that forgets after this time.
    Switch(Duration),
}

impl Forwarding {
    /// Whether so many ports can be joined so.
    #[must_use]
    pub fn joins(self, ports: usize) -> bool {
        (2..=MAX_PORTS).contains(&ports) && (self != Self::Cross || ports.is_multiple_of(2))
    }
}

/// What a box is made of.
#[derive(Debug)]
pub struct Plan {
    /// Its ports, and of each the line that leads to it.
    pub ports: Vec<(Port, Settings)>,
    /// How they are joined.
    pub forwarding: Forwarding,
    /// Packet memory of each lane in bytes; none: as much as its lines need.
    pub memory: Option<u64>,
    /// How long before a departure a lane stops sleeping; [`SPIN`] unless somebody knows better.
    pub spin: Duration,
}

pub use lane::SPIN;

/// Why a box did not start, or stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A number of ports that cannot be joined so.
    #[error(
        "{0} ports cannot be joined so: pairs are two ports each, a switch has two or more; {MAX_PORTS} are the limit of both"
    )]
    Ports(usize),
    /// A port is gone.
    #[error(transparent)]
    Port(#[from] PortError),
    /// There is no such port.
    #[error("no port {0:?}; the ports are {1}")]
    NoSuchPort(String, String),
    /// There is not that much memory.
    #[error(
        "packet memory of {needed} MB, of which {available} MB are there: give less with --memory, or set less rate, delay or buffer"
    )]
    Memory {
        /// Megabytes that all lanes need.
        needed: u64,
        /// Megabytes that are free, or can be made so.
        available: u64,
    },
    /// The system refused something.
    #[error("{0}: {1}")]
    System(&'static str, std::io::Error),
    /// More rules than a filter has.
    #[error("{0} rules; {MAX_RULES} are the limit of a box")]
    Rules(usize),
    /// A lane has ended.
    #[error("the box has stopped: a lane ended")]
    Stopped,
}

/// A box that runs. It stops when dropped.
#[derive(Debug)]
pub struct Engine {
    handle: Handle,
    threads: Vec<Option<Thread>>,
}

type Thread = JoinHandle<Result<(), EngineError>>;

/// A lane that was started.
struct Started {
    told: Told,
    thread: Thread,
}

impl Engine {
    /// Makes the memory, and starts the lanes.
    ///
    /// # Errors
    /// See [`EngineError`].
    pub fn start(plan: Plan) -> Result<Self, EngineError> {
        Self::start_with(plan, Vec::new())
    }

    /// How many lanes a box of so many ports has at most: as many inspections it can be started with.
    #[must_use]
    pub fn lanes(forwarding: Forwarding, ports: usize) -> usize {
        match forwarding {
            Forwarding::Cross => ports,
            Forwarding::Switch(_) => 1,
        }
    }

    /// Starts with something that looks at the packets, for each lane; missing ones look at nothing. Without a switch
    /// each lane is that of one port's packets, in order. All have the same rules: clones of each other.
    ///
    /// # Errors
    /// See [`EngineError`].
    pub fn start_with(plan: Plan, inspections: Vec<Inspection>) -> Result<Self, EngineError> {
        // Every lane has the same rules.
        let rules = inspections.first().map(|first| first.rules.clone()).unwrap_or_default();
        let mut inspections = inspections.into_iter();
        let count = plan.ports.len();
        if !plan.forwarding.joins(count) {
            return Err(EngineError::Ports(count));
        }
        let lines = plan.ports.iter().map(|(_, settings)| settings);
        let lanes = Self::lanes(plan.forwarding, count) as u64;
        enough_memory(plan.memory.map_or_else(|| memory_for(lines), |each| each.saturating_mul(lanes)))?;
        let started = Instant::now();
        let named = plan.ports.iter().map(|(port, line)| (port.name().to_owned(), line.clone())).collect();
        let ports: Vec<_> = plan.ports.into_iter().map(|(port, settings)| (Arc::new(port), settings)).collect();
        let mut lanes = Vec::new();
        let stamps = Arc::new(Stamps::new());
        let mut start = |first: usize, inputs: &[_], outputs: &[_], forward| {
            let look = Inspector::new(inspections.next().unwrap_or_default(), first, started);
            let name = format!("sprat-lane-{}", lanes.len());
            lanes.push(lane(name, inputs, outputs, forward, (plan.memory, plan.spin, started), &stamps, look)?);
            Ok::<_, EngineError>(())
        };
        let places = match plan.forwarding {
            Forwarding::Cross => {
                // The line to a port is with the lane that reads the other.
                let mut places = vec![(0, 0); count];
                let mut made = 0;
                for first in (0..count).step_by(2) {
                    let pair = &ports[first..first + 2];
                    if pair.iter().any(|(port, _)| port.is_device()) {
                        let inputs: Vec<_> = pair.iter().map(|(port, _)| port.clone()).collect();
                        let outputs: Vec<_> = pair.iter().rev().cloned().collect();
                        start(first, &inputs, &outputs, Forward::Cross)?;
                        (places[first], places[first + 1]) = ((made, 1), (made, 0));
                        made += 1;
                    } else {
                        start(first, &[pair[0].0.clone()], &pair[1..], Forward::Cross)?;
                        start(first + 1, &[pair[1].0.clone()], &pair[..1], Forward::Cross)?;
                        (places[first], places[first + 1]) = ((made + 1, 0), (made, 0));
                        made += 2;
                    }
                }
                places
            }
            Forwarding::Switch(ageing) => {
                let inputs: Vec<_> = ports.iter().map(|(port, _)| port.clone()).collect();
                start(0, &inputs, &ports, Forward::Switch(Switch::new(ageing)))?;
                (0..count).map(|at| (0, at)).collect()
            }
        };
        let (told, threads) = lanes.into_iter().map(|Started { told, thread }| (told, Some(thread))).unzip();
        Ok(Self { handle: Handle::new(plan.forwarding, named, rules, (places, told), started), threads })
    }

    /// A way to it for other threads.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The names of its ports, in order.
    #[must_use]
    pub fn ports(&self) -> &[String] {
        self.handle.ports()
    }

    /// Time since it started, on the clock of its lines.
    #[must_use]
    pub fn now(&self) -> Time {
        self.handle.now()
    }

    /// Has the line to a port do this.
    ///
    /// # Errors
    /// There is no such port, or the box has stopped.
    pub fn set(&self, port: &str, settings: Settings) -> Result<(), EngineError> {
        let change = |line: &mut Settings| {
            line.clone_from(&settings);
            Ok::<_, EngineError>(())
        };
        self.handle.change(Some(port), change).map(drop)
    }

    /// What has become of everything so far. Takes a turn of each lane.
    ///
    /// # Errors
    /// The box has stopped.
    pub fn report(&self) -> Result<Report, EngineError> {
        self.handle.report()
    }

    /// Whether a lane has ended by itself: a port is gone, and [`stop`](Self::stop) tells which.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.threads.iter().any(|thread| thread.as_ref().is_none_or(JoinHandle::is_finished))
    }

    /// Stops it, and tells what became of everything. Packets on the lines are gone; the report counts them as such.
    ///
    /// # Errors
    /// What ended a lane before.
    pub fn stop(mut self) -> Result<Report, EngineError> {
        let report = self.handle.last_report();
        self.end()?;
        report
    }

    fn end(&mut self) -> Result<(), EngineError> {
        let mut ended = Ok(());
        for (lane, thread) in self.threads.iter_mut().enumerate() {
            self.handle.stop(lane);
            let Some(thread) = thread.take() else { continue };
            let lane = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ended = ended.and(lane);
        }
        ended
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for (lane, thread) in self.threads.iter_mut().enumerate() {
            self.handle.stop(lane);
            if let Some(thread) = thread.take() {
                let _ = thread.join(); // what it came to has been asked for, or is of no interest
            }
        }
    }
}

/// Starts a lane.
fn lane(
    name: String,
    inputs: &[Arc<Port>],
    outputs: &[(Arc<Port>, Settings)],
    forward: Forward,
    (memory, spin, started): (Option<u64>, Duration, Instant),
    stamps: &Arc<Stamps>,
    inspector: Inspector,
) -> Result<Started, EngineError> {
    let memory = Memory::new(memory.unwrap_or_else(|| memory_for(outputs.iter().map(|(_, settings)| settings))));
    let made = memory.bytes();
    let line = |to: &Settings| Line::new(to.clone()).timed(stamps.clone());
    let (remote, inbox): (Remote, Inbox) = inbox().map_err(|error| EngineError::System("an eventfd", error))?;
    let lane = Lane {
        inputs: inputs.iter().cloned().map(Input::new).collect(),
        outputs: outputs.iter().map(|(port, to)| Output::new(port.clone(), line(to))).collect(),
        forward,
        memory,
        landing: crate::memory::Landing::new(),
        started,
        inbox,
        spin,
        inspector,
        moved: Time::ZERO,
    };
    let thread = std::thread::Builder::new().name(name).spawn(move || lane.run());
    let thread = thread.map_err(|error| EngineError::System("cannot start a thread", error))?;
    Ok(Started { told: Told { remote, memory: made }, thread })
}

/// Refuses what the machine does not have: memory is touched when it is made, and the kernel would end somebody for it.
fn enough_memory(needed: u64) -> Result<(), EngineError> {
    let list = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = list.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    match kilobytes {
        Some(kilobytes) if needed >> 10 > kilobytes => {
            Err(EngineError::Memory { needed: needed >> 20, available: kilobytes >> 10 })
        }
        _ => Ok(()),
    }
}

/// Packet memory that is made for these lines, in bytes.
fn memory_for<'a>(lines: impl Iterator<Item = &'a Settings>) -> u64 {
    filled_by(lines) + BURST_MEMORY
}

/// Packet memory that these lines can fill, in bytes.
fn filled_by<'a>(lines: impl Iterator<Item = &'a Settings>) -> u64 {
    let assumed = Rate::new(ASSUMED_BITS_PER_SECOND).expect("within limits");
    let held: u64 = lines.map(|settings| settings.capacity(assumed)).sum();
    held / 100 * CELL_WASTE_PERCENT
}
