//! Tests several nodes that share one of DPDK's devices and one address. Each node has a queue and
//! a thread of its own.
#![cfg(feature = "dpdk")]

mod common;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use common::network::{cable, enter_namespace};
use common::{PATIENCE, at, echo, frame, send, take, until};
use sprat_net::bypass::{Address, BypassDriver, DeviceShare, shares};
use sprat_net::{
    AnyDriver, Bypass, Driver, Figure, Idle, Locator, Mode, Nanos, Policy, Sources, Transmit, Waker,
};

const NODES: usize = 3;

/// The first node's address. The other nodes have the following ports.
const FIRST: &str = "10.9.0.2:100";
const CLIENT: &str = "10.9.0.1:7";

/// A frame that has not returned after this time was probably lost.
const AGAIN: Duration = Duration::from_millis(100);

/// One test at a time, because a process has only one DPDK.
static ONE: Mutex<()> = Mutex::new(());

/// Commands to a node.
#[derive(Default)]
struct Orders {
    /// Whether the node must stop reading frames.
    stall: AtomicBool,
    end: AtomicBool,
}

/// Runs a node that echoes all frames, and sleeps when there are none. A timer wakes it only if the
/// driver has no descriptor to sleep on, or demands a sleep of 1 ms at most.
fn serve(
    device: &str,
    number: usize,
    share: DeviceShare,
    orders: &Orders,
    open: &Sender<Waker>,
) -> BTreeMap<String, u64> {
    let port = at(FIRST).port() + u16::try_from(number).expect("few");
    let locator = format!("fast+dpdk:host={},port={port},dev={device}", at(FIRST).ip());
    let locator: Locator = locator.parse().expect("a locator");
    let mut driver =
        AnyDriver::open_share(&locator, share).unwrap_or_else(|error| panic!("{error}"));
    let start = Instant::now();
    let now = || Nanos(0) + start.elapsed();
    let mut idle = Idle::new(Policy::of(Mode::Sleep), now()).expect("a bell");
    open.send(idle.waker()).expect("the receiver exists");
    while !orders.end.load(Ordering::SeqCst) {
        assert!(start.elapsed() < PATIENCE * 3, "the test has not ended the node");
        if orders.stall.load(Ordering::SeqCst) {
            idle.rest(now(), || (now() + PATIENCE, Sources::default())).expect("polls");
            continue;
        }
        while echo(&mut driver) > 0 {}
        let until = || {
            let (mut sources, mut bells) = (Sources::default(), Sources::default());
            driver.sources(&mut sources);
            let napping =
                sources.is_empty() || sources.longest().is_some_and(|nap| nap.as_millis() <= 1);
            bells.extend(sources.iter());
            (now() + PATIENCE, if napping { sources } else { bells })
        };
        idle.rest(now(), until).expect("polls");
    }
    let mut figures = Vec::new();
    driver.figures(&mut figures);
    figures.into_iter().map(|Figure { name, value }| (name.into_owned(), value)).collect()
}

/// Sends some frames to each node, and waits until all of them have returned.
fn talk(client: &mut BypassDriver, nodes: impl Iterator<Item = usize>) {
    for number in nodes {
        let to =
            SocketAddr::new(at(FIRST).ip(), at(FIRST).port() + u16::try_from(number).expect("few"));
        for round in 0..50 {
            let frames: Vec<_> = (0..8)
                .map(|at| frame(round * 8 + at, 20 + 150 * usize::try_from(at).expect("few")))
                .collect();
            frames.iter().for_each(|frame| send(client.tx(), to, frame));
            client.tx().flush();
            let mut back = Vec::new();
            until("all frames are back", || {
                back.extend(take(client));
                back.len() >= frames.len()
            });
            assert!(
                back.iter().all(|(from, _)| *from == to),
                "node {number} answers from its own address"
            );
            let same = frames.iter().all(|frame| back.iter().any(|(_, back)| back == frame));
            let lens = |frames: &mut dyn Iterator<Item = &Vec<u8>>| {
                frames.map(Vec::len).collect::<Vec<_>>()
            };
            let (sent, back) =
                (lens(&mut frames.iter()), lens(&mut back.iter().map(|(_, frame)| frame)));
            assert!(
                same && back.len() == sent.len(),
                "node {number} got each once, in round {round}: {back:?} of {sent:?}"
            );
        }
    }
}

/// Exchanges a new frame with a node. After that, replies to earlier frames have arrived or were
/// lost.
fn settle(client: &mut BypassDriver, to: SocketAddr) {
    const LEN: usize = 48;
    let begun = Instant::now();
    for number in 0.. {
        send(client.tx(), to, &frame(number, LEN));
        client.tx().flush();
        let sent = Instant::now();
        while sent.elapsed() < AGAIN {
            if take(client).iter().any(|(_, back)| *back == frame(number, LEN)) {
                return;
            }
            thread::yield_now();
        }
        assert!(begun.elapsed() < PATIENCE, "waited too long until a node answers");
    }
}

/// The client's side of the test.
fn talk_to_all(client: &mut BypassDriver) {
    talk(client, 0..NODES);

    // Only one node answers pings to the address.
    let mut answered = Vec::new();
    for number in 0..20 {
        assert!(client.ping(at(FIRST).ip(), number, 64));
        until("the ping is answered", || {
            assert!(take(client).is_empty());
            answered.extend(client.take_pong());
            answered.contains(&number)
        });
    }
    talk(client, 0..1); // all other replies have arrived by now
    answered.extend(std::iter::from_fn(|| client.take_pong()));
    assert_eq!(answered, (0..20).collect::<Vec<_>>(), "each ping is answered once");
}

/// If a node reads nothing, or has exited, the other nodes go on.
fn do_without_the_last(client: &mut BypassDriver, orders: &[Orders], wakers: &[Waker]) {
    let last = NODES - 1;
    let to = SocketAddr::new(at(FIRST).ip(), at(FIRST).port() + u16::try_from(last).expect("few"));
    let flood = |client: &mut BypassDriver| {
        for number in 0..2_000 {
            send(client.tx(), to, &frame(number, 100));
            if number % 16 == 15 {
                client.tx().flush();
                talk_briefly(client);
            }
        }
    };
    orders[last].stall.store(true, Ordering::SeqCst);
    wakers[last].ring();
    flood(client);
    talk(client, 0..last);
    orders[last].stall.store(false, Ordering::SeqCst);
    wakers[last].ring();
    settle(client, to);
    talk(client, 0..NODES);
    orders[last].end.store(true, Ordering::SeqCst);
    wakers[last].ring();
    flood(client);
    talk(client, 0..last);
}

/// Exchanges a frame with the first node. After that, the node has read all earlier frames.
fn talk_briefly(client: &mut BypassDriver) {
    send(client.tx(), at(FIRST), &frame(1, 100));
    client.tx().flush();
    until("the first node answers", || take(client).iter().any(|(from, _)| *from == at(FIRST)));
}

/// Tests the nodes on a device. With `one_queue` all frames arrive in the first node's queue;
/// otherwise they arrive in any queue.
fn nodes_share(servers: &str, clients: &str, one_queue: bool) {
    let orders: Vec<Orders> = (0..NODES).map(|_| Orders::default()).collect();
    let figures_of_nodes = thread::scope(|scope| {
        let mut wakers = Vec::new();
        let mut threads = Vec::new();
        for (number, share) in shares(NODES).expect("bells").into_iter().enumerate() {
            let (open, opened) = channel();
            let orders = &orders[number];
            threads.push(scope.spawn(move || serve(servers, number, share, orders, &open)));
            wakers.push(opened.recv_timeout(PATIENCE).expect("it opens"));
        }
        let bypass = Bypass { devices: vec![clients.to_owned()], ..Bypass::default() };
        let run = || {
            let mut client =
                BypassDriver::open(&bypass, Address::Own(at(CLIENT))).expect("it opens");
            settle(&mut client, at(FIRST));
            talk_to_all(&mut client);
            if one_queue {
                do_without_the_last(&mut client, &orders, &wakers);
            }
        };
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        for (orders, waker) in orders.iter().zip(&wakers) {
            orders.stall.store(false, Ordering::SeqCst);
            orders.end.store(true, Ordering::SeqCst);
            waker.ring();
        }
        let figures_of_nodes: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().expect("the node's thread does not panic"))
            .collect();
        if let Err(panic) = ran {
            std::panic::resume_unwind(panic);
        }
        figures_of_nodes
    });
    let sum = |name: &str| figures_of_nodes.iter().map(|figures| figures[name]).sum::<u64>();
    assert!(
        sum("network_handed_over_total") > 0,
        "no device here steers by rules: {figures_of_nodes:?}"
    );
    assert!(
        !one_queue || figures_of_nodes[NODES - 1]["network_handed_over_lost_total"] > 0,
        "frames that the stalled node did not take count as lost: {figures_of_nodes:?}"
    );
    assert!(
        one_queue || sum("frames_in_use") == 0,
        "all frames are back in the pool: {figures_of_nodes:?}"
    );
    let steers = figures_of_nodes[0]
        .iter()
        .find(|(name, _)| name.starts_with("device_steers{"))
        .expect("the figure exists");
    assert_eq!(*steers.1, 0, "the device reports that it does not steer");
}

#[test]
fn over_a_paravirtual_device() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("vhost.sock").display().to_string();
    let client = format!("net_virtio_user0,path={socket},queues={NODES}");
    nodes_share(&format!("net_vhost0,iface={socket}"), &client, true);
}

#[test]
fn over_packet_sockets() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(why) = enter_namespace().and_then(|()| cable("s0", "c0")) {
        return sprat_testing::skip(&format!("nodes that share an interface: {why}"));
    }
    // The kernel spreads frames over the queues by a hash.
    nodes_share("net_af_packet0,iface=s0", "net_af_packet1,iface=c0", false);
}
