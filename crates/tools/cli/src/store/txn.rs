//! `txn`: a small script whose steps take effect together or not at all.

use crate::connect::{Connect, connect};
use crate::exit::CONFLICT;
use crate::output::{json_bytes, print_json, print_line};
use crate::store::objects::time_to_live;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde_json::{Map, json};
use sprat_client::{Error, Table, Transaction, Ttl};
use sprat_transfer::display_key;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat txn 'add accounts alice -10' 'add accounts bob 10'
  sprat txn 'absent seats 12A' 'put seats 12A alice' 'put guests alice 12A'
  sprat txn --file move.txt
  echo 'get accounts alice' | sprat txn --json

Steps, in order; words with spaces stand in quotes, as in a shell:
  get TABLE KEY            print the object's value
  put TABLE KEY VALUE [--ttl TIME]
                           write the object; with --ttl it expires
  del TABLE KEY            remove the object, if there is one
  add TABLE KEY NUMBER     add to a whole number in digits; no object counts as 0
  equal TABLE KEY VALUE    go on only if the object has this value
  absent TABLE KEY         go on only if there is no such object

All steps see the objects as they were at one moment, and all changes take effect at that moment.
If other clients change the objects meanwhile, the steps are executed again; output is printed
once, after all is done.

Exit codes:
  3  a table does not exist
  4  an `equal` or `absent` does not hold, or other clients changed the objects again and again;
     nothing was changed
  5  no answer in time, or no server at the address
  8  the identity does not permit it")]
pub(crate) struct TxnArgs {
    #[command(flatten)]
    connect: Connect,
    /// Steps; without steps, they are read from --file or standard input, one a line. A line that
    /// begins with # is a comment.
    #[arg(value_name = "STEP")]
    steps: Vec<String>,
    /// Read the steps from this file.
    #[arg(short, long, value_name = "FILE", conflicts_with = "steps")]
    file: Option<PathBuf>,
    /// Print JSON: the objects that `get` steps have read, each with table, key and value, which is
    /// null where there is no object.
    #[arg(long)]
    json: bool,
}

/// What a step does with its object.
enum Action {
    Get,
    Put(String, Option<Ttl>),
    Del,
    Add(i64),
    Equal(String),
    Absent,
}

struct Step {
    text: String,
    table: String,
    key: String,
    action: Action,
}

impl Step {
    fn parse(text: &str) -> Result<Self> {
        let words = shlex::split(text).context("a quote is not closed")?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (table, key, action) = match words[..] {
            ["get", table, key] => (table, key, Action::Get),
            ["put", table, key, value] => (table, key, Action::Put(value.to_owned(), None)),
            ["put", table, key, value, "--ttl", ttl] => {
                (table, key, Action::Put(value.to_owned(), Some(time_to_live(ttl)?)))
            }
            ["del", table, key] => (table, key, Action::Del),
            ["add", table, key, number] => {
                let number = number.parse();
                let number =
                    number.with_context(|| format!("{:?} is no whole number", words[3]))?;
                (table, key, Action::Add(number))
            }
            ["equal", table, key, value] => (table, key, Action::Equal(value.to_owned())),
            ["absent", table, key] => (table, key, Action::Absent),
            [name @ ("get" | "del" | "absent"), ..] => bail!("want: {name} TABLE KEY"),
            ["put", ..] => bail!("want: put TABLE KEY VALUE [--ttl TIME]"),
            ["equal", ..] => bail!("want: equal TABLE KEY VALUE"),
            ["add", ..] => bail!("want: add TABLE KEY NUMBER"),
            [name, ..] => bail!("no step {name:?}; there are get, put, del, add, equal and absent"),
            [] => bail!("an empty step"),
        };
        let (table, key) = (table.to_owned(), key.to_owned());
        Ok(Self { text: text.to_owned(), table, key, action })
    }
}

/// Why the steps ended without effect.
enum Stop {
    Client(Error),
    /// A condition does not hold.
    Unmet(String),
    /// A step cannot be executed.
    Step(anyhow::Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

pub(crate) fn txn(args: &TxnArgs) -> Result<ExitCode> {
    let lines = match (&args.steps[..], &args.file) {
        ([], Some(path)) => lines_of(
            &std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?,
        ),
        ([], None) => lines_of(
            &std::io::read_to_string(std::io::stdin().lock())
                .context("cannot read the steps from standard input")?,
        ),
        (steps, _) => steps.to_vec(),
    };
    let parsed = |line: &String| Step::parse(line).with_context(|| format!("step `{line}`"));
    let steps: Vec<Step> = lines.iter().map(parsed).collect::<Result<_>>()?;
    ensure!(!steps.is_empty(), "no steps; `sprat txn --help` has examples");
    let mut client = connect(&args.connect)?;
    let mut tables = BTreeMap::new();
    for Step { table, .. } in &steps {
        if !tables.contains_key(table) {
            tables.insert(table.clone(), client.table(table)?);
        }
    }
    let result = client.transact(|transaction| execute(transaction, &steps, &tables));
    // If the decision does not reach the servers, they find out without this client.
    let _ = client.settle();
    let values = match result {
        Ok(values) => values,
        Err(Stop::Client(error)) => return Err(error.into()),
        Err(Stop::Step(error)) => return Err(error),
        Err(Stop::Unmet(reason)) => {
            eprintln!("sprat: {reason}; nothing was changed");
            return Ok(CONFLICT.into());
        }
    };
    let reads = steps.iter().filter(|step| matches!(step.action, Action::Get)).zip(values);
    if args.json {
        let read = reads.map(|(Step { table, key, .. }, value)| {
            let mut object = Map::new();
            object.insert("table".into(), table.as_str().into());
            object.insert("key".into(), key.as_str().into());
            match value {
                Some(value) => json_bytes(&mut object, "value", &value),
                None => drop(object.insert("value".into(), json!(null))),
            }
            object
        });
        print_json(&json!({ "read": read.collect::<Vec<_>>() }))?;
    } else {
        for (Step { table, key, .. }, value) in reads {
            let value = value.map_or("(no object)".into(), |value| display_key(&value));
            print_line(&format!("{table}\t{}\t{value}", display_key(key.as_bytes())))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the lines of a script without comments.
fn lines_of(script: &str) -> Vec<String> {
    let lines = script.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// Executes the steps; returns the values that `get` steps have read.
fn execute(
    transaction: &mut Transaction<'_>,
    steps: &[Step],
    tables: &BTreeMap<String, Table>,
) -> Result<Vec<Option<Vec<u8>>>, Stop> {
    let objects: Vec<_> =
        steps.iter().map(|step| (tables[&step.table], step.key.as_bytes())).collect();
    // One request to each server reads all objects that are needed.
    let needed = |(step, _): &(&Step, _)| !matches!(step.action, Action::Put(..) | Action::Del);
    let needed: Vec<_> =
        steps.iter().zip(&objects).filter(needed).map(|(_, object)| *object).collect();
    transaction.get_many(&needed)?;
    let mut values = Vec::new();
    for (Step { text, action, .. }, (table, key)) in steps.iter().zip(objects) {
        let shown = |value: &Option<Vec<u8>>| match value {
            Some(value) => format!("the value is {:?}", String::from_utf8_lossy(value)),
            None => "there is no such object".to_owned(),
        };
        match action {
            Action::Get => values.push(transaction.get(table, key)?),
            Action::Put(value, None) => transaction.put(table, key, value.as_str()),
            Action::Put(value, Some(ttl)) => transaction.put_for(table, key, value.as_str(), *ttl),
            Action::Del => transaction.remove(table, key),
            Action::Add(number) => {
                let value = transaction.get(table, key)?;
                let sum = add(value.as_deref(), *number);
                let sum = sum.with_context(|| format!("step `{text}`")).map_err(Stop::Step)?;
                transaction.put(table, key, sum.to_string());
            }
            Action::Equal(wanted) => {
                let value = transaction.get(table, key)?;
                if value.as_deref() != Some(wanted.as_bytes()) {
                    return Err(Stop::Unmet(format!("`{text}` does not hold: {}", shown(&value))));
                }
            }
            Action::Absent => {
                let value = transaction.get(table, key)?;
                if value.is_some() {
                    return Err(Stop::Unmet(format!("`{text}` does not hold: {}", shown(&value))));
                }
            }
        }
    }
    Ok(values)
}

fn add(value: Option<&[u8]>, number: i64) -> Result<i64> {
    let Some(value) = value else { return Ok(number) };
    let text = String::from_utf8_lossy(value);
    let present: i64 =
        text.parse().with_context(|| format!("the value {text:?} is no whole number in digits"))?;
    present.checked_add(number).with_context(|| format!("{present} + {number} is too large"))
}
