//! `sprat grape` on files as NumPy writes them: engines agree, what is wrong is told, bodies are followed.

mod support;

use serde_json::Value;
use std::fs;
use std::process::Stdio;
use support::{Ran, run, save, sprat};
use tempfile::TempDir;

const KERNEL: &str = "VARI xi; VARJ xj, mj; VARF sum, near; CONST e = 1
sum += mj * (xj - xi) / ((xj - xi) * (xj - xi) + e)
near argmin= select(xi == xj, inf, (xj - xi) * (xj - xi))
";

/// A folder with a kernel, `i.npy` of 100 i, and `j.npy` of 70 j.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let numbers = |count: u32| (0..count).map(|at| f64::from(at * 37 % 101) / 10.0).collect::<Vec<_>>();
    save(&folder.path().join("i.npy"), 1, &numbers(100));
    save(&folder.path().join("j.npy"), 2, &numbers(140));
    fs::write(folder.path().join("k.kernel"), KERNEL).unwrap();
    folder
}

/// Runs with the words' files in a folder.
fn within(folder: &TempDir, line: &str) -> Ran {
    let path = |word: &str| match word.contains(".npy") || word.contains(".kernel") || word.contains(".svg") {
        true => folder.path().join(word).to_str().unwrap().to_owned(),
        false => word.to_owned(),
    };
    let words: Vec<String> = line.split(' ').map(path).collect();
    run(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn results(folder: &TempDir, flags: &str) -> (Vec<f64>, Vec<i64>) {
    let told: Value = serde_json::from_str(within(folder, flags).ok()).unwrap();
    let all = |name: &str| told["results"][name].as_array().unwrap().clone();
    let sums = all("sum").iter().map(|number| number.as_f64().unwrap()).collect();
    (sums, all("near").iter().map(|place| place.as_i64().unwrap()).collect())
}

#[test]
fn engines_agree() {
    let folder = folder();
    let line = "grape run k.kernel --precision f64 --const e=0.5 --json --i i.npy --j j.npy";
    let (judge, places) = results(&folder, &format!("{line} --engine reference"));
    assert_eq!((judge.len(), places.len()), (100, 100));
    assert!(judge.iter().any(|sum| sum.abs() > 1.0), "there is something to compare");
    let sim = line.replace("grape run", "grape sim");
    let lines = [line.to_owned(), format!("{line} --target portable --threads 1"), format!("{line} --engine grapedr")];
    for line in lines.into_iter().chain([sim.clone(), format!("{sim} --chips 4 --clock 400MHz")]) {
        let (sums, found) = results(&folder, &line);
        let off = sums.iter().zip(&judge).map(|(sum, judge)| (sum - judge).abs()).fold(0.0, f64::max);
        assert!(off < 1e-11, "{line}: {off:e}");
        assert_eq!(found, places, "{line}");
    }
    // Another constant is another result: it arrives.
    let (other, _) = results(&folder, &line.replace("e=0.5", "e=2"));
    assert!(other.iter().zip(&judge).any(|(sum, judge)| (sum - judge).abs() > 0.1));
}

#[test]
fn results_are_arrays_again() {
    let folder = folder();
    within(&folder, "grape run k.kernel --i i.npy --j j.npy --out r.npy").ok();
    fs::write(folder.path().join("two.kernel"), "VARI a, b; VARF s; s += a * 0 + b").unwrap();
    let told = within(&folder, "grape run two.kernel --i r.npy --json");
    let told: Value = serde_json::from_str(told.ok()).unwrap();
    let (_, places) = results(&folder, "grape run k.kernel --i i.npy --j j.npy --json");
    let read = told["results"]["s"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap());
    assert_eq!(read.collect::<Vec<_>>(), places.iter().map(|place| *place as f64).collect::<Vec<_>>());
}

#[test]
fn what_is_wrong_is_told() {
    let folder = folder();
    fs::write(folder.path().join("bad.kernel"), "VARI x\nVARF f\nf += x * y\n").unwrap();
    save(&folder.path().join("nan.npy"), 7, &[f64::NAN; 14]);
    fs::write(folder.path().join("text.npy"), "no array").unwrap();
    let run = "grape run k.kernel --i i.npy --j j.npy";
    for (line, code, words) in [
        ("grape run none --i i.npy --j j.npy".to_owned(), 1, "no kernel \"none\""),
        ("grape run bad.kernel --i i.npy".to_owned(), 1, "line 3, column 10"),
        ("grape run k.kernel --i absent.npy --j j.npy".to_owned(), 1, "absent.npy: No such file"),
        ("grape run k.kernel --i text.npy --j j.npy".to_owned(), 1, "no array of NumPy's"),
        ("grape run k.kernel --i j.npy --j j.npy".to_owned(), 1, "2 i variables were given"),
        ("grape run k.kernel --i i.npy".to_owned(), 1, "needs --j FILE, with columns xj, mj"),
        (format!("{run} --const f=1"), 1, "no such constant; it has e"),
        (format!("{run} --const e=one"), 2, "is no number"),
        (format!("{run} --engine reference --threads 2"), 1, "--engine vector"),
        ("grape sim k.kernel --i i.npy --j j.npy --chips 5".to_owned(), 1, "a board has 1 to 4"),
        ("grape sim k.kernel --i i.npy --j j.npy --trace 100".to_owned(), 1, "there are 100 i"),
        ("grape sim k.kernel --i i.npy --j j.npy --clock fast".to_owned(), 2, "write 500MHz"),
        ("grape nbody --from nan.npy".to_owned(), 1, "mass of body 0 is NaN"),
        ("grape nbody --bodies 0".to_owned(), 1, "0 bodies"),
        ("grape nbody --bodies 8 --softening 0".to_owned(), 1, "a softening length of 0"),
        ("grape nbody --bodies 8 --until -1".to_owned(), 2, "unexpected argument"),
        ("grape nbody --bodies 8 --every 0".to_owned(), 1, "--every 0"),
        ("grape dgemm --size 0".to_owned(), 2, "from 1 to"),
        ("grape dgemm --on cpu --chips 2".to_owned(), 1, "--chips and --clock are of --on grapedr"),
        ("grape lu --threads 2".to_owned(), 1, "--threads is of --on cpu"),
    ] {
        let ran = within(&folder, &line);
        assert_eq!(ran.code, Some(code), "{line}: {ran:?}");
        assert!(ran.stderr.contains(words), "{line}: {}", ran.stderr);
    }
    // What is not a number goes through a kernel as its language says, and is told.
    fs::write(folder.path().join("sum.kernel"), "VARI a, b, c, d, e, f, g; VARF s; s += a+b+c+d+e+f+g").unwrap();
    let ran = within(&folder, "grape run sum.kernel --i nan.npy");
    ran.ok();
    assert!(ran.stderr.contains("2 results are not finite"), "{}", ran.stderr);
}

#[test]
fn bodies_keep_their_energy_and_go_on_from_a_snapshot() {
    let folder = folder();
    for scheme in ["hermite", "leapfrog --step 0.0005"] {
        let line = format!("grape nbody --bodies 64 --softening 0.05 --until 0.2 --every 0.1 --json --scheme {scheme}");
        let told = within(&folder, &format!("{line} --snapshots run.npy --picture p.svg"));
        let lines: Vec<Value> = told.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let times: Vec<_> = lines.iter().map(|line| line["time"].as_f64().unwrap()).collect();
        assert_eq!(times, [0.0, 0.1, 0.2]);
        let drift = lines[2]["drift"].as_f64().unwrap();
        assert!(drift != 0.0 && drift.abs() < 1e-5, "{scheme}: {drift:e}");
        assert!(fs::read_to_string(folder.path().join("p.svg")).unwrap().starts_with("<svg"));
        let on = within(&folder, "grape nbody --from run.npy/snapshot-0002.npy --softening 0.05 --until 0.01 --json");
        let first: Value = serde_json::from_str(on.ok().lines().next().unwrap()).unwrap();
        assert_eq!(first["energy"], lines[2]["energy"], "it begins where the other ended");
    }
}

#[test]
fn an_interrupted_run_leaves_a_snapshot() {
    let folder = folder();
    let mut command = sprat();
    command.args(["grape", "nbody", "--bodies", "256", "--until", "1000000", "--every", "100", "--json"]);
    command.arg("--snapshots").arg(folder.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The first line is told once signals are watched.
    let mut line = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("interrupted at time") && told.contains("snapshot-0001.npy"), "{told}");
    assert!(folder.path().join("snapshot-0001.npy").exists());
}

#[test]
fn matrices_are_right() {
    for line in ["grape dgemm --size 70 --json", "grape lu --size 100 --chips 2 --json"] {
        let told: Value = serde_json::from_str(run(&line.split(' ').collect::<Vec<_>>()).ok()).unwrap();
        assert_eq!(told["right"], true, "{told}");
        assert!(told["error"].as_f64().unwrap() > 0.0 && told["timing"]["loop_cycles"].as_u64().unwrap() > 0);
    }
    for line in ["grape dgemm --size 300 --on cpu --json", "grape lu --size 300 --on cpu --threads 2 --json"] {
        let told: Value = serde_json::from_str(run(&line.split(' ').collect::<Vec<_>>()).ok()).unwrap();
        assert_eq!((&told["right"], &told["rows"]), (&true.into(), &300.into()), "{told}");
        let error = told["error"].as_f64().unwrap();
        assert!(error > 0.0 && error < 1e-14 && told["gflops"].as_f64().unwrap() > 0.0, "{told}");
    }
    let told = run(&["grape", "dgemm", "--on", "cpu", "--size", "100"]);
    assert!(told.ok().contains("Gflop/s of this processor") && told.text().contains("C = A B to"), "{told:?}");
}

#[cfg(not(feature = "mpi"))]
#[test]
fn ranks_are_refused_where_they_cannot_speak() {
    let folder = folder();
    for line in ["run gravity --i i.npy --j j.npy", "nbody --bodies 8"] {
        let mut command = sprat();
        command.current_dir(folder.path()).arg("grape").args(line.split(' ')).env("OMPI_COMM_WORLD_SIZE", "2");
        let output = command.output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("mpirun started 2 of these") && told.contains("--features sprat-cli/mpi"), "{told}");
    }
    let alone = run(&["grape", "nbody", "--bodies", "8", "--until", "0.01"]);
    alone.ok();
}
