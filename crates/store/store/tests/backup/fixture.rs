//! A file of format version 1, as an earlier program wrote it, can still be loaded.
//!
//! `SPRAT_WRITE_FIXTURE=1 cargo test -p sprat-store --test store backup::fixture` writes such a
//! file. Use it only for a new format version, and with a new file name.

use crate::backup::support::{MiniLog, Segments, disk_with, open, options};
use sprat_disk::MemControl;
use sprat_store::backup::Durability;
use sprat_wire::entry::{Entry, Role, SegmentHeader};
use std::path::PathBuf;

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/log-v1.sprat")
}

/// The fixture: two heads, of which the second is unsealed and lists both.
fn write() -> Vec<u8> {
    let control = MemControl::new(1);
    let options = sprat_store::backup::Options { max_frames: 3, ..options(Durability::Sync) };
    let (mut backup, ..) = open(control.open().unwrap(), &options).unwrap();
    let mut log = MiniLog::new(1);
    for _ in 0..40 {
        log.append(&backup, 500);
        log.settle(&mut backup);
    }
    drop(backup);
    control.contents()
}

#[test]
fn a_log_of_format_1_still_loads() {
    if std::env::var_os("SPRAT_WRITE_FIXTURE").is_some() {
        std::fs::create_dir_all(path().parent().unwrap()).unwrap();
        std::fs::write(path(), write()).unwrap();
    }
    let contents = std::fs::read(path()).unwrap();
    let options = sprat_store::backup::Options { max_frames: 3, ..options(Durability::Sync) };
    let (_, report, segments, newest) =
        open(disk_with(&contents).open().unwrap(), &options).unwrap();
    assert_eq!(report.cut, None);
    let summary = |segments: &Segments| -> Vec<(u64, Role, usize)> {
        let header =
            |bytes: &Vec<u8>| SegmentHeader::parse(Entry::parse(bytes).unwrap().value).unwrap();
        segments.values().map(|bytes| (header(bytes).id, header(bytes).role, bytes.len())).collect()
    };
    assert_eq!(summary(&segments), [(1, Role::Head, 15861), (2, Role::Head, 5329)]);
    assert_eq!((newest, report.entries), (Some(2), 40));
}
