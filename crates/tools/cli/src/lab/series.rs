//! `lab report`, and the files that `--report` and `--series` of boxes write.

use crate::quantity;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use sprat_lab::engine::{Engine, Report};
use sprat_lab::series::{About, History, LineAbout, MAX_LINE_BYTES, Recorder, Sample};
use sprat_measure::report::over_time::{page, picture};
use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What is written down of the time that a box runs.
#[derive(Args, Clone, Debug)]
pub(crate) struct SeriesArgs {
    /// Draw rates, queues, drops and round trips over time into this .svg or .html file at the end.
    #[arg(long, value_name = "FILE", help_heading = "Recording")]
    report: Option<PathBuf>,

    /// Write samples of them to this file while running, as JSON, one value a line.
    #[arg(long, value_name = "FILE", help_heading = "Recording")]
    series: Option<PathBuf>,

    /// Interval between samples of --report and --series, 10ms to 60s.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "100ms",
        value_parser = quantity::sample_interval,
        help_heading = "Recording"
    )]
    every: Duration,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat lab run --port tap:a0@left --port tap:b0@right --delay 100ms --series pipe.jsonl
  sprat lab report pipe.jsonl --out pipe.svg
  sprat lab report pipe.jsonl --out pipe.html --line 'to b0'

The picture shows, for each line, the rates of its largest flows, its queue and drops, and round
trips. A long series is drawn coarser: rates are then means, queues the longest.")]
pub(crate) struct LabReportArgs {
    /// File that `--series` of `sprat lab run` or `up` wrote.
    #[arg(value_name = "SERIES")]
    series: PathBuf,

    /// Picture to write, with a name that ends in .svg or .html.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// Draw only lines whose names contain this, such as `to b0`.
    #[arg(long, value_name = "TEXT")]
    line: Option<String>,
}

/// Draws a series that was written to a file.
pub(crate) fn report(args: &LabReportArgs) -> Result<ExitCode> {
    let form = Form::of(&args.out).context("--out")?;
    let (mut about, history) =
        read(&args.series).with_context(|| args.series.display().to_string())?;
    if let Some(part) = &args.line {
        let names: Vec<_> = about.lines.iter().map(|line| line.line.clone()).collect();
        about.lines.retain(|line| line.line.contains(&part[..]));
        ensure!(
            !about.lines.is_empty(),
            "--line {part:?}: no such line; the lines are {}",
            names.join(", ")
        );
    }
    form.write(&args.out, &about, &history)?;
    eprintln!("sprat: drew {} samples into {}", history.samples().count(), args.out.display());
    Ok(ExitCode::SUCCESS)
}

/// Samples running boxes over time for `--report` and `--series`. Call [`begin`](Self::begin) when
/// the boxes start, [`sample_if_due`](Self::sample_if_due) often while they run, and
/// [`end`](Self::end) with their last reports.
pub(super) struct Series {
    about: About,
    every: Duration,
    recorder: Recorder,
    history: History,
    drawn: Option<(Form, PathBuf)>,
    written: Option<(BufWriter<File>, PathBuf)>,
    began: Instant,
    next: Instant,
}

impl Series {
    /// Returns `None` without `--report` and `--series`. Opens the files now, so that an unwritable
    /// file is an error before the boxes start.
    pub(super) fn new(args: &SeriesArgs) -> Result<Option<Self>> {
        let every = args.every;
        let form = |path: &PathBuf| {
            Ok::<_, anyhow::Error>((Form::of(path).context("--report")?, path.clone()))
        };
        let drawn = args.report.as_ref().map(form).transpose()?;
        let open = |path: &PathBuf| {
            let file =
                File::create(path).with_context(|| format!("--series {}", path.display()))?;
            Ok::<_, anyhow::Error>((BufWriter::new(file), path.clone()))
        };
        let written = args.series.as_ref().map(open).transpose()?;
        if drawn.is_none() && written.is_none() {
            return Ok(None);
        }
        let now = Instant::now();
        let (recorder, history) = (Recorder::new(), History::new());
        Ok(Some(Self {
            about: About::default(),
            every,
            recorder,
            history,
            drawn,
            written,
            began: now,
            next: now,
        }))
    }

    /// Starts the clock. Call it when the boxes start.
    pub(super) fn begin(&mut self, title: String, lines: Vec<LineAbout>) -> Result<()> {
        self.about = About::new(title, lines);
        self.began = Instant::now();
        self.next = self.began + self.every;
        if let Some((file, path)) = &mut self.written {
            write(file, &self.about).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    /// Returns the time until the next sample is due.
    pub(super) fn time_to_sample(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Takes a sample if one is due. Leaves out boxes that have ended: the caller passes their last
    /// reports to [`end`](Self::end).
    pub(super) fn sample_if_due<'a>(
        &mut self,
        boxes: impl Iterator<Item = (String, &'a Engine)>,
    ) -> Result<()> {
        let now = Instant::now();
        if now < self.next {
            return Ok(());
        }
        // Samples that a pause of the machine made late are skipped.
        self.next = (self.next + self.every).max(now);
        let reports: Vec<_> =
            boxes.filter_map(|(name, engine)| Some((name, engine.report().ok()?))).collect();
        self.add(&reports)
    }

    /// Adds the last sample, and draws the picture.
    pub(super) fn end(mut self, reports: &[(String, Report)]) -> Result<()> {
        self.add(reports)?;
        if let Some((mut file, path)) = self.written.take() {
            file.flush().with_context(|| path.display().to_string())?;
        }
        match &self.drawn {
            Some((form, path)) => form.write(path, &self.about, &self.history),
            None => Ok(()),
        }
    }

    fn add(&mut self, reports: &[(String, Report)]) -> Result<()> {
        let Some(sample) = self.recorder.sample(self.began.elapsed().as_secs_f64(), reports) else {
            return Ok(());
        };
        if let Some((file, path)) = &mut self.written {
            write(file, &sample).with_context(|| path.display().to_string())?;
        }
        self.history.push(sample);
        Ok(())
    }
}

fn write(file: &mut BufWriter<File>, value: &impl serde::Serialize) -> Result<()> {
    serde_json::to_writer(&mut *file, value)?;
    file.write_all(b"\n")?;
    // Flushes, so that a program that follows the file sees whole lines.
    Ok(file.flush()?)
}

/// File format of a picture.
#[derive(Clone, Copy)]
enum Form {
    Svg,
    Html,
}

impl Form {
    fn of(path: &Path) -> Result<Self> {
        match path.extension().and_then(|name| name.to_str()) {
            Some("svg") => Ok(Self::Svg),
            Some("html") => Ok(Self::Html),
            _ => bail!("{}: want a name that ends in .svg or .html", path.display()),
        }
    }

    fn write(self, path: &Path, about: &About, history: &History) -> Result<()> {
        let text = match self {
            Self::Svg => picture(about, history.samples()),
            Self::Html => page(about, history.samples()),
        };
        std::fs::write(path, text).with_context(|| path.display().to_string())
    }
}

/// Reads a series from a file. Leaves out an incomplete last line, such as a crash may leave.
fn read(path: &Path) -> Result<(About, History)> {
    let mut file = BufReader::new(File::open(path)?);
    let (mut about, mut history, mut after) = (None, History::new(), 0.0);
    let mut text = Vec::new();
    for number in 1_u64.. {
        text.clear();
        let length = file.by_ref().take(MAX_LINE_BYTES as u64).read_until(b'\n', &mut text)?;
        if length == 0 {
            break;
        }
        ensure!(length < MAX_LINE_BYTES, "line {number}: longer than {MAX_LINE_BYTES} bytes");
        let whole = text.ends_with(b"\n");
        let place =
            || format!("line {number}: not of a series written by `sprat lab run --series`");
        if about.is_none() {
            let read: About = serde_json::from_slice(&text).with_context(place)?;
            read.check()?;
            about = Some(read);
            continue;
        }
        let sample: Sample = match serde_json::from_slice(&text) {
            Ok(sample) => sample,
            Err(_) if !whole => {
                eprintln!("sprat: line {number} was cut short; ignored it");
                break;
            }
            Err(error) => return Err(error).with_context(place),
        };
        sample.check(after).with_context(|| format!("line {number}"))?;
        after = sample.to;
        history.push(sample);
    }
    Ok((about.context("the file is empty")?, history))
}
