//! Latency histograms.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Serialize, Serializer};
use sprat_net::Scale;

/// The largest latency that a histogram records, in ns: a minute. A longer latency is recorded as
/// this one.
pub const MAX_LATENCY_NS: u64 = 60_000_000_000;

/// Significant decimal digits of a latency.
const DIGITS: u8 = 3;

/// Histogram bars per decade in reports.
const BARS_PER_DECADE: f64 = 20.0;

/// A histogram of latencies in ns, exact to three digits.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

/// The quantiles that tables show, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The number of latencies.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// The minimum.
    pub min: u64,
    /// The median.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The 99.9th percentile.
    pub p999: u64,
    /// The maximum.
    pub max: u64,
}

/// A point of the percentile curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    /// The share of latencies that are at most `ns`, 0 to 1.
    pub quantile: f64,
    /// The latency, in ns.
    pub ns: u64,
}

/// A bar of the histogram. There are twenty bars per decade.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HistogramBar {
    /// The lower edge, in ns.
    pub from_ns: f64,
    /// The upper edge, in ns.
    pub to_ns: f64,
    /// The number of latencies within.
    pub count: u64,
}

impl Latencies {
    /// Creates an empty histogram.
    #[must_use]
    pub fn new() -> Self {
        Self(
            Histogram::new_with_bounds(1, MAX_LATENCY_NS, DIGITS)
                .expect("constant bounds are sound"),
        )
    }

    /// Adds one latency. 0 is recorded as 1 ns, and a latency above [`MAX_LATENCY_NS`] as that
    /// limit.
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns.max(1));
    }

    /// Adds a latency in ticks.
    pub fn record_ticks(&mut self, scale: Scale, ticks: u64) {
        self.record(nanos(scale, ticks));
    }

    /// Adds all latencies of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    /// Returns the histogram without the latencies in `removed`. Returns `None` if the histogram
    /// lacks one of them.
    #[must_use]
    pub fn without(&self, removed: &Self) -> Option<Self> {
        let mut left = self.0.clone();
        left.subtract(&removed.0).ok().map(|()| Self(left))
    }

    /// Returns the number of latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the latency in ns that a share `quantile` (0 to 1) of all latencies does not exceed.
    /// Returns 0 if there are no latencies.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile).min(self.0.max())
    }

    /// Returns the share of latencies longer than `ns`, 0 to 1. Returns 0 if there are no
    /// latencies.
    #[must_use]
    pub fn beyond(&self, ns: u64) -> f64 {
        let up_to = self.0.count_between(0, ns.min(MAX_LATENCY_NS));
        self.0.len().saturating_sub(up_to) as f64 / self.0.len().max(1) as f64
    }

    /// Returns each recorded latency, in ns and ascending, with its count.
    #[must_use]
    pub fn counts(&self) -> Vec<(u64, u64)> {
        let recorded = self.0.iter_recorded();
        recorded.map(|value| (value.value_iterated_to(), value.count_at_value())).collect()
    }

    /// Recreates the histogram from its [`counts`](Self::counts).
    #[must_use]
    pub fn from_counts(counts: &[(u64, u64)]) -> Self {
        let mut all = Self::new();
        for &(ns, count) in counts {
            all.0.saturating_record_n(ns.max(1), count);
        }
        all
    }

    /// Returns the quantiles that tables show.
    #[must_use]
    pub fn summary(&self) -> Summary {
        if self.0.is_empty() {
            return Summary::default();
        }
        Summary {
            count: self.0.len(),
            mean: self.0.mean(),
            min: self.0.min(),
            p50: self.quantile(0.5),
            p90: self.quantile(0.9),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
            max: self.0.max(),
        }
    }

    /// Returns points of the percentile curve, ten for each further nine of the quantile (0.9,
    /// 0.99, 0.999). The curve ends where fewer than one latency would be beyond the quantile.
    #[must_use]
    pub fn curve(&self) -> Vec<CurvePoint> {
        let least = 1.0 / self.0.len().max(1) as f64;
        let shares = (0..)
            .map(|step| 10_f64.powf(-f64::from(step) / 10.0))
            .take_while(|&beyond| beyond >= least);
        shares
            .map(|beyond| CurvePoint { quantile: 1.0 - beyond, ns: self.quantile(1.0 - beyond) })
            .collect()
    }

    /// Returns the non-empty bars of the histogram on a logarithmic axis.
    #[must_use]
    pub fn bars(&self) -> Vec<HistogramBar> {
        let mut counts = BTreeMap::<u32, u64>::new();
        for value in self.0.iter_recorded() {
            *counts.entry(bar_of(value.value_iterated_to())).or_default() += value.count_at_value();
        }
        let edge = |index: f64| 10_f64.powf(index / BARS_PER_DECADE);
        let bar = |(index, count)| HistogramBar {
            from_ns: edge(f64::from(index)),
            to_ns: edge(f64::from(index) + 1.0),
            count,
        };
        counts.into_iter().map(bar).collect()
    }
}

/// Converts ticks to whole nanoseconds.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time of a few ns to years"
)]
pub fn nanos(scale: Scale, ticks: u64) -> u64 {
    scale.nanos(ticks) as u64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "20 log10 of a u64 from 1 on is 0 to 386"
)]
fn bar_of(ns: u64) -> u32 {
    ((ns.max(1) as f64).log10() * BARS_PER_DECADE) as u32
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

/// Serialises the summary, the curve and the bars.
impl Serialize for Latencies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Distribution {
            summary: Summary,
            curve: Vec<CurvePoint>,
            histogram: Vec<HistogramBar>,
        }
        Distribution { summary: self.summary(), curve: self.curve(), histogram: self.bars() }
            .serialize(serializer)
    }
}

/// Serialises all counts, as [`Latencies::counts`] returns them. Use it with
/// `#[serde(with = "..")]` for a histogram that is read back.
pub mod counted {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Latencies;

    /// Writes pairs of a latency in nanoseconds and its count.
    pub fn serialize<S: Serializer>(all: &Latencies, serializer: S) -> Result<S::Ok, S::Error> {
        all.counts().serialize(serializer)
    }

    /// Reads the format of [`serialize`].
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Latencies, D::Error> {
        Vec::deserialize(deserializer)
            .map(|counts: Vec<(u64, u64)>| Latencies::from_counts(&counts))
    }
}
