//! `scan`: lists a table's objects.

use crate::connect::{Connect, connect};
use crate::output::{json_bytes, json_number, json_ttl};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::Map;
use sprat_client::{Client, Error, Field, Index, KeyPage, Keys, Row, Table, ValueType};
use sprat_transfer::display_key;
use std::io::{BufWriter, Write};
use std::ops::Bound;
use std::process::ExitCode;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat scan users
  sprat scan users --keys --limit 20
  sprat scan users --json | jq .key
  sprat scan users --limit 1000 --after 81985529216486895     the next part

Of an ordered table (sprat table create users --ordered), also:
  sprat scan users --prefix alice
  sprat scan log --from 2026-11 --to 2026-12 --limit 100
  sprat scan log --reverse --limit 10                         the ten highest keys

Of a table with an index (sprat index create users by_age --field age --type integer):
  sprat scan users --index by_age --equal 36
  sprat scan users --index by_age --from 30 --to 40
  sprat scan users --index by_age --reverse --limit 10        the ten oldest

Prints key, version and value, separated by tabs: in the order of the index, of an ordered table in
the order of the keys' bytes, of others in the table's own order. An object that changes during the
scan may be missing or appear in an older state.

Exit codes:
  3  the table or the index does not exist
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
    /// Stop after N objects of an index or an ordered table, or about N of another table, and print
    /// how to go on.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Continue where an earlier scan stopped: behind this key of an ordered table, or at the
    /// cursor that the scan of another table printed. With --index: behind the object with this key
    /// and the field --from, or --to with --reverse.
    #[arg(long, value_name = "KEY|CURSOR")]
    after: Option<String>,
    /// The objects of this index, in the order of their fields.
    #[arg(long, value_name = "NAME")]
    index: Option<String>,
    /// Only objects with this field.
    #[arg(long, value_name = "FIELD", requires = "index", allow_hyphen_values = true,
          conflicts_with_all = ["prefix", "from", "to"])]
    equal: Option<String>,
    /// Only keys, or fields of bytes, that begin with this text.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["from", "to"])]
    prefix: Option<String>,
    /// Only keys, or fields, from this one on.
    #[arg(long, value_name = "KEY|FIELD", allow_hyphen_values = true)]
    from: Option<String>,
    /// Only keys, or fields, below this one.
    #[arg(long, value_name = "KEY|FIELD", allow_hyphen_values = true)]
    to: Option<String>,
    /// Begin with the highest key or field.
    #[arg(long)]
    reverse: bool,
    /// Print results as JSON, one value a line.
    #[arg(long)]
    json: bool,
}

/// The largest number of objects to request at a time.
const PAGE: u32 = 4096;

pub(crate) fn scan(args: &ScanArgs) -> Result<ExitCode> {
    let mut client = connect(&args.connect)?;
    let table = client.table(&args.table)?;
    if let Some(name) = &args.index {
        let index = client.index(&args.table, name).with_context(|| format!("index {name:?}"))?;
        let keys = keys_of_index(args, &index)?;
        let page = client.scan_keys(table, keys, limit_of(args, 0))?;
        return scan_order(args, &mut client, table, page, Some(&index));
    }
    let first = client.scan_keys(table, keys_of(args), limit_of(args, 0));
    let is_ordered_only =
        args.reverse || [&args.prefix, &args.from, &args.to].iter().any(|text| text.is_some());
    match first {
        Err(Error::NotOrdered(_)) if !is_ordered_only => scan_positions(args, &mut client, table),
        Err(Error::NotOrdered(_)) => bail!(
            "table {:?} is not ordered; --prefix, --from, --to and --reverse need a table that was \
             made with `sprat table create NAME --ordered`, or an --index",
            args.table
        ),
        first => scan_order(args, &mut client, table, first?, None),
    }
}

/// Returns the keys that the flags name.
fn keys_of(args: &ScanArgs) -> Keys {
    let bytes = |text: &Option<String>| text.as_ref().map(|text| text.as_bytes().to_vec());
    let mut keys = args.prefix.as_ref().map_or(Keys::all(), |text| Keys::prefix(text.as_bytes()));
    if let Some(from) = bytes(&args.from) {
        keys = keys.from(&from);
    }
    if let Some(to) = bytes(&args.to) {
        keys = keys.to(&to);
    }
    match bytes(&args.after) {
        Some(after) if args.reverse => keys.to(&after).descending(),
        Some(after) => keys.after(&after),
        None if args.reverse => keys.descending(),
        None => keys,
    }
}

/// Returns the objects of an index that the flags name.
fn keys_of_index(args: &ScanArgs, index: &Index) -> Result<Keys> {
    let field_type = index.definition().field_type;
    let [from, to, equal] = [&args.from, &args.to, &args.equal].map(Option::as_deref);
    let field = |text| Option::map(text, |text| field_of(text, field_type)).transpose();
    let (from, to, equal) = (field(from)?, field(to)?, field(equal)?);
    let keys = match (&args.prefix, &equal) {
        (Some(prefix), _) => index.prefix(prefix.as_bytes())?,
        (None, Some(field)) => index.equal(field.clone())?,
        (None, None) => {
            let from = from.clone().map_or(Bound::Unbounded, Bound::Included);
            index.range((from, to.clone().map_or(Bound::Unbounded, Bound::Excluded)))?
        }
    };
    let keys = if args.reverse { keys.descending() } else { keys };
    let Some(after) = &args.after else { return Ok(keys) };
    let (field, flag) = if args.reverse { (to, "--to") } else { (from, "--from") };
    let field = equal.or(field);
    let field = field.with_context(|| format!("--after needs the object's field: give {flag}"))?;
    Ok(index.behind(keys, field, after.as_bytes())?)
}

/// Parses a field of this type.
fn field_of(text: &str, field_type: ValueType) -> Result<Field<'_>> {
    Ok(match field_type {
        ValueType::Bytes => text.into(),
        ValueType::Integer => {
            let why =
                || format!("{text:?} is no integer of 64 bits, as the fields of the index are");
            text.parse::<i64>().with_context(why)?.into()
        }
        ValueType::Double => {
            let why = || format!("{text:?} is no number, as the fields of the index are");
            text.parse::<f64>().with_context(why)?.into()
        }
        ValueType::Collection => bail!("no index has fields of this type"),
    })
}

/// Returns how many objects to request when `count` were printed.
fn limit_of(args: &ScanArgs, count: u64) -> u32 {
    let left = args.limit.map_or(u64::MAX, |limit| limit.saturating_sub(count));
    u32::try_from(left).unwrap_or(u32::MAX).min(PAGE)
}

/// Prints a range of the keys of an ordered table, or of an index.
fn scan_order(
    args: &ScanArgs,
    client: &mut Client,
    table: Table,
    page: KeyPage,
    index: Option<&Index>,
) -> Result<ExitCode> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let (mut page, mut count, mut last) = (page, 0, None);
    loop {
        // A limit of zero prints nothing.
        let rows = page.rows.iter().take(limit_of(args, count) as usize);
        for row in rows {
            print_row(args, &mut out, row)?;
            count += 1;
            last = Some(row.clone());
        }
        let Some(next) = page.next else { break };
        if args.limit.is_some_and(|limit| count >= limit) {
            out.flush().context(UNWRITABLE)?;
            if let Some(last) = last {
                eprintln!("sprat: {count} objects so far; {}", continuation(args, &last, index));
            }
            break;
        }
        page = client.scan_keys(table, next, limit_of(args, count))?;
    }
    out.flush().context(UNWRITABLE)?;
    Ok(ExitCode::SUCCESS)
}

/// Says how to go on behind an object.
fn continuation(args: &ScanArgs, last: &Row, index: Option<&Index>) -> String {
    let shown = display_key(&last.key);
    if shown.as_bytes() != last.key {
        return format!("the last key, {shown}, is no plain text");
    }
    let field = index.and_then(|index| index.definition().field(&last.value));
    match (field, args.reverse) {
        (Some(field), false) if args.equal.is_none() => {
            format!("continue with --from '{field}' --after '{shown}'")
        }
        (Some(field), true) if args.equal.is_none() => {
            format!("continue with --to '{field}' --after '{shown}'")
        }
        _ => format!("continue with --after '{shown}'"),
    }
}

/// Prints the objects of a table in the order of their positions.
fn scan_positions(args: &ScanArgs, client: &mut Client, table: Table) -> Result<ExitCode> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let cursor = |text: &String| {
        let why = || format!("--after {text:?} is not a cursor, which an earlier scan printed");
        text.parse::<u64>().with_context(why)
    };
    let mut after = args.after.as_ref().map(cursor).transpose()?;
    let mut count = 0;
    loop {
        let page = client.scan(table, after)?;
        count += page.rows.len() as u64;
        for row in &page.rows {
            print_row(args, &mut out, row)?;
        }
        after = page.next;
        match after {
            None => break,
            Some(cursor) if args.limit.is_some_and(|limit| count >= limit) => {
                out.flush().context(UNWRITABLE)?;
                eprintln!("sprat: {count} objects so far; continue with --after {cursor}");
                break;
            }
            Some(_) => {}
        }
    }
    out.flush().context(UNWRITABLE)?;
    Ok(ExitCode::SUCCESS)
}

const UNWRITABLE: &str = "cannot write to standard output";

fn print_row(args: &ScanArgs, out: &mut impl Write, row: &Row) -> Result<()> {
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
        writeln!(out, "{}\t{}\t{}", display_key(&row.key), row.version, display_key(&row.value))
    };
    written.context(UNWRITABLE)
}
