//! Counts hardware events of an operation, stage by stage. The breakdown's stamps are read from an
//! event counter instead of a clock.
//!
//! Each event has a pass of its own, since a counter is read by a system call, which takes longer
//! than most stages. The events of the reading itself are subtracted. Events in the kernel are not
//! counted.

use anyhow::{Context, Result};
use sprat_client::{Client, Mode};
use sprat_net::{EventCounter, PerfEvent};

use crate::breakdown::{INSIDE, SIZES, objects};
use crate::ours::Transport;
use crate::promises::{Findings, Settings};
use crate::scenarios::Lab;
use crate::single::{Objects, Single};
use sprat_measure::cpu::{Fifo, Pinned};
use sprat_measure::goals::Goal;
use sprat_measure::table::Table;
use sprat_units::figure;
use std::time::{Duration, Instant};

/// Limit on the operations of a kind and size that are counted. The same number of operations
/// precedes them, uncounted. Fewer are counted if they take longer than [`Lab::duration`]: if both
/// ends share a core, each answer may take a time slice of some milliseconds.
const OPERATIONS: usize = 1_000;

/// Mean events of one kind of operation.
struct Counted {
    name: String,
    /// In the client's code: from the call to the driver, and from the driver back to the caller.
    out: f64,
    back: f64,
    /// In the server's code: in total, and in each stage.
    server: f64,
    inside: [f64; INSIDE.len()],
}

/// Counts each event of [`Settings::count`] over a transport. If this machine cannot count an
/// event, the event's rows state the reason.
///
/// # Errors
/// When a server cannot be started or fails.
pub(crate) fn count(
    transport: Transport,
    settings: &Settings,
    lab: &Lab,
    findings: &mut Findings,
) -> Result<()> {
    let word = transport.word();
    for &event in &settings.count {
        let parts = [format!("client code, {event}"), format!("server code, {event}")];
        let parts = parts.map(|part| format!("100 B read, {word}: {part}"));
        match EventCounter::start(event) {
            Err(error) => parts
                .iter()
                .for_each(|part| findings.missing(part, event.word(), &error.to_string())),
            Ok(count) => {
                drop(count); // it was only a test of whether the event can be counted
                let rows = pass(transport, event, settings, lab)?;
                let [client, server] = [rows[0].out + rows[0].back, rows[0].server];
                for (part, events) in parts.iter().zip([client, server]) {
                    findings.row(part, Some(events), None, event.word(), Goal::Shown);
                }
                findings.table(
                    &format!(
                        "{event} by stage over {word}: means of up to {OPERATIONS}, without those \
                         of the counting itself"
                    ),
                    table(&rows),
                );
            }
        }
    }
    Ok(())
}

fn pass(
    transport: Transport,
    event: PerfEvent,
    settings: &Settings,
    lab: &Lab,
) -> Result<Vec<Counted>> {
    let server = settings.sprat(transport, Mode::Spin).counted(event).launch(&lab.in_memory())?;
    let mut single = Single::new(Client::connect(&server.client_options())?)?;
    let _pinned = Pinned::to(lab.client_core)?;
    let _fifo = lab.client_fifo.map(Fifo::current_thread).transpose()?;
    let mut rows = Vec::new();
    for size in SIZES {
        let objects = objects(size);
        single.fill(&objects)?;
        for (write, kind) in [(false, "read"), (true, "write")] {
            let count = EventCounter::start(event)?;
            let name = format!("{} {kind}", figure::object_size(size));
            operate(&mut single, &objects, write, lab.duration)?;
            single.counters()?; // resets the server's means
            let (operations, out, back) = operate(&mut single, &objects, write, lab.duration)?;
            let counters = single.counters()?;
            let mean_events = |name: &str| -> Result<f64> {
                let milli = counters
                    .get(name)
                    .with_context(|| format!("a server that counts, and its {name}"))?;
                Ok(milli as f64 / 1000.0)
            };
            let mut inside = [0.0; INSIDE.len()];
            for (events, stage) in inside.iter_mut().zip(INSIDE) {
                *events = mean_events(stage.events)?;
            }
            let mean = |sum: f64| (sum / operations as f64 - count.cost() as f64).max(0.0);
            let server = mean_events("request_events_milli")?;
            rows.push(Counted { name, out: mean(out), back: mean(back), server, inside });
        }
    }
    Ok(rows)
}

/// Reads or writes up to [`OPERATIONS`] objects, for up to `duration`. Returns the number of
/// operations, and the sums of the client's events before sending and after receiving.
fn operate(
    single: &mut Single,
    objects: &Objects,
    write: bool,
    duration: Duration,
) -> Result<(usize, f64, f64)> {
    let begun = Instant::now();
    let (mut operations, mut out, mut back) = (0, 0.0, 0.0);
    while operations < OPERATIONS && (operations == 0 || begun.elapsed() < duration) {
        let times = single.operate_stamped(objects, operations * 7919, write)?;
        out += times.out as f64;
        back += times.back as f64;
        operations += 1;
    }
    Ok((operations, out, back))
}

fn table(rows: &[Counted]) -> Table {
    let names = INSIDE.map(|stage| format!("S: {}", stage.name));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut table = Table::new(&[&["", "Co", "Ci", "client", "server (S)"], &names[..]].concat());
    for Counted { name, out, back, server, inside } in rows {
        let events = [&[*out, *back, out + back, *server], &inside[..]].concat();
        table.row(
            std::iter::once(name.clone()).chain(events.into_iter().map(figure::digits)).collect(),
        );
    }
    table
}
