//! Stops an instance for four seconds, and checks how the reports of our load generator and of a
//! peer, which run at the same time, show this.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::bed::{TestBed, report, run};
use crate::promises::{Findings, Settings};
use sprat_measure::goals::Goal;

/// Operations per second.
const RATE: &str = "200";

/// Seconds of load, the time at which the instance is stopped, and the duration of the stop.
const SECONDS: u64 = 24;
const STOP_AT: Duration = Duration::from_secs(10);
const STOP_TIME: Duration = Duration::from_secs(4);

/// The environment variable with the path of the peer, which `make bench-rack` sets.
const LATTE: &str = "SPRAT_LATTE";

/// The peer's workload: half reads and half writes, like ours.
const WORK: &str = r#"use latte::*;
const KEYS = 100000;
pub async fn schema(db) {
    db.execute("CREATE KEYSPACE IF NOT EXISTS peer WITH replication = {'class': 'SimpleStrategy', \
                'replication_factor': 1}").await?;
    db.execute("CREATE TABLE IF NOT EXISTS peer.kv (key bigint PRIMARY KEY, value blob)").await?;
}
pub async fn prepare(db) {
    db.prepare("write", "INSERT INTO peer.kv (key, value) VALUES (:key, :value)").await?;
    db.prepare("read", "SELECT value FROM peer.kv WHERE key = :key").await?;
}
pub async fn run(db, i) {
    let key = hash(i) % KEYS;
    if i % 2 == 0 {
        db.execute_prepared("read", [key]).await?
    } else {
        db.execute_prepared("write", [key, blob(i, 100)]).await?
    }
}
"#;

/// Runs both loads, stops the instance, and reports what the loads measured.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let bed = TestBed::new(settings, "honest", "", None)?;
    let (address, pid) = bed.instance()?;
    let seconds = format!("{SECONDS}s");
    bed.load(&["--rate", RATE, "--duration", "5s"])?; // warm-up of the JVM
    let latte = std::env::var_os(LATTE).map(PathBuf::from);
    let latte = latte
        .map(|latte| latte.canonicalize().with_context(|| latte.display().to_string()))
        .transpose()?;
    let (script, result) = (bed.scratch("work.rn"), bed.scratch("peer.json"));
    let mut peer = None;
    if let Some(latte) = &latte {
        fs::write(&script, WORK)?;
        run(bed.beside(latte).arg("schema").arg(&script).arg(&address))?;
        let mut command = bed.beside(latte);
        command
            .args(["run", "--quiet", "--rate", RATE, "--duration", &seconds, "--output"])
            .arg(&result);
        command
            .arg(&script)
            .arg(&address)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        peer = Some(command.spawn().with_context(|| latte.display().to_string())?);
    }
    let mut ours = bed.sprat("load", &["--rate", RATE, "--duration", &seconds, "--json"]);
    let ours = ours.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    #[expect(
        clippy::disallowed_methods,
        reason = "the instance stands still for as long as this does"
    )]
    let pause = std::thread::sleep;
    pause(STOP_AT);
    kill_process(pid, Signal::STOP)?;
    pause(STOP_TIME);
    kill_process(pid, Signal::CONT)?;
    let ours = report(&ours.wait_with_output()?)?;
    let millis = |name: &str| ours["response"][name].as_f64().map(|micros| micros / 1e3);
    let missed = ours["missed"].as_array().map(|missed| missed.len() as f64);
    let peer_report = match peer {
        Some(mut peer) => {
            peer.wait()?;
            Some(serde_json::from_str::<Value>(
                &fs::read_to_string(&result).context("what the peer found")?,
            )?)
        }
        None => None,
    };
    let counted = peer_report.as_ref().and_then(|report| report["result"]["cycle_count"].as_f64());
    let peer_percentile =
        |wanted: f64| peer_report.as_ref().and_then(|report| percentile(report, wanted));
    let name = |what: &str| {
        format!("{what}, {RATE} op/s, an instance stands still for {} s", STOP_TIME.as_secs())
    };
    findings.row(
        &name("p99.9 beside latte's"),
        millis("p999"),
        peer_percentile(99.9),
        "ms",
        Goal::AtLeast(3_000.0),
    );
    findings.row(
        &name("p99 beside latte's"),
        millis("p99"),
        peer_percentile(99.0),
        "ms",
        Goal::AtLeast(3_000.0),
    );
    findings.row(
        &name("seconds in which the rate was missed"),
        missed,
        None,
        "s",
        Goal::AtLeast(3.0),
    );
    // The peer holds operations back while no answer arrives. None of its percentiles includes
    // these operations.
    let requested = ours["asked"].as_f64();
    let all = ours["response"]["count"].as_f64();
    findings.row(
        &name("operations that times are told of, beside latte's"),
        all,
        counted,
        "op",
        Goal::AtLeast(requested.unwrap_or(1.0)),
    );
    if latte.is_none() {
        findings.note(format!(
            "the peer is not here: {LATTE} is to name it (scripts/setup bench-rack)"
        ));
    }
    Ok(())
}

/// Returns a percentile from the peer's report in ms.
fn percentile(report: &Value, wanted: f64) -> Option<f64> {
    let at = report["percentiles"]
        .as_array()?
        .iter()
        .position(|percentile| percentile.as_f64() == Some(wanted))?;
    report["result"]["request_latency"]["percentiles"][at]["value"].as_f64()
}
