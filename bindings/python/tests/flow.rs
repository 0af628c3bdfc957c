//! The package as Python meets it: the extension that was built beside this test, in a package made of it, against real servers.

use sprat_flow::share::{Options, Pace, Share, Tokens};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of the file that is served.
const BYTES: usize = (24 << 20) + 77;

fn share(directory: &Path, change: impl FnOnce(&mut Options)) -> Share {
    let mut options = Options::new(directory.to_owned(), vec!["127.0.0.1:0".parse().unwrap()]);
    change(&mut options);
    Share::start(options).unwrap()
}

/// The extension: cargo builds a package's library before its tests, and puts it beside them.
fn extension() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("lib_sprat.so")
}

#[test]
fn python_copies_as_its_own_tests_say() {
    let python = std::env::var_os("SPRAT_PYTHON").unwrap_or_else(|| "python3".into());
    if !Command::new(&python).arg("--version").output().is_ok_and(|output| output.status.success()) {
        return skip("sprat for Python: there is no python3 here");
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = tempfile::tempdir().unwrap();
    let package = place.path().join("sprat");
    fs::create_dir(&package).unwrap();
    for entry in fs::read_dir(here.join("python/sprat")).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), package.join(entry.file_name())).unwrap();
        }
    }
    let built = extension();
    fs::copy(&built, package.join("_sprat.abi3.so")).unwrap_or_else(|error| panic!("{}: {error}", built.display()));
    let source = tempfile::tempdir().unwrap();
    let mut content = vec![0; BYTES];
    content.chunks_mut(4).enumerate().for_each(|(at, word)| word.copy_from_slice(&at.to_le_bytes()[..word.len()]));
    fs::write(source.path().join("file"), &content).unwrap();
    fs::write(source.path().join("tokens"), "not-to-be-guessed-0123456789\n").unwrap();
    let first = share(source.path(), |_| {});
    let second = share(source.path(), |_| {});
    let slow = share(source.path(), |options| options.pace = Pace::Limit(4_000_000));
    let closed = share(source.path(), |options| options.tokens = Tokens::read(&source.path().join("tokens")).unwrap());
    let url = |share: &Share| format!("sprat://{}/file", share.addresses()[0]);
    let mut command = Command::new(python);
    fs::copy(here.join("tests/test_flow.py"), place.path().join("test_flow.py")).unwrap();
    command.args(["-B", "-W", "error", "-m", "unittest", "-v", "test_flow"]);
    command.env("PYTHONPATH", place.path()).env("SPRAT_TEST_SOURCE", source.path().join("file"));
    command.env("SPRAT_TEST_URL", url(&first)).env("SPRAT_TEST_SECOND", second.addresses()[0].to_string());
    command.env("SPRAT_TEST_SLOW", url(&slow)).env("SPRAT_TEST_CLOSED", url(&closed));
    let output = command.current_dir(place.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("Ran 9 tests") && said.contains("\nOK"), "all of them, and none skipped: {said}");
}

fn skip(why: &str) {
    eprintln!("SKIPPED: {why}");
    if let Some(path) = std::env::var_os("SPRAT_SKIPS") {
        let mut file = fs::File::options().append(true).create(true).open(path).unwrap();
        writeln!(file, "{why}").unwrap();
    }
}
