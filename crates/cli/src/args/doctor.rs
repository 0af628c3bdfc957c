//! `doctor`: what holds this machine back.

use clap::{Args, Subcommand};
use sprat_lab::config;
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
    #[arg(long, value_name = "RATE", default_value = "10Gb/s", value_parser = super::parse_bit_rate)]
    pub(crate) rate: u64,

    /// Its round-trip time.
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = round_trip)]
    pub(crate) rtt: Duration,

    /// Print only the lines for sysctl that mend it.
    #[arg(long, conflicts_with = "json")]
    pub(crate) lines: bool,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

fn round_trip(text: &str) -> Result<Duration, String> {
    let limits = Duration::from_micros(1)..=Duration::from_secs(10);
    config::duration(text)
        .filter(|rtt| limits.contains(rtt))
        .ok_or_else(|| "a time such as 200ms, up to 10s".to_owned())
}
