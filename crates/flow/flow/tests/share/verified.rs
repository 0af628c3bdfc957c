//! Tests bodies in verified form.

use super::support::{Answer, Shared, content, wait};
use sprat_flow::group::{GROUP_BYTES, VALUE_BYTES, VALUES, VERIFIED, root, value, verified_length};
use sprat_testing::until;
use std::os::unix::fs::PermissionsExt as _;

const ACCEPT: &str = "Accept: text/plain;q=0.1, application/vnd.sprat.verified\r\n";

/// Returns the content and the values of a body.
fn taken_apart(body: &[u8]) -> (Vec<u8>, Vec<[u8; 32]>) {
    let whole = usize::try_from(GROUP_BYTES + VALUE_BYTES).unwrap();
    let parts = body.chunks(whole).map(|group| group.split_at(group.len() - 32));
    let (content, values): (Vec<_>, Vec<_>) = parts.unzip();
    (content.concat(), values.into_iter().map(|value| value.try_into().unwrap()).collect())
}

fn check(answer: &Answer, file: &[u8]) {
    assert_eq!((answer.status, answer.field("Content-Type")), (200, Some(VERIFIED)));
    assert_eq!(answer.field("Sprat-Length"), Some(&file.len().to_string()[..]));
    let (content, values) = taken_apart(&answer.body);
    assert!(content == file);
    assert_eq!(root(&values), *blake3::hash(file).as_bytes());
}

#[test]
fn all_values_make_the_files_hash() {
    let shared = Shared::new();
    for bytes in [0, 1, 1 << 20, (1 << 20) + 1, (7 << 20) + 12_345] {
        let file = content(bytes);
        shared.write("file", &file);
        check(&shared.get("/file", ACCEPT), &file);
    }
    assert_eq!(
        shared.get("/file", "").field("Vary"),
        Some("Accept"),
        "caches keep both forms apart"
    );
    assert_eq!(shared.get("/file", "Accept: */*\r\n").body.len(), (7 << 20) + 12_345);
    assert_eq!(
        shared.get("/file", &format!("Accept: {VERIFIED};q=0\r\n")).body.len(),
        (7 << 20) + 12_345
    );
}

#[test]
fn ranges_of_groups_verify_by_themselves() {
    let shared = Shared::new();
    let file = content((5 << 20) + 99);
    shared.write("file", &file);
    let size = file.len() as u64;
    for (first, last) in [(0, 0), (1, 3), (4, 5), (5, 5)] {
        let bytes = first * GROUP_BYTES..size.min((last + 1) * GROUP_BYTES);
        let range = format!("Range: bytes={}-{}\r\n", bytes.start, bytes.end - 1);
        let answer = shared.get("/file", &format!("{ACCEPT}{range}"));
        assert_eq!(answer.status, 206);
        assert_eq!(answer.body.len() as u64, verified_length(&bytes));
        let told = format!("bytes {}-{}/{size}", bytes.start, bytes.end - 1);
        assert_eq!(answer.field("Content-Range"), Some(&told[..]));
        let (content, values) = taken_apart(&answer.body);
        assert!(
            content
                == file[usize::try_from(bytes.start).unwrap()..usize::try_from(bytes.end).unwrap()]
        );
        for (index, (content, told)) in content.chunks(1 << 20).zip(&values).enumerate() {
            assert_eq!(value(size, first + index as u64, content), *told);
        }
    }
    for range in ["1-", "0-1048576", "1048575-2097151", "-98"] {
        let answer = shared.get("/file", &format!("{ACCEPT}Range: bytes={range}\r\n"));
        assert_eq!(answer.status, 416, "{range}: no group begins or ends there");
    }
    assert_eq!(shared.get("/file", &format!("{ACCEPT}Range: bytes=0-,-1\r\n")).status, 200);
}

#[test]
fn values_alone_are_those_of_the_verified_form() {
    let shared = Shared::new();
    let accept = format!("Accept: {VALUES}\r\n");
    for bytes in [0, 1, 1 << 20, (5 << 20) + 99] {
        let file = content(bytes);
        shared.write("file", &file);
        let (_, values) = taken_apart(&shared.get("/file", ACCEPT).body);
        let answer = shared.get("/file", &accept);
        assert_eq!((answer.status, answer.field("Content-Type")), (200, Some(VALUES)));
        assert_eq!(answer.body, values.concat());
        assert_eq!(
            answer.field("ETag"),
            shared.get("/file", "").field("ETag"),
            "the ETag says which version the values are of"
        );
        if bytes > 3 << 20 {
            let answer = shared.get("/file", &format!("{accept}Range: bytes=1048576-3145727\r\n"));
            assert_eq!((answer.status, &answer.body), (206, &values[1..3].concat()));
            assert_eq!(answer.field("Content-Range"), Some("bytes 1048576-3145727/5242979"));
            assert_eq!(shared.get("/file", &format!("{accept}Range: bytes=1-\r\n")).status, 416);
        }
    }
    assert_eq!(
        shared.get("/file", &format!("{ACCEPT}{accept}")).field("Content-Type"),
        Some(VERIFIED)
    );
}

#[test]
fn attributes_to_preserve_are_sent() {
    let shared = Shared::new();
    shared.write("file", b"x");
    let path = shared.path().join("file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4751)).unwrap();
    let then = std::time::UNIX_EPOCH + std::time::Duration::new(1_234_567_890, 987_654_321);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(then).unwrap();
    let answer = shared.ask("HEAD", "/file", ACCEPT);
    assert_eq!(answer.field("Sprat-Mode"), Some("4751"));
    assert_eq!(answer.field("Sprat-Mtime"), Some("1234567890.987654321"));
    assert_eq!(shared.get("/file", "").field("Sprat-Mode"), None);
}

#[test]
fn values_are_computed_once_for_a_file_at_rest() {
    let shared = Shared::new();
    let file = content((3 << 20) + 5);
    shared.write("file", &file);
    // An answer is reported after it was sent.
    let last_summed = |answers: usize| {
        until("each request is noted", || shared.events.lock().unwrap().len() == answers);
        shared.events.lock().unwrap().last().unwrap().summed
    };
    let mut answers = 0;
    let mut summed = |fields: &str| {
        check(&shared.get("/file", &format!("{ACCEPT}{fields}")), &file);
        answers += 1;
        last_summed(answers)
    };
    let all = file.len() as u64;
    assert_eq!(
        (summed(""), summed("")),
        (all, all),
        "just written: another change in the same clock tick could go unnoticed"
    );
    wait(5_000);
    assert_eq!((summed(""), summed("")), (all, 0));
    assert_eq!(summed("Cache-Control: no-cache\r\n"), all, "for a client that doubts the values");
    // A part of a file whose values are cached, and then a new version of the file.
    let range = "Range: bytes=1048576-\r\n";
    assert_eq!(shared.get("/file", &format!("{ACCEPT}{range}")).body.len(), (2 << 20) + 5 + 3 * 32);
    assert_eq!(last_summed(6), 0);
    let mut other = file.clone();
    other[2 << 20] ^= 1;
    shared.write("file", &other);
    check(&shared.get("/file", ACCEPT), &other);
}
