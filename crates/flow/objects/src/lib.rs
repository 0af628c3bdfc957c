//! Object stores as source or destination of a transfer: `s3://BUCKET/KEY`.
//!
//! The `object_store` library implements the S3 protocol ([`store`]): signatures and multipart
//! uploads. Its requests go over `sprat-http`'s connections (`transport`). To fetch an object, only
//! a presigned address is made, which [`sprat_flow::copy`] fetches like any other. To send a file
//! ([`upload`]), its parts are uploaded, which become an object when all have arrived, or are
//! removed.

pub mod store;
mod transport;
pub mod upload;

pub use store::{Bucket, Location};
pub use upload::{Sent, Upload};
