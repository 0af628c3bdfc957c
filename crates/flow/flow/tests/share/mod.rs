//! `share` with real sockets: what it sends, what it refuses, and with what programs of others it
//! gets along.

mod access;
mod clients;
mod files;
mod limits;
mod listing;
mod put;
mod requests;
mod support;
mod verified;
