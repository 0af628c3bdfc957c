//! `doctor`: what holds this machine back.

use super::units;
use clap::{Args, Subcommand};
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum DoctorCommand {
    /// Which network settings hold long fat paths back, by how much, and what to set instead.
    Net(DoctorNetArgs),
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
    pub(crate) rate: u64,

    /// Its round-trip time.
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = units::round_trip)]
    pub(crate) rtt: Duration,

    /// Print only the lines for sysctl that mend it.
    #[arg(long, conflicts_with = "json")]
    pub(crate) lines: bool,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
