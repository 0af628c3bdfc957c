//! Tests the services of the operating system, and their errors.

use sprat_host::{lock, memory, random, read_text, replace};
use std::fs;
use std::sync::Mutex;

#[test]
fn a_file_is_replaced_whole_and_its_folder_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a/b.toml");
    replace(&path, b"one").expect("written");
    fs::write(folder.path().join("a/b.toml.new"), "what a crash left, which is longer")
        .expect("written");
    replace(&path, b"two").expect("written");
    assert_eq!(fs::read(&path).expect("there"), b"two");
    assert_eq!(
        fs::read_dir(folder.path().join("a")).expect("a folder").count(),
        1,
        "no temporary file is left"
    );
}

#[test]
fn a_failed_replacement_names_the_file_and_keeps_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kept");
    replace(&path, b"one").expect("written");
    fs::create_dir(folder.path().join("kept.new"))
        .expect("a folder where the new file would be written");
    let error = replace(&path, b"two").expect_err("refused").to_string();
    assert!(error.contains("kept: "), "{error}");
    assert_eq!(fs::read(&path).expect("there"), b"one");
}

#[test]
fn a_text_that_is_too_long_is_refused_and_not_cut() {
    assert_eq!(read_text(&b"four"[..], 4).expect("a text as long as the limit"), "four");
    let long = read_text(&b"fives"[..], 4).expect_err("too long");
    assert_eq!(long.kind(), std::io::ErrorKind::FileTooLarge);
    assert!(long.to_string().contains("longer than 4 bytes"), "{long}");
    let binary = read_text(&b"\xff"[..], 4).expect_err("no text");
    assert_eq!(binary.kind(), std::io::ErrorKind::InvalidData);
}

#[test]
fn a_lock_is_taken_after_a_panic() {
    let number = Mutex::new(1);
    let panicked = std::thread::scope(|scope| {
        let held = scope.spawn(|| {
            let _held = number.lock().expect("free");
            panic!("while it is held");
        });
        held.join().is_err()
    });
    assert!(panicked && number.is_poisoned());
    assert_eq!(*lock(&number), 1);
}

#[test]
fn the_machine_has_memory_and_numbers_that_differ() {
    let total = memory("MemTotal").expect("Linux");
    assert!(memory("MemAvailable").expect("Linux") <= total);
    assert!(memory("MemNone").is_none());
    assert_ne!(random(), random());
}
