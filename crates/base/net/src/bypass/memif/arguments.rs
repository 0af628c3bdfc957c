//! Parses a memory interface's arguments: `net_memif0,role=server,socket=/run/sprat.sock`.
//!
//! The keys are those of DPDK's driver for the same interfaces, so that either end can run Sprat or
//! DPDK. So are the defaults, except those of `rsize`, `bsize` and `mac`.

use std::io;

use super::message::SECRET;
use crate::Mac;

/// Default number of slots of a ring, as its base-2 logarithm. Each slot holds a frame. 256 frames
/// of 9 KB stay in a core's cache; 1,024 do not, and the throughput is a fifth lower.
const LOG2_SLOTS: u8 = 8;

/// The largest number of slots in a ring, as its base-2 logarithm: positions have 16 bits, and a
/// full ring must be distinguishable from an empty one.
pub(super) const MAX_LOG2_SLOTS: u8 = 14;

/// The longest buffer allowed, in bytes, because datagram lengths have 16 bits.
const MAX_BUFFER: u32 = 1 << 16;

/// The default socket of both ends, in the abstract namespace.
const SOCKET: &str = "/run/memif.sock";

/// Which end of the interface this process is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    /// Listens at the socket, and uses the client's memory.
    Server,
    /// Connects, and supplies the memory.
    Client,
}

/// The parsed arguments of an interface.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Arguments {
    pub(super) name: String,
    pub(super) role: Role,
    /// The interface's number among those that share a socket.
    pub(super) id: u32,
    pub(super) socket: String,
    /// Whether the socket is in the abstract namespace, without a file.
    pub(super) is_abstract: bool,
    pub(super) log2_slots: u8,
    /// Length of a slot's buffer, in bytes; `None` for the length of the longest frame.
    pub(super) buffer: Option<u32>,
    pub(super) mac: Option<Mac>,
    pub(super) secret: [u8; SECRET],
}

impl Arguments {
    /// Returns whether a device's name is that of a memory interface.
    pub(super) fn name_memif(device: &str) -> bool {
        device.starts_with("net_memif")
    }

    /// Parses the arguments of a device.
    ///
    /// # Errors
    /// `InvalidInput` if an argument is unknown or its value is wrong. The error names the argument
    /// and its possible values.
    pub(super) fn parse(device: &str) -> io::Result<Self> {
        let mut words = device.split(',');
        let mut arguments = Self {
            name: words.next().unwrap_or_default().to_owned(),
            role: Role::Client,
            id: 0,
            socket: SOCKET.to_owned(),
            is_abstract: true,
            log2_slots: LOG2_SLOTS,
            buffer: None,
            mac: None,
            secret: [0; SECRET],
        };
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let wrong = |may_be: &str| {
                let name = &arguments.name;
                io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{name}: `{word}`: {key} is {may_be}"),
                )
            };
            match key {
                "role" => {
                    arguments.role = match value {
                        "server" | "master" => Role::Server,
                        "client" | "slave" => Role::Client,
                        _ => return Err(wrong("server or client")),
                    }
                }
                "id" => arguments.id = value.parse().map_err(|_| wrong("a number of 32 bits"))?,
                "socket" if (1..108).contains(&value.len()) => arguments.socket = value.to_owned(),
                "socket" => return Err(wrong("a path of 1 to 107 bytes")),
                "socket-abstract" => {
                    arguments.is_abstract = yes(value).ok_or_else(|| wrong("yes or no"))?
                }
                "rsize" => {
                    let slots =
                        value.parse().ok().filter(|slots| (1..=MAX_LOG2_SLOTS).contains(slots));
                    arguments.log2_slots =
                        slots.ok_or_else(|| wrong("1 to 14, slots as a power of two"))?;
                }
                "bsize" => {
                    let bytes =
                        value.parse().ok().filter(|bytes| (64..=MAX_BUFFER).contains(bytes));
                    arguments.buffer =
                        Some(bytes.ok_or_else(|| wrong("64 to 65536, bytes of a slot's buffer"))?);
                }
                "mac" => {
                    arguments.mac = Some(
                        crate::locator::mac(value).map_err(|_| wrong("like 02:00:00:00:00:01"))?,
                    )
                }
                "secret" if value.len() < SECRET => {
                    arguments.secret[..value.len()].copy_from_slice(value.as_bytes());
                }
                "secret" => return Err(wrong("23 bytes at most")),
                "zero-copy" => match yes(value) {
                    Some(false) => {}
                    Some(true) => {
                        return Err(wrong("no: frames are written into the shared memory, once"));
                    }
                    None => return Err(wrong("yes or no")),
                },
                _ => {
                    let may_be = "not known; there are role, id, socket, socket-abstract, \
                                  rsize, bsize, mac and secret";
                    return Err(wrong(may_be));
                }
            }
        }
        Ok(arguments)
    }
}

fn yes(value: &str) -> Option<bool> {
    match value {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_arguments_and_defaults() {
        let all = "net_memif7,role=server,id=3,socket=/tmp/s,socket-abstract=no,rsize=10,\
                   bsize=2048,secret=x,mac=02:00:00:00:00:09,zero-copy=no";
        let arguments = Arguments::parse(all).expect("right");
        let mut secret = [0; SECRET];
        secret[0] = b'x';
        let expected = Arguments {
            name: "net_memif7".to_owned(),
            role: Role::Server,
            id: 3,
            socket: "/tmp/s".to_owned(),
            is_abstract: false,
            log2_slots: 10,
            buffer: Some(2048),
            mac: Some(Mac([2, 0, 0, 0, 0, 9])),
            secret,
        };
        assert_eq!(arguments, expected);
        let plain = Arguments::parse("net_memif0").expect("right");
        assert_eq!(
            (plain.role, plain.socket.as_str(), plain.is_abstract),
            (Role::Client, SOCKET, true)
        );
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (word, may_be) in [
            ("role=both", "server or client"),
            ("id=x", "32 bits"),
            ("socket=", "1 to 107"),
            ("socket-abstract=1", "yes or no"),
            ("rsize=0", "1 to 14"),
            ("rsize=15", "1 to 14"),
            ("bsize=65537", "64 to 65536"),
            ("mac=1", "like 02:"),
            ("secret=123456789012345678901234", "23 bytes"),
            ("zero-copy=yes", "once"),
            ("queues=2", "not known"),
            ("", "not known"),
        ] {
            let error =
                Arguments::parse(&format!("net_memif0,{word}")).expect_err(word).to_string();
            assert!(
                error.contains(may_be) && error.contains("net_memif0") && error.contains(word),
                "{error}"
            );
        }
    }
}
