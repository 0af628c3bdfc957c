//! Tests a driver that has run out of frames.

use std::io::IoSlice;
use std::net::SocketAddr;

use sprat_net::bypass::{Address, BypassDriver};
use sprat_net::{Bypass, Driver as _, Transmit as _};

use crate::net::{alone, cable};
use crate::until;

fn open(host: &str, device: &str) -> BypassDriver {
    let bypass = Bypass { devices: vec![device.to_owned()], ..Bypass::default() };
    BypassDriver::open(&bypass, Address::Own(host.parse().expect("an address"))).expect("it opens")
}

/// Receives all waiting frames, and returns their number.
fn take(driver: &mut BypassDriver) -> usize {
    driver.receive(&mut |_, _, _| {}).expect("it receives")
}

fn send(driver: &mut BypassDriver, to: SocketAddr) {
    driver.tx().send(to, &[IoSlice::new(&[7; 100])]);
    driver.tx().flush();
}

#[test]
fn a_driver_without_frames_counts_what_it_loses_and_recovers() {
    alone(|| {
        cable("s0", "c0").expect("a cable");
        let mut a = open("10.97.0.1:7", "net_af_packet0,iface=s0");
        let mut b = open("10.97.0.2:7", "net_af_packet1,iface=c0");
        let (to_a, to_b) = (a.local_addr(), b.local_addr());
        let meet = |a: &mut BypassDriver, b: &mut BypassDriver| {
            send(a, to_b);
            until("a frame arrives", || {
                take(a);
                take(b) > 0
            });
            send(b, to_a);
            until("one comes back", || take(a) > 0);
        };
        meet(&mut a, &mut b);
        assert_eq!(
            (a.frames_in_use(), b.frames_in_use()),
            (0, 0),
            "none is in use while nothing is on the way"
        );

        let held = b.hold_all();
        assert_eq!(b.frames_in_use(), held.frames());
        assert!(held.frames() > 4000, "{} frames", held.frames());
        let before = *b.counters();
        for _ in 0..10 {
            send(&mut b, to_a);
        }
        assert_eq!(
            b.counters().dropped_full - before.dropped_full,
            10,
            "what cannot be sent is counted"
        );
        for _ in 0..100 {
            send(&mut a, to_b);
        }
        until("the lack of frames is counted", || {
            assert_eq!(take(&mut b), 0, "there is nothing to receive into");
            b.counters().no_buffer > before.no_buffer
        });

        drop(held);
        assert_eq!(b.frames_in_use(), 0, "all are back");
        let mut got = 0;
        until("what the device kept arrives", || {
            got += take(&mut b);
            got == 100
        });
        meet(&mut a, &mut b);
        assert_eq!((a.frames_in_use(), b.frames_in_use()), (0, 0), "none has leaked");
    });
}
