//! From a lab on paper to one that runs.

use super::layout::{BoxPlan, Lab, PortPlan};
use crate::capture::{Capture, CaptureError, Summary};
use crate::config::PortSpec;
use crate::control::{ControlError, Place, Server};
use crate::engine::{Engine, EngineError, Inspection, Memories, Plan, Report};
use crate::filter::{CompileError, Compiler, Rules};
use crate::hosts::{self, Commands, Job, Left, Standing, StateDir};
use crate::port::{Port, PortError};

/// A lab that runs. Everything of it ends when it is dropped.
#[derive(Debug)]
pub struct Raised {
    // In the order in which they have to end: boxes hold interfaces in the namespaces of the
    // hosts.
    boxes: Vec<RaisedBox>,
    standing: Standing,
}

#[derive(Debug)]
struct RaisedBox {
    name: String,
    engine: Engine,
    control: Server,
    capture: Option<Capture>,
}

/// Why a lab does not run.
#[derive(Debug, thiserror::Error)]
pub enum RaiseError {
    /// Its hosts cannot be made.
    #[error(transparent)]
    Hosts(#[from] hosts::Error),
    /// A box cannot be made.
    #[error("box.{0}: {1}")]
    Box(String, EngineError),
    /// A filter means nothing, or cannot be compiled here.
    #[error("box.{0}: {1}")]
    Filter(String, CompileError),
    /// It cannot be asked and changed from outside.
    #[error("box.{0}: {1}")]
    Control(String, ControlError),
    /// Nothing can be written down.
    #[error("box.{0}: {1}")]
    Capture(String, CaptureError),
}

/// What became of a lab.
#[derive(Debug)]
pub struct Ended {
    /// Of its boxes, in the order of their names.
    pub boxes: Vec<BoxEnd>,
    /// How often connections of hosts found the kernel short of memory: see
    /// [`Standing::memory_shortages`].
    pub memory_shortages: u64,
    /// What could not be taken down because it is another's.
    pub left: Vec<Left>,
}

/// What became of a box.
#[derive(Debug)]
pub struct BoxEnd {
    /// Its name.
    pub name: String,
    /// What became of the packets, or what ended it.
    pub report: Result<Report, EngineError>,
    /// What was written down.
    pub capture: Option<Summary>,
}

impl Raised {
    /// Compiles the filters, makes packet memory and the hosts, opens the ports of the boxes in
    /// them, lets the boxes run, and gives the interfaces their addresses.
    ///
    /// # Errors
    /// Rights are missing, the lab stands already, a name is taken, or the kernel refuses. What was
    /// made by then is gone again.
    pub fn up(lab: Lab, dir: &StateDir) -> Result<Self, RaiseError> {
        // What can be wrong without hosts is found before there are any.
        let rules = lab.boxes.iter().map(rules).collect::<Result<Vec<_>, _>>()?;
        let (place, lab_name, tolerance) = (Place::of(dir), lab.plan.name.clone(), lab.tolerance);
        // Once ports are there packets come, and memory takes seconds.
        let memories = lab.boxes.iter().map(memories).collect::<Result<Vec<_>, _>>()?;
        let mut standing = Standing::make(lab.plan, dir)?;
        let mut opened = Vec::new();
        for plan in &lab.boxes {
            let prepared = PortSpec::prepare(plan.ports.iter().map(|port| &port.spec));
            prepared.map_err(|error| RaiseError::Box(plan.name.clone(), error.into()))?;
        }
        for ((plan, rules), memories) in lab.boxes.into_iter().zip(rules).zip(memories) {
            let failed = |error: PortError| RaiseError::Box(plan.name.clone(), error.into());
            let ports =
                plan.ports.iter().map(open).collect::<Result<Vec<_>, _>>().map_err(failed)?;
            opened.push((plan, ports, rules, memories));
        }
        let mut boxes = Vec::new();
        for (BoxPlan { name, ports: words, forwarding, capture, .. }, ports, rules, memories) in
            opened
        {
            let full_name = format!("{lab_name}.{name}");
            let lanes = Engine::lanes(forwarding, ports.len());
            let started = capture.map(|settings| Capture::start(settings, lanes)).transpose();
            let (capture, recorders) =
                started.map_err(|error| RaiseError::Capture(name.clone(), error))?.unzip();
            let mut recorders = recorders.into_iter().flatten();
            let look = |_| Inspection { rules: rules.clone(), recorder: recorders.next() };
            let inspections = (0..lanes).map(look).collect();
            let ports =
                ports.into_iter().zip(words).map(|(port, words)| (port, words.line)).collect();
            let memories = Some(memories);
            let plan = Plan {
                name: full_name.clone(),
                memories,
                tolerance,
                ..Plan::new(ports, forwarding)
            };
            let engine = Engine::start_with(plan, inspections)
                .map_err(|error| RaiseError::Box(name.clone(), error))?;
            let control = Server::start(&place, &full_name, engine.handle().clone());
            let control = control.map_err(|error| RaiseError::Control(name.clone(), error))?;
            boxes.push(RaisedBox { name, engine, control, capture });
        }
        // Interfaces begin to send with their addresses: the boxes read them by now.
        standing.configure()?;
        Ok(Self { boxes, standing })
    }

    /// Its hosts.
    #[must_use]
    pub fn hosts(&self) -> &Standing {
        &self.standing
    }

    /// Its boxes, with their names.
    pub fn boxes(&self) -> impl Iterator<Item = (&str, &Engine)> {
        self.boxes.iter().map(|raised| (&raised.name[..], &raised.engine))
    }

    /// Whether somebody asked one of its boxes to stop: the lab ends with it.
    #[must_use]
    pub fn stop_asked(&self) -> bool {
        self.boxes.iter().any(|raised| raised.control.stop_asked())
    }

    /// Starts these jobs, and what the plan says is to run in the hosts. Numbers of events are
    /// those of `jobs`, then those of the hosts that have something to run.
    ///
    /// # Errors
    /// One cannot be started.
    pub fn run(&self, jobs: &[Job]) -> Result<Commands, hosts::Error> {
        Commands::start(&self.standing, &self.jobs(jobs))
    }

    /// The jobs that [`run`](Self::run) starts.
    #[must_use]
    pub fn jobs(&self, jobs: &[Job]) -> Vec<Job> {
        let told = self.standing.plan().hosts.iter().enumerate();
        let told = told.filter_map(|(host, words)| Some(Job { host, command: words.run.clone()? }));
        jobs.iter().cloned().chain(told).collect()
    }

    /// Stops the boxes, and takes everything down.
    ///
    /// # Errors
    /// Something does not go; `sprat lab down` can be tried again.
    pub fn down(self) -> Result<Ended, hosts::Error> {
        let end = |RaisedBox { name, engine, control, capture }| {
            let report = engine.stop();
            drop(control); // whoever asked for the end hears of it
            // Its recorders ended with the box.
            BoxEnd { name, report, capture: capture.map(Capture::finish) }
        };
        let boxes = self.boxes.into_iter().map(end).collect();
        let memory_shortages = self.standing.memory_shortages()?;
        Ok(Ended { boxes, memory_shortages, left: self.standing.down()? })
    }
}

/// Compiles the filters of a box; libpcap is looked for where there are any.
fn rules(plan: &BoxPlan) -> Result<Rules, RaiseError> {
    if plan.filters.is_empty() {
        return Ok(Rules::default());
    }
    let compile = || {
        let compiler = Compiler::load()?;
        plan.filters.iter().map(|rule| rule.compile(&compiler)).collect::<Result<_, CompileError>>()
    };
    let rules = compile().map_err(|error| RaiseError::Filter(plan.name.clone(), error))?;
    Ok(Rules::new(rules).expect("the layout has no more than fit"))
}

/// Makes the packet memory of a box.
fn memories(plan: &BoxPlan) -> Result<Memories, RaiseError> {
    let devices: Vec<_> = plan.ports.iter().map(|port| port.spec.is_device()).collect();
    let made = Memories::make(
        plan.forwarding,
        &devices,
        plan.ports.iter().map(|port| &port.line),
        plan.memory,
    );
    made.map_err(|error| RaiseError::Box(plan.name.clone(), error))
}

fn open(plan: &PortPlan) -> Result<Port, PortError> {
    Ok(plan.spec.open()?.called(&plan.name))
}
