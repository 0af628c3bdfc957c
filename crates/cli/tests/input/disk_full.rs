//! A disk that is really full, under a whole server.

use crate::connect;
use crate::support::{ServerProcess, run, skip};
use sprat_client::Error;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const FLAGS: [&str; 4] = ["--memory", "64M", "--disk", "1G"];

/// Bytes of the filesystem, and of a file that takes part of it.
const FILESYSTEM: u64 = 96 << 20;
const FILLER: u64 = 40 << 20;

/// A filesystem of its own in a file, unmounted when dropped.
struct SmallFilesystem {
    directory: tempfile::TempDir,
}

impl SmallFilesystem {
    /// An ext4, or why there is none.
    fn mount() -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let small = Self { directory };
        let image = small.directory.path().join("image");
        fs::create_dir(small.root()).map_err(|error| error.to_string())?;
        let file = fs::File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(FILESYSTEM).map_err(|error| error.to_string())?;
        tool(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image))?;
        tool(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(small.root()))?;
        Ok(small)
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }
}

impl Drop for SmallFilesystem {
    fn drop(&mut self) {
        let _ = tool(Command::new("umount").arg(self.root()));
    }
}

fn tool(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

fn key(number: usize) -> String {
    format!("object {number}")
}

fn value(number: usize) -> Vec<u8> {
    format!("{number:>10}").repeat(6000).into_bytes()
}

#[test]
fn a_full_disk_stops_writes_aloud_and_loses_nothing() {
    let small = match SmallFilesystem::mount() {
        Ok(small) => small,
        Err(why) => return skip(&format!("disk full under a server: no small filesystem can be mounted here: {why}")),
    };
    for durability in ["sync", "buffered"] {
        full(&small, durability);
    }
}

fn full(small: &SmallFilesystem, durability: &str) {
    let (data, filler) = (small.root().join(durability), small.root().join("filler"));
    fs::write(&filler, vec![1; usize::try_from(FILLER).expect("small")]).expect("room for it");
    let flags: Vec<&str> = FLAGS.into_iter().chain(["--durability", durability]).collect();
    let mut server = ServerProcess::start(&data, &flags).expect("it starts");
    let mut client = connect(&server);
    let table = client.create_table("t").expect("a table");
    let mut acknowledged = 0;
    let reason = loop {
        match client.put(table, key(acknowledged).as_bytes(), &value(acknowledged)) {
            Ok(_) => acknowledged += 1,
            Err(Error::WritesStopped(reason)) => break reason,
            Err(error) => panic!("after {acknowledged} writes: {error}"),
        }
        assert!(acknowledged < 5000, "the filesystem does not get full");
    };
    assert!(reason.contains("No space left on device") && reason.contains("log.sprat"), "{reason}");
    assert!(acknowledged > 100, "{acknowledged}");

    // Nothing is acknowledged from here on; reads go on; everybody is told.
    let stopped = |result: Result<u64, Error>| assert!(matches!(result, Err(Error::WritesStopped(_))), "{result:?}");
    stopped(client.put(table, b"another", b"value"));
    stopped(client.remove(table, key(0).as_bytes()).map(|_| 0));
    stopped(client.increment_i64(table, b"number", 1).map(|_| 0));
    for number in 0..acknowledged {
        let object = client.get(table, key(number).as_bytes()).expect("reads go on").expect("acknowledged");
        assert!(object.value == value(number));
    }
    assert!(server.heard().contains("no more writes are taken"), "the server's log says so");
    let status = run(&["status", "-C", &server.coordinator]);
    assert!(status.ok().contains("WRITES STOPPED"), "{status:?}");
    let refused = run(&["put", "t", "k", "v", "-C", &server.coordinator]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("No space left on device"), "{}", refused.stderr);
    server.kill();

    // Still full: it starts, and serves reads.
    let server = ServerProcess::start(&data, &flags).expect("it starts on a full disk");
    let mut client = connect(&server);
    let table = client.table("t").expect("the table");
    for number in 0..acknowledged {
        let object = client.get(table, key(number).as_bytes()).expect("a read").expect("acknowledged");
        assert!(object.value == value(number));
    }
    drop(server);

    // With room again, everything is there and writes are taken.
    fs::remove_file(&filler).expect("there");
    let server = ServerProcess::start(&data, &flags).expect("it starts");
    let mut client = connect(&server);
    let table = client.table("t").expect("the table");
    for number in 0..acknowledged {
        let object = client.get(table, key(number).as_bytes()).expect("a read").expect("acknowledged");
        assert!(object.value == value(number));
    }
    client.put(table, b"another", b"value").expect("writes are taken again");
    assert!(server.stop().success());
    eprintln!("{durability}: full after {acknowledged} writes");
    fs::remove_dir_all(&data).expect("removed");
}
