//! `table move` and `server drain`: migrate tablets while they are served.

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
    /// Move all tablets of a server to others, while they are served, so that it can be stopped.
    Drain(DrainArgs),
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat server drain 3
  sprat server drain 3 --undo          it may have tablets again

Ctrl-C ends the waiting, not the moving.")]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    connect: Connect,
    /// Its id, as `sprat status` tells it.
    server: u32,
    /// Let it have tablets again; what is moving from it goes on.
    #[arg(long)]
    undo: bool,
    /// Do not wait until it has none left.
    #[arg(long)]
    detach: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat table move users --to 3
  sprat table move users --tablet 4000..7fff --to 3     one of several
  sprat table move users --tablet 6000..7fff --to 3     a part of one: it is divided

Ctrl-C ends the waiting, not the moving.")]
pub(crate) struct MoveArgs {
    /// The table.
    name: String,
    /// Which of its tablets, or which part of one, as `sprat table list` tells them; not needed
    /// when there is but one.
    #[arg(long, value_name = "FIRST..LAST", value_parser = parse_range)]
    tablet: Option<Range>,
    /// Id of the server that is to have it.
    #[arg(long, value_name = "ID")]
    to: u32,
    /// Do not wait until it is there.
    #[arg(long)]
    detach: bool,
}

/// Parses a range as `table list` prints it: the first hexadecimal digits of both ends.
fn parse_range(text: &str) -> Result<Range, String> {
    let bad = || {
        format!(
            "`{text}` is no range of a table: write FIRST..LAST, as `sprat table list` does, such \
             as 4000..7fff"
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

/// Polls in a row without any running migration after which waiting for one is an error.
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
                "table {name:?} has {} tablets: say which with --tablet, as `sprat table list` \
                 tells them",
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
    let state = if *detach { "moves" } else { "is moved" };
    if args.json {
        print_json(
            &json!({ "name": name, "range": range.to_string(), "server": to, "done": !detach }),
        )?;
    } else {
        print_line(&format!("{range} of table {name:?} {state} to server {to}"))?;
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
        print_line(&format!("server {server} may have tablets again; {left} are with it"))?;
    } else if left > 0 {
        print_line(&format!("server {server} is being drained: {left} tablets are with it"))?;
    } else {
        print_line(&format!("server {server} has no tablets left: it can be stopped"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn find(client: &mut Client, name: &str) -> Result<TableRecord> {
    let tables = client.list_tables()?;
    tables
        .into_iter()
        .find(|record| record.name == name)
        .with_context(|| format!("table {name:?} is gone"))
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
    /// The locator from the flags: the leader's, if there is just one coordinator.
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
    /// migration has run for [`MAX_IDLE_POLLS`] polls.
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
                "nothing moves: the coordinator's log says why (a server without memory left, or \
                 no other that may have it)"
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
