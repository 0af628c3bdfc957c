//! Tests that cannot run here say why, and are counted.

use std::fs::OpenOptions;
use std::io::Write as _;

/// Notes that a test was skipped, and why.
pub(crate) fn skip(why: &str) {
    eprintln!("SKIPPED: {why}");
    if let Some(path) = std::env::var_os("SPRAT_SKIPS") {
        let mut file = OpenOptions::new().create(true).append(true).open(path).expect("the list of skips is writable");
        writeln!(file, "{why}").expect("the list of skips is writable");
    }
}
