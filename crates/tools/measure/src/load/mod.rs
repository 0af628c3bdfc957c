//! Load: which keys, when, how many at once; and what came back.

pub mod keys;
mod measured;
mod pace;
mod preload;
mod rounds;
mod run;

pub use keys::Choice;
pub use measured::{Measured, PERIOD_NS, Period, PeriodAverages};
pub use pace::{Arrivals, Pace};
pub use preload::{preload, preload_range};
pub use rounds::{Entry, Results, Series, interleave};
pub use run::{Clock, DRAIN, MAX_IN_FLIGHT, Plan, RealClock, Workload, run, run_by};
