//! The rate that bodies are sent at: where it is asked for, and where it meets the sending.

use sprat_pace::path::limit_rate;
use std::io;
use std::net::TcpStream;
use std::str::FromStr;
use thiserror::Error;

/// Slowest rate that can be asked for, bytes a second.
pub const MIN_RATE: u64 = 1_000;

/// How fast each connection sends.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Pace {
    /// As the kernel's congestion control sees fit.
    #[default]
    Off,
    /// At so many bytes a second at most, evenly.
    Rate(u64),
}

/// A pace is none.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{0:?} is no pace: off, or a rate of bits such as 2Gb/s, 8kb/s at least")]
pub struct NoPace(String);

impl FromStr for Pace {
    type Err = NoPace;

    fn from_str(text: &str) -> Result<Self, NoPace> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let rate = || {
            let text = text.strip_suffix("b/s")?;
            let (number, scale) = match text.chars().next_back()? {
                'k' => (&text[..text.len() - 1], 1e3),
                'M' => (&text[..text.len() - 1], 1e6),
                'G' => (&text[..text.len() - 1], 1e9),
                _ => (text, 1.0),
            };
            let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            let bytes = number.parse::<f64>().ok().filter(|_| plain)? * scale / 8.0;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked first")]
            (bytes < 1e15).then_some(bytes as u64).filter(|bytes| *bytes >= MIN_RATE)
        };
        rate().map(Self::Rate).ok_or_else(|| NoPace(text.to_owned()))
    }
}

/// A body that is being sent on a connection, from before its first byte until this is dropped.
pub(super) struct Paced {}

impl Paced {
    /// A body of `bytes` begins on `tcp`.
    ///
    /// # Errors
    /// The kernel does not keep the pace.
    pub(super) fn begin(pace: Pace, tcp: &TcpStream, _bytes: u64) -> io::Result<Self> {
        if let Pace::Rate(rate) = pace {
            limit_rate(tcp, Some(rate))?;
        }
        Ok(Self {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paces_are_read() {
        assert_eq!("off".parse(), Ok(Pace::Off));
        assert_eq!("2Gb/s".parse(), Ok(Pace::Rate(250_000_000)));
        assert_eq!("1.5Mb/s".parse(), Ok(Pace::Rate(187_500)));
        assert_eq!("8000b/s".parse(), Ok(Pace::Rate(1_000)));
        for text in ["", "b/s", "on", "2G", "-1Gb/s", "infb/s", "1e3Mb/s", "7kb/s", "99999999999Gb/s", "Gb/s", "ab/s"] {
            assert_eq!(text.parse::<Pace>(), Err(NoPace(text.to_owned())), "{text}");
        }
    }
}
