//! `table move` and `server drain`: tablets that move while they are served.

use super::{connect, print_json, print_line};
use crate::args::{Connect, DrainArgs, MoveArgs, TableArgs};
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use sprat_client::{Client, Table, TableRecord};
use sprat_wire::tablet::Range;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

/// How often it is looked how far it is.
const LOOK: Duration = Duration::from_millis(100);

/// Looks in a row at which nothing moves, though something is to, after which that is an error.
const IDLE_LOOKS: u32 = 100;

pub(super) fn table(client: &mut Client, args: &TableArgs, wanted: &MoveArgs) -> Result<ExitCode> {
    let MoveArgs { name, tablet, to, detach } = wanted;
    let Table(id) = client.table(name)?;
    let record = find(client, name)?;
    let range = match (tablet, &record.tablets[..]) {
        (Some(range), _) => *range,
        (None, [_]) => Range::ALL,
        (None, several) => {
            bail!(
                "table {name:?} has {} tablets: say which with --tablet, as `sprat table list` tells them",
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
                watch.look(client, 0)?;
            }
        }
    }
    let told = if *detach { "moves" } else { "is moved" };
    if args.json {
        print_json(&json!({ "name": name, "range": range.to_string(), "server": to, "done": !detach }))?;
    } else {
        print_line(&format!("{range} of table {name:?} {told} to server {to}"))?;
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
            watch.look(&mut client, left)?;
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
    tables.into_iter().find(|record| record.name == name).with_context(|| format!("table {name:?} is gone"))
}

fn tablets_of(client: &mut Client, server: u32) -> Result<u64> {
    let tables = client.list_tables()?;
    Ok(tables.iter().flat_map(|table| &table.tablets).filter(|tablet| tablet.server == server).count() as u64)
}

/// Looks on while something moves.
struct Watch {
    bar: ProgressBar,
    total: u64,
    /// Who leads is asked; of one coordinator alone it is known.
    coordinator: String,
    idle: u32,
}

impl Watch {
    fn new(total: u64, connect: &Connect, quiet: bool) -> Result<Self> {
        let style = ProgressStyle::with_template("{bar:32} {pos}/{len} tablets  {elapsed}")?;
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(total).with_style(style) };
        Ok(Self { bar, total, coordinator: connect.coordinator.clone(), idle: 0 })
    }

    /// Shows that so many are left, and waits a little.
    #[allow(clippy::disallowed_methods, reason = "nothing else goes on in this process")]
    fn look(&mut self, client: &mut Client, left: u64) -> Result<()> {
        self.bar.set_position(self.total.saturating_sub(left));
        let (_, leader) = client.leader()?;
        let asked = if leader.is_empty() { &self.coordinator } else { &leader };
        let counters = client.server_stats(asked)?;
        let moves =
            counters.iter().find(|counter| counter.name == "coordinator_moves").map_or(0, |counter| counter.value);
        self.idle = if moves == 0 { self.idle + 1 } else { 0 };
        if self.idle > IDLE_LOOKS {
            bail!(
                "nothing moves: the coordinator's log says why (a server without memory left, or no other that may have it)"
            );
        }
        sleep(LOOK);
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
