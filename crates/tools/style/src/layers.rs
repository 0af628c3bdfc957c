//! Checks that dependencies between crates point one way.

use crate::Finding;
use toml::{Table, Value};

/// The crates, the lowest row first. A crate may use only crates of lower rows.
pub const ROWS: &[&[&str]] = &[
    &["wire", "chance", "units", "host", "testing", "resp"],
    &["disk", "net", "pace", "key", "plan", "formula", "ranks", "lua"],
    &["rpc", "log", "transfer", "http", "vector", "grapedr"],
    &["client", "redis", "rack", "grape"],
    &["store", "lab", "flow", "load", "bridge"],
    &["archive"],
    &["sim", "objects", "browser", "provision", "tune", "power", "measure"],
    &["check", "bench", "ring"],
    &["cli"],
];

/// A folder of crates: those of one product, or crates that products share.
pub struct Group {
    /// The folder of the group, below `crates`.
    pub name: &'static str,
    /// The other groups that the group's crates may use.
    pub uses: &'static [&'static str],
    /// The crates of the group.
    pub crates: &'static [&'static str],
}

/// The groups, lowest first.
pub const GROUPS: &[Group] = &[
    Group {
        name: "base",
        uses: &[],
        crates: &["chance", "units", "host", "testing", "resp", "disk", "net"],
    },
    Group {
        name: "store",
        uses: &["base"],
        crates: &[
            "wire", "key", "lua", "rpc", "log", "client", "redis", "store", "transfer", "sim",
            "archive", "check",
        ],
    },
    Group {
        name: "flow",
        uses: &["base"],
        crates: &["pace", "http", "flow", "objects", "browser"],
    },
    Group { name: "lab", uses: &["base"], crates: &["lab"] },
    Group {
        name: "rack",
        uses: &["base", "store", "flow", "lab"],
        crates: &["plan", "rack", "load", "bridge", "provision", "tune", "power", "ring"],
    },
    Group {
        name: "grape",
        uses: &["base"],
        crates: &["formula", "ranks", "vector", "grapedr", "grape"],
    },
    Group {
        name: "tools",
        uses: &["base", "store", "flow", "lab", "rack", "grape"],
        crates: &["measure", "bench", "cli", "style"],
    },
];

/// Crates outside the layers. They use none of our crates, and no crate of ours uses them.
pub const BESIDE: &[&str] = &["style"];

const PREFIX: &str = "sprat-";

/// Checks one crate's manifest. `folder` is the crate's folder below `crates`, and `text` its
/// `Cargo.toml`.
#[must_use]
pub fn check(folder: &str, text: &str) -> Vec<Finding> {
    let path = format!("crates/{folder}/Cargo.toml");
    let (group, name) = folder.split_once('/').unwrap_or(("", folder));
    let finding = |line, problem: String, remedy: &str| Finding::new(&path, line, problem, remedy);
    let manifest: Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![finding(1, format!("not TOML: {error}"), "see what cargo says")],
    };
    let mut findings = Vec::new();
    let row = row_of(name);
    if row.is_none() && !BESIDE.contains(&name) {
        let problem = format!("crate {name} has no row in the table of layers");
        findings.push(finding(1, problem, "give it a row in crates/tools/style/src/layers.rs"));
    }
    let group =
        GROUPS.iter().find(|one| one.name == group).filter(|group| group.crates.contains(&name));
    if group.is_none() {
        let problem = format!("{folder} is not among the groups");
        findings.push(finding(1, problem, "give it a group in crates/tools/style/src/layers.rs"));
    }
    if !manifest.get("lints").is_some_and(is_workspace) {
        let remedy = "add `[lints]` and `workspace = true`";
        findings.push(finding(1, "the workspace's lints are not on".to_owned(), remedy));
    }
    for (dependency, spec) in dependencies(&manifest) {
        let line = line_of(text, dependency);
        if !is_workspace(spec) {
            let problem = format!("{dependency} has a version or path of its own");
            findings.push(finding(
                line,
                problem,
                "name it in the root Cargo.toml, here `workspace = true`",
            ));
        }
        let Some(ours) = dependency.strip_prefix(PREFIX) else { continue };
        if row.is_none() || row_of(ours).is_none() {
            let problem = format!("{name} uses {ours}, and one of the two is outside the layers");
            findings.push(finding(line, problem, "drop the dependency"));
        } else if row_of(ours) >= row {
            let problem = format!("an arrow upwards (or across): {name} uses {ours}");
            findings.push(finding(line, problem, "move what is needed into a lower crate"));
        }
        let theirs = GROUPS.iter().find(|one| one.crates.contains(&ours));
        if let (Some(group), Some(theirs)) = (group, theirs)
            && group.name != theirs.name
            && !group.uses.contains(&theirs.name)
        {
            let problem = format!(
                "an arrow between groups: {name} of {} uses {ours} of {}",
                group.name, theirs.name
            );
            findings.push(finding(
                line,
                problem,
                "move what is needed into a group that both may use",
            ));
        }
    }
    findings
}

fn row_of(name: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&name))
}

/// Returns all dependencies of the crate, its tests and its build script, on every target.
fn dependencies(manifest: &Table) -> Vec<(&String, &Value)> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let tables = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    std::iter::once(manifest)
        .chain(tables)
        .flat_map(|table| {
            ["dependencies", "dev-dependencies", "build-dependencies"]
                .into_iter()
                .filter_map(|kind| table.get(kind).and_then(Value::as_table))
                .flatten()
        })
        .collect()
}

fn is_workspace(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}

fn line_of(text: &str, word: &str) -> usize {
    text.lines().position(|line| line.starts_with(word)).map_or(1, |at| at + 1)
}
