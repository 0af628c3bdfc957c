//! Heads of responses: how they are parsed, and what is rejected.

use proptest::prelude::*;
use sprat_http::client::Head;

#[test]
fn a_server_may_say_when_to_come_back_as_a_moment() {
    let parse = |fields: &str| {
        let text = format!("HTTP/1.1 503 Later\r\nContent-Length: 0\r\n{fields}\r\n");
        Head::parse(text.as_bytes()).unwrap().unwrap().0.retry_after.map(|pause| pause.as_secs())
    };
    let date = "Date: Thu, 26 Nov 2026 06:00:00 GMT\r\n";
    assert_eq!(parse("Retry-After: 7\r\n"), Some(7));
    for (when, pause) in [("06:00:09", 9), ("05:59:00", 0), ("09:00:00", 600)] {
        let moment = format!("Retry-After: Thu, 26 Nov 2026 {when} GMT\r\n");
        assert_eq!(parse(&format!("{moment}{date}")), Some(pause), "counted on the server's clock");
        assert_eq!(parse(&format!("{date}{moment}")), Some(pause));
    }
    assert_eq!(
        parse("Retry-After: Thu, 01 Jan 1970 00:00:00 GMT\r\n"),
        Some(0),
        "counted on the client's clock"
    );
    assert_eq!(parse("Retry-After: soon\r\n"), None);
}

#[test]
fn a_date_is_a_validator_only_after_its_second() {
    let head = |fields: &str| {
        Head::parse(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes()).unwrap().unwrap().0
    };
    let (then, later) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:38 GMT");
    let modified = format!("Last-Modified: {then}\r\n");
    assert_eq!(head(&format!("{modified}Date: {later}\r\n")).validator().as_deref(), Some(then));
    assert_eq!(head(&format!("{modified}Date: {then}\r\n")).validator(), None);
    assert_eq!(
        head(&format!("{modified}Date: {then}\r\nETag: \"x\"\r\n")).validator().as_deref(),
        Some("\"x\"")
    );
    assert_eq!(
        head("ETag: W/\"x\"\r\n").validator(),
        None,
        "a weak tag does not identify the bytes"
    );
    assert_eq!(head("Last-Modified: yesterday\r\n").validator(), None);
}

proptest! {
    #[test]
    fn any_bytes_are_a_head_or_are_not(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Head::parse(&bytes);
        let _ = Head::parse(&[b"HTTP/1.1 200 OK\r\n".as_slice(), &bytes, b"\r\n\r\n"].concat());
    }
}
