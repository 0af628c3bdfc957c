//! `scan`: lists a table's objects.

use crate::connect::{Connect, connect};
use crate::output::{json_bytes, json_number};
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
  sprat scan users --limit 1000 --after 81985529216486895")]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    connect: Connect,
    /// Table.
    table: String,
    /// Keys only.
    #[arg(long)]
    keys: bool,
    /// Stop after about this many objects, and tell the cursor to go on from.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Go on from a cursor that an earlier scan told.
    #[arg(long, value_name = "CURSOR")]
    after: Option<u64>,
    /// One JSON object a line.
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
                eprintln!("sprat: {count} objects so far; go on with --after {cursor}");
                break;
            }
            Some(_) => {}
        }
    }
    out.flush().context(unwritable)?;
    Ok(ExitCode::SUCCESS)
}
