//! Helpers of the drivers' tests.

#![allow(dead_code, reason = "each test takes what it needs")]

pub(crate) mod network;

pub(crate) use sprat_testing::PATIENCE;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::Instant;

use sprat_net::{Driver, Transmit};

pub(crate) const LOOPBACKS: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

pub(crate) fn at(address: &str) -> SocketAddr {
    address.parse().expect("an address")
}

/// A frame of `len` bytes whose contents depend on its number.
pub(crate) fn frame(number: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| number.wrapping_mul(31).wrapping_add(i * 7 + (i >> 8)).to_le_bytes()[0])
        .collect()
}

/// Calls `step` until it returns true. `awaited` names the awaited event, for messages.
pub(crate) fn until(awaited: &str, mut step: impl FnMut() -> bool) {
    let start = Instant::now();
    while !step() {
        assert!(start.elapsed() < PATIENCE, "waited too long until {awaited}");
        std::thread::yield_now();
    }
}

/// Sends one frame, in uneven parts.
pub(crate) fn send<T: Transmit>(tx: &mut T, peer: SocketAddr, frame: &[u8]) {
    let (head, tail) = frame.split_at(frame.len() / 3);
    tx.send(peer, &[IoSlice::new(head), IoSlice::new(&[]), IoSlice::new(tail)]);
}

/// Receives the frames that have arrived, each with its sender.
pub(crate) fn take<D: Driver>(driver: &mut D) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut frames = Vec::new();
    let count = driver
        .receive(&mut |_, peer, frame| frames.push((peer, frame.to_vec())))
        .expect("receives");
    assert_eq!(count, frames.len());
    frames
}

/// Sends all received frames back, and returns how many.
pub(crate) fn echo<D: Driver>(driver: &mut D) -> usize {
    let count = driver
        .receive(&mut |tx, peer, frame| tx.send(peer, &[IoSlice::new(frame)]))
        .expect("receives");
    driver.tx().flush();
    count
}

/// Sends frames of `sizes` from `client` to `server`, which sends them back. Checks that all frames
/// return complete and in order.
pub(crate) fn exchange<C: Driver, S: Driver>(
    client: &mut C,
    server: &mut S,
    to: SocketAddr,
    sizes: &[usize],
) {
    // At most as many frames are in flight as a socket's buffer holds.
    let mut number = 0;
    for burst in sizes.chunks(32) {
        let frames: Vec<_> = burst
            .iter()
            .map(|&len| {
                number += 1;
                frame(number, len)
            })
            .collect();
        for frame in &frames {
            send(client.tx(), to, frame);
        }
        client.tx().flush();
        let mut back = Vec::new();
        until("all frames are back", || {
            echo(server);
            back.extend(take(client));
            back.len() >= frames.len()
        });
        assert_eq!(back.len(), frames.len());
        for ((peer, back), frame) in back.iter().zip(&frames) {
            assert_eq!(peer.port(), to.port());
            assert!(back == frame, "sent {} bytes, got {}", frame.len(), back.len());
        }
    }
}
