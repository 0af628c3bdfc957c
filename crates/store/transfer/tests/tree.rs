//! Directory trees: an export gives the files that were imported, and nothing else appears.

use crate::table;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use sprat_transfer::{
    Error, ItemSource as _, LargePolicy, OmitReason, OutFile, TreeSink, TreeSource, pump,
};
use sprat_wire::MAX_VALUE;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use table::Table;

type Files = BTreeMap<Vec<u8>, Vec<u8>>;

fn write_tree(root: &Path, files: &Files) {
    for (key, value) in files {
        let path = root.join(OsStr::from_bytes(key));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, value).unwrap();
    }
}

/// Reads a tree by other means than the code under test.
fn read_tree(root: &Path) -> Files {
    let mut files = Files::new();
    let mut directories = vec![Vec::new()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root.join(OsStr::from_bytes(&directory))).unwrap() {
            let entry = entry.unwrap();
            let mut key = directory.clone();
            if !key.is_empty() {
                key.push(b'/');
            }
            key.extend_from_slice(entry.file_name().as_bytes());
            if entry.file_type().unwrap().is_dir() {
                directories.push(key);
            } else {
                let value = fs::read(entry.path()).unwrap();
                files.insert(key, value);
            }
        }
    }
    files
}

fn component() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("not in names", |byte| !matches!(byte, 0 | b'/'));
    vec(byte, 1..12).prop_filter("not special", |name| !matches!(&name[..], b"." | b".."))
}

/// Makes trees in which no path is both a file and a directory.
fn files() -> impl Strategy<Value = Files> {
    let path = vec(component(), 1..4).prop_map(|parts| parts.join(&b'/'));
    btree_map(path, vec(any::<u8>(), 0..200), 0..12).prop_map(|mut files| {
        let keys: Vec<_> = files.keys().cloned().collect();
        for key in &keys {
            let below = [key, &b"/"[..]].concat();
            if keys.iter().any(|other| other.starts_with(&below)) {
                files.remove(key);
            }
        }
        files
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_tree_comes_back_byte_for_byte(files in files()) {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir(&from).unwrap();
        write_tree(&from, &files);

        let mut table =
            Table::import(&mut TreeSource::open(&from, LargePolicy::Refuse).unwrap()).unwrap();
        prop_assert_eq!(table.items.len(), files.len());
        let mut sink = TreeSink::create(&to).unwrap();
        table.export(&mut sink).unwrap();
        prop_assert!(!to.exists(), "nothing has the final name before it is complete");
        prop_assert_eq!(sink.publish().unwrap().count(), 0);

        prop_assert_eq!(read_tree(&to), files);
        prop_assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no temporary files");
    }
}

#[test]
fn progress_ends_at_the_surveyed_total() {
    let dir = tempfile::tempdir().unwrap();
    let files = [("a", 0usize), ("b/c", 5), ("b/d", 7)];
    write_tree(dir.path(), &files.map(|(key, len)| (key.into(), vec![1; len])).into());
    let mut source = TreeSource::open(dir.path(), LargePolicy::Refuse).unwrap();
    let mut seen = Vec::new();
    let last = pump(&mut source, &mut Table::default(), &mut |now| seen.push(now)).unwrap();
    assert_eq!(seen.len(), 3);
    assert!(seen.is_sorted_by_key(|now| (now.items, now.bytes, now.consumed_bytes)));
    assert_eq!(
        (last.items, last.bytes, last.consumed_bytes, last.total_bytes),
        (3, 12 + 7, 12, Some(12))
    );
}

#[test]
fn links_and_special_files_are_skipped_by_name() {
    let dir = tempfile::tempdir().unwrap();
    write_tree(dir.path(), &[(b"plain".to_vec(), b"x".to_vec())].into());
    std::os::unix::fs::symlink("plain", dir.path().join("link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    let mut source = TreeSource::open(dir.path(), LargePolicy::Refuse).unwrap();
    assert_eq!(Table::import(&mut source).unwrap().keys(), ["plain"]);
    let expected =
        [("link".to_owned(), OmitReason::Symlink), ("socket".to_owned(), OmitReason::Special)];
    assert_eq!(source.omitted().named(), expected);
    assert_eq!(source.omitted().failures(), 0);
}

#[test]
fn large_files_are_refused_up_front_or_skipped_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let files = [("a", 1), ("exact", MAX_VALUE), ("over", MAX_VALUE + 1)];
    write_tree(dir.path(), &files.map(|(key, len)| (key.into(), vec![7; len])).into());

    let refused = TreeSource::open(dir.path(), LargePolicy::Refuse).err().unwrap();
    assert!(matches!(refused, Error::LargeFiles { count: 1, .. }));
    assert!(
        refused.to_string().contains("over the value limit of 1048576 bytes")
            && refused.to_string().ends_with(": over"),
        "{refused}"
    );

    let mut source = TreeSource::open(dir.path(), LargePolicy::Skip).unwrap();
    assert_eq!(Table::import(&mut source).unwrap().keys(), ["a", "exact"]);
    assert_eq!(source.omitted().named(), [("over".to_owned(), OmitReason::Large)]);
}

#[test]
fn a_file_that_grows_over_the_limit_meanwhile_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("log"), "small").unwrap();
    let mut source = TreeSource::open(dir.path(), LargePolicy::Refuse).unwrap();
    fs::write(dir.path().join("log"), vec![0; MAX_VALUE + 1]).unwrap();
    assert!(
        matches!(Table::import(&mut source), Err(Error::Changed(path)) if path.ends_with("log"))
    );
}

#[test]
fn a_root_that_is_no_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let open =
        |name: &str| TreeSource::open(&dir.path().join(name), LargePolicy::Refuse).err().unwrap();
    assert!(matches!(open("file"), Error::NotADirectory(_)));
    assert!(matches!(open("absent"), Error::Io { .. }));
}

#[test]
fn keys_that_are_no_paths_are_refused_by_name_and_the_rest_is_written() {
    let outer = tempfile::tempdir().unwrap();
    let target = outer.path().join("tree");
    let long_component = "x".repeat(256);
    let long_path = vec!["y".repeat(200); 30].join("/");
    let refused = [
        ("", OmitReason::NotAPath),
        ("/etc/passwd", OmitReason::NotAPath),
        ("..", OmitReason::NotAPath),
        (".", OmitReason::NotAPath),
        ("../escape", OmitReason::NotAPath),
        ("a/../../escape", OmitReason::NotAPath),
        ("a/./b", OmitReason::NotAPath),
        ("a//b", OmitReason::NotAPath),
        ("a/", OmitReason::NotAPath),
        ("nul\0byte", OmitReason::NotAPath),
        (&long_component, OmitReason::LongPath),
        (&long_path, OmitReason::LongPath),
        ("file/below", OmitReason::Conflict),
        ("dir", OmitReason::Conflict),
    ];
    let good = [("file", "1"), ("dir/inner", "2"), ("...", "3"), ("a\\b", "4")];
    let all = good.into_iter().chain(refused.iter().map(|(key, _)| (*key, "evil")));
    let mut table = Table::of(all.map(|(key, value)| (key.into(), value.into())));

    let mut sink = TreeSink::create(&target).unwrap();
    table.export(&mut sink).unwrap();
    let omitted = sink.publish().unwrap();

    let whys: Vec<_> = omitted.named().iter().map(|(_, why)| *why).collect();
    assert_eq!(whys, refused.map(|(_, why)| why));
    assert_eq!(omitted.failures(), refused.len() as u64);
    assert!(omitted.named().iter().any(|(name, _)| name == "nul\\u{0}byte"));
    let expected: Files = good.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
    assert_eq!(read_tree(&target), expected);
    assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 1, "nothing outside the tree");
}

#[test]
fn a_taken_destination_is_left_alone_and_an_unfinished_export_leaves_nothing() {
    let outer = tempfile::tempdir().unwrap();
    let target = outer.path().join("tree");
    fs::create_dir(&target).unwrap();

    let mut sink = TreeSink::create(&target).expect("an empty directory may be replaced");
    Table::of([(b"k".to_vec(), b"v".to_vec())]).export(&mut sink).unwrap();
    drop(sink);
    assert_eq!(read_tree(outer.path()), Files::new());

    let sink = TreeSink::create(&target).unwrap();
    fs::write(target.join("mine"), "kept").unwrap();
    assert!(matches!(sink.publish(), Err(Error::Exists(_))));
    assert!(matches!(TreeSink::create(&target), Err(Error::Exists(_))));
    assert!(matches!(TreeSink::create(Path::new("/")), Err(Error::NoName(_))));
    assert_eq!(fs::read(target.join("mine")).unwrap(), b"kept");
    assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 1);
}

#[test]
fn a_file_gets_its_name_only_when_complete() {
    let outer = tempfile::tempdir().unwrap();
    let target = outer.path().join("out.csv");
    let mut file = OutFile::create(&target).unwrap();
    file.write_all(b"half").unwrap();
    drop(file);
    assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 0);

    let mut file = OutFile::create(&target).unwrap();
    file.write_all(b"whole").unwrap();
    assert!(!target.exists());
    file.publish().unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"whole");

    assert!(matches!(OutFile::create(&target), Err(Error::Exists(_))));
    let late = outer.path().join("late.csv");
    let file = OutFile::create(&late).unwrap();
    fs::write(&late, "mine").unwrap();
    assert!(matches!(file.publish(), Err(Error::Exists(_))));
    assert_eq!(fs::read(&late).unwrap(), b"mine");
    fs::remove_file(&late).unwrap();
    assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 1);
}
