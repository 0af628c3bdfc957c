//! Every crate says what it is, to the compiler and on the map.

use crate::Finding;
use crate::source::{Source, is_test_file};

/// Fewest bytes that count as a paragraph.
const PARAGRAPH_BYTES: usize = 80;

/// Files that do not begin with `//!`, what they are for. Tests may, and need not.
#[must_use]
pub fn check_head(source: &Source) -> Vec<Finding> {
    if is_test_file(&source.path) || source.text.starts_with("//! ") {
        return Vec::new();
    }
    let mend = "begin with `//! ` and what the file is for";
    vec![Finding::new(&source.path, 1, "no documentation at the head", mend)]
}

/// Crates without a paragraph of their own, under `### name`, in `architecture`.
#[must_use]
pub fn check_map(crates: &[String], architecture: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let headings = architecture.lines().enumerate().filter_map(|(at, line)| Some((at, line.strip_prefix("### ")?)));
    for (at, name) in headings.clone() {
        if !crates.iter().any(|one| one == name) {
            let what = format!("{name} is described as a crate, and there is none");
            findings.push(Finding::new("ARCHITECTURE.md", at + 1, what, "take it out, or build it"));
        }
    }
    for name in crates {
        let Some((at, _)) = headings.clone().find(|(_, heading)| heading == name) else {
            let mend = format!("add `### {name}` and what it is for under Rooms");
            findings.push(Finding::new("ARCHITECTURE.md", 1, format!("crate {name} is not on the map"), mend));
            continue;
        };
        let told: usize =
            architecture.lines().skip(at + 1).take_while(|line| !line.starts_with('#')).map(str::len).sum();
        if told < PARAGRAPH_BYTES {
            let what = format!("crate {name} has a heading and hardly a word");
            findings.push(Finding::new("ARCHITECTURE.md", at + 1, what, "say what it is for"));
        }
    }
    findings
}
