//! Integrates readings of power into energy. The caller passes the time of each reading, in seconds
//! from the start.

use crate::{Cause, Error, Reading, Watts};

/// Limit on the points of a time series. When the series reaches the limit, every two neighbouring
/// points are merged into one, and later points average twice as many readings.
pub const MAX_POINTS: usize = 2_048;

/// Limit on the time between two readings of power that are joined, as a multiple of the interval.
/// Across a longer gap no energy is added, because the power in between is unknown.
pub const MAX_GAP: f64 = 3.5;

/// Integrates the readings of one sensor over time. [`Meter::record`] takes one reading at a time.
/// Between two successive readings of power it adds the area of the trapezoid below them. Between
/// two readings of an energy counter it adds their difference.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// Limit on the time between two readings of power, in seconds. The meter adds no energy for a
    /// longer gap.
    gap: f64,
    last: Option<(f64, Reading)>,
    /// Energy, J.
    pub joules: f64,
    /// Seconds over which `joules` was measured: the time between joined readings, without gaps.
    pub covered: f64,
    /// Number of readings, including failed ones.
    pub reads: u64,
    /// Number of failed readings.
    pub failed: u64,
    /// The error of the last reading. `None` if the last reading succeeded.
    pub error: Option<Error>,
    /// The first error; `None` if no reading failed.
    pub first_error: Option<Error>,
    /// The latest power. `None` after a failed reading, and until a counter has been read twice.
    pub now: Option<Watts>,
    /// The highest power.
    pub peak: Watts,
    series: Series,
}

impl Meter {
    /// Creates a meter for readings that are `seconds` apart.
    #[must_use]
    pub fn with_interval(seconds: f64) -> Self {
        Self { gap: seconds * MAX_GAP, ..Self::default() }
    }

    /// Records a reading, or the error of a failed one.
    pub fn record(&mut self, at: f64, result: Result<Reading, Error>) {
        self.reads += 1;
        let reading = match result {
            Ok(reading) => reading,
            Err(error) => {
                self.failed += 1;
                if matches!(error.cause, Cause::Restarted(_)) {
                    // The counter restarts from 0 here: later readings do not include earlier
                    // energy.
                    self.last = Some((at, Reading::Joules(0.0)));
                }
                (self.now, self.error) = (None, Some(error.clone()));
                self.first_error.get_or_insert(error);
                return;
            }
        };
        self.error = None;
        let before = self.last.replace((at, reading)).filter(|(then, _)| at > *then);
        let watts = match (reading, before) {
            (Reading::Watts(watts), Some((then, Reading::Watts(other)))) => {
                if at - then <= self.gap {
                    self.add((watts.0 + other.0) / 2.0 * (at - then), at - then);
                }
                Some(watts)
            }
            (Reading::Watts(watts), _) => Some(watts),
            // The difference of two counter readings is exact even after a long gap.
            (Reading::Joules(joules), Some((then, Reading::Joules(other)))) if joules >= other => {
                self.add(joules - other, at - then);
                Some(Watts((joules - other) / (at - then)))
            }
            (Reading::Joules(_), _) => None,
        };
        self.now = watts;
        if let Some(watts) = watts {
            self.peak = if watts > self.peak { watts } else { self.peak };
            self.series.add(at, watts.0);
        }
    }

    fn add(&mut self, joules: f64, seconds: f64) {
        self.joules += joules;
        self.covered += seconds;
    }

    /// Returns the mean power over the covered time, or the latest power if no time is covered.
    /// `None` if no time is covered and there is no latest power.
    #[must_use]
    pub fn mean(&self) -> Option<Watts> {
        if self.covered > 0.0 { Some(Watts(self.joules / self.covered)) } else { self.now }
    }

    /// Returns power over time, as pairs of seconds from the start and W. Each point is the mean of
    /// a number of successive readings, the same for all points.
    #[must_use]
    pub fn points(&self) -> &[(f64, f64)] {
        &self.series.points
    }
}

/// A time series in bounded memory.
#[derive(Clone, Debug)]
struct Series {
    points: Vec<(f64, f64)>,
    /// The number of readings that a point averages.
    each: u32,
    /// For the next point: the sum of the times, the sum of the values, and the number of readings.
    open: (f64, f64, u32),
}

impl Default for Series {
    fn default() -> Self {
        Self { points: Vec::new(), each: 1, open: (0.0, 0.0, 0) }
    }
}

impl Series {
    fn add(&mut self, at: f64, value: f64) {
        let (times, values, count) = self.open;
        self.open = (times + at, values + value, count + 1);
        let (times, values, count) = self.open;
        if count < self.each {
            return;
        }
        self.open = (0.0, 0.0, 0);
        self.points.push((times / f64::from(count), values / f64::from(count)));
        if self.points.len() >= MAX_POINTS {
            let join = |pair: &[(f64, f64)]| {
                let count = pair.len() as f64;
                let sum =
                    pair.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
                (sum.0 / count, sum.1 / count)
            };
            self.points = self.points.chunks(2).map(join).collect();
            self.each = self.each.saturating_mul(2);
        }
    }
}
