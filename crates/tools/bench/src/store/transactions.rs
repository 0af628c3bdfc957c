//! The chapter about transactions on one server.

use anyhow::Result;
use sprat_client::Mode;

use crate::ours::Transport;
use crate::promises::{Findings, Settings, us};
use crate::scenarios::{
    self, CLIENTS, EXPONENT, OBJECTS, READ_TOGETHER, VALUE_BYTES, WRITTEN_TOGETHER,
};
use crate::system::{Durability, Redis, System};
use sprat_measure::goals::Goal;
use sprat_measure::load::Results;
use sprat_measure::target::Wait;

const UDP: &str = "sprat fast+udp";
const TCP: &str = "sprat tcp";
const REDIS: Redis = Redis { unix: false };

/// Measures transactions of one client, in memory and durable, and transactions of several clients
/// on the same objects.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    for (durability, wait, mode, what) in [
        (Durability::Memory, Wait::Spin, Mode::Spin, "memory only, both spinning"),
        (Durability::Sync, Wait::Sleep, Mode::Adaptive, "synced"),
    ] {
        let (udp, tcp) =
            (settings.sprat(Transport::Udp, mode), settings.sprat(Transport::Tcp, mode));
        let systems: [&dyn System; 3] = [&udp, &tcp, &REDIS];
        let lab = match wait {
            Wait::Spin => settings.lab.undisturbed(),
            Wait::Sleep => settings.lab.clone(),
        };
        let results = scenarios::transactions(&lab, &systems, durability, wait)?;
        let name = format!(
            "transaction of {WRITTEN_TOGETHER} objects of {VALUE_BYTES} B p50, one server, {what}"
        );
        let (series, beside) = (["transaction", "write"], ["a write", "Redis MULTI"]);
        compare(findings, &results, series, &name, beside, 1.2);
        if durability == Durability::Memory {
            let name = format!("transaction that reads {READ_TOGETHER} objects p50");
            let (series, beside) = (["reading", "batch"], ["a batch", "Redis MGET"]);
            compare(findings, &results, series, &name, beside, 1.3);
        }
        findings.results(results);
    }
    contended(settings, findings)
}

/// Adds the rows of transactions: over each transport beside simpler requests to the same server,
/// and beside Redis's transactions. `series` names both kinds of requests; over `fast+udp` their
/// ratio is to be at most `bound`.
fn compare(
    findings: &mut Findings,
    results: &Results,
    series: [&str; 2],
    name: &str,
    [simpler, redis]: [&str; 2],
    bound: f64,
) {
    let p50 = |label: &str, series: &str| us(results, &format!("{label} {series}"), 0.5);
    for (label, transport) in [(UDP, "fast+udp"), (TCP, "tcp")] {
        let [ours, base] = series.map(|series| p50(label, series));
        let goal = if label == UDP { Goal::RatioAtMost(bound) } else { Goal::Shown };
        findings.row(&format!("{name}, {transport}, vs {simpler}"), ours, base, "us", goal);
        let peer = p50("redis", series[0]);
        let name = format!("the same over {transport} vs {redis}");
        findings.row(&name, ours, peer, "us", Goal::Shown);
    }
}

fn contended(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let udp = settings.sprat(Transport::Udp, Mode::Sleep);
    let results = scenarios::contended(&settings.lab, &[&udp, &REDIS])?;
    let of = |label: &str| results.iter().find(|one| one.system == label);
    let figures = |label: &str| of(label).map(|one| (one.aborted_percent(), one.per_second()));
    let (ours, redis) = (figures(UDP), figures("redis"));
    let what =
        format!("{CLIENTS} clients, {WRITTEN_TOGETHER} of {OBJECTS} objects each, Zipf {EXPONENT}");
    findings.row(
        &format!("attempts aborted, {what}, vs Redis WATCH"),
        ours.map(|(aborted, _)| aborted),
        redis.map(|(aborted, _)| aborted),
        "%",
        Goal::Shown,
    );
    findings.row(
        &format!("transactions committed, {what}, vs Redis WATCH"),
        ours.map(|(_, rate)| rate),
        redis.map(|(_, rate)| rate),
        "op/s",
        Goal::Shown,
    );
    findings.note(
        "Aborted: the attempts of transactions that read two objects and write both, of which \
         another client had changed one meanwhile, or had it locked. Each is tried again, ours \
         after a random wait."
            .to_owned(),
    );
    Ok(())
}
