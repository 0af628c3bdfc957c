//! The chapter about Redis clients: the same clients of our server and of Redis.

use anyhow::Result;

use crate::promises::{Findings, Settings, rate, us};
use crate::scenarios::{self, Mix};
use crate::system::{Redis, SpratForRedis, System};
use sprat_measure::goals::Goal;

/// Connections of the clients.
const CONNECTIONS: usize = 50;

/// Commands that a client sends at once, when it does.
const PIPELINED: usize = 16;

/// Measures reads, and writes that are synced, with one command of each client at a time and with
/// several.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let ours = SpratForRedis { program: settings.program.clone() };
    let redis = Redis { unix: false };
    let systems: [&dyn System; 2] = [&ours, &redis];
    let lab = settings.lab.undisturbed();
    for (what, mix, goal) in [
        ("SET, synced", Mix::writes(CONNECTIONS, 1).synced(), 2.0),
        ("GET", Mix::reads(CONNECTIONS, 1), 1.0),
        ("SET, synced", Mix::writes(CONNECTIONS, PIPELINED).synced(), 1.5),
        ("GET", Mix::reads(CONNECTIONS, PIPELINED), 1.5),
    ] {
        let results = scenarios::throughput(&lab, &systems, mix)?;
        let depth = mix.depth;
        let name = format!("{what}, {CONNECTIONS} Redis clients, {depth} at once, vs Redis");
        let of = |figure: &dyn Fn(&str) -> Option<f64>| (figure(ours.name()), figure(redis.name()));
        let (our_rate, peer_rate) = of(&|label| rate(&results, label));
        findings.row(&name, our_rate, peer_rate, "op/s", Goal::RatioAtLeast(goal));
        let (our_tail, peer_tail) = of(&|label| us(&results, label, 0.99));
        findings.row(&format!("{name}, p99"), our_tail, peer_tail, "us", Goal::Shown);
        findings.results(results);
    }
    findings.note(
        "Redis clients: the same generator on both, over TCP. Synced: Redis with `appendfsync \
         always`."
            .to_owned(),
    );
    Ok(())
}
