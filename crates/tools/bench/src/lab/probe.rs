//! Measures round-trip times by ICMP echo. The far kernel answers without waking a thread, and the
//! near end spins, so the times include no wake-up of a thread.

use std::io::{ErrorKind, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Timeout for a host's first answer: longer than an address resolution and an echo over the
/// longest round trips.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between echoes until the first is answered.
const RETRY_INTERVAL: Duration = Duration::from_millis(1_200);

/// An echo counts as lost this long after the expected round trip.
const LATE: Duration = Duration::from_secs(1);

/// Identifier of our echoes; the namespace has no others.
const IDENTIFIER: u16 = 0x5350;

/// The results of a series of echoes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trips {
    /// Round-trip times, in the order of the answers.
    pub(crate) times: Vec<Duration>,
    /// Echoes without an answer.
    pub(crate) lost: usize,
    /// Answers that arrived after the answer to a later echo.
    pub(crate) overtaken: usize,
}

impl Trips {
    /// Returns the shortest round-trip time, in milliseconds.
    pub(crate) fn least(&self) -> Option<f64> {
        self.times.iter().min().map(|time| time.as_secs_f64() * 1e3)
    }

    /// Returns the mean round-trip time, in milliseconds.
    pub(crate) fn mean(&self) -> Option<f64> {
        let sum: Duration = self.times.iter().sum();
        (!self.times.is_empty()).then(|| sum.as_secs_f64() * 1e3 / self.times.len() as f64)
    }

    /// Returns the longest round-trip time, in milliseconds.
    pub(crate) fn most(&self) -> Option<f64> {
        self.times.iter().max().map(|time| time.as_secs_f64() * 1e3)
    }
}

/// Sends `count` echoes, one every `gap`, and waits for the answers. `expected` is the approximate
/// round-trip time.
pub(crate) fn ping(to: IpAddr, expected: Duration, count: u16, gap: Duration) -> Result<Trips> {
    let socket = Echoes::open(to)?;
    let mut sent = Vec::with_capacity(usize::from(count));
    let (mut trips, mut last, begun) = (Trips::default(), None, Instant::now());
    let end = begun + gap * u32::from(count) + expected + LATE;
    while trips.times.len() < usize::from(count) {
        let now = Instant::now();
        if now >= end {
            break;
        }
        if let Ok(number) = u16::try_from(sent.len())
            && number < count
            && now >= begun + gap * u32::from(number)
        {
            sent.push(Instant::now());
            socket.send(number)?;
        }
        while let Some(number) = socket.receive()? {
            let Some(at) = sent.get(usize::from(number)) else { continue };
            trips.times.push(at.elapsed());
            trips.overtaken += usize::from(last.is_some_and(|last| number < last));
            last = last.max(Some(number));
        }
        std::hint::spin_loop();
    }
    trips.lost = usize::from(count) - trips.times.len();
    Ok(trips)
}

/// Sends echoes until a host answers. Both hosts then know each other's link addresses.
pub(crate) fn wait_for_answer(to: IpAddr) -> Result<()> {
    let begun = Instant::now();
    let socket = Echoes::open(to)?;
    socket.socket.set_nonblocking(false)?;
    socket.socket.set_read_timeout(Some(RETRY_INTERVAL))?;
    while begun.elapsed() < FIRST_ANSWER_TIMEOUT {
        socket.send(0)?;
        if socket.receive()?.is_some() {
            return Ok(());
        }
    }
    bail!("no answer in {} s", FIRST_ANSWER_TIMEOUT.as_secs())
}

/// A raw socket for echoes to one address.
struct Echoes {
    socket: Socket,
    to: SockAddr,
    v6: bool,
}

impl Echoes {
    fn open(to: IpAddr) -> Result<Self> {
        let v6 = to.is_ipv6();
        let (domain, protocol) =
            if v6 { (Domain::IPV6, Protocol::ICMPV6) } else { (Domain::IPV4, Protocol::ICMPV4) };
        let socket = Socket::new(domain, Type::RAW, Some(protocol))
            .context("a raw socket: it needs CAP_NET_RAW")?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, to: SocketAddr::new(to, 0).into(), v6 })
    }

    fn send(&self, number: u16) -> Result<()> {
        let mut message = [0; 64];
        message[0] = if self.v6 { 128 } else { 8 };
        message[4..6].copy_from_slice(&IDENTIFIER.to_be_bytes());
        message[6..8].copy_from_slice(&number.to_be_bytes());
        if !self.v6 {
            let sum = checksum(&message); // for IPv6, the kernel computes it
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        match self.socket.send_to(&message, &self.to) {
            Ok(_) => Ok(()),
            // Either the link address is not known yet, or the queue is full. The echo counts as
            // lost.
            Err(error)
                if matches!(error.kind(), ErrorKind::HostUnreachable | ErrorKind::WouldBlock) =>
            {
                Ok(())
            }
            Err(error) => Err(error).context("sending an echo"),
        }
    }

    /// Returns the number of an answer, if one has arrived.
    fn receive(&self) -> Result<Option<u16>> {
        let (mut buffer, mut socket) = ([0; 256], &self.socket);
        loop {
            let len = match socket.read(&mut buffer) {
                Ok(len) => len,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::HostUnreachable
                    ) =>
                {
                    return Ok(None);
                }
                Err(error) => return Err(error).context("receiving an echo"),
            };
            // For IPv4, the kernel includes the IP header.
            let header = if self.v6 { 0 } else { usize::from(buffer[0] & 15) * 4 };
            let reply = if self.v6 { 129 } else { 0 };
            if let Some(&[kind, _, _, _, a, b, c, d]) = buffer[..len].get(header..header + 8)
                && kind == reply
                && u16::from_be_bytes([a, b]) == IDENTIFIER
            {
                return Ok(Some(u16::from_be_bytes([c, d])));
            }
        }
    }
}

/// Computes the checksum of RFC 1071 over an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let sum: u32 =
        bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((sum & 0xffff) + (sum >> 16)).expect("folded twice")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_memo() {
        // The example of RFC 1071, section 3: the sum is ddf2.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }

    #[test]
    fn figures_of_trips() {
        let ms = Duration::from_millis;
        let trips = Trips { times: vec![ms(3), ms(1), ms(5)], lost: 0, overtaken: 0 };
        assert_eq!((trips.least(), trips.mean(), trips.most()), (Some(1.0), Some(3.0), Some(5.0)));
        assert_eq!(Trips::default().mean(), None);
    }
}
