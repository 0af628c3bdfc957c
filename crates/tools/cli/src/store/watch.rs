//! `watch`: prints the changes of a table.

use crate::connect::Connect;
use crate::output::{json_bytes, json_number, json_ttl};
use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sprat_client::{AsyncClient, Change, Range, Table, Watch, WatchFrom};
use sprat_transfer::display_key;
use std::fs;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat watch users                        what changes from now on, until Ctrl-C
  sprat watch users --list                 first all objects
  sprat watch users --state users.state    first what has changed since it last ran
  sprat watch users --json | jq .key
  sprat watch users --for 10s --count 100

Prints each change on a line, with tabs between its parts:
  put KEY VERSION VALUE    the object was stored or changed, or is listed
  removed KEY              it was removed, has expired or was evicted
  list FIRST..LAST         the watch has missed changes of the objects at these positions of the
                           table, and lists all that exist there
  listed FIRST..LAST       the list is complete: no other objects exist there

Each change is printed at least once, unless the same object has changed again meanwhile; changes of
one object in order. Servers note changes for a minute after a watch has ended, in bounded memory.
After longer, and when a part of the table has moved or its server has failed, it is listed again.
With --json each line also has the position of its object.

Exit codes:
  3  the table does not exist, or was dropped
  5  no server at the address
  8  the identity does not permit it")]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    connect: Connect,
    /// Name of the table.
    table: String,
    /// First list all objects.
    #[arg(long)]
    list: bool,
    /// Keep in this file what was printed, and begin there. If there is no such file, first list
    /// all objects.
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    state: Option<PathBuf>,
    /// Print keys without values.
    #[arg(long)]
    keys: bool,
    /// Stop after N lines or a few more.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Stop after this time.
    #[arg(long = "for", value_name = "TIME", value_parser = sprat_units::duration)]
    time: Option<Duration>,
    /// Print JSON, one value a line.
    #[arg(long)]
    json: bool,
}

/// How long to wait for changes at a time.
const WAIT: Duration = Duration::from_secs(1);

/// Format of the file of `--state`.
const FORMAT: u32 = 1;

/// What the file of `--state` has.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct StateFile {
    format: u32,
    /// Id of the table.
    table: u32,
    /// The watch's cursor, in base64.
    cursor: String,
}

pub(crate) fn watch(args: &WatchArgs) -> Result<ExitCode> {
    let client = AsyncClient::connect(&args.connect.options()?)?;
    let table = client.table(&args.table).wait()?;
    let mut watch = begin(args, &client, table)?;
    let (begun, mut printed) = (Instant::now(), 0);
    let mut trouble = None;
    loop {
        let left = args.time.map_or(WAIT, |time| WAIT.min(time.saturating_sub(begun.elapsed())));
        let is_over = left.is_zero() || args.count.is_some_and(|count| printed >= count);
        if is_over {
            return Ok(ExitCode::SUCCESS);
        }
        match watch.wait(left) {
            Ok(changes) => {
                print(args, &watch, &changes)?;
                printed += changes.len() as u64;
                if let Some(path) = &args.state
                    && !changes.is_empty()
                {
                    keep(path, table, &watch)?;
                }
                if !changes.is_empty() {
                    trouble = None;
                }
            }
            // A watch changes nothing, so it may ask again in either case.
            Err(error) if error.is_retryable() || error.is_indeterminate() => {
                let error = error.to_string();
                if trouble.as_ref() != Some(&error) {
                    eprintln!("sprat: waiting: {error}");
                    trouble = Some(error);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Begins the watch where the flags say.
fn begin(args: &WatchArgs, client: &AsyncClient, table: Table) -> Result<Watch> {
    let from_start = if args.list { WatchFrom::List } else { WatchFrom::Now };
    let Some(path) = &args.state else { return Ok(Watch::new(client, table, from_start)?) };
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(Watch::new(client, table, WatchFrom::List)?);
        }
        text => text.with_context(|| path.display().to_string())?,
    };
    let state: StateFile = serde_json::from_str(&text)
        .with_context(|| format!("{}: not a file of `sprat watch --state`", path.display()))?;
    if state.format != FORMAT {
        bail!("{}: is of another version of Sprat", path.display());
    }
    if state.table != table.0 {
        let name = &args.table;
        eprintln!("sprat: {}: is of another table than {name:?} is now", path.display());
        return Ok(Watch::new(client, table, WatchFrom::List)?);
    }
    let cursor = STANDARD.decode(&state.cursor).with_context(|| path.display().to_string())?;
    let watch = Watch::new(client, table, WatchFrom::Cursor(&cursor));
    watch.with_context(|| path.display().to_string())
}

/// Keeps in a file what was printed.
fn keep(path: &Path, table: Table, watch: &Watch) -> Result<()> {
    let cursor = STANDARD.encode(watch.cursor());
    let state = StateFile { format: FORMAT, table: table.0, cursor };
    Ok(sprat_host::replace(path, &serde_json::to_vec(&state)?)?)
}

fn print(args: &WatchArgs, watch: &Watch, changes: &[Change]) -> Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut written = Ok(());
    for change in changes {
        let line = match args.json {
            true => json(args, watch, change).to_string(),
            false => line(args, change),
        };
        written = written.and_then(|()| writeln!(out, "{line}"));
    }
    written.and_then(|()| out.flush()).context("cannot write to standard output")
}

fn line(args: &WatchArgs, change: &Change) -> String {
    match change {
        Change::Present(row) if args.keys => {
            format!("put\t{}\t{}", display_key(&row.key), row.version)
        }
        Change::Present(row) => {
            let (key, value) = (display_key(&row.key), display_key(&row.value));
            format!("put\t{key}\t{}\t{value}", row.version)
        }
        Change::Removed(key) => format!("removed\t{}", display_key(key)),
        Change::ListBegins(range) => format!("list\t{}", positions(*range)),
        Change::ListEnds(range) => format!("listed\t{}", positions(*range)),
    }
}

fn json(args: &WatchArgs, watch: &Watch, change: &Change) -> Value {
    let mut line = Map::new();
    let mut object = |event: &str, key: &[u8]| {
        line.insert("event".into(), event.into());
        json_bytes(&mut line, "key", key);
        let position = watch.position(key).unwrap_or_default();
        line.insert("position".into(), hexadecimal(position).into());
    };
    match change {
        Change::Present(row) => {
            object("put", &row.key);
            line.insert("version".into(), row.version.into());
            if !args.keys {
                json_bytes(&mut line, "value", &row.value);
                json_number(&mut line, row.number());
                json_ttl(&mut line, row.ttl);
            }
        }
        Change::Removed(key) => object("removed", key),
        Change::ListBegins(range) | Change::ListEnds(range) => {
            let begins = matches!(change, Change::ListBegins(_));
            line.insert("event".into(), if begins { "list" } else { "listed" }.into());
            line.insert("first".into(), hexadecimal(range.first).into());
            line.insert("last".into(), hexadecimal(range.last).into());
        }
    }
    Value::Object(line)
}

fn positions(range: Range) -> String {
    format!("{}..{}", hexadecimal(range.first), hexadecimal(range.last))
}

fn hexadecimal(position: u64) -> String {
    format!("{position:016x}")
}
