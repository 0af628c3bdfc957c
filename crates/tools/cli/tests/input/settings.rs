//! Tests that the errors for wrong settings say what to do.

use crate::input::support::{PATIENCE, ServerProcess, UDP, run};
use crate::input::{SMALL, connect};
use rustix::process::Signal;
use sprat_net::Locator;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::process::ExitStatusExt as _;
use std::time::Instant;

fn refused(flags: &[&str]) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    ServerProcess::start(dir.path(), flags).err().expect("refused")
}

fn with_small<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    SMALL.iter().chain(flags).copied().collect()
}

#[test]
fn a_port_in_use_is_named() {
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = udp.local_addr().expect("bound").port().to_string();
    let message = refused(&with_small(&["-L", &format!("fast+udp:host=127.0.0.1,port={port}")]));
    assert!(message.contains(&port) && message.contains("in use"), "{message}");

    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = tcp.local_addr().expect("bound").port().to_string();
    let message = refused(&with_small(&[
        "-C",
        &format!("tcp:host=127.0.0.1,port={port}"),
        "--with-coordinator",
    ]));
    assert!(message.contains(&port) && message.contains("in use"), "{message}");
    let message = refused(&with_small(&["--metrics", &format!("127.0.0.1:{port}")]));
    assert!(message.contains(&port) && message.contains("in use"), "{message}");
}

#[test]
fn an_address_of_another_machine_is_named() {
    // 192.0.2.0/24 is reserved for documentation, so no machine has an address in it.
    let message = refused(&with_small(&["-L", "fast+udp:host=192.0.2.1,port=0"]));
    assert!(message.contains("192.0.2.1"), "{message}");
    let message = refused(&with_small(&["-L", "tcp:host=192.0.2.1,port=0"]));
    assert!(message.contains("192.0.2.1"), "{message}");
}

#[test]
fn wrong_sizes_are_refused_with_a_suggestion() {
    let message = refused(&["--memory", "64M", "--disk", "16M"]);
    assert!(message.contains("16 MiB of disk") && message.contains("give --disk"), "{message}");
    let message = refused(&["--memory", "1K"]);
    assert!(message.contains("memory"), "{message}");
    // The suggested size is enough.
    let message = refused(&["--memory", "64M", "--disk", "16M"]);
    let needed = message
        .split("give --disk ")
        .nth(1)
        .and_then(|rest| rest.split(',').next())
        .expect("a size");
    let dir = tempfile::tempdir().expect("a directory");
    let server =
        ServerProcess::start(dir.path(), &["--memory", "64M", "--disk", needed]).expect("enough");
    assert!(server.stop().success());
}

#[test]
fn memory_changes_at_the_next_start_within_the_logs_bounds() {
    let dir = tempfile::tempdir().expect("a directory");
    let start = |memory| ServerProcess::start(dir.path(), &["--memory", memory, "--disk", "1G"]);
    for (life, memory) in (1..).zip(["64M", "256M", "16M", "64M"]) {
        let server = start(memory).expect("its log takes this memory");
        let mut client = connect(&server);
        let table = client.create_table("t").expect("a table");
        assert_eq!(
            client.increment_i64(table, b"lives", 1).expect("the earlier data is there").0,
            life
        );
        client
            .put(table, &[u8::try_from(life).expect("few")], &vec![7; 900_000])
            .expect("a long value");
        assert!(server.stop().success());
    }
    let message = start("8M").err().expect("refused");
    assert!(message.contains("can have 16 to") && message.contains("sprat export"), "{message}");
    let dir = tempfile::tempdir().expect("a directory");
    ServerProcess::start(dir.path(), &["--memory", "8M", "--disk", "128M"])
        .expect("a new one takes it");
}

#[test]
fn a_second_server_on_a_data_directory_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let first = ServerProcess::start(dir.path(), &SMALL).expect("it starts");
    let message = ServerProcess::start(dir.path(), &SMALL).err().expect("refused");
    assert!(
        message.contains("another sprat server is running with this data directory"),
        "{message}"
    );
    let mut client = connect(&first);
    let table = client.create_table("t").expect("the first is unharmed");
    client.put(table, b"k", b"v").expect("a write");
    assert!(first.stop().success());
}

#[test]
fn a_missing_coordinator_is_reported_and_waited_for() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let locator = format!("tcp:host=127.0.0.1,port={}", free.local_addr().expect("bound").port());
    drop(free);
    let dir = tempfile::tempdir().expect("a directory");
    let waiting = || {
        let mut server =
            ServerProcess::spawn(&dir.path().join("server"), &with_small(&["-C", &locator]));
        let (mut log, started) = (String::new(), Instant::now());
        while !log.contains("waiting for the coordinator") {
            log += &server.new_stderr();
            assert!(server.runs() && started.elapsed() < PATIENCE, "{log}");
        }
        assert!(log.contains("no answer from"), "{log}");
        server
    };
    // A signal ends the server at once, even while it waits for the coordinator.
    assert_eq!(waiting().stop().signal(), Some(Signal::INT.as_raw()));
    let mut server = waiting();

    // A client does not wait for the coordinator.
    let missed = run(&["status", "-C", &locator, "--timeout", "1h"]);
    assert_eq!(missed.code, Some(5), "{missed:?}");
    let port = locator.rsplit('=').next().expect("a port");
    assert!(
        missed.stderr.contains("connection refused") && missed.stderr.contains(port),
        "{}",
        missed.stderr
    );

    // The coordinator starts, and the server continues without help.
    let mut coordinator = crate::input::support::sprat();
    coordinator.args(["coordinator", "-C", &locator, "--data"]).arg(dir.path().join("coordinator"));
    let mut coordinator =
        coordinator.stderr(std::process::Stdio::null()).spawn().expect("the binary runs");
    let ready = server.wait_ready();
    if ready.is_ok() {
        let mut client = connect(&server);
        let table = client.create_table("t").expect("a table");
        client.put(table, b"k", b"v").expect("a write");
    }
    let stopped = server.stop();
    let _ = coordinator.kill();
    let _ = coordinator.wait();
    assert_eq!(ready, Ok(()));
    assert!(stopped.success());
}

#[test]
fn an_invalid_locator_is_explained() {
    for bad in [
        "udp:host=127.0.0.1,port=1",
        "fast+udp:host=127.0.0.1",
        "fast+udp:port=1",
        "fast+udp:host=127.0.0.1,port=70000",
        "",
    ] {
        let message = refused(&with_small(&["-L", bad]));
        assert!(message.contains("sprat: "), "{bad}: {message}");
        assert!(bad.is_empty() || message.contains(bad), "{bad}: {message}");
    }
    assert!(UDP.parse::<Locator>().is_ok());
}
