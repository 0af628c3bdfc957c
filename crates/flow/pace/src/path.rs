//! The kernel's statistics of a connection's path, and socket options that affect it.

use crate::sys;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBufForce, SndBufForce};
use socket2::SockRef;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Limit on the socket buffer that is requested, in bytes: 1.7 times the bytes in flight at 5 Gb/s
/// over 500 ms. A larger request is reduced to this. Kernels grant no more than 1 GiB.
pub const MAX_BUFFER: usize = 512 << 20;

/// The part of the kernel's `struct tcp_info` that is used here. Fields that an older kernel does
/// not fill in stay zero.
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
    dsack_duplicates: u32,
    reordered: u32,
    out_of_order: u32,
    send_window: u32,
}

const _: () = assert!(size_of::<Raw>() == 232, "as in linux/tcp.h");

/// The kernel's statistics of a connection (`TCP_INFO`) at one moment. Counters start with the
/// connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Path {
    /// Bytes of a full segment.
    pub mss: u32,
    /// Smoothed round-trip time; zero before the first measurement.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_variation: Duration,
    /// Minimum round-trip time of the last minutes; zero before the first measurement.
    pub min_rtt: Duration,
    /// Congestion window in segments.
    pub cwnd: u32,
    /// Segments sent and not yet acknowledged in order. Includes segments that are considered lost,
    /// and those that arrived out of order.
    pub unacked: u32,
    /// Segments that are considered lost and have not been retransmitted yet.
    pub lost: u32,
    /// Bytes acknowledged.
    pub acked: u64,
    /// Bytes received in order.
    pub received: u64,
    /// Segments that have reached the other end, whether or not in order.
    pub delivered: u32,
    /// Those of the `delivered` segments that had a congestion mark (ECN).
    pub marked: u32,
    /// Bytes of payload sent, including retransmissions.
    pub sent: u64,
    /// Bytes retransmitted.
    pub retransmitted: u64,
    /// Bytes in the send buffer that wait for their first transmission.
    pub not_sent: u32,
    /// The last measurement of the delivery rate, in bytes a second.
    pub delivery_rate: u64,
    /// Whether a lack of bytes to send limited that measurement, rather than the path.
    pub app_limited: bool,
    /// The rate at which the kernel sends, in bytes a second.
    pub pacing_rate: u64,
    /// The other end's window in bytes; zero if the kernel does not report it (before 5.4).
    pub send_window: u32,
    /// Time for which the receiver's window limited the sender.
    pub window_limited: Duration,
    /// Time for which the sender's own buffer limited the sender.
    pub buffer_limited: Duration,
    /// Round-trip time that the receiver measured; zero if unknown.
    pub receive_rtt: Duration,
    /// Segments that arrived out of order.
    pub out_of_order: u32,
}

impl Path {
    /// Reads the kernel's statistics of a connection.
    /// # Errors
    /// The socket is not TCP.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let mut raw = Raw::new_zeroed();
        sys::tcp_info(socket, raw.as_mut_bytes())?;
        let micros = |value: u32| Duration::from_micros(value.into());
        Ok(Self {
            mss: raw.send_mss,
            rtt: micros(raw.rtt),
            rtt_variation: micros(raw.rtt_variation),
            // The kernel reports all ones before the first measurement.
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

/// Limits the rate at which the kernel sends on this connection, in bytes a second. `None` removes
/// the limit. The `fq` queueing discipline is not needed.
///
/// # Errors
/// The kernel does not support the option (`SO_MAX_PACING_RATE`) for this socket.
pub fn limit_rate(socket: impl AsFd, rate: Option<u64>) -> io::Result<()> {
    sys::limit_pacing_rate(socket, rate.unwrap_or(u64::MAX))
}

/// One of the two buffers of a socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Buffer {
    /// The buffer of bytes that were received and not yet read. Set its size before you connect or
    /// listen: the window scale is negotiated when the connection is established.
    Receive,
    /// The buffer of bytes that were written and not yet acknowledged.
    Send,
}

/// Lets a socket's buffer grow to `bytes`, reduced to [`MAX_BUFFER`]. Returns the number of bytes
/// to which it may grow.
///
/// With CAP_NET_ADMIN there is no other limit. Without it, `bytes` is also reduced to
/// `net.core.rmem_max` or `wmem_max`. If the kernel's automatic tuning (`tcp_rmem`, `tcp_wmem`) may
/// then grow the buffer at least to `bytes`, this function leaves the size to the tuning.
/// # Errors
/// The socket does not support the option.
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
    // The kernel doubles the requested size, to have room for its own structures. The limits of its
    // tuning already include that room.
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

/// Reads the last number of a setting below `/proc/sys/net`.
fn last_number(name: &str) -> Option<usize> {
    let text = std::fs::read_to_string(format!("/proc/sys/net/{name}")).ok()?;
    text.split_whitespace().next_back()?.parse().ok()
}

/// Limit on the bytes in the send buffer that wait for their first transmission: a few milliseconds
/// of the fastest path. More bytes do not help. They take TCP memory from the whole machine, and
/// the kernel shrinks all windows when that memory runs low.
pub const MAX_UNSENT: u32 = 16 << 20;

/// Prepares a socket for sending at a high rate over a long path. Its buffer may grow to `buffer`
/// bytes, as far as [`enlarge`] allows. At most `unsent` of these bytes wait for their first
/// transmission. Returns the number of bytes to which the buffer may grow.
/// # Errors
/// The socket is not TCP.
pub fn prepare_sender(socket: impl AsFd, buffer: usize, unsent: u32) -> io::Result<usize> {
    SockRef::from(&socket).set_tcp_notsent_lowat(unsent)?;
    enlarge(socket, Buffer::Send, buffer)
}

/// Selects the congestion control of a connection by name.
/// # Errors
/// The kernel has no congestion control of this name, or does not allow it to this process.
pub fn set_congestion_control(socket: impl AsFd, name: &str) -> io::Result<()> {
    SockRef::from(&socket).set_tcp_congestion(name.as_bytes())
}

/// Returns the name of a connection's congestion control.
/// # Errors
/// The socket is not TCP.
pub fn congestion_control(socket: impl AsFd) -> io::Result<String> {
    let name = SockRef::from(&socket).tcp_congestion()?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}
