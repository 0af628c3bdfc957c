//! Tests uploads by other programs, by hand-written requests, and by malicious clients.

use super::support::{Answer, Shared, content, impatient, skip};
use nix::sched::{CloneFlags, unshare};
use sprat_flow::group::{GROUP_BYTES, VERIFIED, count, range, root, value};
use sprat_flow::share::{MAX_UPLOADS, Tokens};
use sprat_testing::until;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

const MIB: usize = 1 << 20;

fn writable() -> Shared {
    Shared::with(|options| options.writable = Some(u64::MAX))
}

/// Returns the names in the shared directory, with hidden names.
fn names(shared: &Shared) -> Vec<String> {
    let entries = std::fs::read_dir(shared.path()).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Sends a request with a body on a new connection, and returns the answer.
fn put(shared: &Shared, path: &str, fields: &str, body: &[u8]) -> Answer {
    let mut client = shared.connect();
    client.send(&format!(
        "PUT {path} HTTP/1.1\r\nHost: here\r\nContent-Length: {}\r\n{fields}\r\n",
        body.len()
    ));
    let _ = client.tcp.write_all(body); // fails if the server has refused the request
    client.answer(false).unwrap()
}

/// Returns a part of a file in verified form.
fn verified(file: &[u8], groups: std::ops::Range<u64>) -> Vec<u8> {
    let (length, mut body) = (file.len() as u64, Vec::new());
    for index in groups {
        let bytes = range(length, index);
        let bytes =
            &file[usize::try_from(bytes.start).unwrap()..usize::try_from(bytes.end).unwrap()];
        body.extend_from_slice(bytes);
        body.extend_from_slice(&value(length, index, bytes));
    }
    body
}

fn part(file: &[u8], groups: std::ops::Range<u64>, tag: &str) -> String {
    let (first, end) =
        (groups.start * GROUP_BYTES, (groups.end * GROUP_BYTES).min(file.len() as u64));
    format!(
        "Content-Type: {VERIFIED}\r\nContent-Range: bytes {first}-{}/{}\r\nSprat-Upload: {tag}\r\n",
        end - 1,
        file.len()
    )
}

fn hash(file: &[u8]) -> blake3::Hash {
    let length = file.len() as u64;
    let values: Vec<_> = (0..count(length))
        .map(|index| {
            let bytes = range(length, index);
            value(
                length,
                index,
                &file[usize::try_from(bytes.start).unwrap()..usize::try_from(bytes.end).unwrap()],
            )
        })
        .collect();
    blake3::Hash::from_bytes(root(&values))
}

#[test]
fn curl_puts_files() {
    let shared = writable();
    let here = tempfile::tempdir().unwrap();
    let curl = |arguments: &[&str]| {
        let output = Command::new("curl")
            .args(["-sS", "-w", " %{http_code}"])
            .args(arguments)
            .output()
            .ok()?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    for bytes in [0, 7, 9 * MIB + 5] {
        let path = here.path().join(format!("{bytes}"));
        std::fs::write(&path, content(bytes)).unwrap();
        let path = path.to_str().unwrap();
        let Some(said) = curl(&["-T", path, &shared.url("/")]) else {
            return skip("curl is not installed: sprat share --writable was not tried with it");
        };
        assert_eq!(said, "created\n 201");
        assert!(std::fs::read(shared.path().join(format!("{bytes}"))).unwrap() == content(bytes));
        // A file is replaced only if a condition allows that.
        assert!(curl(&["-T", path, &shared.url("/")]).unwrap().ends_with(" 409"));
        assert_eq!(
            curl(&["-T", path, "-H", "If-Match: *", &shared.url("/0")]).unwrap(),
            "replaced\n 200"
        );
    }
    assert!(std::fs::read(shared.path().join("0")).unwrap() == content(9 * MIB + 5));
    assert!(curl(&["-T", "/etc/hostname", &shared.url("/none/x")]).unwrap().ends_with(" 409"));
    assert_eq!(curl(&["-X", "PUT", "-d", "", &shared.url("/new/deep/")]).unwrap(), "created\n 201");
    assert!(shared.path().join("new/deep").is_dir());
    assert_eq!(names(&shared), ["0", "7", "9437189", "new"]);
}

#[test]
fn nothing_lies_outside_or_under_a_name_that_nobody_sees() {
    let shared = writable();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("file"), "mine").unwrap();
    std::fs::create_dir(shared.path().join("inside")).unwrap();
    symlink(outside.path(), shared.path().join("out")).unwrap();
    symlink(outside.path().join("file"), shared.path().join("link")).unwrap();
    symlink("inside", shared.path().join("within")).unwrap();
    let before = names(&shared);
    for (path, status) in [
        ("/../x", 400),
        ("/a/../../x", 400),
        ("/%2e%2e/x", 400),
        ("/..%2fx", 404),
        ("/out/x", 409),
        ("/out/file", 409),
        ("/out/new/", 409),
        ("/link", 409),
        ("/inside/x%2fy", 404),
        ("/.x", 403),
        ("/.ssh/authorized_keys", 403),
        ("/.sprat/x", 403),
        ("/x.sprat-part", 403),
        ("/x%0a", 403),
        ("/inside", 409),
    ] {
        let body = if path.ends_with('/') { &b""[..] } else { b"x" };
        for fields in ["", "If-Match: *\r\n"] {
            let answer = put(&shared, path, fields, body);
            let expected =
                if status == 409 && !fields.is_empty() { [409, 412] } else { [status, status] };
            assert!(expected.contains(&answer.status), "{path}: {}", answer.text());
        }
    }
    assert_eq!(put(&shared, "/within/x", "", b"x").status, 201, "a link that stays inside");
    assert_eq!(std::fs::read(shared.path().join("inside/x")).unwrap(), b"x");
    assert_eq!(names(&shared), before);
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    assert_eq!(std::fs::read(outside.path().join("file")).unwrap(), b"mine");
}

#[test]
fn putting_requires_the_right() {
    let read_only = Shared::new();
    let answer = put(&read_only, "/x", "", b"x");
    assert_eq!((answer.status, answer.field("Allow")), (405, Some("GET, HEAD, OPTIONS")));
    let open = writable();
    assert_eq!(open.ask("OPTIONS", "/x", "").field("Allow"), Some("GET, HEAD, OPTIONS, PUT"));
    let page = put(&open, "/x", "Origin: http://127.0.0.1\r\n", b"x");
    assert_eq!(page.status, 403, "a page of another origin may not write");
    let here = tempfile::tempdir().unwrap();
    std::fs::write(here.path().join("tokens"), "abcdefghijklmnop\n").unwrap();
    let tokens = Tokens::read(&here.path().join("tokens")).unwrap();
    let shared = Shared::with(|options| (options.writable, options.tokens) = (Some(9), tokens));
    shared.write("there", b"x");
    let page = shared.get("/", "Authorization: Bearer abcdefghijklmnop\r\n");
    let ticket = page
        .text()
        .split("ticket=")
        .nth(1)
        .unwrap()
        .split(['"', '&', '\'', ' '])
        .next()
        .unwrap()
        .to_owned();
    assert_eq!(shared.get(&format!("/there?ticket={ticket}"), "").status, 200);
    for (path, fields, status) in [
        ("/x".to_owned(), "", 401),
        ("/x".to_owned(), "Authorization: Bearer bcdefghijklmnopq\r\n", 401),
        (format!("/there?ticket={ticket}"), "If-Match: *\r\n", 401),
        ("/x".to_owned(), "Authorization: Bearer abcdefghijklmnop\r\n", 201),
        ("/y?token=abcdefghijklmnop".to_owned(), "", 201),
    ] {
        assert_eq!(put(&shared, &path, fields, b"x").status, status, "{path} {fields}");
    }
    let large = put(&shared, "/z", "Authorization: Bearer abcdefghijklmnop\r\n", b"0123456789");
    assert_eq!(large.status, 413);
    assert_eq!(names(&shared), ["there", "x", "y"]);
}

#[test]
fn a_refusal_leaves_the_connection_where_it_was() {
    let shared = writable();
    let mut client = shared.connect();
    let body = "x".repeat(100);
    for (path, status) in [("/none/x", 409), ("/.x", 403), ("/a", 201), ("/a", 409), ("/b", 201)] {
        client
            .send(&format!("PUT {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{body}"));
        assert_eq!(client.answer(false).unwrap().status, status, "{path}");
    }
    // Send many requests before the first answer is read.
    let many: String = (0..50)
        .map(|at| format!("PUT /f{at} HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{body}"))
        .collect();
    client.send(&many);
    assert!((0..50).all(|_| client.answer(false).unwrap().status == 201));
    // A client that waits for a 100 response gets the rejection instead, and a long body is not
    // read.
    client.send("PUT /c HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.answer(true).unwrap().status, 100);
    client.send("abc");
    assert_eq!(client.answer(false).unwrap().status, 201);
    client.send("PUT /c HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.answer(false).unwrap().status, 409);
    assert!(client.is_closed());
    let mut client = shared.connect();
    client.send("PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\n");
    assert_eq!(client.answer(false).unwrap().status, 409);
    assert!(client.is_closed());
}

#[test]
fn what_is_not_whole_has_no_name() {
    let shared =
        Shared::with(|options| (options.writable, options.limits) = (Some(u64::MAX), impatient()));
    for length in [100, 9 * MIB] {
        let mut client = shared.connect();
        client
            .send(&format!("PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\nbegun"));
        drop(client);
        // The server does not wait for a client that stops sending.
        let mut client = shared.connect();
        client
            .send(&format!("PUT /b HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\nbegun"));
        assert!(client.answer(false).is_none());
        until("nothing is left", || names(&shared).is_empty());
    }
    let file = content(3 * MIB);
    let mut wrong = verified(&file, 0..3);
    wrong[MIB + 40] ^= 1;
    assert_eq!(put(&shared, "/c", &format!("Content-Type: {VERIFIED}\r\n"), &wrong).status, 422);
    until("nothing is left", || names(&shared).is_empty());
}

#[test]
fn parts_become_a_file_when_all_are_there() {
    let shared = writable();
    let file = content(3 * MIB + 9);
    let mut wrong = verified(&file, 2..4);
    wrong[5] ^= 1;
    let answer = put(&shared, "/a", &part(&file, 2..4, "tag"), &wrong);
    assert_eq!((answer.status, answer.field("Sprat-Wrong")), (202, Some("2")));
    assert_eq!(shared.get("/a", "").status, 404, "the file has no name yet");
    let end = |tag: &str, hash: blake3::Hash| {
        let fields = format!(
            "Content-Type: application/vnd.sprat.upload\r\nSprat-Upload: {tag}\r\nSprat-Length: \
             {}\r\nSprat-Blake3: {}\r\n",
            file.len(),
            hash.to_hex()
        );
        put(
            &shared,
            "/a",
            &format!("{fields}Sprat-Mode: 4751\r\nSprat-Mtime: 1600000000.000000001\r\n"),
            b"",
        )
    };
    let answer = end("tag", hash(&file));
    assert_eq!((answer.status, answer.field("Sprat-Missing")), (409, Some("3")));
    let asked = shared.get(
        "/a",
        &format!(
            "Accept: application/vnd.sprat.upload\r\nSprat-Upload: tag\r\nSprat-Length: {}\r\n",
            file.len()
        ),
    );
    let told = sprat_flow::journal::parse(&asked.body).unwrap();
    assert_eq!(told.groups.keys().copied().collect::<Vec<_>>(), [3]);
    assert_eq!(
        (told.identity.part.as_str(), told.identity.boot.as_str()),
        ("", ""),
        "the answer says nothing about the machine"
    );
    let answer = put(&shared, "/a", &part(&file, 0..3, "tag"), &verified(&file, 0..3));
    assert_eq!((answer.status, answer.field("Sprat-Wrong")), (202, None));
    let answer = end("tag", hash(&file));
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert!(std::fs::read(shared.path().join("a")).unwrap() == file);
    let meta = std::fs::metadata(shared.path().join("a")).unwrap();
    assert_eq!(meta.permissions().mode() & 0o7777, 0o751, "never set-user-id");
    assert_eq!(shared.ask("HEAD", "/a", "").field("ETag"), answer.field("ETag"));
    assert_eq!(names(&shared), ["a"]);
    // A file that differs from the announced file gets no name, and is discarded.
    std::fs::remove_file(shared.path().join("a")).unwrap();
    until("all parts are taken", || {
        put(&shared, "/a", &part(&file, 0..4, "tag"), &verified(&file, 0..4)).status == 202
    });
    assert_eq!(end("tag", blake3::hash(b"another")).status, 422);
    until("nothing is left", || names(&shared).is_empty());
    // An upload to the same name from another sender is a different upload, and starts over.
    until("the first sender's part is taken", || {
        put(&shared, "/a", &part(&file, 0..2, "one"), &verified(&file, 0..2)).status == 202
    });
    until("the second sender's part is taken", || {
        put(&shared, "/a", &part(&file, 2..4, "two"), &verified(&file, 2..4)).status == 202
    });
    assert_eq!(end("two", hash(&file)).field("Sprat-Missing"), Some("2"));
}

#[test]
fn what_has_come_is_there_for_the_same_sender_only() {
    let shared = writable();
    let file = content(3 * MIB);
    let mut client = shared.connect();
    let fields = part(&file, 0..3, "tag");
    let body = verified(&file, 0..3);
    client.send(&format!(
        "PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n{fields}\r\n",
        body.len()
    ));
    client.tcp.write_all(&body[..2 * MIB + 80]).unwrap();
    // During an upload, uploads of another state of the file are rejected.
    until("the upload has begun", || !names(&shared).is_empty());
    until("another sender is refused", || {
        put(&shared, "/a", &part(&file, 0..1, "other"), &verified(&file, 0..1)).status == 409
    });
    drop(client);
    let ask = |tag: &str| {
        let fields = format!(
            "Accept: application/vnd.sprat.upload\r\nSprat-Upload: {tag}\r\nSprat-Length: {}\r\n",
            file.len()
        );
        sprat_flow::journal::parse(&shared.get("/a", &fields).body).unwrap().groups.len()
    };
    until("two blocks are there", || ask("tag") == 2);
    assert_eq!(ask("other"), 0);
}

#[test]
fn what_is_overwritten_is_forgotten() {
    let shared = writable();
    let (file, other) = (content(3 * MIB), vec![7; 3 * MIB]);
    let ask = || {
        let fields = format!(
            "Accept: application/vnd.sprat.upload\r\nSprat-Upload: tag\r\nSprat-Length: {}\r\n",
            3 * MIB
        );
        sprat_flow::journal::parse(&shared.get("/a", &fields).body).unwrap().groups.len()
    };
    // A plain PUT, small or large, breaks off. The groups that the journal listed are then gone.
    for length in [4 * MIB, 9 * MIB] {
        // The name becomes free a moment after its connection has ended. Until then another upload
        // is refused.
        until("two blocks are taken", || {
            put(&shared, "/a", &part(&file, 0..2, "tag"), &verified(&file, 0..2)).status == 202
        });
        until("two blocks are in the journal", || {
            ask() == 2 && shared.path().join(".a.sprat-journal").exists()
        });
        let head = format!(
            "PUT /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        );
        let begin = || {
            let mut client = shared.connect();
            client.send(&head);
            if client.answer(true).is_some_and(|answer| answer.status == 100) {
                let _ = client.tcp.write_all(&other); // a refusal ends the connection
            }
            client
        };
        let mut client = begin();
        // The request is refused until the server has noticed that the connection of the part has
        // ended.
        until("the journal is gone", || {
            if client.is_answered() {
                client = begin();
            }
            !shared.path().join(".a.sprat-journal").exists()
        });
        assert_eq!(ask(), 0, "no group counts while the other upload arrives");
        drop(client);
        until("nothing is left", || names(&shared).is_empty());
        assert_eq!(ask(), 0);
    }
}

#[test]
fn only_so_many_are_received_at_a_time() {
    let shared = writable();
    let file = content(2 * MIB);
    let mut clients = Vec::new();
    for at in 0..MAX_UPLOADS {
        let mut client = shared.connect();
        let fields = part(&file, 0..1, "tag");
        let body = verified(&file, 0..1);
        client.send(&format!(
            "PUT /f{at} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n{fields}\r\n",
            body.len()
        ));
        client.tcp.write_all(&body).unwrap();
        assert_eq!(client.answer(false).unwrap().status, 202);
        clients.push(client);
    }
    let refused = put(&shared, "/more", &part(&file, 0..1, "tag"), &verified(&file, 0..1));
    assert_eq!((refused.status, refused.field("Retry-After").is_some()), (503, true));
    clients.pop();
    until("another upload is taken", || {
        put(&shared, "/more", &part(&file, 0..1, "tag"), &verified(&file, 0..1)).status == 202
    });
}

/// Runs a test with a server on a filesystem of 4 MB, if the machine allows to mount one.
fn within(test: impl FnOnce(&Shared, &Path) + Send) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let directory = tempfile::tempdir().unwrap();
            let small = directory.path().to_str().unwrap();
            let mount = |arguments: &[&str]| {
                Command::new("mount").args(arguments).status().is_ok_and(|status| status.success())
            };
            let made = unshare(CloneFlags::CLONE_NEWNS).is_ok()
                && mount(&["--make-rprivate", "/"])
                && mount(&["-t", "tmpfs", "-o", "size=4m", "small", small]);
            if !made {
                return skip("sprat-flow, a full disk under sprat share: no mount namespace");
            }
            let shared = Shared::with(|options| {
                (options.root, options.writable) = (directory.path().to_owned(), Some(u64::MAX));
                options.max_unfinished = Some(u64::MAX);
            });
            test(&shared, directory.path());
        });
    });
}

#[test]
fn a_full_disk_is_reported_and_earlier_parts_stay() {
    within(|shared, root| {
        let file = content(6 * MIB);
        let listed = || std::fs::read_dir(root).unwrap().count();
        assert_eq!(put(shared, "/plain", "", &file).status, 507);
        let answer = put(shared, "/a", &part(&file, 0..2, "tag"), &verified(&file, 0..2));
        assert_eq!(answer.status, 507, "{}", answer.text());
        assert_eq!(listed(), 0, "no file is left that takes space");
        // The parts of the file that arrived before stay, and the answer names them.
        let file = content(2 * MIB);
        let answer = put(shared, "/b", &part(&file, 0..1, "tag"), &verified(&file, 0..1));
        assert_eq!(answer.status, 202, "{}", answer.text());
        let kept =
            || sprat_flow::journal::parse(&std::fs::read(root.join(".b.sprat-journal")).ok()?);
        until("one group is kept", || kept().is_some_and(|kept| kept.groups.len() == 1));
        punch(&root.join(".b.sprat-part"), MIB as u64);
        std::fs::write(root.join("filler"), vec![1; 2 * MIB + MIB / 2]).unwrap();
        let answer = put(shared, "/b", &part(&file, 1..2, "tag"), &verified(&file, 1..2));
        assert_eq!(answer.status, 507, "{}", answer.text());
        assert!(answer.text().contains(".b.sprat-part"), "{}", answer.text());
        std::fs::remove_file(root.join("filler")).unwrap();
        let answer = put(shared, "/b", &part(&file, 1..2, "tag"), &verified(&file, 1..2));
        assert_eq!(answer.status, 202, "{}", answer.text());
        let fields = format!(
            "Sprat-Upload: tag\r\nSprat-Length: {}\r\nSprat-Blake3: {}\r\n",
            file.len(),
            hash(&file).to_hex()
        );
        let end = put(
            shared,
            "/b",
            &format!("Content-Type: application/vnd.sprat.upload\r\n{fields}"),
            b"",
        );
        assert_eq!(end.status, 201, "{}", end.text());
        assert!(std::fs::read(root.join("b")).unwrap() == file);
    });
}

/// Frees the space of a file from `from` on, which other files then take.
fn punch(path: &Path, from: u64) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(from).unwrap();
    file.set_len(2 * from).unwrap();
}

/// Returns the number of bytes on the disk that a file occupies.
fn held(path: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    path.metadata().map_or(0, |meta| meta.blocks() * 512)
}

/// Begins an upload of `length` bytes, and sends one group. Returns the status.
fn begin_upload(shared: &Shared, name: &str, length: u64) -> u16 {
    let group = vec![7; 1 << 20];
    let value = sprat_flow::group::value(length, 0, &group);
    let mut client = shared.connect();
    client.send(&format!(
        "PUT /{name} HTTP/1.1\r\nHost: h\r\nContent-Type: \
         application/vnd.sprat.verified\r\nSprat-Upload: t\r\n\
         Content-Range: bytes 0-1048575/{length}\r\nContent-Length: {}\r\n\r\n",
        group.len() + value.len()
    ));
    let _ = std::io::Write::write_all(&mut client.tcp, &[&group[..], &value].concat());
    client.answer(false).unwrap().status
}

#[test]
fn an_abandoned_upload_holds_its_groups_for_a_limited_time() {
    let shared = Shared::with(|options| {
        options.writable = Some(u64::MAX);
        options.keep_unfinished = std::time::Duration::from_secs(8);
    });
    let (part, journal) =
        (shared.path().join(".x.sprat-part"), shared.path().join(".x.sprat-journal"));
    assert_eq!(begin_upload(&shared, "x", 64 << 20), 202);
    until("a part is held, and no more", || {
        held(&part) > 0 && held(&part) <= 2 << 20 && journal.exists()
    });
    assert_eq!(part.metadata().unwrap().len(), 64 << 20);
    // Nothing resumes the upload.
    until("the upload is forgotten", || !part.exists() && !journal.exists());
}

#[test]
fn unfinished_uploads_hold_so_much_together_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(".old.sprat-part"), vec![1; 8 << 20]).unwrap();
    let root = directory.path().to_owned();
    let shared = Shared::with(|options| {
        (options.root, options.writable, options.max_unfinished) =
            (root, Some(u64::MAX), Some(20 << 20));
    });
    // Parts that another process left are found soon after the start.
    until("there is no more room", || {
        let status = begin_upload(&shared, "x", 16 << 20);
        assert!(matches!(status, 202 | 507), "{status}");
        status == 507
    });
    assert_eq!(begin_upload(&shared, "y", 64 << 20), 507);
    assert_eq!(begin_upload(&shared, "y", 8 << 20), 202);
    // An abandoned upload holds its groups; small files do not count.
    until("there is room again", || begin_upload(&shared, "z", 8 << 20) == 202);
    assert_eq!(shared.ask("PUT", "/small", "Content-Length: 0\r\n").status, 201);
}
