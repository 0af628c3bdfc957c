//! Keeps the names of public types distinct: a reader who knows a type should not meet its name
//! with other meanings in many crates.

use crate::Finding;
use crate::source::Source;
use std::collections::{BTreeMap, BTreeSet};

/// Limit on the number of crates that have a public type of one name.
pub const MAX_CRATES: usize = 3;

/// Names that have one meaning in every crate, or whose meaning the crate's name makes clear.
pub const SHARED: &[&str] = &[
    "Answer",
    "Completion",
    "Counters",
    "Durability",
    "Entry",
    "Error",
    "Fault",
    "Host",
    "Operation",
    "Options",
    "Outcome",
    "Progress",
    "Report",
    "Request",
    "Server",
    "Source",
    "Target",
    "Verdict",
];

/// The words that precede the name of a public type.
const DEFINITIONS: &[[&str; 2]] =
    &[["pub", "struct"], ["pub", "enum"], ["pub", "trait"], ["pub", "type"]];

/// Finds public types whose name is in more than [`MAX_CRATES`] crates and not in `shared`.
#[must_use]
pub fn check(sources: &[Source], shared: &[&str]) -> Vec<Finding> {
    let mut named = BTreeMap::<&str, (BTreeSet<&str>, &str, usize)>::new();
    for source in sources.iter().filter(|source| source.path.contains("/src/")) {
        for definition in DEFINITIONS {
            for tokens in source.find(definition) {
                let Some(name) = tokens.get(2).filter(|name| !name.in_test) else { continue };
                let place = (BTreeSet::new(), &source.path[..], name.line);
                let (crates, ..) = named.entry(&name.text).or_insert(place);
                crates.insert(source.crate_folder());
            }
        }
    }
    let too_many = named
        .into_iter()
        .filter(|(name, (crates, ..))| crates.len() > MAX_CRATES && !shared.contains(name));
    let finding = |(name, (crates, path, line)): (&str, (BTreeSet<&str>, &str, usize))| {
        let crates = crates.into_iter().collect::<Vec<_>>().join(", ");
        let problem = format!("public types called `{name}` in {crates}");
        Finding::new(path, line, problem, "give it a longer name, or list it as shared")
    };
    too_many.map(finding).collect()
}
