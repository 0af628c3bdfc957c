//! The whole distribution of an operation's latency over several paths, the steps in its tail, and
//! what they come from.
//!
//! - [`cliffs`] finds the steps; [`causes`] says what a single operation suffered from, and whose
//!   fault a step is.
//! - `sample` makes the operations, `look` reads what the threads, the server and the cores tell of
//!   those that took long.
//! - The [jitter meter](sprat_measure::jitter) runs before and after, on the same cores, while the
//!   servers are stopped, and beside on a core of its own where there is one.
//! - Results carry a label and everything that was counted, so that those of several hosts can be
//!   [set side by side](render::compared).

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
use crate::ours::{Sprat, SpratServer, Transport, forget};
use crate::scenarios::Lab;
use crate::single::{Objects, Single};
use sprat_measure::cpu::{Fifo, Pinned};
use sprat_measure::jitter::{Jitter, Meter, MeterPlacement, meter};
use sprat_measure::machine::Machine;

/// Most bytes of an object.
pub const MAX_BYTES: usize = 1 << 20;

/// Objects that are read and written, and most bytes of them together.
const KEYS: usize = 10_000;
const SET_BYTES: usize = 16 << 20;

/// How long the jitter meter runs, before and again after.
const METERED: Duration = Duration::from_millis(900);

/// Version of the JSON: those of another are not read.
const FORMAT: u32 = 1;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Cores, rounds, memory of the servers.
    pub lab: Lab,
    /// Operations over each path.
    pub samples: u64,
    /// Bytes of an object, at most [`MAX_BYTES`].
    pub bytes: usize,
    /// Writes instead of reads.
    pub write: bool,
    /// What the results are to be called.
    pub label: String,
}

/// Whom the operations ask.
#[derive(Clone, Debug)]
pub enum Over {
    /// Servers of our own, one for each transport, started from the binary.
    Own(std::path::PathBuf, Vec<Transport>),
    /// A cluster that runs.
    Cluster(Options),
}

/// Everything that was found on one host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Distributions {
    format: u32,
    /// What it is called: the host, its kind.
    pub label: String,
    /// The machine it was measured on.
    pub machine: Machine,
    /// `read` or `write`.
    pub op: String,
    /// Bytes of an object.
    pub bytes: usize,
    /// The machine without the store: what the jitter meter found on the client's core and on the
    /// server's.
    pub jitter: Vec<Jitter>,
    /// What it found beside the operations, on a core of its own, where there was one.
    pub beside: Option<Jitter>,
    /// The paths, in the order they were asked for.
    pub paths: Vec<Measured>,
}

/// One path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// What it is called: `fast+udp`.
    pub name: String,
    /// What was counted.
    pub samples: Samples,
    /// The steps in the tail, explained.
    pub cliffs: Vec<Explained>,
}

/// A step and what it comes from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Explained {
    /// Where, and how many.
    pub cliff: Cliff,
    /// The share of operations from its beginning on, 0 to 1.
    pub beyond: f64,
    /// The share that the machine would hold up for as long by itself, as the jitter meter has it.
    pub machine_alone: f64,
    /// Operations in it that were examined.
    pub examined: u64,
    /// Their causes and the share of each, 0 to 1.
    pub causes: Vec<(Cause, f64)>,
    /// Whose fault it is.
    pub verdict: Verdict,
    /// The share of the step's examined operations that says so, 0 to 1.
    pub verdict_share: f64,
}

/// Measures the distribution over every path, turn by turn. `progress` is told what is about to be
/// done.
///
/// # Errors
/// When a server cannot be started, or an operation is not answered as it should be.
pub fn measure(
    settings: &Settings,
    over: &Over,
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
        // Of a cluster that runs elsewhere, or anywhere, the core is not known.
        MeterPlacement { core: lab.setup.core, fifo: None },
    ];
    let places = if matches!(over, Over::Own(..)) && lab.setup.core.is_some() {
        &places[..]
    } else {
        &places[..1]
    };
    progress("the jitter meter, without the store");
    let before = meter(places, METERED)?;
    let beside = spare_core(lab)
        .map(|core| Meter::start(MeterPlacement { core: Some(core), fifo: None }))
        .transpose()?;
    take_turns(settings, &mut paths, progress)?;
    let beside = beside.map(Meter::stop).transpose()?;
    progress("the jitter meter again");
    let after = meter(places, METERED)?;
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

/// Neither the client's nor the servers', if there is such a one.
fn spare_core(lab: &Lab) -> Option<usize> {
    let (client, server) = (lab.client_core?, lab.setup.core?);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (0..cores).find(|&core| core != client && core != server)
}

/// A path and what keeps it alive.
struct Running {
    name: String,
    sampler: Sampler,
    server: Option<SpratServer>,
    /// The cluster whose table is to be dropped.
    cluster: Option<Options>,
}

fn start(settings: &Settings, over: &Over, progress: &mut dyn FnMut(&str)) -> Result<Vec<Running>> {
    let lab = &settings.lab;
    let objects = || Objects::new(settings.bytes, (SET_BYTES / settings.bytes).clamp(1, KEYS));
    match over {
        Over::Own(program, transports) => {
            let start = |&transport: &Transport| {
                progress(&format!("starting a server over {}", transport.word()));
                let server = Sprat::new(program.clone(), transport, Mode::Spin)
                    .timed()
                    .launch(&lab.in_memory())?;
                let single = Single::new(Client::connect(&server.client_options())?)?;
                let cores = Cores { client: lab.client_core, server: lab.setup.core };
                let sampler = Sampler::new(single, objects(), settings.write, cores)?;
                server.set_parked(true);
                Ok(Running {
                    name: transport.word().to_owned(),
                    sampler,
                    server: Some(server),
                    cluster: None,
                })
            };
            transports.iter().map(start).collect()
        }
        Over::Cluster(options) => {
            let nobody = || {
                let coordinator = &options.coordinator;
                format!(
                    "no cluster answers at {coordinator}; start one with `sprat server -C {coordinator} --with-coordinator`"
                )
            };
            let single =
                Single::new(Client::connect(options).with_context(nobody)?).with_context(nobody)?;
            let name = single.transport().to_owned();
            let cores = Cores { client: lab.client_core, server: None };
            let sampler = Sampler::new(single, objects(), settings.write, cores)?;
            Ok(vec![Running { name, sampler, server: None, cluster: Some(options.clone()) }])
        }
    }
}

fn take_turns(
    settings: &Settings,
    paths: &mut [Running],
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let lab = &settings.lab;
    let rounds = lab.rounds.max(1) as u64;
    let _pinned = Pinned::to(lab.client_core)?;
    let fifo = lab.client_fifo.map(Fifo::current_thread).transpose()?;
    for round in 0..rounds {
        // Each round in the other direction; and what the division leaves over is for the first.
        let count =
            settings.samples / rounds + if round == 0 { settings.samples % rounds } else { 0 };
        for turn in 0..paths.len() {
            let index = if round % 2 == 0 { turn } else { paths.len() - 1 - turn };
            let path = &mut paths[index];
            progress(&format!("round {} of {rounds}, {}", round + 1, path.name));
            path.server.iter().for_each(|server| server.set_parked(false));
            path.sampler.turn(count).with_context(|| path.name.clone())?;
            path.server.iter().for_each(|server| server.set_parked(true));
        }
    }
    drop(fifo);
    Ok(())
}

impl Running {
    /// Ends it, and explains what it found.
    fn finish(self, jitter: &[Jitter]) -> Result<Measured> {
        let Self { name, sampler, server, cluster } = self;
        let samples = sampler.found;
        // Connections close before their server is stopped; and closing may need its answer.
        server.iter().for_each(|server| server.set_parked(false));
        drop(sampler.single);
        drop(server);
        cluster
            .map(|options| forget(&options))
            .transpose()
            .context("dropping the table that was measured")?;
        let cliffs = explain(&samples, jitter);
        Ok(Measured { name, samples, cliffs })
    }
}

/// Finds the steps of a path and what they come from.
fn explain(samples: &Samples, jitter: &[Jitter]) -> Vec<Explained> {
    let latencies = &samples.latencies;
    let (median, mean) = (latencies.quantile(0.5), latencies.summary().mean);
    let explain = |cliff: Cliff| {
        let beyond = latencies.beyond(cliff.from_ns.saturating_sub(1));
        // A core that is held up for so long, at any time while an operation is under way, holds
        // that operation up.
        let rate: f64 =
            jitter.iter().map(|one| one.rate_beyond(cliff.from_ns.saturating_sub(median))).sum();
        let machine_alone = (rate * mean / 1e9).min(1.0);
        let tally: Tally = samples.tally(&cliff);
        let (verdict, verdict_share) = judge(&tally, beyond, machine_alone);
        let (examined, causes) = (tally.count(), tally.shares());
        Explained { cliff, beyond, machine_alone, examined, causes, verdict, verdict_share }
    };
    cliffs::find(latencies).into_iter().map(explain).collect()
}

impl Distributions {
    /// Reads what an earlier run left.
    ///
    /// # Errors
    /// When the file cannot be read, or is none of these.
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
            "{}: operations were examined that were never counted: the file is damaged; measure again",
            path.display()
        );
        Ok(all)
    }
}
