//! Limits the length of files.

use crate::Finding;
use crate::source::Source;
use std::collections::BTreeMap;

/// Limit on the lines of a Rust file.
pub const MAX_LINES: usize = 900;

/// Limit on the median length, in lines, of the files in a crate's `src`.
pub const MAX_MEDIAN: usize = 300;

/// Finds files that are too long, and crates whose median file is too long.
#[must_use]
pub fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut crates = BTreeMap::<&str, Vec<usize>>::new();
    for source in sources {
        let lines = source.lines();
        if lines > MAX_LINES {
            let problem = format!("{lines} lines, {MAX_LINES} are the limit");
            findings.push(Finding::new(
                &source.path,
                lines,
                problem,
                "split it: one purpose a file",
            ));
        }
        if source.path.contains("/src/") {
            crates.entry(source.crate_folder()).or_default().push(lines);
        }
    }
    for (folder, mut lengths) in crates {
        lengths.sort_unstable();
        let median = lengths[lengths.len() / 2];
        if median > MAX_MEDIAN {
            let problem = format!("the median file has {median} lines, {MAX_MEDIAN} are the limit");
            findings.push(Finding::new(
                &format!("{folder}/src"),
                1,
                problem,
                "split the longest files",
            ));
        }
    }
    findings
}
