//! Tests memory interfaces against DPDK's own driver for them. The other end, in either role, is
//! DPDK's test program `dpdk-testpmd`, which answers ARP and pings.

use crate::common;
use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::{at, take, until};
use sprat_net::Bypass;
use sprat_net::bypass::{Address, BypassDriver};
use sprat_testing::skip;

/// Far longer than DPDK needs to start.
const START: Duration = Duration::from_secs(60);

/// One test runs at a time, because DPDK spins on cores, and there are few.
static ONE: Mutex<()> = Mutex::new(());

/// DPDK's process at the other end.
struct Peer(Child);

impl Peer {
    fn start(role: &str, socket: &Path, more: &str) -> Option<Self> {
        let device =
            format!("net_memif0,role={role},socket={},socket-abstract=no{more}", socket.display());
        let cores = std::thread::available_parallelism().map_or(0, |count| count.get() - 1);
        let child = Command::new("dpdk-testpmd")
            .args(["--no-huge", "--no-pci", "--no-telemetry", "--no-shconf", "-m", "128"])
            .arg(format!("--lcores=0@(0-{cores}),1@(0-{cores})"))
            .arg(format!("--vdev={device}"))
            .args(["--", "--forward-mode=icmpecho", "--auto-start", "--port-topology=loop"])
            .args(["--total-num-mbufs=2048", "--mbuf-size=9600", "--disable-link-check"])
            .stdin(Stdio::piped()) // the program ends when this is closed
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        match child {
            Ok(child) => Some(Self(child)),
            Err(error) => {
                skip(&format!("memory interfaces against DPDK's own: dpdk-testpmd: {error}"));
                None
            }
        }
    }

    /// Ends the program, and returns all of its output.
    fn end(mut self) -> String {
        let _ = self.0.stdin.take().expect("piped").write_all(b"\n");
        let mut said = String::new();
        let _ = self.0.stdout.take().expect("piped").read_to_string(&mut said);
        let _ = self.0.wait();
        said
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn open(role: &str, socket: &Path) -> BypassDriver {
    let device = format!("net_memif0,role={role},socket={},socket-abstract=no", socket.display());
    let bypass = Bypass { devices: vec![device], ..Bypass::default() };
    BypassDriver::open(&bypass, Address::Own(at("10.9.0.1:7"))).expect("opens")
}

/// Pings of all lengths, and many at once.
fn talk(ours: &mut BypassDriver) {
    let peer: IpAddr = "10.9.0.2".parse().expect("an address");
    // DPDK starts slowly: it takes seconds on a busy machine.
    let start = Instant::now();
    while ours.take_pong().is_none() {
        assert!(start.elapsed() < START, "DPDK's end never answers: {:?}", ours.devices());
        assert_eq!(ours.devices()[0].errors, 0, "{:?}", ours.devices());
        ours.ping(peer, 7777, 64);
        (0..1000).for_each(|_| drop(take(ours)));
    }
    let before = ours.counters().dropped();
    for (number, len) in (1..).zip([4, 64, 1000, 1472, 4000, 8900]) {
        until(&format!("a ping of {len} bytes is answered"), || {
            ours.ping(peer, number, len);
            (0..1000).any(|_| {
                take(ours);
                ours.take_pong() == Some(number)
            })
        });
    }
    let mut answered = 0_u64;
    for round in 0..100 {
        for at in 0..32 {
            assert!(ours.ping(peer, round * 32 + at, 500), "the peer is known");
        }
        until("a burst of pings is answered", || {
            take(ours);
            while ours.take_pong().is_some() {
                answered += 1;
            }
            answered + ours.counters().corrupt >= u64::from(round + 1) * 32
        });
    }
    let counters = ours.counters();
    assert_eq!((counters.dropped(), counters.malformed), (before, 0), "{counters:?}");
    // DPDK's program adjusts a request's checksum instead of computing a new one. The result is off
    // by one when a carry is lost.
    assert!(counters.corrupt <= 2, "{counters:?}");
}

fn with_dpdk(ours: &str, theirs: &str) {
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("memif.sock");
    let mut driver = open(ours, &socket);
    for life in 1..=2 {
        let Some(peer) = Peer::start(theirs, &socket, ",bsize=9280") else { return };
        talk(&mut driver);
        match life {
            1 => {
                drop(peer); // killed
                if theirs == "server" {
                    let _ = std::fs::remove_file(&socket); // DPDK does not replace the file
                }
            }
            _ => assert!(peer.end().contains("icmpecho"), "DPDK's end was the one that answered"),
        }
        until("its end is noticed", || {
            take(&mut driver);
            let state = &driver.devices()[0];
            assert_eq!(state.errors, 0, "{state:?}");
            !state.up
        });
    }
}

#[test]
fn dpdk_as_the_client_of_ours() {
    with_dpdk("server", "client");
}

#[test]
fn dpdk_as_the_server_of_ours() {
    with_dpdk("client", "server");
}

#[test]
fn a_peer_that_does_not_fit_gets_the_reason() {
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("memif.sock");
    let mut server = open("server", &socket);
    let Some(_peer) = Peer::start("client", &socket, ",bsize=2048") else { return };
    until("the client is refused", || {
        take(&mut server);
        server.devices()[0].trouble.as_deref().is_some_and(|why| why.contains("set bsize="))
    });
    assert!(!server.devices()[0].up);
}
