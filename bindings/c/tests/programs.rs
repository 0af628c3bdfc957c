//! Uses the library from programs in C and C++: builds them against the header, links and runs
//! them.

use sprat_testing::skip;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Libraries that a static library of Rust requires.
const STATIC_NEEDS: &[&str] = &["-lpthread", "-ldl", "-lm"];
const WARNINGS: &[&str] = &["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

#[test]
fn what_the_header_promises_holds_for_c() {
    let Some(built) = build(
        "CC",
        "cc",
        &["-std=c11", "-D_POSIX_C_SOURCE=200809L"],
        "tests/calls.c",
        Link::Shared,
    ) else {
        return;
    };
    all_hold(&built.run());
}

#[test]
fn and_for_cpp_with_the_static_library() {
    let Some(built) =
        build("CXX", "c++", &["-std=c++11", "-x", "c++"], "tests/calls.c", Link::Static)
    else {
        return;
    };
    all_hold(&built.run());
}

#[test]
fn the_example_keeps_energy_and_momentum() {
    let Some(built) = build("CC", "cc", &["-std=c11"], "examples/gravity.c", Link::Shared) else {
        return;
    };
    let output = built.run();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let told = |when: &str| -> Vec<f64> {
        let line = said
            .lines()
            .find_map(|line| line.strip_prefix(when))
            .unwrap_or_else(|| panic!("{when}: {said}"));
        line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect()
    };
    let (before, after) = (told("before:"), told("after:"));
    let ([kinetic, all, momentum @ ..], [later, still, after @ ..]) = (&before[..], &after[..])
    else {
        panic!("{said}")
    };
    assert!(*all < -0.1 && *kinetic == 0.0 && *later > 0.01, "they are bound, and fall: {said}");
    assert!((all - still).abs() < 1e-5, "energy stays: {said}");
    assert_eq!((momentum, after.len()), (&[0.0; 3][..], 3), "{said}");
    assert!(after.iter().all(|along| along.abs() < 1e-12), "momentum stays: {said}");
}

#[test]
fn the_header_names_what_the_library_has_and_nothing_else() {
    let library = beside("libsprat_c.so");
    let names = match Command::new("nm").args(["-D", "--defined-only", "-P"]).arg(&library).output()
    {
        Ok(output) if output.status.success() => text(&output.stdout),
        _ => return skip("symbols of the library for C: there is no nm here"),
    };
    let has: BTreeSet<_> =
        names.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    let header = std::fs::read_to_string(here().join("include/sprat_grape.h")).unwrap();
    let mut declared = BTreeSet::new();
    for line in header
        .lines()
        .filter(|line| line.contains('(') && line.starts_with(|first: char| first.is_alphabetic()))
    {
        let before = line.split('(').next().unwrap();
        declared.insert(before.rsplit([' ', '*']).next().unwrap().to_owned());
    }
    assert!(declared.len() > 10, "{declared:?}");
    assert_eq!(declared, has);
}

/// The form of the library that a program links.
#[derive(Clone, Copy)]
enum Link {
    Shared,
    Static,
}

struct Built {
    folder: tempfile::TempDir,
}

impl Built {
    fn run(&self) -> Output {
        Command::new(self.folder.path().join("program")).output().unwrap()
    }
}

/// Builds a program without a warning. If there is no compiler, returns `None` and prints why.
fn build(variable: &str, usual: &str, flags: &[&str], source: &str, link: Link) -> Option<Built> {
    let compiler = std::env::var_os(variable).unwrap_or_else(|| usual.into());
    if !Command::new(&compiler)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
    {
        skip(&format!("the library for C: there is no {} here", compiler.display()));
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(&compiler);
    command.args(flags).args(WARNINGS).arg("-O1").arg(here().join(source));
    command.arg("-I").arg(here().join("include")).arg("-o").arg(folder.path().join("program"));
    // A linker that finds both forms takes the shared one, so each form is given by its path.
    // `-x none` ends the option for sources.
    command.args(["-x", "none"]);
    match link {
        Link::Shared => {
            let library = beside("libsprat_c.so");
            command
                .arg(format!("-Wl,-rpath,{}", library.parent().unwrap().display()))
                .arg(library)
                .arg("-pthread");
        }
        Link::Static => {
            command.arg(beside("libsprat_c.a")).args(STATIC_NEEDS);
        }
    }
    let output = command.arg("-lm").output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", text(&output.stderr));
    Some(Built { folder })
}

fn all_hold(output: &Output) {
    let said = text(&output.stdout);
    assert!(output.status.success(), "{:?}\n{said}{}", output.status, text(&output.stderr));
    let checks = said.lines().last().and_then(|line| line.strip_suffix(" checks, 0 wrong"));
    assert!(checks.is_some_and(|checks| checks.parse::<u32>().unwrap() > 100), "{said}");
    assert_eq!(text(&output.stderr), "", "a library does not talk to the terminal");
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the path of a library. Cargo builds a package's libraries before its tests, and puts
/// them next to the test programs.
fn beside(library: &str) -> PathBuf {
    let path = std::env::current_exe().unwrap().with_file_name(library);
    assert!(path.exists(), "{} was not built", path.display());
    path
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
