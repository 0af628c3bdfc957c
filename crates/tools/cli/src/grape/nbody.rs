//! `grape nbody`: integrates bodies that attract each other over time.

use crate::exit::INTERRUPTED;
use crate::grape::run::{EngineArgs, PrecisionArg, engine, is_same_file, on_all_ranks, precision};
use crate::output::{print_json, print_line};
use crate::signals::signals;
use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use sprat_grape::Ranks;
use sprat_grape::nbody::{
    Bodies, Gravity, Scheme, Simulation, picture, plummer, read_snapshot, write_snapshot,
};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat grape nbody --bodies 1024 --until 1
  sprat grape nbody --bodies 4096 --scheme leapfrog --step 0.001 --picture cluster.svg
  sprat grape nbody --snapshots run/ --every 0.25
  sprat grape nbody --from run/snapshot-0004.npy --until 2
  mpirun -n 4 sprat grape nbody --bodies 65536    divide the bodies between 4 ranks

In the units of a run, total mass and gravitational constant are 1, and the cluster's energy is
about -1/4. A snapshot is a NumPy array with a row of mass, x, y, z, vx, vy, vz for each body.

Exit codes:
  130  stopped by Ctrl-C; the last snapshot and the picture were written")]
pub(crate) struct GrapeNbodyArgs {
    /// Number of bodies, placed as in Plummer's model.
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    bodies: usize,

    /// Seed of the random numbers; the same seed repeats the same cluster.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Start with the bodies of this snapshot, at time 0.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bodies", "seed"])]
    from: Option<PathBuf>,

    /// Simulated time at which the run ends.
    #[arg(long, value_name = "TIME", default_value_t = 1.0)]
    until: f64,

    /// Method of integration.
    #[arg(
        long,
        value_enum,
        default_value_t = SchemeArg::Hermite,
        help_heading = "Integration"
    )]
    scheme: SchemeArg,

    /// Accuracy parameter of the hermite scheme, which sets its time steps.
    #[arg(long, value_name = "NUMBER", default_value_t = 0.02, help_heading = "Integration")]
    eta: f64,

    /// Time step of the leapfrog scheme.
    #[arg(long, value_name = "TIME", default_value_t = 0.001, help_heading = "Integration")]
    step: f64,

    /// Softening length of gravity; with 0, two bodies that meet end the run.
    #[arg(long, value_name = "LENGTH", default_value_t = 0.01, help_heading = "Integration")]
    softening: f64,

    /// Precision of forces; energies are always computed in f64.
    #[arg(
        long,
        value_enum,
        default_value_t = PrecisionArg::F64,
        help_heading = "Integration"
    )]
    precision: PrecisionArg,

    #[command(flatten)]
    engine: EngineArgs,

    /// Write snapshots to this folder: at the start, every --every, and at the end.
    #[arg(long, value_name = "FOLDER", help_heading = "Output")]
    snapshots: Option<PathBuf>,

    /// Simulated time between two reports of the energy, and two snapshots [default: a tenth of
    /// --until].
    #[arg(long, value_name = "TIME", help_heading = "Output")]
    every: Option<f64>,

    /// Write a picture of the bodies at the end to this SVG file.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    picture: Option<PathBuf>,

    /// Print JSON, one object for each report of the energy.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SchemeArg {
    Hermite,
    Leapfrog,
}

/// Number of steps of the progress bar.
const PARTS: u64 = 1000;

/// Limit on the reports of the energy, and on the snapshots, of a run.
const MAX_REPORTS: f64 = 100_000.0;

pub(crate) fn nbody(args: &GrapeNbodyArgs) -> Result<ExitCode> {
    on_all_ranks(|ranks| nbody_on(args, ranks))
}

fn nbody_on(args: &GrapeNbodyArgs, ranks: &Ranks) -> Result<ExitCode> {
    let every = every(args)?;
    if ranks.is_first() {
        protect_bodies(args)?;
    }
    let bodies = match &args.from {
        _ if !ranks.is_first() => None,
        Some(path) => Some(read_snapshot(path)?),
        None => Some(plummer(args.bodies, args.seed)?),
    };
    let bodies = Bodies::shared(bodies, ranks)?;
    let gravity =
        Gravity::new(&engine(&args.engine)?, precision(args.precision), args.softening, ranks)?;
    let scheme = match args.scheme {
        SchemeArg::Hermite => Scheme::Hermite { eta: args.eta },
        SchemeArg::Leapfrog => Scheme::Leapfrog { step: args.step },
    };
    if let Some(folder) = args.snapshots.as_ref().filter(|_| ranks.is_first()) {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let signals = signals()?;
    let mut session =
        Session::new(args, Simulation::new(gravity, bodies, scheme)?, ranks.is_first())?;
    session.report()?;
    let mut stopped = false;
    let mut part = 1.0;
    while !stopped && session.run.time() < args.until {
        let until = (part * every).min(args.until);
        // If rounding errors leave a tiny last interval, it is merged into this one.
        let until = if args.until - until < every * 1e-9 { args.until } else { until };
        while !stopped && !session.step(until)? {
            session.bar.set_position(share(session.run.time() / args.until));
            // All ranks stop after the same step.
            stopped = ranks.any(signals.try_recv().is_ok())?;
        }
        session.report()?;
        part += 1.0;
    }
    session.end(stopped)
}

/// Returns an error if the picture or a snapshot would overwrite the file of `--from`.
fn protect_bodies(args: &GrapeNbodyArgs) -> Result<()> {
    let Some(from) = &args.from else { return Ok(()) };
    if let Some(picture) = args.picture.as_ref().filter(|picture| is_same_file(picture, from)) {
        bail!("--picture {}: it is the file of --from; name another", picture.display());
    }
    let Some(folder) = &args.snapshots else { return Ok(()) };
    let entries = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .map(|entry| entry.path());
    let is_snapshot =
        |path: &PathBuf| path.file_name().is_some_and(|name| is_snapshot(&name.to_string_lossy()));
    if let Some(path) = entries.filter(is_snapshot).find(|path| is_same_file(path, from)) {
        let (folder, path) = (folder.display(), path.display());
        bail!(
            "--snapshots {folder}: {path} is the file of --from, and the run would write over it; \
             name another folder"
        );
    }
    Ok(())
}

/// Returns whether `name` is a name that [`snapshot`] can return.
fn is_snapshot(name: &str) -> bool {
    let number = name.strip_prefix("snapshot-").and_then(|rest| rest.strip_suffix(".npy"));
    number
        .and_then(|number| number.parse().ok())
        .is_some_and(|number: u32| snapshot(number) == name)
}

fn snapshot(number: u32) -> String {
    format!("snapshot-{number:04}.npy")
}

/// Returns the simulated time between two reports of the energy.
fn every(args: &GrapeNbodyArgs) -> Result<f64> {
    if !(args.until > 0.0 && args.until.is_finite()) {
        bail!("--until {}: want a time above 0", args.until);
    }
    let every = args.every.unwrap_or(args.until / 10.0);
    if !(every > 0.0 && args.until / every <= MAX_REPORTS) {
        bail!(
            "--every {every}: want a time above 0, with at most {MAX_REPORTS} reports up to \
             --until"
        );
    }
    Ok(every)
}

/// A run and its output. All ranks call the same methods, since all take part in computing the
/// energies; only the first rank prints and writes files.
struct Session<'a> {
    args: &'a GrapeNbodyArgs,
    run: Simulation<'a>,
    is_first: bool,
    bar: ProgressBar,
    begun: Instant,
    /// The energy at the beginning.
    energy: f64,
    /// The energy in the last report.
    latest: f64,
    snapshots: u32,
    last_snapshot: Option<PathBuf>,
}

impl<'a> Session<'a> {
    fn new(args: &'a GrapeNbodyArgs, run: Simulation<'a>, is_first: bool) -> Result<Self> {
        let style = ProgressStyle::with_template("{bar:32} {percent}%  {eta} left")
            .expect("a constant template");
        let bar = if args.json || !is_first {
            ProgressBar::hidden()
        } else {
            ProgressBar::new(PARTS).with_style(style)
        };
        let energy = run.conserved()?.energy();
        if is_first && !args.json {
            print_line(&format!(
                "{:>10} {:>10} {:>14} {:>10} {:>10}",
                "time", "steps", "energy", "drift", "momentum"
            ))?;
        }
        Ok(Self {
            args,
            run,
            is_first,
            bar,
            begun: Instant::now(),
            energy,
            latest: energy,
            snapshots: 0,
            last_snapshot: None,
        })
    }

    fn step(&mut self, until: f64) -> Result<bool> {
        let time = self.run.time();
        self.run.step(until).with_context(|| format!("after time {time}"))
    }

    /// Reports time, energy and momentum, and writes a snapshot with `--snapshots`.
    fn report(&mut self) -> Result<()> {
        let (run, now) = (&self.run, self.run.conserved()?);
        self.latest = now.energy();
        if !self.is_first {
            return Ok(());
        }
        let momentum = now.momentum.iter().map(|part| part * part).sum::<f64>().sqrt();
        let (time, steps, energy, drift) =
            (run.time(), run.steps(), now.energy(), self.drift(now.energy()));
        if let Some(folder) = &self.args.snapshots {
            let path = folder.join(snapshot(self.snapshots));
            write_snapshot(&path, run.bodies())?;
            self.snapshots += 1;
            self.last_snapshot = Some(path);
        }
        if self.args.json {
            return print_json(&json!({
                "time": time, "steps": steps, "bodies": run.bodies().len(), "energy": energy,
                "drift": drift,
                "kinetic": now.kinetic, "potential": now.potential, "momentum": now.momentum,
                "angular": now.angular,
                               "seconds": self.begun.elapsed().as_secs_f64(),
                               "snapshot": self.last_snapshot,
            }));
        }
        let line =
            format!("{time:>10.4} {steps:>10} {energy:>14.9} {drift:>10.1e} {momentum:>10.1e}");
        self.bar.suspend(|| print_line(&line))
    }

    /// Ends a run after the report of its last step: writes the picture and prints the drift.
    fn end(self, stopped: bool) -> Result<ExitCode> {
        self.bar.finish_and_clear();
        let (args, run) = (self.args, &self.run);
        let code = if stopped { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS };
        if !self.is_first {
            return Ok(code);
        }
        if let Some(path) = &args.picture {
            let title = format!("{} bodies at {:.3}", run.bodies().len(), run.time());
            std::fs::write(path, picture(run.bodies(), &title))
                .with_context(|| path.display().to_string())?;
        }
        if !args.json {
            let drift = self.drift(self.latest);
            let seconds = self.begun.elapsed().as_secs_f64();
            print_line(&format!("relative energy drift: {drift:.1e} in {} steps", run.steps()))?;
            eprintln!(
                "{seconds:.1} s, {:.0} steps/s",
                run.steps() as f64 / seconds.max(f64::EPSILON)
            );
        }
        if !stopped {
            return Ok(code);
        }
        let written: Vec<_> = self
            .last_snapshot
            .iter()
            .chain(&args.picture)
            .map(|path| path.display().to_string())
            .collect();
        let written = if written.is_empty() {
            String::new()
        } else {
            format!("; wrote {}", written.join(", "))
        };
        eprintln!("sprat: interrupted at time {} of {}{written}", run.time(), args.until);
        Ok(code)
    }

    /// Returns the change of the energy from the beginning of the run, relative to the energy at
    /// the beginning.
    fn drift(&self, energy: f64) -> f64 {
        (energy - self.energy) / self.energy.abs().max(f64::MIN_POSITIVE)
    }
}

fn share(part: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of PARTS")]
    let parts = (part.clamp(0.0, 1.0) * PARTS as f64) as u64;
    parts
}
