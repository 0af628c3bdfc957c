//! `export`: writes a table to files, CSV or JSON lines.

use crate::connect::{Connect, connect};
use crate::exit::INCOMPLETE;
use crate::progress::Bar;
use crate::store::import::{FormatArg, delimiter, format_of, summary, warn_of_omitted};
use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::json;
use sprat_client::{Client, Row, Table, ValueType};
use sprat_transfer::{
    CSV_HEADER_KEY, CsvExport, CsvSink, Error, Item, ItemSource, JsonlExport, JsonlSink, Omitted,
    OutFile, Progress, TreeSink, pump,
};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat export sources /tmp/copy                 a directory tree
  sprat export users users.csv
  sprat export events events.jsonl --rows        the lines that were imported with --key
  sprat export events - --format jsonl | head

The target appears when it is complete. A tree leaves out keys that are not safe relative
paths, such as /a or ../a, and names them.

Exit codes:
  3  the table does not exist
  5  no answer in time, or no server at the address
  6  done, but some objects were left out
  8  the identity does not permit it")]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    connect: Connect,
    /// Name of the table.
    table: String,
    /// Directory or file to write, which must not exist; `-` is standard output.
    target: PathBuf,
    /// Format of the target [default: by its file name extension; without one, tree].
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// Write only the values, each as a row or line, as imported with `import --key`. A table
    /// imported from CSV with a header is always written so.
    #[arg(long)]
    rows: bool,
    /// Hide the progress bar.
    #[arg(short, long)]
    quiet: bool,
    /// Print JSON to standard error: the totals.
    #[arg(long)]
    json: bool,
}

pub(crate) fn export(args: &ExportArgs) -> Result<ExitCode> {
    let to_stdout = args.target.as_os_str() == "-";
    let format = match (to_stdout, args.format) {
        (true, None | Some(FormatArg::Tree)) => {
            anyhow::bail!("an export to standard output needs --format csv or --format jsonl")
        }
        (true, Some(format)) => format,
        (false, given) => format_of(&args.target, given)?,
    };
    let mut client = connect(&args.connect)?;
    let table = client.table(&args.table)?;
    let header = client.get(table, CSV_HEADER_KEY)?.map(|object| object.value);
    let started = Instant::now();
    let bar = Bar::new(None, args.quiet || args.json || to_stdout);
    let mut source = TableSource::new(&mut client, table);
    let show = &mut |progress: Progress| bar.show(&progress);
    let target = &args.target;
    let (moved, omitted) = match format {
        FormatArg::Tree => {
            let mut sink = TreeSink::create(target)?;
            let moved = pump(&mut source, &mut sink, show)?;
            (moved, sink.publish()?)
        }
        _ if to_stdout => {
            let out = BufWriter::new(std::io::stdout().lock());
            let (moved, omitted, mut out) = rows(&mut source, out, format, args, header, show)?;
            out.flush().context("cannot write to standard output")?;
            (moved, omitted)
        }
        _ => {
            let (moved, omitted, out) =
                rows(&mut source, OutFile::create(target)?, format, args, header, show)?;
            out.publish()?;
            (moved, omitted)
        }
    };
    bar.done();
    warn_of_omitted(&omitted);
    if source.expiring > 0 {
        eprintln!(
            "sprat: {} of the objects expire; the export does not say when, so an import of it \
             makes them permanent",
            source.expiring
        );
    }
    let collections = source.collections;
    if collections > 0 {
        eprintln!("sprat: {}", without_collections(collections));
    }
    let seconds = started.elapsed().as_secs_f64();
    if args.json {
        let totals = json!({
            "objects": moved.items, "bytes": moved.bytes, "seconds": seconds,
            "left_out": omitted.count() + collections,
        });
        eprintln!("{totals}");
    } else if !args.quiet {
        eprintln!("{} to {}", summary(moved.items, moved.bytes, seconds), target.display());
    }
    let is_whole = omitted.failures() == 0 && collections == 0;
    Ok(if is_whole { ExitCode::SUCCESS } else { INCOMPLETE.into() })
}

/// Returns the warning that an export lacks collections.
pub(super) fn without_collections(count: u64) -> String {
    format!(
        "left out {count} hashes and other collections of Redis clients; `sprat backup create` \
         keeps them"
    )
}

/// Writes rows or pairs to `out`, and returns `out`. The caller must flush or publish it.
fn rows<W: Write>(
    source: &mut dyn ItemSource,
    out: W,
    format: FormatArg,
    args: &ExportArgs,
    header: Option<Vec<u8>>,
    show: &mut dyn FnMut(Progress),
) -> Result<(Progress, Omitted, W)> {
    let name = name_of(&args.target);
    if format == FormatArg::Csv {
        let delimiter = delimiter(&args.target);
        let how = match header {
            None if !args.rows => CsvExport::Pairs { delimiter },
            header => CsvExport::Rows { header, delimiter },
        };
        let mut sink = CsvSink::new(out, &name, how)?;
        let moved = pump(source, &mut sink, show)?;
        let (out, omitted) = sink.finish()?;
        return Ok((moved, omitted, out));
    }
    let mut sink =
        JsonlSink::new(out, &name, if args.rows { JsonlExport::Lines } else { JsonlExport::Pairs });
    let moved = pump(source, &mut sink, show)?;
    let (out, omitted) = sink.finish()?;
    Ok((moved, omitted, out))
}

fn name_of(target: &Path) -> String {
    if target.as_os_str() == "-" { "standard output".into() } else { target.display().to_string() }
}

/// A source that scans a table page by page.
struct TableSource<'a> {
    client: &'a mut Client,
    table: Table,
    page: std::vec::IntoIter<Row>,
    after: Option<u64>,
    ended: bool,
    consumed: u64,
    /// Number of objects so far that expire.
    expiring: u64,
    /// Number of collections so far, which are left out.
    collections: u64,
    nothing: Omitted,
}

impl<'a> TableSource<'a> {
    fn new(client: &'a mut Client, table: Table) -> Self {
        let page = Vec::new().into_iter();
        Self {
            client,
            table,
            page,
            after: None,
            ended: false,
            consumed: 0,
            expiring: 0,
            collections: 0,
            nothing: Omitted::default(),
        }
    }
}

impl ItemSource for TableSource<'_> {
    fn next(&mut self, item: &mut Item) -> Result<bool, Error> {
        loop {
            if let Some(row) = self.page.next() {
                if row.value_type == ValueType::Collection {
                    self.collections += 1;
                    continue;
                }
                self.consumed += (row.key.len() + row.value.len()) as u64;
                self.expiring += u64::from(row.ttl.is_some());
                (item.key, item.value) = (row.key, row.value);
                return Ok(true);
            }
            if self.ended {
                return Ok(false);
            }
            let page = self.client.scan(self.table, self.after).map_err(Error::table)?;
            self.after = page.next;
            self.ended = page.next.is_none();
            self.page = page.rows.into_iter();
        }
    }

    fn consumed_bytes(&self) -> u64 {
        self.consumed
    }

    fn omitted(&self) -> &Omitted {
        &self.nothing
    }
}
