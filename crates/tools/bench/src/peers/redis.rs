//! Redis and compatible servers: GET and SET over RESP2.

use std::io::Write;

use anyhow::Result;

use super::Endpoint;
use super::stream::{Codec, Decoded, MAX_REPLY, Malformed, PendingRequest, Pipelined};
use sprat_measure::target::{Op, Outcome};

/// The codec of the Redis serialization protocol, version 2.
#[derive(Clone, Copy, Debug)]
pub struct Resp;

/// Limit on the first line of an answer, in bytes with its line end. A longer line is malformed;
/// only error texts come near the limit.
const MAX_LINE: usize = 4096;

/// The codec of RESP2 with a `WAIT` for 1 or 3 replicas after each write. A write completes when
/// this number of replicas have acknowledged it, and fails if `WAIT` reports fewer.
#[derive(Clone, Copy, Debug)]
pub struct RespWait<const REPLICAS: u8>;

/// Opens `connections` connections to the Redis at `endpoint`.
///
/// # Errors
/// When a connection cannot be opened.
pub fn connect(endpoint: &Endpoint, connections: usize) -> Result<Pipelined<Resp>> {
    Pipelined::connect("redis", Resp, endpoint, connections)
}

impl Codec for Resp {
    const VALUE_END: &'static [u8] = b"\r\n";

    fn encode(&self, op: &Op<'_>, out: &mut Vec<u8>) {
        let (verb, key): (&[u8], _) = match op {
            Op::Get { key } => (b"*2\r\n$3\r\nGET\r\n", *key),
            Op::Put { key, .. } => (b"*3\r\n$3\r\nSET\r\n", *key),
            Op::Ping => unreachable!("pings are refused before"),
        };
        out.extend_from_slice(verb);
        length(out, key.len());
        out.extend_from_slice(key);
        out.extend_from_slice(b"\r\n");
        if let Op::Put { value, .. } = op {
            length(out, value.len());
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
        let ended = |outcome| Ok(Decoded::Reply { consumed: header, outcome });
        match text.split_first() {
            Some((b'+', _)) => ended(Outcome::Ok { bytes: 0 }),
            Some((b'-', _)) => ended(Outcome::Error),
            Some((b'$', b"-1")) => ended(Outcome::Miss),
            Some((b'$', digits)) => {
                let bytes = decimal(digits).ok_or(Malformed("length of a bulk string"))?;
                let whole = header + bytes + Self::VALUE_END.len();
                if input.len() < whole {
                    return Ok(Decoded::Need(whole));
                }
                if &input[header + bytes..whole] != Self::VALUE_END {
                    return Err(Malformed("bulk string without its end"));
                }
                Ok(Decoded::Reply { consumed: whole, outcome: Outcome::Ok { bytes } })
            }
            _ => Err(Malformed("neither a simple string, an error nor a bulk string")),
        }
    }
}

impl<const REPLICAS: u8> Codec for RespWait<REPLICAS> {
    const VALUE_END: &'static [u8] = match REPLICAS {
        1 => b"\r\n*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$1\r\n0\r\n",
        3 => b"\r\n*3\r\n$4\r\nWAIT\r\n$1\r\n3\r\n$1\r\n0\r\n",
        _ => panic!("one replica or three"),
    };

    fn encode(&self, op: &Op<'_>, out: &mut Vec<u8>) {
        Resp.encode(op, out);
    }

    fn decode(&self, input: &[u8], pending: &PendingRequest) -> Result<Decoded, Malformed> {
        let stored = Resp.decode(input, pending)?;
        let Decoded::Reply { consumed, outcome } = stored else { return Ok(stored) };
        if pending.read {
            return Ok(stored);
        }
        let rest = &input[consumed..];
        let Some(line) = rest.iter().take(MAX_LINE).position(|&byte| byte == b'\n') else {
            return if rest.len() < MAX_LINE {
                Ok(Decoded::Need(input.len() + 1))
            } else {
                Err(Malformed("endless line"))
            };
        };
        let count = rest[..line].strip_prefix(b":").and_then(|digits| digits.strip_suffix(b"\r"));
        let count = count.and_then(decimal).ok_or(Malformed("number of replicas"))?;
        let outcome = if count >= usize::from(REPLICAS) { outcome } else { Outcome::Error };
        Ok(Decoded::Reply { consumed: consumed + line + 1, outcome })
    }
}

fn length(out: &mut Vec<u8>, bytes: usize) {
    write!(out, "${bytes}\r\n").expect("a vector takes every write");
}

/// Parses a decimal number of one to nine digits. Returns `None` for anything else, and for numbers
/// above [`MAX_REPLY`].
pub(crate) fn decimal(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || digits.len() > 9 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
    (value <= MAX_REPLY).then_some(value)
}
