//! Disks that fail: from then on nothing is acknowledged, and what was acknowledged before is still
//! on the disk.

use crate::backup::support::{FRAME, MiniLog, SEGMENT, open, options};
use sprat_chance::Chance;
use sprat_disk::{Fault, MemControl, MemDisk};
use sprat_net::Nanos;
use sprat_store::backup::{
    AppendError, Backup, DiskOperation, Durability, FrameCount, GROW_AGAIN, MAX_OPEN, OpenError,
    Options, Progress,
};
use sprat_wire::frame::FRAMES_OFFSET;
use std::collections::BTreeMap;
use std::time::Duration;

/// Runs a log until the disk fails. Checks that the failure is final, and that a restart finds
/// everything that was acknowledged.
fn run(seed: u64, durability: Durability, fault: Fault) -> Option<DiskOperation> {
    let control = MemControl::new(seed);
    let options = options(durability);
    let (mut backup, ..) = open(control.open().unwrap(), &options).unwrap();
    let mut log = MiniLog::new(seed);
    let mut random = Chance::new(seed);
    control.fail(random.draw() % 60, fault);
    let mut clock = 0;
    let failed = loop {
        clock += 300_000_000;
        if clock > 300_000_000_000 {
            return None;
        }
        for _ in 0..random.index(6) {
            let len = random.index(900);
            log.append(&backup, len);
        }
        log.pass(&mut backup).unwrap();
        if let Err(failed) = backup.submit(Nanos(clock)).and_then(|_| log.poll(&mut backup, clock))
        {
            break failed;
        }
    };
    assert!(failed.to_string().contains("memory"), "{failed}");
    for _ in 0..3 {
        assert!(backup.submit(Nanos(clock)).is_err());
        assert!(backup.poll(Nanos(clock), |_| panic!("nothing is acknowledged any more")).is_err());
        assert!(matches!(backup.append(999, 0, [&[1u8][..]], false), Err(AppendError::Failed(_))));
    }
    assert_eq!(backup.failure().unwrap().operation, failed.operation);
    assert!(backup.close(Nanos(clock), |_| ()).is_err());
    // Only the process ends: a failed operation does not undo writes that were durable.
    control.kill();
    let (_, _, segments, newest) = open(control.open().unwrap(), &options).unwrap();
    log.check(&segments, newest, true);
    Some(failed.operation)
}

#[test]
fn a_refusal_is_final_and_loses_nothing_durable() {
    let mut seen = Vec::new();
    for seed in 0..120 {
        for fault in [Fault::Io, Fault::NoSpace] {
            for durability in [Durability::Sync, Durability::Buffered] {
                seen.extend(run(seed, durability, fault));
            }
        }
    }
    for operation in [DiskOperation::Write, DiskOperation::Sync, DiskOperation::Grow] {
        assert!(seen.contains(&operation), "{operation} was never refused");
    }
}

/// The existing frames stay in use, and frames that are freed are reused. Space that the growth
/// reserved in vain is released. When there is space again, the file grows, without a restart.
#[test]
fn a_full_disk_stops_only_growth() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let control = MemControl::new(1);
        let frame = u64::from(FRAME);
        control.set_capacity(7 * frame + frame / 2);
        let (mut backup, ..) = open(control.open().unwrap(), &options(durability)).unwrap();
        let count = backup.frame_count();
        assert_eq!((count.free, count.max, backup.disk_is_full()), (7, 7, true));
        assert!(
            control.contents().len() as u64 <= 7 * frame + FRAMES_OFFSET,
            "blocks are given back"
        );
        assert_eq!(backup.segments_on_full_disk(), Some(5));
        let mut clock = 0;
        let mut commit = |backup: &mut Backup<MemDisk>, wait: Duration| {
            clock += u64::try_from(wait.as_nanos()).unwrap();
            backup.submit(Nanos(clock)).unwrap();
            for _ in 0..1000 {
                backup.poll(Nanos(clock), |_| ()).unwrap();
            }
        };
        for segment in 1..=7 {
            backup.append(segment, 0, [&[1; 50][..]], true).unwrap();
            commit(&mut backup, Duration::from_millis(1));
        }
        assert!(matches!(backup.append(8, 0, [&[1; 50][..]], true), Err(AppendError::NoFrame(7))));
        commit(&mut backup, 2 * GROW_AGAIN);
        assert!(backup.disk_is_full() && backup.failure().is_none());
        backup.free(3);
        backup.append(8, 0, [&[1; 50][..]], true).unwrap();
        commit(&mut backup, Duration::from_millis(1));
        assert!(backup.is_idle() || durability == Durability::Buffered, "the freed frame is used");
        control.set_capacity(u64::MAX);
        commit(&mut backup, 2 * GROW_AGAIN);
        commit(&mut backup, 2 * GROW_AGAIN);
        let count = backup.frame_count();
        assert!(!backup.disk_is_full() && count.free >= 4 && count.max == 24, "{count:?}");
        assert_eq!(backup.segments_on_full_disk(), None);
    }
}

/// The owner may append segments while the file grows, before the disk turns out to be full: these
/// segments then have no frame. Closing drops them instead of waiting for room without end.
#[test]
fn closing_on_a_full_disk_ends_and_loses_nothing_durable() {
    for seed in 0..20 {
        let control = MemControl::new(seed);
        let options = options(Durability::Sync);
        let (mut backup, ..) = open(control.open().unwrap(), &options).unwrap();
        control.set_capacity(control.contents().len() as u64);
        let mut log = MiniLog::new(seed);
        while log.append(&backup, 900) && log.pass(&mut backup).is_ok() {}
        let durable = &mut log.durable;
        let record = |progress: Progress| {
            durable.insert(progress.segment, progress.up_to as usize);
        };
        backup.close(Nanos(0), record).unwrap();
        let sum = |bytes: &BTreeMap<u64, usize>| bytes.values().sum::<usize>();
        assert!(0 < sum(&log.durable) && sum(&log.durable) < sum(&log.passed), "{:?}", log.durable);
        let (_, _, segments, newest) = open(control.open().unwrap(), &options).unwrap();
        log.check(&segments, newest, true);
    }
}

#[test]
fn a_disk_that_cannot_even_hold_a_new_log_says_so() {
    let control = MemControl::new(1);
    control.set_capacity(10_000);
    let error = open(control.open().unwrap(), &options(Durability::Sync)).err().unwrap();
    assert!(
        matches!(&error, OpenError::Failed(failed) if failed.operation == DiskOperation::Grow),
        "{error}"
    );
}

#[test]
fn a_full_frame_and_a_full_log_are_refused_without_harm() {
    let control = MemControl::new(1);
    let options = Options { max_frames: 4, ..options(Durability::Sync) };
    let (mut backup, ..) = open(control.open().unwrap(), &options).unwrap();
    let bytes = vec![1; backup.room(1)];
    for segment in 1..=4 {
        let (most, more) = bytes.split_at(bytes.len() - 1);
        backup.append(segment, 0, [most], false).unwrap();
        let refused =
            backup.append(segment, u32::try_from(most.len()).unwrap(), [&bytes[..2]], false);
        assert!(
            matches!(refused, Err(AppendError::NoRoom { room: 1, asked: 2, .. })),
            "{refused:?}"
        );
        backup.append(segment, u32::try_from(most.len()).unwrap(), [more], true).unwrap();
    }
    assert!(matches!(backup.append(5, 0, [&bytes[..]], true), Err(AppendError::NoFrame(4))));
    let mut sealed = Vec::new();
    while sealed.len() < 4 {
        backup.submit(Nanos(0)).unwrap();
        backup.poll(Nanos(0), |progress| sealed.push((progress.segment, progress.sealed))).unwrap();
    }
    assert_eq!(sealed, [(1, true), (2, true), (3, true), (4, true)]);
    backup.free(2);
    backup.append(5, 0, [&bytes[..]], true).unwrap();
    assert!(backup.failure().is_none());
    assert_eq!(backup.frame_count(), FrameCount { live: 4, free: 0, max: 4 });
}

#[test]
fn reported_room_suffices_for_two_commits_and_a_seal() {
    let control = MemControl::new(1);
    let (mut backup, ..) = open(control.open().unwrap(), &options(Durability::Sync)).unwrap();
    let mut len = 0;
    let mut append = |bytes: usize, sealed: bool| {
        backup.append(1, u32::try_from(len).unwrap(), [&vec![1; bytes][..]], sealed).unwrap();
        while backup.submit(Nanos(0)).unwrap() || backup.is_committing() {
            backup.poll(Nanos(0), |_| ()).unwrap();
        }
        len += bytes;
        (len + backup.room(1), backup.room(1))
    };
    // Small commits fill the frame before they fill the segment.
    let most = (0..250).map(|_| append(20, false).0).last().unwrap();
    assert!(most < SEGMENT as usize - 100);
    let (_, room) = append(20, false);
    append(room - 1, false);
    append(1, false);
    append(0, true);
}

#[test]
fn a_slow_disk_is_not_buried_in_segments() {
    let control = MemControl::new(1);
    let options = Options { max_frames: 100, ..options(Durability::Sync) };
    let (mut backup, ..) = open(control.open().unwrap(), &options).unwrap();
    let mut begun = 0;
    let refused = loop {
        match backup.append(begun + 1, 0, [&[1; 50][..]], true) {
            Ok(()) => begun += 1,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, AppendError::Behind) && begun == MAX_OPEN as u64, "{refused}");
    let mut done = 0;
    while done < begun {
        backup.submit(Nanos(0)).unwrap();
        backup.poll(Nanos(0), |_| done += 1).unwrap();
    }
    backup.append(begun + 1, 0, [&[1; 50][..]], true).unwrap();
}
