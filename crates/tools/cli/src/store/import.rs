//! `import`: loads files, CSV or JSON lines into a table.

use crate::connect::{Connect, connect};
use crate::exit::INCOMPLETE;
use crate::output::{print_json, print_line};
use crate::progress::Bar;
use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::json;
use sprat_client::{Client, Condition, Error as ClientError, Table, Ticket};
use sprat_transfer::{
    Column, CsvImport, CsvSource, Error, Item, ItemSink, ItemSource, JsonlImport, JsonlSource,
    JsonlValue, LargePolicy, Omitted, TreeSource, pump,
};
use sprat_wire::op::Request;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum FormatArg {
    /// Directory tree: each file's path and bytes.
    Tree,
    /// Comma-separated values (tab-separated in .tsv files).
    Csv,
    /// JSON lines: one object a line.
    Jsonl,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat import sources ~/project                 every file; the key is its path
  sprat import users users.csv --key id          every row; the key is column id
  sprat import users pairs.csv                   columns `key` and `value`
  sprat import events events.jsonl --key uuid    every line; the key is field uuid

Of a tree, symbolic links and special files are skipped and named; modes and times are not
kept. A column `encoding`, which `sprat export` writes, says what is in base64: `key`, `value`
or `both`.

Exit codes:
  5  no answer in time, or no server at the address
  8  the identity does not permit it")]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    connect: Connect,
    /// Name of the table; created if it does not exist.
    table: String,
    /// Directory or file to read.
    source: PathBuf,
    /// Format of the source [default: by its file name extension].
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// Column or field that is the key, a number from 0 with --no-header; the value is the whole
    /// row or line. Without --key, columns or fields `key` and `value` are an object.
    #[arg(long, value_name = "NAME")]
    key: Option<String>,
    /// Read a CSV file without a header row; without --key, its first two columns are key and
    /// value.
    #[arg(long)]
    no_header: bool,
    /// Skip values over 1 MiB instead of failing.
    #[arg(long)]
    skip_large: bool,
    /// Hide the progress bar.
    #[arg(short, long)]
    quiet: bool,
    /// Print JSON: the totals.
    #[arg(long)]
    json: bool,
}

/// Limit on the writes in flight at once.
const WINDOW: usize = 64;

/// Limit on the bytes of values in flight at once.
const WINDOW_BYTES: usize = 4 << 20;

pub(crate) fn import(args: &ImportArgs) -> Result<ExitCode> {
    let mut source = open(args)?;
    let mut client = connect(&args.connect)?;
    let table = match client.table(&args.table) {
        Err(ClientError::NoSuchTable(_)) => client.create_table(&args.table)?,
        found => found?,
    };
    let started = Instant::now();
    let bar = Bar::new(source.total_bytes(), args.quiet || args.json);
    let mut sink = TableSink::new(&mut client, table);
    let moved = pump(&mut *source, &mut sink, &mut |progress| bar.show(&progress));
    let finished = moved.and_then(|moved| sink.finish().map(|()| moved));
    bar.done();
    let moved = finished?;
    let seconds = started.elapsed().as_secs_f64();
    let omitted = source.omitted();
    warn_of_omitted(omitted);
    if args.json {
        print_json(&json!({
            "objects": moved.items, "bytes": moved.bytes, "seconds": seconds,
            "left_out": omitted.count(),
        }))?;
    } else {
        print_line(&format!(
            "{} into table {:?}",
            summary(moved.items, moved.bytes, seconds),
            args.table
        ))?;
    }
    Ok(if omitted.failures() > 0 { INCOMPLETE.into() } else { ExitCode::SUCCESS })
}

/// Renders a summary such as `12345 objects, 67.8 MB in 0.9 s (75.3 MB/s)`.
pub(super) fn summary(items: u64, bytes: u64, seconds: f64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let megabytes = bytes as f64 / 1e6;
    format!(
        "{items} objects, {megabytes:.1} MB in {seconds:.1} s ({:.1} MB/s)",
        megabytes / seconds.max(1e-9)
    )
}

/// Prints to standard error the first names of the items that were left out, and how many more
/// there are.
pub(super) fn warn_of_omitted(omitted: &Omitted) {
    for (name, why) in omitted.named() {
        eprintln!("sprat: left out {name}: {why}");
    }
    let more = omitted.count() - omitted.named().len() as u64;
    if more > 0 {
        eprintln!("sprat: left out {more} more");
    }
}

/// Returns the given format, or the format that the path implies: a tree for a folder or for a new
/// path without an extension, otherwise the format of its extension.
pub(super) fn format_of(path: &Path, given: Option<FormatArg>) -> Result<FormatArg> {
    if let Some(given) = given {
        return Ok(given);
    }
    match path.extension().and_then(|extension| extension.to_str()) {
        _ if path.is_dir() => Ok(FormatArg::Tree),
        Some("csv" | "tsv") => Ok(FormatArg::Csv),
        Some("jsonl" | "ndjson") => Ok(FormatArg::Jsonl),
        None if !path.exists() => Ok(FormatArg::Tree),
        _ => bail!(
            "{}: unknown file name extension; add --format tree, csv or jsonl",
            path.display()
        ),
    }
}

/// Returns the field separator of a file with this name.
pub(super) fn delimiter(path: &Path) -> u8 {
    if path.extension().is_some_and(|extension| extension == "tsv") { b'\t' } else { b',' }
}

fn open(args: &ImportArgs) -> Result<Box<dyn ItemSource>> {
    let large = if args.skip_large { LargePolicy::Skip } else { LargePolicy::Refuse };
    let path = &args.source;
    let name = path.display().to_string();
    let format = format_of(path, args.format)?;
    if format == FormatArg::Tree {
        return Ok(Box::new(TreeSource::open(path, large)?));
    }
    let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
    let total =
        file.metadata().ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len());
    let reader: Box<dyn BufRead> = Box::new(BufReader::with_capacity(1 << 20, file));
    Ok(match (format, &args.key) {
        (FormatArg::Csv, key) => {
            let how = match key {
                Some(key) => CsvImport::rows(column(key, args.no_header)),
                None if args.no_header => CsvImport::headless_pairs(),
                None => CsvImport::pairs(),
            };
            let header = !args.no_header;
            let how = CsvImport {
                header,
                keep_header: header && key.is_some(),
                delimiter: delimiter(path),
                large,
                ..how
            };
            Box::new(CsvSource::new(reader, &name, total, how))
        }
        (_, Some(key)) => {
            let how = JsonlImport { key: key.clone(), value: JsonlValue::Line, large };
            Box::new(JsonlSource::new(reader, &name, total, how))
        }
        (_, None) => Box::new(JsonlSource::new(
            reader,
            &name,
            total,
            JsonlImport { large, ..JsonlImport::pairs() },
        )),
    })
}

fn column(name: &str, no_header: bool) -> Column {
    match name.parse() {
        Ok(index) if no_header => Column::Index(index),
        _ => Column::Name(name.to_owned()),
    }
}

/// A sink that writes items to a table, with many writes in flight at once.
struct TableSink<'a> {
    client: &'a mut Client,
    table: Table,
    under_way: VecDeque<WriteInFlight>,
    bytes: usize,
    nothing: Omitted,
}

struct WriteInFlight {
    ticket: Ticket,
    key: Vec<u8>,
    bytes: usize,
}

impl<'a> TableSink<'a> {
    fn new(client: &'a mut Client, table: Table) -> Self {
        Self { client, table, under_way: VecDeque::new(), bytes: 0, nothing: Omitted::default() }
    }

    /// Waits for the oldest write in flight.
    fn wait(&mut self) -> Result<(), Error> {
        let Some(oldest) = self.under_way.pop_front() else { return Ok(()) };
        self.bytes -= oldest.bytes;
        self.client.wait(oldest.ticket, |_| ()).map_err(Error::table)
    }

    fn finish(mut self) -> Result<(), Error> {
        while !self.under_way.is_empty() {
            self.wait()?;
        }
        Ok(())
    }
}

impl ItemSink for TableSink<'_> {
    fn put(&mut self, item: &Item) -> Result<(), Error> {
        let bytes = item.value.len();
        // If one of two writes to a key is sent again, they can be executed in the other order, and
        // the last row of a key must win.
        let is_under_way =
            |all: &VecDeque<WriteInFlight>| all.iter().any(|one| one.key == item.key);
        while self.under_way.len() >= WINDOW
            || (self.bytes > 0 && self.bytes + bytes > WINDOW_BYTES)
            || is_under_way(&self.under_way)
        {
            self.wait()?;
        }
        let request = Request::Write {
            table: self.table.0,
            key: &item.key,
            value: &item.value,
            condition: Condition::None,
            ttl: None,
        };
        let ticket = self.client.submit(&request).map_err(Error::table)?;
        self.under_way.push_back(WriteInFlight { ticket, key: item.key.clone(), bytes });
        self.bytes += bytes;
        Ok(())
    }

    fn omitted(&self) -> &Omitted {
        &self.nothing
    }
}
