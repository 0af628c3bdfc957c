//! Serves Redis clients from the objects of a server.
//!
//! A [`Front`] owns the connections of clients. The server's loop calls [`Front::turn`], which
//! reads commands, executes them on the server's [`Objects`], and sends the replies whose effects
//! are durable. It runs on the server's own thread, so a command needs no lock and no message to
//! another thread. `docs/redis.md` lists the commands and where they differ from those of Redis;
//! `docs/decisions/0042-redis.md` says why it is built in this way.
//!
//! - `front`: connections, and which of them has its turn.
//! - `connection`: what one connection receives and sends.
//! - `commands`: the commands. `call`: what a command may use.
//! - `collections`: hashes, lists, sets and sorted sets, and their elements. `label`: the order of
//!   lists. `score`: that of sorted sets. `sweep`: removes the elements of collections that are
//!   gone. `waiting`: clients that wait for an element.
//! - `staged`: the changes of transactions and scripts, which are made together.
//! - `channels`: subscriptions, and the messages to subscribers.

mod call;
mod channels;
mod collections;
mod commands;
mod connection;
mod extended;
mod front;
mod glob;
mod label;
mod objects;
mod score;
mod session;
mod staged;
mod sweep;
mod waiting;

pub use call::{KEYS_AT_ONCE, MAX_PATTERN, MAX_REPLY};
pub use front::{COMMAND_LIMITS, Front, MAX_CONNECTIONS};
pub use objects::{Access, NO_NUMBER, Objects, Unready};
pub use session::{DATABASES, TableRequest, TableRequests};
