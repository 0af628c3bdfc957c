//! Redis and compatible servers: GET, MGET, SET and MULTI over RESP2.

use std::io::Write;

use anyhow::Result;

use super::Endpoint;
use super::stream::{Codec, Decoded, MAX_REPLY, Malformed, PendingRequest, Pipelined, first_line};
use sprat_measure::target::{Op, Outcome};

/// The codec of the Redis serialization protocol, version 2.
#[derive(Clone, Copy, Debug)]
pub struct Resp;

/// Why writing to a vector does not fail.
const GROWS: &str = "a vector takes every write";

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

    fn offers(&self, op: &Op<'_>) -> bool {
        !matches!(op, Op::Ping)
    }

    fn encode(&self, op: &Op<'_>, out: &mut Vec<u8>) {
        let verb: &[u8] = match *op {
            Op::Transact { value: Some(value), .. } => {
                out.extend_from_slice(b"*1\r\n$5\r\nMULTI\r\n");
                for key in op.keys() {
                    self.encode(&Op::Put { key, value }, out);
                    out.extend_from_slice(value);
                    out.extend_from_slice(Self::VALUE_END);
                }
                out.extend_from_slice(b"*1\r\n$4\r\nEXEC\r\n");
                return;
            }
            Op::Get { .. } => b"*2\r\n$3\r\nGET\r\n",
            Op::Put { .. } => b"*3\r\n$3\r\nSET\r\n",
            // A command is a transaction.
            Op::GetMany { .. } | Op::Transact { .. } => {
                write!(out, "*{}\r\n", 1 + op.keys().len()).expect(GROWS);
                b"$4\r\nMGET\r\n"
            }
            Op::Ping => unreachable!("not offered"),
        };
        out.extend_from_slice(verb);
        for key in op.keys() {
            word(out, key);
        }
        if let Op::Put { value, .. } = op {
            length(out, value.len());
        }
    }

    fn decode(&self, input: &[u8], pending: &PendingRequest) -> Result<Decoded, Malformed> {
        let mut begin = 0;
        let (digits, header) = loop {
            let Some((text, header)) = first_line(&input[begin..])? else {
                return Ok(Decoded::Need(input.len() + 1));
            };
            match text.strip_prefix(b"*") {
                Some(digits) => break (digits, header),
                // The replies to MULTI, and to the commands that wait for EXEC.
                None if pending.is_transaction && text.starts_with(b"+") => begin += header,
                None => return simple(input),
            }
        };
        let (mut at, mut all) = (begin + header, Outcome::Ok { bytes: 0 });
        for _ in 0..decimal(digits).ok_or(Malformed("length of an array"))? {
            match simple(&input[at..])? {
                Decoded::Need(more) => return Ok(Decoded::Need(at + more)),
                Decoded::Reply { consumed, outcome } => {
                    at += consumed;
                    all = all.and(outcome);
                }
            }
        }
        Ok(Decoded::Reply { consumed: at, outcome: all })
    }
}

/// Decodes an answer that is no array.
fn simple(input: &[u8]) -> Result<Decoded, Malformed> {
    let Some((text, header)) = first_line(input)? else {
        return Ok(Decoded::Need(input.len() + 1));
    };
    let ended = |outcome| Ok(Decoded::Reply { consumed: header, outcome });
    match text.split_first() {
        Some((b'+', _)) => ended(Outcome::Ok { bytes: 0 }),
        Some((b'-', _)) => ended(Outcome::Error),
        Some((b'$', b"-1")) => ended(Outcome::Miss),
        Some((b'$', digits)) => {
            let bytes = decimal(digits).ok_or(Malformed("length of a bulk string"))?;
            let whole = header + bytes + Resp::VALUE_END.len();
            if input.len() < whole {
                return Ok(Decoded::Need(whole));
            }
            if &input[header + bytes..whole] != Resp::VALUE_END {
                return Err(Malformed("bulk string without its end"));
            }
            Ok(Decoded::Reply { consumed: whole, outcome: Outcome::Ok { bytes } })
        }
        _ => Err(Malformed("neither a simple string, an error, a bulk string nor an array")),
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
        let Some((text, line)) = first_line(&input[consumed..])? else {
            return Ok(Decoded::Need(input.len() + 1));
        };
        let count = text.strip_prefix(b":").and_then(decimal);
        let count = count.ok_or(Malformed("number of replicas"))?;
        let outcome = if count >= usize::from(REPLICAS) { outcome } else { Outcome::Error };
        Ok(Decoded::Reply { consumed: consumed + line, outcome })
    }
}

fn length(out: &mut Vec<u8>, bytes: usize) {
    write!(out, "${bytes}\r\n").expect(GROWS);
}

/// Appends a bulk string.
pub(crate) fn word(out: &mut Vec<u8>, bytes: &[u8]) {
    length(out, bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(Resp::VALUE_END);
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
