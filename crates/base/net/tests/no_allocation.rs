//! Tests that drivers allocate nothing once their buffers have grown.

#![expect(unsafe_code, reason = "an allocator can be counted only by being one")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::IoSlice;

use common::{LOOPBACKS, at, until};
use sprat_net::{AnyDriver, Driver, DriverRole, Tcp, Transmit, Udp};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: all calls are forwarded to the system's allocator, and the counter allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller upholds the contract of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the number of allocations of this thread while `work` runs.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

fn rounds(client: &mut AnyDriver, server: &mut AnyDriver, count: usize) {
    let to = server.local_addr();
    let frame = vec![7; client.tx().mtu(to).min(40_000)];
    for round in 0..count {
        let burst = 1 + round % 8;
        for _ in 0..burst {
            client.tx().send(to, &[IoSlice::new(&frame[..100]), IoSlice::new(&frame[..28])]);
        }
        client.tx().send(to, &[IoSlice::new(&frame)]);
        client.tx().flush();
        let mut back = 0;
        until("all are back", || {
            server
                .receive(&mut |tx, peer, frame| tx.send(peer, &[IoSlice::new(frame)]))
                .expect("receives");
            server.tx().flush();
            back += client.receive(&mut |_, _, _| {}).expect("receives");
            back == burst + 1
        });
    }
}

#[test]
fn warm_drivers_allocate_nothing() {
    assert!(allocations(|| drop(std::hint::black_box(vec![1u8]))) > 0, "allocations are counted");
    for address in LOOPBACKS {
        let address = at(address);
        let udp =
            (Udp::bind(address).expect("binds").into(), Udp::bind(address).expect("binds").into());
        let tcp = (
            Tcp::connect_only().expect("opens").into(),
            Tcp::listen(address).expect("listens").into(),
        );
        let folder = tempfile::tempdir().expect("a folder");
        let memif = |host: &str, role: &str| {
            let socket = folder.path().join("memif.sock");
            let device =
                format!("net_memif0,role={role},socket={},socket-abstract=no", socket.display());
            let locator =
                format!("fast+dpdk:host={host},port=7,dev={device}").parse().expect("a locator");
            AnyDriver::open(&locator, DriverRole::Listen).expect("opens")
        };
        let hosts =
            if address.is_ipv4() { ["10.9.0.1", "10.9.0.2"] } else { ["fd00::1", "fd00::2"] };
        let memif = (memif(hosts[0], "client"), memif(hosts[1], "server"));
        for (mut client, mut server) in [udp, tcp, memif] {
            rounds(&mut client, &mut server, 100);
            // One allocation for the frame itself.
            assert_eq!(allocations(|| rounds(&mut client, &mut server, 200)), 1);
        }
    }
}
