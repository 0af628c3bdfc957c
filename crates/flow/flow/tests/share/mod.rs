//! Tests `share` with real sockets: what it sends, what it refuses, and which other programs it
//! works with.

mod access;
mod clients;
mod files;
mod limits;
mod listing;
mod put;
mod requests;
mod support;
mod verified;
