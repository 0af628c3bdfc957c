//! Fields of a frame that a rule may change.
//!
//! The checksums of TCP and UDP cover none of these fields. The header checksum of IPv4 is updated
//! as in RFC 1624.

use crate::frame::{is_tag, updated};
use std::fmt;
use std::str::FromStr;

/// Limit on the VLAN tags that are skipped to find the IP header. In a packet with more tags, the
/// fields of IP are not changed.
const MAX_TAGS: usize = 4;

/// The two bits of explicit congestion notification (RFC 3168).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Ecn {
    /// Not capable.
    NotCapable = 0,
    /// Capable, ECT(1).
    Capable1 = 1,
    /// Capable, ECT(0).
    Capable0 = 2,
    /// Congestion experienced.
    Congested = 3,
}

/// A field and its new value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// The destination address on Ethernet.
    Destination([u8; 6]),
    /// The number of the outermost VLAN. Frames without a tag stay unchanged.
    Vlan(u16),
    /// The differentiated services code point of IPv4 or IPv6.
    Dscp(u8),
    /// The congestion bits of IPv4 or IPv6.
    Ecn(Ecn),
}

/// The text does not describe a change.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{0:?} is not a change; want destination=MAC (02:00:00:00:00:01), vlan=0..4095, dscp=0..63 or \
     ecn=not-capable|ect0|ect1|ce"
)]
pub struct ParseChangeError(pub String);

impl FromStr for Change {
    type Err = ParseChangeError;

    fn from_str(text: &str) -> Result<Self, ParseChangeError> {
        let parse = || {
            let (field, value) = text.split_once('=')?;
            Some(match field.trim() {
                "destination" => Self::Destination(address(value.trim())?),
                "vlan" => Self::Vlan(value.trim().parse().ok().filter(|vlan| *vlan < 4_096)?),
                "dscp" => Self::Dscp(value.trim().parse().ok().filter(|dscp| *dscp < 64)?),
                "ecn" => Self::Ecn(match value.trim() {
                    "not-capable" => Ecn::NotCapable,
                    "ect0" => Ecn::Capable0,
                    "ect1" => Ecn::Capable1,
                    "ce" => Ecn::Congested,
                    _ => return None,
                }),
                _ => return None,
            })
        };
        parse().ok_or_else(|| ParseChangeError(text.to_owned()))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Destination([a, b, c, d, e, g]) => {
                write!(f, "destination={a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
            }
            Self::Vlan(vlan) => write!(f, "vlan={vlan}"),
            Self::Dscp(dscp) => write!(f, "dscp={dscp}"),
            Self::Ecn(Ecn::NotCapable) => f.write_str("ecn=not-capable"),
            Self::Ecn(Ecn::Capable0) => f.write_str("ecn=ect0"),
            Self::Ecn(Ecn::Capable1) => f.write_str("ecn=ect1"),
            Self::Ecn(Ecn::Congested) => f.write_str("ecn=ce"),
        }
    }
}

fn address(text: &str) -> Option<[u8; 6]> {
    let mut address = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut address {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(address)
}

impl Change {
    /// Changes a frame, which begins with its Ethernet header. Returns whether the frame has the
    /// field.
    pub fn apply(self, frame: &mut [u8]) -> bool {
        match self {
            Self::Destination(address) => put(frame, 0, &address),
            Self::Vlan(vlan) => match word(frame, 12) {
                Some(kind) if is_tag(kind) => match word(frame, 14) {
                    Some(tag) => put(frame, 14, &(tag & 0xf000 | vlan & 0x0fff).to_be_bytes()),
                    None => false,
                },
                _ => false,
            },
            Self::Dscp(dscp) => change_class(frame, 0xfc, dscp << 2),
            Self::Ecn(ecn) => change_class(frame, 0x03, ecn as u8),
        }
    }
}

/// Changes the bits of `mask` in the byte that is IPv4's type of service or IPv6's traffic class.
fn change_class(frame: &mut [u8], mask: u8, value: u8) -> bool {
    let mut at = 12;
    for _ in 0..MAX_TAGS {
        if !word(frame, at).is_some_and(is_tag) {
            break;
        }
        at += 4;
    }
    let Some(kind) = word(frame, at) else { return false };
    let Some(ip) = frame.get_mut(at + 2..) else { return false };
    match (kind, word(ip, 0)) {
        (0x0800, Some(old)) if old >> 12 == 4 && ip.len() >= 20 => {
            let new = (old & !u16::from(mask)) | u16::from(value & mask);
            let sum = u16::from_be_bytes([ip[10], ip[11]]);
            put(ip, 0, &new.to_be_bytes()) && put(ip, 10, &updated(sum, old, new).to_be_bytes())
        }
        (0x86dd, Some(old)) if old >> 12 == 6 && ip.len() >= 40 => {
            let (mask, value) = (u16::from(mask) << 4, u16::from(value) << 4);
            put(ip, 0, &((old & !mask) | (value & mask)).to_be_bytes())
        }
        _ => false,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) -> bool {
    bytes.get_mut(at..at + value.len()).map(|place| place.copy_from_slice(value)).is_some()
}
