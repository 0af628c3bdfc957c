//! Object stores as ends of a copy: `s3://BUCKET/KEY`.
//!
//! A library speaks S3's language ([`store`]): signatures, parts, what they are made one by. Bytes
//! and words go over the mover's own connections (`transport`). To fetch, nothing more is needed
//! than an address that is signed: the rest is [`sprat_flow::copy`], with its streams, its journal
//! and its care. To [`upload`], a file is sent in parts that become an object when all of them are
//! there, or nothing.

pub mod store;
mod transport;
pub mod upload;

pub use store::{Location, Store};
pub use upload::{Sent, Upload};
