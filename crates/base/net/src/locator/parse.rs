//! Parses locators.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::fault::{LocatorError, LocatorFault, MAX_TEXT};
use super::{Bypass, Host, Locator, Transport};
use crate::Mac;

/// The longest name of a host or device, and the longest argument of a device, in bytes. This is
/// the limit of a DNS name.
const MAX_NAME: usize = 253;

/// The largest edit distance between an unknown word and the word that the error suggests.
const MAX_EDITS: usize = 3;

/// The largest number of devices of a host. A locator with more devices is refused.
const MAX_DEVICES: usize = crate::ether::MAX_LINKS;

/// Keys that every transport has.
const COMMON: &[&str] = &["host", "port"];

/// Additional keys of `fast+dpdk`. After `dev`, every other key belongs to the device.
const BYPASS: &[&str] = &["mac", "prefix", "gateway", "vlan", "mtu", "dev"];

/// The values of a locator's keys, before the parser checks that the required keys are present.
#[derive(Default)]
struct Parts {
    host: Option<Host>,
    port: Option<u16>,
    bypass: Bypass,
}

impl FromStr for Locator {
    type Err = LocatorError;

    fn from_str(text: &str) -> Result<Self, LocatorError> {
        parse(text)
            .map_err(|fault| LocatorError { text: text.chars().take(MAX_TEXT).collect(), fault })
    }
}

fn parse(text: &str) -> Result<Locator, LocatorFault> {
    if text.len() > MAX_TEXT {
        return Err(LocatorFault::TooLong(text.len()));
    }
    if let Some(locator) = short(text.trim()) {
        return locator;
    }
    let (word, rest) = text.trim().split_once(':').ok_or(LocatorFault::NoTransport)?;
    let (name, keys): (&'static str, &'static str) = match word {
        "tcp" => ("tcp", "host and port"),
        "fast+udp" => ("fast+udp", "host and port"),
        "fast+dpdk" => ("fast+dpdk", "host, port, mac, prefix, gateway, vlan, mtu and dev"),
        _ if word.is_empty() || word.contains('=') => return Err(LocatorFault::NoTransport),
        _ => {
            let suggestion = nearest(word, ["tcp", "fast+udp", "fast+dpdk", "udp", "dpdk"]).map(
                |word| match word {
                    "udp" => "fast+udp",
                    "dpdk" => "fast+dpdk",
                    word => word,
                },
            );
            return Err(LocatorFault::Transport { found: word.to_owned(), suggestion });
        }
    };
    let dpdk = name == "fast+dpdk";

    let mut parts = Parts::default();
    for pair in rest.split(',') {
        let Some((key, value)) = pair.split_once('=') else {
            // Some arguments of devices are single words.
            match parts.bypass.devices.last_mut() {
                Some(device) => extend(device, pair)?,
                None => return Err(LocatorFault::NotAPair(pair.to_owned())),
            }
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        let bypass = &mut parts.bypass;
        if let Some(&only) = BYPASS.iter().find(|&&known| known == key && !dpdk) {
            return Err(LocatorFault::OnlyDpdk { transport: name, key: only });
        }
        match key {
            "host" => set(&mut parts.host, "host", host(value)?)?,
            "port" => set(&mut parts.port, "port", port(value)?)?,
            "mac" => set(&mut bypass.mac, "mac", mac(value)?)?,
            "prefix" => {
                set(&mut bypass.prefix, "prefix", number(value, "prefix", 0, 128, PREFIX)?)?
            }
            "gateway" => set(&mut bypass.gateway, "gateway", gateway(value)?)?,
            "vlan" => set(&mut bypass.vlan, "vlan", number(value, "vlan", 1, 4094, VLAN)?)?,
            "mtu" => set(
                &mut bypass.mtu,
                "mtu",
                number(value, "mtu", crate::ether::MIN_MTU, 65_535, MTU)?,
            )?,
            "dev" if bypass.devices.len() >= MAX_DEVICES => {
                return Err(LocatorFault::TooManyDevices(MAX_DEVICES));
            }
            "dev" => bypass.devices.push(device(value)?),
            _ if !bypass.devices.is_empty() => {
                let last = bypass.devices.last_mut().expect("not empty");
                extend(last, &format!("{key}={value}"))?;
            }
            _ => {
                let known = COMMON.iter().chain(BYPASS.iter().filter(|_| dpdk)).copied();
                return Err(LocatorFault::Key {
                    transport: name,
                    found: key.to_owned(),
                    suggestion: nearest(key, known),
                    keys,
                });
            }
        }
    }

    let host = parts.host.ok_or(LocatorFault::Missing { key: "host", example: "127.0.0.1" })?;
    let port = parts.port.ok_or(LocatorFault::Missing { key: "port", example: "11100" })?;
    let transport = match name {
        "tcp" => Transport::Tcp,
        "fast+udp" => Transport::FastUdp,
        _ => Transport::FastDpdk(parts.bypass),
    };
    Ok(Locator { transport, host, port })
}

/// Parses the short forms: `HOST:PORT`, which means TCP, and `tcp://HOST:PORT` and
/// `fast+udp://HOST:PORT`, which may end in a slash. Returns `None` for other texts, for the parser
/// of the long form. That parser reports, for example, that `tcp:11100` lacks its host.
fn short(text: &str) -> Option<Result<Locator, LocatorFault>> {
    let (word, endpoint) = text.split_once("://").unwrap_or(("", text));
    let endpoint =
        if word.is_empty() { endpoint } else { endpoint.strip_suffix('/').unwrap_or(endpoint) };
    let transport = match word {
        "" if !is_short(text) => return None,
        "" | "tcp" => Transport::Tcp,
        "fast+udp" => Transport::FastUdp,
        _ => return None,
    };
    let Some((name, digits)) = endpoint.rsplit_once(':') else {
        return Some(Err(LocatorFault::Missing { key: "port", example: "11100" }));
    };
    Some(host(name).and_then(|host| Ok(Locator { transport, host, port: port(digits)? })))
}

/// Returns whether a text without `://` is meant as `HOST:PORT`.
pub(super) fn is_short(text: &str) -> bool {
    let Some((host, digits)) = text.rsplit_once(':') else { return false };
    let digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // Without brackets, the last group of an IPv6 address would be read as a port.
    let host =
        !host.is_empty() && !host.contains('=') && (!host.contains(':') || host.ends_with(']'));
    digits && host && !text.starts_with("tcp:") && !text.starts_with("fast+")
}

const PREFIX: &str = "a number of bits from 0 to 128, such as 24";
const VLAN: &str = "a VLAN from 1 to 4094";
const MTU: &str = "a packet size from 1280 to 65535 bytes, such as 9000";

fn set<T>(slot: &mut Option<T>, key: &'static str, value: T) -> Result<(), LocatorFault> {
    if slot.replace(value).is_some() {
        return Err(LocatorFault::Twice(key));
    }
    Ok(())
}

fn host(text: &str) -> Result<Host, LocatorFault> {
    let fault = |wanted| Err(LocatorFault::Value { key: "host", found: text.to_owned(), wanted });
    if let Some(inner) = text.strip_prefix('[') {
        let address = inner.strip_suffix(']').and_then(|inner| inner.parse::<Ipv6Addr>().ok());
        return match address {
            Some(ip) => Ok(Host::Ip(ip.into())),
            None => fault("an IPv6 address in brackets, such as [::1]"),
        };
    }
    if text.contains(':') {
        return match text.parse::<Ipv6Addr>() {
            Ok(ip) => Ok(Host::Ip(ip.into())),
            Err(_) => {
                fault("an IPv6 address, such as ::1; the port is a part of its own: `,port=11100`")
            }
        };
    }
    // A text of digits and dots is meant as an address, not as a name.
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return match text.parse::<Ipv4Addr>() {
            Ok(ip) => Ok(Host::Ip(ip.into())),
            Err(_) => fault("an IPv4 address: four numbers from 0 to 255, such as 192.168.1.7"),
        };
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    if text.len() > MAX_NAME || !text.strip_suffix('.').unwrap_or(text).split('.').all(label) {
        return fault("a host: an IPv4 or IPv6 address or a name of letters, digits, `-` and `.`");
    }
    Ok(Host::Name(text.to_owned()))
}

fn port(text: &str) -> Result<u16, LocatorFault> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or_else(|| LocatorFault::Value {
        key: "port",
        found: text.to_owned(),
        wanted: "a port: a number from 0 to 65535, such as 11100",
    })
}

pub(crate) fn mac(text: &str) -> Result<Mac, LocatorFault> {
    let fault = || LocatorFault::Value {
        key: "mac",
        found: text.to_owned(),
        wanted: "a hardware address: six pairs of hexadecimal digits, such as 94:DE:80:AB:01:79",
    };
    let mut bytes = [0; 6];
    let mut pairs = text.split([':', '-']);
    for byte in &mut bytes {
        let pair = pairs.next().ok_or_else(fault)?;
        if pair.len() != 2 || !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(fault());
        }
        *byte = u8::from_str_radix(pair, 16).map_err(|_| fault())?;
    }
    if pairs.next().is_some() {
        return Err(fault());
    }
    Ok(Mac(bytes))
}

fn device(text: &str) -> Result<String, LocatorFault> {
    if text.is_empty() || !is_plain(text) {
        let wanted = "a device, such as net_memif0,role=server or 0000:01:00.0";
        return Err(LocatorFault::Value { key: "dev", found: text.to_owned(), wanted });
    }
    Ok(text.to_owned())
}

/// Adds an argument to a device.
fn extend(device: &mut String, argument: &str) -> Result<(), LocatorFault> {
    if argument.is_empty() || !is_plain(argument) {
        let wanted = "an argument of a device, such as role=server";
        return Err(LocatorFault::Value { key: "dev", found: argument.to_owned(), wanted });
    }
    device.push(',');
    device.push_str(argument);
    Ok(())
}

fn is_plain(text: &str) -> bool {
    text.len() <= MAX_NAME && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}

fn gateway(text: &str) -> Result<IpAddr, LocatorFault> {
    let wanted = "the address of a router, such as 192.168.1.1";
    text.parse().map_err(|_| LocatorFault::Value { key: "gateway", found: text.to_owned(), wanted })
}

fn number<T: TryFrom<usize>>(
    text: &str,
    key: &'static str,
    least: usize,
    most: usize,
    wanted: &'static str,
) -> Result<T, LocatorFault> {
    let found: Option<usize> = text.parse().ok().filter(|number| (least..=most).contains(number));
    found.and_then(|number| T::try_from(number).ok()).ok_or_else(|| LocatorFault::Value {
        key,
        found: text.to_owned(),
        wanted,
    })
}

/// Returns the word of `known` with the fewest edits from `word`, or `None` if even that word needs
/// too many.
fn nearest(word: &str, known: impl IntoIterator<Item = &'static str>) -> Option<&'static str> {
    let word = word.trim().to_ascii_lowercase();
    known
        .into_iter()
        .map(|known| (edits(word.as_bytes(), known.as_bytes()), known))
        .filter(|&(edits, known)| edits <= MAX_EDITS && edits < known.len())
        .min_by_key(|&(edits, _)| edits)
        .map(|(_, known)| known)
}

/// Returns the Levenshtein distance: the number of insertions, deletions and replacements from `a`
/// to `b`.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, &from) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
