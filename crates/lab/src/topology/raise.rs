//! From a lab on paper to one that runs.

use super::layout::{BoxPlan, Lab, PortPlan};
use crate::config::PortSpec;
use crate::engine::{Engine, EngineError, Plan, Report, SPIN};
use crate::hosts::{self, Commands, Job, Left, Standing, StateDir};
use crate::port::{PortError, open_packet, open_tap};

/// A lab that runs. Everything of it ends when it is dropped.
#[derive(Debug)]
pub struct Raised {
    // In the order in which they have to end: boxes hold interfaces in the namespaces of the hosts.
    boxes: Vec<(String, Engine)>,
    standing: Standing,
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
}

impl Raised {
    /// Makes the hosts, opens the ports of the boxes in them, gives the interfaces their addresses, and lets the boxes run.
    ///
    /// # Errors
    /// Rights are missing, the lab stands already, a name is taken, or the kernel refuses. What was made by then is gone
    /// again.
    pub fn up(lab: Lab, dir: &StateDir) -> Result<Self, RaiseError> {
        let mut standing = Standing::make(lab.plan, dir)?;
        let mut boxes = Vec::new();
        for BoxPlan { name, ports, forwarding, memory, .. } in lab.boxes {
            let failed = |error: EngineError| RaiseError::Box(name.clone(), error);
            let open = |PortPlan { name, spec, line }: PortPlan| {
                let port = match spec {
                    PortSpec::Tap(tap) => open_tap(&tap)?,
                    PortSpec::Packet(packet) => open_packet(&packet)?,
                };
                Ok((port.called(name), line))
            };
            let opened = ports.into_iter().map(open).collect::<Result<Vec<_>, PortError>>();
            let plan = Plan { ports: opened.map_err(|error| failed(error.into()))?, forwarding, memory, spin: SPIN };
            boxes.push((name.clone(), plan));
        }
        // TAPs are there now; packets that come before a box runs wait in them.
        standing.configure()?;
        let start = |(name, plan): (String, Plan)| match Engine::start(plan) {
            Ok(engine) => Ok((name, engine)),
            Err(error) => Err(RaiseError::Box(name, error)),
        };
        let boxes = boxes.into_iter().map(start).collect::<Result<_, _>>()?;
        Ok(Self { boxes, standing })
    }

    /// Its hosts.
    #[must_use]
    pub fn hosts(&self) -> &Standing {
        &self.standing
    }

    /// Its boxes, by their names.
    #[must_use]
    pub fn boxes(&self) -> &[(String, Engine)] {
        &self.boxes
    }

    /// Starts what the plan says is to run in the hosts, and these jobs besides, which come first in the numbers of events.
    ///
    /// # Errors
    /// One cannot be started.
    pub fn run(&self, jobs: &[Job]) -> Result<Commands, hosts::Error> {
        let told = self.standing.plan().hosts.iter().enumerate();
        let told = told.filter_map(|(host, words)| Some(Job { host, command: words.run.clone()? }));
        let all: Vec<_> = jobs.iter().cloned().chain(told).collect();
        Commands::start(&self.standing, &all)
    }

    /// Stops the boxes, and takes everything down. Of each box, what became of everything.
    ///
    /// # Errors
    /// Something does not go; `sprat lab down` can be tried again.
    #[expect(clippy::type_complexity, reason = "names with reports, and what was left")]
    pub fn down(self) -> Result<(Vec<(String, Result<Report, EngineError>)>, Vec<Left>), hosts::Error> {
        let reports = self.boxes.into_iter().map(|(name, engine)| (name, engine.stop())).collect();
        Ok((reports, self.standing.down()?))
    }
}
