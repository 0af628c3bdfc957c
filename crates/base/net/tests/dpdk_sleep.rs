//! Tests nodes that sleep until one of DPDK's devices wakes them. There are two drivers in one
//! process, connected by a para-virtual device or a virtual Ethernet cable.
#![cfg(feature = "dpdk")]

mod common;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::network::{cable, enter_namespace};
use common::{PATIENCE, at, echo, frame, send, take, until};
use sprat_net::bypass::{Address, BypassDriver};
use sprat_net::{Bypass, Driver, Idle, Mode, Nanos, Policy, Sources, Transmit};

/// How often each node sleeps, at least. Frames go back and forth for as long as that takes,
/// because a frame that arrives during a node's last poll wakes no node, and the number of these
/// frames depends on the machine.
const SLEEPS: u32 = 1500;

/// How long a node is left alone, and how many iterations it may run in that time. A node whose
/// device cannot wake it naps for a millisecond at a time, and would run a thousand.
const ALONE: Duration = Duration::from_secs(1);
const ITERATIONS: u32 = 100;

const SERVER: &str = "10.9.0.2:7";
const CLIENT: &str = "10.9.0.1:7";

/// One test at a time, because a process has only one DPDK.
static ONE: Mutex<()> = Mutex::new(());

/// A driver on a device, with the state of its wait.
struct Node {
    driver: BypassDriver,
    idle: Idle,
    start: Instant,
    sleeps: Cell<u32>,
}

impl Node {
    fn open(address: &str, device: &str) -> Self {
        let bypass = Bypass { devices: vec![device.to_owned()], ..Bypass::default() };
        let driver = BypassDriver::open(&bypass, Address::Own(at(address)))
            .unwrap_or_else(|error| panic!("{error}"));
        let idle = Idle::new(Policy::of(Mode::Sleep), Nanos(0)).expect("a bell");
        Self { driver, idle, start: Instant::now(), sleeps: Cell::new(0) }
    }

    fn now(&self) -> Nanos {
        Nanos(0) + self.start.elapsed()
    }

    /// Waits like a node that has nothing to do.
    fn rest(&mut self, longest: Duration) {
        let now = self.now();
        let Self { driver, idle, .. } = self;
        let until = || {
            let mut sources = Sources::default();
            driver.sources(&mut sources);
            (now + longest, sources)
        };
        idle.rest(now, until).expect("polls");
    }

    /// Rests in such a way that, once the device has a bell, only the bell ends the sleep. A frame
    /// that does not ring the bell is then never seen.
    fn rest_on_the_bell(&mut self) {
        let now = self.now();
        let Self { driver, idle, sleeps, .. } = self;
        let until = || {
            let (mut sources, mut bell) = (Sources::default(), Sources::default());
            driver.sources(&mut sources);
            if sources.is_empty() || sources.longest() == Some(Duration::ZERO) {
                return (now + PATIENCE, sources);
            }
            sleeps.set(sleeps.get() + 1);
            bell.extend(sources.iter());
            (now + PATIENCE, bell)
        };
        idle.rest(now, until).expect("polls");
    }

    /// Calls `work` with the number of sleeps so far, until it returns false. Sleeps whenever there
    /// is nothing to do.
    fn work(&mut self, mut work: impl FnMut(&mut BypassDriver, u32) -> bool) {
        let start = Instant::now();
        while work(&mut self.driver, self.sleeps.get()) {
            assert!(start.elapsed() < PATIENCE * 3, "nobody woke us: {:?}", self.driver.devices());
            self.rest_on_the_bell();
        }
    }

    /// Counts the iterations that the node runs when nothing happens.
    fn iterations_alone(&mut self) -> u32 {
        let (start, mut iterations) = (Instant::now(), 0);
        while start.elapsed() < ALONE {
            take(&mut self.driver);
            self.rest(ALONE);
            iterations += 1;
        }
        iterations
    }
}

/// Two nodes that sleep whenever they can wake each other thousands of times, and hardly run when
/// nothing happens.
fn sleepers_are_woken(servers: &str, clients: &str) {
    let to = at(SERVER);
    let (open, opened) = channel();
    let (end, ended) = channel();
    // Whether the server has slept often enough, and the number of the last frame.
    let (rested, last) = (&AtomicBool::new(false), &AtomicU64::new(u64::MAX));
    let check = |node: &mut Node| {
        let iterations = node.iterations_alone();
        assert!(iterations <= ITERATIONS, "{iterations} iterations with nothing to do");
    };
    // A driver lives on the thread that opened it.
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut server = Node::open(SERVER, servers);
            open.send(()).expect("the receiver exists");
            let mut seen = 0;
            server.work(|driver, sleeps| {
                rested.store(sleeps >= SLEEPS, Ordering::Release);
                loop {
                    let frames = echo(driver) as u64;
                    seen += frames;
                    if frames == 0 {
                        return seen < last.load(Ordering::Acquire);
                    }
                }
            });
            check(&mut server);
            ended.recv_timeout(PATIENCE).expect("the other end has ended");
        });
        scope.spawn(move || {
            opened.recv_timeout(PATIENCE).expect("the server opens in time");
            let mut client = Node::open(CLIENT, clients);
            let (mut sent, mut back) = (0, 0);
            client.work(|driver, sleeps| {
                loop {
                    let frames = take(driver);
                    back += frames.len() as u64;
                    if back == last.load(Ordering::Acquire) {
                        return false;
                    }
                    if sent == back {
                        sent += 1;
                        if sleeps >= SLEEPS && rested.load(Ordering::Acquire) {
                            last.store(sent, Ordering::Release);
                        }
                        send(driver.tx(), to, &frame(sent, 100));
                        driver.tx().flush();
                    } else if frames.is_empty() {
                        return true;
                    }
                }
            });
            check(&mut client);
            end.send(()).expect("the receiver exists");
        });
    });
}

#[test]
fn over_a_paravirtual_device() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("vhost.sock").display().to_string();
    sleepers_are_woken(
        &format!("net_vhost0,iface={socket}"),
        &format!("net_virtio_user0,path={socket}"),
    );
}

/// Runs the test over a virtual cable.
fn over_a_cable(kind: &str) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    match enter_namespace().and_then(|()| cable("s0", "c0")) {
        Ok(()) => {}
        Err(why) => return sprat_testing::skip(&format!("sleeping over {kind}: {why}")),
    };
    sleepers_are_woken(&format!("net_{kind}0,iface=s0"), &format!("net_{kind}1,iface=c0"));
}

#[test]
fn over_packet_sockets() {
    over_a_cable("af_packet");
}

#[test]
fn over_xdp_sockets() {
    over_a_cable("af_xdp");
}

/// A frame that arrives after the last poll and before the node sleeps rings no bell, because the
/// bell is not armed yet.
#[test]
fn a_frame_that_comes_just_before_the_sleep_ends_it() {
    const TIMES: u64 = 1000;
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("vhost.sock").display().to_string();
    let mut server = Node::open(SERVER, &format!("net_vhost0,iface={socket}"));
    let mut client = Node::open(CLIENT, &format!("net_virtio_user0,path={socket}"));
    until("both have met", || {
        send(client.driver.tx(), at(SERVER), &frame(0, 64));
        client.driver.tx().flush();
        echo(&mut server.driver);
        !take(&mut client.driver).is_empty()
    });
    while echo(&mut server.driver) + take(&mut client.driver).len() > 0 {}
    let start = Instant::now();
    let pass = |from: &mut Node, to: &mut Node, number: u64| {
        assert!(take(&mut to.driver).is_empty());
        send(from.driver.tx(), to.driver.local_addr(), &frame(number, 100));
        from.driver.tx().flush();
        loop {
            to.rest_on_the_bell();
            assert!(start.elapsed() < PATIENCE, "frame {number} is not received");
            match take(&mut to.driver).as_slice() {
                [] => {}
                [(_, got)] => return assert!(*got == frame(number, 100)),
                more => panic!("{} frames", more.len()),
            }
        }
    };
    for number in 0..TIMES {
        pass(&mut client, &mut server, number);
        pass(&mut server, &mut client, number);
    }
}
