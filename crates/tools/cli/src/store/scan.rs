//! `scan`: lists a table's objects.

use crate::connect::{Connect, connect};
use crate::output::{json_bytes, json_number, json_ttl};
use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::Map;
use sprat_transfer::display_key;
use std::io::{BufWriter, Write as _};
use std::process::ExitCode;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat scan users
  sprat scan users --keys --limit 20
  sprat scan users --json | jq .key
  sprat scan users --limit 1000 --after 81985529216486895     the next part

Prints key, version and value, separated by tabs, in the table's own order. An object that
changes during the scan may be missing or appear in an older state.

Exit codes:
  3  the table does not exist
  5  no answer in time, or no server at the address
  8  the identity does not permit it")]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    connect: Connect,
    /// Name of the table.
    table: String,
    /// Print keys only.
    #[arg(long)]
    keys: bool,
    /// Stop after about N objects, and print the cursor for --after.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Continue at the cursor that an earlier scan printed.
    #[arg(long, value_name = "CURSOR")]
    after: Option<u64>,
    /// Print results as JSON, one value a line.
    #[arg(long)]
    json: bool,
}

pub(crate) fn scan(args: &ScanArgs) -> Result<ExitCode> {
    let mut client = connect(&args.connect)?;
    let table = client.table(&args.table)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let unwritable = "cannot write to standard output";
    let mut after = args.after;
    let mut count = 0;
    loop {
        let page = client.scan(table, after)?;
        count += page.rows.len() as u64;
        for row in &page.rows {
            let written = if args.json {
                let mut line = Map::new();
                json_bytes(&mut line, "key", &row.key);
                line.insert("version".into(), row.version.into());
                if !args.keys {
                    json_bytes(&mut line, "value", &row.value);
                    json_number(&mut line, row.number());
                    json_ttl(&mut line, row.ttl);
                }
                writeln!(out, "{}", serde_json::Value::Object(line))
            } else if args.keys {
                writeln!(out, "{}", display_key(&row.key))
            } else {
                writeln!(
                    out,
                    "{}\t{}\t{}",
                    display_key(&row.key),
                    row.version,
                    display_key(&row.value)
                )
            };
            written.context(unwritable)?;
        }
        after = page.next;
        match after {
            None => break,
            Some(cursor) if args.limit.is_some_and(|limit| count >= limit) => {
                out.flush().context(unwritable)?;
                eprintln!("sprat: {count} objects so far; continue with --after {cursor}");
                break;
            }
            Some(_) => {}
        }
    }
    out.flush().context(unwritable)?;
    Ok(ExitCode::SUCCESS)
}
