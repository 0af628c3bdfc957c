//! Runs the repository's rules over this workspace.

use std::sync::LazyLock;

use sprat_style::{
    Finding, banned, documented, layers, length, mentions, names, offered, source, tree, unsafety,
    width,
};

struct House {
    root: std::path::PathBuf,
    files: Vec<String>,
    sources: Vec<source::Source>,
    not_rust: Vec<Finding>,
}

/// The workspace, read and parsed once for all tests.
static HOUSE: LazyLock<House> = LazyLock::new(|| {
    let root = tree::root();
    let files = tree::files(&root);
    let (sources, not_rust) = tree::sources(&root, &files);
    House { root, files, sources, not_rust }
});

impl House {
    fn read(&self, path: &str) -> String {
        tree::read(&self.root, path)
    }

    /// Returns the folders of the crates, below `crates`.
    fn crates(&self) -> Vec<String> {
        let manifests = self.files.iter().filter_map(|path| path.strip_suffix("/Cargo.toml"));
        manifests.filter_map(|path| path.strip_prefix("crates/")).map(str::to_owned).collect()
    }

    fn pages(&self) -> impl Iterator<Item = &String> {
        self.files.iter().filter(|path| path.ends_with(".md"))
    }
}

#[track_caller]
fn none(findings: Vec<Finding>) {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(
        findings.is_empty(),
        "{} against the rules of the house:\n{}",
        lines.len(),
        lines.join("\n")
    );
}

#[test]
fn the_house_is_seen() {
    let house = &*HOUSE;
    assert!(
        house.sources.len() > 50,
        "{} Rust files found: is the root right?",
        house.sources.len()
    );
    none(house.not_rust.clone());
}

#[test]
fn files_are_short() {
    none(length::check(&HOUSE.sources));
}

#[test]
fn lines_are_narrow() {
    none(HOUSE.sources.iter().flat_map(width::check).collect());
}

#[test]
fn public_types_have_names_of_their_own() {
    none(names::check(&HOUSE.sources, names::SHARED));
}

#[test]
fn no_documentation_begins_with_a_riddle() {
    none(HOUSE.sources.iter().flat_map(documented::check_openings).collect());
}

#[test]
fn no_banned_calls() {
    none(HOUSE.sources.iter().flat_map(banned::check).collect());
}

#[test]
fn unsafe_stands_only_where_it_may() {
    let house = &*HOUSE;
    none(
        house.sources.iter().flat_map(|source| unsafety::check(source, unsafety::PLACES)).collect(),
    );
    none(unsafety::check_places(unsafety::PLACES, &house.sources, &house.read("ARCHITECTURE.md")));
}

#[test]
fn every_crate_is_documented() {
    let house = &*HOUSE;
    none(house.sources.iter().flat_map(documented::check_head).collect());
    let folders: Vec<_> = house.crates().iter().map(|folder| format!("crates/{folder}")).collect();
    let readme = |folder: &String| {
        let path = format!("{folder}/README.md");
        let text = house.files.contains(&path).then(|| house.read(&path));
        documented::check_readme(folder, text.as_deref())
    };
    none(folders.iter().flat_map(readme).collect());
    none(documented::check_map(&folders, &house.read("ARCHITECTURE.md")));
}

#[test]
fn no_arrow_upwards() {
    let house = &*HOUSE;
    let check = |folder: &String| {
        layers::check(folder, &house.read(&format!("crates/{folder}/Cargo.toml")))
    };
    none(house.crates().iter().flat_map(check).collect());
}

#[test]
fn pages_speak_of_what_exists() {
    let house = &*HOUSE;
    let exists = |path: &str| house.root.join(path).exists();
    let check = |page: &String| mentions::check_page(page, &house.read(page), &exists);
    none(house.pages().flat_map(check).collect());
}

#[test]
fn every_offered_target_is_run() {
    none(offered::check(&HOUSE.read("Makefile"), &HOUSE.read("scripts/test-all")));
}

#[test]
fn tests_that_targets_and_scripts_name_exist() {
    let house = &*HOUSE;
    let files =
        house.files.iter().filter(|path| *path == "Makefile" || path.starts_with("scripts/"));
    let check = |path: &String| offered::check_filters(path, &house.read(path), &house.sources);
    none(files.flat_map(check).collect());
}

#[test]
fn nothing_foreign_is_mentioned() {
    let house = &*HOUSE;
    let texts = house.files.iter().filter_map(|path| {
        let text = std::fs::read_to_string(house.root.join(path)).ok()?;
        Some((path, text))
    });
    none(texts.flat_map(|(path, text)| mentions::check_foreign(path, &text)).collect());
}
