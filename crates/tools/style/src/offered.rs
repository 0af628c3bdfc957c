//! Checks that `make test-all` runs every target that the Makefile offers, and that the tests which
//! targets and scripts name are there.

use crate::Finding;
use crate::source::Source;

/// Targets that `make test-all` does not run, with the reasons.
const LEFT_OUT: &[(&str, &str)] = &[
    ("help", "lists the others"),
    ("clean", "removes what the others built"),
    ("bench", "is bench-store"),
    ("test-all", "is what runs the others"),
];

/// Finds targets that `makefile` offers (their line has `## ` and a description) but that the
/// script `test_all` does not run. Also finds targets that the script runs but the Makefile lacks.
#[must_use]
pub fn check(makefile: &str, test_all: &str) -> Vec<Finding> {
    let offered: Vec<(usize, &str)> =
        (1..).zip(makefile.lines()).filter_map(|(at, line)| Some((at, target(line)?))).collect();
    let run: Vec<(usize, &str)> =
        (1..).zip(test_all.lines()).filter_map(|(at, line)| Some((at, entry(line)?))).collect();
    let missing = offered.iter().filter(|(_, name)| {
        run.iter().all(|(_, one)| one != name) && LEFT_OUT.iter().all(|(one, _)| one != name)
    });
    let missing = missing.map(|(at, name)| {
        let remedy = "add it to the list in scripts/test-all";
        Finding::new("Makefile", *at, format!("no script runs `make {name}`"), remedy)
    });
    let gone = run.iter().filter(|(_, name)| offered.iter().all(|(_, one)| one != name));
    let gone = gone.map(|(at, name)| {
        Finding::new(
            "scripts/test-all",
            *at,
            format!("there is no target {name}"),
            "take it out of the list",
        )
    });
    missing.chain(gone).collect()
}

/// Finds filters of tests, such as `cp::the_file`, in the lines of `text` that run `cargo test`, to
/// which no test belongs: cargo would run nothing, and succeed.
#[must_use]
pub fn check_filters(file: &str, text: &str, sources: &[Source]) -> Vec<Finding> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| line.contains("cargo test"));
    let filters = lines.flat_map(|(at, line)| {
        let words = line.split_whitespace().filter_map(|word| word.split_once("::"));
        words.map(move |(module, test)| (at, module, test))
    });
    let missing = filters.filter(|(_, module, test)| {
        let (alone, folder) = (format!("/tests/{module}.rs"), format!("/tests/{module}/"));
        let test = format!("fn {test}");
        !sources.iter().any(|source| {
            (source.path.ends_with(&alone) || source.path.contains(&folder))
                && source.text.contains(&test)
        })
    });
    missing
        .map(|(at, module, test)| {
            let problem = format!("no test is called {module}::{test}");
            Finding::new(file, at, problem, "name a test that exists")
        })
        .collect()
}

/// Returns the target of a line such as `name: needs ## what it is for`.
fn target(line: &str) -> Option<&str> {
    let (name, rest) = line.split_once(':')?;
    let is_name =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    (is_name && rest.contains("## ")).then_some(name)
}

/// Returns the target of a line such as `  "name SETTING=1"`.
fn entry(line: &str) -> Option<&str> {
    let quoted = line.strip_prefix("  \"")?.strip_suffix('"')?;
    quoted.split(' ').next()
}
