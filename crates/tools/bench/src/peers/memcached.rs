//! memcached's meta protocol, the leanest of its protocols.

use std::io::Write;

use anyhow::Result;

use super::Endpoint;
use super::redis::decimal;
use super::stream::{Codec, Decoded, Malformed, PendingRequest, Pipelined};
use sprat_measure::target::{Op, Outcome};

/// The codec of the meta protocol: `mg key v` and `ms key length`.
#[derive(Clone, Copy, Debug)]
pub struct Meta;

/// Limit on the status line of an answer, in bytes with its line end. A longer line is malformed.
const MAX_LINE: usize = 4096;

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
            Op::Put { key, value } => {
                out.extend_from_slice(b"ms ");
                out.extend_from_slice(key);
                write!(out, " {}\r\n", value.len()).expect("a vector takes every write");
            }
            Op::Ping => unreachable!("pings are refused before"),
        }
    }

    fn decode(&self, input: &[u8], _pending: &PendingRequest) -> Result<Decoded, Malformed> {
        let Some(line) = input.iter().take(MAX_LINE).position(|&byte| byte == b'\n') else {
            return if input.len() < MAX_LINE {
                Ok(Decoded::Need(input.len() + 1))
            } else {
                Err(Malformed("endless line"))
            };
        };
        let header = line + 1;
        let Some(text) = input[..header].strip_suffix(b"\r\n") else {
            return Err(Malformed("line without CR"));
        };
        let mut words = text.split(|&byte| byte == b' ');
        let ended = |outcome| Ok(Decoded::Reply { consumed: header, outcome });
        match words.next().unwrap_or_default() {
            b"HD" => ended(Outcome::Ok { bytes: 0 }),
            b"EN" => ended(Outcome::Miss),
            b"NS" | b"EX" | b"NF" | b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" => {
                ended(Outcome::Error)
            }
            b"VA" => {
                let bytes = words.next().and_then(decimal).ok_or(Malformed("length of a value"))?;
                let whole = header + bytes + Self::VALUE_END.len();
                if input.len() < whole {
                    return Ok(Decoded::Need(whole));
                }
                if &input[header + bytes..whole] != Self::VALUE_END {
                    return Err(Malformed("value without its end"));
                }
                Ok(Decoded::Reply { consumed: whole, outcome: Outcome::Ok { bytes } })
            }
            _ => Err(Malformed("unknown status")),
        }
    }
}
