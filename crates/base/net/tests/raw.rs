//! Tests raw devices, with whole frames over a memory interface in one process.

use crate::common;
use std::io::IoSlice;
use std::path::Path;

use common::{frame, until};
use sprat_net::bypass::RawDevice;

fn open(folder: &Path, role: &str) -> RawDevice {
    let socket = folder.join("memif.sock");
    let device = format!("net_memif0,role={role},socket={},socket-abstract=no", socket.display());
    RawDevice::open(&device, Some(1500)).unwrap_or_else(|error| panic!("{error}"))
}

fn poll(devices: [&mut RawDevice; 2]) {
    for device in devices {
        device.poll().expect("no interface can be removed below a memory interface");
    }
}

#[test]
fn frames_for_anybody_pass_as_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut one, mut other) = (open(folder.path(), "server"), open(folder.path(), "client"));
    assert!(!one.send(&[IoSlice::new(&frame(0, 60))]), "there is no peer");
    until("both have met", || {
        poll([&mut one, &mut other]);
        one.is_up() && other.is_up()
    });
    // A device may be used on another thread than the one that opened it.
    let one = std::thread::spawn(move || {
        for (number, len) in (1..).zip([14, 60, 1000, 1514]) {
            let frame = frame(number, len);
            let (head, tail) = frame.split_at(len / 3);
            assert!(one.send(&[IoSlice::new(head), IoSlice::new(tail)]));
        }
        assert!(!one.send(&[IoSlice::new(&[0; 3000])]), "too long");
        one.poll().expect("no interface can be removed below a memory interface");
        one
    });
    let one = one.join().expect("sent");
    for (number, len) in (1..).zip([14, 60, 1000, 1514]) {
        until("a frame comes", || {
            other.poll().expect("no interface can be removed below a memory interface");
            other
                .receive()
                .map(|got| assert!(got == frame(number, len), "frame {number}"))
                .is_some()
        });
    }
    assert!(other.receive().is_none());
    drop(one);
    until("the other has noticed", || {
        other.poll().expect("no interface can be removed below a memory interface");
        !other.is_up()
    });
    assert!(!other.send(&[IoSlice::new(&frame(0, 60))]), "there is no peer");
}

/// The next peer does not get frames that the previous peer did not read.
#[test]
fn what_waits_for_a_peer_that_goes_is_dropped_and_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut one, mut other) = (open(folder.path(), "server"), open(folder.path(), "client"));
    until("both have met", || {
        poll([&mut one, &mut other]);
        one.is_up() && other.is_up()
    });
    let mut taken = 0_u64;
    while one.send(&[IoSlice::new(&frame(taken, 100))]) {
        taken += 1;
        assert!(taken < 10_000, "the device accepts frames without a limit");
    }
    drop(other);
    until("it has noticed", || {
        one.poll().expect("no interface can be removed below a memory interface");
        !one.is_up()
    });
    assert!((1..taken).contains(&one.discarded()), "{} of {taken}", one.discarded());
    let mut next = open(folder.path(), "client");
    until("both have met", || {
        poll([&mut one, &mut next]);
        one.is_up() && next.is_up()
    });
    for _ in 0..100 {
        poll([&mut one, &mut next]);
        assert!(next.receive().is_none(), "the frames of the earlier peer are gone");
    }
}
