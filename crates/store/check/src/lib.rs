//! What a store must answer: operations drawn from a seed, and a model in memory that knows every
//! answer.
//!
//! The model is exact as long as nobody else touches the table: an object has the value and version
//! that the last acknowledged operation gave it, a condition holds or not, an overwrite has the
//! next version, a new object a higher one than its key ever had. Whoever drives it keeps at most
//! one operation under way for each object; [`Run`] does. It also has several at a time add to one
//! number, which shows whether any is done twice or not at all.

mod content;
mod model;
mod operation;
mod run;
mod shared;
mod work;

pub use content::Content;
pub use model::{Disagreement, Model};
pub use operation::{Action, Operation, Outcome, key_name};
pub use run::{Broken, Counts, Run, SHARED_EVERY};
pub use shared::{SHARED_KEY, Shared};
pub use work::{KEYS, MIX, SIZES, Work};
