//! Object stores as the source or destination of a transfer: `s3://BUCKET/KEY`.
//!
//! The `object_store` library implements the S3 protocol ([`store`]): signatures and multipart
//! uploads. The module `transport` carries the library's requests over `sprat-http`'s connections.
//!
//! To fetch an object, this crate only creates a presigned address, and [`sprat_flow::copy`]
//! fetches the file at that address. To send a file ([`upload`]), this crate uploads the file's
//! parts. When all parts have arrived, the store joins them to an object. After a failure the parts
//! are removed. A file that fits into one part is uploaded with one request.

pub mod store;
mod transport;
pub mod upload;
pub mod whole;

pub use store::{Bucket, Location};
pub use upload::{SentObject, Upload};
pub use whole::{Listed, Listing};
