//! Starts a lab from its plan.

use super::layout::{BoxPlan, LabPlan, PortPlan};
use crate::capture::{Capture, CaptureError, CaptureSummary};
use crate::config::PortSpec;
use crate::control::{ControlDir, ControlError, Server};
use crate::engine::{Engine, EngineError, EnginePlan, Inspection, Memories, Report};
use crate::filter::{CompileError, Compiler, Rules};
use crate::hosts::{Commands, HostsError, Job, LabHosts, Leftover, StateDir};
use crate::port::{Port, PortError};

/// A running lab: its hosts, and its boxes with their control sockets and captures.
///
/// [`up`](Self::up) starts everything, [`run`](Self::run) starts commands in the hosts, and
/// [`down`](Self::down) stops everything and reports. Dropping the lab stops everything without a
/// report. The lab checks nothing on its own: the caller must poll
/// [`stop_requested`](Self::stop_requested) and each engine's [`ended`](Engine::ended).
#[derive(Debug)]
pub struct RunningLab {
    // Fields are dropped in this order: boxes hold interfaces in the hosts' namespaces.
    boxes: Vec<StartedBox>,
    hosts: LabHosts,
}

#[derive(Debug)]
struct StartedBox {
    name: String,
    engine: Engine,
    control: Server,
    capture: Option<Capture>,
}

/// Why a lab cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The hosts cannot be made.
    #[error(transparent)]
    Hosts(#[from] HostsError),
    /// A box cannot be started.
    #[error("box.{0}: {1}")]
    Box(String, EngineError),
    /// A filter cannot be compiled.
    #[error("box.{0}: {1}")]
    Filter(String, CompileError),
    /// The control socket of a box cannot be opened.
    #[error("box.{0}: {1}")]
    Control(String, ControlError),
    /// A capture cannot be started.
    #[error("box.{0}: {1}")]
    Capture(String, CaptureError),
}

/// The result of a lab that was taken down.
#[derive(Debug)]
pub struct LabResult {
    /// The results of the boxes, with their names.
    pub boxes: Vec<BoxResult>,
    /// How often connections of hosts found the kernel short of memory: see
    /// [`LabHosts::memory_shortages`].
    pub memory_shortages: u64,
    /// What was not removed, because others made it.
    pub left: Vec<Leftover>,
}

/// The result of a box.
#[derive(Debug)]
pub struct BoxResult {
    /// The box's name.
    pub name: String,
    /// The last report, or the error that ended the box.
    pub report: Result<Report, EngineError>,
    /// The result of the capture, if there was one.
    pub capture: Option<CaptureSummary>,
}

impl RunningLab {
    /// Starts a lab. Compiles the filters, makes packet memory and the hosts, opens the boxes'
    /// ports, starts the boxes with their captures and control sockets, and gives the interfaces
    /// their addresses.
    ///
    /// # Errors
    /// [`StartError`] if privileges or memory are missing, the lab exists already, a name is taken,
    /// a filter is invalid, a file of a capture exists already, or the kernel refuses a step. What
    /// was already made is removed, except the files of captures.
    pub fn up(lab: LabPlan, dir: &StateDir) -> Result<Self, StartError> {
        // Errors that can be found without hosts are reported before any host is made.
        let rules = lab.boxes.iter().map(rules).collect::<Result<Vec<_>, _>>()?;
        let (control_dir, lab_name, tolerance) =
            (ControlDir::of(dir), lab.plan.name.clone(), lab.tolerance);
        // Packets arrive as soon as ports are open, and to make memory takes seconds.
        let memories = lab.boxes.iter().map(memories).collect::<Result<Vec<_>, _>>()?;
        let mut hosts = LabHosts::make(lab.plan, dir)?;
        let mut opened = Vec::new();
        for plan in &lab.boxes {
            let prepared = PortSpec::prepare(plan.ports.iter().map(|port| &port.spec));
            prepared.map_err(|error| StartError::Box(plan.name.clone(), error.into()))?;
        }
        for ((plan, rules), memories) in lab.boxes.into_iter().zip(rules).zip(memories) {
            let failed = |error: PortError| StartError::Box(plan.name.clone(), error.into());
            let ports =
                plan.ports.iter().map(open).collect::<Result<Vec<_>, _>>().map_err(failed)?;
            opened.push((plan, ports, rules, memories));
        }
        let mut boxes = Vec::new();
        for (BoxPlan { name, ports: words, forwarding, capture, .. }, ports, rules, memories) in
            opened
        {
            let full_name = format!("{lab_name}.{name}");
            let workers = Engine::workers(forwarding, ports.len());
            let started = capture.map(|settings| Capture::start(settings, workers)).transpose();
            let (capture, recorders) =
                started.map_err(|error| StartError::Capture(name.clone(), error))?.unzip();
            let mut recorders = recorders.into_iter().flatten();
            let look = |_| Inspection { rules: rules.clone(), recorder: recorders.next() };
            let inspections = (0..workers).map(look).collect();
            let ports =
                ports.into_iter().zip(words).map(|(port, words)| (port, words.line)).collect();
            let memories = Some(memories);
            let plan = EnginePlan {
                name: full_name.clone(),
                memories,
                tolerance,
                ..EnginePlan::new(ports, forwarding)
            };
            let engine = Engine::start_with(plan, inspections)
                .map_err(|error| StartError::Box(name.clone(), error))?;
            let control = Server::start(&control_dir, &full_name, engine.handle().clone());
            let control = control.map_err(|error| StartError::Control(name.clone(), error))?;
            boxes.push(StartedBox { name, engine, control, capture });
        }
        // Interfaces send as soon as they have addresses, so the boxes must already be running.
        hosts.configure()?;
        Ok(Self { boxes, hosts })
    }

    /// Returns the lab's hosts.
    #[must_use]
    pub fn hosts(&self) -> &LabHosts {
        &self.hosts
    }

    /// Returns the boxes with their names.
    pub fn boxes(&self) -> impl Iterator<Item = (&str, &Engine)> {
        self.boxes.iter().map(|running| (&running.name[..], &running.engine))
    }

    /// Returns whether a client has asked one of the boxes to stop. The caller then stops the lab.
    #[must_use]
    pub fn stop_requested(&self) -> bool {
        self.boxes.iter().any(|running| running.control.stop_requested())
    }

    /// Starts `jobs` and the commands that the plan gives for the hosts. In events, the indices of
    /// jobs count `jobs` first, then the hosts that have a command.
    ///
    /// # Errors
    /// A command cannot be started.
    pub fn run(&self, jobs: &[Job]) -> Result<Commands, HostsError> {
        Commands::start(&self.hosts, &self.jobs(jobs))
    }

    /// Returns all jobs that [`run`](Self::run) starts, in the order of their indices.
    #[must_use]
    pub fn jobs(&self, jobs: &[Job]) -> Vec<Job> {
        let planned = self.hosts.plan().hosts.iter().enumerate();
        let planned =
            planned.filter_map(|(host, words)| Some(Job { host, command: words.run.clone()? }));
        jobs.iter().cloned().chain(planned).collect()
    }

    /// Stops the boxes, and removes the hosts.
    ///
    /// # Errors
    /// The kernel's counters cannot be read, or something cannot be removed. `sprat lab down` can
    /// then try again.
    pub fn down(self) -> Result<LabResult, HostsError> {
        let end = |StartedBox { name, engine, control, capture }| {
            let report = engine.stop();
            drop(control); // the client that asked for the stop sees the end
            // The box has ended, so the capture's recorders have been dropped.
            BoxResult { name, report, capture: capture.map(Capture::finish) }
        };
        let boxes = self.boxes.into_iter().map(end).collect();
        let memory_shortages = self.hosts.memory_shortages()?;
        Ok(LabResult { boxes, memory_shortages, left: self.hosts.down()? })
    }
}

/// Compiles the filters of a box. Loads libpcap only if the box has filters.
fn rules(plan: &BoxPlan) -> Result<Rules, StartError> {
    if plan.filters.is_empty() {
        return Ok(Rules::default());
    }
    let compile = || {
        let compiler = Compiler::load()?;
        plan.filters.iter().map(|rule| rule.compile(&compiler)).collect::<Result<_, CompileError>>()
    };
    let rules = compile().map_err(|error| StartError::Filter(plan.name.clone(), error))?;
    Ok(Rules::new(rules).expect("the layout has no more than fit"))
}

/// Makes the packet memory of a box.
fn memories(plan: &BoxPlan) -> Result<Memories, StartError> {
    let devices: Vec<_> = plan.ports.iter().map(|port| port.spec.is_device()).collect();
    let made = Memories::make(
        plan.forwarding,
        &devices,
        plan.ports.iter().map(|port| &port.line),
        plan.memory,
    );
    made.map_err(|error| StartError::Box(plan.name.clone(), error))
}

fn open(plan: &PortPlan) -> Result<Port, PortError> {
    Ok(plan.spec.open()?.called(&plan.name))
}
