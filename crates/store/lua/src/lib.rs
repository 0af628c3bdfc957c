//! Executes the scripts of Redis clients: Lua 5.1, as in Redis.
//!
//! An [`Engine`] keeps scripts by the hashes of their texts. [`Engine::run`] executes one, whose
//! commands its [`Host`] executes. All scripts of an engine share one Lua, so that a script costs
//! little more than its commands; what they share is read-only, so none finds what another one has
//! left.
//!
//! ```
//! use sprat_lua::{Engine, Host, Stop};
//! use sprat_resp::{Command, Protocol, ReplyWriter};
//!
//! struct Echo;
//!
//! impl Host for Echo {
//!     fn call(
//!         &mut self,
//!         command: Command<'_>,
//!         protocol: Protocol,
//!         reply: &mut Vec<u8>,
//!     ) -> Result<(), Stop> {
//!         let text = command.get(1).unwrap_or_default();
//!         ReplyWriter::new(reply, protocol).bulk(text);
//!         Ok(())
//!     }
//! }
//!
//! let mut engine = Engine::new(7);
//! let script = engine.load(b"return {redis.call('ECHO', KEYS[1]), 1 + 1}", false).unwrap();
//! let mut reply = Vec::new();
//! let mut writer = ReplyWriter::new(&mut reply, Protocol::Resp2);
//! engine.run(&script, &[b"key"], &[], &mut Echo, &mut writer, 1 << 20).unwrap();
//! assert_eq!(reply, b"*2\r\n$3\r\nkey\r\n:2\r\n");
//! ```
//!
//! # Limits
//! A script that takes longer than [`TIME_LIMIT`] ends. All scripts, with the values that they
//! make, have [`MAX_MEMORY`]. Texts have [`MAX_TEXTS`]; of those that were not loaded explicitly,
//! the engine keeps [`MAX_CACHED`].

mod bits;
mod cache;
mod engine;
mod functions;
mod json;
mod layout;
mod msgpack;
mod patterns;
mod values;

pub use cache::{MAX_CACHED, MAX_TEXTS, Sha};
pub use engine::{Ended, Engine, Host, MAX_MEMORY, Stop, TIME_LIMIT};
