//! Input from a browser to the host. Any bytes are an error, or frames of requests; each request is
//! encoded to a frame with an equal meaning. The name in any address becomes a safe file name.

use sprat_browser::protocol::{FileName, Request, frame, safe};

pub(crate) fn run(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some(body)) = frame::read(&mut rest) {
        check(&body);
    }
    check(bytes);
    if let Ok(text) = str::from_utf8(bytes) {
        let name = safe(text);
        assert!(!name.is_empty() && !name.contains('/') && !name.starts_with('.'));
        FileName::try_from(name).expect("a safe name is one");
    }
}

fn check(body: &[u8]) {
    let Ok(request) = Request::parse(body) else { return };
    let mut frame = Vec::new();
    frame::write(&mut frame, &request.bytes()).expect("it is short");
    let again = frame::read(&mut &frame[..]).expect("a frame").expect("all of it");
    assert_eq!(Request::parse(&again).expect("it was written by us"), request);
    if let Request::Start { source, .. } | Request::Probe { source, .. } = request {
        let _ = source.address(); // must not panic: it was read before
    }
}
