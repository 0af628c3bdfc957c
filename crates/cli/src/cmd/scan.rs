//! `scan`.

use super::{connect, json_bytes, json_number};
use crate::args::ScanArgs;
use anyhow::Result;
use serde_json::Map;
use sprat_cli::transfer::display_key;
use std::io::{BufWriter, Write as _};
use std::process::ExitCode;

pub(crate) fn scan(args: &ScanArgs) -> Result<ExitCode> {
    let mut client = connect(&args.connect)?;
    let table = client.table(&args.table)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut after = args.after;
    let mut count = 0;
    loop {
        let page = client.scan(table, after)?;
        count += page.rows.len() as u64;
        for row in &page.rows {
            if args.json {
                let mut line = Map::new();
                json_bytes(&mut line, "key", &row.key);
                line.insert("version".into(), row.version.into());
                if !args.keys {
                    json_bytes(&mut line, "value", &row.value);
                    json_number(&mut line, row.number());
                }
                serde_json::to_writer(&mut out, &line)?;
                writeln!(out)?;
            } else if args.keys {
                writeln!(out, "{}", display_key(&row.key))?;
            } else {
                writeln!(out, "{}\t{}\t{}", display_key(&row.key), row.version, display_key(&row.value))?;
            }
        }
        after = page.next;
        match after {
            None => break,
            Some(cursor) if args.limit.is_some_and(|limit| count >= limit) => {
                out.flush()?;
                eprintln!("sprat: {count} objects so far; go on with --after {cursor}");
                break;
            }
            Some(_) => {}
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
