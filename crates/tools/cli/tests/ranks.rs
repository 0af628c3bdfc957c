//! Tests that ranks started by `mpirun` compute what one process computes, and end together.
#![cfg(feature = "mpi")]

use crate::support;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use support::{CommandResult, save, skip, sprat};
use tempfile::TempDir;

/// Seconds after which ranks count as hanging, and are killed.
const PATIENCE: &str = "120";

/// A kernel with all reductions.
const KERNEL: &str =
    "VARI xi, yi; VARJ xj, mj; VARF sum, least, most, near, far, all, any; CONST e = 1
sum += mj * (xj - xi) / ((xj - xi) * (xj - xi) + e)
least min= abs(xj - yi); most max= mj * xi
near argmin= abs(xj - yi); far argmax= abs(xj - yi)
all and= xj > yi - 9; any or= xj == yi
";

/// Settings of Open MPI for this machine alone, for any user and any number of cores.
const MPI: [(&str, &str); 9] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_btl", "self,vader"),
    ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
    ("OMPI_MCA_hwloc_base_binding_policy", "none"),
    ("OMPI_MCA_mpi_yield_when_idle", "1"),
    ("OMPI_MCA_oob_tcp_if_include", "lo"),
    ("OMPI_MCA_plm", "isolated"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
];

/// Runs a command in a folder.
fn ran(folder: &TempDir, command: &mut Command) -> CommandResult {
    let output = command.current_dir(folder.path()).envs(MPI).output().expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    CommandResult { code: output.status.code(), stdout: output.stdout, stderr }
}

/// Runs a command line on `count` ranks; parts separated by colons run on one rank each. If `count`
/// is 1, runs one process without mpirun.
fn on(folder: &TempDir, count: usize, line: &str) -> CommandResult {
    if count == 1 {
        return ran(folder, sprat().args(line.split(' ')));
    }
    let mut command = Command::new("timeout");
    // If several runs create their common folder at once, all but one of them fail.
    command.env("OMPI_MCA_orte_tmpdir_base", folder.path());
    command.args(["--kill-after=10", PATIENCE, "mpirun"]).env("NO_COLOR", "1");
    let parts: Vec<&str> = line.split(" : ").collect();
    let each = (count / parts.len()).to_string();
    for part in parts {
        command.args(["-n", &each, env!("CARGO_BIN_EXE_sprat")]).args(part.split(' ')).arg(":");
    }
    ran(folder, &mut command)
}

fn here() -> bool {
    let here = Command::new("mpirun")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    if !here {
        skip("ranks that speak by MPI: there is no mpirun");
    }
    here
}

/// Makes a folder with a kernel, `i.npy` with 100 i, `j.npy` with 2000 j, and `few.npy` with 2 i.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let numbers =
        |count: u32| (0..count).map(|at| f64::from(at * 377 % 1013) / 10.0).collect::<Vec<_>>();
    let save = |name: &str, numbers: &[f64]| save(&folder.path().join(name), 2, numbers);
    save("i.npy", &numbers(200));
    save("few.npy", &numbers(4));
    save("j.npy", &numbers(4000));
    fs::write(folder.path().join("k.kernel"), KERNEL).unwrap();
    folder
}

fn bytes(folder: &TempDir, name: &str) -> Vec<u8> {
    fs::read(folder.path().join(name)).unwrap()
}

fn results(folder: &TempDir, count: usize, line: &str) -> Value {
    let report: Value = serde_json::from_str(on(folder, count, line).ok()).unwrap();
    assert_eq!(report["ranks"], count, "{line}");
    report["results"].clone()
}

#[test]
fn divided_i_give_the_bits_of_one_process() {
    if !here() {
        return;
    }
    let folder = folder();
    fs::write(folder.path().join("j.kernel"), "VARJ x, m; VARF s; s += x * m").unwrap();
    for line in [
        "grape run k.kernel --i i.npy --j j.npy",
        "grape run k.kernel --i i.npy --j j.npy --precision f64 --threads 2",
        "grape run k.kernel --i few.npy --j j.npy --precision f64 --target portable",
        "grape run k.kernel --i i.npy --j j.npy --engine reference --const e=2",
        "grape run j.kernel --j j.npy --precision f64",
    ] {
        on(&folder, 1, &format!("{line} --out one.npy")).ok();
        for count in [2, 3] {
            let ran = on(&folder, count, &format!("{line} --out {count}.npy"));
            ran.ok();
            assert!(ran.stderr.contains(&format!(" {count} ranks")), "{}", ran.stderr);
            assert!(
                bytes(&folder, "one.npy") == bytes(&folder, &format!("{count}.npy")),
                "{line}: {count}"
            );
        }
    }
}

#[test]
fn divided_j_differ_only_by_the_order_of_sums() {
    if !here() {
        return;
    }
    let folder = folder();
    for (flags, tolerance) in [
        ("--precision f64", 1e-14),
        ("--precision f32", 1e-5),
        ("--precision f64 --engine reference", 1e-14),
        ("--precision f64 --engine grapedr", 1e-14),
    ] {
        let line = format!("grape run k.kernel --i few.npy --j j.npy --json {flags}");
        let one = results(&folder, 1, &line);
        for count in [2, 3] {
            let several = results(&folder, count, &format!("{line} --divide j"));
            for name in ["least", "most", "near", "far", "all", "any"] {
                assert_eq!(several[name], one[name], "{line}: {name} of {count}");
            }
            let sums = |of: &Value| {
                of["sum"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|sum| sum.as_f64().unwrap())
                    .collect::<Vec<_>>()
            };
            let (sums, judge) = (sums(&several), sums(&one));
            // Relative to the sum of 2000 numbers of at most 50 each.
            let near = |(a, b): (&f64, &f64)| (a - b).abs() <= tolerance * 1e5;
            assert!(
                sums.len() == 2 && sums.iter().zip(&judge).all(near),
                "{line}: {sums:?} {judge:?}"
            );
        }
    }
}

#[test]
fn bodies_are_the_same_bodies() {
    if !here() {
        return;
    }
    let folder = folder();
    for scheme in ["hermite", "leapfrog --step 0.01"] {
        let line = format!(
            "grape nbody --bodies 65 --softening 0.05 --until 0.1 --every 0.05 --json --scheme \
             {scheme}"
        );
        let lines_with = |count| {
            let ran = on(&folder, count, &format!("{line} --snapshots {count}"));
            let lines = ran.ok().lines().map(|line| serde_json::from_str(line).unwrap());
            lines
                .map(|line: Value| {
                    (line["time"].clone(), line["steps"].clone(), line["energy"].clone())
                })
                .collect::<Vec<_>>()
        };
        let one = lines_with(1);
        assert_eq!(one.len(), 3);
        for count in [2, 3] {
            assert_eq!(lines_with(count), one, "{scheme}: {count}");
            for at in 0..3 {
                let name = format!("snapshot-000{at}.npy");
                assert!(
                    bytes(&folder, &format!("{count}/{name}"))
                        == bytes(&folder, &format!("1/{name}")),
                    "{name}"
                );
            }
        }
    }
}

/// An error on any rank, at any step, ends all ranks and is reported once.
#[test]
fn an_error_ends_all_ranks_and_is_reported_once() {
    if !here() {
        return;
    }
    let folder = folder();
    let run = "grape run k.kernel --i i.npy --j j.npy";
    fs::write(folder.path().join("bad.kernel"), "VARI x\nVARF f\nf += x * y\n").unwrap();
    let mixed = |other: &str| format!("{run} --out r.npy : {run} {other}");
    for (line, code, words) in [
        ("grape run none --i i.npy --j j.npy".to_owned(), 1, "no kernel \"none\""),
        ("grape run bad.kernel --i i.npy".to_owned(), 1, "line 3, column 10"),
        (run.replace("i.npy", "absent.npy"), 1, "absent.npy: No such file"),
        (format!("{run} --const f=1"), 1, "no such constant"),
        (format!("{run} --out nowhere/r.npy"), 1, "nowhere/r.npy: No such file"),
        ("grape nbody --bodies 0".to_owned(), 1, "0 bodies"),
        ("grape nbody --bodies 8 --snapshots i.npy".to_owned(), 1, "rank 0: i.npy"),
        // Errors of the second rank alone, before or after it receives what the first rank has
        // read.
        (mixed("--engine reference --threads 2"), 1, "rank 1: --target and --threads"),
        (mixed("--const f=1"), 1, "rank 1: --const f"),
    ] {
        let ran = on(&folder, 2, &line);
        assert_eq!(ran.code, Some(code), "{line}: {ran:?}");
        assert_eq!(ran.stderr.matches("sprat: ").count(), 1, "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains(words), "{line}: {}", ran.stderr);
        assert!(
            ran.stdout.is_empty() && !Path::exists(&folder.path().join("r.npy")),
            "{line}: {ran:?}"
        );
    }
}
