//! Tests extended attributes. The user's attributes are copied if both ends allow it. Other
//! attributes are never copied.

use crate::support;
use rustix::buffer::spare_capacity;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use sprat_flow::copy::{Event, Fetch, FetchTree, Options, Outcome, Upload, UploadTree};
use sprat_flow::share::{self, Share};
use std::fs;
use std::path::{Path, PathBuf};
use support::{content, options, skip};

const BIG: usize = 5 << 20;

fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    setxattr(path, name, value, XattrFlags::empty()).is_ok()
}

fn get(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = Vec::with_capacity(64 << 10);
    getxattr(path, name, spare_capacity(&mut value)).ok()?;
    Some(value)
}

/// Creates a directory with a large and a small file that have attributes. Returns `None` if the
/// filesystem does not support attributes.
fn source() -> Option<(tempfile::TempDir, [PathBuf; 2])> {
    let directory = tempfile::tempdir().unwrap();
    let files = [("large", BIG), ("small", 10)].map(|(name, bytes)| {
        let path = directory.path().join(name);
        fs::write(&path, content(bytes)).unwrap();
        path
    });
    for path in &files {
        if !set(path, "user.what, so=ever", b"a\0b\xff") {
            skip("sprat-flow, extended attributes: the filesystem of temporary files has none");
            return None;
        }
        set(path, "trusted.mine", b"x"); // root only
        set(path, "user.long", &[7; 2000]);
    }
    Some((directory, files))
}

fn share(directory: &Path, xattrs: bool) -> (Share, String) {
    let mut options =
        share::Options::new(directory.to_owned(), vec!["127.0.0.1:0".parse().unwrap()]);
    (options.xattrs, options.writable) = (xattrs, Some(u64::MAX));
    let share = Share::start(options).unwrap();
    let url = format!("sprat://{}", share.addresses()[0]);
    (share, url)
}

fn keeping() -> Options {
    Options { xattrs: true, ..options() }
}

#[track_caller]
fn has(path: &Path, expected: bool) {
    assert_eq!(
        get(path, "user.what, so=ever"),
        expected.then(|| b"a\0b\xff".to_vec()),
        "{}",
        path.display()
    );
    assert_eq!(get(path, "user.long"), expected.then(|| vec![7; 2000]));
    assert_eq!(get(path, "trusted.mine"), None, "the system's attributes are not copied");
}

fn copy(from: &str, to: &Path, options: Options) -> (Outcome, Vec<Event>) {
    let mut events = Vec::new();
    let outcome = Fetch::new(from, to, options)
        .unwrap()
        .run(&mut |event| events.push(event.clone()))
        .unwrap();
    (outcome, events)
}

#[test]
fn they_go_from_disk_to_disk_on_demand() {
    let Some((_source, files)) = source() else { return };
    for wanted in [true, false] {
        let target = tempfile::tempdir().unwrap();
        for file in &files {
            let (outcome, _) = copy(
                file.to_str().unwrap(),
                target.path(),
                Options { xattrs: wanted, ..options() },
            );
            has(&outcome.target, wanted);
        }
    }
}

#[test]
fn a_share_sends_xattrs_on_request_if_allowed() {
    let Some((source, files)) = source() else { return };
    for (tells, asks) in [(true, true), (true, false), (false, true)] {
        let (_share, url) = share(source.path(), tells);
        let target = tempfile::tempdir().unwrap();
        let wanted = Options { xattrs: asks, ..options() };
        for file in &files {
            let name = file.file_name().unwrap().to_str().unwrap();
            let (outcome, events) = copy(&format!("{url}/{name}"), target.path(), wanted.clone());
            has(&outcome.target, tells && asks);
            let noted = events
                .iter()
                .any(|event| matches!(event, Event::Note(text) if text.contains("--xattrs")));
            assert_eq!(noted, asks && !tells, "{events:?}");
        }
        let folder = target.path().join("all");
        FetchTree::new(&url, &folder, true, wanted).unwrap().run(&mut |_| {}).unwrap();
        for name in ["large", "small"] {
            has(&folder.join(name), tells && asks);
        }
    }
}

#[test]
fn xattrs_are_uploaded_to_servers_that_accept_them() {
    let Some((source, files)) = source() else { return };
    let there = tempfile::tempdir().unwrap();
    let (_share, url) = share(there.path(), true);
    for file in &files {
        Upload::new(file, &format!("{url}/"), keeping()).unwrap().run(&mut |_| {}).unwrap();
        has(&there.path().join(file.file_name().unwrap()), true);
    }
    let outcome = UploadTree::new(source.path(), &format!("{url}/all"), keeping())
        .unwrap()
        .run(&mut |_| {})
        .unwrap();
    assert!(outcome.is_whole() && outcome.files == 2, "{outcome:?}");
    for name in ["large", "small"] {
        has(&there.path().join("all").join(name), true);
    }
    let (_share, url) = share(there.path(), false);
    let error = Upload::new(&files[1], &format!("{url}/no"), keeping())
        .unwrap()
        .run(&mut |_| {})
        .unwrap_err();
    assert!(error.to_string().contains("--xattrs"), "{error}");
    assert!(!there.path().join("no").exists());
}
