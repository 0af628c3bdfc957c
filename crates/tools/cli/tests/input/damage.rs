//! Tests that data directories that are damaged, cut short, incomplete or foreign are refused. The
//! error names the file, and the server never guesses.

use crate::input::support::{ServerProcess, read_all};
use crate::input::{SMALL, connect};
use sprat_chance::Chance;
use sprat_client::Client;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Number of objects that are written, each in its own commit.
const OBJECTS: usize = 120;

/// Number of bits that are flipped, half of them in a cleanly closed log.
const FLIPS: usize = 100;

/// Number of bytes of the last commits.
const LAST_BYTES: usize = 1500;

fn start(data: &Path) -> Result<ServerProcess, String> {
    ServerProcess::start(data, &SMALL)
}

fn value(number: usize) -> Vec<u8> {
    let mut random = Chance::new(number as u64);
    let len = if number.is_multiple_of(10) { 60_000 } else { 40 + number * 7 };
    std::iter::repeat_with(|| random.draw().to_le_bytes()[0]).take(len).collect()
}

fn key(number: usize) -> String {
    format!("object {number}")
}

/// Makes a data directory with objects. Its server is then stopped cleanly or killed.
fn prepare(data: &Path, in_order: bool) {
    let mut server = start(data).expect("it starts");
    let mut client = connect(&server);
    let table = client.create_table("t").expect("a table");
    for number in 0..OBJECTS {
        client.put(table, key(number).as_bytes(), &value(number)).expect("a write");
    }
    if in_order {
        assert!(server.stop().success());
    } else {
        server.kill();
    }
}

/// Returns the numbers of missing objects. Panics if an object has a wrong value.
fn missing(client: &mut Client) -> Vec<usize> {
    let table = client.table("t").expect("the table");
    (0..OBJECTS)
        .filter(|&number| match client.get(table, key(number).as_bytes()).expect("a read") {
            Some(object) => {
                assert!(object.value == value(number), "object {number} is not what was written");
                false
            }
            None => true,
        })
        .collect()
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("readable") {
        let entry = entry.expect("readable");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}

fn flip(path: &Path, offset: u64, bit: u32) {
    let file = fs::File::options().read(true).write(true).open(path).expect("the log");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("within the file");
    byte[0] ^= 1 << bit;
    file.write_all_at(&byte, offset).expect("written");
}

#[test]
fn a_flipped_bit_is_refused_or_harmless() {
    let mut random = Chance::new(4711);
    let (mut refused, mut harmless, mut cut) = (0, 0, 0);
    for in_order in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        let (original, data) = (dir.path().join("original"), dir.path().join("data"));
        prepare(&original, in_order);
        let bytes = read_all(&original.join("log.sprat"));
        let written: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != 0).collect();
        copy_dir(&original, &data);
        let log = data.join("log.sprat");
        for _ in 0..FLIPS / 2 {
            // Anywhere, within the written part, or at its very end, where the last writes may be
            // cut.
            let offset = match random.modulo(8) {
                0 => random.index(bytes.len()),
                1 | 2 => written[written.len() - 1 - random.index(LAST_BYTES)],
                _ => written[random.index(written.len())],
            };
            let bit = u32::try_from(random.modulo(8)).expect("small");
            flip(&log, offset as u64, bit);
            let what = format!("bit {bit} of byte {offset}, stopped in order: {in_order}");
            match start(&data) {
                Err(message) => {
                    refused += 1;
                    assert!(
                        message.contains("log.sprat") && message.contains("offset"),
                        "{what}: {message}"
                    );
                    flip(&log, offset as u64, bit);
                    assert!(
                        read_all(&log) == bytes,
                        "{what}: refused, and yet the file was changed"
                    );
                    continue;
                }
                Ok(mut server) => {
                    let gone = missing(&mut connect(&server));
                    let said_cut = server.startup_log.contains("cut an unfinished write");
                    if said_cut {
                        cut += 1;
                        assert!(
                            !in_order,
                            "{what}: cut from a log that was closed in order: {}",
                            server.startup_log
                        );
                        assert!(
                            gone.iter().all(|&number| number + 1 == OBJECTS),
                            "{what}: lost {gone:?}"
                        );
                    } else {
                        harmless += 1;
                        assert!(
                            gone.is_empty(),
                            "{what}: lost {gone:?} without a word: {}",
                            server.startup_log
                        );
                    }
                    server.kill();
                }
            }
            // That server has written to the log, so the directory cannot be used again.
            drop(fs::remove_dir_all(&data));
            copy_dir(&original, &data);
        }
    }
    eprintln!(
        "{FLIPS} flips: {refused} refused by name and offset, {harmless} of no consequence, {cut} \
         cut and told"
    );
    assert!(refused > FLIPS / 4, "too few flips hit anything");
}

#[test]
fn a_log_cut_short_is_refused() {
    for in_order in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        prepare(dir.path(), true);
        if !in_order {
            // The header has the file's length at the last start or stop. So the writes of a first
            // run are less protected.
            start(dir.path()).expect("it starts").kill();
        }
        let log = dir.path().join("log.sprat");
        let bytes = read_all(&log);
        for part in [2, 3, 100] {
            fs::write(&log, &bytes[..bytes.len() / part]).expect("written");
            let message = start(dir.path()).err().expect("refused");
            assert!(message.contains("log.sprat"), "{message}");
            assert!(message.contains("cut short") || message.contains("damaged"), "{message}");
            assert_eq!(
                fs::metadata(&log).expect("there").len(),
                (bytes.len() / part) as u64,
                "unchanged"
            );
        }
        fs::write(&log, &bytes).expect("written");
        let server = start(dir.path()).expect("whole again");
        assert_eq!(missing(&mut connect(&server)), Vec::<usize>::new());
    }
}

#[test]
fn missing_and_foreign_files_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    prepare(&one, true);
    prepare(&two, true);
    let identity = fs::read(one.join("identity.toml")).expect("there");

    fs::remove_file(one.join("identity.toml")).expect("there");
    let message = start(&one).err().expect("refused");
    assert!(message.contains("identity.toml") && message.contains("missing"), "{message}");

    fs::write(one.join("identity.toml"), "format = 3\nnew = 1\n").expect("written");
    let message = start(&one).err().expect("refused");
    assert!(message.contains("format 3") && message.contains("newer sprat"), "{message}");

    fs::write(one.join("identity.toml"), "not toml").expect("written");
    let message = start(&one).err().expect("refused");
    assert!(message.contains("identity.toml"), "{message}");
    fs::write(one.join("identity.toml"), &identity).expect("written");

    // The log belongs to another cluster.
    let own = read_all(&one.join("log.sprat"));
    fs::copy(two.join("log.sprat"), one.join("log.sprat")).expect("copied");
    let message = start(&one).err().expect("refused");
    assert!(
        message.contains("log.sprat is not this server's log") && message.contains("cluster"),
        "{message}"
    );
    fs::write(one.join("log.sprat"), &own).expect("written");

    // The coordinator's file belongs to another cluster, or is missing. The objects must not appear
    // in other tables.
    let catalog = fs::read(one.join("coordinator.redb")).expect("there");
    fs::copy(two.join("coordinator.redb"), one.join("coordinator.redb")).expect("copied");
    let message = start(&one).err().expect("refused");
    assert!(message.contains("cluster"), "{message}");
    fs::remove_file(one.join("coordinator.redb")).expect("there");
    let message = start(&one).err().expect("refused");
    assert!(message.contains("coordinator.redb: missing"), "{message}");
    fs::write(one.join("coordinator.redb"), b"no database").expect("written");
    let message = start(&one).err().expect("refused");
    assert!(message.contains("coordinator.redb"), "{message}");
    fs::write(one.join("coordinator.redb"), catalog).expect("written");

    let server = start(&one).expect("whole again");
    assert_eq!(missing(&mut connect(&server)), Vec::<usize>::new());
}
