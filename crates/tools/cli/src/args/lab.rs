//! `lab`: the network box.

use super::lab_ctl::LabCtlArgs;
use super::lab_up::{LabDownArgs, LabLsArgs, LabState, LabTopologiesArgs, LabUpArgs};
use super::units;
use clap::{Args, Subcommand};
use sprat_lab::config::{LineWords, Word};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Run a box between ports: a long fat pipe, a stream harmonizer or a switch.
    Run(Box<LabRunArgs>),
    /// Show or change what a running box does.
    Ctl(LabCtlArgs),
    /// Make the hosts and boxes of a topology, and run commands in them.
    Up(LabUpArgs),
    /// Take a lab down, also what a crash left of it.
    Down(LabDownArgs),
    /// List the labs that stand, and the boxes that run.
    Ls(LabLsArgs),
    /// Watch a box that runs: rates, queues, drops and round trips, as they are.
    Watch(LabWatchArgs),
    /// Draw what a series of samples holds: rates, queues, drops and round trips over time.
    Report(LabReportArgs),
    /// List the topologies that come with the program, or print one.
    Topologies(LabTopologiesArgs),
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  ip netns add left; ip netns add right
  sprat lab run --port tap:a0@left --port tap:b0@right --delay 100ms --duration 60s &
  ip -n left addr add 10.0.0.1/24 dev a0; ip -n right addr add 10.0.0.2/24 dev b0
  ip netns exec left ping 10.0.0.2              200 ms

  sprat lab run --port tap:a0@left --port tap:b0@right --delay 100ms \\
      --to b0:rate=2Gb/s,buffer=64MB,queue=harmonize --json
  sprat lab run --port tap:a0@left --port tap:b0@right --loss 0.1% --seed 7
  sprat lab run --port tap:a@h1 --port tap:b@h2 --port tap:c@h3 --forward switch --rate 1Gb/s
  sprat lab run --port tap:a --port tap:b --port tap:c --port tap:d --pair a,b --pair c,d
  sprat lab run --port xdp:eth1 --port xdp:eth2 --delay 5ms     every frame by itself
  sprat lab run --port tap:a0@left \\
      --port dpdk:net_memif0,role=server,socket=/tmp/box.sock,socket-abstract=no
  sprat lab run --config box.toml --duration 10s --report box.svg

A box.toml has the same words:
  [line]                                        every line
  delay = \"100ms\"
  [[port]]
  open = \"tap:a0@left\"
  [[port]]
  open = \"tap:b0@right\"
  line = { rate = \"2Gb/s\" }                     the line to this port

A TAP is made where it is not there, inside the namespace, and is gone with the box. Rates are of
bits on an Ethernet wire: 24 bytes a frame besides its own (--overhead). At the end the counters
are told; exit code 7 means that the box did not keep up, and why is told too. Without root, or
CAP_NET_ADMIN and CAP_SYS_ADMIN, the box is in namespaces of its own, in which NAMESPACE is made
too; how to come there is said at the start.")]
pub(crate) struct LabRunArgs {
    /// A port: tap:NAME[@NAMESPACE][,mtu=BYTES]; for an interface that exists packet:NAME[@NAMESPACE] or, frame by frame,
    /// xdp:NAME[@NAMESPACE][,mtu=BYTES]; dpdk:DEVICE[,ARGUMENTS][,mtu=BYTES]. Once for each.
    #[arg(long = "port", value_name = "PORT")]
    pub(crate) ports: Vec<String>,

    /// Read the box from this TOML file; flags change what it says.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// How the ports are joined: `cross` (the default for two ports, and for pairs) or `switch`.
    #[arg(long, value_name = "HOW")]
    pub(crate) forward: Option<String>,

    /// Two ports that are each other's far end: NAME,NAME. Every port is in one pair; where there are two ports, they are.
    #[arg(long = "pair", value_name = "NAMES")]
    pub(crate) pairs: Vec<String>,

    /// After how long without a frame a switch forgets an address [default: 300s].
    #[arg(long, value_name = "TIME")]
    pub(crate) ageing: Option<String>,

    /// Packet memory of each direction [default: what rate, delay and buffer need].
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,

    /// What the line to one port does besides: PORT:SETTING=VALUE,... with the names of the flags below.
    #[arg(long = "to", value_name = "PORT:SETTINGS")]
    pub(crate) to: Vec<String>,

    /// Take interfaces that have addresses or the default route, too.
    #[arg(long)]
    pub(crate) force: bool,

    /// Stop after this time [default: at Ctrl-C].
    #[arg(long, value_name = "TIME", value_parser = sprat_units::duration)]
    pub(crate) duration: Option<Duration>,

    /// What `sprat lab ctl` knows the box by [default: the names of its ports].
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) state: LabState,

    #[command(flatten)]
    pub(crate) tolerate: ToleranceArgs,

    /// No live line.
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// Print the counters as JSON at the end.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) series: SeriesArgs,

    #[command(flatten)]
    pub(crate) line: LineArgs,
}

/// How late a box may be.
#[derive(Args, Clone, Debug)]
pub(crate) struct ToleranceArgs {
    /// Share of a line's segments that may be late before the exit code is 7, and from when on they are: SHARE or SHARE:TIME,
    /// such as 5%:10ms; 100% never minds.
    #[arg(long, value_name = "SHARE:TIME", default_value = "1%:1ms")]
    pub(crate) tolerate: String,
}

/// What is written down of the time that a box runs.
#[derive(Args, Clone, Debug)]
pub(crate) struct SeriesArgs {
    /// Draw rates, queues, drops and round trips over time into this file at the end: .svg or .html.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    /// Write them to this file as they come, a JSON value on each line.
    #[arg(long, value_name = "FILE")]
    pub(crate) series: Option<PathBuf>,

    /// Time between two samples of `--report` and `--series`, 10ms to 60s.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = units::sample_time)]
    pub(crate) every: Duration,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat lab run --port tap:a0@left --port tap:b0@right --delay 100ms --series pipe.jsonl
  sprat lab report pipe.jsonl --out pipe.svg
  sprat lab report pipe.jsonl --out pipe.html --line 'to b0'

Of each line: rates of the flows that carried most, queue, drops, and round trips as the box sees
them. Longer series are drawn coarser: rates are means then, queues the longest.")]
pub(crate) struct LabReportArgs {
    /// What `--series` wrote.
    #[arg(value_name = "SERIES")]
    pub(crate) series: PathBuf,

    /// Where to draw it: .svg or .html.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,

    /// Draw only lines in whose names this stands, such as `to b0`.
    #[arg(long, value_name = "TEXT")]
    pub(crate) line: Option<String>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat lab watch                               the only box that runs
  sprat lab watch two-sites.wan
  sprat lab watch wan --once                    one screen, as text
  sprat lab watch wan --json --every 100ms      a sample on each line, for programs

Keys: q leaves, arrows and tab choose a line, s sorts the flows, p pauses. Of each port: what comes
in and goes out, what waits and how much of the buffer that is, drops by reason since the box began,
and how late packets leave. Of the chosen line's flows: rate, what waits, drops, round trip.")]
pub(crate) struct LabWatchArgs {
    /// The box: BOX or LAB.BOX [default: the only one that runs].
    #[arg(value_name = "BOX")]
    pub(crate) name: Option<String>,

    /// Time between two looks, 100ms to 60s.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::look_time)]
    pub(crate) every: Duration,

    /// Print one screen as text.
    #[arg(long, conflicts_with = "json")]
    pub(crate) once: bool,

    #[command(flatten)]
    pub(crate) state: LabState,

    /// Print each sample as JSON, on a line, until the box ends.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What every line does, each way.
#[derive(Args, Debug)]
#[command(next_help_heading = "Every line")]
pub(crate) struct LineArgs {
    /// Delay one way, up to 500ms.
    #[arg(long, value_name = "TIME")]
    pub(crate) delay: Option<String>,
    /// Rate, such as 2Gb/s or 100Mbit; a number alone is bits a second [default: none, at once].
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<String>,
    /// How much may wait where there is a rate, such as 64MB; a number alone is bytes [default: 64MB].
    #[arg(long, value_name = "SIZE")]
    pub(crate) buffer: Option<String>,
    /// How packets wait: drop-tail, or harmonize: a queue for each flow, segments in turn [default: drop-tail].
    #[arg(long, value_name = "HOW")]
    pub(crate) queue: Option<String>,
    /// Rate of each flow, with `--queue harmonize`.
    #[arg(long, value_name = "RATE")]
    pub(crate) flow_rate: Option<String>,
    /// Most segments that leave together [default: none, super-packets of up to 64 KB stay whole].
    #[arg(long, value_name = "N")]
    pub(crate) burst: Option<String>,
    /// When a frame may leave: store-and-forward or cut-through [default: store-and-forward].
    #[arg(long, value_name = "WHEN")]
    pub(crate) timing: Option<String>,
    /// Bytes that a frame takes on the wire besides its own [default: 24].
    #[arg(long, value_name = "BYTES")]
    pub(crate) overhead: Option<String>,
    /// Segments lost: 0.1%, bursts:TO_BAD,TO_GOOD[,LOSS_BAD[,LOSS_GOOD]] (Gilbert-Elliott), or list:N,N,...
    #[arg(long, value_name = "LOSS")]
    pub(crate) loss: Option<String>,
    /// Up to this much more delay, by chance; segments stay in order.
    #[arg(long, value_name = "TIME")]
    pub(crate) jitter: Option<String>,
    /// Segments held back so that others overtake them: SHARE:TIME, such as 1%:5ms.
    #[arg(long, value_name = "SHARE:TIME")]
    pub(crate) reorder: Option<String>,
    /// Segments that come twice.
    #[arg(long, value_name = "SHARE")]
    pub(crate) duplicate: Option<String>,
    /// Segments of which a bit is turned.
    #[arg(long, value_name = "SHARE")]
    pub(crate) corrupt: Option<String>,
    /// What all chance begins from [default: 1].
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<String>,
}

impl LineArgs {
    /// The same as words; what was not given is taken from `base`.
    pub(crate) fn words(&self, base: &LineWords) -> LineWords {
        let or = |given: &Option<String>, base: &Option<Word>| given.clone().map(Word).or_else(|| base.clone());
        LineWords {
            delay: or(&self.delay, &base.delay),
            rate: or(&self.rate, &base.rate),
            buffer: or(&self.buffer, &base.buffer),
            queue: or(&self.queue, &base.queue),
            flow_rate: or(&self.flow_rate, &base.flow_rate),
            burst: or(&self.burst, &base.burst),
            timing: or(&self.timing, &base.timing),
            overhead: or(&self.overhead, &base.overhead),
            loss: or(&self.loss, &base.loss),
            jitter: or(&self.jitter, &base.jitter),
            reorder: or(&self.reorder, &base.reorder),
            duplicate: or(&self.duplicate, &base.duplicate),
            corrupt: or(&self.corrupt, &base.corrupt),
            seed: or(&self.seed, &base.seed),
        }
    }
}
