//! `lab ctl`: a box that runs.

use super::LabState;
use clap::{Args, Subcommand};

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat lab ls                                  the boxes that run, by their names
  sprat lab ctl wan show
  sprat lab ctl wan set delay=50ms rate=1Gb/s   every line
  sprat lab ctl wan set --to b0 loss=0.1%
  sprat lab ctl set buffer=64MB                 the only box that runs
  sprat lab ctl wan filter add 'udp port 53' drop --from a0
  sprat lab ctl wan stop

A box of a lab is LAB.BOX, or BOX where only one lab has it. Names of settings are those of
`sprat lab run`, and what is not named stays. No packet is lost by a change, and none overtakes
another: one that is on its way arrives when it would have, and those behind it not before.")]
pub(crate) struct LabCtlArgs {
    /// The box; none: the only one that runs.
    #[arg(value_name = "BOX")]
    pub(crate) name: Option<String>,

    #[command(subcommand)]
    pub(crate) command: LabCtlCommand,

    #[command(flatten)]
    pub(crate) state: LabState,

    /// Print JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCtlCommand {
    /// Show what each line does, and the filter.
    Show,
    /// Change what lines do: SETTING=VALUE, as of `sprat lab run`.
    Set {
        /// The line to this port only.
        #[arg(long = "to", value_name = "PORT")]
        to: Option<String>,
        /// Such as delay=50ms; `none` takes away a rate, loss, reordering or burst.
        #[arg(required = true, value_name = "SETTING=VALUE")]
        settings: Vec<String>,
    },
    /// Show or change the packet filter.
    #[command(subcommand)]
    Filter(LabFilterCommand),
    /// Print the counters so far, as JSON.
    Report,
    /// End the box as Ctrl-C would; a lab ends with each of its boxes.
    Stop,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabFilterCommand {
    /// List the rules, with what each has seen.
    List,
    /// Add a rule.
    Add {
        /// Which packets, as tcpdump has it.
        #[arg(value_name = "EXPRESSION")]
        expression: String,
        /// What becomes of them: count, drop, mirror:PORT (in a switch) or rewrite:FIELD=VALUE,...
        #[arg(value_name = "ACTION")]
        action: String,
        /// Only those that come in at this port.
        #[arg(long, value_name = "PORT")]
        from: Option<String>,
        /// Before the rule of this number [default: behind all].
        #[arg(long, value_name = "NUMBER")]
        at: Option<usize>,
    },
    /// Remove a rule, by its number in the list.
    Remove {
        /// Its number.
        #[arg(value_name = "NUMBER")]
        number: usize,
    },
    /// Remove all rules.
    Clear,
}
