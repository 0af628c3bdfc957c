//! Checks that every crate is documented: in its files, in its README and in ARCHITECTURE.md.

use crate::Finding;
use crate::source::{Source, is_test_file};

/// Lower limit on the length of a README's first paragraph, in bytes.
const PARAGRAPH_BYTES: usize = 80;

/// Finds files that do not begin with `//!`. Test files are exempt.
#[must_use]
pub fn check_head(source: &Source) -> Vec<Finding> {
    if is_test_file(&source.path) || source.text.starts_with("//! ") {
        return Vec::new();
    }
    let remedy = "begin with `//! ` and what the file is for";
    vec![Finding::new(&source.path, 1, "no documentation at the head", remedy)]
}

/// Openings of a comment that refer to another text, which the reader would have to look for.
const RIDDLES: &[&str] = &["The same", "So does", "So is", "As above", "Ditto"];

/// Finds documentation that begins with a reference to another text.
#[must_use]
pub fn check_openings(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut opens = true;
    for (line, text) in source.text.lines().enumerate() {
        let text = text.trim_start();
        let doc = text.strip_prefix("/// ").or_else(|| text.strip_prefix("//! "));
        if let Some(doc) = doc.filter(|_| opens)
            && let Some(riddle) = RIDDLES.iter().find(|riddle| doc.starts_with(**riddle))
        {
            let problem = format!("documentation begins with {riddle:?}");
            findings.push(Finding::new(
                &source.path,
                line + 1,
                problem,
                "say what it does, with its actor",
            ));
        }
        opens = !text.starts_with("//");
    }
    findings
}

/// Checks the README of the crate in `folder` (such as `crates/base/net`). `text` is `None` if the
/// crate has no README.
#[must_use]
pub fn check_readme(folder: &str, text: Option<&str>) -> Vec<Finding> {
    let path = format!("{folder}/README.md");
    let name = folder.rsplit('/').next().unwrap_or(folder);
    let Some(text) = text else {
        return vec![Finding::new(
            &path,
            1,
            "the crate has no README",
            "say what it is for and where to begin reading",
        )];
    };
    let (title, body) = text.split_once('\n').unwrap_or((text, ""));
    if title != format!("# sprat-{name}") {
        return vec![Finding::new(
            &path,
            1,
            "it has another title than its crate",
            "begin with `# sprat-` and its name",
        )];
    }
    let paragraph = body.trim_start().split("\n\n").next().map_or(0, str::len);
    if paragraph < PARAGRAPH_BYTES {
        return vec![Finding::new(
            &path,
            3,
            "a title and hardly a word",
            "say what the crate is for",
        )];
    }
    Vec::new()
}

/// Finds crates without a link to their README in `architecture`, the text of ARCHITECTURE.md.
#[must_use]
pub fn check_map(folders: &[String], architecture: &str) -> Vec<Finding> {
    let linked = |folder: &&String| architecture.contains(&format!("]({folder}/README.md)"));
    let finding = |folder: &String| {
        let remedy = format!("add a link to {folder}/README.md to the table of groups");
        Finding::new("ARCHITECTURE.md", 1, format!("{folder} is not on the map"), remedy)
    };
    folders.iter().filter(|folder| !linked(folder)).map(finding).collect()
}
