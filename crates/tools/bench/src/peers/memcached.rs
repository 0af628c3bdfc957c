//! memcached's meta protocol, the leanest of its protocols, and its older reads of several keys.

use std::io::Write;

use anyhow::Result;

use super::Endpoint;
use super::redis::decimal;
use super::stream::{Codec, Decoded, Malformed, PendingRequest, Pipelined, first_line};
use sprat_measure::target::{Op, Outcome};

/// The codec of the meta protocol, `mg key v` and `ms key length`, and of `get key key ...`.
#[derive(Clone, Copy, Debug)]
pub struct Meta;

/// Opens `connections` connections to the memcached at `endpoint`.
///
/// # Errors
/// When a connection cannot be opened.
pub fn connect(endpoint: &Endpoint, connections: usize) -> Result<Pipelined<Meta>> {
    Pipelined::connect("memcached", Meta, endpoint, connections)
}

impl Codec for Meta {
    const VALUE_END: &'static [u8] = b"\r\n";

    fn encode(&self, op: &Op<'_>, out: &mut Vec<u8>) {
        match op {
            Op::Get { key } => {
                out.extend_from_slice(b"mg ");
                out.extend_from_slice(key);
                out.extend_from_slice(b" v\r\n");
            }
            // The meta protocol has no command for several keys.
            Op::GetMany { .. } => {
                out.extend_from_slice(b"get");
                for key in op.keys() {
                    out.push(b' ');
                    out.extend_from_slice(key);
                }
                out.extend_from_slice(b"\r\n");
            }
            Op::Put { key, value } => {
                out.extend_from_slice(b"ms ");
                out.extend_from_slice(key);
                write!(out, " {}\r\n", value.len()).expect("a vector takes every write");
            }
            Op::Ping | Op::Transact { .. } => unreachable!("not offered"),
        }
    }

    fn decode(&self, input: &[u8], _pending: &PendingRequest) -> Result<Decoded, Malformed> {
        let (mut at, mut found) = (0, 0);
        loop {
            let rest = &input[at..];
            let Some((text, header)) = first_line(rest)? else {
                return Ok(Decoded::Need(input.len() + 1));
            };
            let mut words = text.split(|&byte| byte == b' ');
            let ended = |outcome| Ok(Decoded::Reply { consumed: at + header, outcome });
            let (several, length) = match words.next().unwrap_or_default() {
                b"HD" => return ended(Outcome::Ok { bytes: 0 }),
                b"EN" => return ended(Outcome::Miss),
                b"END" if at == 0 => return ended(Outcome::Miss),
                b"END" => return ended(Outcome::Ok { bytes: found }),
                b"NS" | b"EX" | b"NF" | b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" => {
                    return ended(Outcome::Error);
                }
                b"VA" => (false, words.next()),
                // The key and its flags come first.
                b"VALUE" => (true, words.nth(2)),
                _ => return Err(Malformed("unknown status")),
            };
            let bytes = length.and_then(decimal).ok_or(Malformed("length of a value"))?;
            let whole = header + bytes + Self::VALUE_END.len();
            if rest.len() < whole {
                return Ok(Decoded::Need(at + whole));
            }
            if &rest[header + bytes..whole] != Self::VALUE_END {
                return Err(Malformed("value without its end"));
            }
            (at, found) = (at + whole, found + bytes);
            if !several {
                return Ok(Decoded::Reply { consumed: at, outcome: Outcome::Ok { bytes } });
            }
        }
    }
}
