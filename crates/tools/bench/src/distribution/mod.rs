//! Measures the whole distribution of an operation's latency over several paths, and explains the
//! steps in its tail.
//!
//! - [`cliffs`] finds the steps. [`causes`] finds the cause of a single slow operation, and judges
//!   which part of the system makes a step.
//! - `sample` runs the operations. `look` reads the statistics of threads, server and cores after
//!   slow operations.
//! - The [jitter meter](sprat_measure::jitter) runs on the cores of both ends before and after the
//!   operations, while the servers are parked. During the operations it runs on a spare core, if
//!   there is one.
//! - Results contain a label and all counts, so that results of several hosts can be
//!   [compared](render::compared).

pub mod causes;
pub mod cliffs;
mod look;
pub mod picture;
pub mod render;
pub mod sample;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use sprat_client::{Client, Mode, Options};

use self::causes::{Cause, Tally, Verdict, judge};
use self::cliffs::Cliff;
use self::look::Cores;
use self::sample::{Sampler, Samples};
use crate::ours::{Sprat, SpratServer, Transport, drop_table};
use crate::scenarios::Lab;
use crate::single::{Objects, Single};
use sprat_measure::cpu::{Fifo, Pinned};
use sprat_measure::jitter::{Jitter, Meter, MeterPlacement, meter};
use sprat_measure::machine::Machine;

/// Limit on the length of an object, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// Limit on the objects that are read and written, and limit on the bytes of all their values.
const KEYS: usize = 10_000;
const SET_BYTES: usize = 16 << 20;

/// Time for which the jitter meter runs before the operations, and again after them.
const METERING_TIME: Duration = Duration::from_millis(900);

/// Version of the JSON; [`Distributions::read`] rejects others.
const FORMAT: u32 = 1;

/// The settings of the measurement.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Cores, rounds, and the servers' memory.
    pub lab: Lab,
    /// Number of operations over each path.
    pub samples: u64,
    /// Bytes of an object, at most [`MAX_BYTES`].
    pub bytes: usize,
    /// Whether to measure writes instead of reads.
    pub write: bool,
    /// A name for the results.
    pub label: String,
}

/// The servers to measure.
#[derive(Clone, Debug)]
pub enum Subject {
    /// Servers that the benchmark starts from this binary, one for each transport.
    Own(std::path::PathBuf, Vec<Transport>),
    /// A running cluster.
    Cluster(Options),
}

/// The results of one host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Distributions {
    format: u32,
    /// Name of the results, such as the host or its kind.
    pub label: String,
    /// The measured machine.
    pub machine: Machine,
    /// `read` or `write`.
    pub op: String,
    /// Bytes of an object.
    pub bytes: usize,
    /// Jitter of the client's core and, if it is known, of the server's core, while the servers are
    /// parked.
    pub jitter: Vec<Jitter>,
    /// Jitter of a spare core during the operations, if there was one.
    pub beside: Option<Jitter>,
    /// The results of each path, in the order of the request.
    pub paths: Vec<PathResult>,
}

/// The result of one path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PathResult {
    /// The path's name, such as `fast+udp`.
    pub name: String,
    /// The operations.
    pub samples: Samples,
    /// The steps in the tail with their explanations.
    pub cliffs: Vec<ExplainedCliff>,
}

/// A step and its explanation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExplainedCliff {
    /// The step.
    pub cliff: Cliff,
    /// The share of operations that are at least as slow as the beginning of the step, 0 to 1.
    pub beyond: f64,
    /// The share of operations that the machine would delay as long without the store, 0 to 1,
    /// computed from the jitter meter's results.
    pub machine_alone: f64,
    /// Number of examined operations in the step.
    pub examined: u64,
    /// The causes of the examined operations, each with its share, 0 to 1.
    pub causes: Vec<(Cause, f64)>,
    /// The part of the system that makes the step.
    pub verdict: Verdict,
    /// The share of the step's operations that supports the verdict, 0 to 1.
    pub verdict_share: f64,
}

/// Measures the distribution over every path. The paths alternate in rounds. Calls `progress` with
/// a description of each step before the step begins.
///
/// # Errors When the settings ask for no operation or for objects of an impossible size, a server
/// cannot be started, a thread cannot get its core or priority, or an operation gets a wrong answer
/// or no answer.
pub fn measure(
    settings: &Settings,
    over: &Subject,
    progress: &mut dyn FnMut(&str),
) -> Result<Distributions> {
    ensure!(
        (1..=MAX_BYTES).contains(&settings.bytes),
        "{} bytes: 1 to {MAX_BYTES} are possible",
        settings.bytes
    );
    ensure!(settings.samples > 0, "no samples are asked for");
    let lab = &settings.lab;
    let machine = Machine::describe();
    let mut paths = start(settings, over, progress)?;
    let places = [
        MeterPlacement { core: lab.client_core, fifo: lab.client_fifo },
        // The core of a server in a running cluster is not known.
        MeterPlacement { core: lab.setup.core, fifo: None },
    ];
    let places = if matches!(over, Subject::Own(..)) && lab.setup.core.is_some() {
        &places[..]
    } else {
        &places[..1]
    };
    progress("the jitter meter, without the store");
    let before = meter(places, METERING_TIME)?;
    let beside = spare_core(lab)
        .map(|core| Meter::start(MeterPlacement { core: Some(core), fifo: None }))
        .transpose()?;
    run_rounds(settings, &mut paths, progress)?;
    let beside = beside.map(Meter::stop).transpose()?;
    progress("the jitter meter again");
    let after = meter(places, METERING_TIME)?;
    let jitter: Vec<Jitter> =
        before.into_iter().zip(&after).map(|(before, after)| before.merged_with(after)).collect();
    let paths = paths.into_iter().map(|path| path.finish(&jitter)).collect::<Result<_>>()?;
    let op = if settings.write { "write" } else { "read" }.to_owned();
    Ok(Distributions {
        format: FORMAT,
        label: settings.label.clone(),
        machine,
        op,
        bytes: settings.bytes,
        jitter,
        beside,
        paths,
    })
}

/// Returns a core that neither the client nor the servers use, if there is one.
fn spare_core(lab: &Lab) -> Option<usize> {
    let (client, server) = (lab.client_core?, lab.setup.core?);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (0..cores).find(|&core| core != client && core != server)
}

/// A path that is being measured, with its server.
struct RunningPath {
    name: String,
    sampler: Sampler,
    server: Option<SpratServer>,
    /// The cluster whose benchmark table is dropped at the end. `None` for a server of the
    /// benchmark.
    cluster: Option<Options>,
}

fn start(
    settings: &Settings,
    over: &Subject,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<RunningPath>> {
    let lab = &settings.lab;
    let objects = || Objects::new(settings.bytes, (SET_BYTES / settings.bytes).clamp(1, KEYS));
    match over {
        Subject::Own(program, transports) => {
            let start = |&transport: &Transport| {
                progress(&format!("starting a server over {}", transport.word()));
                let server = Sprat::new(program.clone(), transport, Mode::Spin)
                    .timed()
                    .launch(&lab.in_memory())?;
                let single = Single::new(Client::connect(&server.client_options())?)?;
                let cores = Cores { client: lab.client_core, server: lab.setup.core };
                let sampler = Sampler::new(single, objects(), settings.write, cores)?;
                server.set_parked(true);
                Ok(RunningPath {
                    name: transport.word().to_owned(),
                    sampler,
                    server: Some(server),
                    cluster: None,
                })
            };
            transports.iter().map(start).collect()
        }
        Subject::Cluster(options) => {
            let no_cluster = || {
                let coordinator = &options.coordinator;
                format!(
                    "no cluster answers at {coordinator}; start one with `sprat server -C \
                     {coordinator} --with-coordinator`"
                )
            };
            let single = Single::new(Client::connect(options).with_context(no_cluster)?)
                .with_context(no_cluster)?;
            let name = single.transport().to_owned();
            let cores = Cores { client: lab.client_core, server: None };
            let sampler = Sampler::new(single, objects(), settings.write, cores)?;
            Ok(vec![RunningPath { name, sampler, server: None, cluster: Some(options.clone()) }])
        }
    }
}

fn run_rounds(
    settings: &Settings,
    paths: &mut [RunningPath],
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let lab = &settings.lab;
    let rounds = lab.rounds.max(1) as u64;
    let _pinned = Pinned::to(lab.client_core)?;
    let fifo = lab.client_fifo.map(Fifo::current_thread).transpose()?;
    for round in 0..rounds {
        // The order of the paths is reversed in every other round. The first round also makes the
        // operations that remain when `samples` is divided by the rounds.
        let count =
            settings.samples / rounds + if round == 0 { settings.samples % rounds } else { 0 };
        for place in 0..paths.len() {
            let index = if round % 2 == 0 { place } else { paths.len() - 1 - place };
            let path = &mut paths[index];
            progress(&format!("round {} of {rounds}, {}", round + 1, path.name));
            path.server.iter().for_each(|server| server.set_parked(false));
            path.sampler.run(count).with_context(|| path.name.clone())?;
            path.server.iter().for_each(|server| server.set_parked(true));
        }
    }
    drop(fifo);
    Ok(())
}

impl RunningPath {
    /// Stops the path's server, and explains the results.
    fn finish(self, jitter: &[Jitter]) -> Result<PathResult> {
        let Self { name, sampler, server, cluster } = self;
        let samples = sampler.found;
        // The connection is closed before its server stops, since closing may need an answer.
        server.iter().for_each(|server| server.set_parked(false));
        drop(sampler.single);
        drop(server);
        cluster
            .map(|options| drop_table(&options))
            .transpose()
            .context("dropping the table that was measured")?;
        let cliffs = explain(&samples, jitter);
        Ok(PathResult { name, samples, cliffs })
    }
}

/// Finds the steps of a path and explains them.
fn explain(samples: &Samples, jitter: &[Jitter]) -> Vec<ExplainedCliff> {
    let latencies = &samples.latencies;
    let (median, mean) = (latencies.quantile(0.5), latencies.summary().mean);
    let explain = |cliff: Cliff| {
        let beyond = latencies.beyond(cliff.from_ns.saturating_sub(1));
        // If a core is held up for that long at any time during an operation, the operation takes
        // that much longer.
        let rate: f64 =
            jitter.iter().map(|one| one.rate_beyond(cliff.from_ns.saturating_sub(median))).sum();
        let machine_alone = (rate * mean / 1e9).min(1.0);
        let tally: Tally = samples.tally(&cliff);
        let (verdict, verdict_share) = judge(&tally, beyond, machine_alone);
        let (examined, causes) = (tally.count(), tally.shares());
        ExplainedCliff { cliff, beyond, machine_alone, examined, causes, verdict, verdict_share }
    };
    cliffs::find(latencies).into_iter().map(explain).collect()
}

impl Distributions {
    /// Reads the results of an earlier run.
    ///
    /// # Errors
    /// When the file cannot be read, is not what `sprat bench distribution --out` writes, has a
    /// format of another version, or contains results that contradict each other.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let all: Self = serde_json::from_str(&text).with_context(|| {
            format!("{}: not what `sprat bench distribution --out` writes", path.display())
        })?;
        ensure!(
            all.format == FORMAT,
            "{}: of format {}, and this program reads {FORMAT}; measure again",
            path.display(),
            all.format
        );
        ensure!(
            all.paths.iter().all(|path| path.samples.is_sound()),
            "{}: operations were examined that were never counted: the file is damaged; measure \
             again",
            path.display()
        );
        Ok(all)
    }
}
