//! `get`, `put`, `del` and `incr`: operations on one object.

use crate::connect::{Connect, connect};
use crate::exit::NOT_FOUND;
use crate::output::{json_bytes, json_number, print_bytes, print_json, print_line};
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::{Map, json};
use sprat_client::Condition;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat get users alice
  sprat get users alice --json
  sprat get pictures cat.jpg -o cat.jpg
  sprat get counters visits --number

Exit codes:
  3  the table or the object does not exist
  5  no answer in time, or no server at the address
  8  the identity does not permit it")]
pub(crate) struct GetArgs {
    #[command(flatten)]
    connect: Connect,
    /// Name of the table.
    table: String,
    /// Key of the object.
    key: String,
    /// Write the value to this file, replacing it, instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print a counter as a number instead of its 8 bytes; fails for other objects.
    #[arg(long, conflicts_with_all = ["json", "output"])]
    number: bool,
    /// Print JSON: key, version and value; for a counter also its number.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat put users alice 'likes tea'
  sprat put pictures cat.jpg -i cat.jpg
  sprat put users alice 'first!' --if-absent
  sprat put users alice 'newer' --if-version 7     fails if its version is not 7

Prints the version of the object, which grows with every write. A value has at most 1 MiB.

Exit codes:
  3  the table does not exist
  4  the condition does not hold; nothing was changed
  5  no answer in time, or no server at the address
  8  the identity does not permit it")]
pub(crate) struct PutArgs {
    #[command(flatten)]
    connect: Connect,
    /// Name of the table.
    table: String,
    /// Key of the object.
    key: String,
    /// Value; without it, the value is read from --input or from standard input.
    value: Option<String>,
    /// Read the value from this file.
    #[arg(short, long, value_name = "FILE", conflicts_with = "value")]
    input: Option<PathBuf>,
    #[command(flatten)]
    condition: ConditionArgs,
    /// Make the change only if the object does not exist.
    #[arg(long, conflicts_with_all = ["if_exists", "if_version"])]
    if_absent: bool,
    /// Print JSON: the new version.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ConditionArgs {
    /// Make the change only if the object exists.
    #[arg(long)]
    if_exists: bool,
    /// Make the change only if the object has this version.
    #[arg(long, value_name = "N", conflicts_with = "if_exists")]
    if_version: Option<u64>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat del users alice
  sprat del users alice --if-version 7

Exit codes:
  3  the table or the object does not exist
  4  the condition does not hold; nothing was changed
  5  no answer in time, or no server at the address
  8  the identity does not permit it")]
pub(crate) struct DelArgs {
    #[command(flatten)]
    connect: Connect,
    /// Name of the table.
    table: String,
    /// Key of the object.
    key: String,
    #[command(flatten)]
    condition: ConditionArgs,
    /// Print JSON: the removed version.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat incr counters visits
  sprat incr counters visits -- -5
  sprat incr counters temperature 0.5 --double

Prints the sum. A counter that does not exist starts at 0; its first increment decides whether
it holds integers or doubles.

Exit codes:
  3  the table does not exist
  5  no answer in time, or no server at the address
  8  the identity does not permit it")]
pub(crate) struct IncrArgs {
    #[command(flatten)]
    connect: Connect,
    /// Name of the table.
    table: String,
    /// Key of the object.
    key: String,
    /// Number to add.
    #[arg(default_value = "1", allow_negative_numbers = true)]
    delta: String,
    /// Add a double to a counter of doubles, instead of an integer to one of 64-bit integers.
    #[arg(long)]
    double: bool,
    /// Print JSON: the sum and the version.
    #[arg(long)]
    json: bool,
}

pub(crate) fn get(args: &GetArgs) -> Result<ExitCode> {
    let mut client = connect(&args.connect)?;
    let table = client.table(&args.table)?;
    let Some(object) = client.get(table, args.key.as_bytes())? else {
        eprintln!("sprat: no object {:?} in table {:?}", args.key, args.table);
        return Ok(NOT_FOUND.into());
    };
    if let Some(path) = &args.output {
        std::fs::write(path, &object.value)
            .with_context(|| format!("cannot write {}", path.display()))?;
    } else if args.number {
        let (key, len) = (&args.key, object.value.len());
        let number = object.number().with_context(|| {
            format!(
                "object {key:?} is not a counter: its {len} bytes were written by a put, not by \
                 `sprat incr`"
            )
        })?;
        print_line(&number.to_string())?;
    } else if args.json {
        let mut line = Map::new();
        line.insert("key".into(), args.key.clone().into());
        line.insert("version".into(), object.version.into());
        json_bytes(&mut line, "value", &object.value);
        json_number(&mut line, object.number());
        print_json(&line.into())?;
    } else {
        // Prints exactly the value's bytes, without a newline, so that a program can read them from
        // a pipe.
        print_bytes(&object.value)?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn put(args: &PutArgs) -> Result<ExitCode> {
    let value = match (&args.value, &args.input) {
        (Some(value), _) => value.clone().into_bytes(),
        (None, Some(path)) => {
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?
        }
        (None, None) => {
            let mut value = Vec::new();
            std::io::stdin()
                .lock()
                .read_to_end(&mut value)
                .context("cannot read the value from standard input")?;
            value
        }
    };
    let condition = if args.if_absent { Condition::Absent } else { condition(&args.condition) };
    let mut client = connect(&args.connect)?;
    let table = client.table(&args.table)?;
    let version = client.put_if(table, args.key.as_bytes(), &value, condition)?;
    report(args.json, &json!({ "version": version }), &format!("version {version}"))
}

pub(crate) fn del(args: &DelArgs) -> Result<ExitCode> {
    let mut client = connect(&args.connect)?;
    let table = client.table(&args.table)?;
    match client.remove_if(table, args.key.as_bytes(), condition(&args.condition))? {
        Some(version) => report(
            args.json,
            &json!({ "removed_version": version }),
            &format!("removed version {version}"),
        ),
        None => {
            let text = format!("no object {:?} in table {:?}", args.key, args.table);
            report(args.json, &json!({ "removed_version": null }), &text)?;
            Ok(NOT_FOUND.into())
        }
    }
}

pub(crate) fn incr(args: &IncrArgs) -> Result<ExitCode> {
    let mut client = connect(&args.connect)?;
    let table = client.table(&args.table)?;
    let (value, version, text) = if args.double {
        let delta: f64 =
            args.delta.parse().with_context(|| format!("{:?} is not a number", args.delta))?;
        ensure!(delta.is_finite(), "cannot add {:?}: want a finite number", args.delta);
        let (value, version) = client.increment_f64(table, args.key.as_bytes(), delta)?;
        (json!(value), version, value.to_string())
    } else {
        let hint =
            || format!("{:?} is not a 64-bit integer; add --double for fractions", args.delta);
        let delta: i64 = args.delta.parse().with_context(hint)?;
        let (value, version) = client.increment_i64(table, args.key.as_bytes(), delta)?;
        (json!(value), version, value.to_string())
    };
    report(args.json, &json!({ "value": value, "version": version }), &text)
}

fn condition(args: &ConditionArgs) -> Condition {
    match (args.if_version, args.if_exists) {
        (Some(version), _) => Condition::Version(version),
        (None, true) => Condition::Exists,
        (None, false) => Condition::None,
    }
}

fn report(json: bool, value: &serde_json::Value, text: &str) -> Result<ExitCode> {
    if json {
        print_json(value)?
    } else {
        print_line(text)?
    }
    Ok(ExitCode::SUCCESS)
}
