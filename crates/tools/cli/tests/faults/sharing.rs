//! Tests an interface that a node and the kernel share by AF_XDP.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use nix::sched::{CloneFlags, unshare};

use crate::load::{client, mixed};
use crate::net::alone;
use crate::support::PATIENCE;
use crate::support::ip;
use crate::{local, serve, table, until};

/// The kernel's addresses on the interface, where the node also has one.
const HERE: &str = "10.96.0.1";
const THERE: &str = "10.96.0.2";

#[test]
fn the_kernel_keeps_an_interface_that_a_node_serves_on() {
    alone(|| {
        // The far end of the cable is in another network namespace, as if it were another machine.
        thread::scope(|scope| {
            let (thread_sender, thread_receiver) = channel();
            let (start_sender, start_receiver) = channel::<()>();
            let far = scope.spawn(move || {
                unshare(CloneFlags::CLONE_NEWNET).expect("a second one, like the first");
                thread_sender.send(rustix::thread::gettid()).expect("somebody waits");
                if start_receiver.recv().is_ok() {
                    far_end();
                }
            });
            let far_thread =
                thread_receiver.recv().expect("it starts").as_raw_nonzero().to_string();
            ip(&["link", "add", "s0", "type", "veth", "peer", "name", "c0", "netns", &far_thread])
                .expect("a cable");
            ip(&["address", "add", &format!("{HERE}/24"), "dev", "s0"]).expect("an address");
            ip(&["link", "set", "s0", "up"]).expect("it is ours");

            let folder = tempfile::tempdir().expect("a folder");
            let coordinator = format!("tcp:host={HERE},port=11100");
            let mut server = serve(folder.path(), "net_af_xdp0,iface=s0", &coordinator);
            // A killed server leaves its XDP program on the interface. The next server removes it.
            server.kill();
            let mut server = serve(folder.path(), "net_af_xdp0,iface=s0", &coordinator);
            let echo = TcpListener::bind((HERE, 5000)).expect("the kernel's port");
            let datagrams = UdpSocket::bind((HERE, 5001)).expect("the kernel's port");
            start_sender.send(()).expect("it waits");
            // The far end closes the connection when it has received enough.
            echo.set_nonblocking(true).expect("a socket has this setting");
            let mut accepted = None;
            until("the far end calls", || {
                accepted = echo.accept().ok();
                accepted.is_some()
            });
            let (mut stream, _) = accepted.expect("just seen");
            stream.set_nonblocking(false).expect("a socket has this setting");
            stream.set_read_timeout(Some(PATIENCE)).expect("a socket has this setting");
            datagrams.set_read_timeout(Some(PATIENCE)).expect("a socket has this setting");
            let mut buffer = [0; 4096];
            loop {
                match stream.read(&mut buffer).expect("the kernel carries it") {
                    0 => break,
                    got => stream.write_all(&buffer[..got]).expect("the kernel carries it"),
                }
            }
            let (got, from) = datagrams.recv_from(&mut buffer).expect("the kernel carries it");
            assert_eq!(
                (&buffer[..got], from.ip().to_string().as_str()),
                (&b"a datagram"[..], THERE)
            );
            far.join().expect("the far end found no error");
            assert!(server.runs());
            assert!(server.stop().success());
        });
    });
}

/// Uses the store with kernel bypass and the kernel's TCP over the same interface.
fn far_end() {
    ip(&["link", "set", "lo", "up"]).expect("it is ours");
    ip(&["address", "add", &format!("{THERE}/24"), "dev", "c0"]).expect("an address");
    ip(&["link", "set", "c0", "up"]).expect("it is ours");
    let (ended, echoed) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut stream = TcpStream::connect((HERE, 5000)).expect("the kernel's connection");
    let mut client = client(&format!("tcp:host={HERE},port=11100"), &local("net_af_xdp1,iface=c0"));
    let table = table(&mut client, "t");
    let carry = |stream: &mut TcpStream| {
        while !ended.load(Ordering::Relaxed) {
            let number = echoed.load(Ordering::Relaxed).to_le_bytes();
            stream.write_all(&number).expect("the kernel carries it");
            let mut back = [0; 8];
            stream.read_exact(&mut back).expect("the kernel carries it");
            assert_eq!(back, number);
            echoed.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| carry(&mut stream));
        let load = mixed(&mut client, table, 3_000, 96);
        eprintln!(
            "{} mixed operations past the kernel in {:?}, {} echoes by its TCP over the same \
             interface",
            load.operations,
            load.elapsed,
            echoed.load(Ordering::Relaxed),
        );
        let before = echoed.load(Ordering::Relaxed);
        until("the kernel goes on", || echoed.load(Ordering::Relaxed) > before);
        ended.store(true, Ordering::Relaxed);
    });
    let datagram = UdpSocket::bind((THERE, 0)).expect("a socket");
    datagram.send_to(b"a datagram", (HERE, 5001)).expect("the kernel sends it");
}
