//! `lab up` and what belongs to it: whole labs.

use super::lab::{SeriesArgs, ToleranceArgs};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Where labs are remembered, and the boxes that run.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabState {
    /// Remember labs and boxes here, apart from others [default: /run/sprat/lab].
    #[arg(long = "state", value_name = "DIR", env = "SPRAT_LAB_STATE", global = true)]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat lab up two-sites                        stands until Ctrl-C; from another terminal:
  ip netns exec two-sites-left ping 10.64.0.2

  sprat lab up two-sites --in left -- 'ping -c 3 $RIGHT_V4; ping -c 3 $RIGHT_V6'
  sprat lab up lab.toml --duration 60s --json
  sprat lab up merge --report merge.svg

A lab.toml:
  name = \"pair\"
  [host.left]
  run = \"iperf3 -s\"                             in a shell; SPRAT_HOST is its name
  [host.right]
  run = \"sleep 1; iperf3 -c $LEFT_V4\"           each host's addresses by its name
  [box.wan]
  ports = [\"left\", \"right\"]                     hosts, boxes, or packet:, xdp: or dpdk: ports
  line = { delay = \"100ms\" }                    as for `sprat lab run`
  to.right = { rate = \"2Gb/s\", buffer = \"64MB\" }
  capture = { file = \"wan.pcapng\" }
  filters = [{ match = \"udp port 53\", action = \"drop\" }]

`sprat lab topologies NAME` prints one that comes with the program, to begin with. With a command
the lab stands as long as that runs, and ends with its exit code; else as long as something runs in
its hosts, or until Ctrl-C. What is still running then is ended. Exit code 1: something in a host
failed; 7: a box did not keep up, a capture lacks packets, or the kernel ran short of memory for
TCP. Hosts are network namespaces LAB-HOST, and nothing outside them is touched. Without root, or
CAP_NET_ADMIN and CAP_SYS_ADMIN, all of it is in namespaces of its own; how to come there is said
at the start.")]
pub(crate) struct LabUpArgs {
    /// A TOML file, or the name of a topology that comes with the program.
    #[arg(value_name = "TOPOLOGY")]
    pub(crate) topology: String,

    /// Call the lab this, instead of what the topology says.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// The host that COMMAND runs in.
    #[arg(long = "in", value_name = "HOST", requires = "command")]
    pub(crate) host: Option<String>,

    /// Take it down after this time.
    #[arg(long, value_name = "TIME", value_parser = sprat_units::duration)]
    pub(crate) duration: Option<Duration>,

    #[command(flatten)]
    pub(crate) tolerate: ToleranceArgs,

    #[command(flatten)]
    pub(crate) series: SeriesArgs,

    #[command(flatten)]
    pub(crate) state: LabState,

    /// Print what happens as JSON, a value on each line.
    #[arg(long)]
    pub(crate) json: bool,

    /// A command to run: one word is for a shell, several are run as they are.
    #[arg(last = true, value_name = "COMMAND", requires = "host")]
    pub(crate) command: Vec<String>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat lab ls
  sprat lab down two-sites

A lab whose owner lives is taken down by that; of one that was killed, what is left is removed:
namespaces that are not the lab's any more stay, and are told.")]
pub(crate) struct LabDownArgs {
    /// The lab.
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) state: LabState,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat lab ls
  sprat lab ls --json")]
pub(crate) struct LabLsArgs {
    #[command(flatten)]
    pub(crate) state: LabState,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat lab topologies
  sprat lab topologies merge > lab.toml         one to change")]
pub(crate) struct LabTopologiesArgs {
    /// Print this one.
    pub(crate) name: Option<String>,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
