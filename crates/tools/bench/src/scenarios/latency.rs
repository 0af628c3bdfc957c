//! Latencies of one operation at a time.

use anyhow::Result;
use sprat_measure::load::Results;

use super::ladder::climb;
use super::{Lab, Loaded, VALUE_BYTES, load, measure};
use crate::echo::{self, Carrier};
use crate::system::{Durability, Setup, System};
use sprat_measure::cpu::Hog;
use sprat_measure::load::{LoadPlan, Workload};
use sprat_measure::target::Wait;

/// Number of objects that a transaction writes, and that one reads.
pub const WRITTEN_TOGETHER: usize = 2;
/// See [`WRITTEN_TOGETHER`].
pub const READ_TOGETHER: usize = 4;

/// Bytes of an echo that is comparable to a 100 B read: a key of 30 B, a value of 100 B, and
/// headers.
const ECHO_FRAME: usize = 160;

/// Measures one 100 B read at a time from each of `systems`, by a spinning or a sleeping client.
/// For comparison also measures bare echoes (`echo udp`, `echo tcp`); the echo server waits as the
/// client does.
///
/// # Errors
/// When a system cannot be started or fails.
pub fn read_latency(lab: &Lab, systems: &[&dyn System], wait: Wait) -> Result<Results> {
    let plan = lab.timed(LoadPlan::one_client(Workload::reads(lab.keys, VALUE_BYTES), wait));
    let setup = lab.in_memory();
    let mut loaded = echoes(lab, &plan)?;
    loaded.extend(load(systems, &setup, 1, &plan)?);
    measure(lab, &format!("{VALUE_BYTES} B reads, one {} client", wait.word()), loaded)
}

/// Measures one 100 B write at a time to each of `systems`. The systems keep writes in memory only.
///
/// # Errors
/// When a system cannot be started or fails.
pub fn write_latency(lab: &Lab, systems: &[&dyn System], wait: Wait) -> Result<Results> {
    let plan = lab.timed(LoadPlan::one_client(Workload::writes(lab.keys, VALUE_BYTES), wait));
    let setup = lab.in_memory();
    let loaded = load(systems, &setup, 1, &plan)?;
    measure(
        lab,
        &format!("{VALUE_BYTES} B writes, kept in memory only, one {} client", wait.word()),
        loaded,
    )
}

/// Measures one read at a time, first undisturbed, then next to a thread that only burns CPU. No
/// thread is pinned, so that there are more runnable threads than cores. Returns the undisturbed
/// results and the contended results.
///
/// # Errors
/// When a system cannot be started or fails.
pub fn contention(lab: &Lab, systems: &[&dyn System], wait: Wait) -> Result<(Results, Results)> {
    let free =
        Lab { setup: Setup { core: None, ..lab.setup.clone() }, client_core: None, ..lab.clone() };
    let quiet = read_latency(&free, systems, wait)?;
    let _hog = Hog::start(None)?;
    let mut contended = read_latency(&free, systems, wait)?;
    contended.title += ", a CPU hog beside";
    Ok((quiet, contended))
}

/// Measures 100 B writes at `durability`. Each of `clients` has a connection, and makes one write
/// at a time. One generator thread drives all clients; it sleeps if there is just one client, and
/// spins otherwise.
///
/// # Errors
/// When a system cannot be started or fails.
pub fn durable_write(
    lab: &Lab,
    systems: &[&dyn System],
    durability: Durability,
    clients: usize,
) -> Result<Results> {
    let wait = if clients == 1 { Wait::Sleep } else { Wait::Spin };
    let plan = LoadPlan {
        clients,
        ..lab.timed(LoadPlan::one_client(Workload::writes(lab.keys, VALUE_BYTES), wait))
    };
    let setup = Setup { durability, ..lab.setup.clone() };
    let loaded = load(systems, &setup, clients, &plan)?;
    let promise = match durability {
        Durability::Memory => "kept in memory only",
        Durability::Buffered => "synced within a second",
        Durability::Sync => "synced before the answer",
    };
    measure(lab, &format!("{VALUE_BYTES} B writes, {promise}, {clients} connections"), loaded)
}

/// Measures 100 B reads and 100 B writes at `durability`, alternately, with `clients` clients as in
/// [`durable_write`]. The names of a system's series end in `reads` and `writes`.
///
/// # Errors
/// When a system cannot be started or fails.
pub fn reads_and_writes(
    lab: &Lab,
    systems: &[&dyn System],
    durability: Durability,
    clients: usize,
) -> Result<Results> {
    let wait = if clients == 1 { Wait::Sleep } else { Wait::Spin };
    let plan = |workload| LoadPlan { clients, ..lab.timed(LoadPlan::one_client(workload, wait)) };
    let reads = plan(Workload::reads(lab.keys, VALUE_BYTES));
    let writes = plan(Workload::writes(lab.keys, VALUE_BYTES));
    let setup = Setup { durability, ..lab.setup.clone() };
    let loaded = load(systems, &setup, clients, &reads)?;
    let rungs = loaded
        .into_iter()
        .map(|one| (one, vec![("reads", reads.clone()), ("writes", writes.clone())]));
    climb(lab, &format!("{VALUE_BYTES} B reads and writes, {clients} connections"), rungs.collect())
}

/// Measures reads of `together` objects of 100 B in one request, and reads of one such object, one
/// request at a time, by one spinning client. The names of a system's series end in `batch` and
/// `single`.
///
/// # Errors
/// When a system cannot be started or fails.
pub fn batch_reads(lab: &Lab, systems: &[&dyn System], together: usize) -> Result<Results> {
    let plan = |workload| lab.timed(LoadPlan::one_client(workload, Wait::Spin));
    let single = plan(Workload::reads(lab.keys, VALUE_BYTES));
    let batch = plan(Workload { together, ..Workload::reads(lab.keys, VALUE_BYTES) });
    let loaded = load(systems, &lab.in_memory(), 1, &single)?;
    let rungs = loaded
        .into_iter()
        .map(|one| (one, vec![("batch", batch.clone()), ("single", single.clone())]));
    let title = format!("reads of {together} objects of {VALUE_BYTES} B in one request");
    climb(lab, &title, rungs.collect())
}

/// Measures transactions that write two objects of 100 B, and transactions that read four, by one
/// client at `durability`, alternately with a write of one object and a batch of four reads. The
/// names of a system's series end in `transaction`, `reading`, `write` and `batch`.
///
/// # Errors
/// When a system cannot be started or fails.
pub fn transactions(
    lab: &Lab,
    systems: &[&dyn System],
    durability: Durability,
    wait: Wait,
) -> Result<Results> {
    let setup = Setup { durability, ..lab.setup.clone() };
    let plan = |workload| lab.timed(LoadPlan::one_client(workload, wait));
    let (reads, writes) =
        (Workload::reads(lab.keys, VALUE_BYTES), Workload::writes(lab.keys, VALUE_BYTES));
    let plans = [
        ("write", plan(writes.clone())),
        ("transaction", plan(writes.transactions(WRITTEN_TOGETHER))),
        ("batch", plan(Workload { together: READ_TOGETHER, ..reads.clone() })),
        ("reading", plan(reads.clone().transactions(READ_TOGETHER))),
    ];
    let loaded = load(systems, &setup, 1, &plan(reads))?;
    let rungs = loaded.into_iter().map(|one| (one, plans.to_vec()));
    let title = format!(
        "transactions that write {WRITTEN_TOGETHER} objects of {VALUE_BYTES} B or read \
         {READ_TOGETHER}, one {} client",
        wait.word()
    );
    climb(lab, &title, rungs.collect())
}

pub(super) fn echoes(lab: &Lab, plan: &LoadPlan) -> Result<Vec<Loaded>> {
    let carriers = [(Carrier::Udp, "echo udp"), (Carrier::Tcp, "echo tcp")];
    let loaded = carriers.into_iter().map(|(carrier, label)| {
        let target = echo::target(carrier, plan.wait, lab.setup.core, ECHO_FRAME, VALUE_BYTES)?;
        Ok(Loaded { target, label: label.to_owned(), plan: plan.clone(), server: None })
    });
    loaded.collect()
}
