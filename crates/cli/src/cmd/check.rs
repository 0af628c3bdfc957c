//! `check`.

use super::{connect, print_json, print_line};
use crate::args::CheckArgs;
use anyhow::{Context as _, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use sprat_cli::check::{Action, Disagreement, Model, Operation, Outcome, Work, key_name};
use sprat_client::{Client, Error, Table, Ticket};
use sprat_wire::op::{Answer, Request, Status};
use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::process::ExitCode;
use std::time::Instant;

/// Operations between two updates of the progress bar: drawing costs more than an operation.
const EVERY: u64 = 64;

/// Seeds made by chance are below: short enough to be typed again.
const SEEDS: u64 = 1_000_000_000;

pub(crate) fn check(args: &CheckArgs) -> Result<ExitCode> {
    let seed = args.seed.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()) % SEEDS);
    let name = args.table.clone().unwrap_or_else(|| format!("check-{seed}"));
    let mut client = connect(&args.connect)?;
    let table = fresh_table(&mut client, &name)?;
    let mut run = Run { client, table, model: Model::default(), under_way: VecDeque::new(), counts: Counts::default() };
    let started = Instant::now();
    let judged = run.through(args, seed);
    let seconds = started.elapsed().as_secs_f64();
    let judged = judged.with_context(|| format!("the check of seed {seed} could not go on; table {name:?} is left"))?;
    if judged.is_ok() && !args.keep {
        run.client.drop_table(&name)?;
    }
    let again = format!("sprat check --operations {} --depth {} --seed {seed}", args.operations, args.depth);
    if args.json {
        print_json(&run.counts.json(seed, seconds, judged.as_ref().err()))?;
    } else if judged.is_ok() {
        print_line(&run.counts.text(seed, seconds))?;
    }
    match judged {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(disagreement) => {
            eprintln!("sprat: {disagreement}");
            eprintln!("sprat: table {name:?} is left for you to look at; to run the same again: {again} --table NAME");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// A table that was not there before: whatever is in one that was is somebody's.
fn fresh_table(client: &mut Client, name: &str) -> Result<Table> {
    match client.table(name) {
        Err(Error::NoSuchTable(_)) => Ok(client.create_table(name)?),
        Err(error) => Err(error.into()),
        Ok(_) => bail!("table {name:?} exists; give another with --table, or drop it: sprat table drop {name}"),
    }
}

/// A check on its way.
struct Run {
    client: Client,
    table: Table,
    model: Model,
    /// From the oldest on; each on another object.
    under_way: VecDeque<(Ticket, Operation)>,
    counts: Counts,
}

impl Run {
    /// All operations, and a look at the whole table at the end: within, what does not agree.
    fn through(&mut self, args: &CheckArgs, seed: u64) -> Result<Result<(), Disagreement>> {
        let style = ProgressStyle::with_template("{bar:32} {pos}/{len} operations  {per_sec}  {eta} left");
        let bar = if args.quiet { ProgressBar::hidden() } else { ProgressBar::new(args.operations) };
        let bar = bar.with_style(style.expect("a constant template"));
        let mut work = Work::new(seed);
        let mut judged = Ok(());
        for _ in 0..args.operations {
            if self.under_way.len() >= args.depth {
                judged = self.take()?;
            }
            if judged.is_err() {
                break;
            }
            let under_way = &self.under_way;
            let operation = work.draw(&self.model, |key| under_way.iter().any(|(_, other)| other.key == key));
            self.begin(operation)?;
            if operation.number.is_multiple_of(EVERY) {
                bar.set_position(operation.number);
            }
        }
        while judged.is_ok() && !self.under_way.is_empty() {
            judged = self.take()?;
        }
        bar.finish_and_clear();
        match judged {
            Ok(()) => self.look_at_all(),
            Err(disagreement) => Ok(Err(disagreement)),
        }
    }

    fn begin(&mut self, operation: Operation) -> Result<()> {
        let (table, key) = (self.table.0, key_name(operation.key));
        let key = key.as_bytes();
        let mut value = Vec::new();
        let request = match operation.action {
            Action::Get => Request::Read { table, key },
            Action::Remove { condition } => Request::Remove { table, key, condition },
            Action::Increment { delta } => Request::IncrementI64 { table, key, delta },
            Action::Put { content, condition } => {
                value = content.bytes();
                Request::Write { table, key, value: &value, condition }
            }
        };
        let ticket = self.client.submit(&request).with_context(|| place(&operation))?;
        self.counts.sent(&operation, value.len());
        self.under_way.push_back((ticket, operation));
        Ok(())
    }

    /// Takes the answer to the oldest operation: within, what does not agree.
    fn take(&mut self) -> Result<Result<(), Disagreement>> {
        let Some((ticket, operation)) = self.under_way.pop_front() else { return Ok(Ok(())) };
        let outcome = match self.client.wait(ticket, |answer| outcome_of(operation.action, answer)) {
            Ok(outcome) => outcome.with_context(|| format!("{}: no sum in its answer", place(&operation)))?,
            Err(Error::Conflict { current }) => Outcome::Conflict { current },
            Err(Error::NotANumber) => Outcome::NotANumber,
            Err(error) => return Err(error).with_context(|| place(&operation)),
        };
        self.counts.came(&outcome);
        Ok(self.model.judge(&operation, &outcome))
    }

    fn look_at_all(&mut self) -> Result<Result<(), Disagreement>> {
        let (mut rows, mut after) = (Vec::new(), None);
        loop {
            let page = self.client.scan(self.table, after)?;
            rows.extend(page.rows);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        self.counts.objects = rows.len();
        Ok(self.model.judge_all(rows.into_iter()))
    }
}

fn place(operation: &Operation) -> String {
    format!("operation {}, {} of {:?}", operation.number, operation.action, key_name(operation.key))
}

/// `None` when an increment's answer is no number.
fn outcome_of(action: Action, answer: &Answer<'_>) -> Option<Outcome> {
    let version = answer.number;
    Some(match action {
        _ if answer.status == Status::NotFound => Outcome::Missing,
        Action::Get => Outcome::Found { version, value: answer.body.to_vec() },
        Action::Put { .. } => Outcome::Stored { version },
        Action::Remove { .. } => Outcome::Removed { version },
        Action::Increment { .. } => Outcome::Summed { sum: i64::from_le_bytes(answer.body.try_into().ok()?), version },
    })
}

/// What was done.
#[derive(Default)]
struct Counts {
    gets: u64,
    puts: u64,
    removals: u64,
    increments: u64,
    /// Answers that told of a condition that does not hold, or of a number that is none.
    refusals: u64,
    bytes_sent: u64,
    bytes_received: u64,
    /// In the table at the end.
    objects: usize,
}

impl Counts {
    fn sent(&mut self, operation: &Operation, bytes: usize) {
        let count = match operation.action {
            Action::Get => &mut self.gets,
            Action::Put { .. } => &mut self.puts,
            Action::Remove { .. } => &mut self.removals,
            Action::Increment { .. } => &mut self.increments,
        };
        *count += 1;
        self.bytes_sent += bytes as u64;
    }

    fn came(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Found { value, .. } => self.bytes_received += value.len() as u64,
            Outcome::Conflict { .. } | Outcome::NotANumber => self.refusals += 1,
            _ => {}
        }
    }

    fn operations(&self) -> u64 {
        self.gets + self.puts + self.removals + self.increments
    }

    fn rate(&self, seconds: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a rate to be read by people")]
        let operations = self.operations() as f64;
        operations / seconds.max(f64::MIN_POSITIVE)
    }

    fn text(&self, seed: u64, seconds: f64) -> String {
        let Self { gets, puts, removals, increments, refusals, bytes_sent, bytes_received, objects } = self;
        format!(
            "{} operations in {seconds:.1} s ({:.0} a second), every answer as it must be\n\
             {gets} gets, {puts} puts, {removals} removals, {increments} increments; {refusals} of them rightly refused; \
             {objects} objects at the end\n\
             {:.1} MB stored, {:.1} MB read; seed {seed}",
            self.operations(),
            self.rate(seconds),
            megabytes(*bytes_sent),
            megabytes(*bytes_received),
        )
    }

    fn json(&self, seed: u64, seconds: f64, disagreement: Option<&Disagreement>) -> Value {
        json!({
            "ok": disagreement.is_none(),
            "seed": seed,
            "operations": self.operations(),
            "gets": self.gets,
            "puts": self.puts,
            "removals": self.removals,
            "increments": self.increments,
            "refusals": self.refusals,
            "bytes_stored": self.bytes_sent,
            "bytes_read": self.bytes_received,
            "objects": self.objects,
            "seconds": seconds,
            "operations_per_second": self.rate(seconds),
            "disagreement": disagreement.map(|one| json!({
                "operation": one.operation,
                "asked": one.asked,
                "key": one.key,
                "expected": one.expected,
                "got": one.got,
            })),
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "megabytes to be read by people")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
