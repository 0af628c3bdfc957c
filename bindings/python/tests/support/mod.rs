//! Makes a Python package from the extension, which cargo built next to the test.

pub(crate) use sprat_testing::skip;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Python, and a folder with the package and a test.
pub(crate) struct Package {
    pub(crate) place: tempfile::TempDir,
    python: std::ffi::OsString,
    test: &'static str,
}

impl Package {
    /// Makes a package with this Python test. If there is no Python, returns `None` and prints why.
    pub(crate) fn with(test: &'static str) -> Option<Self> {
        let python = std::env::var_os("SPRAT_PYTHON").unwrap_or_else(|| "python3".into());
        if !Command::new(&python)
            .arg("--version")
            .output()
            .is_ok_and(|output| output.status.success())
        {
            skip("sprat for Python: there is no python3 here");
            return None;
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
        fs::copy(&built, package.join("_sprat.abi3.so"))
            .unwrap_or_else(|error| panic!("{}: {error}", built.display()));
        let file = format!("{test}.py");
        fs::copy(here.join("tests").join(&file), place.path().join(&file)).unwrap();
        Some(Self { place, python, test })
    }

    /// Returns the command that runs the test.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.python);
        command.args(["-B", "-W", "error", "-m", "unittest", "-v", self.test]);
        command.env("PYTHONPATH", self.place.path()).current_dir(self.place.path());
        command
    }
}

/// Runs a test that has `parts` parts. All parts must pass, and none may be skipped.
pub(crate) fn all_pass(command: &mut Command, parts: usize) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains(&format!("Ran {parts} tests")) && said.contains("\nOK"),
        "all of them, and none skipped: {said}"
    );
}

/// Returns the path of the extension. Cargo builds a package's library before its tests, and puts
/// it next to them.
fn extension() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("lib_sprat.so")
}
