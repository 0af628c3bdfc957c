//! Load for Apache Cassandra at a rate that is fixed beforehand, and what came of it.
//!
//! When an operation is to start is known before the first one does, and no answer changes it.
//! Response time counts from there: where Cassandra stands still for a second, a second's
//! operations wait, and all of them say so. A load that sends the next request when the last one
//! was answered shows one slow request instead, and a good day.
//!
//! ```no_run
//! use sprat_load::{Load, Running, Step, Workload};
//! use std::time::Duration;
//!
//! let mut load = Load::new(["10.0.0.3:9042"], Step::ramp(1_000.0, 5_000.0, 5, Duration::from_secs(10)));
//! load.workload = Workload::KeyValue { keys: 100_000 };
//! load.remember = true;
//! let finished = Running::start(load)?.finish();
//! assert!(finished.report.kept_rate(), "{:?}", finished.report.missed);
//! assert_eq!(finished.verify()?.lost_keys, 0);
//! # Ok::<(), sprat_load::LoadError>(())
//! ```
//!
//! What is to be done is a [`Load`]; [`Running`] does it, [`Report`] says what came of it. The
//! parts that decide anything are without time and network: [`Schedule`], [`Operations`],
//! [`Windows`], [`Acknowledged`]. Whatever can answer operations can stand in Cassandra's
//! place ([`Target`]). To be called from ordinary threads, not from within an asynchronous runtime.

mod acknowledged;
mod cassandra;
mod dispatch;
mod failures;
mod load;
mod operations;
mod report;
mod running;
mod schedule;
mod schema;
mod target;
mod verify;
mod windows;

pub use acknowledged::{Acknowledged, Lost, MAX_LOST, Verdict, Verified};
pub use cassandra::Cassandra;
pub use failures::{Failures, Kind, MAX_EXAMPLE, MAX_KINDS};
pub use load::{
    Arrivals, Consistency, Load, LoadError, MAX_CONTACTS, MAX_KEYS, MAX_OUTSTANDING,
    MAX_PARTITIONS, MAX_RATE, MAX_REMEMBERED, MAX_REPLICATION, MAX_STEPS, MAX_TIMEOUT,
    MAX_VALUE_BYTES, MAX_WINDOW, MIN_TIMEOUT, MIN_VALUE_BYTES, MIN_WINDOW, OUTSTANDING, Step,
    Workload,
};
pub use operations::{Operation, Operations, SERIES_BUCKET, SLICE_ROWS};
pub use report::{EDGE, KEPT_SHARE, Report, missed};
pub use running::{Finished, Progress, Running, STOP_PATIENCE};
pub use schedule::Schedule;
pub use target::{Answer, Failure, Target};
pub use verify::MAX_UNREAD;
pub use windows::{Answered, MAX_WINDOWS, Quantiles, Window, Windows};
