//! What the kernel knows of a connection's path, and what it may be asked to do there.

use crate::sys;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBufForce, SndBufForce};
use socket2::SockRef;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Most bytes that a socket's buffer is asked to hold: 5 Gb/s over 500 ms, and half again. Kernels
/// take no more than 1 GiB.
pub const MAX_BUFFER: usize = 512 << 20;

/// The kernel's `struct tcp_info`, as far as we read it; older kernels fill in less, and the rest
/// stays zero.
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
struct Raw {
    state: u8,
    ca_state: u8,
    retransmits: u8,
    probes: u8,
    backoff: u8,
    options: u8,
    scales: u8,
    flags: u8,
    times: [u32; 2],
    send_mss: u32,
    receive_mss: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retransmitting: u32,
    fackets: u32,
    lasts: [u32; 4],
    pmtu: u32,
    receive_ssthresh: u32,
    rtt: u32,
    rtt_variation: u32,
    send_ssthresh: u32,
    cwnd: u32,
    advertised_mss: u32,
    reordering: u32,
    receive_rtt: u32,
    receive_space: u32,
    total_retransmits: u32,
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    bytes_received: u64,
    segments_out: u32,
    segments_in: u32,
    not_sent: u32,
    min_rtt: u32,
    data_segments_in: u32,
    data_segments_out: u32,
    delivery_rate: u64,
    busy: u64,
    receive_window_limited: u64,
    send_buffer_limited: u64,
    delivered: u32,
    delivered_ce: u32,
    bytes_sent: u64,
    bytes_retransmitted: u64,
    duplicates_told: u32,
    reordered: u32,
    out_of_order: u32,
    send_window: u32,
}

const _: () = assert!(size_of::<Raw>() == 232, "as in linux/tcp.h");

/// What the kernel knows of a connection (`TCP_INFO`), at one moment. Counters run from its
/// beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Path {
    /// Bytes of a full segment.
    pub mss: u32,
    /// Smoothed round-trip time; zero before the first.
    pub rtt: Duration,
    /// How far round-trip times vary about that.
    pub rtt_variation: Duration,
    /// The least round-trip time of the kernel's window of some minutes; zero before the first.
    pub min_rtt: Duration,
    /// Congestion window, segments.
    pub cwnd: u32,
    /// Segments on the way, as far as the sender knows.
    pub unacked: u32,
    /// Segments taken for lost and not yet sent again.
    pub lost: u32,
    /// Bytes acknowledged.
    pub acked: u64,
    /// Bytes received in order.
    pub received: u64,
    /// Segments that have reached the other end, in order or not.
    pub delivered: u32,
    /// Of those, with a mark of congestion (ECN).
    pub marked: u32,
    /// Bytes of payload sent, those sent again too.
    pub sent: u64,
    /// Bytes sent again.
    pub retransmitted: u64,
    /// Bytes that wait in the send buffer for their first sending.
    pub not_sent: u32,
    /// The rate of delivery that was measured last, bytes a second.
    pub delivery_rate: u64,
    /// Whether that says nothing of the path, for there was no more to send.
    pub app_limited: bool,
    /// The rate that the kernel sends at, bytes a second.
    pub pacing_rate: u64,
    /// The other end's window, bytes; zero when the kernel does not tell (before 5.4).
    pub send_window: u32,
    /// How long the other end's window was what kept the sender back.
    pub window_limited: Duration,
    /// How long its own buffer was.
    pub buffer_limited: Duration,
    /// Round-trip time as a receiver sees it; zero when not known.
    pub receive_rtt: Duration,
    /// Segments that a receiver got out of order.
    pub out_of_order: u32,
}

impl Path {
    /// Asks the kernel.
    ///
    /// # Errors
    /// The socket is not of TCP.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let mut raw = Raw::new_zeroed();
        sys::tcp_info(socket, raw.as_mut_bytes())?;
        let micros = |value: u32| Duration::from_micros(value.into());
        Ok(Self {
            mss: raw.send_mss,
            rtt: micros(raw.rtt),
            rtt_variation: micros(raw.rtt_variation),
            // The kernel says "none yet" by all ones.
            min_rtt: if raw.min_rtt == u32::MAX { Duration::ZERO } else { micros(raw.min_rtt) },
            cwnd: raw.cwnd,
            unacked: raw.unacked,
            lost: raw.lost,
            acked: raw.bytes_acked,
            received: raw.bytes_received,
            delivered: raw.delivered,
            marked: raw.delivered_ce,
            sent: raw.bytes_sent,
            retransmitted: raw.bytes_retransmitted,
            not_sent: raw.not_sent,
            delivery_rate: raw.delivery_rate,
            app_limited: raw.flags & 1 != 0,
            pacing_rate: raw.pacing_rate,
            send_window: raw.send_window,
            window_limited: Duration::from_micros(raw.receive_window_limited),
            buffer_limited: Duration::from_micros(raw.send_buffer_limited),
            receive_rtt: micros(raw.receive_rtt),
            out_of_order: raw.out_of_order,
        })
    }
}

/// Sets the most that the kernel may send on this connection, bytes a second; none: no limit. Works
/// without the `fq` queueing discipline.
///
/// # Errors
/// The kernel refuses.
pub fn limit_rate(socket: impl AsFd, rate: Option<u64>) -> io::Result<()> {
    sys::limit_pacing_rate(socket, rate.unwrap_or(u64::MAX))
}

/// The direction of a socket's buffer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Buffer {
    /// What was received and not yet read. To be set before connecting or listening, for the
    /// window's scale is agreed then.
    Receive,
    /// What was written and not yet acknowledged.
    Send,
}

/// Gives a socket a buffer of up to `bytes` (at most [`MAX_BUFFER`]), as far as the system allows:
/// with CAP_NET_ADMIN that much; else what `net.core.rmem_max` or `wmem_max` allow, unless the
/// kernel's own tuning (`tcp_rmem`, `tcp_wmem`) may go further, which then keeps the buffer. Gives
/// the bytes it may grow to.
///
/// # Errors
/// The socket takes no such option.
pub fn enlarge(socket: impl AsFd, buffer: Buffer, bytes: usize) -> io::Result<usize> {
    let bytes = bytes.min(MAX_BUFFER);
    let (forced, core, tcp) = match buffer {
        Buffer::Receive => {
            (setsockopt(&socket, RcvBufForce, &bytes), "core/rmem_max", "ipv4/tcp_rmem")
        }
        Buffer::Send => {
            (setsockopt(&socket, SndBufForce, &bytes), "core/wmem_max", "ipv4/tcp_wmem")
        }
    };
    if forced.is_ok() {
        return Ok(bytes);
    }
    let (core, tuned) = (last_number(core).unwrap_or(0), last_number(tcp).unwrap_or(0));
    let asked = bytes.min(core);
    // The kernel doubles what it is asked for, to pay for its own structures; its tuning's limits
    // are so already.
    if 2 * asked <= tuned {
        return Ok(tuned / 2);
    }
    let socket = SockRef::from(&socket);
    match buffer {
        Buffer::Receive => socket.set_recv_buffer_size(bytes)?,
        Buffer::Send => socket.set_send_buffer_size(bytes)?,
    }
    Ok(asked)
}

/// The last number of a setting under `/proc/sys/net`, if it is there.
fn last_number(name: &str) -> Option<usize> {
    let text = std::fs::read_to_string(format!("/proc/sys/net/{name}")).ok()?;
    text.split_whitespace().next_back()?.parse().ok()
}

/// Bytes that wait in the send buffer for their first sending, at most: a few milliseconds of the
/// fastest path. What lies there beyond that does no good, and takes of the memory that the whole
/// machine has for TCP, which shrinks everybody's windows when it runs low.
pub const MAX_UNSENT: u32 = 16 << 20;

/// Makes a socket ready to send much over a long way: a buffer that may grow to `buffer` bytes for
/// what is under way, as far as [`enlarge`] can have it, and no more than `unsent` bytes waiting in
/// it. Gives the bytes it may grow to.
///
/// # Errors
/// The socket is not of TCP.
pub fn prepare_sender(socket: impl AsFd, buffer: usize, unsent: u32) -> io::Result<usize> {
    SockRef::from(&socket).set_tcp_notsent_lowat(unsent)?;
    enlarge(socket, Buffer::Send, buffer)
}

/// Has the kernel control this connection by the congestion control of that name.
///
/// # Errors
/// There is none, or it is not for everybody.
pub fn set_congestion_control(socket: impl AsFd, name: &str) -> io::Result<()> {
    SockRef::from(&socket).set_tcp_congestion(name.as_bytes())
}

/// The name of the congestion control that the kernel uses on this connection.
///
/// # Errors
/// The socket is not of TCP.
pub fn congestion_control(socket: impl AsFd) -> io::Result<String> {
    let name = SockRef::from(&socket).tcp_congestion()?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}
