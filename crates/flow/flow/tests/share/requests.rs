//! Tests requests that are valid, invalid, or ambiguous on purpose.

use super::support::Shared;
use sprat_flow::share::Pace;
use sprat_testing::until;

#[test]
fn a_connection_is_kept_and_answers_in_order() {
    let shared = Shared::new();
    shared.write("a", b"first");
    shared.write("b", b"second");
    let mut client = shared.connect();
    client.send(
        "GET /a HTTP/1.1\r\nHost: h\r\n\r\nHEAD /b HTTP/1.1\r\nHost: h\r\n\r\n\r\nGET \
        /none HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\nConnection: \
        close\r\n\r\nGET /a HTTP/1.1\r\nHost: h\r\n\r\n",
    );
    assert_eq!(client.answer(false).unwrap().text(), "first");
    assert_eq!(client.answer(true).unwrap().field("Content-Length"), Some("6"));
    assert_eq!(client.answer(false).unwrap().status, 404);
    let last = client.answer(false).unwrap();
    assert_eq!((last.text(), last.field("Connection")), ("second", Some("close")));
    assert!(client.is_closed());
}

#[test]
fn old_clients_are_served() {
    let shared = Shared::new();
    shared.write("a", b"x");
    let mut client = shared.connect();
    client.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.answer(false).unwrap().field("Connection"), Some("keep-alive"));
    client.send("GET /a HTTP/1.0\r\n\r\n");
    assert_eq!(client.answer(false).unwrap().field("Connection"), Some("close"));
    assert!(client.is_closed());
}

#[test]
fn methods_have_their_answers() {
    let shared = Shared::new();
    shared.write("a", b"x");
    for (method, path, status) in [
        ("OPTIONS", "*", 204),
        ("OPTIONS", "/a", 204),
        ("POST", "/a", 405),
        ("DELETE", "/a", 405),
        ("BREW", "/a", 501),
    ] {
        let answer = shared.ask(method, path, "");
        assert_eq!(answer.status, status, "{method}");
        assert!(answer.field("Allow").unwrap().contains("GET"));
    }
}

/// A request that could be read in two ways is refused, and the connection is closed. The bytes
/// after it are not read as a request.
#[test]
fn ambiguous_requests_are_refused() {
    let shared = Shared::new();
    shared.write("a", b"x");
    let smuggled = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
    for (head, status) in [
        ("POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (
            "GET /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
            400,
        ),
        ("GET /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5, 5\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: +5\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0x5\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 28\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: h\r\nX: a\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: h\r\nX\0: a\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: h\r\nX: \0\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: h/../x\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\n\r\n", 400),
        ("GET  /a HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        ("GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 505),
        ("GET /a HTTP/2.0\r\nHost: h\r\n\r\n", 505),
        ("GET /a\r\n\r\n", 400),
        ("\u{16}\u{3}\u{1}\u{2}\r\n\r\n", 400),
        ("GET /a HTTP/1.1\r\nHost: h\r\nExpect: the worst\r\n\r\n", 417),
        ("GET /%00 HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        ("GET h:80 HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    ] {
        let mut client = shared.connect();
        client.send(&format!("{head}{smuggled}"));
        let answer = client.answer(false).unwrap_or_else(|| panic!("an answer to {head:?}"));
        assert_eq!(answer.status, status, "{head:?}: {}", answer.text());
        assert_eq!(answer.field("Connection"), Some("close"));
        assert!(client.answer(false).is_none(), "{head:?} smuggles nothing");
    }
}

#[test]
fn heads_are_bounded() {
    let shared = Shared::new();
    let long = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "a".repeat(20_000));
    let many = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "X: a\r\n".repeat(64));
    let empty = "\r\n".repeat(10_000);
    for head in [long, many, empty] {
        let mut client = shared.connect();
        client.send(&head);
        assert_eq!(client.answer(false).unwrap().status, 431);
        assert!(client.is_closed());
    }
}

#[test]
fn nothing_outside_is_given() {
    let shared = Shared::with(|options| {
        let inside = options.root.join("inside");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(options.root.join("secret"), "outside").unwrap();
        std::os::unix::fs::symlink("../secret", inside.join("link")).unwrap();
        std::os::unix::fs::symlink("/etc", inside.join("etc")).unwrap();
        std::fs::write(inside.join(".secret"), "hidden").unwrap();
        options.root = inside;
    });
    for path in [
        "/../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/%2e%2e%2fsecret",
        "/a/../../secret",
        "//../secret",
        "/\\..\\secret",
        "/.%00./secret",
        "/link",
        "/etc/passwd",
        "/etc/",
        "/.secret",
        "/%2esecret",
        "/./.secret",
        "http://h/../secret",
        "/%252e%252e/secret",
        "/%c0%ae%c0%ae/secret",
        "/proc/self/root",
    ] {
        let answer = shared.get(path, "");
        assert!(matches!(answer.status, 400 | 404), "{path}: {}", answer.status);
        assert!(!answer.text().contains("outside") && !answer.text().contains("hidden"), "{path}");
    }
}

#[test]
fn both_families_are_served() {
    let Ok(_) = std::net::TcpListener::bind("[::1]:0") else {
        return super::support::skip("this machine has no IPv6: share was not tried with it");
    };
    let shared = Shared::with(|options| {
        options.listen = vec![
            "[::]:0".parse().unwrap(),
            "[::1]:0".parse().unwrap(),
            "127.0.0.1:0".parse().unwrap(),
        ];
    });
    shared.write("a", b"x");
    let [every, six, four] = shared.share.addresses() else { panic!("as many as were asked for") };
    for (host, port) in
        [("[::1]", every), ("127.0.0.1", every), ("[::1]", six), ("127.0.0.1", four)]
    {
        let mut tcp = std::net::TcpStream::connect(format!("{host}:{}", port.port())).unwrap();
        std::io::Write::write_all(
            &mut tcp,
            b"GET /a HTTP/1.1\r\nHost: [::1]:80\r\nConnection: close\r\n\r\n",
        )
        .unwrap();
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut tcp, &mut answer).unwrap();
        assert!(answer.ends_with("\r\n\r\nx"), "{host} {port}");
        let peer = shared.events.lock().unwrap().last().unwrap().peer;
        assert_eq!(peer.is_ipv4(), host == "127.0.0.1", "an IPv4 peer is reported as IPv4");
    }
    assert!(
        std::net::TcpStream::connect(("127.0.0.1", six.port())).is_err(),
        "IPv4 is not served there"
    );
}

#[test]
fn a_pace_is_the_kernels_task() {
    for (pace, limited) in [(Pace::Limit(1_000_000), true), (Pace::Off, false)] {
        let shared = Shared::with(|options| options.pace = pace);
        shared.write("a", &super::support::content(1 << 20));
        assert_eq!(shared.get("/a", "").body.len(), 1 << 20);
        until("the request is noted", || !shared.events.lock().unwrap().is_empty());
        let rate = shared.events.lock().unwrap()[0].network.unwrap().pacing_rate;
        assert_eq!(rate <= 1_000_000, limited, "{pace:?}: {rate} B/s");
    }
}
