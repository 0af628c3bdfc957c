//! Reads the files of this repository.

use crate::Finding;
use crate::source::Source;
use std::path::{Path, PathBuf};
use walkdir::{DirEntry, WalkDir};

/// Folders at the root that contain no files of ours.
const NOT_OURS: &[&str] = &[".git", "target"];
/// Folders that `scripts/fuzz` writes.
const FUZZ_OUTPUT: &[&str] = &["fuzz/corpus", "fuzz/artifacts"];

/// Returns the root of the repository.
///
/// # Panics
/// If this crate no longer lies three folders below the root.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .nth(3)
        .expect("crates/tools/style lies three folders below the root")
        .to_owned()
}

/// Returns the paths of all our files below `root`, relative to `root` and sorted.
///
/// # Panics
/// If the tree cannot be read.
#[must_use]
pub fn files(root: &Path) -> Vec<String> {
    let relative = |entry: &DirEntry| {
        let path = entry.path().strip_prefix(root).expect("below the root");
        path.to_str().expect("our names are UTF-8").to_owned()
    };
    WalkDir::new(root)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(|entry| {
            let path = relative(entry);
            !NOT_OURS.contains(&&path[..]) && !FUZZ_OUTPUT.contains(&&path[..])
        })
        .map(|entry| entry.expect("the tree is readable"))
        .filter(|entry| entry.file_type().is_file())
        .map(|entry| relative(&entry))
        .collect()
}

/// Parses every Rust file. Files that are not valid Rust become findings.
///
/// # Panics
/// If a file cannot be read.
#[must_use]
pub fn sources(root: &Path, files: &[String]) -> (Vec<Source>, Vec<Finding>) {
    let mut sources = Vec::new();
    let mut findings = Vec::new();
    for path in files.iter().filter(|path| path.ends_with(".rs")) {
        match Source::parse(path, &read(root, path)) {
            Ok(source) => sources.push(source),
            Err(finding) => findings.push(finding),
        }
    }
    (sources, findings)
}

/// Returns the text of one file.
///
/// # Panics
/// If the file cannot be read, or is not UTF-8.
#[must_use]
pub fn read(root: &Path, path: &str) -> String {
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}
