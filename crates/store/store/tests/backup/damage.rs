//! Files with flipped bits, stale chunks or newer formats: a start refuses the damage with its
//! position, or reports it, but never ignores it.

use crate::backup::support::{FRAME, MiniLog, SEGMENT, Segments, disk_with, open, options};
use sprat_chance::Chance;
use sprat_disk::MemControl;
use sprat_net::Nanos;
use sprat_store::backup::{Durability, OpenError};
use sprat_wire::frame::{FILE_MAGIC, FRAMES_OFFSET};
use std::collections::BTreeMap;

/// A log file and its contents.
struct Built {
    contents: Vec<u8>,
    /// The bytes of each segment that are durable at the end.
    segments: Segments,
    /// By segment, the number of bytes that were durable before the last commit.
    before_last: BTreeMap<u64, usize>,
    newest: u64,
}

/// Builds a log of a few segments and makes it durable. Closes it cleanly if `close`.
fn build(seed: u64, close: bool) -> Built {
    let control = MemControl::new(seed);
    let options = options(Durability::Sync);
    let (mut backup, ..) = open(control.open().unwrap(), &options).unwrap();
    let mut log = MiniLog::new(seed);
    let mut random = Chance::new(seed);
    let mut before_last = BTreeMap::new();
    for _ in 0..150 + random.index(50) {
        before_last = log.durable.clone();
        for _ in 0..1 + random.index(4) {
            let len = random.index(400);
            assert!(log.append(&backup, len));
        }
        if random.one_in(9) {
            log.survive(&backup);
        }
        log.settle(&mut backup);
    }
    let live: Vec<u64> = backup.segments().collect();
    let mut segments = log.segments.clone();
    // A restart frees a survivor that no head lists yet.
    segments.retain(|id, _| live.contains(id));
    let newest = log.head.unwrap();
    if close {
        backup.close(Nanos(0), |_| {}).unwrap();
    }
    control.kill();
    Built { contents: control.contents(), segments, before_last, newest }
}

/// Checks the bytes that remain after a cut. Only the last commit of the newest head may be
/// missing.
fn check_kept(built: &Built, replayed: &Segments, what: &str) {
    for (id, bytes) in replayed {
        let before = built
            .segments
            .get(id)
            .unwrap_or_else(|| panic!("{what}: segment {id} was never there"));
        assert!(before.starts_with(bytes), "{what}: segment {id} holds what was written");
        let kept = if *id == built.newest { built.before_last[id] } else { before.len() };
        assert!(bytes.len() >= kept, "{what}: segment {id} has {} of {kept} B", bytes.len());
    }
}

#[test]
fn flipped_bits_are_refused_or_reported() {
    let (mut refused, mut cut, mut repaired, mut harmless) = (0, 0, 0, 0);
    for seed in 0..12 {
        let close = seed % 2 == 0;
        let built = build(seed, close);
        let (_, report, whole, _) =
            open(disk_with(&built.contents).open().unwrap(), &options(Durability::Sync)).unwrap();
        assert_eq!(report.clean, close);
        assert_eq!(report.cut, None);
        let mut random = Chance::new(seed);
        for _ in 0..150 {
            let offset = random.index(built.contents.len());
            let control = disk_with(&built.contents);
            control.flip(offset as u64, u32::try_from(random.index(8)).unwrap());
            let what = format!("seed {seed}, offset {offset}");
            match open(control.open().unwrap(), &options(Durability::Sync)) {
                Err(OpenError::Corrupt(corruption)) => {
                    refused += 1;
                    let frame = |at: u64| at.saturating_sub(FRAMES_OFFSET) / u64::from(FRAME);
                    assert_eq!(
                        frame(corruption.offset),
                        frame(offset as u64),
                        "{what}: {corruption}"
                    );
                    assert!(
                        corruption.segment.is_some() || (offset as u64) < FRAMES_OFFSET,
                        "{what}: {corruption}"
                    );
                    // The refused start has written nothing to the file.
                    control.flip(offset as u64, 0);
                    let now = control.contents();
                    assert!(
                        now.iter().zip(&built.contents).filter(|(now, was)| now != was).count()
                            <= 1,
                        "{what}"
                    );
                }
                Err(error) => panic!("{what}: {error}"),
                Ok((_, report, segments, newest)) if report.cut.is_some() => {
                    cut += 1;
                    let cut = report.cut.as_ref().unwrap();
                    assert!(
                        !close || cut.bytes == 0,
                        "{what}: closed in order, nothing is lost: {cut:?}"
                    );
                    assert!(!close || segments == whole, "{what}");
                    assert_eq!(newest, Some(built.newest), "{what}: {report:?}");
                    check_kept(&built, &segments, &what);
                }
                Ok((_, report, segments, _)) => {
                    assert_eq!(segments, whole, "{what}");
                    if report.header_repaired {
                        repaired += 1;
                    } else {
                        harmless += 1;
                    }
                }
            }
        }
    }
    eprintln!(
        "{refused} refused, {cut} cut, {repaired} repaired, {harmless} where nothing is kept"
    );
    assert!(refused > 100 && cut > 0 && repaired > 0 && harmless > 0);
}

#[test]
fn damage_to_the_last_commit_is_cut_and_reported() {
    let built = build(3, false);
    let (_, report, whole, _) =
        open(disk_with(&built.contents).open().unwrap(), &options(Durability::Sync)).unwrap();
    assert_eq!(report.cut, None);
    let log_end = whole[&built.newest].len();
    let before = built.before_last[&built.newest];
    assert!(before < log_end);
    // The last commit's bytes in the file.
    let last = &whole[&built.newest][before..];
    let at = built.contents.windows(last.len()).position(|window| window == last).unwrap();
    for offset in at - 36..at + last.len() {
        let control = disk_with(&built.contents);
        control.flip(offset as u64, 3);
        let (backup, report, segments, _) =
            open(control.open().unwrap(), &options(Durability::Sync)).unwrap();
        let cut = report.cut.unwrap_or_else(|| panic!("offset {offset}: no cut is reported"));
        assert_eq!(
            (cut.segment, cut.offset, cut.log_end as usize),
            (Some(built.newest), at as u64 - 36, before)
        );
        assert_eq!(segments[&built.newest].len(), before);
        // The next restart finds the same log, sealed, and reports nothing.
        drop(backup);
        let (_, report, again, _) =
            open(control.open().unwrap(), &options(Durability::Sync)).unwrap();
        assert_eq!((report.cut, again), (None, segments));
    }
}

#[test]
fn both_headers_damaged_is_refused() {
    let built = build(1, false);
    let control = disk_with(&built.contents);
    control.flip(20, 1);
    control.flip(4096 + 30, 1);
    let error = open(control.open().unwrap(), &options(Durability::Sync)).err().unwrap();
    assert!(matches!(&error, OpenError::Corrupt(corruption) if corruption.offset == 0), "{error}");
}

#[test]
fn a_file_that_is_no_log_is_refused_and_left_alone() {
    let control = disk_with(&[b'x'; 40_000]);
    let error = open(control.open().unwrap(), &options(Durability::Sync)).err().unwrap();
    assert!(
        error.to_string().contains("memory") && error.to_string().contains("offset 0"),
        "{error}"
    );
    assert_eq!(control.contents(), [b'x'; 40_000]);
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let mut contents = build(2, true).contents;
    let mut block = contents[..4096].to_vec();
    assert_eq!(block[..8], FILE_MAGIC);
    block[8..12].copy_from_slice(&3u32.to_le_bytes());
    let crc =
        sprat_wire::frame::extend_crc(sprat_wire::frame::extend_crc(0, &block[..12]), &block[16..]);
    block[12..16].copy_from_slice(&crc.to_le_bytes());
    contents[..4096].copy_from_slice(&block);
    let control = disk_with(&contents);
    let error = open(control.open().unwrap(), &options(Durability::Sync)).err().unwrap();
    assert!(matches!(error, OpenError::Newer { version: 3, .. }), "{error}");
    assert_eq!(control.contents(), contents);
}

#[test]
fn another_servers_log_is_refused() {
    let built = build(2, true);
    let mut other = options(Durability::Sync);
    other.server = 6;
    let error = open(disk_with(&built.contents).open().unwrap(), &other).err().unwrap();
    assert!(matches!(error, OpenError::Foreign { field: "server", .. }), "{error}");
    let mut other = options(Durability::Sync);
    other.cluster = *b"another cluster!";
    let error = open(disk_with(&built.contents).open().unwrap(), &other).err().unwrap();
    assert!(matches!(error, OpenError::Foreign { field: "cluster", .. }), "{error}");
    let other =
        sprat_store::backup::Options { segment_bytes: SEGMENT / 2, ..options(Durability::Sync) };
    let error = open(disk_with(&built.contents).open().unwrap(), &other).err().unwrap();
    assert!(matches!(error, OpenError::Foreign { field: "segment size", .. }), "{error}");
}

#[test]
fn a_file_cut_short_is_refused() {
    // The second file is that of a first process, in which only the file's growth has written a
    // header.
    for closed in [true, false] {
        let contents = build(5, closed).contents;
        let frames = (contents.len() as u64 - FRAMES_OFFSET) / u64::from(FRAME);
        for kept in 0..frames {
            let end = FRAMES_OFFSET + kept * u64::from(FRAME) + 4096;
            let control = disk_with(&contents[..usize::try_from(end).unwrap()]);
            let error = open(control.open().unwrap(), &options(Durability::Sync)).err().unwrap();
            assert!(matches!(error, OpenError::Short { .. }), "{error}");
        }
    }
}

#[test]
fn a_missing_segment_is_named() {
    let built = build(5, false);
    let (oldest, bytes) = built.segments.iter().next().unwrap();
    let first = &bytes[..200];
    let at = built.contents.windows(first.len()).position(|window| window == first).unwrap() - 36;
    let control = disk_with(&built.contents);
    control.patch(at as u64, &[0; FRAME as usize]);
    let error = open(control.open().unwrap(), &options(Durability::Sync)).err().unwrap();
    assert!(matches!(error, OpenError::Missing { segment, .. } if segment == *oldest), "{error}");
}

/// The offset of a segment's frame in a file.
fn frame_of(contents: &[u8], log: &[u8]) -> u64 {
    let first = &log[..60.min(log.len())];
    let at = contents
        .windows(first.len())
        .position(|window| window == first)
        .expect("the segment is in the file");
    at as u64 - 36
}

#[test]
fn a_head_that_lost_its_beginning_is_missed() {
    for close in [false, true] {
        let built = build(4, close);
        let frame = frame_of(&built.contents, &built.segments[&built.newest]);
        for offset in frame..frame + 60 {
            let control = disk_with(&built.contents);
            control.flip(offset, 2);
            match open(control.open().unwrap(), &options(Durability::Sync)).err() {
                Some(OpenError::Corrupt(corruption)) => {
                    assert_eq!(
                        (corruption.offset, corruption.segment),
                        (frame, Some(built.newest)),
                        "{corruption}"
                    );
                }
                other => panic!("offset {offset}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_listed_segment_that_lost_its_beginning_is_named_with_its_place() {
    let built = build(4, false);
    // A segment of several commits has chunks behind the first, which show whose frame it is.
    let others = built.segments.iter().filter(|(id, _)| **id != built.newest);
    let (id, log) = others.max_by_key(|(_, log)| log.len()).unwrap();
    let frame = frame_of(&built.contents, log);
    for offset in frame..frame + 36 {
        let control = disk_with(&built.contents);
        control.flip(offset, 2);
        match open(control.open().unwrap(), &options(Durability::Sync)).err() {
            Some(OpenError::Corrupt(corruption)) => {
                assert_eq!(
                    (corruption.offset, corruption.segment),
                    (frame, Some(*id)),
                    "{corruption}"
                );
            }
            other => panic!("offset {offset}: {other:?}"),
        }
    }
}
