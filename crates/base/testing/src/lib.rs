//! Helpers shared by the tests of several crates. Only dev-dependencies may name this crate: its
//! functions panic, print and sleep, which our programs must not.

use std::fs::File;
use std::io::Write as _;

/// Reports that a test cannot run on this machine, and `why`: on standard error, and as a line of
/// the file that the environment variable `SPRAT_SKIPS` names, which `make test` prints at its end.
/// The caller returns.
///
/// # Panics
/// If that file cannot be written: an unreported skip is a test that silently does nothing.
pub fn skip(why: &str) {
    eprintln!("skipped: {why}");
    let Some(path) = std::env::var_os("SPRAT_SKIPS") else { return };
    let list = File::options().create(true).append(true).open(path);
    // A single write, so that lines of parallel tests do not mix.
    let written = list.and_then(|mut list| list.write_all(format!("{why}\n").as_bytes()));
    written.expect("the file that SPRAT_SKIPS names can be written");
}
