//! Finds out what a packet requests and what it answers.

use crate::frame::{Network, Packet};

const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Bytes of a TCP header without options.
const TCP_BYTES: usize = 20;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// The parts of a packet that matter for round trips.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Probe {
    /// TCP with time stamps.
    Stamped {
        /// The time stamp of the sender's clock.
        value: u32,
        /// The time stamp that the packet answers. `None` if the packet is no acknowledgement.
        echo: Option<u32>,
        /// Whether the packet carries data, a SYN or a FIN, all of which the receiver acknowledges.
        payload: bool,
    },
    /// TCP without time stamps.
    Unstamped {
        /// The acknowledgement number that will answer the packet. `None` if the packet has no
        /// content.
        end: Option<u32>,
        /// The packet's own acknowledgement number. `None` if the packet is no acknowledgement.
        ack: Option<u32>,
    },
    /// An echo request, with its identifier and sequence number.
    EchoRequest(u32),
    /// An echo reply, with its identifier and sequence number.
    EchoReply(u32),
}

/// Returns what a packet requests and answers. `None` if it does neither.
pub(super) fn probe(packet: &Packet) -> Option<Probe> {
    let frame = packet.frame();
    let head = packet.ethernet().next()?;
    let transport = usize::from(frame.transport_at);
    match (frame.flow.protocol, frame.network) {
        // In fragments and broken packets, no transport header was found.
        (TCP, Network::V4 | Network::V6) => {
            let tcp = head.get(transport..usize::from(frame.headers))?;
            let more = frame.segments.count > 1;
            probe_tcp(tcp, more, || {
                payload(
                    head,
                    usize::from(frame.network_at),
                    usize::from(frame.headers),
                    frame.network,
                )
            })
        }
        (ICMP, Network::V4) => probe_icmp(head.get(transport..)?, 8, 0),
        (ICMPV6, Network::V6) => probe_icmp(head.get(transport..)?, 128, 129),
        _ => None,
    }
}

fn probe_tcp(tcp: &[u8], more: bool, payload: impl Fn() -> u32) -> Option<Probe> {
    let fixed: &[u8; TCP_BYTES] = tcp.first_chunk()?;
    let flags = fixed[13];
    if flags & RST != 0 {
        return None;
    }
    let acked = flags & ACK != 0;
    let counts = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
    if let Some((value, echo)) = time_stamps(&tcp[TCP_BYTES..]) {
        let payload = more || counts > 0 || payload() > 0;
        return Some(Probe::Stamped { value, echo: acked.then_some(echo), payload });
    }
    let brought = payload() + counts;
    let end = (brought > 0).then(|| number(fixed, 4).wrapping_add(brought));
    Some(Probe::Unstamped { end, ack: acked.then(|| number(fixed, 8)) })
}

/// Returns the time stamps among TCP's options: the sender's own, and the one that it echoes.
fn time_stamps(options: &[u8]) -> Option<(u32, u32)> {
    // Nearly all senders align the option in this way.
    if let [1, 1, 8, 10, stamps @ ..] = options
        && stamps.len() >= 8
    {
        return Some((number(stamps, 0), number(stamps, 4)));
    }
    let mut left = options;
    // Each iteration consumes at least one byte, and there are at most 40.
    loop {
        match left {
            [1, rest @ ..] => left = rest,
            [8, 10, stamps @ ..] if stamps.len() >= 8 => {
                return Some((number(stamps, 0), number(stamps, 4)));
            }
            [kind, length, ..] if *kind != 0 && *length >= 2 => {
                left = left.get(usize::from(*length)..)?
            }
            _ => return None,
        }
    }
}

fn probe_icmp(icmp: &[u8], request: u8, reply: u8) -> Option<Probe> {
    let fixed: &[u8; 8] = icmp.first_chunk()?;
    match fixed[0] {
        kind if kind == request => Some(Probe::EchoRequest(number(fixed, 4))),
        kind if kind == reply => Some(Probe::EchoReply(number(fixed, 4))),
        _ => None,
    }
}

/// Returns the number of bytes behind the headers, by IP's length: a short frame also has padding.
fn payload(head: &[u8], network: usize, headers: usize, kind: Network) -> u32 {
    let word = |at: usize| {
        head.get(at..at + 2).map_or(0, |word| usize::from(u16::from_be_bytes([word[0], word[1]])))
    };
    let end = match kind {
        Network::V4 => network + word(network + 2),
        _ => network + 40 + word(network + 4),
    };
    u32::try_from(end.saturating_sub(headers)).unwrap_or(0)
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
