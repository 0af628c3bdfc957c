//! Every `sprat` command in the documentation and in the examples of the help pages is one that
//! the program understands.
//!
//! Each command runs with `--help` added, which prints its page if all words before it are valid.
//! An example in the help of `sprat cp` was invalid for months, because no test ran it as written.

use crate::support::run;
use std::fs;
use std::path::{Path, PathBuf};

/// Lower bound on the commands found in one kind of page. With fewer, this test misreads the pages.
const FEWEST: usize = 100;

#[test]
fn commands_in_the_documentation_are_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut pages: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md"].map(|name| root.join(name)).into();
    for folder in ["docs", "docs/decisions"] {
        pages.extend(files(&root.join(folder), ".md"));
    }
    let mut found = Vec::new();
    for page in &pages {
        let text = fs::read_to_string(page).expect("a page");
        let mut in_code = false;
        let code = text.lines().map(|line| {
            in_code ^= line.starts_with("```");
            if in_code { line.strip_prefix("$ ").unwrap_or(line) } else { "" }
        });
        found.extend(commands(page, &code.collect::<Vec<_>>()));
    }
    check(&found);
}

#[test]
fn examples_in_help_pages_are_valid() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut found = Vec::new();
    for page in files(&golden, ".txt") {
        let text = fs::read_to_string(&page).expect("a page");
        let mut in_examples = false;
        let examples = text.lines().map(|line| {
            in_examples = line == "Examples:" || (in_examples && !line.is_empty());
            let line = if in_examples { line.trim_start() } else { "" };
            // Two spaces stand before what the command does.
            line.split_once("  ").map_or(line, |(command, _)| command)
        });
        found.extend(commands(&page, &examples.collect::<Vec<_>>()));
    }
    check(&found);
}

/// A command of `sprat`, without the program's name, and where it stands.
struct Documented {
    place: String,
    words: Vec<String>,
}

/// Returns the commands of `sprat` in lines of shell.
fn commands(page: &Path, lines: &[&str]) -> Vec<Documented> {
    let mut found = Vec::new();
    let mut whole = String::new();
    for (number, line) in (1..).zip(lines) {
        if let Some(part) = line.strip_suffix('\\') {
            whole += part;
            continue;
        }
        whole += line;
        let line = std::mem::take(&mut whole);
        if !line.contains("sprat ") {
            continue;
        }
        // What is not shell, such as output that mentions a command, need not be valid.
        let words = shlex::split(&line.replace("; ", " ; ")).unwrap_or_default();
        for command in words.split(|word| ["|", "&", "&&", "||", ";"].contains(&&word[..])) {
            let is_prefix = |word: &&String| {
                let name = word.split('=').next().unwrap_or_default();
                *word == "sudo" || (word.contains('=') && name == name.to_uppercase())
            };
            let command = &command[command.iter().take_while(is_prefix).count()..];
            let end = command.iter().position(|word| word.starts_with(['>', '<']));
            let command = &command[..end.unwrap_or(command.len())];
            if let [program, words @ ..] = command
                && program == "sprat"
            {
                let place = format!("{}:{number}", page.display());
                found.push(Documented { place, words: words.to_vec() });
            }
        }
    }
    found
}

fn check(found: &[Documented]) {
    assert!(found.len() >= FEWEST, "only {} commands found", found.len());
    let mut wrong = Vec::new();
    for Documented { place, words } in found {
        // Words after `--` belong to another program.
        let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
        let mut words: Vec<&str> = words[..end].iter().map(String::as_str).collect();
        words.push("--help");
        let result = run(&words);
        if result.code != Some(0) {
            let why = result.stderr.lines().next().unwrap_or_default();
            wrong.push(format!("{place}: sprat {}\n    {why}", words.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "these commands are wrong:\n{}", wrong.join("\n"));
}

fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.to_string_lossy().ends_with(end)).collect();
    files.sort();
    files
}
