//! The handle by which other threads watch and change a running box.

use super::control::Remote;
use super::memories::filled_by;
use super::report::{Report, WorkerReport};
use super::{EngineError, Forwarding, Tolerance};
use crate::filter::Rules;
use crate::line::LineSettings;
use crate::time::Time;
use sprat_host::lock;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// Watches and changes a running box from other threads. Clones refer to the same box. A handle
/// does not keep the box running: once the box has stopped, every call that needs a worker returns
/// [`EngineError::Stopped`].
///
/// No call takes a lock that a worker takes: workers receive commands and reply between two
/// iterations of their loops.
#[derive(Clone, Debug)]
pub struct EngineHandle(Arc<Shared>);

/// What all handles of a box share.
#[derive(Debug)]
struct Shared {
    forwarding: Forwarding,
    names: Vec<String>,
    /// For each port, the worker that has the line to it, and the index of the line in that worker.
    places: Vec<(usize, usize)>,
    workers: Vec<WorkerHandle>,
    tolerance: Tolerance,
    started: Instant,
    /// The settings of the line to each port. Locked while commands are sent to workers, so that
    /// changes reach the workers in the order in which they are stored here.
    lines: Mutex<Vec<LineSettings>>,
    /// The filter's rules, without the counters, which the workers have. Locked while rules are
    /// sent to workers or counted.
    rules: Mutex<Rules>,
}

/// The engine's side of a worker.
#[derive(Debug)]
pub(super) struct WorkerHandle {
    pub(super) remote: Remote,
    /// Packet memory that was made for the worker, in bytes.
    pub(super) memory: u64,
}

/// The result of a change.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// The ports whose lines were changed, with the new settings.
    pub lines: Vec<(String, LineSettings)>,
    /// The workers of these lines whose packet memory is smaller than what all their lines can now
    /// fill.
    pub shortages: Vec<MemoryShortage>,
}

/// A worker with less packet memory than its lines can fill. Packets that find no memory are
/// dropped and counted in [`Drops::memory`](crate::line::Drops::memory).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemoryShortage {
    /// The ports that the worker's lines lead to.
    pub to: Vec<String>,
    /// Bytes that the lines can fill.
    pub wanted: u64,
    /// Bytes that the worker has.
    pub made: u64,
}

impl EngineHandle {
    pub(super) fn new(
        (forwarding, tolerance, started): (Forwarding, Tolerance, Instant),
        ports: Vec<(String, LineSettings)>,
        rules: Rules,
        (places, workers): (Vec<(usize, usize)>, Vec<WorkerHandle>),
    ) -> Self {
        let (names, lines) = ports.into_iter().unzip();
        let (lines, rules) = (Mutex::new(lines), Mutex::new(rules));
        Self(Arc::new(Shared {
            forwarding,
            names,
            places,
            workers,
            tolerance,
            started,
            lines,
            rules,
        }))
    }

    /// Returns the names of the ports, in order.
    #[must_use]
    pub fn ports(&self) -> &[String] {
        &self.0.names
    }

    /// Returns how the ports are joined.
    #[must_use]
    pub fn forwarding(&self) -> Forwarding {
        self.0.forwarding
    }

    /// Returns the time since the box started, on the clock of its lines.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::ZERO + self.0.started.elapsed()
    }

    /// Returns the packet memory of all workers, in bytes; it is made at the start and does not
    /// grow.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.0.workers.iter().map(|worker| worker.memory).sum()
    }

    /// Returns the settings of the line to each port, in the order of the ports.
    #[must_use]
    pub fn settings(&self) -> Vec<LineSettings> {
        self.lines().clone()
    }

    /// Applies `change` to the settings of the line to `port`, or of every line if `port` is
    /// `None`. If `change` fails for one line, no line is changed.
    ///
    /// # Errors
    /// There is no such port, the box has stopped, or `change` returned an error.
    pub fn change<E: From<EngineError>>(
        &self,
        port: Option<&str>,
        mut change: impl FnMut(&mut LineSettings) -> Result<(), E>,
    ) -> Result<Changed, E> {
        let ports = match port {
            Some(port) => vec![self.position(port)?],
            None => (0..self.0.names.len()).collect(),
        };
        let mut lines = self.lines();
        let mut next = lines.clone();
        ports.iter().try_for_each(|&at| change(&mut next[at]))?;
        for &at in &ports {
            let (worker, line) = self.0.places[at];
            self.0.workers[worker]
                .remote
                .set(line, next[at].clone())
                .ok_or(EngineError::Stopped)?;
        }
        let changed =
            ports.iter().map(|&at| (self.0.names[at].clone(), next[at].clone())).collect();
        let workers = ports.iter().map(|&at| self.0.places[at].0).collect::<BTreeSet<_>>();
        let shortages =
            workers.into_iter().filter_map(|worker| self.memory_shortage(worker, &next)).collect();
        *lines = next;
        Ok(Changed { lines: changed, shortages })
    }

    /// Returns the counters of the whole box. Waits for one loop iteration of each worker.
    ///
    /// # Errors
    /// The box has stopped, or a worker does not reply within 10 seconds.
    pub fn report(&self) -> Result<Report, EngineError> {
        self.collect_reports(Remote::report)
    }

    /// Returns the last report, and ends the workers.
    pub(super) fn last_report(&self) -> Result<Report, EngineError> {
        self.collect_reports(Remote::last_report)
    }

    fn collect_reports(
        &self,
        request: impl Fn(&Remote) -> Option<WorkerReport>,
    ) -> Result<Report, EngineError> {
        let reports: Option<Vec<_>> =
            self.0.workers.iter().map(|worker| request(&worker.remote)).collect();
        Ok(Report::join(
            self.0.started.elapsed(),
            reports.ok_or(EngineError::Stopped)?,
            &self.0.tolerance,
        ))
    }

    pub(super) fn stop(&self, worker: usize) {
        self.0.workers[worker].remote.stop();
    }

    pub(super) fn workers(&self) -> &[WorkerHandle] {
        &self.0.workers
    }

    pub(super) fn lock_rules(&self) -> MutexGuard<'_, Rules> {
        lock(&self.0.rules) // whole at every moment
    }

    fn position(&self, port: &str) -> Result<usize, EngineError> {
        let at = self.0.names.iter().position(|name| name == port);
        at.ok_or_else(|| EngineError::NoSuchPort(port.to_owned(), self.0.names.join(", ")))
    }

    fn memory_shortage(&self, worker: usize, lines: &[LineSettings]) -> Option<MemoryShortage> {
        let of_worker = || (0..lines.len()).filter(|&at| self.0.places[at].0 == worker);
        let wanted = filled_by(of_worker().map(|at| &lines[at]));
        let made = self.0.workers[worker].memory;
        let to = || of_worker().map(|at| self.0.names[at].clone()).collect();
        (wanted > made).then(|| MemoryShortage { to: to(), wanted, made })
    }

    fn lines(&self) -> MutexGuard<'_, Vec<LineSettings>> {
        lock(&self.0.lines) // whole at every moment
    }
}
