//! `bench store`: all goals of the store on one server.

mod backup;
mod capacity;
mod collections;
mod expiry;
mod index;
mod latency;
mod order;
mod redis;
mod scripts;
mod throughput;
mod transactions;

use crate::promises::Chapter;

/// The chapters, in order.
pub const CHAPTERS: &[Chapter] = &[
    ("read latency", latency::reads),
    ("write latency", latency::writes),
    ("contention", latency::contention),
    ("idle", capacity::idle),
    ("durable write", latency::durable),
    ("throughput", throughput::fifty),
    ("pipelined", throughput::pipelined),
    ("batches", throughput::batches),
    ("transactions", transactions::chapter),
    ("redis clients", redis::chapter),
    ("redis collections", collections::chapter),
    ("redis scripts", scripts::chapter),
    ("expiry", expiry::chapter),
    ("order", order::chapter),
    ("index", index::chapter),
    ("backup", backup::chapter),
    ("utilisation", capacity::utilisation),
    ("memory", capacity::memory),
    ("restart", capacity::restart),
];
