//! The wheel: threads that read ports, put packets on lines, and write what has come through.
//!
//! A *lane* is one thread with packet memory of its own. A pair of ports joined to each other is
//! two lanes, one for each direction, or one if either is a device past the kernel, which is for
//! one thread; a switch is one. What a lane does may be changed, and is told, between its turns:
//! nobody takes a lock while packets pass.

mod attention;
mod control;
mod error;
mod forwarding;
mod handle;
mod inspect;
mod lane;
mod memories;
mod report;
mod rules;
mod tolerance;

use crate::chance::salt;
use crate::line::{Line, Settings};
use crate::port::Port;
use crate::rtt::Stamps;
use crate::switch::Switch;
use crate::time::Time;
use attention::Attention;
use control::{Inbox, Remote, inbox};
use forwarding::ways;
use handle::Lane as Told;
use inspect::Inspector;
use lane::{Forward, Input, Lane, Output};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use error::EngineError;
pub use forwarding::{Forwarding, MAX_PORTS};
pub use handle::{Changed, Handle, Short};
pub use inspect::Inspection;
pub use lane::SPIN;
pub use memories::{ASSUMED_BITS_PER_SECOND, Memories};
pub use report::{InputReport, Lateness, LineReport, Report};
pub use rules::Seen;
pub use tolerance::Tolerance;

/// What a box is made of.
#[derive(Debug)]
pub struct Plan {
    /// Its name: boxes of other names draw other chances from equal seeds.
    pub name: String,
    /// Its ports, and of each the line that leads to it.
    pub ports: Vec<(Port, Settings)>,
    /// How they are joined.
    pub forwarding: Forwarding,
    /// Packet memory, where it was made before the ports were opened; none: it is made at the
    /// start, and what comes meanwhile waits.
    pub memories: Option<Memories>,
    /// How long before a departure a lane stops sleeping; [`SPIN`] unless somebody knows better.
    pub spin: Duration,
    /// What share of segments may be late.
    pub tolerance: Tolerance,
}

impl Plan {
    /// A box without a name, with as much memory as its lines need.
    #[must_use]
    pub fn new(ports: Vec<(Port, Settings)>, forwarding: Forwarding) -> Self {
        let tolerance = Tolerance::default();
        Self { name: String::new(), ports, forwarding, memories: None, spin: SPIN, tolerance }
    }
}

/// A box that runs. It stops when dropped.
#[derive(Debug)]
pub struct Engine {
    handle: Handle,
    threads: Vec<Option<Thread>>,
}

type Thread = JoinHandle<Result<(), EngineError>>;

impl Engine {
    /// Makes the memory, and starts the lanes.
    ///
    /// # Errors
    /// See [`EngineError`].
    pub fn start(plan: Plan) -> Result<Self, EngineError> {
        Self::start_with(plan, Vec::new())
    }

    /// How many lanes a box of so many ports has at most: as many inspections it can be started
    /// with.
    #[must_use]
    pub fn lanes(forwarding: Forwarding, ports: usize) -> usize {
        match forwarding {
            Forwarding::Cross => ports,
            Forwarding::Switch(_) => 1,
        }
    }

    /// Starts with something that looks at the packets, for each lane; missing ones look at
    /// nothing. Without a switch each lane is that of one port's packets, in order. All have
    /// the same rules: clones of each other.
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
        let devices: Vec<_> = plan.ports.iter().map(|(port, _)| port.is_device()).collect();
        let ways = ways(plan.forwarding, &devices);
        let made = plan.memories.filter(|made| made.lanes() == ways.len());
        let made = match made {
            Some(made) => made,
            None => Memories::of(&ways, plan.ports.iter().map(|(_, line)| line), None)?,
        };
        let started = Instant::now();
        let named =
            plan.ports.iter().map(|(port, line)| (port.name().to_owned(), line.clone())).collect();
        let ports: Vec<_> =
            plan.ports.into_iter().map(|(port, settings)| (Arc::new(port), settings)).collect();
        let stamps = Arc::new(Stamps::new());
        let line = |to: usize| {
            let (port, settings) = &ports[to];
            let line = Line::new(settings.clone()).timed(stamps.clone());
            Output::new(
                port.clone(),
                line.salted(salt(&format!("{} to {}", plan.name, port.name()))),
            )
        };
        let mut places = vec![(0, 0); count];
        let (mut told, mut threads) = (Vec::new(), Vec::new());
        for (number, (ways, memory)) in ways.iter().zip(made.into_lanes()).enumerate() {
            ways.outputs.iter().enumerate().for_each(|(line, &port)| places[port] = (number, line));
            let (remote, inbox): (Remote, Inbox) =
                inbox().map_err(|error| EngineError::System("an eventfd", error))?;
            told.push(Told { remote, memory: memory.bytes() });
            let lane = Lane {
                inputs: ways.inputs.iter().map(|&port| Input::new(ports[port].0.clone())).collect(),
                outputs: ways.outputs.iter().map(|&port| line(port)).collect(),
                forward: match plan.forwarding {
                    Forwarding::Cross => Forward::Cross,
                    Forwarding::Switch(ageing) => Forward::Switch(Switch::new(ageing)),
                },
                memory,
                landing: crate::memory::Landing::new(),
                started,
                inbox,
                spin: plan.spin,
                late: plan.tolerance.late,
                inspector: Inspector::new(
                    inspections.next().unwrap_or_default(),
                    ways.inputs[0],
                    started,
                ),
                moved: Time::ZERO,
                attention: Attention::default(),
                answered: None,
            };
            let thread = std::thread::Builder::new()
                .name(format!("sprat-lane-{number}"))
                .spawn(move || lane.run());
            threads.push(Some(
                thread.map_err(|error| EngineError::System("cannot start a thread", error))?,
            ));
        }
        let shared = (plan.forwarding, plan.tolerance, started);
        Ok(Self { handle: Handle::new(shared, named, rules, (places, told)), threads })
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

    /// Stops it, and tells what became of everything. Packets on the lines are gone; the report
    /// counts them as such.
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
