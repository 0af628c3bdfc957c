//! Tests that a crash of the disk in memory keeps all bytes that are certain, and may lose all
//! others.

use proptest::prelude::*;
use sprat_disk::{AlignedBuf, BLOCK_BYTES, Disk, Fault, Latency, MemControl, MemDisk, Op, ReadAt};

const BLOCKS: usize = 4;

fn write(disk: &mut MemDisk, ticket: u64, block: usize, byte: u8, durable: bool) {
    let mut buffer = AlignedBuf::zeroed(BLOCK_BYTES);
    buffer.fill(byte);
    disk.submit(
        ticket,
        Op::Write { buffer, len: BLOCK_BYTES, offset: (block * BLOCK_BYTES) as u64, durable },
    );
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, bool),
    Sync,
    Wait,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..BLOCKS, any::<bool>()).prop_map(|(block, durable)| Step::Write(block, durable)),
        1 => Just(Step::Sync),
        2 => Just(Step::Wait),
    ]
}

proptest! {
    /// After a crash each sector holds bytes of some write, none older than the last write that was
    /// certain. Each block has only one write in flight at a time, as the trait demands.
    #[test]
    fn a_crash_loses_nothing_certain(steps in prop::collection::vec(step(), 1..40), seed: u64) {
        let control = MemControl::new(seed);
        let mut disk = control.open().unwrap();
        // For each block: the last write that is certain, the last complete write, and the last
        // write started.
        let mut certain = [0u8; BLOCKS];
        let mut complete = [0u8; BLOCKS];
        let mut begun = [0u8; BLOCKS];
        let mut operations: Vec<(usize, u8, bool, [u8; BLOCKS])> = Vec::new();
        for step in steps {
            let number = u8::try_from(operations.len() + 1).unwrap();
            match step {
                Step::Write(block, durable) if begun[block] == complete[block] => {
                    write(&mut disk, operations.len() as u64, block, number, durable);
                    begun[block] = number;
                    operations.push((block, number, durable, complete));
                }
                Step::Write(..) => {}
                Step::Sync => {
                    disk.submit(operations.len() as u64, Op::Sync);
                    operations.push((BLOCKS, number, true, complete));
                }
                Step::Wait => {
                    disk.wait().unwrap();
                    while let Some(completion) = disk.poll() {
                        completion.result.unwrap();
                        let (block, number, durable, covers) =
                            operations[usize::try_from(completion.ticket).unwrap()];
                        if block == BLOCKS {
                            for (certain, covered) in certain.iter_mut().zip(covers) {
                                *certain = covered.max(*certain);
                            }
                        } else {
                            complete[block] = number;
                            if durable {
                                certain[block] = number;
                            }
                        }
                    }
                }
            }
        }
        control.crash();
        prop_assert!(disk.poll().is_none(), "a crashed disk completes nothing");
        let mut contents = control.contents();
        contents.resize(BLOCKS * BLOCK_BYTES, 0);
        for (block, bytes) in contents.chunks(BLOCK_BYTES).enumerate() {
            for sector in bytes.chunks(512) {
                prop_assert!(sector.iter().all(|byte| *byte == sector[0]), "one write filled it");
                prop_assert!((certain[block]..=begun[block]).contains(&sector[0]));
                let writer = sector[0] == 0 || operations[usize::from(sector[0]) - 1].0 == block;
                prop_assert!(writer, "each sector has bytes that were written to its block");
            }
        }
    }
}

#[test]
fn crashes_do_tear() {
    let torn = (0..50).any(|seed| {
        let control = MemControl::new(seed);
        let mut disk = control.open().unwrap();
        write(&mut disk, 1, 0, 1, true);
        control.crash();
        let contents = control.contents();
        contents.contains(&1) && contents[..4096.min(contents.len())].contains(&0)
    });
    assert!(torn);
}

#[test]
fn time_is_the_callers() {
    let control = MemControl::new(1);
    control.set_latency(Latency { base: 10, durable: 40, jitter: 0 });
    let mut disk = control.open().unwrap();
    write(&mut disk, 1, 0, 1, true);
    write(&mut disk, 2, 1, 1, false);
    assert!(disk.poll().is_none());
    assert_eq!(control.next_due(), Some(10));
    control.set_now(10);
    assert_eq!(disk.poll().unwrap().ticket, 2);
    control.set_now(49);
    assert!(disk.poll().is_none());
    control.set_now(50);
    assert_eq!(disk.poll().unwrap().ticket, 1);
}

#[test]
fn faults_hit_the_chosen_operation() {
    let control = MemControl::new(1);
    let mut disk = control.open().unwrap();
    control.fail(1, Fault::Io);
    control.fail(2, Fault::NoSpace);
    for ticket in 0..4 {
        write(&mut disk, ticket, 0, 1, true);
        let completion = disk.poll().unwrap();
        let error = completion.result.err().and_then(|error| error.raw_os_error());
        assert_eq!(error, [None, Some(5), Some(28), None][usize::try_from(ticket).unwrap()]);
        assert!(completion.buffer.is_some(), "buffers come back from failures too");
    }
}

#[test]
fn only_one_opener_at_a_time_and_readers_see_the_file() {
    let control = MemControl::new(1);
    let mut disk = control.open().unwrap();
    assert!(control.open().is_none());
    write(&mut disk, 1, 1, 9, false);
    disk.poll().unwrap();
    let mut buffer = AlignedBuf::zeroed(2 * BLOCK_BYTES);
    disk.reader().read_at(&mut buffer, 2 * BLOCK_BYTES, 0).unwrap();
    assert!(
        buffer[..BLOCK_BYTES].iter().all(|byte| *byte == 0)
            && buffer[BLOCK_BYTES..].iter().all(|byte| *byte == 9)
    );
    assert!(disk.reader().read_at(&mut buffer, BLOCK_BYTES, 2 * BLOCK_BYTES as u64).is_err());
    drop(disk);
    assert!(control.open().is_some());
}

#[test]
fn reads_are_operations_too() {
    let control = MemControl::new(1);
    let mut disk = control.open().unwrap();
    write(&mut disk, 1, 1, 9, false);
    disk.poll().unwrap();
    control.fail(3, Fault::Io);
    let mut read = |len: usize, wanted: usize, offset: u64| {
        disk.submit(
            2,
            Op::Read { buffer: AlignedBuf::zeroed(4 * BLOCK_BYTES), len, wanted, offset },
        );
        let completion = disk.poll().unwrap();
        (
            completion.result.map_err(|error| error.kind()),
            completion.buffer.expect("the completion returns the buffer"),
        )
    };
    let (result, buffer) = read(4 * BLOCK_BYTES, 2 * BLOCK_BYTES, 0);
    assert!(result.is_ok() && buffer[BLOCK_BYTES - 1] == 0 && buffer[BLOCK_BYTES] == 9);
    assert_eq!(
        read(BLOCK_BYTES, 1, 2 * BLOCK_BYTES as u64).0,
        Err(std::io::ErrorKind::UnexpectedEof)
    );
    assert!(read(BLOCK_BYTES, BLOCK_BYTES, 0).0.is_ok());
    let error = std::io::Error::from_raw_os_error(5).kind();
    assert_eq!(read(BLOCK_BYTES, BLOCK_BYTES, 0).0, Err(error));
}
