//! `table move` and `server drain`: migrate tablets without interrupting their clients.

use crate::connect::{Connect, connect};
use crate::output::{print_json, print_line};
use crate::store::table::TableArgs;
use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use sprat_client::{Client, Table, TableRecord};
use sprat_wire::tablet::Range;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum ServerCommand {
    /// Move all tablets off a server without interruption, so that it can be stopped.
    Drain(DrainArgs),
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat server drain 3
  sprat server drain 3 --undo          let it serve tablets again

Waits until the server has no tablets. Ctrl-C stops the waiting; the coordinator continues to
move tablets.

Exit codes:
  5  no answer in time, or no server at the address
  8  the identity does not permit it")]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    connect: Connect,
    /// Id of the server, from `sprat status`.
    server: u32,
    /// Let the server receive tablets again. Moves that have started continue.
    #[arg(long)]
    undo: bool,
    /// Return at once, without waiting for the moves.
    #[arg(long)]
    detach: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat table move users --to 3
  sprat table move users --tablet 4000..7fff --to 3     one tablet of several
  sprat table move users --tablet 6000..7fff --to 3     a part of a tablet, which is split

Waits until the tablet is moved. Ctrl-C stops the waiting, not the move.

Exit codes:
  3  the table does not exist
  5  no answer in time, or no server at the address
  8  the identity does not permit it")]
pub(crate) struct MoveArgs {
    /// Name of the table.
    name: String,
    /// Tablet to move, or a part of one, as `sprat table list` prints it, such as 4000..7fff. Not
    /// needed for a table with one tablet.
    #[arg(long, value_name = "FIRST..LAST", value_parser = parse_range)]
    tablet: Option<Range>,
    /// Id of the server to move it to, from `sprat status`.
    #[arg(long, value_name = "ID")]
    to: u32,
    /// Return at once, without waiting for the move.
    #[arg(long)]
    detach: bool,
}

/// Parses a range as `table list` prints it: the first hexadecimal digits of both ends.
fn parse_range(text: &str) -> Result<Range, String> {
    let bad = || {
        format!(
            "`{text}` is not a range of tablets: write FIRST..LAST as `sprat table list` does, \
             such as 4000..7fff"
        )
    };
    let (first, last) = text.split_once("..").ok_or_else(bad)?;
    let end = |digits: &str, rest: u64| {
        let bits = 4 * u32::try_from(digits.len()).ok().filter(|len| (1..=16).contains(len))?;
        let number = u64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))?;
        Some(number.checked_shl(64 - bits).unwrap_or(0) | rest.checked_shr(bits).unwrap_or(0))
    };
    let (first, last) = (end(first, 0).ok_or_else(bad)?, end(last, u64::MAX).ok_or_else(bad)?);
    if first <= last { Ok(Range { first, last }) } else { Err(bad()) }
}

/// Interval at which to poll the progress of a migration.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Limit on successive polls without a running migration. One more is an error.
const MAX_IDLE_POLLS: u32 = 100;

pub(super) fn table(client: &mut Client, args: &TableArgs, wanted: &MoveArgs) -> Result<ExitCode> {
    let MoveArgs { name, tablet, to, detach } = wanted;
    let Table(id) = client.table(name)?;
    let record = find(client, name)?;
    let range = match (tablet, &record.tablets[..]) {
        (Some(range), _) => *range,
        (None, [_]) => Range::ALL,
        (None, several) => {
            bail!(
                "table {name:?} has {} tablets: choose one of `sprat table list` with --tablet",
                several.len()
            )
        }
    };
    let is_there = |record: &TableRecord| {
        let mut its = record.ranges().filter(|(other, _)| other.overlap(range).is_some());
        its.all(|(_, tablet)| tablet.server == *to && !tablet.locator.is_empty())
    };
    if !is_there(&record) {
        client.move_tablet(Table(id), range, *to)?;
        if !detach {
            let mut watch = Watch::new(1, &args.connect, args.json)?;
            while !is_there(&find(client, name)?) {
                watch.poll(client, 0)?;
            }
        }
    }
    let state = if *detach { "moving" } else { "moved" };
    if args.json {
        print_json(
            &json!({ "name": name, "range": range.to_string(), "server": to, "done": !detach }),
        )?;
    } else {
        print_line(&format!("{state} {range} of table {name:?} to server {to}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn drain(args: &DrainArgs) -> Result<ExitCode> {
    let DrainArgs { server, undo, detach, json, .. } = args;
    let mut client = connect(&args.connect)?;
    client.drain(*server, !undo)?;
    let mut left = tablets_of(&mut client, *server)?;
    if !undo && !detach {
        let mut watch = Watch::new(left, &args.connect, *json)?;
        while left > 0 {
            watch.poll(&mut client, left)?;
            left = tablets_of(&mut client, *server)?;
        }
    }
    if *json {
        print_json(&json!({ "server": server, "draining": !undo, "tablets": left }))?;
    } else if *undo {
        print_line(&format!("server {server} can receive tablets again; it has {left}"))?;
    } else if left > 0 {
        print_line(&format!("draining server {server}: {left} tablets left"))?;
    } else {
        print_line(&format!("drained server {server}: it has no tablets and can be stopped"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn find(client: &mut Client, name: &str) -> Result<TableRecord> {
    let tables = client.list_tables()?;
    tables
        .into_iter()
        .find(|record| record.name == name)
        .with_context(|| format!("table {name:?} was dropped meanwhile"))
}

fn tablets_of(client: &mut Client, server: u32) -> Result<u64> {
    let tables = client.list_tables()?;
    Ok(tables
        .iter()
        .flat_map(|table| &table.tablets)
        .filter(|tablet| tablet.server == server)
        .count() as u64)
}

/// Waits for migrations and shows their progress.
struct Watch {
    bar: ProgressBar,
    total: u64,
    /// The coordinator's locator from the flags. Used if the cluster names no leader.
    coordinator: String,
    idle: u32,
}

impl Watch {
    fn new(total: u64, connect: &Connect, quiet: bool) -> Result<Self> {
        let style = ProgressStyle::with_template("{bar:32} {pos}/{len} tablets  {elapsed}")?;
        let bar =
            if quiet { ProgressBar::hidden() } else { ProgressBar::new(total).with_style(style) };
        Ok(Self { bar, total, coordinator: connect.coordinator.clone(), idle: 0 })
    }

    /// Shows that `left` tablets remain, and waits for [`POLL_INTERVAL`]. Returns an error if no
    /// migration has run for more than [`MAX_IDLE_POLLS`] polls.
    #[allow(clippy::disallowed_methods, reason = "nothing else goes on in this process")]
    fn poll(&mut self, client: &mut Client, left: u64) -> Result<()> {
        self.bar.set_position(self.total.saturating_sub(left));
        let (_, leader) = client.leader()?;
        let leader = if leader.is_empty() { &self.coordinator } else { &leader };
        let counters = client.server_stats(leader)?;
        let moves = counters
            .iter()
            .find(|counter| counter.name == "coordinator_moves")
            .map_or(0, |counter| counter.value);
        self.idle = if moves == 0 { self.idle + 1 } else { 0 };
        if self.idle > MAX_IDLE_POLLS {
            bail!(
                "no tablet has moved for 10 s: a server is out of memory, or no server can \
                 receive tablets; see the coordinator's log"
            );
        }
        sleep(POLL_INTERVAL);
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_range_parses() {
        for parts in [1, 3, 4, 16] {
            for range in Range::ALL.parts(parts) {
                assert_eq!(parse_range(&range.to_string()), Ok(range));
            }
        }
        for text in ["", "..", "4000", "5..4", "4000..g", "00000000000000000..1", "+1..2"] {
            assert!(parse_range(text).is_err(), "{text}");
        }
    }
}
