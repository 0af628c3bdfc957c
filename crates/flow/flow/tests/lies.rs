//! Tests servers that violate the protocol. Whatever they send, the file is exact or absent.

use crate::support;
use proptest::prelude::*;
use sprat_flow::copy::answer::{Answer, FileRequest, judge};
use sprat_flow::copy::{Error, Options};
use sprat_http::client::Head;
use std::fs;
use support::{Fault, Server, content, copy, names, options};

const MIB: usize = 1 << 20;

fn says(fields: &[(&'static str, &str)]) -> Fault {
    Fault::Says(fields.iter().map(|(name, text)| (*name, (*text).to_owned())).collect())
}

/// Copies a file while the server makes a fault, in the first answer or in the answer to a request
/// for a part. Two copies test a part that is the end of a group, and a part that is several
/// groups. Returns the outcome of the second.
fn exact_or_absent(verified: bool, fault: &Fault, resumed: bool) -> Result<(), Error> {
    if !resumed {
        return exact_or_absent_after(verified, fault, None);
    }
    let _ = exact_or_absent_after(verified, fault, Some(Fault::CutBody(MIB + MIB / 2)));
    exact_or_absent_after(
        verified,
        fault,
        Some(Fault::CutBody(if verified { MIB + 32 } else { MIB })),
    )
}

fn exact_or_absent_after(
    verified: bool,
    fault: &Fault,
    before: Option<Fault>,
) -> Result<(), Error> {
    let bytes = 3 * MIB + 11;
    let server = Server::start(content(bytes), verified);
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("file");
    server.fault(before);
    server.fault([fault.clone()]);
    let (outcome, events) = copy(&server.url(), &target, Options { retries: 2, ..options() });
    match &outcome {
        Ok(_) => assert!(fs::read(&target).unwrap() == content(bytes), "{fault:?}: {events:?}"),
        Err(_) => assert!(!target.exists(), "{fault:?}"),
    }
    outcome.map(drop)
}

#[test]
fn heads_that_make_no_sense_are_refused() {
    let many = (0..200).map(|_| "Field: x\r\n").collect::<String>();
    let faults = [
        says(&[("Content-Encoding", "gzip")]),
        says(&[("Content-Length", "-1")]),
        says(&[("Content-Length", "+5")]),
        says(&[("Content-Length", "5, 6")]),
        says(&[("Content-Length", "9223372036854775807")]),
        says(&[("Transfer-Encoding", "chunked")]),
        says(&[("Content-Length", ""), ("Transfer-Encoding", "gzip, chunked")]),
        says(&[("ETag", "\"one\"\r\nContent-Length: 7")]),
        Fault::Raw(b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec()),
        Fault::Raw(
            b"HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\nContent-Range: bytes 0-2/3\r\n\r\nabc".to_vec(),
        ),
        Fault::Raw(b"HTTP/1.1 302 Found\r\n\r\n".to_vec()),
        Fault::Raw(b"HTTP/1.1 302 Found\r\nLocation: ftp://elsewhere/\r\n\r\n".to_vec()),
        Fault::Raw(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
        Fault::Raw([b"HTTP/1.1 200 OK\r\nField: ".as_slice(), &[b'x'; 40_000]].concat()),
        Fault::Raw(format!("HTTP/1.1 200 OK\r\n{many}\r\n").into_bytes()),
        Fault::Raw(b"HTTP/1.1 100 Continue\r\n\r\n".repeat(50)),
    ];
    for verified in [true, false] {
        for fault in &faults {
            let refused = exact_or_absent(verified, fault, false);
            assert!(matches!(refused, Err(Error::Protocol { .. })), "{fault:?}: {refused:?}");
        }
    }
}

#[test]
fn parts_that_were_not_asked_for_are_refused() {
    let total = 3 * MIB + 11;
    let last = total - 1;
    for verified in [true, false] {
        for fault in [
            says(&[("Content-Range", &format!("bytes 0-{last}/{total}"))]),
            says(&[("Content-Range", &format!("bytes 2097152-{last}/{total}"))]),
            says(&[("Content-Range", "")]),
            says(&[("Content-Range", "bytes */77")]),
            says(&[("Content-Range", "lines 1-2/3")]),
            says(&[("Content-Length", "77")]),
            says(&[(
                "Content-Type",
                if verified { "text/plain" } else { "application/vnd.sprat.verified" },
            )]),
        ] {
            let refused = exact_or_absent(verified, &fault, true);
            assert!(matches!(refused, Err(Error::Protocol { .. })), "{fault:?}: {refused:?}");
        }
    }
}

#[test]
fn a_file_in_a_doubtful_state_is_fetched_again() {
    let last = 3 * MIB + 10;
    for verified in [true, false] {
        for fault in [
            Fault::Whole,
            says(&[("ETag", "\"other\"")]),
            says(&[("Content-Range", &format!("bytes 1048576-{last}/99999999"))]),
            Fault::Raw(
                b"HTTP/1.1 416 No\r\nContent-Range: bytes */5\r\nContent-Length: 0\r\n\r\n"
                    .to_vec(),
            ),
            Fault::Raw(b"HTTP/1.1 412 No\r\nContent-Length: 0\r\n\r\n".to_vec()),
        ] {
            exact_or_absent(verified, &fault, true)
                .unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        }
    }
}

#[test]
fn bodies_that_end_elsewhere_than_stated_are_refused() {
    let total = 3 * MIB + 11;
    for verified in [true, false] {
        for longer in [1, 32, MIB] {
            // The server stalls, and states another length when it is asked again. The file is then
            // fetched again.
            let _ = exact_or_absent(
                verified,
                &says(&[("Content-Length", &(total + longer).to_string())]),
                false,
            );
        }
    }
    // The body in verified form is shorter, which the values reveal.
    for shorter in [1, 31, 33, MIB] {
        let told = total + 4 * 32 - shorter;
        let _ = exact_or_absent(true, &says(&[("Content-Length", &told.to_string())]), false);
    }
}

#[test]
fn chunks_that_make_no_sense_are_refused() {
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".as_slice();
    let endless = [b"5;".as_slice(), &[b'x'; 5000]].concat();
    for body in [
        b"zz\r\n".as_slice(),
        b"5\r\nabcdeX\r\n",
        b"fffffffffffffffff\r\n",
        b"-1\r\n",
        &endless,
        &[b"0\r\n".as_slice(), &b"Field: x\r\n".repeat(1000)].concat(),
    ] {
        let refused = exact_or_absent(false, &Fault::Raw([head, body].concat()), false);
        assert!(
            matches!(refused, Err(Error::Protocol { .. })),
            "{:?}: {refused:?}",
            &body[..8.min(body.len())]
        );
    }
    // The body is cut short, and requested again.
    exact_or_absent(false, &Fault::Raw([head, b"5\r\nab"].concat()), false).unwrap();
}

#[test]
fn redirects_are_bounded_and_drop_credentials() {
    let end = Server::start(content(MIB), true);
    let begin = Server::start(Vec::new(), true);
    let redirect = |to: &str| {
        Fault::Raw(
            format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
                .into_bytes(),
        )
    };
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("file");
    begin.fault([redirect("/folder/nearer"), redirect(&end.url())]);
    let secret = Options { token: Some("secret".to_owned()), ..options() };
    copy(&begin.url(), &target, secret.clone()).0.unwrap();
    assert_eq!(fs::read(&target).unwrap(), content(MIB));
    let told = |server: &Server| {
        server
            .requests()
            .iter()
            .map(|request| request.fields.contains_key("authorization"))
            .collect::<Vec<_>>()
    };
    assert_eq!((told(&begin), told(&end)), (vec![true, true], vec![false]));
    begin.fault(vec![redirect("/again"); 20]);
    let (outcome, _) = copy(&begin.url(), &directory.path().join("other"), secret);
    assert!(matches!(outcome, Err(Error::Protocol { .. })), "{outcome:?}");
    assert_eq!(names(directory.path()), ["file"]);
}

#[test]
fn missing_and_denied_files_are_reported() {
    for (status, want) in
        [(404, "no such file"), (410, "no such file"), (401, "--token-file"), (403, "--token-file")]
    {
        let server = Server::start(content(5), true);
        server.fault([Fault::Status(status, "")]);
        let directory = tempfile::tempdir().unwrap();
        let error = copy(&server.url(), directory.path(), options()).0.unwrap_err().to_string();
        assert!(error.contains(want) && error.contains("/folder/file.bin"), "{error}");
    }
}

proptest! {
    /// Any head that is accepted matches the request, and the length of the body matches it too.
    #[test]
    fn accepted_responses_match_the_request(
        status in prop_oneof![Just(200u16), Just(206)],
        length in prop::option::of(0u64..5 << 20),
        range in prop::option::of((0u64..4 << 20, 0u64..4 << 20, 0u64..5 << 20)),
        verified: bool,
        from in 0u64..3,
        bytes in 1u64..3 << 20,
    ) {
        let mut text = format!("HTTP/1.1 {status} X\r\n");
        if let Some(length) = length { text += &format!("Content-Length: {length}\r\n"); }
        if let Some((first, last, total)) = range { text += &format!("Content-Range: bytes \
            {first}-{last}/{total}\r\n"); }
        if verified { text += "Content-Type: application/vnd.sprat.verified\r\n"; }
        text += "\r\n";
        let part = from << 20..(from << 20) + bytes;
        let asked = FileRequest {
            range: Some(part.clone()),
            length: Some(part.end),
            ..FileRequest::default()
        };
        if let Ok(Some((head, used))) = Head::parse(text.as_bytes()) {
            prop_assert_eq!(used, text.len());
            if let Answer::Bytes(start) = judge(&head, &asked) {
                prop_assert_eq!((start.first, start.end), (part.start, Some(part.end)));
                prop_assert_eq!(status, 206);
            }
        }
    }
}
