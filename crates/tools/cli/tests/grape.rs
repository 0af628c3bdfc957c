//! Tests `sprat grape` on NumPy's files. Engines agree, errors are explained, and the orbits of
//! bodies are right.

use crate::support;
use serde_json::Value;
use std::fs;
use std::process::Stdio;
use support::{CommandResult, run, save, sprat};
use tempfile::TempDir;

const KERNEL: &str = "VARI xi; VARJ xj, mj; VARF sum, near; CONST e = 1
sum += mj * (xj - xi) / ((xj - xi) * (xj - xi) + e)
near argmin= select(xi == xj, inf, (xj - xi) * (xj - xi))
";

/// Makes a folder with a kernel, `i.npy` with 100 i, and `j.npy` with 70 j.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let numbers =
        |count: u32| (0..count).map(|at| f64::from(at * 37 % 101) / 10.0).collect::<Vec<_>>();
    save(&folder.path().join("i.npy"), 1, &numbers(100));
    save(&folder.path().join("j.npy"), 2, &numbers(140));
    fs::write(folder.path().join("k.kernel"), KERNEL).unwrap();
    folder
}

/// Runs a command line in a folder.
fn within(folder: &TempDir, line: &str) -> CommandResult {
    let path = |word: &str| match [".npy", ".kernel", ".svg", ".asm"]
        .iter()
        .any(|ending| word.contains(ending))
    {
        true => folder.path().join(word).to_str().unwrap().to_owned(),
        false => word.to_owned(),
    };
    let words: Vec<String> = line.split(' ').map(path).collect();
    run(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn results(folder: &TempDir, flags: &str) -> (Vec<f64>, Vec<i64>) {
    let report: Value = serde_json::from_str(within(folder, flags).ok()).unwrap();
    let all = |name: &str| report["results"][name].as_array().unwrap().clone();
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
    let lines = [
        line.to_owned(),
        format!("{line} --target portable --threads 1"),
        format!("{line} --engine grapedr"),
    ];
    for line in lines.into_iter().chain([sim.clone(), format!("{sim} --chips 4 --clock 400MHz")]) {
        let (sums, found) = results(&folder, &line);
        let off =
            sums.iter().zip(&judge).map(|(sum, judge)| (sum - judge).abs()).fold(0.0, f64::max);
        assert!(off < 1e-11, "{line}: {off:e}");
        assert_eq!(found, places, "{line}");
    }
    // Another constant gives another result.
    let (other, _) = results(&folder, &line.replace("e=0.5", "e=2"));
    assert!(other.iter().zip(&judge).any(|(sum, judge)| (sum - judge).abs() > 0.1));
}

/// Positions near 1e6 in files of float64. f32 distinguishes positions there only by a sixteenth.
#[test]
#[expect(clippy::cast_possible_truncation, reason = "what f32 has of a number")]
fn precision_is_that_of_the_files_unless_it_is_chosen() {
    let folder = folder();
    let far = |count: u32| {
        (0..count).map(|at| 1e6 + f64::from(at * 37 % 101) / 101.0).collect::<Vec<_>>()
    };
    save(&folder.path().join("i.npy"), 1, &far(100));
    save(&folder.path().join("x.npy"), 1, &far(70));
    fs::write(
        folder.path().join("k.kernel"),
        "VARI xi; VARJ xj; VARF sum, near; sum += xj - xi; near argmin= abs(xj - xi)",
    )
    .unwrap();
    // If all results are f32, the output is an array of float32.
    fs::write(folder.path().join("f32.kernel"), "VARI xi; VARF narrow; narrow += xi").unwrap();
    within(&folder, "grape run f32.kernel --i i.npy --precision f32 --out narrow.npy").ok();
    let results_of = |line: &str| results(&folder, &format!("{line} --json"));
    for command in ["run", "run --engine reference", "run --engine grapedr", "sim"] {
        let (sums, _) = results_of(&format!("grape {command} k.kernel --i i.npy --j x.npy"));
        let wide =
            results_of(&format!("grape {command} k.kernel --i i.npy --j x.npy --precision f64")).0;
        assert_eq!(sums, wide, "{command}");
        // It is enough that one of the two files is float64.
        let one = results_of(&format!("grape {command} k.kernel --i narrow.npy --j x.npy")).0;
        assert!(one.iter().any(|sum| *sum != f64::from(*sum as f32)), "{command}: computed in f64");
        let none = results_of(&format!("grape {command} k.kernel --i narrow.npy --j narrow.npy")).0;
        assert!(
            none.iter().all(|sum| *sum == f64::from(*sum as f32)),
            "{command}: computed in f32"
        );
    }
}

#[test]
fn a_listing_runs_as_its_kernel() {
    let folder = folder();
    for precision in ["f32", "f64"] {
        let printed = within(&folder, &format!("grape asm k.kernel --precision {precision}"));
        fs::write(folder.path().join("k.asm"), printed.ok()).unwrap();
        let line = "--i i.npy --j j.npy --const e=0.5 --json";
        let kernel = within(&folder, &format!("grape sim k.kernel --precision {precision} {line}"))
            .ok()
            .to_owned();
        assert_eq!(within(&folder, &format!("grape sim k.asm {line}")).ok(), kernel);
    }
    for (line, words) in [
        ("grape run k.asm --i i.npy --j j.npy", "run it with `sprat grape sim`"),
        (
            "grape sim k.asm --i i.npy --j j.npy --precision f32",
            "k.asm is a listing, which names the type",
        ),
        ("grape sim k.asm --i j.npy --j j.npy", "2 i variables were given"),
    ] {
        let ran = within(&folder, line);
        assert!(ran.code == Some(1) && ran.stderr.contains(words), "{line}: {ran:?}");
    }
    fs::write(folder.path().join("bad.asm"), "stride 1\nj x f32 $bm1\n").unwrap();
    let ran = within(&folder, "grape sim bad.asm --j j.npy");
    assert!(ran.code == Some(1) && ran.stderr.contains("bad.asm: line 2, column 9"), "{ran:?}");
}

#[test]
fn inputs_are_not_overwritten() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    std::os::unix::fs::symlink(at("i.npy"), at("link.npy")).unwrap();
    fs::hard_link(at("j.npy"), at("hard.npy")).unwrap();
    save(
        &at("two.npy"),
        7,
        &[0.5, 0.0, 0.0, 0.0, 0.0, 0.5, 0.0, 0.5, 1.0, 0.0, 0.0, 0.0, -0.5, 0.0],
    );
    fs::create_dir(at("run.npy")).unwrap();
    fs::copy(at("two.npy"), at("run.npy/snapshot-0004.npy")).unwrap();
    let names = ["i.npy", "j.npy", "k.kernel", "two.npy", "run.npy/snapshot-0004.npy"];
    let before = names.map(|name| fs::read(at(name)).unwrap());
    for (line, words) in [
        ("grape run k.kernel --i i.npy --j j.npy --out i.npy", "it is the file of --i"),
        ("grape run k.kernel --i i.npy --j j.npy --out link.npy", "it is the file of --i"),
        ("grape run k.kernel --i link.npy --j j.npy --out i.npy --json", "it is the file of --i"),
        ("grape run k.kernel --i i.npy --j j.npy --out hard.npy", "it is the file of --j"),
        ("grape run k.kernel --i i.npy --j j.npy --out k.kernel", "it is the file of the kernel"),
        ("grape sim k.kernel --i i.npy --j j.npy --out j.npy", "it is the file of --j"),
        ("grape nbody --from two.npy --until 0.01 --picture two.npy", "it is the file of --from"),
        (
            "grape nbody --from run.npy/snapshot-0004.npy --until 0.01 --snapshots run.npy",
            "is the file of --from",
        ),
    ] {
        let ran = within(&folder, line);
        assert!(ran.code == Some(1) && ran.stderr.contains(words), "{line}: {ran:?}");
    }
    assert_eq!(names.map(|name| fs::read(at(name)).unwrap()), before);
    // Another file in the folder may be written, even if it exists.
    within(&folder, "grape run k.kernel --i i.npy --j j.npy --out r.npy").ok();
    within(&folder, "grape run k.kernel --i i.npy --j j.npy --out r.npy").ok();
    within(&folder, "grape nbody --from two.npy --until 0.01 --snapshots run.npy --json").ok();
}

/// Two bodies on a circle. Without softening they stay on the circle, at a distance of 1, and their
/// energy is -1/8.
#[test]
fn without_softening_a_body_does_not_attract_itself() {
    let folder = folder();
    save(
        &folder.path().join("two.npy"),
        7,
        &[0.5, 0.5, 0.0, 0.0, 0.0, 0.5, 0.0, 0.5, -0.5, 0.0, 0.0, 0.0, -0.5, 0.0],
    );
    let ran = within(&folder, "grape nbody --from two.npy --softening 0 --json");
    let lines: Vec<Value> =
        ran.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 11);
    for line in &lines {
        assert!((line["energy"].as_f64().unwrap() + 0.125).abs() < 1e-6, "{line}");
    }
    save(&folder.path().join("met.npy"), 7, &[0.5; 14]);
    for scheme in ["hermite", "leapfrog"] {
        let ran =
            within(&folder, &format!("grape nbody --from met.npy --softening 0 --scheme {scheme}"));
        assert!(
            ran.code == Some(1)
                && ran.stderr.contains("bodies 0 and 1, counted from 0, are at one place"),
            "{ran:?}"
        );
    }
    // Two bodies fall straight towards each other. The run prints no NaNs, whether or not it ends
    // with an error.
    save(
        &folder.path().join("fall.npy"),
        7,
        &[0.5, 0.5, 0.0, 0.0, -0.1, 0.0, 0.0, 0.5, -0.5, 0.0, 0.0, 0.1, 0.0, 0.0],
    );
    let ran = within(
        &folder,
        "grape nbody --from fall.npy --softening 0 --until 10 --scheme leapfrog --step 0.0625",
    );
    assert!(ran.code == Some(0) || ran.stderr.contains("time"), "{ran:?}");
    assert!(!ran.text().contains("NaN") && !ran.text().contains("inf"), "{ran:?}");
}

#[test]
fn results_are_arrays_again() {
    let folder = folder();
    within(&folder, "grape run k.kernel --i i.npy --j j.npy --out r.npy").ok();
    fs::write(folder.path().join("two.kernel"), "VARI a, b; VARF s; s += a * 0 + b").unwrap();
    let ran = within(&folder, "grape run two.kernel --i r.npy --json");
    let report: Value = serde_json::from_str(ran.ok()).unwrap();
    let (_, places) = results(&folder, "grape run k.kernel --i i.npy --j j.npy --json");
    let read =
        report["results"]["s"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap());
    assert_eq!(
        read.collect::<Vec<_>>(),
        places.iter().map(|place| *place as f64).collect::<Vec<_>>()
    );
}

#[test]
fn errors_are_reported() {
    let folder = folder();
    fs::write(folder.path().join("bad.kernel"), "VARI x\nVARF f\nf += x * y\n").unwrap();
    save(&folder.path().join("nan.npy"), 7, &[f64::NAN; 14]);
    fs::write(folder.path().join("text.npy"), "no array").unwrap();
    save(&folder.path().join("turned.npy"), 50, &[0.5; 150]);
    let run = "grape run k.kernel --i i.npy --j j.npy";
    for (line, code, words) in [
        ("grape run none --i i.npy --j j.npy".to_owned(), 1, "no kernel \"none\""),
        ("grape run bad.kernel --i i.npy".to_owned(), 1, "line 3, column 10"),
        ("grape run k.kernel --i absent.npy --j j.npy".to_owned(), 1, "absent.npy: No such file"),
        ("grape run k.kernel --i text.npy --j j.npy".to_owned(), 1, "not a NumPy array"),
        ("grape run k.kernel --i j.npy --j j.npy".to_owned(), 1, "2 i variables were given"),
        ("grape run k.kernel --i i.npy".to_owned(), 1, "needs --j FILE, with columns xj, mj"),
        (format!("{run} --const f=1"), 1, "no such constant; it has e"),
        (format!("{run} --const e=one"), 2, "is not a number"),
        (
            format!("{run} --const e=1e-60 --precision f32"),
            1,
            "constant e is 1e-60, and 0 in f32: compute in f64",
        ),
        (
            format!("{run} --const e=-1e60 --precision f32"),
            1,
            "constant e is -1e60, and infinity in f32",
        ),
        (
            "grape run gravity --i turned.npy --j j.npy".to_owned(),
            1,
            "(3, 50): rows are particles; the transposed array fits",
        ),
        (format!("{run} --engine reference --threads 2"), 1, "--engine vector"),
        ("grape sim k.kernel --i i.npy --j j.npy --chips 5".to_owned(), 1, "a board has 1 to 4"),
        ("grape sim k.kernel --i i.npy --j j.npy --trace 100".to_owned(), 1, "there are 100 i"),
        ("grape sim k.kernel --i i.npy --j j.npy --clock fast".to_owned(), 2, "write 500MHz"),
        ("grape nbody --from nan.npy".to_owned(), 1, "mass of body 0 is NaN"),
        ("grape nbody --bodies 0".to_owned(), 1, "0 bodies"),
        ("grape nbody --bodies 8 --softening nan".to_owned(), 1, "a softening length of NaN"),
        (format!("{run} --threads 100000"), 1, "100000 threads: "),
        ("grape dgemm --on cpu --threads 100000".to_owned(), 1, "16 for each of"),
        ("grape nbody --bodies 8 --threads 100000".to_owned(), 1, "are the limit"),
        ("grape nbody --bodies 8 --until -1".to_owned(), 2, "unexpected argument"),
        ("grape nbody --bodies 8 --every 0".to_owned(), 1, "--every 0"),
        ("grape dgemm --size 0".to_owned(), 2, "from 1 to"),
        ("grape dgemm --on cpu --chips 2".to_owned(), 1, "--chips and --clock need --on grapedr"),
        ("grape lu --threads 2".to_owned(), 1, "--threads needs --on cpu"),
    ] {
        let ran = within(&folder, &line);
        assert_eq!(ran.code, Some(code), "{line}: {ran:?}");
        assert!(ran.stderr.contains(words), "{line}: {}", ran.stderr);
    }
    // NaNs pass through a kernel as its language defines, with a warning.
    fs::write(
        folder.path().join("sum.kernel"),
        "VARI a, b, c, d, e, f, g; VARF s; s += a+b+c+d+e+f+g",
    )
    .unwrap();
    let ran = within(&folder, "grape run sum.kernel --i nan.npy");
    ran.ok();
    assert!(ran.stderr.contains("2 results are not finite"), "{}", ran.stderr);
}

#[test]
fn bodies_keep_their_energy_and_go_on_from_a_snapshot() {
    let folder = folder();
    for scheme in ["hermite", "leapfrog --step 0.0005"] {
        let line = format!(
            "grape nbody --bodies 64 --softening 0.05 --until 0.2 --every 0.1 --json --scheme \
             {scheme}"
        );
        let ran = within(&folder, &format!("{line} --snapshots run.npy --picture p.svg"));
        let lines: Vec<Value> =
            ran.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let times: Vec<_> = lines.iter().map(|line| line["time"].as_f64().unwrap()).collect();
        assert_eq!(times, [0.0, 0.1, 0.2]);
        let drift = lines[2]["drift"].as_f64().unwrap();
        assert!(drift != 0.0 && drift.abs() < 1e-5, "{scheme}: {drift:e}");
        assert!(fs::read_to_string(folder.path().join("p.svg")).unwrap().starts_with("<svg"));
        let on = within(
            &folder,
            "grape nbody --from run.npy/snapshot-0002.npy --softening 0.05 --until 0.01 --json",
        );
        let first: Value = serde_json::from_str(on.ok().lines().next().unwrap()).unwrap();
        assert_eq!(first["energy"], lines[2]["energy"], "it begins where the other ended");
    }
}

#[test]
fn an_interrupted_run_leaves_a_snapshot() {
    let folder = folder();
    let mut command = sprat();
    command.args([
        "grape", "nbody", "--bodies", "256", "--until", "1000000", "--every", "100", "--json",
    ]);
    command.arg("--snapshots").arg(folder.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The first line is printed after signals are handled.
    let mut line = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("interrupted at time") && stderr.contains("snapshot-0001.npy"),
        "{stderr}"
    );
    assert!(folder.path().join("snapshot-0001.npy").exists());
}

#[test]
fn matrices_are_right() {
    for line in ["grape dgemm --size 70 --json", "grape lu --size 100 --chips 2 --json"] {
        let report: Value =
            serde_json::from_str(run(&line.split(' ').collect::<Vec<_>>()).ok()).unwrap();
        assert_eq!(report["right"], true, "{report}");
        assert!(
            report["error"].as_f64().unwrap() > 0.0
                && report["timing"]["loop_cycles"].as_u64().unwrap() > 0
        );
    }
    for line in [
        "grape dgemm --size 300 --on cpu --json",
        "grape lu --size 300 --on cpu --threads 2 --json",
    ] {
        let report: Value =
            serde_json::from_str(run(&line.split(' ').collect::<Vec<_>>()).ok()).unwrap();
        assert_eq!((&report["right"], &report["rows"]), (&true.into(), &300.into()), "{report}");
        let error = report["error"].as_f64().unwrap();
        assert!(
            error > 0.0 && error < 1e-14 && report["gflops"].as_f64().unwrap() > 0.0,
            "{report}"
        );
    }
    let ran = run(&["grape", "dgemm", "--on", "cpu", "--size", "100"]);
    assert!(
        ran.ok().contains("Gflop/s of this processor")
            && ran.text().contains("relative error of C = A B"),
        "{ran:?}"
    );
}

#[cfg(not(feature = "mpi"))]
#[test]
fn ranks_are_refused_without_mpi() {
    let folder = folder();
    for line in ["run gravity --i i.npy --j j.npy", "nbody --bodies 8"] {
        let mut command = sprat();
        command
            .current_dir(folder.path())
            .arg("grape")
            .args(line.split(' '))
            .env("OMPI_COMM_WORLD_SIZE", "2");
        let output = command.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.contains("mpirun started 2 of these")
                && stderr.contains("--features sprat-cli/mpi"),
            "{stderr}"
        );
    }
    let alone = run(&["grape", "nbody", "--bodies", "8", "--until", "0.01"]);
    alone.ok();
}
