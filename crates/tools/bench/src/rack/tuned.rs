//! Latency before and after `sprat rack tune`: of an instance that is set up badly on purpose, and
//! of one that is as its plan has it.

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::bed::{Bed, Limits, run};
use crate::promises::{Findings, Settings};
use sprat_measure::goals::Goal;
use sprat_measure::table::Table;

/// A server whose disk holds more than its memory does.
const LIMITS: Limits = Limits { disk: 8 << 30, memory: 2_500 << 20 };

/// What is read beyond what was asked for, KiB, of a disk that is set up badly.
const BAD_READ_AHEAD: &str = "8192";

/// A heap that is too small, and compaction that takes what it can get. Rows are mapped into
/// memory, as `auto` has it and as clusters do that came from Cassandra 4: only what is mapped is
/// read far ahead of; the kernel does not for single reads.
const BAD: &str = "heap = \"256MiB\"\ncollector = \"g1\"\nyaml = \
    { compaction_throughput = \"0MiB/s\", disk_access_mode = \"mmap\" }";

/// Rows, bytes of each: 3 GB.
const KEYS: &str = "200000";
const VALUE: &str = "16000";

/// What a rack is asked for while it is tuned.
#[derive(Clone, Copy, Debug)]
struct Work {
    /// Operations a second.
    rate: u32,
    /// Share of reads.
    reads: &'static str,
}

/// What leaves two cores, the load on them, time to rest.
const LITTLE: Work = Work { rate: 500, reads: "80%" };

/// Rates at which what is set up badly is looked at, one after the other, until it hurts: how soon
/// that is, is for the machine to say.
const RAMP: [u32; 7] = [500, 1_000, 1_500, 2_000, 2_500, 3_000, 4_000];

/// Share of reads at those.
const RAMP_READS: &str = "50%";

/// A rate hurts when its slowest hundredth takes longer than this, ms: five times what is wanted of
/// it.
const HURTS_MS: f64 = 5.0 * GOAL_MS;

/// What is wanted of the slowest hundredth, ms.
const GOAL_MS: f64 = 10.0;

/// See the module.
pub(super) fn planted(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let bed = Bed::new(settings, "bad", BAD, Some(LIMITS))?;
    fill(&bed)?;
    bed.read_ahead(BAD_READ_AHEAD)?;
    let name = "G1 with 256 MB, rows mapped, 8 MB read ahead, compaction without bounds";
    let work = Work { rate: first_that_hurts(&bed, name, findings)?, reads: RAMP_READS };
    let (before, after) = tune(&bed, "collector,read-ahead,compaction", name, work, findings)?;
    findings.row(
        &format!("{name}: p99 after tuning, beside before"),
        after.p99,
        before.p99,
        "ms",
        Goal::RatioAtMost(0.2),
    );
    findings.row(
        &format!("{name}: p99 after tuning"),
        after.p99,
        None,
        "ms",
        Goal::AtMost(GOAL_MS),
    );
    findings.row(
        &format!("{name}: p99.9 after tuning, beside before"),
        after.p999,
        before.p999,
        "ms",
        Goal::Shown,
    );
    Ok(())
}

/// See the module.
pub(super) fn defaults(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let bed = Bed::new(settings, "planned", "", Some(LIMITS))?;
    fill(&bed)?;
    let only = "collector,read-ahead,compaction,concurrency,memtable,commit-log";
    let (before, after) = tune(&bed, only, "as planned", LITTLE, findings)?;
    findings.row(
        "as planned: p99 after tuning, beside before",
        after.p99,
        before.p99,
        "ms",
        Goal::RatioAtMost(1.0),
    );
    findings.row("as planned: p99 after tuning", after.p99, None, "ms", Goal::AtMost(GOAL_MS));
    findings.row(
        "as planned: p99.9 after tuning, beside before",
        after.p999,
        before.p999,
        "ms",
        Goal::Shown,
    );
    Ok(())
}

/// Times, ms.
#[derive(Clone, Copy, Debug)]
struct Times {
    p99: Option<f64>,
    p999: Option<f64>,
}

/// Rows, more than once over: compaction has something to do.
fn fill(bed: &Bed) -> Result<()> {
    bed.load(&[
        "--rate",
        "1000",
        "--duration",
        "200s",
        "--keys",
        KEYS,
        "--value",
        VALUE,
        "--reads",
        "0",
        "--timeout",
        "60s",
    ])?;
    Ok(())
}

/// The first rate of the ramp at which the slowest hundredth takes too long, or else its last.
fn first_that_hurts(bed: &Bed, name: &str, findings: &mut Findings) -> Result<u32> {
    let mut table = Table::new(&["op/s", "p99, ms", "p99.9, ms", "seconds missed"]);
    let mut found = None;
    for rate in RAMP {
        let asked = rate.to_string();
        let load = |seconds| {
            let args = ["--rate", &asked, "--reads", RAMP_READS, "--keys", KEYS, "--value", VALUE];
            bed.load(&[&args[..], &["--duration", seconds]].concat())
        };
        load("5s")?; // connections, and a rate that begins, are not what hurts
        let told = load("20s")?;
        let millis = |which: &str| told["response"][which].as_f64().map(|micros| micros / 1e3);
        let text =
            |which: &str| millis(which).map_or("-".to_owned(), |millis| format!("{millis:.1}"));
        let missed = told["missed"].as_array().map_or(0, Vec::len);
        table.row(vec![asked.clone(), text("p99"), text("p999"), missed.to_string()]);
        // Where nothing was answered at all it hurts too.
        if millis("p99").is_none_or(|p99| p99 > HURTS_MS) {
            found = Some(rate);
            break;
        }
    }
    findings
        .table(&format!("{name}: from which rate on it hurts (p99 above {HURTS_MS} ms)"), table);
    let last = RAMP[RAMP.len() - 1];
    if found.is_none() {
        findings.note(format!("{name}: at {last} op/s it does not hurt yet, on this machine"));
    }
    Ok(found.unwrap_or(last))
}

fn tune(
    bed: &Bed,
    only: &str,
    name: &str,
    work: Work,
    findings: &mut Findings,
) -> Result<(Times, Times)> {
    let Work { rate, reads } = work;
    let asked = rate.to_string();
    let mut args = vec![
        "--apply", "--only", only, "--rate", &asked, "--reads", reads, "--keys", KEYS, "--value",
        VALUE,
    ];
    args.extend(["--duration", "20s", "--warm", "10s", "--json"]);
    let journal: Value = serde_json::from_str(&run(&mut bed.sprat("tune", &args))?)
        .context("what rack tune said")?;
    let mut table = Table::new(&["tried", "p99 before, ms", "after, ms", ""]);
    let millis =
        |value: &Value| value["p99"].as_f64().map_or("-".to_owned(), |p99| format!("{p99:.1}"));
    for entry in journal["entries"].as_array().into_iter().flatten() {
        let text = |key: &str| entry[key].as_str().unwrap_or("failed").to_owned();
        let what = format!("{}: {} -> {}", text("class"), text("present"), text("what"));
        table.row(vec![what, millis(&entry["before"]), millis(&entry["after"]), text("state")]);
    }
    findings.table(
        &format!("{name}: {rate} op/s, {reads} of them reads, of {KEYS} rows of {VALUE} B"),
        table,
    );
    let times = |which: &str| Times {
        p99: journal[which]["p99"].as_f64(),
        p999: journal[which]["p999"].as_f64(),
    };
    Ok((times("before"), times("after")))
}
