//! `table`: makes, drops, lists, moves and measures tables.

use crate::connect::{Connect, connect};
use crate::output::{print_json, print_line};
use crate::store::moves::MoveArgs;
use crate::store::status::SILENT_TIMEOUT;
use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use sprat_client::{Client, Counter, Table, TableOptions, TableRecord, TableStats, WhenFull};
use sprat_wire::op::TabletRecord;
use sprat_wire::tablet::Range;
use std::process::ExitCode;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat table create users
  sprat table list
  sprat table move users --to 3
  sprat table drop users

Exit codes:
  3  the table does not exist
  5  no answer in time, or no server at the address
  8  the identity does not permit it")]
pub(crate) struct TableArgs {
    #[command(flatten)]
    pub(super) connect: Connect,
    #[command(subcommand)]
    command: TableCommand,
    /// Print JSON.
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TableCommand {
    /// Create a table, unless it exists.
    #[command(after_help = "Examples:
  sprat table create users
  sprat table create users --tablets 8
  sprat table create pages --when-full evict       a cache
  sprat table create log --ordered                 sprat scan log --from 2026-11 --to 2026-12")]
    Create {
        /// Name of the table, 1 to 255 bytes.
        name: String,
        /// Divide the table into N tablets on different servers, as far as there are enough
        /// [default: one for each server, up to 16; one in a cluster without replicas].
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
        tablets: Option<u32>,
        /// What to do when a write finds no room in a server's memory or on its disk: refuse the
        /// write, or evict objects of this table that were not used lately, as a cache does.
        #[arg(long, value_enum, default_value = "refuse", value_name = "WHAT")]
        when_full: WhenFullName,
        /// Keep the keys in order, so that ranges of them can be scanned. Takes about 20 bytes of
        /// memory for each object, and some microseconds more for each new key.
        #[arg(long)]
        ordered: bool,
    },
    /// Move a tablet to another server, without interrupting its clients.
    Move(MoveArgs),
    /// Drop a table with all its objects.
    Drop {
        /// Name of the table.
        name: String,
    },
    /// List tables, their tablets and servers.
    List,
    /// Count the objects and bytes of a table.
    Stats {
        /// Name of the table.
        name: String,
    },
}

/// The names of [`WhenFull`].
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum WhenFullName {
    Refuse,
    Evict,
}

impl From<WhenFullName> for WhenFull {
    fn from(name: WhenFullName) -> Self {
        match name {
            WhenFullName::Refuse => Self::Refuse,
            WhenFullName::Evict => Self::Evict,
        }
    }
}

pub(crate) fn table(args: &TableArgs) -> Result<ExitCode> {
    let mut client = connect(&args.connect)?;
    let (json, text) = match &args.command {
        TableCommand::Create { name, tablets, when_full, ordered } => {
            let options = TableOptions {
                tablets: tablets.unwrap_or(0),
                when_full: (*when_full).into(),
                ordered: *ordered,
            };
            let Table(id) = client.create_table_with(name, options)?;
            client.set_timeout(SILENT_TIMEOUT.min(args.connect.timeout));
            warn_of_shortage(&mut client, id)?;
            (json!({ "name": name, "id": id }), format!("table {name:?} has id {id}"))
        }
        TableCommand::Move(wanted) => return crate::store::moves::table(&mut client, args, wanted),
        TableCommand::Drop { name } => {
            client.drop_table(name)?;
            (json!({ "dropped": name }), format!("dropped table {name:?}"))
        }
        TableCommand::List => {
            let tables = client.list_tables()?;
            let list: Vec<Value> = tables.iter().map(json_of).collect();
            let lines: Vec<String> = tables.iter().flat_map(lines_of).collect();
            (list.into(), lines.join("\n"))
        }
        TableCommand::Stats { name } => {
            let table = client.table(name)?;
            let TableStats { objects, bytes, .. } = client.table_stats(table)?;
            let text = format!("{objects} objects, {bytes} bytes in memory");
            (json!({ "name": name, "objects": objects, "bytes": bytes }), text)
        }
    };
    if args.json {
        print_json(&json)?;
    } else if !text.is_empty() {
        print_line(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Warns if servers of a new table cannot acknowledge writes to it.
fn warn_of_shortage(client: &mut Client, table: u32) -> Result<()> {
    let tables = client.list_tables()?;
    let Some(record) = tables.iter().find(|record| record.id == table) else { return Ok(()) };
    for locator in record.locators().into_iter().filter(|locator| !locator.is_empty()) {
        // The table is made even if a server does not answer now; the server may answer soon.
        let Ok(counters) = client.server_stats(locator) else { continue };
        if let Some(shortage) = shortage(&counters) {
            eprintln!(
                "sprat: WARNING: created the table, but servers cannot acknowledge writes to it: \
                 {shortage}"
            );
            break;
        }
    }
    Ok(())
}

/// Describes why a server cannot acknowledge writes, if too few servers accept replicas of its log.
pub(super) fn shortage(counters: &[Counter]) -> Option<String> {
    let value = |name: &str| {
        counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
    };
    let (needed, here, refusing) =
        (value("servers_needed"), value("servers_here"), value("servers_refusing"));
    if here.saturating_sub(refusing) >= needed {
        return None;
    }
    let servers = format!("{needed} servers needed (-r {}), {here} here", needed - 1);
    Some(if refusing > 0 {
        format!("{servers}, {refusing} of them without room for replicas")
    } else {
        servers
    })
}

pub(super) fn json_of(table: &TableRecord) -> Value {
    let tablet = |(range, tablet): (Range, &TabletRecord)| {
        json!({
            "range": range.to_string(), "server": tablet.server, "locator": tablet.locator,
        })
    };
    json!({
        "name": table.name, "id": table.id, "evicts": table.when_full == WhenFull::Evict,
        "ordered": table.ordered,
        "indexes": table.indexes.iter().map(|index| &index.name).collect::<Vec<_>>(),
        "tablets": table.ranges().map(tablet).collect::<Vec<_>>(),
    })
}

/// Renders a table in one line. If the table has several tablets, a line for each tablet follows.
fn lines_of(table: &TableRecord) -> Vec<String> {
    let place = |tablet: &TabletRecord| match tablet.locator.as_str() {
        "" => "no server: in recovery".to_owned(),
        locator => locator.to_owned(),
    };
    let (name, id) = (&table.name, table.id);
    let evicts = if table.when_full == WhenFull::Evict { "  evicts" } else { "" };
    let ordered = if table.ordered { "  ordered" } else { "" };
    let indexes = match table.indexes.len() {
        0 => String::new(),
        1 => "  1 index".to_owned(),
        count => format!("  {count} indexes"),
    };
    let kind = format!("{evicts}{ordered}{indexes}");
    match &table.tablets[..] {
        [whole] => vec![format!("{name:<24} id {id:<6} {}{kind}", place(whole))],
        several => {
            let head = format!("{name:<24} id {id:<6} {} tablets{kind}", several.len());
            let line = |(range, tablet): (Range, &TabletRecord)| {
                format!("  {:<22} server {:<3} {}", range.to_string(), tablet.server, place(tablet))
            };
            std::iter::once(head).chain(table.ranges().map(line)).collect()
        }
    }
}
