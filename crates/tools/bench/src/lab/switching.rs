//! Measures the switch: the latency of frames against the model, and streams between all pairs of
//! ports.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use sprat_lab::Time;
use sprat_lab::engine::Forwarding;
use sprat_lab::frame::{ETHERNET_BYTES, Packet, Received, VNET_BYTES};
use sprat_lab::line::{Line, LineSettings, Timing};
use sprat_lab::memory::Memory;
use sprat_lab::switch::AGEING;

use super::net::{Net, delayed, gigabits};
use super::stream::{StreamSpec, Streams, payload_share};
use crate::promises::{Findings, Settings};
use sprat_measure::goals::Goal;
use sprat_measure::table::Table;
use sprat_units::figure;

/// Sizes of frames in bytes, including the check sequence.
const SIZES: [usize; 6] = [64, 128, 512, 1024, 1518, 9018];

/// Bytes of a frame's check sequence. Ports do not pass the check sequence on.
const CHECK_BYTES: usize = 4;

/// Bytes that precede and follow a frame on the wire.
const PREAMBLE_BYTES: usize = 8;
const GAP_BYTES: usize = 12;

/// Rate of the lines in the model, in Gb/s. A Gb/s is a bit per nanosecond.
const MODEL_RATE: f64 = 10.0;

/// Time at which a frame's last bit arrives: later than the duration of any frame.
const ARRIVAL: Time = Time(1_000_000);

/// Number of ports. There is a stream from each port to each other port.
const PORTS: usize = 5;

/// Rate of each port in Gb/s.
const RATE: f64 = 0.2;

/// Rate of each port with `--full`.
const RATE_FULL: f64 = 1.0;

/// Buffer of each port in bytes: that of a switch, not of a long fat pipe.
const BUFFER: u64 = 1_000_000;

/// Goal: the streams' share of all ports' rates. Acknowledgements use some of the rest.
const SHARE: f64 = 0.9;

const GROWTH: Duration = Duration::from_secs(2);

/// Compares latencies with the model, then measures streams.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    model(findings)?;
    all_to_all(settings, findings)
}

/// Compares the departure of single frames with the model.
fn model(findings: &mut Findings) -> Result<()> {
    let mut table = Table::new(&["frame, B", "stored, ns", "model", "cut through, ns", "model"]);
    let mut off = [0.0_f64; 2];
    for size in SIZES {
        let mut row = vec![size.to_string()];
        // From the last bit in to the last bit out, including the gap. With store-and-forward, this
        // is the duration of the whole frame; with cut-through, the duration of the preamble and
        // header.
        let stored = ((PREAMBLE_BYTES + size + GAP_BYTES) * 8) as f64 / MODEL_RATE;
        let cut = ((PREAMBLE_BYTES + ETHERNET_BYTES) * 8) as f64 / MODEL_RATE;
        for (off, (timing, due)) in
            off.iter_mut().zip([(Timing::StoreAndForward, stored), (Timing::CutThrough, cut)])
        {
            let found = latency(size, timing)?;
            *off = off.max((found - due).abs());
            row.extend([figure::digits(found), figure::digits(due)]);
        }
        table.row(row);
    }
    for (off, how) in off.into_iter().zip(["store-and-forward", "cut-through"]) {
        let name =
            format!("switch, {how}, 64 to 9018 B at {MODEL_RATE} Gb/s: off the model by at most");
        findings.row(&name, Some(off), None, "ns", Goal::AtMost(1.0));
    }
    findings.table("A switch's latency by frame", table);
    Ok(())
}

/// Returns the time from a frame's last bit in to its last bit out, in ns.
fn latency(size: usize, timing: Timing) -> Result<f64> {
    let settings = LineSettings { rate: gigabits(MODEL_RATE), timing, ..LineSettings::default() };
    let (mut line, mut memory) = (Line::new(settings), Memory::of_cells(16));
    let mut bytes = vec![0; VNET_BYTES + size - CHECK_BYTES];
    bytes[VNET_BYTES..VNET_BYTES + 14]
        .copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]); // 0x88b5: experimental
    let Received::Packet(packet) = Packet::of(&bytes, &mut memory, ARRIVAL) else {
        bail!("a frame of {size} B is refused")
    };
    line.push(packet, ARRIVAL, &mut memory);
    if line.pop(ARRIVAL).is_some() {
        bail!("a frame of {size} B leaves before it has come");
    }
    let end = line.next().context("a frame that was pushed is lost")?;
    Ok(end.since(ARRIVAL).as_nanos() as f64)
}

/// Measures a stream from each port to each other port.
fn all_to_all(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let rate = if settings.full { RATE_FULL } else { RATE };
    let line = LineSettings { rate: gigabits(rate), buffer: BUFFER, ..delayed(Duration::ZERO) };
    let net = Net::boxed(vec![line; PORTS], Forwarding::Switch(AGEING))?;
    let pairs = (0..PORTS).flat_map(|from| (0..PORTS).map(move |to| (from, to)));
    let ways: Vec<StreamSpec> = pairs
        .filter(|(from, to)| from != to)
        .map(|(from, to)| StreamSpec::cubic(from, to))
        .collect();
    let results = Streams::start(&net, &ways)?.measure(GROWTH, settings.lab.duration)?;
    let report = net.stop()?;
    let name = format!("{PORTS} ports of {rate} Gb/s, all to all");
    let flowing = results.flowing() as f64;
    findings.row(
        &format!("{name}: streams that flow"),
        Some(flowing),
        None,
        "",
        Goal::AtLeast(ways.len() as f64),
    );
    let goal = PORTS as f64 * rate * payload_share(false) * SHARE;
    let goal = Goal::AtLeast((goal * 100.0).round() / 100.0);
    findings.row(&format!("{name}: together"), Some(results.total_gbits()), None, "Gb/s", goal);
    let switch = report.switch.context("the box is a switch")?;
    let (stations, ports) = (Some(switch.stations as f64), Some(PORTS as f64));
    findings.row(
        &format!("{name}: stations learnt, vs ports"),
        stations,
        ports,
        "",
        Goal::RatioWithin(0.0),
    );
    let unwanted = report.lines.iter().map(|line| line.counters.drops.unwanted()).sum::<u64>()
        + report.inputs.iter().map(|input| input.exhausted + input.dropped_by_kernel).sum::<u64>();
    findings.row(
        &format!("{name}: lost but by full buffers"),
        Some(unwanted as f64),
        None,
        "frames",
        Goal::AtMost(0.0),
    );
    Ok(())
}
