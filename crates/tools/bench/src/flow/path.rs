//! Compares the weir, our congestion control, with BBR and CUBIC: alone on a path with random loss
//! or a shallow buffer, and sharing a path with a CUBIC stream.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use sprat_lab::chance::Probability;
use sprat_lab::line::{LineSettings as Line, Loss};

use crate::lab::net::{Net, delayed, gigabits};
use crate::lab::stream::{Congestion, StreamSpec, Streams, jain, payload_share};
use crate::promises::{Findings, Settings};
use sprat_measure::cpu::pause;
use sprat_measure::goals::Goal;
use sprat_measure::table::Table;
use sprat_units::figure;

/// Rate of the path in Gb/s, by default and with `--full`; and its round-trip time.
const RATE: f64 = 1.0;
const RATE_FULL: f64 = 2.0;
const ROUND_TRIP: Duration = Duration::from_millis(200);

/// Buffers in bytes: one bandwidth-delay product at 2 Gb/s, and four milliseconds at that rate.
const DEEP: u64 = 50_000_000;
const SHALLOW: u64 = 1_000_000;

/// Receive buffer of every stream. It allows windows of 268 MB, more than any path here needs.
const RECEIVE_BYTES: usize = 128 << 20;

/// Warm-up and measuring time of a stream alone.
const GROWTH: Duration = Duration::from_secs(5);
const COUNTED: Duration = Duration::from_secs(10);

/// Warm-up time of the second stream, and measuring time of both.
const OTHER_GROWS: Duration = Duration::from_secs(15);
const TOGETHER: Duration = Duration::from_secs(20);

/// Number of round trips after the end of the CUBIC stream, by which our stream should fill the
/// path again.
const BACK: u32 = 20;

/// Goals in %: a stream's share of the path when alone, and the greatest deviation from its fair
/// share next to another stream.
const ALONE: f64 = 90.0;
const FAIR: f64 = 20.0;

const EACH: [Congestion; 3] = [Congestion::Weir, Congestion::Bbr, Congestion::Cubic];

fn rate(settings: &Settings) -> f64 {
    if settings.full { RATE_FULL } else { RATE }
}

fn net(settings: &Settings, buffer: u64, loss: f64) -> Result<Net> {
    let loss = if loss > 0.0 {
        Loss::Random(Probability::new(loss / 100.0).context("a share of one")?)
    } else {
        Loss::None
    };
    let there = Line { rate: gigabits(rate(settings)), buffer, loss, ..delayed(ROUND_TRIP / 2) };
    Net::pair(there, delayed(ROUND_TRIP / 2))
}

fn way(congestion: Congestion) -> StreamSpec {
    StreamSpec { congestion, receive_buffer: Some(RECEIVE_BYTES), ..StreamSpec::cubic(0, 1) }
}

/// Measures one stream alone on various paths.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let mut table =
        Table::new(&["path", "stream", "share of it, %", "lost at the buffer", "lost by accident"]);
    let paths =
        [(DEEP, 0.0), (SHALLOW, 0.0), (DEEP, 0.01), (SHALLOW, 0.01), (DEEP, 0.1), (SHALLOW, 0.1)];
    for (buffer, loss) in paths {
        let name =
            format!("{} Gb/s, 200 ms, {} MB, {loss} % lost", rate(settings), buffer / 1_000_000);
        let mut best_peer: Option<f64> = None;
        let mut ours = None;
        for congestion in EACH {
            let net = net(settings, buffer, loss)?;
            let results = Streams::start(&net, &[way(congestion)])?.measure(GROWTH, COUNTED)?;
            let share = results.total_gbits() / (rate(settings) * payload_share(false)) * 100.0;
            let drops = net.line(1)?.counters.drops;
            table.row(vec![
                name.clone(),
                congestion.to_string(),
                figure::digits(share),
                drops.buffer.to_string(),
                drops.loss.to_string(),
            ]);
            match congestion {
                Congestion::Weir => ours = Some(share),
                _ => best_peer = Some(best_peer.map_or(share, |best| best.max(share))),
            }
        }
        findings.row(
            &format!("{name}: weir, vs the best of bbr and cubic"),
            ours,
            best_peer,
            "%",
            Goal::AtLeast(ALONE),
        );
    }
    findings.table("One stream by itself", table);
    findings.note(format!(
        "Shares are payload of what a stream of full segments can have of the path, from second \
         {} to {}.",
        GROWTH.as_secs(),
        (GROWTH + COUNTED).as_secs(),
    ));
    Ok(())
}

/// Measures each congestion control next to a CUBIC stream, which starts later and ends earlier.
pub(super) fn share(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let most = rate(settings) * payload_share(false);
    let mut table = Table::new(&[
        "path",
        "stream",
        "alone, %",
        "beside cubic, %",
        "cubic, %",
        "Jain",
        "20 round trips later, %",
    ]);
    for buffer in [DEEP, SHALLOW] {
        for congestion in EACH {
            let net = net(settings, buffer, 0.0)?;
            let one = Streams::start(&net, &[way(congestion)])?;
            let share = |streams: &Streams, time: Duration| {
                let (begun, before) = (Instant::now(), streams.received()[0]);
                pause(time);
                (streams.received()[0] - before) as f64 * 8e-9
                    / begun.elapsed().as_secs_f64()
                    / most
                    * 100.0
            };
            pause(GROWTH);
            let alone = share(&one, Duration::from_secs(2));
            let other = Streams::start(&net, &[way(Congestion::Cubic)])?;
            pause(OTHER_GROWS);
            let (begun, before) = (Instant::now(), [one.received()[0], other.received()[0]]);
            pause(TOGETHER);
            let shares = [(&one, before[0]), (&other, before[1])].map(|(streams, before)| {
                (streams.received()[0] - before) as f64 * 8e-9
                    / begun.elapsed().as_secs_f64()
                    / most
                    * 100.0
            });
            other.finish()?;
            pause(BACK * ROUND_TRIP);
            let back = share(&one, Duration::from_secs(2));
            one.finish()?;
            let name = format!(
                "{} Gb/s, 200 ms, {} MB, {congestion} beside cubic",
                rate(settings),
                buffer / 1_000_000
            );
            let judged = |goal| if congestion == Congestion::Weir { goal } else { Goal::Shown };
            findings.row(
                &format!("{name}: off its fair share"),
                Some((shares[0] - 50.0).abs() * 2.0),
                None,
                "%",
                judged(Goal::AtMost(FAIR)),
            );
            findings.row(
                &format!("{name}: {BACK} round trips later"),
                Some(back),
                None,
                "%",
                judged(Goal::AtLeast(ALONE)),
            );
            table.row(vec![
                format!("{} MB", buffer / 1_000_000),
                congestion.to_string(),
                figure::digits(alone),
                figure::digits(shares[0]),
                figure::digits(shares[1]),
                format!("{:.3}", jain(&shares)),
                figure::digits(back),
            ]);
        }
    }
    findings.table("Beside a CUBIC stream that comes and goes", table);
    Ok(())
}
