//! Measures one TCP stream over a long fat pipe.

use std::time::Duration;

use anyhow::Result;

use super::net::{Net, delayed, gigabits};
use super::stream::{Congestion, StreamSpec, Streams, payload_share};
use crate::promises::{Findings, Settings};
use sprat_measure::goals::Goal;
use sprat_measure::table::Table;
use sprat_units::figure;

/// Goal: rate of one stream that only the machine limits, in Gb/s.
const FAST: f64 = 7.0;

/// Goal: a stream's share of a line's rate.
const SHARE: f64 = 0.95;

/// Rate of the long line in Gb/s; with `--full` it is unlimited.
const RATE: f64 = 2.0;

/// Receive buffer of streams over the long line, in bytes. It allows windows of at most 134 MB, for
/// which [`BUFFER`] has room.
const RECEIVE_BYTES: usize = 64 << 20;

/// Buffer of the long line in bytes.
const BUFFER: u64 = 160_000_000;

/// Round-trip time of the long line.
const ROUND_TRIP: Duration = Duration::from_millis(200);

/// Time for windows to grow: without a delay; on the long line at [`RATE`]; and on the long line
/// with `--full`.
const GROWTH: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_secs(8), Duration::from_secs(20)];

/// Measures streams without delay and over the long line, over IPv4 and IPv6.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let mut table =
        Table::new(&["stream", "growth, s", "Gb/s", "drops", "box late on average, us"]);
    let bare = flow(&Net::bare()?, StreamSpec::cubic(0, 1), GROWTH[0], settings)?;
    table.row(vec![
        "cubic, IPv4, a cable and no box".into(),
        "0.5".into(),
        figure::digits(bare),
        "-".into(),
        "-".into(),
    ]);
    let (limit, growth) =
        if settings.full { (None, GROWTH[2]) } else { (gigabits(RATE), GROWTH[1]) };
    let far = |v6: bool| match settings.full {
        true => ("200 ms".to_owned(), FAST),
        false => (
            format!("200 ms, {RATE} Gb/s"),
            (RATE * payload_share(v6) * SHARE * 100.0).round() / 100.0,
        ),
    };
    let near = |_: bool| ("0 ms".to_owned(), FAST);
    for (round_trip, limit, growth, describe) in [
        (Duration::ZERO, None, GROWTH[0], &near as &dyn Fn(bool) -> (String, f64)),
        (ROUND_TRIP, limit, growth, &far),
    ] {
        for (congestion, v6) in [
            (Congestion::Reno, false),
            (Congestion::Reno, true),
            (Congestion::Cubic, false),
            (Congestion::Bbr, false),
        ] {
            let mut there = delayed(round_trip / 2);
            (there.rate, there.buffer) = (limit, BUFFER);
            let net = Net::pair(there, delayed(round_trip / 2))?;
            let way = StreamSpec {
                congestion,
                v6,
                receive_buffer: limit.map(|_| RECEIVE_BYTES),
                ..StreamSpec::cubic(0, 1)
            };
            let gbits = flow(&net, way, growth, settings)?;
            let line = net.line(1)?;
            let ((pipe, goal), version) = (describe(v6), if v6 { 6 } else { 4 });
            let goal =
                if congestion == Congestion::Reno { Goal::AtLeast(goal) } else { Goal::Shown };
            let peer = (round_trip.is_zero() && !v6).then_some(bare);
            let name = format!("{pipe}: one {congestion} stream, IPv{version}");
            findings.row(
                &format!("{name}{}", if peer.is_some() { ", vs a bare cable" } else { "" }),
                Some(gbits),
                peer,
                "Gb/s",
                goal,
            );
            table.row(vec![
                name,
                figure::digits(growth.as_secs_f64()),
                figure::digits(gbits),
                line.counters.drops.total().to_string(),
                figure::digits(line.lateness.mean().as_secs_f64() * 1e6),
            ]);
        }
    }
    findings.table("One stream", table);
    findings.note(
        "Streams are of plain sockets, windows up to 1 GB (134 MB on a line of limited rate, for \
         which its buffer has room), congestion \
             control by socket option. Payload, once windows have grown."
            .to_owned(),
    );
    Ok(())
}

fn flow(net: &Net, way: StreamSpec, growth: Duration, settings: &Settings) -> Result<f64> {
    Ok(Streams::start(net, &[way])?.measure(growth, settings.lab.duration)?.total_gbits())
}
