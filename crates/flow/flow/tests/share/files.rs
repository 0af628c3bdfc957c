//! Tests whole files, ranges and conditions.

use super::support::{Shared, content};
use proptest::prelude::*;
use std::os::unix::fs::FileExt as _;

#[test]
fn a_file_is_sent_as_it_is() {
    let shared = Shared::new();
    for bytes in [0, 1, 4095, 4096, 4097, (1 << 20) - 1, 1 << 20, (5 << 20) + 7] {
        let file = content(bytes);
        shared.write("file.txt", &file);
        let answer = shared.get("/file.txt", "");
        assert_eq!(answer.status, 200);
        assert!(answer.body == file, "{bytes} B");
        assert_eq!(answer.field("Content-Type"), Some("text/plain"));
        assert_eq!(answer.field("Accept-Ranges"), Some("bytes"));
        assert_eq!(answer.field("X-Content-Type-Options"), Some("nosniff"));
        assert!(answer.field("Date").is_some() && answer.field("Last-Modified").is_some());
        let head = shared.ask("HEAD", "/file.txt", "");
        assert_eq!((head.status, head.body.len()), (200, 0));
        let without_date = |fields: &[(String, String)]| {
            fields.iter().filter(|(name, _)| name != "Date").cloned().collect::<Vec<_>>()
        };
        assert_eq!(
            without_date(&head.fields),
            without_date(&answer.fields),
            "HEAD and GET have equal fields"
        );
    }
    let events = shared.events.lock().unwrap();
    assert!(events.iter().all(|event| event.error.is_none() && event.path == "/file.txt"));
}

#[test]
fn names_are_any_bytes() {
    let shared = Shared::new();
    for (name, path) in [
        ("ä ö.bin", "/%C3%A4%20%C3%B6.bin"),
        ("a+b&c%41", "/a+b&c%2541"),
        ("日本", "/%E6%97%A5%E6%9C%AC"),
    ] {
        shared.write(name, name.as_bytes());
        assert_eq!(shared.get(path, "").text(), name);
        assert_eq!(shared.get(&format!("http://here{path}"), "").text(), name, "absolute form");
        let saved = shared.get(&format!("{path}?download"), "");
        assert!(
            saved
                .field("Content-Disposition")
                .unwrap()
                .starts_with("attachment; filename*=UTF-8''")
        );
    }
}

#[test]
fn the_far_end_of_a_large_file_is_near() {
    let shared = Shared::new();
    let file = std::fs::File::create(shared.path().join("large")).unwrap();
    let size = (5 << 30) + 12_345;
    file.set_len(size).unwrap();
    file.write_all_at(b"the end", size - 7).unwrap();
    for range in [
        "bytes=-7".to_owned(),
        format!("bytes={}-", size - 7),
        format!("bytes={}-{}", size - 7, size + 99),
    ] {
        let answer = shared.get("/large", &format!("Range: {range}\r\n"));
        assert_eq!((answer.status, answer.text()), (206, "the end"), "{range}");
        let told = format!("bytes {}-{}/{size}", size - 7, size - 1);
        assert_eq!(answer.field("Content-Range"), Some(&told[..]));
    }
    // A range across two groups, in a file with holes.
    let answer = shared.get(
        "/large",
        &format!("Range: bytes={}-{}\r\n", (4u64 << 30) - 5, (4u64 << 30) + (2 << 20)),
    );
    assert!(answer.body.len() == (2 << 20) + 6 && answer.body.iter().all(|byte| *byte == 0));
    assert_eq!(
        shared.ask("HEAD", "/large", "").field("Content-Length"),
        Some(&size.to_string()[..])
    );
}

#[test]
fn several_ranges_come_in_parts() {
    let shared = Shared::new();
    let file = content(3 << 20);
    shared.write("file", &file);
    let answer = shared.get("/file", "Range: bytes=0-9, 1048570-1048589, -5\r\n");
    assert_eq!(answer.status, 206);
    let kind = answer.field("Content-Type").unwrap();
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let mut expected = Vec::new();
    for part in [0..10, 1_048_570..1_048_590, (3 << 20) - 5..3 << 20] {
        let range = format!("bytes {}-{}/{}", part.start, part.end - 1, file.len());
        let kind = "Content-Type: application/octet-stream";
        expected.extend(
            format!("\r\n--{boundary}\r\n{kind}\r\nContent-Range: {range}\r\n\r\n").bytes(),
        );
        expected.extend(&file[part]);
    }
    expected.extend(format!("\r\n--{boundary}--\r\n").bytes());
    assert!(answer.body == expected);
    let bounds = |count: usize| vec!["0-0"; count].join(",");
    assert_eq!(shared.get("/file", &format!("Range: bytes={}\r\n", bounds(16))).status, 206);
    assert_eq!(
        shared.get("/file", &format!("Range: bytes={}\r\n", bounds(17))).status,
        200,
        "too many ranges: the whole file"
    );
}

#[test]
fn a_range_that_is_not_there_is_said_to_be_none() {
    let shared = Shared::new();
    shared.write("file", b"0123456789");
    shared.write("empty", b"");
    let answer = shared.get("/file", "Range: bytes=10-\r\n");
    assert_eq!((answer.status, answer.field("Content-Range")), (416, Some("bytes */10")));
    assert_eq!(shared.get("/empty", "Range: bytes=0-\r\n").status, 416);
    assert_eq!(shared.get("/file", "Range: furlongs=1-2\r\n").text(), "0123456789");
    assert_eq!(
        shared.ask("HEAD", "/file", "Range: bytes=0-1\r\n").status,
        200,
        "ranges are for GET"
    );
}

#[test]
fn conditions_distinguish_versions() {
    let shared = Shared::new();
    shared.write("file", b"first version");
    let first = shared.get("/file", "");
    let tag = first.field("ETag").unwrap();
    assert!(tag.starts_with('"'), "strong");
    assert_eq!(shared.get("/file", &format!("If-None-Match: {tag}\r\n")).status, 304);
    let modified = first.field("Last-Modified").unwrap();
    assert_eq!(shared.get("/file", &format!("If-Modified-Since: {modified}\r\n")).status, 304);
    let rest = format!("If-Range: {tag}\r\nRange: bytes=6-\r\n");
    assert_eq!(shared.get("/file", &rest).text(), "version");
    let times = std::fs::metadata(shared.path().join("file")).unwrap().modified().unwrap();
    // A careless copy has the same size and time. Wait longer than the resolution of the kernel's
    // clock.
    super::support::wait(30);
    shared.write("file", b"other version");
    std::fs::File::options()
        .write(true)
        .open(shared.path().join("file"))
        .unwrap()
        .set_modified(times)
        .unwrap();
    let answer = shared.get("/file", &rest);
    assert_eq!(
        (answer.status, answer.text()),
        (200, "other version"),
        "another version: the whole file"
    );
    assert_eq!(shared.get("/file", &format!("If-Match: {tag}\r\n")).status, 412);
    assert_eq!(shared.get("/file", &format!("If-None-Match: {tag}\r\n")).status, 200);
}

#[test]
fn a_file_that_changes_meanwhile_does_not_arrive() {
    let shared = Shared::new();
    // The file is larger than all buffers between the two ends, so that the server cannot have read
    // all of it.
    let file = std::fs::File::create(shared.path().join("file")).unwrap();
    for (what, verified) in [("cut", false), ("written", false), ("cut", true), ("written", true)] {
        file.set_len(300 << 20).unwrap();
        let mut client = shared.connect();
        let accept = if verified { "Accept: application/vnd.sprat.verified\r\n" } else { "" };
        client.send(&format!("GET /file HTTP/1.1\r\nHost: a\r\n{accept}\r\n"));
        // The answer has begun, so the server knows which version of the file it sends.
        client.tcp.peek(&mut [0]).unwrap();
        let modified = || file.metadata().unwrap().modified().unwrap();
        let before = modified();
        if what == "cut" {
            file.set_len(250 << 20).unwrap();
        }
        // The kernel's clock has a coarse resolution: two changes may have one time.
        while modified() == before {
            super::support::wait(1);
            file.write_all_at(b"x", 5).unwrap();
        }
        // The contents of the body do not matter here.
        let mut came = 0;
        let mut part = vec![0; 1 << 20];
        while let Ok(count @ 1..) = std::io::Read::read(&mut client.tcp, &mut part) {
            came += count;
        }
        assert!(came < 300 << 20, "{what}: {came} B came");
        let events = shared.events.lock().unwrap();
        let error = events.last().unwrap().error.clone().unwrap();
        assert!(error.contains("changed") || error.contains("truncated"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_range_is_its_bytes(
        size in 1usize..3 << 20,
        first in any::<prop::sample::Index>(),
        length in 1usize..2 << 20,
    ) {
        static SHARED: std::sync::LazyLock<Shared> = std::sync::LazyLock::new(Shared::new);
        let name = format!("file-{size}");
        let file = content(size);
        SHARED.write(&name, &file);
        let first = first.index(size);
        let end = size.min(first + length);
        let answer = SHARED.get(&format!("/{name}"), &format!("Range: \
            bytes={first}-{}\r\n", first + length - 1));
        prop_assert_eq!(answer.status, 206);
        prop_assert!(answer.body == file[first..end]);
        std::fs::remove_file(SHARED.path().join(&name)).unwrap();
    }
}
