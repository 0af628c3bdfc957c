//! Tests a file as a disk, with and without direct I/O, and with and without io_uring.

use sprat_disk::{
    Access, AlignedBuf, BLOCK_BYTES, Disk, FileDisk, MAX_IN_FLIGHT, Op, OpenError, ReadAt,
};

fn buffer(blocks: usize, byte: u8) -> AlignedBuf {
    let mut buffer = AlignedBuf::zeroed(blocks * BLOCK_BYTES);
    buffer.fill(byte);
    buffer
}

/// Several threads repeatedly lock and remove the same file. No thread ever holds the lock of a
/// file that has lost its name.
#[test]
fn a_file_that_is_locked_has_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let opened = std::sync::atomic::AtomicU32::new(0);
    let work = || {
        for _ in 0..5_000 {
            let Ok(file) = sprat_disk::open_locked(&path, rustix::fs::OFlags::empty()) else {
                continue;
            };
            opened.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            assert!(sprat_disk::is_named(&file, rustix::fs::CWD, &path).unwrap());
            std::fs::remove_file(&path).unwrap();
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
    assert!(opened.into_inner() > 0, "none could open the file");
}

/// Returns the disks to test: direct and cached, with io_uring and without, in the directory for
/// temporary files and, if there is one, in `/dev/shm`.
fn disks() -> Vec<(FileDisk, tempfile::TempDir)> {
    let mut disks = Vec::new();
    let shared_memory = std::path::Path::new("/dev/shm");
    for root in
        [std::env::temp_dir().as_path(), shared_memory].into_iter().filter(|root| root.is_dir())
    {
        for access in [Access::Direct, Access::Cached] {
            for ring in [true, false] {
                let directory = tempfile::tempdir_in(root).unwrap();
                let mut disk = FileDisk::open(&directory.path().join("file"), access).unwrap();
                if !ring {
                    disk.without_ring();
                }
                eprintln!("{}: {}", disk.name(), disk.describe());
                disks.push((disk, directory));
            }
        }
    }
    disks
}

fn drain(disk: &mut FileDisk, mut left: usize) {
    while left > 0 {
        disk.wait().unwrap();
        while let Some(completion) = disk.poll() {
            completion.result.unwrap();
            left -= 1;
        }
    }
    assert!(disk.poll().is_none());
}

#[test]
fn written_bytes_are_read_back() {
    for (mut disk, _directory) in disks() {
        disk.submit(1, Op::Reserve { offset: 0, len: 64 * BLOCK_BYTES as u64 });
        drain(&mut disk, 1);
        assert_eq!(disk.size().unwrap(), 0, "reserved space does not change the file's size");
        for block in 0..MAX_IN_FLIGHT {
            let offset = (block * BLOCK_BYTES) as u64;
            let buffer = buffer(2, u8::try_from(block).unwrap());
            disk.submit(
                block as u64,
                Op::Write { buffer, len: BLOCK_BYTES, offset, durable: block % 2 == 0 },
            );
        }
        drain(&mut disk, MAX_IN_FLIGHT);
        disk.submit(1, Op::Sync);
        drain(&mut disk, 1);
        assert_eq!(disk.size().unwrap(), (MAX_IN_FLIGHT * BLOCK_BYTES) as u64);
        let reader = disk.reader();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut into = AlignedBuf::zeroed(MAX_IN_FLIGHT * BLOCK_BYTES);
                    let len = into.len();
                    reader.read_at(&mut into, len, 0).unwrap();
                    for (block, bytes) in into.chunks(BLOCK_BYTES).enumerate() {
                        assert!(bytes.iter().all(|byte| usize::from(*byte) == block));
                    }
                    assert!(
                        reader.read_at(&mut into, BLOCK_BYTES, len as u64).is_err(),
                        "a read behind the end is refused"
                    );
                });
            }
        });
    }
}

#[test]
fn dropping_a_disk_waits_for_what_is_under_way() {
    for (mut disk, directory) in disks() {
        for block in 0..32u64 {
            let offset = block * 16 * BLOCK_BYTES as u64;
            disk.submit(
                block,
                Op::Write { buffer: buffer(16, 7), len: 16 * BLOCK_BYTES, offset, durable: true },
            );
        }
        drop(disk);
        let written = std::fs::read(directory.path().join("file")).unwrap();
        assert!(written.len() == 32 * 16 * BLOCK_BYTES && written.iter().all(|byte| *byte == 7));
    }
}

#[test]
fn a_file_has_one_owner_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let first = FileDisk::open(&path, Access::Direct).unwrap();
    let second = FileDisk::open(&path, Access::Cached);
    assert!(matches!(second, Err(OpenError::Locked(locked)) if locked == path));
    drop(first);
    FileDisk::open(&path, Access::Cached).unwrap();
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let error =
        FileDisk::open(std::path::Path::new("/proc/no/such"), Access::Direct).err().unwrap();
    assert!(error.to_string().contains("/proc/no/such"), "{error}");
}

/// Checks the results of reads on every kind of disk, with a file that ends within a block.
#[test]
fn reads_end_where_the_file_does() {
    let content: Vec<u8> = (0..=250).cycle().take(3 * BLOCK_BYTES + 904).collect();
    for root in [std::env::temp_dir().as_path(), std::path::Path::new("/dev/shm")] {
        for access in [Access::Direct, Access::Cached] {
            for ring in [true, false] {
                let Ok(directory) = tempfile::tempdir_in(root) else { continue };
                let path = directory.path().join("file");
                std::fs::write(&path, &content).unwrap();
                let mut disk =
                    FileDisk::for_reading(std::fs::File::open(&path).unwrap(), &path, access);
                if !ring {
                    disk.without_ring();
                }
                let mut read = |len: usize, wanted: usize, offset: u64| {
                    disk.submit(7, Op::Read { buffer: buffer(8, 0xff), len, wanted, offset });
                    let completion = loop {
                        disk.wait().unwrap();
                        if let Some(completion) = disk.poll() {
                            break completion;
                        }
                    };
                    assert_eq!(completion.ticket, 7);
                    let buffer = completion.buffer.expect("buffers come back");
                    let at = usize::try_from(offset).unwrap();
                    if completion.result.is_ok() {
                        assert_eq!(
                            buffer[..wanted],
                            content[at..][..wanted],
                            "{wanted} of {len} B at {offset}"
                        );
                    }
                    completion.result.map_err(|error| error.kind())
                };
                let whole = content.len();
                let eof = Err(std::io::ErrorKind::UnexpectedEof);
                assert_eq!(read(4 * BLOCK_BYTES, whole, 0), Ok(()));
                assert_eq!(read(2 * BLOCK_BYTES, 2 * BLOCK_BYTES, BLOCK_BYTES as u64), Ok(()));
                assert_eq!(read(8 * BLOCK_BYTES, 904, 3 * BLOCK_BYTES as u64), Ok(()));
                assert_eq!(read(4 * BLOCK_BYTES, whole + 1, 0), eof);
                assert_eq!(read(BLOCK_BYTES, 905, 3 * BLOCK_BYTES as u64), eof);
                assert_eq!(read(BLOCK_BYTES, 1, 4 * BLOCK_BYTES as u64), eof);
                // The file is truncated between two reads.
                let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                file.set_len(2 * BLOCK_BYTES as u64).unwrap();
                assert_eq!(read(4 * BLOCK_BYTES, whole, 0), eof);
                assert_eq!(read(4 * BLOCK_BYTES, 2 * BLOCK_BYTES, 0), Ok(()));
            }
        }
    }
}
