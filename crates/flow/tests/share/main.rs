//! `share` with real sockets: what it sends, what it refuses, and with what programs of others it gets along.

mod files;
mod limits;
mod requests;
mod support;
mod verified;
