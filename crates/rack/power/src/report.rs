//! What came of a measurement: of each server and chassis, and of all.

use crate::Watts;
use crate::meter::Meter;
use crate::targets::Of;
use serde::Serialize;

/// Share of a run that a sensor must have covered for its energy to be whole.
pub const COVERED: f64 = 0.9;

/// Whose power was measured, and by what.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Its name.
    pub name: String,
    /// What it is.
    pub of: Of,
    /// Its chassis.
    pub chassis: usize,
    /// Instances on it.
    pub instances: usize,
    /// Sensors: kind, place, readings.
    pub meters: Vec<(&'static str, String, Meter)>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Report {
    /// How long, seconds.
    pub seconds: f64,
    /// From reading to reading, seconds.
    pub every: f64,
    /// Whether it was ended early.
    pub stopped: bool,
    /// Servers first.
    pub targets: Vec<Target>,
    /// All together; none where no sensor told anything.
    pub total: Option<Total>,
}

/// A server or chassis.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Target {
    /// Its name.
    pub name: String,
    /// What it is.
    pub of: Of,
    /// Instances on it.
    pub instances: usize,
    /// Power now, W.
    pub now: Option<Watts>,
    /// Power on average, W.
    pub watts: Option<Watts>,
    /// For each of its instances, W.
    pub watts_per_instance: Option<Watts>,
    /// Energy, J.
    pub joules: Option<f64>,
    /// The time that is not in that, seconds: by the sensor that counts and has most of it.
    pub unread: f64,
    /// Whether that is an even part of what its chassis takes.
    pub shared: bool,
    /// Its sensors.
    pub sensors: Vec<Sensor>,
}

/// A sensor.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Sensor {
    /// Its kind.
    pub kind: &'static str,
    /// Where it is.
    pub place: String,
    /// Whether it counts; others are told beside those that do.
    pub counts: bool,
    /// Power now, W.
    pub now: Option<Watts>,
    /// On average, W.
    pub watts: Option<Watts>,
    /// At most, W.
    pub peak: Watts,
    /// Energy, J.
    pub joules: f64,
    /// The time in which that was used, seconds.
    pub covered: f64,
    /// The rest of the time, in which it was not read, seconds. What is less than half an interval
    /// is none.
    pub unread: f64,
    /// Readings.
    pub reads: u64,
    /// Of these, those that failed.
    pub failed: u64,
    /// Why, the first time.
    pub error: Option<String>,
    /// Seconds, and W.
    pub points: Vec<(f64, f64)>,
}

/// All together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Total {
    /// Whose power it is: that of chassis, where all have told theirs.
    pub of: Of,
    /// Power on average, W.
    pub watts: Watts,
    /// For each instance, W.
    pub watts_per_instance: Option<Watts>,
    /// Energy, J.
    pub joules: f64,
    /// Those that are in it.
    pub measured: usize,
    /// Those that there are.
    pub there_are: usize,
    /// Instances on those that are in it.
    pub instances: usize,
    /// Of the time of all that there are, the share that was not read and is not in the energy.
    pub unread: f64,
}

impl Report {
    /// Of what was read by now.
    #[must_use]
    pub fn of(measured: &[Measured], seconds: f64, every: f64, stopped: bool) -> Self {
        let mut targets: Vec<Target> =
            measured.iter().map(|one| target(one, seconds, every)).collect();
        // A server without a sensor of its own has an even part of its chassis's.
        for at in 0..measured.len() {
            let one = &measured[at];
            if one.of != Of::Server || !one.meters.is_empty() {
                continue;
            }
            let neighbours = measured
                .iter()
                .filter(|other| other.of == Of::Server && other.chassis == one.chassis);
            let part = 1.0 / neighbours.count().max(1) as f64;
            let whole = measured
                .iter()
                .position(|other| other.of == Of::Chassis && other.chassis == one.chassis);
            if let Some(whole) = whole.map(|whole| targets[whole].clone()) {
                let of = &mut targets[at];
                of.now = whole.now.map(|watts| watts.times(part));
                of.watts = whole.watts.map(|watts| watts.times(part));
                of.joules = whole.joules.map(|joules| joules * part);
                of.unread = whole.unread;
                of.watts_per_instance = each(of.watts, of.instances);
                of.shared = true;
            }
        }
        let total =
            [Of::Chassis, Of::Server].into_iter().find_map(|of| total(&targets, of, seconds));
        Self { seconds, every, stopped, targets, total }
    }

    /// Whether every sensor told what it was asked for, for the whole time.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let well = |target: &Target| {
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

    /// Joules for a million of operations, where so many were done in the time that was measured.
    /// None where more of the power was not read than [`COVERED`] allows: the operations of all
    /// servers would count, and the energy of some.
    #[must_use]
    pub fn joules_per_million(&self, operations: u64) -> Option<f64> {
        self.total
            .filter(|total| operations > 0 && total.unread <= 1.0 - COVERED)
            .map(|total| total.joules / (operations as f64 / 1e6))
    }

    /// The same for a load of another length: at the power that was measured.
    #[must_use]
    pub fn joules_per_million_over(&self, operations: u64, seconds: f64) -> Option<f64> {
        let total = self.total.filter(|total| operations > 0 && total.unread <= 1.0 - COVERED);
        total.map(|total| total.watts.0 * seconds / (operations as f64 / 1e6))
    }
}

fn each(watts: Option<Watts>, instances: usize) -> Option<Watts> {
    watts.filter(|_| instances > 0).map(|watts| watts.times(1.0 / instances as f64))
}

fn target(measured: &Measured, seconds: f64, every: f64) -> Target {
    // The first kind counts, also when it does not answer: what another one reads may be a part of
    // it.
    let first = measured.meters.first().map(|(kind, ..)| *kind);
    let counting = || {
        measured.meters.iter().filter(|(kind, ..)| Some(*kind) == first).map(|(_, _, meter)| meter)
    };
    let sum = |of: &dyn Fn(&Meter) -> Option<Watts>| -> Option<Watts> {
        if measured.meters.is_empty() { None } else { counting().map(of).sum() }
    };
    let watts = sum(&|meter| meter.mean());
    let sensors: Vec<Sensor> =
        measured.meters.iter().map(|one| sensor(one, first, seconds, every)).collect();
    let unread =
        sensors.iter().filter(|sensor| sensor.counts).map(|sensor| sensor.unread).reduce(f64::max);
    Target {
        name: measured.name.clone(),
        of: measured.of,
        instances: measured.instances,
        now: sum(&|meter| meter.now),
        watts,
        watts_per_instance: each(watts, measured.instances),
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
) -> Sensor {
    let unread = (seconds - meter.covered).max(0.0);
    Sensor {
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

/// Chassis count where all of them tell; servers where any does.
fn total(targets: &[Target], of: Of, seconds: f64) -> Option<Total> {
    let all: Vec<&Target> = targets.iter().filter(|target| target.of == of).collect();
    let told: Vec<&&Target> = all.iter().filter(|target| target.watts.is_some()).collect();
    if told.is_empty() || (of == Of::Chassis && told.len() < all.len()) {
        return None;
    }
    let watts: Watts = told.iter().filter_map(|target| target.watts).sum();
    let lost = |target: &&Target| if target.watts.is_some() { target.unread } else { seconds };
    let unread = if seconds > 0.0 {
        all.iter().map(lost).sum::<f64>() / (seconds * all.len() as f64)
    } else {
        0.0
    };
    let instances = told.iter().map(|target| target.instances).sum();
    Some(Total {
        of,
        watts,
        watts_per_instance: each(Some(watts), instances),
        joules: told.iter().filter_map(|target| target.joules).sum(),
        measured: told.len(),
        there_are: all.len(),
        instances,
        unread,
    })
}
