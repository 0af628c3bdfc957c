//! Checks that `make test-all` runs every target that the Makefile offers.

use crate::Finding;

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
