//! Tests that a server keeps serving while other machines send it garbage.

use crate::input::support::{PATIENCE, ServerProcess, TCP, UDP, run, run_with};
use crate::input::{SMALL, connect};
use sprat_chance::Chance;
use sprat_client::{Client, Condition, Error, Mode, Options};
use sprat_net::Locator;
use sprat_wire::op::Request;
use std::io::Write as _;
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::mpsc::channel;
use std::time::Duration;

fn start(data: &std::path::Path, transport: &str) -> ServerProcess {
    let flags = ["-L", transport].into_iter().chain(SMALL).collect::<Vec<_>>();
    ServerProcess::start(data, &flags).expect("it starts")
}

fn address(locator: &str) -> SocketAddr {
    let locator: Locator = locator.parse().expect("a locator");
    locator.resolve().expect("loopback")[0]
}

#[track_caller]
fn still_serves(server: &mut ServerProcess, client: &mut Client, round: usize) {
    assert!(server.runs());
    let table = client.create_table("t").expect("a table");
    let value = format!("round {round}");
    client.put(table, b"key", value.as_bytes()).expect("a write");
    assert_eq!(
        client.get(table, b"key").expect("a read").expect("written").value,
        value.as_bytes()
    );
}

/// Draws bytes that resemble packets to various degrees.
fn noise(random: &mut Chance, most: u64) -> Vec<u8> {
    let len = usize::try_from(random.modulo(most)).expect("small");
    let mut bytes: Vec<u8> =
        std::iter::repeat_with(|| random.draw().to_le_bytes()[0]).take(len).collect();
    if random.one_in(2) && bytes.len() >= 24 {
        // Small numbers, as in the fields of real packets.
        for byte in &mut bytes[..24] {
            *byte = if random.one_in(2) { 0 } else { *byte % 12 };
        }
    }
    bytes
}

#[test]
fn garbage_datagrams_do_no_harm() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut server = start(dir.path(), UDP);
    let mut client = connect(&server);
    let target = address(&server.listen);
    let sockets: Vec<UdpSocket> =
        (0..4).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a socket")).collect();
    let mut random = Chance::new(1);
    for round in 0..10 {
        for _ in 0..300 {
            let bytes = noise(&mut random, 2000);
            // The kernel may refuse to send if the buffer is full. This does not matter.
            let _ = sockets[random.index(4)].send_to(&bytes, target);
        }
        let _ = sockets[0].send_to(&[], target);
        let _ = sockets[0].send_to(&vec![7; 60_000], target);
        still_serves(&mut server, &mut client, round);
    }
    assert!(server.stop().success());
}

#[test]
fn garbage_streams_do_no_harm() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut server = start(dir.path(), TCP);
    let mut client = connect(&server);
    let targets = [address(&server.listen), address(&server.coordinator)];
    let mut random = Chance::new(2);
    let mut held = Vec::new();
    for round in 0..10 {
        for number in 0..30 {
            let mut stream = TcpStream::connect(targets[number % 2]).expect("it listens");
            stream.set_write_timeout(Some(Duration::from_secs(1))).expect("a timeout");
            let bytes = noise(&mut random, 100_000);
            // The server may close the connection while the test still writes.
            let _ = stream.write_all(&bytes);
            match random.modulo(4) {
                0 => drop(stream),
                1 => drop(stream.shutdown(Shutdown::Write)),
                2 => held.push(stream), // cut short, and silent from now on
                _ => {
                    let _ = stream.write_all(&bytes);
                }
            }
        }
        still_serves(&mut server, &mut client, round);
    }
    drop(held);
    still_serves(&mut server, &mut client, 99);
    assert!(server.stop().success());
}

#[test]
fn oversized_and_unknown_requests_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = start(dir.path(), UDP);
    let at = ["-C", &server.coordinator];
    let with = |args: &[&str]| -> Vec<String> {
        args.iter().chain(&at).map(|arg| (*arg).to_owned()).collect()
    };
    let call = |args: &[&str]| {
        let args = with(args);
        run(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert_eq!(call(&["table", "create", "t"]).code, Some(0));
    let long_key = "k".repeat(65_536);
    let refused = call(&["put", "t", &long_key, "v"]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("65536") || refused.stderr.contains("65,536"),
        "{}",
        refused.stderr
    );
    let args = with(&["put", "t", "k"]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    assert_eq!(run_with(&args, &vec![b'v'; 1 << 20]).code, Some(0), "1 MB exactly");
    let refused = run_with(&args, &vec![b'v'; (1 << 20) + 1]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("1048577"), "{}", refused.stderr);
    let got = call(&["get", "t", "k"]);
    assert_eq!(
        (got.code, got.stdout.len()),
        (Some(0), 1 << 20),
        "the refused write changed nothing"
    );
    let long_name = "n".repeat(256);
    assert_eq!(call(&["table", "create", &long_name]).code, Some(1));
    let refused = call(&["get", "nobody", "k"]);
    assert_eq!(refused.code, Some(3));
    assert!(refused.stderr.contains("nobody"), "{}", refused.stderr);
    assert!(server.stop().success());
}

#[test]
fn requests_to_a_killed_server_end_in_time() {
    for transport in [UDP, TCP] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut server = start(dir.path(), transport);
        let coordinator = server.coordinator.clone();
        let (results, result_receiver) = channel();
        let (killed_sender, killed) = channel();
        let client = std::thread::spawn(move || {
            let options = Options {
                coordinator,
                timeout: Duration::from_secs(1),
                waiting: Mode::Sleep,
                ..Options::default()
            };
            let mut client = Client::connect(&options).expect("a client");
            let table = client.create_table("t").expect("a table");
            client.put(table, b"k", b"v").expect("a write");
            results.send(Ok(())).expect("the test listens");
            killed.recv().expect("the test signals this");
            let write = Request::Write {
                table: table.0,
                key: b"k",
                value: b"w",
                condition: Condition::None,
                ttl: None,
            };
            let tickets: Vec<_> =
                (0..20).map(|_| client.submit(&write).expect("submitted")).collect();
            for ticket in tickets {
                results.send(client.wait(ticket, |_| ())).expect("the test listens");
            }
            results.send(client.get(table, b"k").map(drop)).expect("the test listens");
            results.send(client.put(table, b"k", b"x").map(drop)).expect("the test listens");
        });
        let next = || result_receiver.recv_timeout(PATIENCE).expect("a client waits for ever");
        assert_eq!(next(), Ok(()));
        server.kill();
        killed_sender.send(()).expect("the client listens");
        for number in 0..22 {
            let error = next().expect_err("no server is there");
            let honest = error.is_indeterminate() || matches!(error, Error::Timeout { .. });
            assert!(honest, "operation {number}: {error}");
        }
        client.join().expect("no panic");
    }
}
