//! Checks how long a queue grows: `cwnd_max = queue + throughput x round trip`, if the receiver
//! limits the window. Also checks that segments are lost if the queue does not fit into the buffer.

use std::time::Duration;

use anyhow::{Context as _, Result};
use sprat_lab::line::LineSettings as Line;

use super::host::ip_on_host;
use super::net::{Net, delayed, gigabits};
use super::probe::ping;
use super::stream::{Congestion, StreamSpec, Streams, payload_share};
use crate::promises::{Findings, Settings};
use sprat_measure::goals::Goal;
use sprat_units::figure;

/// A path, and a window for it.
struct Case {
    round_trip: Duration,
    /// Window in bytes of payload: a maximum at some window scale, since the kernel rounds the
    /// route's window up to such a value.
    window: usize,
    /// Buffer in bytes on the wire.
    buffer: u64,
    /// Rates in Gb/s: the first at which the window fits into path and buffer, then one at which it
    /// does not.
    rates: [f64; 2],
    growth: Duration,
}

const SMALL: Case = Case {
    round_trip: Duration::from_millis(200),
    window: 65_535 << 10,
    buffer: 52_000_000,
    rates: [1.0, 0.5],
    growth: Duration::from_secs(5),
};

/// Similar to the published experiment \[SC09\], which has a window of 600 MB and a buffer of 537
/// MB. There 507 MB were queued at 2 Gb/s, so 93 MB were on the path: a round-trip time of 372 ms.
const FULL: Case = Case {
    round_trip: Duration::from_millis(372),
    window: 65_535 << 13,
    buffer: 500_000_000,
    rates: [2.0, 1.0],
    growth: Duration::from_secs(15),
};

/// Number of echoes that measure the round-trip time with the queue, and the interval between them.
const ECHOES: u16 = 20;
const GAP: Duration = Duration::from_millis(20);

/// Goal: relative error of the formula.
const BOUND: f64 = 0.05;

/// Measures the queue at both rates.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let case = if settings.full { &FULL } else { &SMALL };
    for rate in case.rates {
        let there =
            Line { rate: gigabits(rate), buffer: case.buffer, ..delayed(case.round_trip / 2) };
        let net = Net::pair(there, delayed(case.round_trip / 2))?;
        clamp(&net, case.window)?;
        let way = StreamSpec {
            congestion: Congestion::Reno,
            receive_buffer: Some(case.window * 2),
            ..StreamSpec::cubic(0, 1)
        };
        let (mut queues, mut echoes) = (Vec::new(), None);
        let (to, window_time) =
            (net.address(1, false), Duration::from_secs_f64(case.window as f64 * 8.0 / rate / 1e9));
        let results = Streams::start(&net, &[way])?.measure_with(
            case.growth,
            settings.lab.duration,
            &mut || {
                queues.push(net.line(1)?.counters.queue as f64 * payload_share(false));
                if echoes.is_none() {
                    echoes =
                        Some(net.hosts[0].run(move || ping(to, window_time * 2, ECHOES, GAP))?);
                    queues.push(net.line(1)?.counters.queue as f64 * payload_share(false));
                }
                Ok(())
            },
        )?;
        let drops = net.line(1)?.counters.drops.total() as f64;
        let name = format!(
            "{} MB window, {rate} Gb/s, {} ms, {} MB buffer",
            figure::digits(case.window as f64 / 1e6),
            case.round_trip.as_millis(),
            case.buffer / 1_000_000
        );
        if rate < case.rates[0] {
            findings.row(
                &format!("{name}: lost"),
                Some(drops),
                None,
                "segments",
                Goal::AtLeast(1.0),
            );
            continue;
        }
        let queue = queues.iter().sum::<f64>() / queues.len() as f64;
        let under_way = results.total_gbits() * 1e9 / 8.0 * case.round_trip.as_secs_f64();
        let window = case.window as f64;
        findings.row(
            &format!("{name}: queue + throughput x round trip, vs window"),
            Some((queue + under_way) / 1e6),
            Some(window / 1e6),
            "MB",
            Goal::RatioWithin(BOUND),
        );
        findings.row(
            &format!("{name}: of that queued"),
            Some(queue / 1e6),
            None,
            "MB",
            Goal::Shown,
        );
        findings.row(
            &format!("{name}: ping meanwhile, vs window / throughput"),
            echoes.as_ref().and_then(super::probe::Trips::mean),
            Some(window * 8.0 / (results.total_gbits() * 1e9) * 1e3),
            "ms",
            Goal::RatioWithin(BOUND),
        );
        findings.row(&format!("{name}: lost"), Some(drops), None, "segments", Goal::AtMost(0.0));
    }
    findings.note(
        "The receiver's window is held by its route (ip route .. window) in a receive buffer that \
         is larger; queues are given in payload."
            .to_owned(),
    );
    Ok(())
}

/// Limits the windows of connections to the second host, by a setting of its route.
fn clamp(net: &Net, bytes: usize) -> Result<()> {
    let host = &net.hosts[1];
    let (interface, own, bytes) = (host.interface(), host.v4().to_string(), bytes.to_string());
    let route = move || {
        let to = ["route", "replace", "10.9.0.0/24", "dev", &interface];
        ip_on_host(
            &[&to[..], &["proto", "kernel", "scope", "link", "src", &own, "window", &bytes]]
                .concat(),
        )
    };
    host.run(route).context("holding a window")
}
