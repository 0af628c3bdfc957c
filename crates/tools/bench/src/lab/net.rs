//! Networks of hosts that a box connects.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sprat_lab::engine::{Engine, EnginePlan, Forwarding, Inspection, LineReport, Report};
use sprat_lab::line::{LineSettings, Rate};
use sprat_lab::port::open_tap;

use super::host::{Host, ip_on_host};
use super::probe;

/// A network of hosts. Dropping this value stops the box and ends the hosts.
#[derive(Debug)]
pub(crate) struct Net {
    /// The box. It is declared before the hosts, hence dropped before them, since it uses their
    /// interfaces. `None` for hosts that are joined by a cable of the kernel.
    pub(crate) engine: Option<Engine>,
    pub(crate) hosts: Vec<Host>,
}

impl Net {
    /// Makes two hosts. `there` is the line to the second host, and `back` the line to the first.
    pub(crate) fn pair(there: LineSettings, back: LineSettings) -> Result<Self> {
        Self::boxed(vec![back, there], Forwarding::Cross)
    }

    /// Makes a host for each line. The line carries the traffic to the host.
    pub(crate) fn boxed(lines: Vec<LineSettings>, forwarding: Forwarding) -> Result<Self> {
        Self::inspected(lines, forwarding, Vec::new())
    }

    /// Makes hosts as [`boxed`](Self::boxed) does. `looks` see the packets that enter each worker
    /// of the box.
    pub(crate) fn inspected(
        lines: Vec<LineSettings>,
        forwarding: Forwarding,
        looks: Vec<Inspection>,
    ) -> Result<Self> {
        let hosts =
            (1..).zip(&lines).map(|(number, _)| Host::new(number)).collect::<Result<Vec<_>>>()?;
        let ports = hosts.iter().zip(lines).map(|(host, line)| Ok((open_tap(&host.tap())?, line)));
        let ports = ports.collect::<Result<Vec<_>>>()?;
        let engine = Engine::start_with(EnginePlan::new(ports, forwarding), looks)?;
        Self { engine: Some(engine), hosts }.ready()
    }

    /// Makes two hosts connected by a virtual cable of the kernel, without a box.
    pub(crate) fn bare() -> Result<Self> {
        let hosts = vec![Host::new(1)?, Host::new(2)?];
        let (near, far, there) =
            (hosts[0].interface(), hosts[1].interface(), hosts[1].id().to_owned());
        hosts[0].run(move || {
            ip_on_host(&[
                "link", "add", &near, "type", "veth", "peer", "name", &far, "netns", &there,
            ])?;
            ip_on_host(&["link", "set", &near, "up"])
        })?;
        let far = hosts[1].interface();
        hosts[1].run(move || ip_on_host(&["link", "set", &far, "up"]))?;
        Self { engine: None, hosts }.ready()
    }

    /// Assigns addresses, and lets the hosts find each other.
    fn ready(self) -> Result<Self> {
        self.hosts.iter().try_for_each(Host::assign_addresses)?;
        for (at, host) in self.hosts.iter().enumerate() {
            for other in &self.hosts[at + 1..] {
                for to in [other.v4(), other.v6()] {
                    host.run(move || probe::wait_for_answer(to))
                        .with_context(|| format!("{to} does not answer"))?;
                }
            }
        }
        Ok(self)
    }

    /// Returns the address of a host.
    pub(crate) fn address(&self, host: usize, v6: bool) -> IpAddr {
        if v6 { self.hosts[host].v6() } else { self.hosts[host].v4() }
    }

    /// Returns the box.
    pub(crate) fn engine(&self) -> Result<&Engine> {
        self.engine.as_ref().context("this network has no box")
    }

    /// Returns the box's present counters of the line to a host.
    pub(crate) fn line(&self, host: usize) -> Result<LineReport> {
        let name = self.hosts[host].interface();
        let lines = self.engine()?.report()?.lines;
        lines
            .into_iter()
            .find(|line| line.to == name)
            .with_context(|| format!("the box has no line to {name}"))
    }

    /// Stops the box, and returns its last report.
    pub(crate) fn stop(mut self) -> Result<Report> {
        Ok(self.engine.take().context("this network has no box")?.stop()?)
    }
}

/// Returns a line with a delay and otherwise default settings.
pub(crate) fn delayed(delay: Duration) -> LineSettings {
    LineSettings { delay, ..LineSettings::default() }
}

/// Returns a rate in gigabits per second.
pub(crate) fn gigabits(count: f64) -> Option<Rate> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some gigabits")]
    Rate::new((count * 1e9) as u64)
}
