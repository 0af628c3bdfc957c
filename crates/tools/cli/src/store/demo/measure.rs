//! Measures the latency table, and renders it in the width of a terminal.

use anyhow::{Context as _, Result, ensure};
use sprat_bench::basic::{self, Cell, Settings, measure};
use sprat_bench::ours::{self, Sockets};
use sprat_client::{Mode, Options};
use sprat_measure::table::Table;
use sprat_units::figure;
use std::time::Duration;

/// Measuring time of each line of the table, and duration of the warm-up before it.
const DURATION: Duration = Duration::from_millis(500);

const WARM_UP: Duration = Duration::from_millis(100);

/// Measures reads and writes by object size, and renders the table.
pub(super) fn latencies(coordinator: &str) -> Result<String> {
    let options = Options { coordinator: coordinator.to_owned(), ..Options::default() };
    let target = ours::connect(&options, 1, Sockets::Each, Mode::Sleep)?;
    let settings =
        Settings { warm_up: WARM_UP, duration: DURATION, rounds: 1, ..Settings::default() };
    let measured = measure(&mut [Box::new(target)], &settings, &mut |_| {});
    ours::drop_table(&options).context("dropping the table that was measured")?;
    let measured = measured?;
    let cells = measured.first().map(|table| &table.rows[..]).unwrap_or_default();
    let failures: u64 = cells.iter().map(|cell| cell.failures).sum();
    ensure!(failures == 0, "{failures} operations failed");
    let mut table =
        Table::new(&["", "median", "average", "99 %", "bandwidth", "Atom server, 2014"]);
    for cell in cells {
        table.row(row(cell));
    }
    let indented: Vec<String> =
        table.to_string().lines().map(|line| format!("     {line}")).collect();
    Ok(indented.join("\n"))
}

fn row(cell: &Cell) -> Vec<String> {
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds")]
    let time = |nanos: u64| figure::time(nanos as f64);
    let published =
        basic::PUBLISHED.iter().find(|line| line.kind == cell.kind && line.bytes == cell.bytes);
    vec![
        format!("{} {}", figure::object_size(cell.bytes), cell.kind.word()),
        time(cell.latency.p50),
        figure::time(cell.latency.mean),
        time(cell.latency.p99),
        figure::bandwidth(cell.bytes_per_second),
        published.map_or_else(|| "-".to_owned(), |line| figure::time(line.atom_avg * 1000.0)),
    ]
}
