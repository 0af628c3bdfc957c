//! Measures the packet capture during a stream: the bytes that it writes, and the packets that it
//! misses.

use std::time::Duration;

use anyhow::{Context as _, Result};
use sprat_lab::capture::{Capture, CaptureSettings};
use sprat_lab::engine::{Engine, Forwarding, Inspection};
use sprat_lab::line::LineSettings as Line;

use super::net::{Net, delayed, gigabits};
use super::stream::{StreamSpec, Streams};
use crate::promises::{Findings, Settings};
use sprat_measure::goals::Goal;

/// Rate of the stream in Gb/s.
const RATE: f64 = 1.0;

/// Measuring time with `--full`: about a gigabyte.
const FULL: Duration = Duration::from_secs(9);

/// Captures a stream, and compares the number of packets in the capture with the number that
/// arrived at the box.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let folder =
        tempfile::tempdir_in(&settings.lab.setup.data).context("a folder for the capture")?;
    let path = folder.path().join("capture.pcapng");
    let interfaces = vec!["h1".to_owned(), "h2".to_owned()];
    let (capture, recorders) = Capture::start(
        CaptureSettings::new(&path, interfaces),
        Engine::workers(Forwarding::Cross, 2),
    )?;
    let look = |recorder| Inspection { recorder: Some(recorder), ..Inspection::default() };
    let there = Line { rate: gigabits(RATE), ..delayed(Duration::ZERO) };
    let lines = vec![delayed(Duration::ZERO), there];
    let net = Net::inspected(lines, Forwarding::Cross, recorders.into_iter().map(look).collect())?;
    let duration = if settings.full { FULL } else { settings.lab.duration };
    let results =
        Streams::start(&net, &[StreamSpec::cubic(0, 1)])?.measure(Duration::ZERO, duration)?;
    let received: u64 = net.stop()?.inputs.iter().map(|input| input.packets).sum();
    let summary = capture.finish();
    if let Some(error) = summary.error {
        return Err(error.into());
    }
    let [seen, dropped] = summary
        .interfaces
        .iter()
        .fold([0, 0], |[seen, dropped], totals| [seen + totals.seen, dropped + totals.dropped]);
    let name = format!("capture of a stream at {RATE} Gb/s");
    let figure = |figure: u64| Some(figure as f64);
    findings.row(&format!("{name}: dropped"), figure(dropped), None, "packets", Goal::AtMost(0.0));
    findings.row(
        &format!("{name}: seen, vs come"),
        figure(seen),
        figure(received),
        "packets",
        Goal::RatioWithin(0.0),
    );
    findings.row(
        &format!("{name}: written"),
        Some(summary.bytes as f64 / 1e6),
        None,
        "MB",
        Goal::Shown,
    );
    let payload = Some(results.total_gbits() * duration.as_secs_f64() * 1e3 / 8.0);
    findings.row(
        &format!("{name}: written, vs payload"),
        Some(summary.bytes as f64 / 1e6),
        payload,
        "MB",
        Goal::RatioAtLeast(1.0),
    );
    findings.note(
        "Packets are as the kernel hands them over: a super-packet of up to 64 KB is one."
            .to_owned(),
    );
    Ok(())
}
