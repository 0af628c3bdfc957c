//! Compares gravity with numba and KeOps. These run in a separate process on the same core,
//! alternately with our kernel.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use sprat_grape::{Engine, Kernel, Output, Precision, ready};

use super::question::{Answer, Question};
use super::rate::{PARTICLES, ROUNDS, Timed, inputs, numbers, pinned, rate, targets, word};
use crate::promises::{Findings, Settings};
use sprat_measure::goals::Goal;
use sprat_measure::table::Table;

/// Environment variable with the folder of the peers' packages, and the default folder.
const FOLDER_VARIABLE: &str = "SPRAT_GRAPE_PEERS";
const DEFAULT_FOLDER: &str = "target/tools/grape-peers";

const SCRIPT: &str = include_str!("peers.py");

/// Timeout for a peer to compile, or to run once.
const PATIENCE: Duration = Duration::from_secs(180);

/// Number of particles whose errors are computed: few, since the reference is slow.
const JUDGED: usize = 256;

/// Each peer, with the goal for our rate as a multiple of the peer's.
const PEERS: [(&str, f64); 2] = [("numba", 3.0), ("keops", 30.0)];

/// Measures our kernel and the peers in both precisions.
pub(super) fn chapter(_: &Settings, findings: &mut Findings) -> Result<()> {
    let _pinned = pinned()?;
    let columns = numbers(4);
    let target = *targets().first().context("no vectors, not even the portable ones")?;
    let mut table =
        Table::new(&["who", "G interactions/s", "Gflop/s (38 a pair)", "largest relative error"]);
    let mut peers = PeerProcess::start(&columns);
    let reference = reference(&columns)?;
    for precision in [Precision::F32, Precision::F64] {
        let word = word(precision);
        let mut ours = Timed::ready("gravity", precision, target)?;
        let outputs: Vec<Vec<f64>> = ours.run(&columns)?.into_iter().map(reals).collect();
        let mut made: Vec<(&str, f64, Result<CompiledPeer>)> = PEERS
            .into_iter()
            .map(|(peer, times)| {
                let made = match &mut peers {
                    Ok(peers) => peers.make(peer, word),
                    Err(error) => Err(anyhow::anyhow!("{error:#}")),
                };
                (peer, times, made)
            })
            .collect();
        for _ in 0..ROUNDS {
            ours.run(&columns)?;
            for (peer, _, made) in &mut made {
                let (Ok(found), Ok(peers)) = (&mut *made, &mut peers) else { continue };
                match peers.run(peer, word) {
                    Ok(seconds) => found.best = found.best.min(seconds),
                    Err(error) => *made = Err(error),
                }
            }
        }
        let error = max_error(&outputs, &reference);
        let mut line = |name: String, rate: f64, error: f64| {
            table.row(vec![
                name,
                format!("{rate:.3}"),
                format!("{:.1}", 38.0 * rate),
                format!("{error:.1e}"),
            ]);
        };
        line(format!("sprat {word}, {target:?}"), ours.rate(), error);
        let bound = if precision == Precision::F32 { 1e-5 } else { 1e-14 };
        findings.row(
            &format!("gravity {word}, largest relative error"),
            Some(error),
            None,
            "1",
            Goal::AtMost(bound),
        );
        for (peer, times, made) in made {
            let name = format!("gravity {word} beside {peer}");
            let found = match made {
                Ok(found) => found,
                Err(error) => {
                    findings.row(
                        &name,
                        Some(ours.rate()),
                        None,
                        "G interactions/s",
                        Goal::RatioAtLeast(times),
                    );
                    findings.note(format!(
                        "{name} was not measured: {error:#} (scripts/setup bench-grape)"
                    ));
                    continue;
                }
            };
            let (peer_rate, peer_error) = (rate(found.best), max_error(&found.outputs, &reference));
            line(format!("{peer} {} {word}", found.version), peer_rate, peer_error);
            findings.row(
                &name,
                Some(ours.rate()),
                Some(peer_rate),
                "G interactions/s",
                Goal::RatioAtLeast(times),
            );
            findings.row(
                &format!("{name}, largest relative error"),
                Some(error),
                Some(peer_error),
                "1",
                Goal::Shown,
            );
        }
    }
    findings.table(
        &format!("Gravity, {PARTICLES} particles, one thread each, best of {ROUNDS}, in turns"),
        table,
    );
    Ok(())
}

/// Computes the first particles' results with the reference interpreter.
fn reference(columns: &[Vec<f64>]) -> Result<Vec<Vec<f64>>> {
    let kernel = Kernel::compile(
        ready("gravity").context("gravity")?.text,
        Precision::F64,
        &Engine::Reference,
    )?;
    Ok(kernel.run(&inputs(kernel.program(), columns, JUDGED)?).into_iter().map(reals).collect())
}

fn reals(output: Output) -> Vec<f64> {
    output.into_numbers().expect("gravity is of numbers")
}

/// Returns the largest relative error of an acceleration or a potential of the first particles, or
/// NaN if an error is NaN.
fn max_error(results: &[Vec<f64>], reference: &[Vec<f64>]) -> f64 {
    let error = |columns: std::ops::Range<usize>, i: usize| {
        let norm =
            |of: &dyn Fn(usize) -> f64| columns.clone().map(|k| of(k).powi(2)).sum::<f64>().sqrt();
        norm(&|k| results[k][i] - reference[k][i]) / norm(&|k| reference[k][i])
    };
    let all = (0..reference[0].len()).flat_map(|i| [error(0..3, i), error(3..4, i)]);
    all.fold(0.0, |most, error| if error > most || error.is_nan() { error } else { most })
}

/// A compiled peer.
struct CompiledPeer {
    version: String,
    outputs: Vec<Vec<f64>>,
    best: f64,
}

/// The Python process with the peers. Dropping this value kills the process.
struct PeerProcess {
    child: Child,
    questions: ChildStdin,
    answers: Receiver<String>,
    scratch: tempfile::TempDir,
}

impl PeerProcess {
    fn start(columns: &[Vec<f64>]) -> Result<Self> {
        let folder = std::env::var_os(FOLDER_VARIABLE)
            .map_or_else(|| PathBuf::from(DEFAULT_FOLDER), PathBuf::from);
        let folder = folder
            .canonicalize()
            .with_context(|| format!("the peers' packages are not in {}", folder.display()))?;
        let scratch = tempfile::tempdir()?;
        let particles = scratch.path().join("particles");
        fs::write(
            &particles,
            columns.iter().flatten().flat_map(|x| x.to_ne_bytes()).collect::<Vec<u8>>(),
        )?;
        let mut child = Command::new("python3")
            .args(["-u", "-c", SCRIPT])
            .arg(&particles)
            .arg("1e-4") // the softening, the same as in the kernel
            .env("PYTHONPATH", &folder)
            .env("OMP_NUM_THREADS", "1")
            .env("KEOPS_CACHE_FOLDER", scratch.path().join("keops"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("starting python3")?;
        let questions = child.stdin.take().context("its input")?;
        let lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        let (send, answers) = sync_channel(1);
        std::thread::Builder::new().name("answers".into()).spawn(move || {
            for line in lines.map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { child, questions, answers, scratch })
    }

    fn ask(&mut self, question: Question<'_>) -> Result<Answer> {
        writeln!(self.questions, "{question}").context("the peers' process has ended")?;
        self.answers
            .recv_timeout(PATIENCE)
            .with_context(|| format!("no answer to {question}"))?
            .parse()
    }

    fn make(&mut self, peer: &str, precision: &str) -> Result<CompiledPeer> {
        let path = self.scratch.path().join(format!("{peer}-{precision}"));
        match self.ask(Question::Make(peer, precision, &path))? {
            Answer::Made(version) => {
                Ok(CompiledPeer { version, outputs: read(&path)?, best: f64::INFINITY })
            }
            Answer::Cannot(why) => bail!("{why}"),
            answer @ Answer::Took(_) => bail!("{peer} answered {answer:?}"),
        }
    }

    fn run(&mut self, peer: &str, precision: &str) -> Result<f64> {
        match self.ask(Question::Run(peer, precision))? {
            Answer::Took(seconds) => Ok(seconds),
            Answer::Cannot(why) => bail!("{why}"),
            answer @ Answer::Made(_) => bail!("{peer} answered {answer:?}"),
        }
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        // Fails if the process has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads four columns of numbers from a file.
fn read(path: &Path) -> Result<Vec<Vec<f64>>> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    let (numbers, rest) = bytes.as_chunks::<8>();
    if numbers.len() != 4 * PARTICLES || !rest.is_empty() {
        bail!(
            "{} has {} bytes, not four numbers of {PARTICLES} particles",
            path.display(),
            bytes.len()
        );
    }
    let numbers: Vec<f64> = numbers.iter().map(|number| f64::from_ne_bytes(*number)).collect();
    Ok(numbers.chunks(PARTICLES).map(<[f64]>::to_vec).collect())
}
