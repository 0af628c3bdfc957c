//! Runs kernels from Python, on NumPy's arrays.

mod support;

use std::path::Path;

#[test]
fn python_runs_kernels_as_its_own_tests_say() {
    let Some(package) = support::Package::with("test_grape") else { return };
    // `scripts/setup` puts NumPy there, next to cargo's build folders.
    let target = std::env::current_exe().unwrap();
    let numpy = target
        .ancestors()
        .nth(3)
        .map_or_else(Default::default, |target| target.join("tools/numpy"));
    let mut command = package.command();
    command.env(
        "PYTHONPATH",
        std::env::join_paths([package.place.path(), Path::new(&numpy)]).unwrap(),
    );
    let found = std::process::Command::new("python3")
        .args(["-c", "import numpy"])
        .env("PYTHONPATH", &numpy)
        .output();
    if !found.is_ok_and(|output| output.status.success()) {
        return support::skip("kernels in Python: NumPy is not here (scripts/setup fetches it)");
    }
    support::all_pass(&mut command, 15);
}
