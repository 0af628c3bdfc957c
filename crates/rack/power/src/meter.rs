//! From readings to energy. Time is told by whoever reads, seconds from the beginning.

use crate::{Error, Reading, Trouble, Watts};

/// Most points that are kept; when they are more, two become one.
pub const MAX_POINTS: usize = 2_048;

/// Readings of power this many intervals apart are no longer joined: nobody knows what was between
/// them.
pub const MAX_GAP: f64 = 3.5;

/// What a sensor's readings come to.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// Longest time between two readings of power that are joined, seconds.
    gap: f64,
    last: Option<(f64, Reading)>,
    /// Energy, J.
    pub joules: f64,
    /// The time in which that was used, seconds.
    pub covered: f64,
    /// Readings.
    pub reads: u64,
    /// Those that failed.
    pub failed: u64,
    /// Why, the last time; none if it is well now.
    pub error: Option<Error>,
    /// Why, the first time.
    pub first_error: Option<Error>,
    /// The newest power.
    pub now: Option<Watts>,
    /// The highest.
    pub peak: Watts,
    series: Series,
}

impl Meter {
    /// For readings so many seconds apart.
    #[must_use]
    pub fn every(seconds: f64) -> Self {
        Self { gap: seconds * MAX_GAP, ..Self::default() }
    }

    /// Takes a reading.
    pub fn take(&mut self, at: f64, told: Result<Reading, Error>) {
        self.reads += 1;
        let reading = match told {
            Ok(reading) => reading,
            Err(error) => {
                self.failed += 1;
                if matches!(error.trouble, Trouble::Restarted(_)) {
                    // It counts from here; what was before is in no later reading.
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
            // A counter knows what was between two looks, however far apart they are.
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

    /// Power on average, over the time that is covered. Where there was one reading of power and no
    /// more, that.
    #[must_use]
    pub fn mean(&self) -> Option<Watts> {
        if self.covered > 0.0 { Some(Watts(self.joules / self.covered)) } else { self.now }
    }

    /// Power over time: seconds, W.
    #[must_use]
    pub fn points(&self) -> &[(f64, f64)] {
        &self.series.points
    }
}

/// Points over time, in bounded room.
#[derive(Clone, Debug)]
struct Series {
    points: Vec<(f64, f64)>,
    /// How many readings a point stands for.
    each: u32,
    /// Sums of readings that are no point yet, and how many.
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
