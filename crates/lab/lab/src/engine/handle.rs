//! A way to a box that runs, for whoever watches or changes it from another thread.

use super::control::Remote;
use super::memories::filled_by;
use super::report::{LaneReport, Report};
use super::{EngineError, Forwarding, Tolerance};
use crate::filter::Rules;
use crate::line::Settings;
use crate::time::Time;
use sprat_host::lock;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// A way to a box; every clone leads to the same one. It does not keep the box running: once that
/// has stopped, every call is an error.
///
/// No call takes a lock that a lane takes: lanes are told and asked between their turns.
#[derive(Clone, Debug)]
pub struct Handle(Arc<Shared>);

/// What all handles of a box share.
#[derive(Debug)]
struct Shared {
    forwarding: Forwarding,
    names: Vec<String>,
    /// Of each port, the lane that has the line to it, and which of that lane's lines it is.
    places: Vec<(usize, usize)>,
    lanes: Vec<Lane>,
    tolerance: Tolerance,
    started: Instant,
    /// What the line to each port does. Held while a lane is told, so that changes arrive in the
    /// order in which they are remembered.
    lines: Mutex<Vec<Settings>>,
    /// The filter's rules, without what lanes count by them. Held like the lines.
    rules: Mutex<Rules>,
}

/// The way to a lane.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) remote: Remote,
    /// Packet memory that was made for it, in bytes.
    pub(super) memory: u64,
}

/// What came of a change.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// The ports whose lines were changed, with what those do now.
    pub lines: Vec<(String, Settings)>,
    /// Lanes whose packet memory no longer holds what their lines can.
    pub short: Vec<Short>,
}

/// A lane that has less packet memory than its lines can fill. Packets that find none are dropped,
/// and counted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Short {
    /// The ports that its lines lead to.
    pub to: Vec<String>,
    /// What they can fill, in bytes.
    pub wanted: u64,
    /// What it was given, in bytes.
    pub made: u64,
}

impl Handle {
    pub(super) fn new(
        (forwarding, tolerance, started): (Forwarding, Tolerance, Instant),
        ports: Vec<(String, Settings)>,
        rules: Rules,
        (places, lanes): (Vec<(usize, usize)>, Vec<Lane>),
    ) -> Self {
        let (names, lines) = ports.into_iter().unzip();
        let (lines, rules) = (Mutex::new(lines), Mutex::new(rules));
        Self(Arc::new(Shared {
            forwarding,
            names,
            places,
            lanes,
            tolerance,
            started,
            lines,
            rules,
        }))
    }

    /// The names of its ports, in order.
    #[must_use]
    pub fn ports(&self) -> &[String] {
        &self.0.names
    }

    /// How its ports are joined.
    #[must_use]
    pub fn forwarding(&self) -> Forwarding {
        self.0.forwarding
    }

    /// Time since it started, on the clock of its lines.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::ZERO + self.0.started.elapsed()
    }

    /// Packet memory of all its lanes, in bytes: made at the start, and never more.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.0.lanes.iter().map(|lane| lane.memory).sum()
    }

    /// What the line to each port does, in the order of the ports.
    #[must_use]
    pub fn settings(&self) -> Vec<Settings> {
        self.lines().clone()
    }

    /// Changes what the line to a port does, or with none what every line does: all of it, or after
    /// an error nothing.
    ///
    /// # Errors
    /// There is no such port, the box has stopped, or what `change` says.
    pub fn change<E: From<EngineError>>(
        &self,
        port: Option<&str>,
        mut change: impl FnMut(&mut Settings) -> Result<(), E>,
    ) -> Result<Changed, E> {
        let ports = match port {
            Some(port) => vec![self.position(port)?],
            None => (0..self.0.names.len()).collect(),
        };
        let mut lines = self.lines();
        let mut next = lines.clone();
        ports.iter().try_for_each(|&at| change(&mut next[at]))?;
        for &at in &ports {
            let (lane, line) = self.0.places[at];
            self.0.lanes[lane].remote.set(line, next[at].clone()).ok_or(EngineError::Stopped)?;
        }
        let changed =
            ports.iter().map(|&at| (self.0.names[at].clone(), next[at].clone())).collect();
        let short = ports.iter().map(|&at| self.0.places[at].0).collect::<BTreeSet<_>>();
        let short = short.into_iter().filter_map(|lane| self.short(lane, &next)).collect();
        *lines = next;
        Ok(Changed { lines: changed, short })
    }

    /// What has become of everything so far. Takes a turn of each lane.
    ///
    /// # Errors
    /// The box has stopped.
    pub fn report(&self) -> Result<Report, EngineError> {
        self.joined(Remote::report)
    }

    /// The same, of lanes that end with it.
    pub(super) fn last_report(&self) -> Result<Report, EngineError> {
        self.joined(Remote::last_report)
    }

    fn joined(&self, ask: impl Fn(&Remote) -> Option<LaneReport>) -> Result<Report, EngineError> {
        let told: Option<Vec<_>> = self.0.lanes.iter().map(|lane| ask(&lane.remote)).collect();
        Ok(Report::join(
            self.0.started.elapsed(),
            told.ok_or(EngineError::Stopped)?,
            &self.0.tolerance,
        ))
    }

    pub(super) fn stop(&self, lane: usize) {
        self.0.lanes[lane].remote.stop();
    }

    pub(super) fn lanes(&self) -> &[Lane] {
        &self.0.lanes
    }

    pub(super) fn lock_rules(&self) -> MutexGuard<'_, Rules> {
        lock(&self.0.rules) // whole at every moment
    }

    fn position(&self, port: &str) -> Result<usize, EngineError> {
        let at = self.0.names.iter().position(|name| name == port);
        at.ok_or_else(|| EngineError::NoSuchPort(port.to_owned(), self.0.names.join(", ")))
    }

    fn short(&self, lane: usize, lines: &[Settings]) -> Option<Short> {
        let of_lane = || (0..lines.len()).filter(|&at| self.0.places[at].0 == lane);
        let wanted = filled_by(of_lane().map(|at| &lines[at]));
        let made = self.0.lanes[lane].memory;
        let to = || of_lane().map(|at| self.0.names[at].clone()).collect();
        (wanted > made).then(|| Short { to: to(), wanted, made })
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Settings>> {
        lock(&self.0.lines) // whole at every moment
    }
}
