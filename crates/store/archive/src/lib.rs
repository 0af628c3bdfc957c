//! Backups of a running store, and their restoration.
//!
//! A folder of backups ([`Folder`]) has *points* ([`Point`]): each is the whole store at one
//! moment. [`create`] adds a point; the servers go on meanwhile. [`restore`] stores tables of a
//! point in a running store. The folder is checked with [`Folder::verify`], and points are removed
//! with [`Folder::prune`].
//!
//! *A moment of several servers.* A point holds everything that was acknowledged before its moment.
//! If it holds a change, it holds everything whose acknowledgement its client knew before it made
//! the change: see [`sprat_wire::op::CopyStep`].
//!
//! *Segments.* A point lists the segments that a server's log consisted of. A segment's file may
//! have been copied long before the point, as a sealed segment does not change. Entries that were
//! overwritten or removed since are recognized as in a restart of the server: a later version, or a
//! tombstone, is in another segment of the list.

mod contents;
mod copier;
mod create;
mod error;
mod folder;
mod point;
mod restore;
mod storage;
mod transactions;

pub use contents::{Segments, objects};
pub use copier::{
    CUTS, Copied, CopiedSegment, Copier, LogQuestion, Question, RECOVERY_WAIT, Reply,
};
pub use create::{CreateOptions, Created, create};
pub use error::{Error, Fault};
pub use folder::{Folder, Keep, Pruned, Verified};
pub use point::{Point, PointServer, SegmentFile, utc};
pub use restore::{Restored, TableChoice, restore};
pub use storage::Storage;
pub use transactions::{LastChange, last_changes};
