//! Logs on real files.

use crate::backup::support::{FRAME, MiniLog, disk, open, options};
use sprat_chance::Chance;
use sprat_disk::{Access, FileDisk};
use sprat_net::Nanos;
use sprat_store::backup::{Durability, Options};
use sprat_wire::frame::FRAMES_OFFSET;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

#[test]
fn logs_in_files_survive_restarts() {
    for (durability, ring) in
        [(Durability::Sync, true), (Durability::Buffered, true), (Durability::Sync, false)]
    {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log.sprat");
        let mut log = MiniLog::new(1);
        let mut random = Chance::new(2);
        for life in 0..4 {
            let mut disk = disk(&path, durability);
            if !ring {
                disk.without_ring();
            }
            let (mut backup, report, segments, newest) = open(disk, &options(durability)).unwrap();
            log.check(&segments, newest, true);
            assert_eq!(report.clean, life == 3);
            log = MiniLog::after(life, segments, report.highest_segment);
            for _ in 0..60 {
                for _ in 0..1 + random.index(4) {
                    let len = random.index(400);
                    log.append(&backup, len);
                }
                if random.one_in(9) {
                    log.survive(&backup);
                }
                log.settle(&mut backup);
            }
            if life == 2 {
                backup.close(Nanos(0), |_| {}).unwrap();
            }
        }
    }
}

#[test]
fn a_second_opener_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log.sprat");
    let first = disk(&path, Durability::Sync);
    let error = FileDisk::open(&path, Access::Direct).err().unwrap();
    assert!(error.to_string().contains("in use by another server"), "{error}");
    drop(first);
    disk(&path, Durability::Sync);
}

#[test]
fn full_size_segments_commit_in_bulk_and_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log.sprat");
    let options = Options::new(*b"the test cluster", 5, 8);
    let (mut backup, ..) = open(disk(&path, Durability::Sync), &options).unwrap();
    let mut log = MiniLog::new(9);
    for _ in 0..22 {
        assert!(log.append(&backup, 1 << 20));
        log.pass(&mut backup).unwrap();
        backup.submit(Nanos(0)).unwrap();
        log.poll(&mut backup, 0).unwrap();
    }
    log.settle(&mut backup);
    drop(backup);
    let (_, report, segments, newest) = open(disk(&path, Durability::Sync), &options).unwrap();
    log.check(&segments, newest, true);
    assert_eq!((report.entries, report.cut), (22, None));
}

/// A filesystem of its own in a file, unmounted when dropped.
struct SmallFilesystem {
    directory: tempfile::TempDir,
}

impl SmallFilesystem {
    /// Makes an ext4 filesystem of 16 MB, or returns why that is not possible.
    fn mount() -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let (image, root) = (directory.path().join("image"), directory.path().join("root"));
        std::fs::create_dir(&root).map_err(|error| error.to_string())?;
        let file = std::fs::File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(16 << 20).map_err(|error| error.to_string())?;
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&root))?;
        Ok(Self { directory })
    }
}

impl Drop for SmallFilesystem {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg(self.directory.path().join("root")));
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

#[test]
fn a_full_filesystem_ends_growth_and_loses_nothing() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let small = match SmallFilesystem::mount() {
            Ok(small) => small,
            Err(why) => {
                eprintln!("skipped: no small filesystem can be mounted here: {why}");
                return;
            }
        };
        let path = small.directory.path().join("root/log.sprat");
        let options = Options { max_frames: 10_000, ..options(durability) };
        let mut log = MiniLog::new(1);
        log.most = usize::MAX;
        let (mut backup, ..) = open(disk(&path, durability), &options).unwrap();
        while log.append(&backup, 4000) {
            log.pass(&mut backup).unwrap();
            log.settle(&mut backup);
        }
        let count = backup.frame_count();
        assert!(
            backup.disk_is_full() && backup.failure().is_none() && count.max < 10_000,
            "{count:?}"
        );
        let file = std::fs::metadata(&path).unwrap();
        assert_eq!(file.len(), FRAMES_OFFSET + u64::from(count.max) * u64::from(FRAME));
        assert!(
            file.blocks() * 512 < file.len() + u64::from(FRAME),
            "what growing took in vain is given back"
        );
        drop(backup);
        // The existing log can be read, and written in place.
        let (backup, _, segments, newest) = open(disk(&path, durability), &options).unwrap();
        assert!(backup.disk_is_full() && backup.failure().is_none());
        log.check(&segments, newest, true);
        assert!(log.entries > 100);
        drop(backup);
    }
}
