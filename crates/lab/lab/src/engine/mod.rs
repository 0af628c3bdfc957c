//! The threads of a box: they read its ports, put packets on lines, and write what leaves the
//! lines.
//!
//! Each thread is a *worker* with packet memory of its own. A pair of ports has two workers, one
//! for each direction. If either port is a device that bypasses the kernel, which only one thread
//! may use, the pair has one worker. A switch has one worker. A worker takes commands (change a
//! line, report counters) between two iterations of its loop, so packets never wait for a lock.

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
use crate::line::{Line, LineSettings};
use crate::port::Port;
use crate::rtt::Stamps;
use crate::switch::Switch;
use crate::time::Time;
use attention::MissedTime;
use control::{Inbox, Remote, inbox};
use forwarding::worker_ports;
use handle::WorkerHandle;
use inspect::Inspector;
use lane::{Forward, Input, Output, Worker};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use error::EngineError;
pub use forwarding::{Forwarding, MAX_PORTS};
pub use handle::{Changed, EngineHandle, MemoryShortage};
pub use inspect::Inspection;
pub use lane::SPIN;
pub use memories::{ASSUMED_BITS_PER_SECOND, Memories};
pub use report::{InputReport, Lateness, LineReport, Report};
pub use rules::CountedRule;
pub use tolerance::Tolerance;

/// What an [`Engine`] is made of.
#[derive(Debug)]
pub struct EnginePlan {
    /// The box's name, which salts the seed: boxes with different names draw different random
    /// numbers from equal seeds.
    pub name: String,
    /// The ports, each with the settings of the line that leads to it.
    pub ports: Vec<(Port, LineSettings)>,
    /// How the ports are joined.
    pub forwarding: Forwarding,
    /// Packet memory that was made before the ports were opened. With `None`, or if it was made for
    /// another number of workers, the engine makes memory when it starts. Packets that arrive
    /// meanwhile wait in the ports.
    pub memories: Option<Memories>,
    /// How long before a departure a worker stops sleeping and spins; normally [`SPIN`].
    pub spin: Duration,
    /// Lateness up to which the report says that the box kept up.
    pub tolerance: Tolerance,
}

impl EnginePlan {
    /// Plans a box without a name, with as much memory as its lines need.
    #[must_use]
    pub fn new(ports: Vec<(Port, LineSettings)>, forwarding: Forwarding) -> Self {
        let tolerance = Tolerance::default();
        Self { name: String::new(), ports, forwarding, memories: None, spin: SPIN, tolerance }
    }
}

/// A running box.
///
/// [`start`](Self::start) makes the packet memory and starts the worker threads, which own the
/// ports from then on. [`report`](Self::report) returns the counters so far, and [`set`](Self::set)
/// changes a line; call either at any time. Threads that do not own the engine use its
/// [`handle`](Self::handle) for this. A worker ends by itself only when a port or a system call
/// fails: poll [`ended`](Self::ended), then call [`stop`](Self::stop), which returns the last
/// report or the error. Dropping the engine also stops the box.
#[derive(Debug)]
pub struct Engine {
    handle: EngineHandle,
    threads: Vec<Option<Thread>>,
}

type Thread = JoinHandle<Result<(), EngineError>>;

impl Engine {
    /// Makes the packet memory if the plan has none, and starts the workers.
    ///
    /// # Errors
    /// As for [`start_with`](Self::start_with).
    pub fn start(plan: EnginePlan) -> Result<Self, EngineError> {
        Self::start_with(plan, Vec::new())
    }

    /// Returns the largest number of workers that a box with this many ports can have.
    /// [`start_with`](Self::start_with) uses at most that many inspections.
    #[must_use]
    pub fn workers(forwarding: Forwarding, ports: usize) -> usize {
        match forwarding {
            Forwarding::Cross => ports,
            Forwarding::Switch(_) => 1,
        }
    }

    /// Starts a box whose workers inspect packets. `inspections[i]` goes to worker `i`; workers
    /// without an inspection inspect nothing. In a box of pairs in which no port is a device that
    /// bypasses the kernel, worker `i` reads port `i`. The rules of all inspections must be clones
    /// of each other.
    ///
    /// # Errors
    /// - [`EngineError::Ports`] if the ports cannot be joined in this way.
    /// - [`EngineError::Memory`] if the machine has too little memory.
    /// - [`EngineError::System`] if a thread or a descriptor cannot be made.
    pub fn start_with(plan: EnginePlan, inspections: Vec<Inspection>) -> Result<Self, EngineError> {
        // Every worker has the same rules.
        let rules = inspections.first().map(|first| first.rules.clone()).unwrap_or_default();
        let mut inspections = inspections.into_iter();
        let count = plan.ports.len();
        if !plan.forwarding.joins(count) {
            return Err(EngineError::Ports(count));
        }
        let devices: Vec<_> = plan.ports.iter().map(|(port, _)| port.is_device()).collect();
        let worker_ports = worker_ports(plan.forwarding, &devices);
        let made = plan.memories.filter(|made| made.workers() == worker_ports.len());
        let made = match made {
            Some(made) => made,
            None => Memories::of(&worker_ports, plan.ports.iter().map(|(_, line)| line), None)?,
        };
        let started = Instant::now();
        let named =
            plan.ports.iter().map(|(port, line)| (port.name().to_owned(), line.clone())).collect();
        let ports: Vec<_> =
            plan.ports.into_iter().map(|(port, settings)| (Arc::new(port), settings)).collect();
        let stamps = Arc::new(Stamps::new());
        let line = |to: usize| {
            let (port, settings) = &ports[to];
            let line = Line::new(settings.clone()).with_stamps(stamps.clone());
            Output::new(
                port.clone(),
                line.salted(salt(&format!("{} to {}", plan.name, port.name()))),
            )
        };
        let mut places = vec![(0, 0); count];
        let (mut handles, mut threads) = (Vec::new(), Vec::new());
        for (number, (part, memory)) in worker_ports.iter().zip(made.into_vec()).enumerate() {
            part.outputs.iter().enumerate().for_each(|(line, &port)| places[port] = (number, line));
            let (remote, inbox): (Remote, Inbox) =
                inbox().map_err(|error| EngineError::System("an eventfd", error))?;
            handles.push(WorkerHandle { remote, memory: memory.bytes() });
            let worker = Worker {
                inputs: part.inputs.iter().map(|&port| Input::new(ports[port].0.clone())).collect(),
                outputs: part.outputs.iter().map(|&port| line(port)).collect(),
                forward: match plan.forwarding {
                    Forwarding::Cross => Forward::Cross,
                    Forwarding::Switch(ageing) => Forward::Switch(Switch::new(ageing)),
                },
                memory,
                buffer: crate::memory::ReceiveBuffer::new(),
                started,
                inbox,
                spin: plan.spin,
                late: plan.tolerance.late,
                inspector: Inspector::new(
                    inspections.next().unwrap_or_default(),
                    part.inputs[0],
                    started,
                ),
                active_at: Time::ZERO,
                missed_time: MissedTime::default(),
                replied_at: None,
            };
            let thread = std::thread::Builder::new()
                .name(format!("sprat-lane-{number}"))
                .spawn(move || worker.run());
            threads.push(Some(
                thread.map_err(|error| EngineError::System("cannot start a thread", error))?,
            ));
        }
        let shared = (plan.forwarding, plan.tolerance, started);
        Ok(Self { handle: EngineHandle::new(shared, named, rules, (places, handles)), threads })
    }

    /// Returns the handle by which other threads watch and change this box.
    #[must_use]
    pub fn handle(&self) -> &EngineHandle {
        &self.handle
    }

    /// Returns the names of the ports, in order.
    #[must_use]
    pub fn ports(&self) -> &[String] {
        self.handle.ports()
    }

    /// Returns the time since the box started, on the clock of its lines.
    #[must_use]
    pub fn now(&self) -> Time {
        self.handle.now()
    }

    /// Changes the settings of the line to `port`.
    ///
    /// # Errors
    /// There is no such port, or the box has stopped.
    pub fn set(&self, port: &str, settings: LineSettings) -> Result<(), EngineError> {
        let change = |line: &mut LineSettings| {
            line.clone_from(&settings);
            Ok::<_, EngineError>(())
        };
        self.handle.change(Some(port), change).map(drop)
    }

    /// Returns the counters of the whole box. Waits for one loop iteration of each worker.
    ///
    /// # Errors
    /// The box has stopped, or a worker does not reply within 10 seconds.
    pub fn report(&self) -> Result<Report, EngineError> {
        self.handle.report()
    }

    /// Returns whether a worker has ended by itself, because a port or a system call failed.
    /// [`stop`](Self::stop) then returns the error.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.threads.iter().any(|thread| thread.as_ref().is_none_or(JoinHandle::is_finished))
    }

    /// Stops the box and returns its last report, which counts the packets that were still on a
    /// line.
    ///
    /// # Errors
    /// The error with which a worker ended earlier, or [`EngineError::Stopped`] if a worker does
    /// not reply within 10 seconds.
    pub fn stop(mut self) -> Result<Report, EngineError> {
        let report = self.handle.last_report();
        self.end()?;
        report
    }

    fn end(&mut self) -> Result<(), EngineError> {
        let mut ended = Ok(());
        for (worker, thread) in self.threads.iter_mut().enumerate() {
            self.handle.stop(worker);
            let Some(thread) = thread.take() else { continue };
            let result = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ended = ended.and(result);
        }
        ended
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for (worker, thread) in self.threads.iter_mut().enumerate() {
            self.handle.stop(worker);
            if let Some(thread) = thread.take() {
                let _ = thread.join(); // a caller that wants the result calls `stop`
            }
        }
    }
}
