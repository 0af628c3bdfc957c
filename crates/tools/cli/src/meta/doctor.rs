//! `doctor net`: finds the system settings that limit TCP throughput.

use crate::output::{print_json, print_line};
use crate::quantity;
use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sprat_pace::doctor::{self, Finding, Goal, PathEnd, SETTINGS};
use sprat_pace::window::Window;
use sprat_units::figure;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum DoctorCommand {
    /// Which network settings hold long fat paths back, by how much, and what to set instead.
    Net(DoctorNetArgs),
}

impl DoctorCommand {
    /// Runs the command and returns the process's exit code.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        match self {
            Self::Net(args) => net(args),
        }
    }
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat doctor net                              10 Gb/s, 200 ms away
  sprat doctor net --rate 1Gb/s --rtt 30ms
  sprat doctor net --lines > /etc/sysctl.d/90-long-fat-paths.conf

Ends with 1 if there is something to mend. It changes nothing by itself.")]
pub(crate) struct DoctorNetArgs {
    /// Rate of the path that is to be filled.
    #[arg(long, value_name = "RATE", default_value = "10Gb/s", value_parser = sprat_units::rate)]
    rate: u64,

    /// Its round-trip time.
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = quantity::round_trip)]
    rtt: Duration,

    /// Print only the lines for sysctl that mend it.
    #[arg(long, conflicts_with = "json")]
    lines: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn net(args: &DoctorNetArgs) -> Result<ExitCode> {
    let goal = Goal { rate: args.rate, rtt: args.rtt };
    let findings = doctor::examine(Path::new(SETTINGS), &goal);
    let window = Window::open().map(drop).map_err(|error| error.to_string());
    if args.json {
        let values: Vec<Value> = findings.iter().map(json_of).collect();
        let window = window.as_ref().err();
        print_json(&json!({
            "rate": goal.rate,
            "rtt_us": u64::try_from(goal.rtt.as_micros()).unwrap_or(u64::MAX),
            "under_way": goal.bandwidth_delay_product(),
            "findings": values,
            "window": { "ours": window.is_none(), "why_not": window },
        }))?;
    } else if args.lines {
        lines(&findings)?;
    } else {
        report(&goal, &findings)?;
        match &window {
            Ok(()) => print_line(
                "Our own congestion window can be had here: the rate decides (docs/pacing.md).",
            )?,
            Err(why) => print_line(&format!(
                "The rate is a limit above the kernel's own congestion control: {why}."
            ))?,
        }
    }
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(goal: &Goal, findings: &[Finding]) -> Result<()> {
    let path = format!("{}, {:?} there and back", rate(goal.rate), goal.rtt);
    print_line(&format!(
        "To fill a path of {path}, {} MB must be under way.",
        goal.bandwidth_delay_product().div_ceil(1_000_000)
    ))?;
    if findings.is_empty() {
        return print_line("No setting of this system holds that back.");
    }
    for finding in findings {
        let limit = match finding.limit {
            Some(limit) if limit < goal.rate => format!(": at most {} a connection", rate(limit)),
            _ => String::new(),
        };
        let end = match finding.end {
            PathEnd::Sender => "who sends",
            PathEnd::Receiver => "who receives",
            PathEnd::Both => "both ends",
        };
        print_line(&format!("\n{} = {}{limit}", finding.name, finding.current))?;
        print_line(&format!("  for {end}: {}", finding.why))?;
    }
    if findings.iter().any(|finding| finding.unprivileged_only) {
        print_line(
            "\nWith CAP_NET_ADMIN sprat takes the buffers it needs by itself; other programs do \
             not.",
        )?;
    }
    print_line("\nTo mend it:")?;
    lines(findings)
}

fn lines(findings: &[Finding]) -> Result<()> {
    findings
        .iter()
        .try_for_each(|finding| print_line(&format!("{} = {}", finding.name, finding.recommended)))
}

#[expect(clippy::cast_precision_loss, reason = "to be read by people")]
fn rate(bits: u64) -> String {
    figure::bit_rate(bits as f64)
}

fn json_of(finding: &Finding) -> Value {
    json!({
        "name": finding.name,
        "is": finding.current,
        "should": finding.recommended,
        "limit": finding.limit,
        "end": match finding.end { PathEnd::Sender => "sender", PathEnd::Receiver => "receiver", PathEnd::Both => "both" },
        "why": finding.why,
        "only_others": finding.unprivileged_only,
    })
}
