//! Puts a load on Apache Cassandra at a rate that is fixed beforehand, and reports the result.
//!
//! The schedule of all operations is known before the first one starts, and no response changes it.
//! Response times count from the scheduled start. If Cassandra stalls for a second, all operations
//! scheduled in that second wait, and their response times show it. A load that sends the next
//! request after the last response shows a single slow request instead, which hides the stall
//! (coordinated omission).
//!
//! ```no_run
//! use sprat_load::{Load, RunningLoad, Step, Workload};
//! use std::time::Duration;
//!
//! let steps = Step::ramp(1_000.0, 5_000.0, 5, Duration::from_secs(10));
//! let mut load = Load::new(["10.0.0.3:9042"], steps);
//! load.workload = Workload::KeyValue { keys: 100_000 };
//! load.remember = true;
//! let finished = RunningLoad::start(load)?.finish();
//! assert!(finished.report.kept_rate(), "{:?}", finished.report.missed);
//! assert_eq!(finished.verify()?.lost_keys, 0);
//! # Ok::<(), sprat_load::LoadError>(())
//! ```
//!
//! A [`Load`] describes the operations, [`RunningLoad`] runs them, and [`LoadReport`] is the
//! result. The parts that make decisions use neither clock nor network: [`Schedule`],
//! [`Operations`], [`Windows`], [`AcknowledgedWrites`]. A [`LoadTarget`] can take Cassandra's
//! place, as in tests. Call this crate from ordinary threads, not from within an asynchronous
//! runtime.

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

pub use acknowledged::{AcknowledgedWrites, LostWrite, MAX_LOST, Verdict, Verification};
pub use cassandra::Cassandra;
pub use failures::{FailureKind, Failures, MAX_EXAMPLE, MAX_KINDS};
pub use load::{
    Arrivals, Consistency, DEFAULT_OUTSTANDING, Load, LoadError, MAX_CONTACTS, MAX_KEYS,
    MAX_OUTSTANDING, MAX_PARTITIONS, MAX_RATE, MAX_REMEMBERED, MAX_REPLICATION, MAX_STEPS,
    MAX_TIMEOUT, MAX_VALUE_BYTES, MAX_WINDOW, MIN_TIMEOUT, MIN_VALUE_BYTES, MIN_WINDOW, Step,
    Workload,
};
pub use operations::{Operation, Operations, SERIES_BUCKET, SLICE_ROWS};
pub use report::{EDGE, KEPT_SHARE, LoadReport, missed};
pub use running::{FinishedLoad, Progress, RunningLoad, STOP_PATIENCE};
pub use schedule::Schedule;
pub use target::{Answer, Failure, LoadTarget};
pub use verify::MAX_UNREAD;
pub use windows::{Completion, MAX_WINDOWS, Quantiles, Window, Windows};
