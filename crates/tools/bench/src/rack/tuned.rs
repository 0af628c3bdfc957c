//! Measures latency before and after `sprat rack tune`: first of an instance with deliberately bad
//! settings, then of an instance with the settings of its plan.

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::bed::{Limits, TestBed, run};
use crate::promises::{Findings, Settings};
use sprat_measure::goals::Goal;
use sprat_measure::table::Table;

/// Limits of a server whose memory is smaller than its data.
const LIMITS: Limits = Limits { disk: 8 << 30, memory: 2_500 << 20 };

/// A bad read-ahead in KiB.
const BAD_READ_AHEAD: &str = "8192";

/// Bad settings: a small heap and unlimited compaction. Rows are mapped into memory, as with `auto`
/// and in clusters upgraded from Cassandra 4, because the kernel reads far ahead only in mapped
/// files, not for single reads.
const BAD: &str = "heap = \"256MiB\"\ncollector = \"g1\"\nyaml = \
    { compaction_throughput = \"0MiB/s\", disk_access_mode = \"mmap\" }";

/// Number of rows, and bytes of each: 3 GB in all.
const KEYS: &str = "200000";
const VALUE: &str = "16000";

/// The load during tuning.
#[derive(Clone, Copy, Debug)]
struct Work {
    /// Operations per second.
    rate: u32,
    /// Share of reads.
    reads: &'static str,
}

/// A light load. Two cores, which also generate the load, can sustain it.
const LITTLE: Work = Work { rate: 500, reads: "80%" };

/// Rates in operations per second, tried in order with bad settings until latency suffers. At which
/// rate it suffers depends on the machine.
const RAMP: [u32; 7] = [500, 1_000, 1_500, 2_000, 2_500, 3_000, 4_000];

/// Share of reads at these rates.
const RAMP_READS: &str = "50%";

/// The 99th percentile in ms above which latency suffers: five times the goal.
const BAD_MS: f64 = 5.0 * GOAL_MS;

/// Goal for the 99th percentile in ms.
const GOAL_MS: f64 = 10.0;

/// Tunes an instance with bad settings.
pub(super) fn planted(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let bed = TestBed::new(settings, "bad", BAD, Some(LIMITS))?;
    fill(&bed)?;
    bed.set_read_ahead(BAD_READ_AHEAD)?;
    let name = "G1 with 256 MB, rows mapped, 8 MB read ahead, compaction without bounds";
    let work = Work { rate: find_bad_rate(&bed, name, findings)?, reads: RAMP_READS };
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

/// Tunes an instance with the settings of its plan.
pub(super) fn defaults(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let bed = TestBed::new(settings, "planned", "", Some(LIMITS))?;
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

/// Response times in ms.
#[derive(Clone, Copy, Debug)]
struct Times {
    p99: Option<f64>,
    p999: Option<f64>,
}

/// Writes the rows more than once, so that there is data to compact.
fn fill(bed: &TestBed) -> Result<()> {
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

/// Returns the first rate of the ramp at which latency suffers, or the last rate if it never does.
fn find_bad_rate(bed: &TestBed, name: &str, findings: &mut Findings) -> Result<u32> {
    let mut table = Table::new(&["op/s", "p99, ms", "p99.9, ms", "seconds missed"]);
    let mut found = None;
    for rate in RAMP {
        let rate_text = rate.to_string();
        let load = |seconds| {
            let args =
                ["--rate", &rate_text, "--reads", RAMP_READS, "--keys", KEYS, "--value", VALUE];
            bed.load(&[&args[..], &["--duration", seconds]].concat())
        };
        load("5s")?; // warm-up: connecting and starting the load does not count
        let report = load("20s")?;
        let millis = |which: &str| report["response"][which].as_f64().map(|micros| micros / 1e3);
        let text =
            |which: &str| millis(which).map_or("-".to_owned(), |millis| format!("{millis:.1}"));
        let missed = report["missed"].as_array().map_or(0, Vec::len);
        table.row(vec![rate_text.clone(), text("p99"), text("p999"), missed.to_string()]);
        // If nothing was answered, there is no percentile, and latency counts as suffering.
        if millis("p99").is_none_or(|p99| p99 > BAD_MS) {
            found = Some(rate);
            break;
        }
    }
    findings.table(&format!("{name}: from which rate on it hurts (p99 above {BAD_MS} ms)"), table);
    let last = RAMP[RAMP.len() - 1];
    if found.is_none() {
        findings.note(format!("{name}: at {last} op/s it does not hurt yet, on this machine"));
    }
    Ok(found.unwrap_or(last))
}

fn tune(
    bed: &TestBed,
    only: &str,
    name: &str,
    work: Work,
    findings: &mut Findings,
) -> Result<(Times, Times)> {
    let Work { rate, reads } = work;
    let rate_text = rate.to_string();
    let mut args = vec![
        "--apply", "--only", only, "--rate", &rate_text, "--reads", reads, "--keys", KEYS,
        "--value", VALUE,
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
