//! Checks that our pages name only files that exist, and that no file names certain external hosts
//! or paths.

use crate::Finding;

/// Words that must not occur in the repository: hosts of registries (a host may move, and mirrors
/// exist), and paths on one person's machine. Each word is split in two, since this file would
/// otherwise contain it.
pub const FOREIGN: &[(&str, &str)] = &[
    ("crates", ".io"),
    ("github", ".com"),
    ("pypi", ".org"),
    ("proxy.", "golang.org"),
    ("deb.", "debian.org"),
    ("/work", "/"),
    ("DEVELOPERS", ".md"),
];

/// Files written by tools. They may contain such words.
const GENERATED: &[&str] = &["Cargo.lock"];

/// Finds the words of [`FOREIGN`] in a file of ours.
#[must_use]
pub fn check_foreign(path: &str, text: &str) -> Vec<Finding> {
    if GENERATED.contains(&path) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate() {
        for word in
            FOREIGN.iter().map(|(a, b)| format!("{a}{b}")).filter(|word| line.contains(word))
        {
            let remedy = "say it without: a reader elsewhere has other hosts and paths";
            findings.push(Finding::new(
                path,
                at + 1,
                format!("`{word}` is not of this project"),
                remedy,
            ));
        }
    }
    findings
}

/// Finds links and paths in a Markdown page that lead to no file. `exists` tests a path from the
/// root.
#[must_use]
pub fn check_page(path: &str, text: &str, exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut findings = Vec::new();
    let mut in_code = false;
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        let linked = links(line).map(|link| join(folder, link));
        let named = code_spans(line)
            .filter(|span| is_our_path(span))
            .map(|span| span.trim_end_matches('/').to_owned());
        for target in linked.chain(named).filter(|target| !exists(target)) {
            let problem = format!("`{target}` does not exist");
            findings.push(Finding::new(
                path,
                at + 1,
                problem,
                "name an existing file, or create it",
            ));
        }
    }
    findings
}

/// Returns the link targets in a line that lie within the repository, without their anchors.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.contains("://") && !target.starts_with('#'))
        .filter_map(|target| target.split('#').next())
}

fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Returns whether a code span is a path from the root: it begins with one of our folders, or names
/// a page.
fn is_our_path(span: &str) -> bool {
    let plain = span.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte));
    let folder = ["crates/", "docs/", "scripts/", "fuzz/", ".ci/"]
        .iter()
        .any(|folder| span.starts_with(folder));
    plain && (folder || (span.ends_with(".md") && !span.contains('/')))
}

/// Returns `target`, relative to `folder`, as a path from the root.
fn join(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
