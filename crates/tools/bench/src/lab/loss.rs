//! Checks whether the network box loses the configured share of packets, and loses the same packets
//! with the same seed.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use nix::sys::socket::{setsockopt, sockopt};
use sprat_lab::chance::Probability;
use sprat_lab::line::{GilbertElliott, LineSettings as Line, Loss};

use super::net::{Net, delayed};
use crate::promises::{Findings, Settings};
use sprat_measure::goals::Goal;

/// Datagrams in a pass.
const DATAGRAMS: u32 = 50_000;

/// Datagrams in a pass with `--full`.
const DATAGRAMS_FULL: u32 = 1_000_000;

/// Interval between two datagrams: long enough for a machine with other load.
const GAP: Duration = Duration::from_micros(20);

/// Time without a datagram after which the datagrams that are missing count as lost.
const LATE: Duration = Duration::from_millis(500);

/// Receive buffer in bytes. It holds the datagrams that arrive while the receiver does not run.
const RECEIVE_BYTES: usize = 64 << 20;

/// Shares to lose, in percent.
const SHARES: [f64; 3] = [0.1, 1.0, 10.0];

/// Goal: error of the lost share, in standard deviations.
const SIGMAS: f64 = 3.0;

/// Sends datagrams over lines with various losses.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let count = if settings.full { DATAGRAMS_FULL } else { DATAGRAMS };
    let net = Net::pair(delayed(Duration::ZERO), delayed(Duration::ZERO))?;
    for host in &net.hosts {
        host.run(quiet)?;
    }
    let clean = lost(&net, &Loss::None, 1, count)?;
    findings.row(
        "datagrams lost where none is to be",
        Some(clean.len() as f64),
        None,
        "datagrams",
        Goal::AtMost(0.0),
    );
    for percent in SHARES {
        let share = percent / 100.0;
        let found = lost(&net, &Loss::Random(probability(share)?), 1, count)?;
        let (mean, sigma) = binomial(count, share);
        let off = (found.len() as f64 - mean).abs() / sigma;
        let name = format!("{percent} % loss set: of {count} datagrams off by");
        findings.row(&name, Some(off), None, "sigma", Goal::AtMost(SIGMAS));
    }
    let bursts = GilbertElliott {
        to_bad: probability(0.01)?,
        to_good: probability(0.25)?,
        loss_bad: probability(1.0)?,
        loss_good: probability(0.0)?,
    };
    for (name, loss) in
        [("random", Loss::Random(probability(0.01)?)), ("in bursts", Loss::Bursts(bursts))]
    {
        let first = lost(&net, &loss, 7, count)?;
        let again = lost(&net, &loss, 7, count)?;
        let other = lost(&net, &loss, 8, count)?;
        let differ = |set: &BTreeSet<u32>| Some(first.symmetric_difference(set).count() as f64);
        let same = format!("losses {name}: datagrams that fare differently with the same seed");
        findings.row(&same, differ(&again), None, "datagrams", Goal::AtMost(0.0));
        findings.row(
            &format!("losses {name}: with another seed"),
            differ(&other),
            None,
            "datagrams",
            Goal::AtLeast(1.0),
        );
    }
    let report = net.stop()?;
    findings.note(match report.behind.is_empty() {
        true => "Losses were counted by the datagrams that came; the box kept up.".to_owned(),
        false => format!("The box did not keep up: {}.", report.behind.join("; ")),
    });
    Ok(())
}

/// Sends datagrams. Returns the numbers of the datagrams that do not arrive at the second host.
fn lost(net: &Net, loss: &Loss, seed: u64, count: u32) -> Result<BTreeSet<u32>> {
    // The line restarts its random generator only if the seed changes.
    for line in [
        Line { seed: !seed, ..Line::default() },
        Line { loss: loss.clone(), seed, ..Line::default() },
    ] {
        net.engine()?.set(&net.hosts[1].interface(), line)?;
    }
    let address = net.address(1, false);
    let (bound, ready) = sync_channel(1);
    let receiving = net.hosts[1].start(move || {
        let socket = UdpSocket::bind((address, 0))?;
        setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BYTES)
            .context("a buffer: it needs CAP_NET_ADMIN")?;
        socket.set_read_timeout(Some(LATE))?;
        bound.send(socket.local_addr()?).context("telling the port")?;
        let (mut missing, mut buffer, mut begun) =
            ((0..count).collect::<BTreeSet<_>>(), [0; 64], false);
        loop {
            match socket.recv(&mut buffer) {
                Ok(4) => {
                    begun = true;
                    missing
                        .remove(&u32::from_be_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]));
                }
                Ok(_) => {}
                // The first datagram may take longer than `LATE`.
                Err(_) if !begun && missing.len() == count as usize => begun = true,
                Err(_) => return Ok(missing),
            }
        }
    })?;
    let to = ready.recv_timeout(LATE).map_err(|_| anyhow!("no port to receive at"))?;
    net.hosts[0].run(move || flood(to, count))?;
    receiving.get()
}

/// Prevents a host's kernel from sending frames, since each frame would use a random number of the
/// line.
fn quiet() -> Result<()> {
    match fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1") {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).context("switching IPv6 off")
        }
        _ => Ok(()), // the file is missing on a kernel without IPv6
    }
}

/// Sends numbered datagrams at a steady pace.
fn flood(to: SocketAddr, count: u32) -> Result<()> {
    let socket = UdpSocket::bind(if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" })?;
    let begun = Instant::now();
    for number in 0..count {
        while begun.elapsed() < GAP * number {
            std::hint::spin_loop();
        }
        socket.send_to(&number.to_be_bytes(), to).context("sending a datagram")?;
    }
    Ok(())
}

/// Returns the mean and the standard deviation of the number of hits among `count` trials that hit
/// with probability `share`.
fn binomial(count: u32, share: f64) -> (f64, f64) {
    let count = f64::from(count);
    (count * share, (count * share * (1.0 - share)).sqrt())
}

fn probability(share: f64) -> Result<Probability> {
    Probability::new(share).with_context(|| format!("{share} is no probability"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_coins() {
        let (mean, sigma) = binomial(1_000, 0.5);
        assert!((mean - 500.0).abs() < 1e-9 && (sigma - 15.811).abs() < 1e-3, "{mean} {sigma}");
    }
}
