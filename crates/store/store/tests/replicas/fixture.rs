//! A file of replicas in format version 1, written long ago, still opens.
//!
//! `SPRAT_WRITE_FIXTURE=1 cargo test -p sprat-store --test store replicas::fixture` writes such a
//! file. Use it only for a new format version, and with a new file name.

use crate::replicas::support::{bytes_of, id, open_with, options};
use sprat_disk::MemControl;
use sprat_store::replicas::{Durability, Options};
use std::path::PathBuf;

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/replicas-v1.sprat")
}

fn options_then() -> Options {
    Options { max_frames: 6, ..options(Durability::Buffered) }
}

/// Makes the fixture: a sealed replica, an open one, a freed one and a fence.
fn write() -> Vec<u8> {
    let control = MemControl::new(1);
    let (mut world, _) = open_with(&control, &options_then());
    world.put(id(3, 1), 0..2000, false);
    world.put(id(3, 1), 2000..5000, true);
    world.put(id(4, 1), 0..700, false);
    world.put(id(4, 2), 0..700, false);
    world.free(id(4, 2));
    world.fence(3);
    for _ in 0..3 {
        world.pass(std::time::Duration::from_millis(600));
        (0..20).for_each(|_| world.turn());
    }
    control.kill();
    control.contents()
}

#[test]
fn a_file_of_format_1_still_opens() {
    if std::env::var_os("SPRAT_WRITE_FIXTURE").is_some() {
        std::fs::write(path(), write()).unwrap();
    }
    let control = MemControl::new(1);
    control.patch(0, &std::fs::read(path()).unwrap());
    let (mut world, report) = open_with(&control, &options_then());
    assert_eq!(
        (report.replicas, report.bytes, report.unsure, &report.fenced[..]),
        (2, 5700, 1, &[3][..])
    );
    assert_eq!((&report.damaged, &report.torn), (&vec![], &vec![]));
    for (replica, len) in [(id(3, 1), 5000), (id(4, 1), 700)] {
        assert_eq!(world.read(replica).unwrap(), bytes_of(replica, len));
    }
}
