//! Transactions on one server and on two, each with replicas.

use anyhow::Result;
use sprat_client::{Mode, TableOptions};

use super::servers::Replicated;
use crate::ours::{Sockets, TABLE, connect};
use crate::promises::{Findings, Settings, us};
use crate::scenarios::{Lab, Loaded, VALUE_BYTES, WRITTEN_TOGETHER, climb};
use crate::system::{Durability, Setup};
use sprat_measure::goals::Goal;
use sprat_measure::load::{LoadPlan, Workload, preload};
use sprat_measure::target::{LoadTarget as _, Wait};

/// Replicas of each log.
const COPIES: usize = 3;

/// Memory of each server, in bytes.
const MEMORY: u64 = 512 << 20;

/// Measures a write, a transaction on one server, and one on two servers, alternately, with one
/// client. Client and servers sleep. All changes are in the memory of three other servers before
/// they are acknowledged.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let ours = Replicated::new(settings.program.clone(), COPIES);
    // There are more processes than cores, so none is pinned.
    let durability = Durability::Buffered;
    let setup =
        Setup { core: None, memory_bytes: MEMORY, durability, ..settings.lab.setup.clone() };
    let lab = Lab { client_core: None, keys: 10_000, ..settings.lab.clone() };
    let cluster = ours.launch(&setup)?;
    cluster.client()?.create_table_with(TABLE, TableOptions::of(1))?;
    let options = cluster.client_options();
    let open = || connect(&options, 1, Sockets::Each, Mode::Sleep);
    let writes = Workload::writes(lab.keys, VALUE_BYTES);
    let together = writes.clone().transactions(WRITTEN_TOGETHER);
    let [write, transaction] = [writes, together].map(|workload| LoadPlan {
        warm_up: lab.warm_up,
        duration: lab.duration,
        ..LoadPlan::one_client(workload, Wait::Sleep)
    });
    let mut one = open()?;
    preload(&mut one, &write.workload)?;
    let two = open()?.across_servers(&mut cluster.client()?)?;
    let rung = |mut target: crate::ours::Connection, label: &str| {
        target.set_active(false);
        let (plan, label) = (transaction.clone(), label.to_owned());
        Loaded { target: Box::new(target), label, plan, server: None }
    };
    let results = climb(
        &lab,
        &format!(
            "transactions of {WRITTEN_TOGETHER} objects of {VALUE_BYTES} B, -r {COPIES}, one client"
        ),
        vec![
            (rung(one, "one server"), vec![("write", write), ("transaction", transaction.clone())]),
            (rung(two, "two servers"), vec![("transaction", transaction.clone())]),
        ],
    )?;
    drop(cluster);
    let p50 = |label: &str| us(&results, label, 0.5);
    for (servers, bound) in [("one server", 1.2), ("two servers", 1.6)] {
        findings.row(
            &format!(
                "transaction of {WRITTEN_TOGETHER} objects p50, {servers}, -r {COPIES} buffered, \
                 vs a write"
            ),
            p50(&format!("{servers} transaction")),
            p50("one server write"),
            "us",
            Goal::RatioAtMost(bound),
        );
    }
    findings.results(results);
    Ok(())
}
