//! Checks whether the network box keeps the delay and the rate that are set.

use std::time::Duration;

use anyhow::Result;

use super::net::{Net, delayed, gigabits};
use super::probe::ping;
use super::stream::{Congestion, StreamSpec, Streams, payload_share};
use crate::promises::{Findings, Settings};
use sprat_measure::goals::Goal;
use sprat_measure::table::Table;
use sprat_units::figure;

/// Round-trip times to set, in ms.
const ROUND_TRIPS: [u64; 5] = [0, 1, 50, 200, 500];

/// Interval between two echoes.
const GAP: Duration = Duration::from_millis(5);

/// Limit on the number of echoes for each round-trip time.
const MOST: f64 = 10_000.0;

/// Rates to set, in Gb/s.
const RATES: [f64; 2] = [0.1, 1.0];

/// Rates to set with `--full`.
const RATES_FULL: [f64; 4] = [0.1, 1.0, 2.0, 5.0];

/// Goal: the error of a rate in %.
const RATE_BOUND: f64 = 1.0;

/// Time for a stream without delay to fill the line.
const GROWTH: Duration = Duration::from_millis(500);

/// Measures echoes over lines with all delays.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let mut table = Table::new(&[
        "round trip set, ms",
        "echoes",
        "minimum",
        "mean",
        "longest",
        "lost",
        "out of order",
    ]);
    let (mut lost, mut overtaken) = (0, 0);
    for set in ROUND_TRIPS {
        let round_trip = Duration::from_millis(set);
        let net = Net::pair(delayed(round_trip / 2), delayed(round_trip / 2))?;
        let to = net.address(1, false);
        let count = echoes(settings.lab.duration);
        let trips = net.hosts[0].run(move || ping(to, round_trip, count, GAP))?;
        let set_ms = round_trip.as_secs_f64() * 1e3;
        let off = |figure: Option<f64>| figure.map(|figure| (figure - set_ms).abs());
        let (least, mean) = (off(trips.least()), off(trips.mean()));
        let bound = (100.0 + set_ms).round() / 1e3; // 0.1 ms and 0.1 %
        findings.row(
            &format!("{set} ms round trip: minimum of pings off by"),
            least,
            None,
            "ms",
            Goal::AtMost(bound),
        );
        findings.row(
            &format!("{set} ms round trip: mean of pings off by"),
            mean,
            None,
            "ms",
            Goal::AtMost(1.0),
        );
        let ms = |figure: Option<f64>| {
            figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.3}"))
        };
        table.row(vec![
            set.to_string(),
            count.to_string(),
            ms(trips.least()),
            ms(trips.mean()),
            ms(trips.most()),
            trips.lost.to_string(),
            trips.overtaken.to_string(),
        ]);
        lost += trips.lost;
        overtaken += trips.overtaken;
    }
    findings.row(
        "pings lost, nothing having been asked for",
        Some(lost as f64),
        None,
        "pings",
        Goal::AtMost(0.0),
    );
    findings.row(
        "pings that overtook others",
        Some(overtaken as f64),
        None,
        "pings",
        Goal::AtMost(0.0),
    );
    findings.table("Round trips by ICMP echo", table);
    findings.note(
        "The near end of a ping spins; the far kernel answers. What is beyond the set time is the \
         box's thread being woken when a packet \
         comes, twice a round trip, and what the kernels do."
            .to_owned(),
    );
    Ok(())
}

/// Measures a stream over lines with several rates, by the bytes that arrive at the far host.
pub(super) fn rate(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let rates = if settings.full { &RATES_FULL[..] } else { &RATES };
    for &set in rates {
        let mut there = delayed(Duration::ZERO);
        there.rate = gigabits(set);
        let net = Net::pair(there, delayed(Duration::ZERO))?;
        let streams = Streams::start(&net, &[StreamSpec::cubic(0, 1)])?;
        let found = streams.measure(GROWTH, settings.lab.duration.max(Duration::from_secs(1)))?;
        let due = set * payload_share(false);
        let off = (found.total_gbits() / due - 1.0).abs() * 100.0;
        let name = format!(
            "{} Gb/s set: what arrives of a TCP stream off by",
            figure::short(&figure::digits(set))
        );
        findings.row(&name, Some(off), None, "%", Goal::AtMost(RATE_BOUND));
    }
    let share = payload_share(false) * 100.0;
    findings.note(format!(
        "A rate is of frames with all that Ethernet adds: of 1,538 bytes a TCP stream over IPv4 \
         has 1,448, {share:.1} %. Streams are {}.",
        Congestion::Cubic
    ));
    Ok(())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "ten thousand at most")]
fn echoes(duration: Duration) -> u16 {
    (duration.as_secs_f64() / GAP.as_secs_f64()).clamp(1.0, MOST) as u16
}
