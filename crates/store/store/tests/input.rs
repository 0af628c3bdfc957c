//! Whole servers that find something wrong when they start.

use crate::common::clients::client_of;
use sprat_client::{Client, Error, Options};
use sprat_disk::{Access, FileDisk};
use sprat_net::Mode;
use sprat_store::server::{Server, ServerOptions};
use sprat_wire::op::Request;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

#[test]
fn start_waits_for_a_log_locked_by_the_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&ServerOptions::alone(dir.path())).unwrap();
    let mut before = client_of(&server);
    let table = before.create_table("t").unwrap();
    before.put(table, b"k", b"v").unwrap();
    server.stop().unwrap();

    // The state after a process was killed while it was writing: the log is still locked, but the
    // directory is not.
    let held = FileDisk::open(&dir.path().join("log.sprat"), Access::Cached).unwrap();
    let released = AtomicBool::new(false);
    let server = thread::scope(|scope| {
        scope.spawn(|| {
            thread::park_timeout(Duration::from_millis(300));
            released.store(true, Ordering::Release);
            drop(held);
        });
        let server = Server::start(&ServerOptions::alone(dir.path())).unwrap();
        assert!(
            released.load(Ordering::Acquire),
            "the log was opened while another process could still write to it"
        );
        server
    });
    let mut after = client_of(&server);
    let table = after.table("t").unwrap();
    assert_eq!(after.get(table, b"k").unwrap().unwrap().value, b"v");
    server.stop().unwrap();
}

#[test]
fn a_port_in_use_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let options = ServerOptions {
        listen: vec![format!("fast+udp:host=127.0.0.1,port={port}")],
        ..ServerOptions::alone(dir.path())
    };
    let error = Server::start(&options).err().expect("refused").to_string();
    assert!(error.contains(&port.to_string()), "{error}");
    drop(taken);
    Server::start(&options).unwrap().stop().unwrap();
}

#[test]
fn much_more_disk_than_the_memory_can_list_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let options = ServerOptions { disk: 1 << 40, ..ServerOptions::alone(dir.path()) };
    let server = Server::start(&options).unwrap();
    let mut client = client_of(&server);
    let table = client.create_table("t").unwrap();
    client.put(table, b"k", b"v").unwrap();
    server.stop().unwrap();
}

#[test]
fn the_least_disk_that_is_asked_for_is_enough() {
    let dir = tempfile::tempdir().unwrap();
    for memory in [8 << 20, 64 << 20, 100 << 20, 256 << 20] {
        let options = ServerOptions {
            memory,
            disk: 1 << 20,
            ..ServerOptions::alone(&dir.path().join(memory.to_string()))
        };
        let error = Server::start(&options).err().expect("refused").to_string();
        let needed = error
            .split("give --disk ")
            .nth(1)
            .and_then(|rest| rest.split('M').next())
            .expect("a size");
        let options = ServerOptions { disk: needed.parse::<u64>().unwrap() << 20, ..options };
        Server::start(&options).unwrap().stop().unwrap();
    }
}

#[test]
fn a_missing_log_is_not_created_again() {
    let dir = tempfile::tempdir().unwrap();
    Server::start(&ServerOptions::alone(dir.path())).unwrap().stop().unwrap();
    let log = dir.path().join("log.sprat");
    std::fs::rename(&log, dir.path().join("elsewhere")).unwrap();
    let error =
        Server::start(&ServerOptions::alone(dir.path())).err().expect("refused").to_string();
    assert!(error.contains("log.sprat: missing"), "{error}");
    assert!(!log.exists());
    std::fs::rename(dir.path().join("elsewhere"), &log).unwrap();
    Server::start(&ServerOptions::alone(dir.path())).unwrap().stop().unwrap();
}

#[test]
fn silence_ends_every_operation_in_time() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let coordinator =
        format!("fast+udp:host=127.0.0.1,port={}", silent.local_addr().unwrap().port());
    let (results, ended) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let timeout = Duration::from_millis(200);
        for waiting in [Mode::Sleep, Mode::Adaptive] {
            let mut client = Client::connect(&Options {
                coordinator: coordinator.clone(),
                timeout,
                waiting,
                ..Options::default()
            })
            .unwrap();
            results.send(client.table("t").map(drop)).unwrap();
            results.send(client.drop_table("t")).unwrap();
            let tickets: Vec<_> =
                (0..20).map(|_| client.submit(&Request::ListTables).unwrap()).collect();
            for ticket in tickets {
                results.send(client.wait(ticket, |_| ())).unwrap();
            }
        }
    });
    for _ in 0..2 * 22 {
        let result = ended.recv_timeout(Duration::from_secs(30)).expect("a client waits for ever");
        assert!(
            matches!(result, Err(Error::Timeout { .. } | Error::Indeterminate { .. })),
            "{result:?}"
        );
    }
}
