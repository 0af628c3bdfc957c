//! A model of the store: operations drawn from a seed, and the answers that a correct store gives.
//!
//! The model is exact as long as no other client uses the table. An object has the value and
//! version of the last acknowledged operation, so the model knows whether a condition holds. An
//! overwrite has the next version; a new object has a higher version than its key ever had. An
//! object with a time to live may be missing from a second before its end on, and must be missing a
//! second after it. At most one operation may be in progress for each object; [`Run`] ensures that.
//! [`Run`] also keeps several additions to one number in progress, which shows whether any is
//! executed twice or not at all.

mod content;
mod model;
mod operation;
mod run;
mod shared;
mod work;

pub use content::Content;
pub use model::{Disagreement, Model};
pub use operation::{Action, Operation, Outcome, key_name};
pub use run::{CheckError, Counts, Run, SHARED_EVERY};
pub use shared::{SHARED_KEY, SharedCounter};
pub use work::{KEYS, MIX, SIZES, TTL_EVERY, Work};
