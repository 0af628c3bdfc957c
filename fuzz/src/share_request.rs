//! Requests from any client to `sprat share`, from bytes to a decision, without a file or a socket.

use sprat_flow::group::{GROUP_BYTES, verified_length};
use sprat_flow::share::Version;
use sprat_flow::share::decide::{Body, decide};
use sprat_flow::share::put::{self, PutKind};
use sprat_http::server::request::{Extent, Request, extent};
use sprat_http::server::tag;
use sprat_http::server::target::Target;
use sprat_http::{MAX_HEAD, range};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::LazyLock;

/// The version of a file. Ranges are checked against its size.
static VERSION: LazyLock<Version> = LazyLock::new(|| {
    let metadata = std::fs::metadata("/proc/self/exe").expect("a program has its file");
    let mut version = Version::of(&metadata);
    version.size = 3 * GROUP_BYTES + 7;
    version
});

pub(crate) fn run(bytes: &[u8]) {
    let length = match extent(bytes, 0) {
        Ok(Extent::Bytes(length)) => length,
        Ok(Extent::Unfinished) => return assert!(bytes.len() < MAX_HEAD, "heads are bounded"),
        Err(refused) => return assert!(matches!(refused.status, 400 | 431)),
    };
    // The request's end is found at the same place, however the bytes are divided.
    for cut in [1, length / 2, length.saturating_sub(2)] {
        let first = extent(&bytes[..cut], 0);
        assert_eq!(first, Ok(Extent::Unfinished), "no end before the end");
        assert_eq!(extent(&bytes[..length], cut), Ok(Extent::Bytes(length)));
    }
    let request = match Request::parse(&bytes[..length]) {
        Ok(request) => request,
        Err(refused) => return assert!((400..600).contains(&refused.status)),
    };
    assert!(request.field("transfer-encoding").is_none());
    if let Some(target) = &request.target {
        for name in target.names() {
            let name = name.as_bytes();
            assert!(
                !name.is_empty()
                    && name != b"."
                    && name != b".."
                    && !name.contains(&0)
                    && !name.contains(&b'/')
            );
        }
        // The address that Sprat would write for this target has the same names.
        let again = Target::parse(&target.encoded()).expect("ours");
        assert_eq!(again.names(), target.names());
        let _ = (target.parameter("format"), target.path());
    }
    if let Some(field) = request.field("if-none-match") {
        let _ = tag::Tags::parse(&field);
    }
    let size = VERSION.size;
    if let Some(field) = request.field("range")
        && let range::RequestedRange::Parts(parts) = range::parse_range(&field, size)
    {
        assert!(parts.iter().all(|part| part.start < part.end && part.end <= size), "{parts:?}");
    }
    match put::parse(&request, put::MAX_FILE) {
        Ok((PutKind::Part { upload, range }, _)) => {
            assert!(
                range.start < range.end
                    && range.end <= upload.length
                    && upload.length <= put::MAX_FILE
            );
            assert_eq!(verified_length(&range), request.length);
        }
        Ok((PutKind::Whole { length, verified: true }, _)) => {
            assert_eq!(verified_length(&(0..length)), request.length)
        }
        Ok((PutKind::Whole { length, verified: false }, _)) => assert_eq!(length, request.length),
        Ok((PutKind::Folder | PutKind::Finish { .. }, _)) => assert_eq!(request.length, 0),
        Err(refused) => assert!((400..500).contains(&refused.status)),
    }
    if let Ok(Some(upload)) = put::parse_query(&request, put::MAX_FILE) {
        assert!(!upload.tag.is_empty() && upload.length <= put::MAX_FILE);
    }
    let _ = put::may_replace(&request, None);
    let decision = decide(&request, &VERSION, "text/plain", None);
    let status = decision.head.status();
    match &decision.body {
        Body::Part(part) | Body::Verified(part) | Body::Values(part) => {
            assert!(part.end <= size && part.start <= part.end && matches!(status, 200 | 206));
            assert!(status == 206 || *part == (0..size));
        }
        Body::Parts(parts, _) => assert!(status == 206 && parts.len() <= range::MAX_PARTS),
        Body::Empty | Body::Text(_) => {}
        Body::Lines => panic!("a file has no lines"),
    }
    assert!(decision.body.length() <= 2 * size, "no more than the file, and what frames it");
    let head = decision.head.finish(request.keep_alive);
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut parsed = httparse::Response::new(&mut fields);
    assert!(parsed.parse(&head).expect("our own heads are read").is_complete());
}
