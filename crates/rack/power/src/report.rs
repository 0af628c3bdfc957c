//! The result of a measurement: for each server and chassis, and in total.

use crate::Watts;
use crate::meter::Meter;
use crate::targets::TargetKind;
use serde::Serialize;

/// Share of the time that a sensor must have covered for its energy to count as complete.
pub const COVERED: f64 = 0.9;

/// A server or chassis with the meters of its sensors.
#[derive(Clone, Debug)]
pub struct MeasuredTarget {
    /// Name of the server or chassis.
    pub name: String,
    /// Whether this is a server or a chassis.
    pub of: TargetKind,
    /// Number of the server's chassis, or of the chassis itself.
    pub chassis: usize,
    /// Number of instances on the server or chassis.
    pub instances: usize,
    /// Kind, location and meter of each sensor.
    pub meters: Vec<(&'static str, String, Meter)>,
}

/// The result of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Report {
    /// The duration of the measurement, in seconds.
    pub seconds: f64,
    /// Interval between readings, seconds.
    pub every: f64,
    /// Whether the measurement was stopped early.
    pub stopped: bool,
    /// Results of each server, then of each chassis.
    pub targets: Vec<TargetReport>,
    /// The total. `None` if no server has a mean power, and not all chassis have one.
    pub total: Option<Total>,
}

/// The result of a server or chassis.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TargetReport {
    /// Name of the server or chassis.
    pub name: String,
    /// Whether this is a server or a chassis.
    pub of: TargetKind,
    /// Number of instances on the server or chassis.
    pub instances: usize,
    /// The present power, W. `None` if a sensor that counts has no present reading, or if no sensor
    /// covers the server or chassis.
    pub now: Option<Watts>,
    /// Mean power, W. `None` if a sensor that counts gave no reading, or if no sensor covers the
    /// server or chassis.
    pub watts: Option<Watts>,
    /// Mean power per instance, W. `None` without mean power, or without instances.
    pub watts_per_instance: Option<Watts>,
    /// Energy, J. `None` without mean power.
    pub joules: Option<f64>,
    /// Seconds without energy readings, of the sensor that misses the most among those that count.
    /// Without sensors: the chassis's value, or the complete duration.
    pub unread: f64,
    /// Whether the values are a share of the chassis's values: a server without sensors gets an
    /// equal share.
    pub shared: bool,
    /// Results of the sensors of the server or chassis.
    pub sensors: Vec<SensorReport>,
}

/// The result of a sensor.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SensorReport {
    /// Kind of the sensor.
    pub kind: &'static str,
    /// Location of the sensor.
    pub place: String,
    /// Whether the sensor counts towards the energy of its server or chassis. Other sensors are
    /// reported only for comparison.
    pub counts: bool,
    /// The present power, W. `None` if the last reading failed, or if a counter has been read only
    /// once.
    pub now: Option<Watts>,
    /// Mean power, W. `None` if no time is covered and the sensor has no present power.
    pub watts: Option<Watts>,
    /// Highest power, W.
    pub peak: Watts,
    /// Energy, J.
    pub joules: f64,
    /// Seconds over which `joules` was measured.
    pub covered: f64,
    /// Seconds that were not measured. A time below half an interval is reported as 0.
    pub unread: f64,
    /// Number of readings, including failed ones.
    pub reads: u64,
    /// Number of failed readings.
    pub failed: u64,
    /// The first error; `None` if no reading failed.
    pub error: Option<String>,
    /// Power over time: seconds and W.
    pub points: Vec<(f64, f64)>,
}

/// The total of a measurement, over all chassis or all servers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Total {
    /// What is added up: chassis if all chassis have readings, otherwise servers.
    pub of: TargetKind,
    /// Mean power, W.
    pub watts: Watts,
    /// Mean power per instance, W. `None` if there are no instances.
    pub watts_per_instance: Option<Watts>,
    /// Energy, J.
    pub joules: f64,
    /// Number of servers or chassis with readings.
    pub measured: usize,
    /// Number of all servers or chassis.
    pub there_are: usize,
    /// Instances on the servers or chassis with readings.
    pub instances: usize,
    /// Share of the time that was not measured, over all servers or chassis: 0 to 1. `joules` lacks
    /// the energy of that time.
    pub unread: f64,
}

impl Report {
    /// Reports what was measured so far.
    #[must_use]
    pub fn of(measured: &[MeasuredTarget], seconds: f64, every: f64, stopped: bool) -> Self {
        let mut targets: Vec<TargetReport> =
            measured.iter().map(|one| target(one, seconds, every)).collect();
        // A server without a sensor gets an equal share of its chassis's power.
        for at in 0..measured.len() {
            let one = &measured[at];
            if one.of != TargetKind::Server || !one.meters.is_empty() {
                continue;
            }
            let neighbours = measured
                .iter()
                .filter(|other| other.of == TargetKind::Server && other.chassis == one.chassis);
            let part = 1.0 / neighbours.count().max(1) as f64;
            let whole = measured
                .iter()
                .position(|other| other.of == TargetKind::Chassis && other.chassis == one.chassis);
            if let Some(whole) = whole.map(|whole| targets[whole].clone()) {
                let of = &mut targets[at];
                of.now = whole.now.map(|watts| watts.times(part));
                of.watts = whole.watts.map(|watts| watts.times(part));
                of.joules = whole.joules.map(|joules| joules * part);
                of.unread = whole.unread;
                of.watts_per_instance = per_instance(of.watts, of.instances);
                of.shared = true;
            }
        }
        let total = [TargetKind::Chassis, TargetKind::Server]
            .into_iter()
            .find_map(|of| total(&targets, of, seconds));
        Self { seconds, every, stopped, targets, total }
    }

    /// Returns whether all targets have readings, no sensor failed, and each sensor that counts
    /// covers at least [`COVERED`] of the time.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let well = |target: &TargetReport| {
            target.watts.is_some()
                && target.sensors.iter().all(|sensor| sensor.failed == 0)
                && target
                    .sensors
                    .iter()
                    .filter(|sensor| sensor.counts)
                    .all(|sensor| sensor.covered >= COVERED * self.seconds)
        };
        self.targets.iter().all(well)
    }

    /// Returns the energy in joules per million operations, for `operations` done during the
    /// measurement. Returns `None` without operations or without a total. Also returns `None` if
    /// more readings are missing than [`COVERED`] allows, because the energy would then be that of
    /// some servers and the operations those of all.
    #[must_use]
    pub fn joules_per_million(&self, operations: u64) -> Option<f64> {
        self.total
            .filter(|total| operations > 0 && total.unread <= 1.0 - COVERED)
            .map(|total| total.joules / (operations as f64 / 1e6))
    }

    /// Returns the energy in joules per million operations of a load that ran at another time, at
    /// the measured power. Returns `None` under the conditions of [`Report::joules_per_million`].
    #[must_use]
    pub fn joules_per_million_over(&self, operations: u64, seconds: f64) -> Option<f64> {
        let total = self.total.filter(|total| operations > 0 && total.unread <= 1.0 - COVERED);
        total.map(|total| total.watts.0 * seconds / (operations as f64 / 1e6))
    }
}

fn per_instance(watts: Option<Watts>, instances: usize) -> Option<Watts> {
    watts.filter(|_| instances > 0).map(|watts| watts.times(1.0 / instances as f64))
}

fn target(measured: &MeasuredTarget, seconds: f64, every: f64) -> TargetReport {
    // Only sensors of the first kind count, even if they fail: another kind may measure only a
    // part.
    let first = measured.meters.first().map(|(kind, ..)| *kind);
    let counting = || {
        measured.meters.iter().filter(|(kind, ..)| Some(*kind) == first).map(|(_, _, meter)| meter)
    };
    let sum = |of: &dyn Fn(&Meter) -> Option<Watts>| -> Option<Watts> {
        if measured.meters.is_empty() { None } else { counting().map(of).sum() }
    };
    let watts = sum(&|meter| meter.mean());
    let sensors: Vec<SensorReport> =
        measured.meters.iter().map(|one| sensor(one, first, seconds, every)).collect();
    let unread =
        sensors.iter().filter(|sensor| sensor.counts).map(|sensor| sensor.unread).reduce(f64::max);
    TargetReport {
        name: measured.name.clone(),
        of: measured.of,
        instances: measured.instances,
        now: sum(&|meter| meter.now),
        watts,
        watts_per_instance: per_instance(watts, measured.instances),
        joules: watts.map(|_| counting().map(|meter| meter.joules).sum()),
        unread: unread.unwrap_or(seconds),
        shared: false,
        sensors,
    }
}

fn sensor(
    (kind, place, meter): &(&'static str, String, Meter),
    first: Option<&str>,
    seconds: f64,
    every: f64,
) -> SensorReport {
    let unread = (seconds - meter.covered).max(0.0);
    SensorReport {
        kind,
        place: place.clone(),
        counts: Some(*kind) == first,
        now: meter.now,
        watts: meter.mean(),
        peak: meter.peak,
        joules: meter.joules,
        covered: meter.covered,
        unread: if unread < every / 2.0 { 0.0 } else { unread },
        reads: meter.reads,
        failed: meter.failed,
        error: meter.first_error.as_ref().map(ToString::to_string),
        points: meter.points().to_vec(),
    }
}

/// Returns the total of the chassis if all of them have readings, or of the servers if any has.
fn total(targets: &[TargetReport], of: TargetKind, seconds: f64) -> Option<Total> {
    let all: Vec<&TargetReport> = targets.iter().filter(|target| target.of == of).collect();
    let measured: Vec<&&TargetReport> =
        all.iter().filter(|target| target.watts.is_some()).collect();
    if measured.is_empty() || (of == TargetKind::Chassis && measured.len() < all.len()) {
        return None;
    }
    let watts: Watts = measured.iter().filter_map(|target| target.watts).sum();
    let lost =
        |target: &&TargetReport| if target.watts.is_some() { target.unread } else { seconds };
    let unread = if seconds > 0.0 {
        all.iter().map(lost).sum::<f64>() / (seconds * all.len() as f64)
    } else {
        0.0
    };
    let instances = measured.iter().map(|target| target.instances).sum();
    Some(Total {
        of,
        watts,
        watts_per_instance: per_instance(Some(watts), instances),
        joules: measured.iter().filter_map(|target| target.joules).sum(),
        measured: measured.len(),
        there_are: all.len(),
        instances,
        unread,
    })
}
