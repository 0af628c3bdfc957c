//! Replicas after restarts.

use crate::replicas::support::{bytes_of, id, open, open_with, options};
use sprat_disk::{Latency, MemControl};
use sprat_store::replicas::{Durability, Options};
use sprat_wire::op::Status;

#[test]
fn replicas_from_before_a_restart_are_not_appended_to() {
    let control = MemControl::new(1);
    let (mut world, _) = open(&control, Durability::Sync);
    let (open_one, sealed) = (id(3, 1), id(3, 2));
    world.put(open_one, 0..900, false);
    world.put(sealed, 0..900, true);
    drop(world);
    control.crash();
    let (mut world, _) = open(&control, Durability::Sync);
    assert_eq!(world.write(open_one, 900..1000, false).status, Status::NotFound);
    assert_eq!(world.write(open_one, 900..900, true).status, Status::NotFound);
    let reply = world.write(sealed, 900..1000, false);
    assert!(reply.status == Status::Ok && reply.more, "the whole segment is there: {reply:?}");
    assert_eq!(
        world.read(open_one).unwrap(),
        bytes_of(open_one, 900),
        "it can be read without a fence"
    );
    // After it was begun again, it has only the new bytes, now and after the next restart.
    world.put(open_one, 0..100, false);
    world.put(open_one, 100..200, false);
    (0..5).for_each(|_| world.turn());
    drop(world);
    control.crash();
    let (mut world, report) = open(&control, Durability::Sync);
    assert_eq!((report.replicas, report.outdated, &report.damaged), (2, 0, &vec![]));
    assert_eq!(world.read(open_one).unwrap(), bytes_of(open_one, 200));
    assert_eq!(world.read(sealed).unwrap(), bytes_of(sealed, 900));
}

#[test]
fn the_later_of_two_replicas_of_a_segment_counts() {
    let control = MemControl::new(1);
    let (mut world, _) = open(&control, Durability::Sync);
    let a = id(3, 1);
    world.put(a, 0..900, false);
    drop(world);
    control.crash();
    let (mut world, _) = open(&control, Durability::Sync);
    let before = control.operations();
    // The first operation writes the new replica; the second marks the old one as free, and hangs.
    control.fail(0, sprat_disk::Fault::Hang);
    let again = world.begin_write(a, 0..300, false);
    assert_eq!(world.wait(again).status, Status::Ok);
    assert!(control.operations() >= before + 2);
    control.crash();
    drop(world);
    for life in 0..2 {
        let (mut world, report) = open(&control, Durability::Sync);
        assert!(report.outdated <= u64::from(life == 0), "{report:?}");
        assert_eq!(world.read(a).unwrap(), bytes_of(a, 300), "life {life}");
        drop(world);
        control.crash();
    }
}

#[test]
fn old_contents_of_a_frame_never_belong_to_a_new_replica() {
    for end in 0..12 {
        let control = MemControl::new(1);
        let options = Options { max_frames: 3, ..options(Durability::Sync) };
        let (mut world, _) = open_with(&control, &options);
        let a = id(3, 1);
        // Each replica is shorter than the one before, with the same writes, in the same few
        // frames.
        for round in 0..=end {
            for part in 0..12 - round {
                world.put(a, part * 1000..(part + 1) * 1000, false);
            }
            if round < end {
                world.free(a);
            }
        }
        drop(world);
        control.crash();
        let (mut world, report) = open_with(&control, &options);
        assert_eq!((report.replicas, &report.damaged, &report.torn), (1, &vec![], &vec![]));
        assert_eq!(world.read(a).unwrap(), bytes_of(a, 1000 * (12 - end)));
    }
}

#[test]
fn a_file_counts_more_replicas_than_its_header_is_ahead() {
    let control = MemControl::new(1);
    let options = Options { max_frames: 6, ..options(Durability::Sync) };
    let (mut world, _) = open_with(&control, &options);
    for segment in 1..=9000 {
        world.put(id(3, segment), 0..100, false);
        if segment < 9000 {
            world.free(id(3, segment));
        }
    }
    drop(world);
    control.crash();
    // A new replica is distinguished from all replicas from before the restart, whichever frame it
    // gets.
    for life in 0..3 {
        let (mut world, report) = open_with(&control, &options);
        assert_eq!((report.replicas, &report.damaged), (1, &vec![]), "life {life}");
        let (last, next) = (id(3, 9000 + life), id(3, 9001 + life));
        assert_eq!(world.read(last).unwrap(), bytes_of(last, 100));
        world.free(last);
        (0..5).for_each(|_| world.turn());
        world.put(next, 0..100, true);
        (0..5).for_each(|_| world.turn());
        drop(world);
        control.crash();
    }
}

#[test]
fn buffered_replicas_are_unsure_unless_sealed_or_closed_in_order() {
    let control = MemControl::new(1);
    let buffered = Durability::Buffered;
    let (mut world, _) = open(&control, buffered);
    for segment in 1..=3 {
        world.put(id(3, segment), 0..900, segment == 2);
    }
    world.close();
    let unsure = |durability, copy: bool| {
        let twin = MemControl::new(1);
        twin.patch(0, &control.contents());
        let (mut world, report) = open(if copy { &twin } else { &control }, durability);
        let records: Vec<_> = world.fence(3).into_iter().filter(|record| record.unsure).collect();
        assert_eq!(records.len() as u64, report.unsure);
        records.into_iter().map(|record| record.segment).collect::<Vec<_>>()
    };
    assert_eq!(unsure(buffered, true), [0; 0], "closed in order");
    let (mut world, _) = open(&control, buffered);
    world.put(id(3, 4), 0..900, false);
    world.put(id(3, 5), 0..900, true);
    world.pass(std::time::Duration::from_millis(1100));
    (0..50).for_each(|_| world.turn());
    drop(world);
    control.kill();
    // The next run's durability makes no difference. Replicas that were sure before become unsure,
    // because the file records only how the last run ended.
    assert_eq!(unsure(buffered, true), [1, 3, 4]);
    assert_eq!(unsure(Durability::Sync, true), [1, 3, 4]);
    let (world, _) = open(&control, Durability::Sync);
    world.close();
    assert_eq!(
        unsure(buffered, true),
        [1, 3, 4],
        "a close in order does not bring back what was lost before"
    );
    let (mut world, _) = open(&control, Durability::Sync);
    world.put(id(3, 6), 0..900, false);
    drop(world);
    control.crash();
    assert_eq!(unsure(buffered, true), [1, 3, 4], "the last one was not buffered");
}

#[test]
fn a_replica_freed_while_it_is_written_stays_freed() {
    for turns in 0..8 {
        let control = MemControl::new(1);
        control.set_latency(Latency { base: 100_000, durable: 100_000, jitter: 0 });
        let (mut world, _) = open(&control, Durability::Sync);
        let a = id(3, 1);
        world.put(a, 0..900, false);
        let write = world.begin_write(a, 900..1000, false);
        (0..turns).for_each(|_| world.turn());
        world.free(a);
        let status = world.wait(write).status;
        assert!(status == Status::NotFound || status == Status::Ok);
        (0..50).for_each(|_| world.turn());
        drop(world);
        control.crash();
        let (_, report) = open(&control, Durability::Sync);
        assert_eq!((report.replicas, &report.torn), (0, &vec![]), "{turns} turns");
    }
}
