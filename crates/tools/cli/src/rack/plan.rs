//! `rack plan`, `simulate` and `examples`.

use crate::output::{print_json, print_line, print_ready};
use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use sprat_measure::table::Table;
use sprat_plan::layout::RackPosition;
use sprat_plan::picture::picture;
use sprat_plan::quantity::{Seconds, digits};
use sprat_plan::racks::{EXAMPLES, ready};
use sprat_plan::simulate::{Pattern, SimulationReport, Workload, simulate};
use sprat_plan::spec::Forwarding;
use sprat_plan::{FailureEffect, Plan, Spec};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack examples                           list the built-in racks
  sprat rack examples cassandra-6 > rack.toml   start from one of them
  sprat rack plan rack.toml
  sprat rack plan rack.toml --write plan/       write cables, addresses, tokens and a picture
  sprat rack plan mms-16                        check the claims of a published rack
  sprat rack plan rack.toml --json | jq .network.diameter

--write creates these files:
  plan.json    the plan, as --json prints it
  plan.svg     a picture of racks and links
  cables.csv   both ends of each cable
  hosts.csv    names and addresses of servers and instances
  tokens.csv   the instance of each token of Cassandra's ring

A plan that cannot be built is an error that names what to change: too few ports or addresses,
or replicas that fail with one server. Claims that do not follow from the plan are only
reported.")]
pub(crate) struct RackPlanArgs {
    /// Rack description: a file, or a built-in rack (see `sprat rack examples`).
    rack: String,

    /// Write the plan, lists and a picture to this folder.
    #[arg(long, value_name = "FOLDER")]
    write: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack simulate mms-cube                         one request at a time, an idle network
  sprat rack simulate mms-cube --pattern load --load 60%
  sprat rack simulate mms-5 --pattern incast --answer 20kB
  sprat rack simulate rack.toml --answer 1MB --service 3us --json
  sprat rack simulate mms-5 --forwarding store-and-forward

Latency is the time from the first bit of a request to the last bit of its answer. It is
reported by the number of links between the two chassis, without the servers' time to send and
receive. Switches drop frames that exceed their buffers, and nothing is retransmitted.")]
pub(crate) struct RackSimulateArgs {
    /// Rack description: a file, or a built-in rack (see `sprat rack examples`).
    rack: String,

    /// Traffic pattern: which servers send requests, and when.
    #[arg(long, value_enum, default_value_t = PatternArg::One)]
    pattern: PatternArg,

    /// Share of the servers' port rate that answers use, with --pattern load; 0.01% to 200%.
    #[arg(long, value_name = "SHARE", default_value = "50%", value_parser = sprat_units::ratio)]
    load: f64,

    /// Number of requests.
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    requests: usize,

    /// Size of a request, such as 50B.
    #[arg(long, value_name = "SIZE", default_value = "50B", value_parser = sprat_units::size)]
    request: u64,

    /// Size of an answer, such as 100B or 20kB.
    #[arg(long, value_name = "SIZE", default_value = "100B", value_parser = sprat_units::size)]
    answer: u64,

    /// Time that a server needs to process a request, such as 3us.
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = sprat_units::duration)]
    service: Duration,

    /// How switches forward frames, instead of as the description says.
    #[arg(long, value_enum)]
    forwarding: Option<ForwardingArg>,

    /// Seed of the random numbers; the same seed repeats the same run.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PatternArg {
    /// One request at a time, between two random servers.
    One,
    /// All servers send requests to others, at random times.
    Load,
    /// All servers answer the same server at once.
    Incast,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ForwardingArg {
    /// Forward a frame as soon as its header has arrived.
    CutThrough,
    /// Forward a frame after all of it has arrived.
    StoreAndForward,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack examples
  sprat rack examples cassandra-6 > rack.toml   start a description from a built-in rack")]
pub(crate) struct RackExamplesArgs {
    /// Print the description of this rack; without a name, list all racks.
    name: Option<String>,

    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,
}

pub(crate) fn plan(args: &RackPlanArgs) -> Result<ExitCode> {
    let plan = Plan::new(read(&args.rack)?).with_context(|| args.rack.clone())?;
    if let Some(folder) = &args.write {
        write(&plan, folder)?;
    }
    if args.json {
        print_json(&serde_json::to_value(&plan.summary)?)?;
    } else {
        text(&plan).iter().try_for_each(|line| print_line(line))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn simulated(args: &RackSimulateArgs) -> Result<ExitCode> {
    let mut spec = read(&args.rack)?;
    if let Some(forwarding) = args.forwarding {
        spec.chassis.switch.forwarding = match forwarding {
            ForwardingArg::CutThrough => Forwarding::CutThrough,
            ForwardingArg::StoreAndForward => Forwarding::StoreAndForward,
        };
    }
    let plan = Plan::new(spec).with_context(|| args.rack.clone())?;
    let workload = Workload {
        requests: args.requests,
        request: args.request,
        answer: args.answer,
        service: Seconds(args.service.as_secs_f64()),
        pattern: match args.pattern {
            PatternArg::One => Pattern::OneByOne,
            PatternArg::Load => Pattern::Load(args.load),
            PatternArg::Incast => Pattern::Incast,
        },
        seed: args.seed,
    };
    let report = simulate(&plan, &workload)?;
    if args.json {
        print_json(&serde_json::to_value(&report)?)?;
    } else {
        latencies(&report).iter().try_for_each(|line| print_line(line))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn examples(args: &RackExamplesArgs) -> Result<ExitCode> {
    let one =
        args.name.as_deref().map(|name| ready(name).with_context(|| unknown(name))).transpose()?;
    let about = |found: &sprat_plan::racks::ExampleRack| {
        Ok((found.name, Spec::from_toml(found.toml)?.about))
    };
    let all = EXAMPLES.iter().map(about).collect::<Result<Vec<_>>>()?;
    print_ready(one.map(|found| (found.name, found.toml)), all, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a rack's description: a built-in rack if the name is that of one, otherwise a file.
pub(super) fn read(name: &str) -> Result<Spec> {
    let text = match ready(name) {
        Some(found) => found.toml.to_owned(),
        None if Path::new(name).exists() => {
            std::fs::read_to_string(name).with_context(|| name.to_owned())?
        }
        None => anyhow::bail!(unknown(name)),
    };
    Spec::from_toml(&text).with_context(|| name.to_owned())
}

fn unknown(name: &str) -> String {
    let names: Vec<_> = EXAMPLES.iter().map(|ready| ready.name).collect();
    format!("no rack {name:?}: name a file, or one of {}", names.join(", "))
}

/// Renders a plan's results, line by line.
fn text(plan: &Plan) -> Vec<String> {
    let (capacity, network) = (&plan.summary.capacity, &plan.summary.network);
    let about =
        if plan.spec.about.is_empty() { String::new() } else { format!(": {}", plan.spec.about) };
    let mut lines = vec![format!("{}{about}", plan.summary.name), String::new()];
    let mut line = |name: &str, value: String| lines.push(format!("  {name:<22} {value}"));
    let without = if capacity.switches > 0 {
        format!(", and {} switches without servers", capacity.switches)
    } else {
        String::new()
    };
    line("chassis", format!("{} in {} racks{without}", capacity.chassis, capacity.racks));
    line("servers", format!("{}, {} cores", capacity.servers, capacity.cores));
    line("memory", capacity.memory.to_string());
    line("disks", capacity.disks.to_string());
    let some = |value: Option<String>| value.unwrap_or_else(|| "not given".to_owned());
    line("maximum power", some(capacity.power.map(|power| power.to_string())));
    line("weight", some(capacity.weight.map(|weight| weight.to_string())));
    line("", String::new());
    let cables = if network.cables > 0 {
        format!("{} cables of {}", network.cables, network.link_rate)
    } else {
        "no cables".to_owned()
    };
    line("topology", format!("{}, {cables} between switches", network.topology));
    line("hops", format!("{} at most, {} on average", network.diameter, digits(network.mean_hops)));
    if let Some(ratio) = network.oversubscription {
        line(
            "oversubscription",
            format!("a chassis's servers can send {} times what its cables carry", digits(ratio)),
        );
    }
    if let Some(rate) = network.bisection {
        line("bisection", format!("{rate} each way, in the smallest cut found"));
    }
    line("all to all", format!("{} a server", network.all_to_all));
    line(
        "all to one",
        format!(
            "{} a server; {} flows share the fullest cable",
            network.incast,
            digits(network.incast_flows)
        ),
    );
    let failure = |worst: &Option<FailureEffect>| match worst {
        None if network.cables == 0 => "not applicable: the only chassis".to_owned(),
        None => "not examined: too many switches".to_owned(),
        Some(worst) => format!(
            "the worst, {}: cuts off {} chassis, {} hops at most, {} times the load on the \
             fullest cable",
            worst.part,
            worst.cut_off,
            worst.diameter,
            digits(worst.load)
        ),
    };
    line("link failure", failure(&network.link_failure));
    line("switch failure", failure(&network.switch_failure));
    let circle = match (&network.deadlock, network.examined) {
        (None, false) => "not examined: too many switches".to_owned(),
        (None, true) => "impossible: no cycle of links that wait for each other".to_owned(),
        (Some(one), _) => {
            format!("possible, with {one} in a cycle: let switches drop frames, not pause")
        }
    };
    line("lossless deadlock", circle);
    lines.extend(cassandra(plan));
    if !plan.summary.claims.is_empty() {
        lines.push(String::new());
        let mut table = Table::new(&["claim", "claimed", "planned", "verdict"]);
        for claim in &plan.summary.claims {
            table.row(vec![
                claim.key.clone(),
                claim.claimed.clone(),
                claim.found.clone(),
                claim.verdict.to_string(),
            ]);
        }
        lines.extend(table.to_string().lines().map(|line| format!("  {line}")));
    }
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

fn cassandra(plan: &Plan) -> Vec<String> {
    let Some((found, spec)) = plan.summary.cassandra.as_ref().zip(plan.spec.cassandra.as_ref())
    else {
        return Vec::new();
    };
    let percent = |share: f64| format!("{} %", digits(share * 100.0));
    let line = |name: &str, value: String| format!("  {name:<22} {value}");
    let each = format!("{} disks and {} of memory each", found.disks_each, found.memory_each);
    let fill = percent(spec.fill);
    let (most, least) = found.balance;
    vec![
        String::new(),
        line(
            "Cassandra",
            format!("{} instances with {} tokens, {each}", found.instances, spec.tokens),
        ),
        line(
            "usable capacity",
            format!(
                "{} of rows, with {} replicas and disks {fill} full",
                found.usable, spec.replication
            ),
        ),
        line(
            "balance",
            format!(
                "the fullest instance has {} times the mean, the emptiest {}",
                digits(most),
                digits(least)
            ),
        ),
        line("server failure", format!("{} of rows lose QUORUM", percent(found.lost_with_server))),
        line(
            "two server failures",
            format!(
                "at most {} of rows lose QUORUM; {} of all pairs affect some rows",
                percent(found.lost_with_pair),
                percent(found.pairs)
            ),
        ),
        line(
            "chassis failure",
            format!("at most {} of rows lose QUORUM", percent(found.lost_with_chassis)),
        ),
    ]
}

fn latencies(report: &SimulationReport) -> Vec<String> {
    let mut table = Table::new(&["links", "requests", "min", "median", "p99", "max"]);
    for latency in &report.by_hops {
        let times =
            [latency.min, latency.p50, latency.p99, latency.max].map(|time| time.to_string());
        table.row(
            [latency.hops.to_string(), latency.count.to_string()]
                .into_iter()
                .chain(times)
                .collect(),
        );
    }
    let mut lines: Vec<String> = table.to_string().lines().map(str::to_owned).collect();
    lines.push(String::new());
    lines.push(format!("lost              {} requests, dropped at full buffers", report.lost));
    lines.push(format!("longest queue     {} at a switch port", report.backlog));
    lines.push(format!(
        "busiest port      {}, busy {} % of the time",
        report.fullest.0,
        digits(report.fullest.1 * 100.0)
    ));
    lines.push(format!(
        "goodput           {} in {} of virtual time",
        report.goodput, report.elapsed
    ));
    lines
}

/// Columns of the list of cables.
const CABLE_COLUMNS: [&str; 9] = [
    "from",
    "from-port",
    "from-rack",
    "from-unit",
    "to",
    "to-port",
    "to-rack",
    "to-unit",
    "bits-per-second",
];

/// Writes a plan's summary and its lists of cables and hosts into a folder, with Cassandra also the
/// list of tokens, and its picture unless the plan has too many switches.
fn write(plan: &Plan, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("--write {}", folder.display()))?;
    let put = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).with_context(|| format!("--write {}", path.display()))
    };
    put("plan.json", &serde_json::to_vec_pretty(&plan.summary)?)?;
    let layout = plan.layout();
    let at = |place: Option<RackPosition>| {
        place.map_or_else(Default::default, |place| {
            [place.rack, place.unit].map(|at| at.to_string())
        })
    };
    let mut cables = csv::Writer::from_writer(Vec::new());
    cables.write_record(CABLE_COLUMNS)?;
    for cable in layout.cables() {
        let end = |end: &sprat_plan::layout::CableEnd| {
            let [rack, unit]: [String; 2] = at(end.position);
            [end.name.clone(), end.port.clone(), rack, unit]
        };
        let rate = [cable.rate.to_string()];
        cables.write_record(end(&cable.from).into_iter().chain(end(&cable.to)).chain(rate))?;
    }
    put("cables.csv", &cables.into_inner()?)?;
    let mut hosts = csv::Writer::from_writer(Vec::new());
    hosts.write_record(["name", "chassis", "slot", "v4", "prefix", "v6", "gateway"])?;
    for host in layout.hosts() {
        let (v4, prefix) = host.v4;
        let chassis = plan.fabric.name(host.chassis);
        let numbers =
            [host.slot.to_string(), v4.to_string(), prefix.to_string(), host.v6.to_string()];
        hosts.write_record(
            [host.name, chassis].into_iter().chain(numbers).chain([host.gateway.to_string()]),
        )?;
    }
    put("hosts.csv", &hosts.into_inner()?)?;
    if let Some((ring, cassandra)) = plan.ring.as_ref().zip(plan.spec.cassandra.as_ref()) {
        let mut tokens = csv::Writer::from_writer(Vec::new());
        tokens.write_record(["token", "instance"])?;
        for token in &ring.tokens {
            let number = plan.on_ring[token.instance];
            let (server, instance) = (number / cassandra.instances, number % cassandra.instances);
            let (chassis, slot) =
                (server / plan.spec.chassis.servers, server % plan.spec.chassis.servers);
            tokens.write_record([
                token.at.to_string(),
                layout.instance(chassis, slot, instance).name,
            ])?;
        }
        put("tokens.csv", &tokens.into_inner()?)?;
    }
    match picture(plan) {
        Some(svg) => put("plan.svg", svg.as_bytes()),
        None => {
            eprintln!(
                "sprat: skipped plan.svg: {} switches are too many for one picture",
                plan.fabric.switches
            );
            Ok(())
        }
    }
}
