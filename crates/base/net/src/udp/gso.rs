//! Gathers small frames until the flush, and forms runs of them, each sent in one system call
//! (generic segmentation offload).

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};

/// The largest number of frames gathered. A frame that would exceed it makes the driver send the
/// gathered frames without waiting for the flush.
const MAX_FRAMES: usize = 256;

/// The largest number of bytes gathered. A frame that would exceed it makes the driver send the
/// gathered frames without waiting for the flush.
const STAGE_BYTES: usize = 128 << 10;

/// The largest number of segments that every kernel takes in one call with segmentation offload.
/// This is `UDP_MAX_SEGMENTS` of old kernels.
pub(super) const MAX_SEGMENTS: usize = 64;

/// The largest number of frames to different peers that are sent in one call.
pub(super) const MAX_DISTINCT: usize = 32;

/// The largest number of bytes in a run, which one call sends by segmentation offload. If a run has
/// 64 KiB or more with headers, the kernel segments it in software, at three times the cost. The
/// headers of Ethernet, IPv6 and UDP have 62 bytes.
const RUN_BYTES: usize = (64 << 10) - 1 - 62;

/// Linux's `SOL_UDP` and `UDP_SEGMENT`.
const SOL_UDP: i32 = 17;
const UDP_SEGMENT: i32 = 103;

/// Length of a `cmsghdr` in bytes: a `size_t` and two `int`.
const CMSG_HEADER: usize = size_of::<usize>() + 8;

/// Length in bytes of a control message that carries a `u16`, with the padding that `CMSG_SPACE`
/// adds.
pub(super) const SEGMENT_CONTROL: usize = CMSG_HEADER + size_of::<usize>();

/// A frame that waits for the flush.
#[derive(Clone, Copy)]
struct Staged {
    peer: SocketAddr,
    /// A hash of the peer's address, which distinguishes most peers cheaply.
    peer_hash: u64,
    start: usize,
    len: usize,
    sent: bool,
}

/// Frames that wait for the flush, in the order in which they were passed to `send`.
pub(super) struct Stage {
    bytes: Box<[u8]>,
    used: usize,
    frames: Vec<Staged>,
    /// The index of the first frame that may not be sent yet. All frames before it have been sent.
    first: usize,
}

/// Frames to one peer that are sent in one call. All have the length of the first, except that the
/// last may be shorter. Each frame is a slice, so frames to other peers may lie between them
/// without a copy.
pub(super) struct Run<'a> {
    pub(super) peer: SocketAddr,
    pub(super) segment: usize,
    pub(super) bytes: usize,
    count: usize,
    slices: [IoSlice<'a>; MAX_SEGMENTS],
}

impl<'a> Run<'a> {
    /// Returns the frames, one in each slice.
    pub(super) fn frames(&self) -> &[IoSlice<'a>] {
        &self.slices[..self.count]
    }
}

impl Stage {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; STAGE_BYTES].into(),
            used: 0,
            frames: Vec::with_capacity(MAX_FRAMES),
            first: 0,
        }
    }

    /// Returns whether a frame of `len` bytes still fits.
    pub(super) fn fits(&self, len: usize) -> bool {
        self.frames.len() < MAX_FRAMES && self.used + len <= STAGE_BYTES
    }

    /// Copies one frame of `len` bytes into the stage.
    pub(super) fn push(&mut self, peer: SocketAddr, parts: &[IoSlice<'_>], len: usize) {
        assert!(self.fits(len));
        let start = self.used;
        for part in parts {
            self.bytes[self.used..][..part.len()].copy_from_slice(part);
            self.used += part.len();
        }
        assert_eq!(self.used - start, len);
        self.frames.push(Staged { peer, peer_hash: peer_hash(peer), start, len, sent: false });
    }

    /// Takes the next run of frames to `only`, or to the peer of the oldest frame. Frames to one
    /// peer keep their order.
    pub(super) fn next_run(&mut self, only: Option<SocketAddr>) -> Option<Run<'_>> {
        while self.frames.get(self.first).is_some_and(|frame| frame.sent) {
            self.first += 1;
        }
        let wanted = |frame: &Staged| !frame.sent && only.is_none_or(|peer| frame.peer == peer);
        let first = self.first + self.frames[self.first..].iter().position(wanted)?;
        let Staged { peer, peer_hash, len: segment, .. } = self.frames[first];
        let mut run =
            Run { peer, segment, bytes: 0, count: 0, slices: [IoSlice::new(&[]); MAX_SEGMENTS] };
        for frame in &mut self.frames[first..] {
            if frame.peer_hash != peer_hash || frame.sent || frame.peer != peer {
                continue;
            }
            if frame.len > segment || run.bytes + frame.len > RUN_BYTES {
                break;
            }
            frame.sent = true;
            run.slices[run.count] = IoSlice::new(&self.bytes[frame.start..][..frame.len]);
            run.count += 1;
            run.bytes += frame.len;
            if run.count == MAX_SEGMENTS || frame.len < segment {
                break;
            }
        }
        Some(run)
    }

    /// Returns the frames and marks them as sent, if there are 2 to [`MAX_DISTINCT`] and each is to
    /// a different peer, for example when many peers get a reply at once. Otherwise returns `None`.
    pub(super) fn distinct_peers(&mut self) -> Option<impl Iterator<Item = (SocketAddr, &[u8])>> {
        if !(2..=MAX_DISTINCT).contains(&self.frames.len()) || self.first > 0 {
            return None;
        }
        let is_alone = |(at, frame): (usize, &Staged)| {
            !frame.sent && self.frames[..at].iter().all(|other| other.peer_hash != frame.peer_hash)
        };
        if !self.frames.iter().enumerate().all(is_alone) {
            return None;
        }
        self.frames.iter_mut().for_each(|frame| frame.sent = true);
        Some(self.frames.iter().map(|frame| (frame.peer, &self.bytes[frame.start..][..frame.len])))
    }

    /// Empties the stage after everything was sent.
    pub(super) fn clear(&mut self) {
        debug_assert!(self.frames.iter().all(|frame| frame.sent));
        self.frames.clear();
        self.used = 0;
        self.first = 0;
    }

    /// Returns the frame and marks it as sent, if there is only one and it is not sent yet, for
    /// example the reply to a single request.
    pub(super) fn single(&mut self) -> Option<(SocketAddr, &[u8])> {
        match self.frames.as_mut_slice() {
            [frame] if !frame.sent => {
                frame.sent = true;
                Some((frame.peer, &self.bytes[frame.start..][..frame.len]))
            }
            _ => None,
        }
    }
}

/// Returns a hash of a peer's address, which is rarely equal for two peers.
fn peer_hash(peer: SocketAddr) -> u64 {
    let ip = match peer.ip() {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => {
            let [a, b, c, d, e, f, g, h] = v6.segments().map(u64::from);
            (a ^ e) << 48 ^ (b ^ f) << 32 ^ (c ^ g) << 16 ^ d ^ h
        }
    };
    ip ^ u64::from(peer.port()) << 48
}

/// Returns the control message that makes the kernel cut a send into segments of `segment` bytes.
pub(super) fn segment_control(segment: usize) -> [u8; SEGMENT_CONTROL] {
    let segment = u16::try_from(segment).expect("a segment fits a datagram");
    let mut control = [0; SEGMENT_CONTROL];
    let (len, rest) = control.split_at_mut(size_of::<usize>());
    len.copy_from_slice(&(CMSG_HEADER + size_of::<u16>()).to_ne_bytes());
    rest[..4].copy_from_slice(&SOL_UDP.to_ne_bytes());
    rest[4..8].copy_from_slice(&UDP_SEGMENT.to_ne_bytes());
    rest[8..10].copy_from_slice(&segment.to_ne_bytes());
    control
}
