//! Tests clients that are slow, numerous, or gone.

use super::support::{Shared, content, impatient};
use sprat_flow::share::Limits;
use sprat_testing::until;
use std::io::Read as _;
use std::time::Duration;

#[test]
fn a_slow_head_is_not_waited_for() {
    let shared = Shared::with(|options| options.limits = impatient());
    let mut client = shared.connect();
    client.send("GET / HT");
    assert_eq!(client.answer(false).unwrap().status, 408);
    assert!(client.is_closed());
    // A byte sent now and then does not extend the time limit.
    let mut client = shared.connect();
    let end = loop {
        if std::io::Write::write_all(&mut client.tcp, b"G").is_err()
            || client.tcp.peek(&mut [0]).is_ok_and(|count| count == 0)
        {
            break true;
        }
        client.tcp.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        if client.tcp.peek(&mut [0]).is_ok() {
            break true;
        }
    };
    assert!(end);
}

#[test]
fn an_idle_connection_is_ended_in_silence() {
    let shared = Shared::with(|options| options.limits = impatient());
    shared.write("a", b"x");
    assert!(shared.connect().is_closed(), "the share closes without an answer");
    let mut client = shared.connect();
    client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.answer(false).unwrap().text(), "x");
    assert!(client.is_closed());
}

#[test]
fn one_who_takes_nothing_is_dropped() {
    let shared = Shared::with(|options| options.limits = impatient());
    std::fs::File::create(shared.path().join("large")).unwrap().set_len(4 << 30).unwrap();
    let mut client = shared.connect();
    client.send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    let error = loop {
        if let Some(event) = shared.events.lock().unwrap().last() {
            break event.error.clone();
        }
        super::support::wait(20);
    };
    assert!(error.as_deref().is_some_and(|error| error.contains("accepted no data")), "{error:?}");
}

#[test]
fn there_is_room_for_so_many() {
    let shared = Shared::with(|options| {
        options.limits = Limits { connections: 2, waiting: 0, ..Limits::default() }
    });
    shared.write("a", b"x");
    let ask = |client: &mut super::support::Client| {
        client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
        client.answer(false).map(|answer| answer.status)
    };
    let mut clients = [shared.connect(), shared.connect()];
    assert!(clients.iter_mut().all(|client| ask(client) == Some(200)));
    let mut third = shared.connect();
    let refused = third.answer(false).unwrap();
    assert_eq!(refused.status, 503);
    assert!(refused.field("Retry-After").is_some());
    // The existing connections continue. When one of them ends, there is room for another.
    let [mut first, second] = clients;
    assert_eq!(ask(&mut first), Some(200));
    drop(second);
    let found_room = (0..500).any(|_| {
        super::support::wait(10);
        let mut client = shared.connect();
        client.tcp.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        std::io::Write::write_all(&mut client.tcp, b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n").is_ok()
            && client.answer(false).is_some_and(|answer| answer.status == 200)
    });
    assert!(found_room);
}

#[test]
fn one_address_has_only_so_many() {
    let shared = Shared::with(|options| {
        options.limits = Limits { per_address: 1, waiting: 0, ..Limits::default() }
    });
    let _first = shared.connect();
    assert_eq!(shared.connect().answer(false).unwrap().status, 503);
}

#[test]
fn a_flood_of_garbage_does_no_harm() {
    let shared = Shared::with(|options| options.limits = impatient());
    shared.write("a", b"x");
    let garbage = content(64 << 10);
    for chunk in garbage.chunks(1024) {
        let mut client = shared.connect();
        let _ = std::io::Write::write_all(&mut client.tcp, chunk);
        let _ = std::io::Write::write_all(&mut client.tcp, b"\r\n\r\n");
        let _ = client.tcp.read(&mut [0; 512]);
    }
    assert_eq!(shared.get("/a", "").text(), "x");
}

#[test]
fn stopping_lets_what_is_sent_go_on() {
    let shared = Shared::new();
    let file = content(64 << 20);
    shared.write("file", &file);
    let mut idle = shared.connect();
    idle.send("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(idle.answer(false).unwrap().status, 204);
    let mut busy = shared.connect();
    busy.send("GET /file HTTP/1.1\r\nHost: h\r\n\r\n");
    busy.tcp.peek(&mut [0]).unwrap();
    let Shared { share, directory: _directory, .. } = shared;
    let address = share.addresses()[0];
    let stopped = std::thread::spawn(move || share.stop(Duration::from_secs(20)));
    assert!(idle.is_closed());
    let answer = busy.answer(false).unwrap();
    assert!(!answer.cut && answer.body == file);
    assert!(busy.is_closed(), "the share does not wait for another request");
    stopped.join().unwrap();
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn stopping_at_once_ends_all() {
    let shared = Shared::new();
    std::fs::File::create(shared.path().join("large")).unwrap().set_len(4 << 30).unwrap();
    let mut busy = shared.connect();
    busy.send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    busy.tcp.peek(&mut [0]).unwrap();
    drop(shared.share);
    let mut came = 0u64;
    let mut part = vec![0; 1 << 20];
    while let Ok(count @ 1..) = busy.tcp.read(&mut part) {
        came += count as u64;
    }
    assert!(came < 4 << 30);
}

#[test]
fn a_flood_of_connections_is_outlived() {
    let limits = Limits { connections: 16, per_address: 1000, waiting: 64, ..impatient() };
    let shared = Shared::with(|options| options.limits = limits);
    shared.write("a", b"x");
    let mut flood: Vec<_> = (0..300).map(|_| shared.connect()).collect();
    // Each connection is rejected because there is no room, or admitted and closed when it sends no
    // request.
    let told: Vec<_> =
        flood.iter_mut().map(|client| client.answer(false).map(|answer| answer.status)).collect();
    let (refused, silent) = (
        told.iter().filter(|status| **status == Some(503)).count(),
        told.iter().filter(|status| status.is_none()).count(),
    );
    assert!(refused > 0 && refused + silent == 300, "{refused} refused, {silent} in silence");
    until("another client is answered", || {
        let mut client = shared.connect();
        std::io::Write::write_all(&mut client.tcp, b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n").is_ok()
            && client.answer(false).is_some_and(|answer| answer.status == 200)
    });
}

#[test]
fn those_who_are_too_many_wait_for_their_turn() {
    let limits = Limits { per_address: 2, waiting: 40, ..Limits::default() };
    let shared = Shared::with(|options| options.limits = limits);
    shared.write("a", b"x");
    // Idle connections do not delay connections with requests.
    let mut kept: Vec<_> = (0..2).map(|_| shared.connect()).collect();
    for client in &mut kept {
        client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(client.answer(false).unwrap().status, 200);
    }
    let mut many: Vec<_> = (0..30).map(|_| shared.connect()).collect();
    for client in &mut many {
        client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    for client in &mut many {
        let answer = client.answer(false).unwrap();
        assert_eq!((answer.status, answer.text()), (200, "x"));
    }
    // When no connection waits any more, idle ones stay open again.
    let mut last = shared.connect();
    for _ in 0..2 {
        last.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(last.answer(false).unwrap().status, 200);
    }
}

#[test]
fn connections_that_wait_too_long_are_refused() {
    let limits = Limits { per_address: 1, ..impatient() };
    let shared = Shared::with(|options| options.limits = limits);
    std::fs::File::create(shared.path().join("large")).unwrap().set_len(4 << 30).unwrap();
    let mut busy = shared.connect();
    busy.send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    busy.tcp.peek(&mut [0]).unwrap();
    let reading = std::thread::spawn(move || {
        let mut part = vec![0; 1 << 16];
        while busy.tcp.read(&mut part).is_ok_and(|count| count > 0) {
            super::support::wait(1);
        }
    });
    let refused = shared.connect().answer(false).unwrap();
    assert_eq!(refused.status, 503);
    drop(shared);
    reading.join().unwrap();
}
