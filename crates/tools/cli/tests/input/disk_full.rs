//! Tests a whole server on a disk that is actually full.

use crate::input::connect;
use crate::input::support::small::SmallFilesystem;
use crate::input::support::{PATIENCE, ServerProcess, run, run_with, skip};
use sprat_client::{Client, Error, Table};
use std::fs;
use std::time::{Duration, Instant};

const FLAGS: [&str; 4] = ["--memory", "64M", "--disk", "1G"];

/// Bytes of the filesystem, and of a file that fills part of it.
const FILESYSTEM: u64 = 96 << 20;
const FILLER: u64 = 40 << 20;

fn key(number: usize) -> String {
    format!("object {number}")
}

fn value(number: usize) -> Vec<u8> {
    format!("{number:>10}").repeat(6000).into_bytes()
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let small = match SmallFilesystem::mount(FILESYSTEM) {
        Ok(small) => small,
        Err(why) => {
            return skip(&format!(
                "disk full under a server: no small filesystem can be mounted here: {why}"
            ));
        }
    };
    for durability in ["sync", "buffered"] {
        full(&small, durability);
    }
}

/// Writes objects, numbered from `first`, until one is refused because the disk is full. Returns
/// the number of objects written, and the error.
fn fill(client: &mut Client, table: Table, first: usize) -> (usize, String) {
    for number in first.. {
        match client.put(table, key(number).as_bytes(), &value(number)) {
            Ok(_) => {}
            Err(Error::DiskFull(reason)) => return (number - first, reason),
            Err(error) => panic!("after {} writes: {error}", number - first),
        }
        assert!(number < first + 5000, "the filesystem does not get full");
    }
    unreachable!("it returns above")
}

fn full(small: &SmallFilesystem, durability: &str) {
    let (data, filler) = (small.root().join(durability), small.root().join("filler"));
    fs::write(&filler, vec![1; usize::try_from(FILLER).expect("small")]).expect("room for it");
    let flags: Vec<&str> = FLAGS.into_iter().chain(["--durability", durability]).collect();
    let mut server = ServerProcess::start(&data, &flags).expect("it starts");
    let mut client = connect(&server);
    let table = client.create_table("t").expect("a table");
    let (acknowledged, reason) = fill(&mut client, table, 0);
    assert!(reason.contains("the disk is full") && reason.contains("log.sprat"), "{reason}");
    assert!(acknowledged > 100, "{acknowledged}");

    // Reads still work, and the log and `status` report the full disk.
    let is_there = |client: &mut Client, table, number: usize| {
        let object =
            client.get(table, key(number).as_bytes()).expect("reads go on").expect("acknowledged");
        assert!(object.value == value(number));
    };
    (0..acknowledged).for_each(|number| is_there(&mut client, table, number));
    assert!(server.new_stderr().contains("the disk is full"), "the server's log says so");
    let status = run(&["status", "-C", &server.coordinator]);
    assert!(status.ok().contains("DISK FULL"), "{status:?}");
    let refused = run_with(&["put", "t", "k", "-C", &server.coordinator], &value(0));
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("the disk is full"), "{}", refused.stderr);

    // Removing objects makes room, without a restart.
    (0..acknowledged / 2).for_each(|number| {
        client
            .remove(table, key(number).as_bytes())
            .expect("removals go on")
            .expect("it was there");
    });
    let begun = Instant::now();
    for number in 0..acknowledged / 4 {
        // Writes are refused until the cleaner has made room.
        while let Err(error) = client.put(table, key(number).as_bytes(), &value(number)) {
            assert!(matches!(error, Error::DiskFull(_)) && begun.elapsed() < PATIENCE, "{error}");
            pause();
        }
    }
    server.kill();

    // A server starts on the full disk, and serves reads and removals.
    let server = ServerProcess::start(&data, &flags).expect("it starts on a full disk");
    let mut client = connect(&server);
    let table = client.table("t").expect("the table");
    (0..acknowledged / 4).chain(acknowledged / 2..acknowledged).for_each(|number| {
        is_there(&mut client, table, number);
    });
    client.remove(table, key(0).as_bytes()).expect("a removal").expect("it was there");

    // When there is space again, writes succeed without a restart.
    fs::remove_file(&filler).expect("there");
    let begun = Instant::now();
    let mut more = 0;
    while more < acknowledged / 2 {
        match client.put(table, key(acknowledged + more).as_bytes(), &value(acknowledged + more)) {
            Ok(_) => more += 1,
            Err(error) => {
                assert!(
                    matches!(error, Error::DiskFull(_)) && begun.elapsed() < PATIENCE,
                    "{error}"
                );
                pause();
            }
        }
    }
    assert!(server.stop().success());
    eprintln!("{durability}: full after {acknowledged} writes");
    fs::remove_dir_all(&data).expect("removed");
}

#[expect(clippy::disallowed_methods, reason = "a test's thread is no node")]
fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}
