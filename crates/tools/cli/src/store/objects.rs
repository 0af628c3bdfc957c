//! `get`, `put`, `del`, `incr` and `ttl`: operations on one object, and on many in one batch.

use crate::connect::{Connect, connect};
use crate::exit::NOT_FOUND;
use crate::output::{
    describe_error, json_bytes, json_number, json_ttl, print_bytes, print_json, print_line,
};
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::{Map, Value, json};
use sprat_client::{
    Batch, BatchResult, Client, Condition, Object, Table, Ttl, split_index_keys, with_index_keys,
};
use sprat_transfer::display_key;
use std::collections::HashSet;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat get users alice
  sprat get users alice --json
  sprat get pictures cat.jpg -o cat.jpg
  sprat get counters visits --number
  sprat get users alice bob carol

Prints the value of one object as it is. Of several objects it prints key, version and value,
separated by tabs; the objects that exist are printed even if others are missing.

Exit codes:
  3  the table or an object does not exist
  5  no answer in time, or no server at the address
  8  the identity does not permit it")]
pub(crate) struct GetArgs {
    #[command(flatten)]
    connect: Connect,
    /// Name of the table.
    table: String,
    /// Key of the object, or keys of several objects, which one request to each server reads.
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<String>,
    /// Write the value to this file, replacing it, instead of standard output; with one key.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print a counter as a number instead of its 8 bytes; fails for other objects.
    #[arg(long, conflicts_with_all = ["json", "output"])]
    number: bool,
    /// Leave out the keys that `sprat put --front` has put in front of the value; with one key.
    #[arg(long, conflicts_with_all = ["json", "number"])]
    skip_front: bool,
    /// Print JSON: key, version and value; of a counter also its number, of an object that expires
    /// also `ttl_ms`. Of several objects, one line each; where there is no object, the version is
    /// null.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat put users alice 'likes tea'
  sprat put pictures cat.jpg -i cat.jpg
  sprat put users alice 'first!' --if-absent
  sprat put users alice 'newer' --if-version 7     fails if its version is not 7
  sprat put sessions 7f3a alice --ttl 10m          expires after ten minutes
  sprat put users alice tea bob coffee             two objects, in one request to each server

Prints the version of the object, which grows with every write. Of several objects it prints key
and version, separated by a tab. Each is written by itself, even if others cannot be written. A
value has at most 1 MiB. Without --ttl the object never expires, even if the one it replaces did.

Exit codes:
  3  the table does not exist
  4  the condition does not hold for an object, which was not changed
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
    /// Keys and values of more objects.
    #[arg(value_name = "KEY VALUE")]
    more: Vec<String>,
    /// Read the value from this file.
    #[arg(short, long, value_name = "FILE", conflicts_with = "value")]
    input: Option<PathBuf>,
    #[command(flatten)]
    condition: ConditionArgs,
    /// Make the change only if the object does not exist.
    #[arg(long, conflicts_with_all = ["if_exists", "if_version"])]
    if_absent: bool,
    /// After how long the object expires, such as 90s or 7d.
    #[arg(long, value_name = "TIME", value_parser = time_to_live)]
    ttl: Option<Ttl>,
    /// Put this key in front of the value, for an index (`sprat index create --front`); repeat it
    /// for more keys. With one object. `sprat get --skip-front` leaves them out.
    #[arg(long, value_name = "KEY")]
    front: Vec<String>,
    /// Print JSON: the new version; of several objects, one line each with key and version.
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
  sprat del users alice bob carol                  in one request to each server

Of several objects it prints key and removed version, separated by a tab. Each is removed by
itself, even if others cannot be removed.

Exit codes:
  3  the table or an object does not exist
  4  the condition does not hold for an object, which was not changed
  5  no answer in time, or no server at the address
  8  the identity does not permit it")]
pub(crate) struct DelArgs {
    #[command(flatten)]
    connect: Connect,
    /// Name of the table.
    table: String,
    /// Key of the object, or keys of several objects.
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<String>,
    #[command(flatten)]
    condition: ConditionArgs,
    /// Print JSON: the removed version; of several objects, one line each with key and version.
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

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat ttl sessions 7f3a                          prints 599s, say, or never
  sprat ttl sessions 7f3a 10m                      expires ten minutes from now
  sprat ttl sessions 7f3a --never

Setting the time changes the object's version, not its value, and prints the version. A write
without --ttl makes the object permanent; an increment leaves the time as it is.

Exit codes:
  3  the table or the object does not exist
  5  no answer in time, or no server at the address
  8  the identity does not permit it")]
pub(crate) struct TtlArgs {
    #[command(flatten)]
    connect: Connect,
    /// Name of the table.
    table: String,
    /// Key of the object.
    key: String,
    /// After how long the object expires, such as 90s or 7d; without it, the time left is printed.
    #[arg(value_name = "TIME", value_parser = time_to_live)]
    ttl: Option<Ttl>,
    /// Let the object never expire.
    #[arg(long, conflicts_with = "ttl")]
    never: bool,
    /// Print JSON: the time left in milliseconds, null for never; or the new version.
    #[arg(long)]
    json: bool,
}

pub(crate) fn get(args: &GetArgs) -> Result<ExitCode> {
    let [key] = &args.keys[..] else { return get_many(args) };
    let mut client = connect(&args.connect)?;
    let table = client.table(&args.table)?;
    let Some(mut object) = client.get(table, key.as_bytes())? else {
        return Ok(missing(key, &args.table));
    };
    if args.skip_front {
        let (_, rest) = split_index_keys(&object.value)
            .with_context(|| format!("object {key:?} has no keys in front of its value"))?;
        object.value = rest.to_vec();
    }
    if let Some(path) = &args.output {
        std::fs::write(path, &object.value)
            .with_context(|| format!("cannot write {}", path.display()))?;
    } else if args.number {
        print_line(&number_of(&object).with_context(|| format!("object {key:?}"))?)?;
    } else if args.json {
        print_json(&json_object(key, &object))?;
    } else {
        // Prints exactly the value's bytes, without a newline, so that a program can read them from
        // a pipe.
        print_bytes(&object.value)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn get_many(args: &GetArgs) -> Result<ExitCode> {
    ensure!(args.output.is_none(), "--output takes the value of one object: give one key");
    ensure!(!args.skip_front, "--skip-front takes one object: give one key");
    let mut client = connect(&args.connect)?;
    let table = client.table(&args.table)?;
    let mut batch = Batch::new();
    for key in &args.keys {
        batch.get(table, key.as_bytes());
    }
    let keys = args.keys.iter().map(String::as_str);
    report_each(&mut client, &batch, (&args.table, keys), |key, result| {
        let BatchResult::Read(object) = result else { unreachable!("a read") };
        let line = match object {
            None if args.json => json!({ "key": key, "version": null }).to_string(),
            None => return Ok(None),
            Some(object) if args.json => json_object(key, object).to_string(),
            Some(object) if args.number => {
                format!("{}\t{}", display_key(key.as_bytes()), number_of(object)?)
            }
            Some(object) => {
                let (key, value) = (display_key(key.as_bytes()), display_key(&object.value));
                format!("{key}\t{}\t{value}", object.version)
            }
        };
        Ok(Some((line, object.is_some())))
    })
}

/// Returns a counter's value as text.
fn number_of(object: &Object) -> Result<String> {
    let len = object.value.len();
    let number = object.number().with_context(|| {
        format!("not a counter: its {len} bytes were written by a put, not by `sprat incr`")
    })?;
    Ok(number.to_string())
}

fn json_object(key: &str, object: &Object) -> Value {
    let mut line = Map::new();
    line.insert("key".into(), key.into());
    line.insert("version".into(), object.version.into());
    json_bytes(&mut line, "value", &object.value);
    json_number(&mut line, object.number());
    json_ttl(&mut line, object.ttl);
    line.into()
}

pub(crate) fn put(args: &PutArgs) -> Result<ExitCode> {
    if !args.more.is_empty() {
        return put_many(args);
    }
    let mut value = match (&args.value, &args.input) {
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
    if !args.front.is_empty() {
        let keys: Vec<&[u8]> = args.front.iter().map(String::as_bytes).collect();
        value = with_index_keys(&keys, &value);
    }
    let mut client = connect(&args.connect)?;
    let table = client.table(&args.table)?;
    let (key, condition) = (args.key.as_bytes(), put_condition(args));
    let version = match args.ttl {
        None => client.put_if(table, key, &value, condition)?,
        Some(ttl) => client.put_for(table, key, &value, ttl, condition)?,
    };
    report(args.json, &json!({ "version": version }), &format!("version {version}"))
}

fn put_condition(args: &PutArgs) -> Condition {
    if args.if_absent { Condition::Absent } else { condition(&args.condition) }
}

fn put_many(args: &PutArgs) -> Result<ExitCode> {
    let first = [Some(&args.key), args.value.as_ref()];
    let all: Vec<&str> =
        first.into_iter().flatten().chain(&args.more).map(String::as_str).collect();
    let (pairs, rest) = all.as_chunks::<2>();
    ensure!(rest.is_empty(), "the last key has no value: give each key a value");
    ensure!(args.front.is_empty(), "--front takes one object: give one key and its value");
    each_once(pairs.iter().map(|[key, _]| *key))?;
    let mut client = connect(&args.connect)?;
    let table = client.table(&args.table)?;
    let mut batch = Batch::new();
    for [key, value] in pairs {
        let (key, value, condition) = (key.as_bytes(), value.as_bytes(), put_condition(args));
        match args.ttl {
            None => batch.put_if(table, key, value, condition),
            Some(ttl) => batch.put_for(table, key, value, ttl, condition),
        };
    }
    let keys = pairs.iter().map(|[key, _]| *key);
    report_each(&mut client, &batch, (&args.table, keys), |key, result| {
        let BatchResult::Written { version } = result else { unreachable!("a write") };
        let line = if args.json {
            json!({ "key": key, "version": version }).to_string()
        } else {
            format!("{}\t{version}", display_key(key.as_bytes()))
        };
        Ok(Some((line, true)))
    })
}

pub(crate) fn del(args: &DelArgs) -> Result<ExitCode> {
    let condition = condition(&args.condition);
    let mut client = connect(&args.connect)?;
    let table = client.table(&args.table)?;
    let [key] = &args.keys[..] else { return del_many(args, &mut client, table, condition) };
    match client.remove_if(table, key.as_bytes(), condition)? {
        Some(version) => report(
            args.json,
            &json!({ "removed_version": version }),
            &format!("removed version {version}"),
        ),
        None => {
            let text = format!("no object {key:?} in table {:?}", args.table);
            report(args.json, &json!({ "removed_version": null }), &text)?;
            Ok(NOT_FOUND.into())
        }
    }
}

fn del_many(
    args: &DelArgs,
    client: &mut Client,
    table: Table,
    condition: Condition,
) -> Result<ExitCode> {
    each_once(args.keys.iter().map(String::as_str))?;
    let mut batch = Batch::new();
    for key in &args.keys {
        batch.remove_if(table, key.as_bytes(), condition);
    }
    let keys = args.keys.iter().map(String::as_str);
    report_each(client, &batch, (&args.table, keys), |key, result| {
        let BatchResult::Removed(version) = result else { unreachable!("a removal") };
        let line = match version {
            _ if args.json => json!({ "key": key, "removed_version": version }).to_string(),
            None => return Ok(None),
            Some(version) => format!("{}\t{version}", display_key(key.as_bytes())),
        };
        Ok(Some((line, version.is_some())))
    })
}

/// Executes a batch of operations on `keys` of a table, and prints for each what `line` makes of
/// the result: the text, and whether there was an object. Missing objects and errors are named on
/// standard error; the last error is returned.
fn report_each<'a>(
    client: &mut Client,
    batch: &Batch<'_>,
    (table, keys): (&str, impl Iterator<Item = &'a str>),
    line: impl Fn(&str, &BatchResult) -> Result<Option<(String, bool)>>,
) -> Result<ExitCode> {
    let (mut code, mut failed) = (ExitCode::SUCCESS, None);
    for (key, result) in keys.zip(client.batch(batch)) {
        let line = result.map_err(anyhow::Error::new).and_then(|result| line(key, &result));
        match line {
            Ok(Some((line, found))) => {
                print_line(&line)?;
                if !found {
                    code = NOT_FOUND.into();
                }
            }
            Ok(None) => code = missing(key, table),
            Err(error) => {
                let error = error.context(format!("object {key:?}"));
                if let Some(earlier) = failed.replace(error) {
                    eprintln!("sprat: {}", describe_error(&earlier));
                }
            }
        }
    }
    failed.map_or(Ok(code), Err)
}

/// Checks that no key is given twice: a batch executes its operations in any order, so the result
/// would be a matter of chance.
fn each_once<'a>(keys: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = HashSet::new();
    for key in keys {
        ensure!(seen.insert(key), "key {key:?} is given twice");
    }
    Ok(())
}

/// Says that there is no such object.
fn missing(key: &str, table: &str) -> ExitCode {
    eprintln!("sprat: no object {key:?} in table {table:?}");
    NOT_FOUND.into()
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

pub(crate) fn ttl(args: &TtlArgs) -> Result<ExitCode> {
    let mut client = connect(&args.connect)?;
    let (table, key) = (client.table(&args.table)?, args.key.as_bytes());
    if args.ttl.is_some() || args.never {
        return match client.set_ttl(table, key, args.ttl)? {
            Some(version) => {
                report(args.json, &json!({ "version": version }), &format!("version {version}"))
            }
            None => Ok(missing(&args.key, &args.table)),
        };
    }
    let Some(object) = client.get(table, key)? else { return Ok(missing(&args.key, &args.table)) };
    let text = match object.ttl.map(Ttl::millis) {
        None => "never".to_owned(),
        Some(millis @ ..10_000) => format!("{millis}ms"),
        Some(millis) => format!("{}s", millis / 1000),
    };
    report(args.json, &json!({ "ttl_ms": object.ttl.map(Ttl::millis) }), &text)
}

/// Parses a time to live.
pub(super) fn time_to_live(text: &str) -> Result<Ttl> {
    Ok(Ttl::of(sprat_units::duration(text)?)?)
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
