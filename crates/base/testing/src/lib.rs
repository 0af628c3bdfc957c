//! What the tests of several crates share. Only dev-dependencies name this crate: its functions
//! panic, print and sleep, as a test may and a program of ours may not.

use std::fs::File;
use std::io::Write as _;

/// Reports that a test cannot run on this machine, and `why`: on standard error, and as a line of
/// the file that the environment variable `SPRAT_SKIPS` names, which `make test` prints at its end.
/// The caller returns.
///
/// # Panics
/// If that file cannot be written: a skip that nobody sees is a test that silently does nothing.
pub fn skip(why: &str) {
    eprintln!("skipped: {why}");
    let Some(path) = std::env::var_os("SPRAT_SKIPS") else { return };
    let list = File::options().create(true).append(true).open(path);
    // One write, so that lines of tests beside each other do not mix.
    let written = list.and_then(|mut list| list.write_all(format!("{why}\n").as_bytes()));
    written.expect("the file that SPRAT_SKIPS names can be written");
}
