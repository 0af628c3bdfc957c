//! Uses the file mover from Python, against real servers.

mod support;

use sprat_flow::share::{Options, Pace, Share, Tokens};
use std::fs;
use std::path::Path;

/// Length of the file that is served, in bytes.
const BYTES: usize = (24 << 20) + 77;

fn share(directory: &Path, change: impl FnOnce(&mut Options)) -> Share {
    let mut options = Options::new(directory.to_owned(), vec!["127.0.0.1:0".parse().unwrap()]);
    change(&mut options);
    Share::start(options).unwrap()
}

#[test]
fn python_copies_as_its_own_tests_say() {
    let Some(package) = support::Package::with("test_flow") else { return };
    let source = tempfile::tempdir().unwrap();
    let mut content = vec![0; BYTES];
    content
        .chunks_mut(4)
        .enumerate()
        .for_each(|(at, word)| word.copy_from_slice(&at.to_le_bytes()[..word.len()]));
    fs::write(source.path().join("file"), &content).unwrap();
    fs::write(source.path().join("tokens"), "not-to-be-guessed-0123456789\n").unwrap();
    let first = share(source.path(), |_| {});
    let second = share(source.path(), |_| {});
    let slow = share(source.path(), |options| options.pace = Pace::Limit(4_000_000));
    let closed = share(source.path(), |options| {
        options.tokens = Tokens::read(&source.path().join("tokens")).unwrap()
    });
    let url = |share: &Share| format!("sprat://{}/file", share.addresses()[0]);
    let mut command = package.command();
    command.env("SPRAT_TEST_SOURCE", source.path().join("file"));
    command
        .env("SPRAT_TEST_URL", url(&first))
        .env("SPRAT_TEST_SECOND", second.addresses()[0].to_string());
    command.env("SPRAT_TEST_SLOW", url(&slow)).env("SPRAT_TEST_CLOSED", url(&closed));
    support::all_pass(&mut command, 9);
}
