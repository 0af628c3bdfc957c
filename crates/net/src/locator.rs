//! Service locators: `tcp:host=192.168.1.7,port=12246`.
//!
//! A locator names an endpoint and chooses its transport: a transport, a colon, then `key=value` parts
//! with commas between. Which keys there are depends on the transport; none is ignored.

use std::fmt::{self, Display};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use thiserror::Error;

/// Longest locator, bytes of text.
const MAX_TEXT: usize = 1024;

/// Longest host or device name, bytes (that of a DNS name).
const MAX_NAME: usize = 253;

/// Edits between a word that is unknown and one that may have been meant.
const MAX_EDITS: usize = 3;

/// Where a service is reached, and over which transport.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Locator {
    /// How frames travel.
    pub transport: Transport,
    /// The machine.
    pub host: Host,
    /// The port; 0 lets the system choose one, which only makes sense to listen on.
    pub port: u16,
}

/// How frames travel.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Transport {
    /// `tcp`: the kernel's TCP.
    Tcp,
    /// `fast+udp`: our own reliability over the kernel's UDP.
    FastUdp,
    /// `fast+dpdk`: the same past the kernel.
    FastDpdk {
        /// Hardware address of the host's port: there is nobody to ask for it.
        mac: Mac,
        /// Device to open, in the driver's words; the first one when absent.
        dev: Option<String>,
    },
}

/// The machine of a locator.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Host {
    /// An address, IPv4 or IPv6.
    Ip(IpAddr),
    /// A name, looked up each time the locator is resolved.
    Name(String),
}

/// A hardware address.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Mac(pub [u8; 6]);

/// Why a text is not a locator.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("service locator `{text}`: {fault}")]
pub struct LocatorError {
    /// The text, cut when it is longer than a locator can be.
    pub text: String,
    /// What is wrong with it, and how to mend it.
    pub fault: Fault,
}

/// What is wrong with a locator.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum Fault {
    /// Longer than any locator.
    #[error("{0} bytes are too long for a locator; the limit is {MAX_TEXT}")]
    TooLong(usize),
    /// No colon.
    #[error("no transport; write for example `tcp:host=127.0.0.1,port=11100`")]
    NoTransport,
    /// Not a transport.
    #[error("unknown transport `{found}`{}; there are tcp, fast+udp and fast+dpdk", meant(.suggestion))]
    Transport {
        /// What stands before the colon.
        found: String,
        /// What was perhaps meant.
        suggestion: Option<&'static str>,
    },
    /// A part without an equals sign.
    #[error("`{0}` is not of the form key=value")]
    NotAPair(String),
    /// A key that the transport does not have.
    #[error("{transport} has no key `{found}`{}; it takes {keys}", meant(.suggestion))]
    Key {
        /// The transport.
        transport: &'static str,
        /// The key.
        found: String,
        /// What was perhaps meant.
        suggestion: Option<&'static str>,
        /// The keys there are.
        keys: &'static str,
    },
    /// A key that only another transport has.
    #[error("`{key}` is only for fast+dpdk: leave it out, or write `fast+dpdk:` for `{transport}:`")]
    OnlyDpdk {
        /// The transport.
        transport: &'static str,
        /// The key.
        key: &'static str,
    },
    /// A key given twice.
    #[error("`{0}` is given twice; keep one")]
    Twice(&'static str),
    /// A key that must be there.
    #[error("`{key}` is missing; add `{key}={example}`")]
    Missing {
        /// The key.
        key: &'static str,
        /// A value it could have.
        example: &'static str,
    },
    /// A value that its key cannot have.
    #[error("`{key}={found}` is not {wanted}")]
    Value {
        /// The key.
        key: &'static str,
        /// Its value.
        found: String,
        /// What it should be, with an example.
        wanted: &'static str,
    },
}

fn meant(suggestion: &Option<&'static str>) -> String {
    suggestion.map_or_else(String::new, |word| format!(" (did you mean `{word}`?)"))
}

impl Locator {
    /// The addresses that the host has now, in the system's order of preference. Looks names up, which
    /// can take seconds: not for a node's loop.
    ///
    /// # Errors
    /// Those of the system's resolver; never an empty list.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let addresses: Vec<_> = match &self.host {
            Host::Ip(ip) => vec![SocketAddr::new(*ip, self.port)],
            Host::Name(name) => (name.as_str(), self.port).to_socket_addrs()?.collect(),
        };
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        Ok(addresses)
    }

    /// The same endpoint with another host and port, as when the system has chosen the port.
    #[must_use]
    pub fn at(&self, address: SocketAddr) -> Self {
        Self { transport: self.transport.clone(), host: Host::Ip(address.ip()), port: address.port() }
    }
}

impl Transport {
    /// The word before the colon.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::FastUdp => "fast+udp",
            Self::FastDpdk { .. } => "fast+dpdk",
        }
    }
}

impl Display for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:host={}", self.transport.name(), self.host)?;
        if let Transport::FastDpdk { mac, .. } = &self.transport {
            write!(f, ",mac={mac}")?;
        }
        write!(f, ",port={}", self.port)?;
        if let Transport::FastDpdk { dev: Some(dev), .. } = &self.transport {
            write!(f, ",dev={dev}")?;
        }
        Ok(())
    }
}

impl Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02X}:{b:02X}:{c:02X}:{d:02X}:{e:02X}:{g:02X}")
    }
}

impl FromStr for Locator {
    type Err = LocatorError;

    fn from_str(text: &str) -> Result<Self, LocatorError> {
        parse(text).map_err(|fault| LocatorError { text: text.chars().take(MAX_TEXT).collect(), fault })
    }
}

/// The values of a locator's keys, before it is known that all are there.
#[derive(Default)]
struct Parts {
    host: Option<Host>,
    port: Option<u16>,
    mac: Option<Mac>,
    dev: Option<String>,
}

fn parse(text: &str) -> Result<Locator, Fault> {
    if text.len() > MAX_TEXT {
        return Err(Fault::TooLong(text.len()));
    }
    let (word, rest) = text.trim().split_once(':').ok_or(Fault::NoTransport)?;
    let (name, keys): (&'static str, &'static str) = match word {
        "tcp" => ("tcp", "host and port"),
        "fast+udp" => ("fast+udp", "host and port"),
        "fast+dpdk" => ("fast+dpdk", "host, mac, port and dev"),
        _ if word.contains('=') => return Err(Fault::NoTransport),
        _ => {
            let suggestion = nearest(word, &["tcp", "fast+udp", "fast+dpdk", "udp", "dpdk"]).map(|word| match word {
                "udp" => "fast+udp",
                "dpdk" => "fast+dpdk",
                word => word,
            });
            return Err(Fault::Transport { found: word.to_owned(), suggestion });
        }
    };
    let dpdk = name == "fast+dpdk";

    let mut parts = Parts::default();
    for pair in rest.split(',') {
        let (key, value) = pair.split_once('=').ok_or_else(|| Fault::NotAPair(pair.to_owned()))?;
        let (key, value) = (key.trim(), value.trim());
        match key {
            "host" => set(&mut parts.host, "host", host(value)?)?,
            "port" => set(&mut parts.port, "port", port(value)?)?,
            "mac" if dpdk => set(&mut parts.mac, "mac", mac(value)?)?,
            "dev" if dpdk => set(&mut parts.dev, "dev", device(value)?)?,
            "mac" => return Err(Fault::OnlyDpdk { transport: name, key: "mac" }),
            "dev" => return Err(Fault::OnlyDpdk { transport: name, key: "dev" }),
            _ => {
                let known: &[_] = if dpdk { &["host", "port", "mac", "dev"] } else { &["host", "port"] };
                let suggestion = nearest(key, known);
                return Err(Fault::Key { transport: name, found: key.to_owned(), suggestion, keys });
            }
        }
    }

    let host = parts.host.ok_or(Fault::Missing { key: "host", example: "127.0.0.1" })?;
    let port = parts.port.ok_or(Fault::Missing { key: "port", example: "11100" })?;
    let transport = match name {
        "tcp" => Transport::Tcp,
        "fast+udp" => Transport::FastUdp,
        _ => {
            let mac = parts.mac.ok_or(Fault::Missing { key: "mac", example: "94:DE:80:AB:01:79" })?;
            Transport::FastDpdk { mac, dev: parts.dev }
        }
    };
    Ok(Locator { transport, host, port })
}

fn set<T>(slot: &mut Option<T>, key: &'static str, value: T) -> Result<(), Fault> {
    if slot.replace(value).is_some() {
        return Err(Fault::Twice(key));
    }
    Ok(())
}

fn host(text: &str) -> Result<Host, Fault> {
    let fault = |wanted| Err(Fault::Value { key: "host", found: text.to_owned(), wanted });
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
            Err(_) => fault("an IPv6 address, such as ::1; the port is a part of its own: `,port=11100`"),
        };
    }
    // What has only digits and dots is meant to be an address, not a name.
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
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    if text.len() > MAX_NAME || !text.strip_suffix('.').unwrap_or(text).split('.').all(label) {
        return fault("a host: an IPv4 or IPv6 address or a name of letters, digits, `-` and `.`");
    }
    Ok(Host::Name(text.to_owned()))
}

fn port(text: &str) -> Result<u16, Fault> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or_else(|| Fault::Value {
        key: "port",
        found: text.to_owned(),
        wanted: "a port: a number from 0 to 65535, such as 11100",
    })
}

fn mac(text: &str) -> Result<Mac, Fault> {
    let fault = || Fault::Value {
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

fn device(text: &str) -> Result<String, Fault> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
    if text.is_empty() || text.len() > MAX_NAME || !text.bytes().all(plain) {
        let wanted = "a device, such as net_memif0 or 0000:01:00.0";
        return Err(Fault::Value { key: "dev", found: text.to_owned(), wanted });
    }
    Ok(text.to_owned())
}

/// The word of `known` that takes the fewest edits to reach, if few enough.
fn nearest(word: &str, known: &[&'static str]) -> Option<&'static str> {
    let word = word.trim().to_ascii_lowercase();
    known
        .iter()
        .map(|&known| (edits(word.as_bytes(), known.as_bytes()), known))
        .filter(|&(edits, known)| edits <= MAX_EDITS && edits < known.len())
        .min_by_key(|&(edits, _)| edits)
        .map(|(_, known)| known)
}

/// Levenshtein distance: insertions, deletions and replacements from `a` to `b`.
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
