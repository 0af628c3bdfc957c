//! Loads: keys, timing, the number of operations in flight, and results.

pub mod keys;
mod measured;
mod pace;
mod preload;
mod rounds;
mod run;

pub use keys::KeyDistribution;
pub use measured::{Measured, PERIOD_NS, Period, PeriodAverages};
pub use pace::{Arrivals, Pace};
pub use preload::{preload, preload_range};
pub use rounds::{Entry, Results, Series, interleave};
pub use run::{Clock, DRAIN, LoadPlan, MAX_IN_FLIGHT, RealClock, Workload, run, run_by};
