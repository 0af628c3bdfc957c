//! Object stores as the source or destination of a transfer: `s3://BUCKET/KEY`.
//!
//! The `object_store` library implements the S3 protocol ([`store`]): signatures and multipart
//! uploads. The module `transport` carries the library's requests over `sprat-http`'s connections.
//!
//! To fetch an object, this crate only creates a presigned address, which [`sprat_flow::copy`]
//! fetches like any other. To send a file ([`upload`]), it uploads the file's parts. They become an
//! object when all have arrived, and are removed after a failure.

pub mod store;
mod transport;
pub mod upload;

pub use store::{Bucket, Location};
pub use upload::{SentObject, Upload};
