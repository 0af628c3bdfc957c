//! Traffic between the hosts of a test, through a box.

use crate::support::hosts::{Host, Running};
use sprat_lab::line::LineSettings;
pub(crate) use sprat_testing::PATIENCE;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Returns the settings of a line that only delays packets.
pub(crate) fn delayed(delay: Duration) -> LineSettings {
    LineSettings { delay, ..LineSettings::default() }
}

/// Echoes datagrams on a host until an empty one arrives. The system chooses the port, because a
/// child process of another test may still hold a port that was just in use.
pub(crate) fn echo(host: &Host) -> (Running<()>, u16) {
    let (bound, ready) = std::sync::mpsc::channel();
    let running = host.start(move || {
        let socket = UdpSocket::bind("[::]:0").expect("a port");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        bound.send(socket.local_addr().expect("bound").port()).expect("the test waits for it");
        let mut buffer = [0; 2000];
        while let Ok((len @ 1.., from)) = socket.recv_from(&mut buffer) {
            socket.send_to(&buffer[..len], from).expect("it can answer");
        }
    });
    let port = ready.recv().expect("it is bound");
    (running, port)
}

/// Sends numbered datagrams, several of which are under way at the same time. Checks that each
/// returns once and in order. Returns their round-trip times.
pub(crate) fn pings(host: &Host, to: &str, port: u16) -> Vec<Duration> {
    let to = format!("{to}:{port}");
    host.run(move || {
        let socket = UdpSocket::bind("[::]:0").expect("a port");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        let mut buffer = [0; 2000];
        // The first datagram triggers neighbour discovery. It may be sent before the kernel has
        // noticed that the link is up.
        socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a time");
        let until = Instant::now() + PATIENCE;
        loop {
            socket.send_to(b"neighbours", &to).expect("it can send");
            if socket.recv(&mut buffer).is_ok() {
                break;
            }
            assert!(Instant::now() < until, "no answer from {to}");
        }
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        let mut trips = Vec::new();
        for round in 0..5u8 {
            let sent: Vec<Instant> = (0..8u8)
                .map(|number| {
                    let now = Instant::now();
                    socket
                        .send_to(&[vec![round, number], vec![7; 900]].concat(), &to)
                        .expect("it can send");
                    now
                })
                .collect();
            for (number, sent) in (0..8u8).zip(sent) {
                let mut len = socket.recv(&mut buffer).expect("an answer");
                while buffer[..len] == *b"neighbours" {
                    len = socket.recv(&mut buffer).expect("an answer"); // a late one
                }
                trips.push(sent.elapsed());
                assert_eq!((len, &buffer[..2]), (902, &[round, number][..]), "in order, as sent");
            }
        }
        socket.send_to(&[], &to).expect("it can send");
        trips
    })
}

/// Sends bytes over one TCP connection from the first host to the second, and checks them there.
pub(crate) fn stream(hosts: &[Host], to: &str, bytes: usize) {
    let content = move || (0..bytes).map(|at| (at ^ (at >> 8) ^ (at >> 16)).to_le_bytes()[0]);
    let (bound, ready) = std::sync::mpsc::channel();
    let server = hosts[1].start(move || {
        let listener = TcpListener::bind("[::]:7001").expect("a port");
        bound.send(()).expect("the test waits for it");
        let (mut stream, _) = listener.accept().expect("a caller");
        let mut got = Vec::new();
        stream.read_to_end(&mut got).expect("to the end");
        assert!(got.into_iter().eq(content()), "every byte as it was sent");
        stream.write_all(b"right").expect("an answer");
    });
    ready.recv().expect("it is bound");
    let to = format!("{to}:7001");
    let client = hosts[0].start(move || {
        let mut stream = TcpStream::connect(to).expect("a listener");
        stream.write_all(&content().collect::<Vec<_>>()).expect("sent");
        stream.shutdown(Shutdown::Write).expect("no more");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert_eq!(answer, "right");
    });
    server.get();
    client.get();
}
