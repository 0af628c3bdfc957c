//! Chapters about the operations per second of one server core.

use anyhow::Result;
use sprat_client::Mode;

use crate::ours::{Sockets, Transport};
use crate::promises::{Findings, Settings, rate, us};
use crate::scenarios::{self, Mix};
use crate::system::{Memcached, Redis, System};
use sprat_measure::goals::Goal;

const UDP: &str = "sprat fast+udp";
const TCP: &str = "sprat tcp";
const ONE: &str = "sprat fast+udp, one socket";

/// Number of connections to one server: fifty, as is usual in benchmarks.
const CONNECTIONS: usize = 50;

/// Operations in flight in the pipelined load.
const DEPTH: usize = 512;

/// Number of objects in a batch.
const TOGETHER: usize = 100;

/// Measures fifty connections with one operation at a time each.
pub(super) fn fifty(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let (udp, tcp) =
        (settings.sprat(Transport::Udp, Mode::Spin), settings.sprat(Transport::Tcp, Mode::Spin));
    let one = udp.clone().over(Sockets::One);
    let redis = Redis { unix: false };
    let systems: [&dyn System; 5] = [&udp, &tcp, &one, &redis, &Memcached];
    let lab = settings.lab.undisturbed();
    let reads = scenarios::throughput(&lab, &systems, Mix::reads(CONNECTIONS, 1))?;
    for (label, what) in [(UDP, "fast+udp"), (TCP, "tcp")] {
        let ours = rate(&reads, label);
        let name = format!("reads, 50 connections, {what}, one server core, vs Redis");
        findings.row(&name, ours, rate(&reads, "redis"), "op/s", Goal::RatioAtLeast(1.5));
        let name = format!("reads, 50 connections, {what}, one server core, vs memcached");
        findings.row(&name, ours, rate(&reads, "memcached"), "op/s", Goal::RatioAtLeast(1.0));
    }
    let name = "reads, 50 clients of one node (one socket), fast+udp, vs Redis with 50 connections";
    findings.row(name, rate(&reads, ONE), rate(&reads, "redis"), "op/s", Goal::Shown);
    let writes = scenarios::throughput(&lab, &systems, Mix::writes(CONNECTIONS, 1))?;
    let name = "writes in memory, 50 connections, fast+udp, vs Redis";
    findings.row(name, rate(&writes, UDP), rate(&writes, "redis"), "op/s", Goal::Shown);
    findings.results(reads);
    findings.results(writes);
    Ok(())
}

/// Measures one connection with many operations in flight.
pub(super) fn pipelined(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let (udp, tcp) =
        (settings.sprat(Transport::Udp, Mode::Spin), settings.sprat(Transport::Tcp, Mode::Spin));
    let redis = Redis { unix: false };
    let systems: [&dyn System; 4] = [&udp, &tcp, &redis, &Memcached];
    let results =
        scenarios::throughput(&settings.lab.undisturbed(), &systems, Mix::reads(1, DEPTH))?;
    let (peer, cached) = (rate(&results, "redis"), rate(&results, "memcached"));
    findings.row(
        "pipelined reads, fast+udp",
        rate(&results, UDP),
        peer,
        "op/s",
        Goal::AtLeast(2e6),
    );
    findings.row("pipelined reads, tcp", rate(&results, TCP), peer, "op/s", Goal::Shown);
    findings.row(
        "pipelined reads, fast+udp, vs memcached",
        rate(&results, UDP),
        cached,
        "op/s",
        Goal::Shown,
    );
    findings.note(format!(
        "Pipelined: one connection, {DEPTH} in flight; the generator's core is as busy as the \
         server's, so this is what \
         one client core and one server core do together."
    ));
    findings.results(results);
    Ok(())
}

/// Measures one client that reads many objects at a time, and the same client with one object at a
/// time.
pub(super) fn batches(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let (udp, tcp) =
        (settings.sprat(Transport::Udp, Mode::Spin), settings.sprat(Transport::Tcp, Mode::Spin));
    let redis = Redis { unix: false };
    let systems: [&dyn System; 4] = [&udp, &tcp, &redis, &Memcached];
    let lab = settings.lab.undisturbed();
    let results = scenarios::batch_reads(&lab, &systems, TOGETHER)?;
    #[expect(clippy::cast_precision_loss, reason = "a hundred")]
    let objects =
        |label: &str| rate(&results, &format!("{label} batch")).map(|rate| rate * TOGETHER as f64);
    for (label, what) in [(UDP, "fast+udp"), (TCP, "tcp")] {
        let name = format!("objects read in batches of {TOGETHER}, {what}, vs single reads");
        let single = rate(&results, &format!("{label} single"));
        findings.row(&name, objects(label), single, "op/s", Goal::RatioAtLeast(10.0));
    }
    for (label, what) in [(UDP, "fast+udp"), (TCP, "tcp")] {
        let ours = us(&results, &format!("{label} batch"), 0.5);
        let name = format!("batch of {TOGETHER} reads p50, {what}, vs Redis MGET");
        let peer = us(&results, "redis batch", 0.5);
        findings.row(&name, ours, peer, "us", Goal::RatioAtMost(1.0));
        let name = format!("batch of {TOGETHER} reads p50, {what}, vs memcached get");
        findings.row(&name, ours, us(&results, "memcached batch", 0.5), "us", Goal::Shown);
    }
    findings.results(results);
    Ok(())
}
