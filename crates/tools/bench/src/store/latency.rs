//! Chapters about the latency of operations.

use anyhow::Result;
use sprat_client::Mode;

use crate::ours::Transport;
use crate::promises::{Findings, Settings, rate, us};
use crate::scenarios::{self, Lab};
use crate::system::{Durability, Memcached, Redis, System};
use sprat_measure::goals::Goal;
use sprat_measure::target::Wait;

const UDP: &str = "sprat fast+udp";
const TCP: &str = "sprat tcp";
const REDIS: Redis = Redis { unix: false };

/// Measures reads of one client, twice: first Sprat's server and all clients spin while they wait,
/// then they sleep. The servers of Redis and memcached wait in their own way both times.
pub(super) fn reads(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let (udp, tcp) =
        (settings.sprat(Transport::Udp, Mode::Spin), settings.sprat(Transport::Tcp, Mode::Spin));
    let systems: [&dyn System; 4] = [&udp, &tcp, &REDIS, &Memcached];
    let spinning = scenarios::read_latency(&settings.lab.undisturbed(), &systems, Wait::Spin)?;
    let (udp, tcp) =
        (settings.sprat(Transport::Udp, Mode::Sleep), settings.sprat(Transport::Tcp, Mode::Sleep));
    let systems: [&dyn System; 4] = [&udp, &tcp, &REDIS, &Memcached];
    let sleeping = scenarios::read_latency(&settings.lab, &systems, Wait::Sleep)?;
    let (fast, echo) = (us(&spinning, UDP, 0.5), us(&spinning, "echo udp", 0.5));
    let (get, get_spinning) = (us(&sleeping, "redis", 0.5), us(&spinning, "redis", 0.5));
    findings.row(
        "100 B read p50, fast+udp, both spinning, vs bare spinning UDP echo",
        fast,
        echo,
        "us",
        Goal::RatioAtMost(1.5),
    );
    findings.row(
        "100 B read p50, fast+udp, both spinning, vs Redis GET",
        fast,
        get,
        "us",
        Goal::RatioAtMost(0.15),
    );
    findings.row(
        "the same vs Redis GET by a client that spins too",
        fast,
        get_spinning,
        "us",
        Goal::Shown,
    );
    findings.row(
        "100 B read p50, tcp, both spinning",
        us(&spinning, TCP, 0.5),
        None,
        "us",
        Goal::AtMost(10.0),
    );
    findings.row(
        "the same vs bare spinning TCP echo",
        us(&spinning, TCP, 0.5),
        us(&spinning, "echo tcp", 0.5),
        "us",
        Goal::Shown,
    );
    findings.row(
        "100 B read p50, tcp, both sleeping, vs Redis GET",
        us(&sleeping, TCP, 0.5),
        get,
        "us",
        Goal::RatioAtMost(1.0),
    );
    findings.row(
        "100 B read p50, fast+udp, both sleeping, vs Redis GET",
        us(&sleeping, UDP, 0.5),
        get,
        "us",
        Goal::Shown,
    );
    findings.row(
        "100 B read p99, fast+udp, both spinning",
        us(&spinning, UDP, 0.99),
        None,
        "us",
        Goal::Shown,
    );
    findings.results(spinning);
    findings.results(sleeping);
    Ok(())
}

/// Measures writes in memory by one client. Client and server spin.
pub(super) fn writes(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let (udp, tcp) =
        (settings.sprat(Transport::Udp, Mode::Spin), settings.sprat(Transport::Tcp, Mode::Spin));
    let systems: [&dyn System; 4] = [&udp, &tcp, &REDIS, &Memcached];
    let results = scenarios::write_latency(&settings.lab.undisturbed(), &systems, Wait::Spin)?;
    let set = us(&results, "redis", 0.5);
    findings.row(
        "100 B write p50, memory only, fast+udp, both spinning",
        us(&results, UDP, 0.5),
        set,
        "us",
        Goal::Shown,
    );
    findings.row(
        "100 B write p50, memory only, tcp, both spinning",
        us(&results, TCP, 0.5),
        set,
        "us",
        Goal::Shown,
    );
    findings.results(results);
    Ok(())
}

/// Measures reads on two cores with a server, a client, and a thread that only burns CPU. Server
/// and client wait in the default way.
pub(super) fn contention(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let adaptive =
        |transport| settings.sprat(transport, Mode::Adaptive).with_client(Mode::Adaptive);
    let (udp, tcp) = (adaptive(Transport::Udp), adaptive(Transport::Tcp));
    let systems: [&dyn System; 3] = [&udp, &tcp, &REDIS];
    let (quiet, contended) = scenarios::contention(&settings.lab, &systems, Wait::Sleep)?;
    for (label, name, goal) in [
        (UDP, "100 B read p50, fast+udp, hog beside, vs quiet", Goal::RatioAtMost(3.0)),
        (TCP, "100 B read p50, tcp, hog beside, vs quiet", Goal::RatioAtMost(3.0)),
        ("redis", "the same of Redis", Goal::Shown),
    ] {
        findings.row(name, us(&contended, label, 0.5), us(&quiet, label, 0.5), "us", goal);
    }
    findings.results(quiet);
    findings.results(contended);
    Ok(())
}

/// Measures durable writes: those that survive a power cut (`sync`, compared with Redis's
/// `always`), and those that survive the end of the process (`buffered`, compared with `everysec`).
pub(super) fn durable(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let (udp, tcp) = (
        settings.sprat(Transport::Udp, Mode::Adaptive),
        settings.sprat(Transport::Tcp, Mode::Adaptive),
    );
    let systems: [&dyn System; 3] = [&udp, &tcp, &REDIS];
    let lab: &Lab = &settings.lab;
    let one = scenarios::durable_write(lab, &systems, Durability::Sync, 1)?;
    let always = us(&one, "redis", 0.5);
    findings.row(
        "durable write p50, 1 connection, vs Redis AOF always",
        us(&one, UDP, 0.5),
        always,
        "us",
        Goal::RatioAtMost(1.0),
    );
    findings.row("the same over tcp", us(&one, TCP, 0.5), always, "us", Goal::RatioAtMost(1.0));
    let fifty = scenarios::durable_write(lab, &systems, Durability::Sync, 50)?;
    let always = rate(&fifty, "redis");
    findings.row(
        "durable writes, 50 connections, vs Redis AOF always",
        rate(&fifty, UDP),
        always,
        "op/s",
        Goal::RatioAtLeast(2.0),
    );
    findings.row("the same over tcp", rate(&fifty, TCP), always, "op/s", Goal::RatioAtLeast(2.0));
    let buffered = scenarios::durable_write(lab, &systems, Durability::Buffered, 50)?;
    let everysec = rate(&buffered, "redis");
    findings.row(
        "buffered writes, 50 connections, vs Redis AOF everysec",
        rate(&buffered, UDP),
        everysec,
        "op/s",
        Goal::RatioAtLeast(1.0),
    );
    findings.row(
        "the same over tcp",
        rate(&buffered, TCP),
        everysec,
        "op/s",
        Goal::RatioAtLeast(1.0),
    );
    findings.results(one);
    findings.results(fifty);
    findings.results(buffered);
    Ok(())
}
