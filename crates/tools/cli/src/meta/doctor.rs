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
    /// Find network settings that limit long fat paths, and print better values.
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
  sprat doctor net                              for 10 Gb/s and a round trip of 200 ms
  sprat doctor net --rate 1Gb/s --rtt 30ms
  sprat doctor net --lines > /etc/sysctl.d/90-long-fat-paths.conf

Changes nothing by itself.

Exit codes:
  1  a setting limits the path, or another error")]
pub(crate) struct DoctorNetArgs {
    /// Rate that one connection should reach, such as 1Gb/s.
    #[arg(long, value_name = "RATE", default_value = "10Gb/s", value_parser = sprat_units::rate)]
    rate: u64,

    /// Round-trip time of the path, such as 30ms; 1us to 10s.
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = quantity::round_trip)]
    rtt: Duration,

    /// Print only the better values, as lines for sysctl.
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
                "sprat can use its own congestion window on this machine: `--pace` or `--limit` \
                 sets the rate (docs/pacing.md).",
            )?,
            Err(why) => print_line(&format!(
                "sprat cannot use its own congestion window on this machine, so the kernel's \
                 congestion control applies below `--pace` and `--limit`: {why}."
            ))?,
        }
    }
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(goal: &Goal, findings: &[Finding]) -> Result<()> {
    let path = format!("{}, {:?} round trip", rate(goal.rate), goal.rtt);
    print_line(&format!(
        "To fill a path of {path}, a connection needs {} MB in flight.",
        goal.bandwidth_delay_product().div_ceil(1_000_000)
    ))?;
    if findings.is_empty() {
        return print_line("No setting of this machine limits that.");
    }
    for finding in findings {
        let limit = match finding.limit {
            Some(limit) if limit < goal.rate => format!(": at most {} a connection", rate(limit)),
            _ => String::new(),
        };
        let end = match finding.end {
            PathEnd::Sender => "senders",
            PathEnd::Receiver => "receivers",
            PathEnd::Both => "senders and receivers",
        };
        print_line(&format!("\n{} = {}{limit}", finding.name, finding.current))?;
        print_line(&format!("  for {end}: {}", finding.why))?;
    }
    if findings.iter().any(|finding| finding.unprivileged_only) {
        print_line(
            "\nWith CAP_NET_ADMIN, sprat sets the buffers it needs by itself; other programs need \
             these settings.",
        )?;
    }
    print_line("\nSet instead, as with `sprat doctor net --lines`:")?;
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
    let end = match finding.end {
        PathEnd::Sender => "sender",
        PathEnd::Receiver => "receiver",
        PathEnd::Both => "both",
    };
    json!({
        "name": finding.name,
        "is": finding.current,
        "should": finding.recommended,
        "limit": finding.limit,
        "end": end,
        "why": finding.why,
        "only_others": finding.unprivileged_only,
    })
}
