//! Tests our server and our client together: files and folders, with TLS, with tokens, over both IP
//! versions, and in many streams.
#![allow(clippy::disallowed_methods, reason = "a test waits for a server")]

use crate::support;
use proptest::prelude::*;
use sprat_flow::copy::{Error, Event, Fetch, FetchTree, Options, TreeOutcome};
use sprat_flow::share::tls::self_signed;
use sprat_flow::share::{self, Share};
use std::collections::BTreeMap;
use std::fs;
use std::net::ToSocketAddrs as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};
use support::{content, copy, names, options, skip};

const MIB: usize = 1 << 20;

struct Pair {
    source: tempfile::TempDir,
    target: tempfile::TempDir,
    share: Share,
}

impl Pair {
    fn new() -> Self {
        Self::with("127.0.0.1:0", |_, _| {}).unwrap()
    }

    fn with(
        listen: &str,
        change: impl FnOnce(&mut share::Options, &Path),
    ) -> Result<Self, share::ShareError> {
        let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut options =
            share::Options::new(source.path().to_owned(), vec![listen.parse().unwrap()]);
        change(&mut options, target.path());
        let share = Share::start(options)?;
        Ok(Self { source, target, share })
    }

    fn url(&self, scheme: &str, path: &str) -> String {
        format!("{scheme}://{}/{path}", self.share.addresses()[0])
    }

    fn write(&self, name: &str, content: &[u8]) {
        let path = self.source.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn tree(
        &self,
        path: &str,
        target: &Path,
        recursive: bool,
        options: Options,
    ) -> (Result<TreeOutcome, Error>, Vec<Event>) {
        let mut events = Vec::new();
        let outcome = FetchTree::new(&self.url("sprat", path), target, recursive, options)
            .and_then(|tree| tree.run(&mut |event| events.push(event.clone())));
        events.retain(|event| !matches!(event, Event::Progress(_)));
        (outcome, events)
    }
}

/// Returns all files below a directory, with their contents.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                left.push(entry.path());
            } else {
                let name =
                    entry.path().strip_prefix(directory).unwrap().to_string_lossy().into_owned();
                all.insert(name, fs::read(entry.path()).unwrap());
            }
        }
    }
    all
}

#[test]
fn a_file_keeps_its_bytes_its_time_and_its_permissions() {
    let pair = Pair::new();
    for bytes in [0, 5, 5 * MIB + 123] {
        pair.write("a file.bin", &content(bytes));
        let source = pair.source.path().join("a file.bin");
        fs::set_permissions(&source, fs::Permissions::from_mode(0o640)).unwrap();
        let when = UNIX_EPOCH + Duration::new(1_234_567_890, 987_654_321);
        fs::File::options().write(true).open(&source).unwrap().set_modified(when).unwrap();
        let preserving = Options { preserve: true, force: true, ..options() };
        let (outcome, _) = copy(&pair.url("sprat", "a%20file.bin"), pair.target.path(), preserving);
        assert!(outcome.unwrap().verified);
        let target = pair.target.path().join("a file.bin");
        let meta = fs::metadata(&target).unwrap();
        assert_eq!((meta.modified().unwrap(), meta.permissions().mode() & 0o777), (when, 0o640));
        assert_eq!(fs::read(&target).unwrap(), content(bytes));
        assert!(
            copy(&pair.url("sprat", "a%20file.bin"), pair.target.path(), options())
                .0
                .unwrap()
                .unchanged
        );
    }
}

#[test]
fn the_newer_protocol_and_names_that_have_both_work() {
    let pair = match Pair::with("[::1]:0", |_, _| {}) {
        Ok(pair) => pair,
        Err(error) => return skip(&format!("sprat-flow, IPv6: {error}")),
    };
    pair.write("file", &content(MIB + 1));
    copy(&pair.url("sprat", "file"), &pair.target.path().join("six"), options()).0.unwrap();
    let port = pair.share.addresses()[0].port();
    // Only one of the addresses of localhost has a server. The client tries the other, and then
    // uses this one.
    if ("localhost", port).to_socket_addrs().unwrap().any(|address| address.is_ipv6()) {
        copy(
            &format!("sprat://localhost:{port}/file"),
            &pair.target.path().join("name"),
            options(),
        )
        .0
        .unwrap();
    } else {
        skip("sprat-flow, a name with addresses of both protocols: localhost has none of IPv6");
    }
    let four = Pair::new();
    four.write("file", &content(MIB + 1));
    let port = four.share.addresses()[0].port();
    copy(&format!("sprat://localhost:{port}/file"), &four.target.path().join("name"), options())
        .0
        .unwrap();
}

#[test]
fn untrusted_servers_are_refused() {
    let made = self_signed(&["127.0.0.1".to_owned()]).unwrap();
    let other = self_signed(&["127.0.0.1".to_owned()]).unwrap();
    let pair =
        Pair::with("127.0.0.1:0", |options, _| options.tls = Some(made.config.clone())).unwrap();
    pair.write("file", &content(3 * MIB + 5));
    let (right, wrong) =
        (pair.target.path().join("right.pem"), pair.target.path().join("wrong.pem"));
    fs::write(&right, &made.pem).unwrap();
    fs::write(&wrong, &other.pem).unwrap();
    let target = pair.target.path().join("file");
    let url = pair.url("sprats", "file");
    for authorities in [None, Some(wrong)] {
        let (outcome, _) = copy(&url, &target, Options { authorities, ..options() });
        assert!(matches!(outcome, Err(Error::Untrusted { .. })), "{outcome:?}");
    }
    assert!(!target.exists());
    for streams in [1, 3] {
        let trusting =
            Options { authorities: Some(right.clone()), streams, force: true, ..options() };
        assert!(copy(&url, &target, trusting).0.unwrap().verified);
        assert_eq!(fs::read(&target).unwrap(), content(3 * MIB + 5));
    }
    let (outcome, events) =
        copy(&url, &target, Options { insecure: true, force: true, ..options() });
    outcome.unwrap();
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::Note(text) if text.contains("--insecure"))),
        "a note names --insecure"
    );
}

#[test]
fn folders_arrive_with_all_that_is_in_them() {
    let pair = Pair::new();
    for number in 0..150 {
        pair.write(&format!("top/many/{number}.txt"), &content(number * 37));
    }
    for name in ["top/large.bin", "top/deep/er/large.bin"] {
        pair.write(name, &content(5 * MIB + 1));
    }
    for name in
        ["top/emp ty/% and ? and #.txt", "top/caf\u{e9}/\u{1f41f}", "top/new\nline", "elsewhere"]
    {
        pair.write(name, name.as_bytes());
    }
    fs::create_dir(pair.source.path().join("top/nothing")).unwrap();
    let (outcome, events) = pair.tree("top", pair.target.path(), true, options());
    let outcome = outcome.unwrap();
    assert!(outcome.is_whole() && outcome.verified, "{outcome:?} {events:?}");
    let (sent, came) =
        (files(&pair.source.path().join("top")), files(&pair.target.path().join("top")));
    assert!(came == sent, "{:?}", came.keys());
    assert_eq!(outcome.files, came.len() as u64);
    assert!(pair.target.path().join("top/nothing").is_dir());
    // The second copy has nothing to do except for the file that changed.
    pair.write("top/many/7.txt", b"new");
    let (outcome, events) = pair.tree("top/", pair.target.path(), true, options());
    let outcome = outcome.unwrap();
    assert_eq!((outcome.files, outcome.failed, outcome.unchanged), (0, 1, came.len() as u64 - 1));
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::Failed { name, .. } if name == "many/7.txt"))
    );
    let (outcome, _) =
        pair.tree("top", pair.target.path(), true, Options { force: true, ..options() });
    assert!(outcome.unwrap().is_whole());
    assert_eq!(fs::read(pair.target.path().join("top/many/7.txt")).unwrap(), b"new");
}

#[test]
fn entries_left_out_of_a_folder_are_named() {
    let pair = Pair::new();
    for name in
        ["top/file", "top/sub/file", "top/.hidden", "top/sub/.hidden too", "top/sub/.x.sprat-part"]
    {
        pair.write(name, name.as_bytes());
    }
    let at = |name: &str| pair.source.path().join("top").join(name);
    symlink("/etc/passwd", at("leads out")).unwrap();
    symlink("nothing", at("sub/leads \"nowhere\"")).unwrap();
    symlink("sub", at("leads to a folder")).unwrap();
    symlink("sub/file", at("leads to a file")).unwrap();
    nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (outcome, _) = pair.tree("top", pair.target.path(), true, options());
    let outcome = outcome.unwrap();
    assert!(!outcome.is_whole());
    let mut left_out = outcome.left_out.clone();
    left_out.sort();
    let said = |what: &str, why: &str| {
        left_out.iter().any(|text| text.contains(what) && text.contains(why))
    };
    assert!(
        said("leads out", "target is not shared") && said("nowhere", "target is not shared"),
        "{left_out:?}"
    );
    assert!(said("leads to a folder", "to a folder") && said("pipe", "a pipe"), "{left_out:?}");
    assert!(
        said("2 names that begin with a dot", "--hidden") && left_out.len() == 5,
        "{left_out:?}"
    );
    let came = files(&pair.target.path().join("top"));
    assert_eq!(came.keys().collect::<Vec<_>>(), ["file", "leads to a file", "sub/file"]);
    // Entries that do not match the pattern are not reported.
    let (outcome, _) = pair.tree("top/fi*", pair.target.path(), false, options());
    assert!(outcome.unwrap().is_whole());
    let (outcome, _) = pair.tree("top/p*", pair.target.path(), false, options());
    assert_eq!(outcome.unwrap().left_out.len(), 1);
}

#[test]
fn a_folder_of_many_files_is_listed_whole() {
    let pair = Pair::new();
    let many = 100_200;
    fs::create_dir(pair.source.path().join("top")).unwrap();
    pair.write("one", b"");
    for number in 0..many {
        // A hard link costs less than a file.
        fs::hard_link(
            pair.source.path().join("one"),
            pair.source.path().join(format!("top/{number}")),
        )
        .unwrap();
        if number % 50_000 == 49_999 {
            fs::remove_file(pair.source.path().join("one")).unwrap();
            pair.write("one", b"");
        }
    }
    let mut stream = std::net::TcpStream::connect(pair.share.addresses()[0]).unwrap();
    std::io::Write::write_all(&mut stream, b"GET /top/?format=jsonl&recursive=1 HTTP/1.0\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut stream, &mut text).unwrap();
    let end = format!(r#"{{"end":true,"entries":{many},"hidden":0,"left_out":[]}}"#);
    assert_eq!(text.trim_end().lines().next_back(), Some(&end[..]));
}

#[test]
fn patterns_stand_for_files() {
    let pair = Pair::new();
    for name in ["a.jpg", "b.jpg", "c.txt", "d.jpg/inner"] {
        pair.write(name, name.as_bytes());
    }
    let (outcome, _) = pair.tree("*.jpg", pair.target.path(), false, options());
    let outcome = outcome.unwrap();
    assert_eq!((outcome.files, outcome.left_out.len()), (2, 1), "{outcome:?}");
    assert_eq!(names(pair.target.path()), ["a.jpg", "b.jpg"]);
}

#[test]
fn a_folder_is_not_copied_as_its_page() {
    let pair = Pair::new();
    pair.write("folder/file", b"x");
    for scheme in ["http", "sprat"] {
        let error = copy(&pair.url(scheme, "folder"), &pair.target.path().join("file"), options())
            .0
            .unwrap_err();
        assert!(matches!(&error, Error::Usage(text) if text.contains("-r")), "{error}");
    }
}

#[test]
fn a_server_that_is_killed_and_comes_back_is_gone_on_with() {
    let pair = Pair::new();
    pair.write("file", &content(24 * MIB));
    let address = pair.share.addresses()[0];
    let target = pair.target.path().join("file");
    let url = pair.url("sprat", "file");
    let Pair { source, target: directory, share } = pair;
    let slow = Options { limit: Some(40_000_000), retries: 30, ..options() };
    let copy = Fetch::new(&url, &target, slow).unwrap();
    let outcome = std::thread::scope(|scope| {
        let copying = scope.spawn(|| copy.run(&mut |_| {}));
        std::thread::sleep(Duration::from_millis(200));
        drop(share);
        let again = share::Options::new(source.path().to_owned(), vec![address]);
        let share = (0..50).find_map(|_| {
            std::thread::sleep(Duration::from_millis(50));
            Share::start(again.clone()).ok()
        });
        let outcome = copying.join().unwrap();
        drop(share.expect("the address is free again"));
        outcome
    });
    assert!(outcome.unwrap().progress.received <= 24 * MIB as u64);
    assert_eq!(fs::read(&target).unwrap(), content(24 * MIB));
    drop(directory);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn any_length_arrives_in_any_number_of_streams(
        bytes in 0usize..40 * MIB,
        streams in 1usize..9,
        verify: bool,
    ) {
        let pair = Pair::new();
        pair.write("file", &content(bytes));
        let target = pair.target.path().join("file");
        let options = Options { streams, verify, ..options() };
        let (outcome, _) = copy(&pair.url("http", "file"), &target, options);
        let outcome = outcome.unwrap();
        prop_assert_eq!(outcome.verified, verify);
        prop_assert!(fs::read(&target).unwrap() == content(bytes));
        prop_assert_eq!(outcome.blake3.unwrap(), *blake3::hash(&content(bytes)).as_bytes());
    }
}
