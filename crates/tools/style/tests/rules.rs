//! Each rule fails on a snippet that breaks it, at the right line, and accepts a similar snippet.

use sprat_style::source::Source;
use sprat_style::unsafety::UnsafePlace;
use sprat_style::{
    Finding, banned, documented, layers, length, mentions, names, offered, unsafety, width,
};

fn source(path: &str, text: &str) -> Source {
    Source::parse(path, text).unwrap()
}

fn lines(findings: &[Finding]) -> Vec<usize> {
    findings.iter().map(|finding| finding.line).collect()
}

/// Returns the lines at which `text`, in the file `path`, has banned calls.
fn banned_at(path: &str, text: &str) -> Vec<usize> {
    lines(&banned::check(&source(path, text)))
}

#[test]
fn wide_lines_are_found() {
    let text = format!("fn f() {{}}\n// {}\n// {}\n", "x".repeat(97), "é".repeat(98));
    assert_eq!(lines(&width::check(&source("crates/base/net/src/a.rs", &text))), [3]);
}

#[test]
fn a_name_of_many_types_is_found_unless_it_is_shared() {
    let crates = ["base/net", "store/rpc", "store/log", "lab/lab"];
    let text = "pub struct Place;\n#[cfg(test)]\nmod tests { pub struct Seat; }\nenum Own {}";
    let sources = crates.map(|name| source(&format!("crates/{name}/src/a.rs"), text));
    let found = names::check(&sources, &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].problem.contains("Place"), "{}", found[0]);
    assert_eq!(names::check(&sources, &["Place"]), []);
    assert_eq!(names::check(&sources[..3], &[]), []);
}

#[test]
fn riddles_are_found_where_documentation_begins() {
    let lines_of_text = [
        "//! The same as before.",
        "",
        "/// Adds.",
        "/// The same for all.",
        "fn f() {}",
        "",
        "/// So does this.",
        "fn g() {}",
        "// The same.",
    ];
    let text = lines_of_text.join("\n");
    let found = documented::check_openings(&source("crates/base/net/src/a.rs", &text));
    assert_eq!(lines(&found), [1, 7]);
}

#[test]
fn unwrap_is_banned_but_in_tests_comments_and_strings() {
    let text = r#"
fn code() { x.unwrap(); y.unwrap_or(1); }
/// z.unwrap()
fn more() { let _ = "a.unwrap()"; } // b.unwrap()
#[cfg(test)]
mod tests { fn helper() { x.unwrap(); } }
fn after() { x
    .unwrap(); }
#[test]
fn test() -> [u8; 2] { x.unwrap() }
#[cfg(not(test))]
fn shipped() { x.unwrap() }
#[cfg(test)]
use a::b;
fn last() { x.unwrap() }
"#;
    assert_eq!(banned_at("crates/store/store/src/a.rs", text), [2, 8, 12, 15]);
    assert_eq!(banned_at("crates/store/store/tests/a.rs", text), []);
    assert_eq!(banned_at("crates/store/store/src/a/tests.rs", text), []);
    assert_eq!(
        banned_at("crates/store/store/src/a.rs", "#![cfg(test)]\nfn f() { x.unwrap(); }"),
        []
    );
}

#[test]
fn every_ban_bites_where_it_should() {
    let cases = [
        ("crates/store/store/src/a.rs", "fn f() { println!(\"\"); }", true),
        ("crates/store/store/src/a.rs", "fn f() { eprint!(\"\"); }", true),
        ("crates/tools/cli/src/a.rs", "fn f() { println!(\"\"); }", false),
        ("crates/tools/bench/src/a.rs", "fn f() { eprintln!(\"\"); }", false),
        ("crates/base/net/src/a.rs", "fn f() { std::thread::sleep(d); }", true),
        ("crates/tools/cli/src/a.rs", "fn f() { std::thread::sleep(d); }", false),
        ("crates/tools/cli/src/a.rs", "fn f() { std::process::exit(1); }", true),
        ("crates/tools/cli/src/main.rs", "fn f() { std::process::exit(1); }", false),
        ("crates/store/rpc/src/a.rs", "fn f() { Instant::now(); }", true),
        ("crates/base/net/src/a.rs", "fn f() { Instant::now(); }", false),
        ("crates/store/log/src/a.rs", "use std::time::SystemTime;", true),
        ("crates/store/wire/src/a.rs", "fn f() { std::thread::spawn(g); }", true),
        ("crates/store/rpc/src/a.rs", "use std::collections::hash_map::RandomState;", true),
        (
            "crates/store/wire/src/a.rs",
            "#[expect(clippy::cast_sign_loss, reason = \"\")] fn f() {}",
            true,
        ),
        (
            "crates/store/log/src/a.rs",
            "#[expect(clippy::cast_sign_loss, reason = \"\")] fn f() {}",
            false,
        ),
        ("crates/store/log/src/a.rs", "#[allow(dead_code)] fn f() {}", true),
        ("crates/store/log/src/a.rs", "#![allow(unsafe_code)]", false),
        ("crates/store/log/src/a.rs", "fn f() { x.expect(\"[expect(\"); }", false),
    ];
    for (path, text, bites) in cases {
        assert_eq!(!banned_at(path, text).is_empty(), bites, "{path}: {text}");
    }
}

#[test]
fn a_finding_shows_file_line_reason_and_remedy() {
    let found = banned::check(&source("crates/store/rpc/src/a.rs", "\nfn f() { x.unwrap() }"));
    let text = found[0].to_string();
    assert!(text.starts_with("crates/store/rpc/src/a.rs:2: `.unwrap()`: "), "{text}");
    assert!(text.contains("mend: return a typed error"), "{text}");
}

#[test]
fn a_file_that_is_not_rust_is_named() {
    let finding = Source::parse("crates/store/log/src/a.rs", "fn f() {\n  \"open\n").unwrap_err();
    assert_eq!(finding.file, "crates/store/log/src/a.rs");
}

#[test]
fn long_files_and_long_medians_are_found() {
    let file = |path: &str, lines| source(path, &"//\n".repeat(lines));
    assert!(
        length::check(&[file("crates/a/tests/x.rs", 900), file("crates/a/src/x.rs", 300)])
            .is_empty()
    );
    assert_eq!(lines(&length::check(&[file("crates/a/tests/x.rs", 901)])), [901]);
    let found = length::check(&[
        file("crates/a/src/x.rs", 10),
        file("crates/a/src/y.rs", 301),
        file("crates/a/src/z.rs", 400),
    ]);
    assert_eq!(found[0].file, "crates/a/src");
}

#[test]
fn unsafe_is_found_outside_its_places() {
    let places = [
        UnsafePlace { path: "crates/store/log/src/arena.rs", reason: "" },
        UnsafePlace { path: "crates/base/net/src/dpdk/", reason: "" },
    ];
    let check = |path: &str, text: &str| lines(&unsafety::check(&source(path, text), &places));
    let text = "// unsafe\nfn f() { unsafe { g() } }\n#[unsafe(no_mangle)] fn h() {}";
    assert_eq!(check("crates/store/log/src/log.rs", text), [2, 3]);
    assert_eq!(check("crates/store/log/src/arena.rs", text), []);
    assert_eq!(check("crates/base/net/src/dpdk/port.rs", text), []);
    assert_eq!(check("crates/store/log/src/log.rs", "#![deny(unsafe_code)]"), []);
}

#[test]
fn stale_and_undocumented_places_are_found() {
    let places = [UnsafePlace { path: "crates/store/log/src/arena.rs", reason: "" }];
    let used = [source("crates/store/log/src/arena.rs", "fn f() { unsafe { g() } }")];
    assert!(
        unsafety::check_places(&places, &used, "see `crates/store/log/src/arena.rs`").is_empty()
    );
    assert_eq!(unsafety::check_places(&places, &used, "").len(), 1);
    assert_eq!(
        unsafety::check_places(&places, &[], "see `crates/store/log/src/arena.rs`").len(),
        1
    );
}

#[test]
fn arrows_upwards_and_across_are_found() {
    let manifest = |table: &str, uses: &str| {
        format!("[lints]\nworkspace = true\n[{table}]\n{uses}.workspace = true\n")
    };
    let check =
        |name: &str, table: &str, uses: &str| lines(&layers::check(name, &manifest(table, uses)));
    assert_eq!(check("store/rpc", "dependencies", "sprat-net"), []);
    assert_eq!(check("store/rpc", "dependencies", "sprat-log"), [4]);
    assert_eq!(check("store/rpc", "dependencies", "sprat-store"), [4]);
    assert_eq!(check("store/log", "dev-dependencies", "sprat-sim"), [4]);
    assert_eq!(check("store/log", "target.'cfg(unix)'.build-dependencies", "sprat-sim"), [4]);
    assert_eq!(check("tools/cli", "dependencies", "sprat-style"), [4]);
    assert_eq!(check("tools/style", "dependencies", "sprat-wire"), [4]);
    assert_eq!(
        check("store/attic", "dependencies", "toml").len(),
        2,
        "a crate without a place and a group"
    );
    assert_eq!(check("base/rpc", "dependencies", "sprat-net").len(), 1, "it is of another group");
    assert_eq!(check("lab/lab", "dependencies", "sprat-pace"), [4], "a group uses one beside it");
    assert_eq!(layers::check("store/wire", "[dependencies]\n").len(), 1, "no lints");
    assert_eq!(
        layers::check("store/wire", "[lints]\nworkspace = true\n[dependencies]\ntoml = \"1\"\n")
            .len(),
        1
    );
    assert_eq!(layers::check("store/wire", "[").len(), 1, "no TOML");
}

#[test]
fn files_without_a_head_and_crates_without_a_paragraph_are_found() {
    let head = |path: &str, text: &str| documented::check_head(&source(path, text)).len();
    assert_eq!(head("crates/store/log/src/lib.rs", "//! The log.\n"), 0);
    assert_eq!(head("crates/store/log/src/lib.rs", "// The log.\n"), 1);
    assert_eq!(head("crates/store/log/src/a.rs", "\n//! Late.\n"), 1);
    assert_eq!(head("crates/store/log/tests/a.rs", ""), 0);

    let readme = |text: Option<&str>| lines(&documented::check_readme("crates/store/log", text));
    let paragraph = "It keeps objects. ".repeat(10);
    assert_eq!(readme(Some(&format!("# sprat-log\n\n{paragraph}\n"))), []);
    assert_eq!(readme(Some(&format!("# log\n\n{paragraph}\n"))), [1]);
    assert_eq!(readme(Some("# sprat-log\n\nA log.\n\n## More\n")), [3]);
    assert_eq!(readme(None), [1]);

    let map = |text: &str| lines(&documented::check_map(&["crates/store/log".to_owned()], text));
    assert_eq!(map("the [log](crates/store/log/README.md)"), []);
    assert_eq!(map("the log, `crates/store/log`"), [1]);
}

#[test]
fn links_and_paths_that_lead_nowhere_are_found() {
    let text = "[a](../README.md#x) [b](gone.md) [c](#here) [d](https://example.net/e.md)\n\
                `crates/store/log` `crates/gone/src` `make test` `docs/*.md`\n\
                ```\n`docs/gone.md`\n```\n`GONE.md`";
    let exists = |path: &str| ["README.md", "crates/store/log"].contains(&path);
    let found = mentions::check_page("docs/store.md", text, &exists);
    assert_eq!(lines(&found), [1, 2, 6]);
    assert!(found[0].problem.contains("docs/gone.md"), "{}", found[0]);
}

#[test]
fn foreign_words_are_found_in_any_file_but_generated_ones() {
    for (first, second) in mentions::FOREIGN {
        let text = format!("fine\nsee {first}{second} for it\n");
        assert_eq!(lines(&mentions::check_foreign("scripts/setup", &text)), [2]);
        assert_eq!(mentions::check_foreign("Cargo.lock", &text), []);
    }
}

#[test]
fn targets_that_no_script_runs_are_found() {
    let makefile =
        "help: ## lists\nall: build\nbuild: setup ## builds\nbench-x: build ## measures\n";
    let findings = offered::check(makefile, "all=(\n  \"build FAST=yes\"\n  \"gone\"\n)\n");
    let places: Vec<(&str, usize)> =
        findings.iter().map(|one| (one.file.as_str(), one.line)).collect();
    assert_eq!(places, [("Makefile", 4), ("scripts/test-all", 3)]);
    assert_eq!(offered::check(makefile, "  \"build\"\n  \"bench-x\"\n"), []);
}

#[test]
fn filters_that_match_no_test_are_found() {
    let source = |path, text| Source::parse(path, text).expect("Rust");
    let sources = [
        source("crates/a/b/tests/cp.rs", "fn the_file_is_exact() {}"),
        source("crates/a/b/tests/share/mod.rs", "fn a_file_is_served() {}"),
        source("crates/a/b/src/gone.rs", "fn a_file() {}"),
    ];
    let script = "cargo test cp:: cp::the_file\necho gone::a_file\ncargo test share::a_file \
                  cp::whichever_end gone::a_file";
    let found = offered::check_filters("Makefile", script, &sources);
    let problems: Vec<&str> = found.iter().map(|one| one.problem.as_str()).collect();
    assert_eq!(problems, ["no test is called cp::whichever_end", "no test is called gone::a_file"]);
    assert_eq!(lines(&found), [3, 3]);
}
