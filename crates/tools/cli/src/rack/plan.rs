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
  sprat rack examples                           what there is to begin with
  sprat rack examples cassandra-6 > rack.toml   one to change
  sprat rack plan rack.toml
  sprat rack plan rack.toml --write plan/       cables, addresses, tokens, a picture
  sprat rack plan mms-16                        a published rack: what of its figures follows
  sprat rack plan rack.toml --json | jq .network.diameter

--write makes these files in a folder: plan.json, all of what is told; plan.svg, racks and links;
cables.csv, what leads from where to where; hosts.csv, names and addresses of servers and instances;
tokens.csv, which instance of Cassandra has which tokens.

A plan that cannot be is an error that names what to change: too few ports, too few addresses,
replicas that a server takes with it. Claims that do not follow are told, and are no error.")]
pub(crate) struct RackPlanArgs {
    /// A file, or a rack that comes with the program.
    rack: String,

    /// Write lists and a picture into this folder.
    #[arg(long, value_name = "FOLDER")]
    write: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack simulate mms-cube                          one at a time: an empty network
  sprat rack simulate mms-cube --pattern load --load 60%
  sprat rack simulate mms-5 --pattern incast --answer 20kB
  sprat rack simulate rack.toml --answer 1MB --service 3us --json
  sprat rack simulate mms-5 --forwarding store-and-forward

Latency is from a request's first bit to its answer's last, by how many links between chassis are between the
servers. What servers take for sending and receiving is not in it. What does not fit into a switch's
buffer is lost, and is not sent again.")]
pub(crate) struct RackSimulateArgs {
    /// A file, or a rack that comes with the program.
    rack: String,

    /// Who asks whom, and when.
    #[arg(long, value_enum, default_value_t = PatternArg::One)]
    pattern: PatternArg,

    /// With `--pattern load`: what part of a server's ports answers take.
    #[arg(long, value_name = "SHARE", default_value = "50%", value_parser = sprat_units::ratio)]
    load: f64,

    /// How many requests.
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    requests: usize,

    /// Size of a request.
    #[arg(long, value_name = "SIZE", default_value = "50B", value_parser = sprat_units::size)]
    request: u64,

    /// Size of an answer.
    #[arg(long, value_name = "SIZE", default_value = "100B", value_parser = sprat_units::size)]
    answer: u64,

    /// What a server takes for a request.
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = sprat_units::duration)]
    service: Duration,

    /// How switches pass frames on, whatever the file says.
    #[arg(long, value_enum)]
    forwarding: Option<ForwardingArg>,

    /// Where chance begins: the same number is the same run.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PatternArg {
    /// One request at a time, between servers by chance.
    One,
    /// All servers ask others, at random times.
    Load,
    /// All servers answer one at once.
    Incast,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ForwardingArg {
    /// A frame leaves when its head is in.
    CutThrough,
    /// A frame leaves when all of it is in.
    StoreAndForward,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack examples
  sprat rack examples cassandra-6 > rack.toml   one to change")]
pub(crate) struct RackExamplesArgs {
    /// Print this one.
    name: Option<String>,

    /// Print JSON.
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

/// Reads a rack's description: a file, or one that is built in.
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
    let some = |value: Option<String>| value.unwrap_or_else(|| "not told".to_owned());
    line("power, at most", some(capacity.power.map(|power| power.to_string())));
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
            "a chassis's servers",
            format!("can send {} times what its cables to others carry", digits(ratio)),
        );
    }
    if let Some(rate) = network.bisection {
        line("between halves", format!("{rate} each way, in the smallest cut found"));
    }
    line("all to all", format!("{} a server", network.all_to_all));
    line(
        "all to one",
        format!(
            "{} each; {} flows in the fullest cable",
            network.incast,
            digits(network.incast_flows)
        ),
    );
    let failure = |worst: &Option<FailureEffect>| match worst {
        None if network.cables == 0 => "there is no other".to_owned(),
        None => "not examined: there are too many".to_owned(),
        Some(worst) => format!(
            "the worst, {}: {} chassis cut off, {} hops at most, the fullest cable carries {} \
             times as much",
            worst.part,
            worst.cut_off,
            worst.diameter,
            digits(worst.load)
        ),
    };
    line("two lose their cables", failure(&network.link_failure));
    line("a switch fails", failure(&network.switch_failure));
    let circle = match (&network.deadlock, network.examined) {
        (None, false) => "not examined: there are too many".to_owned(),
        (None, true) => "no frames wait for each other in a circle".to_owned(),
        (Some(one), _) => format!(
            "frames may wait for each other in a circle, {one} among them: do not pause, drop"
        ),
    };
    line("if it is lossless", circle);
    lines.extend(cassandra(plan));
    if !plan.summary.claims.is_empty() {
        lines.push(String::new());
        let mut table = Table::new(&["claimed", "of it", "there is", ""]);
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
            "room for rows",
            format!("{}, with {} replicas and disks {fill} full", found.usable, spec.replication),
        ),
        line(
            "the fullest instance",
            format!("{} times the mean; the emptiest {}", digits(most), digits(least)),
        ),
        line(
            "a server fails",
            format!("{} of rows without QUORUM", percent(found.lost_with_server)),
        ),
        line(
            "two servers fail",
            format!(
                "{} of rows at worst; {} of all pairs take some",
                percent(found.lost_with_pair),
                percent(found.pairs)
            ),
        ),
        line(
            "a chassis fails",
            format!("{} of rows without QUORUM at worst", percent(found.lost_with_chassis)),
        ),
    ]
}

fn latencies(report: &SimulationReport) -> Vec<String> {
    let mut table = Table::new(&["links between", "requests", "min", "median", "p99", "max"]);
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
    lines.push(format!("lost              {} requests, in buffers that were full", report.lost));
    lines.push(format!("most that waited  {} at a switch's port", report.backlog));
    lines.push(format!(
        "the fullest port  {}, {} % of the time",
        report.fullest.0,
        digits(report.fullest.1 * 100.0)
    ));
    lines.push(format!(
        "answers           {} in {} of virtual time",
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

/// Writes a plan's summary, its lists of cables, hosts and tokens, and its picture into a folder.
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
                "sprat: no picture: {} switches cannot be told apart in one",
                plan.fabric.switches
            );
            Ok(())
        }
    }
}
