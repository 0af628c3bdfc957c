//! Tests how groups are written, in any order, past the page cache or through it, and how a file
//! gets its name.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sprat_disk::Access;
use sprat_flow::file::{Attributes, Destination, DestinationError, Sink, SinkError};
use sprat_flow::group::{count, range};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

fn content(bytes: u64) -> Vec<u8> {
    let mut content = vec![0; usize::try_from(bytes).unwrap()];
    blake3::Hasher::new().finalize_xof().fill(&mut content);
    content
}

/// Writes groups in this order, with a sync after some of them. The file must be exact, and the
/// groups reported as durable must be those that were written.
fn written(
    access: Access,
    length: u64,
    told: bool,
    order: &[u64],
    sync_every: u64,
    buffers: usize,
) -> TestCaseResult {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let content = content(length);
    let mut sink = Sink::open(&path, access, told.then_some(length), buffers).unwrap();
    sink.sync_every(sync_every);
    let (mut begun, mut durable) = (BTreeSet::new(), BTreeSet::new());
    for index in order {
        let range = range(length, *index);
        let bytes =
            &content[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()];
        let mut buffer = sink.buffer().unwrap().expect("a buffer is free");
        buffer.fill(0xaa);
        buffer[..bytes.len()].copy_from_slice(bytes);
        sink.write(*index, buffer, bytes.len()).unwrap();
        begun.insert(*index);
        let more = sink.take_durable();
        prop_assert!(more.iter().all(|group| begun.contains(group)));
        durable.extend(more);
    }
    let when = UNIX_EPOCH + Duration::from_secs(77);
    let attributes =
        Attributes { mode: Some(0o4755), modified: Some(when), ..Attributes::default() };
    prop_assert!(sink.finish(length, &attributes).unwrap().is_none());
    durable.extend(sink.take_durable());
    prop_assert_eq!(&durable, &begun, "all groups are durable at the end");
    let mut buffer = sink.buffer().unwrap().unwrap();
    for index in order.iter().take(3).filter(|index| **index + 1 < count(length)) {
        sink.read(*index, &mut buffer, 1 << 20).unwrap();
        let start = usize::try_from(range(length, *index).start).unwrap();
        prop_assert!(buffer[..1 << 20] == content[start..start + (1 << 20)]);
    }
    prop_assert!(fs::read(&path).unwrap() == content);
    let meta = fs::metadata(&path).unwrap();
    prop_assert_eq!(meta.modified().unwrap(), when);
    prop_assert_eq!(std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o7777, 0o755);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn groups_in_any_order_make_the_file(
        length in 1u64..20 << 20,
        seed in prop::collection::vec(any::<u64>(), 20),
        direct: bool,
        told: bool,
        sync_every in prop_oneof![Just(1u64), Just(3 << 20), Just(u64::MAX)],
        buffers in 1usize..12,
    ) {
        let mut order: Vec<u64> = (0..count(length)).collect();
        order.sort_by_key(|index| seed[usize::try_from(*index).unwrap()]);
        let access = if direct { Access::Direct } else { Access::Cached };
        written(access, length, told, &order, sync_every, buffers)?;
    }
}

#[test]
fn existing_bytes_are_kept_and_the_file_is_locked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, content(2 << 20)).unwrap();
    let mut sink = Sink::open(&path, Access::Direct, Some(3 << 20), 2).unwrap();
    assert!(matches!(Sink::open(&path, Access::Direct, Some(1), 2), Err(SinkError::Busy(_))));
    let mut buffer = sink.buffer().unwrap().unwrap();
    sink.read(1, &mut buffer, 1 << 20).unwrap();
    assert!(buffer[..] == content(2 << 20)[1 << 20..]);
    assert_eq!(fs::metadata(&path).unwrap().len(), 3 << 20, "the length is set beforehand");
    let no_room =
        Sink::open(&directory.path().join("other"), Access::Direct, Some(1 << 60), 2).unwrap_err();
    assert!(matches!(no_room, SinkError::NoSpace { .. }), "{no_room}");
    assert!(!directory.path().join("other").exists());
}

#[test]
fn a_name_is_given_once_and_never_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &OsStr| Destination::new(&directory.path().join(name)).unwrap();
    let long = OsStr::from_bytes(&[b'x'; 255]);
    let cut = format!("{}{}", "\u{e9}".repeat(127), "y");
    for name in [
        OsStr::new("a"),
        long,
        OsStr::new(&cut),
        OsStr::from_bytes(b"\xff\xfe"),
        OsStr::new(".hidden"),
    ] {
        let place = place(name);
        for path in [place.part(), place.journal()] {
            fs::write(path, "new").unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
        fs::write(place.target(), "old").unwrap();
        assert!(matches!(place.publish(false), Err(DestinationError::Exists(_))));
        assert_eq!(fs::read(place.target()).unwrap(), b"old");
        place.publish(true).unwrap();
        assert_eq!(fs::read(place.target()).unwrap(), b"new");
        assert!(!place.part().exists() && !place.journal().exists());
        place.discard().unwrap();
    }
    let other = OsStr::from_bytes(&[&[b'x'; 254][..], b"z"].concat()).to_owned();
    assert_ne!(place(long).part(), place(&other).part(), "names that are cut still differ");
    for name in ["/", "..", "x/..", "folder/"] {
        assert!(
            matches!(Destination::new(Path::new(name)), Err(DestinationError::NoName(_))),
            "{name}"
        );
    }
}
