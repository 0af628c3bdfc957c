//! `rack cost`: compares what servers cost to buy and to run.

use crate::output::{print_json, print_line};
use crate::rack::plan::read;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use sprat_measure::machine::Machine;
use sprat_measure::report::Report as Page;
use sprat_measure::report::bars::{StackedBar, stacked};
use sprat_measure::table::Table;
use sprat_plan::Plan;
use sprat_plan::power::{Cost, CostOption};
use sprat_plan::quantity::digits;
use sprat_power::Watts;
use sprat_power::cost::{HOURS, OptionCost, published, totals};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack cost                            the published example: mini servers and x86 servers
  sprat rack cost --kwh 0.25 --pue 1.6 --years 4 --carbon 350
  sprat rack cost --option mini:72:2:1900 --option x86:1350:4:9000 --instances 96
  sprat rack cost rack.toml --measured power.json --html cost.html

The plan can hold the inputs too:
  [power.cost]
  currency = \"EUR\"
  kwh = 0.25                  # price of a kWh
  pue = 1.3                   # W of the whole building for each W of servers
  years = 5
  carbon = 350                # g of CO2 for each kWh; without it, CO2 is not reported
  instances = 12
  options = [{ name = \"mini\", power = \"72W\", instances = 2, price = 1900 }]

Without options of its own, a plan's servers come first, at `server.power`. The output lists
all inputs. Costs do not include repairs, space, staff and the network, nor the purchase of
servers without a price.")]
pub(crate) struct RackCostArgs {
    /// Rack description: a file, or a built-in rack (see `sprat rack examples`).
    rack: Option<String>,

    /// Compare this type of server: NAME:WATTS:INSTANCES or NAME:WATTS:INSTANCES:PRICE, such as
    /// mini:72:2:1900. WATTS is the power of one server under load, INSTANCES the number that it
    /// can run, PRICE what it costs. Replaces the servers of the plan. Repeatable.
    #[arg(long = "option", value_name = "SERVER")]
    options: Vec<String>,

    /// Output of `sprat rack power --json`: adds the measured servers to the comparison.
    #[arg(long, value_name = "FILE")]
    measured: Option<PathBuf>,

    /// Purchase price of one of the measured servers.
    #[arg(long, value_name = "PRICE", requires = "measured", default_value_t = 0.0)]
    price: f64,

    /// Number of instances to run [default: those of the plan, or 12].
    #[arg(long, value_name = "COUNT")]
    instances: Option<u32>,

    /// Price of a kWh [default: as in the plan, or 0.15].
    #[arg(long, value_name = "PRICE")]
    kwh: Option<f64>,

    /// Power usage effectiveness: W of the whole building for each W of servers, 1 to 10 [default:
    /// as in the plan, or 1.4].
    #[arg(long, value_name = "RATIO")]
    pue: Option<f64>,

    /// Years of use [default: as in the plan, or 5].
    #[arg(long, value_name = "YEARS")]
    years: Option<f64>,

    /// Grams of CO2 for each kWh [default: as in the plan, or not reported].
    #[arg(long, value_name = "GRAMS")]
    carbon: Option<f64>,

    /// Currency of all prices, such as EUR [default: as in the plan, or USD].
    #[arg(long, value_name = "NAME")]
    currency: Option<String>,

    /// Write an HTML report with charts to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Source of the figures of the example's servers.
const SOURCE: &str = "servers and their power: \"IPU-based Cassandra cluster\", SNIA Storage \
    Developer Conference, 2024; prices were not published";

pub(crate) fn cost(args: &RackCostArgs) -> Result<ExitCode> {
    let (cost, sources) = inputs(args)?;
    let totals = totals(&cost);
    if let Some(path) = &args.html {
        page(&cost, &totals, &sources).write(path)?;
    }
    if args.json {
        print_json(&json!({
            "inputs": cost, "sources": sources, "hours-per-year": HOURS, "totals": totals,
        }))?;
    } else {
        input_lines(&cost).iter().try_for_each(|line| print_line(line))?;
        print_line("")?;
        print_line(table(&cost, &totals).to_string().trim_end())?;
        print_line("")?;
        notes(&cost, &totals, &sources).iter().try_for_each(|line| print_line(line))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the inputs of the calculation, and notes about the sources of the servers' figures.
fn inputs(args: &RackCostArgs) -> Result<(Cost, Vec<String>)> {
    let plan = match &args.rack {
        Some(rack) => Some(Plan::new(read(rack)?).with_context(|| rack.clone())?),
        None => None,
    };
    let mut cost = plan.as_ref().map_or_else(Cost::default, |plan| plan.spec.power.cost.clone());
    let mut sources = Vec::new();
    if let Some(plan) = &plan {
        let each = plan.spec.cassandra.as_ref().map_or(1, |cassandra| cassandra.instances);
        let planned = u32::try_from(plan.summary.capacity.servers * each).unwrap_or(u32::MAX);
        if cost == (Cost { options: cost.options.clone(), ..Cost::default() }) {
            cost.instances = planned; // the plan states no costs, hence no number of instances
        }
        if cost.options.is_empty()
            && let Some(power) = plan.spec.server.power
        {
            // The power of the chassis, and of switches without servers, is divided among the
            // servers.
            let capacity = &plan.summary.capacity;
            let boxes = (capacity.chassis + capacity.switches) as f64;
            let share = plan.spec.chassis.power.times(boxes / capacity.servers as f64);
            let instances = u32::try_from(each).unwrap_or(1);
            cost.options.push(CostOption {
                name: plan.spec.name.clone(),
                power: power + share,
                instances,
                price: 0.0,
            });
            sources.push(format!(
                "{}: `server.power` of the plan, with its part of `chassis.power` of all chassis \
                 and switches",
                plan.spec.name
            ));
        }
    }
    if !args.options.is_empty() {
        cost.options = args.options.iter().map(|text| option(text)).collect::<Result<_>>()?;
        sources.clear();
    }
    if let Some(path) = &args.measured {
        let (option, note) = measured(path, args.price)?;
        cost.options.insert(0, option);
        sources.push(note);
    }
    if args.options.is_empty()
        && plan.as_ref().is_none_or(|plan| plan.spec.power.cost.options.is_empty())
    {
        cost.options.extend(published());
        sources.push(SOURCE.to_owned());
    }
    cost.instances = args.instances.unwrap_or(cost.instances);
    cost.kwh = args.kwh.unwrap_or(cost.kwh);
    cost.pue = args.pue.unwrap_or(cost.pue);
    cost.years = args.years.unwrap_or(cost.years);
    cost.carbon = args.carbon.or(cost.carbon);
    cost.currency = args.currency.clone().unwrap_or(cost.currency);
    cost.check()?;
    Ok((cost, sources))
}

/// Parses `NAME:WATTS:INSTANCES` or `NAME:WATTS:INSTANCES:PRICE`.
fn option(text: &str) -> Result<CostOption> {
    let parts: Vec<&str> = text.split(':').collect();
    let read = || {
        let (name, watts, instances) =
            (parts.first()?, parts.get(1)?.trim_end_matches('W'), parts.get(2)?);
        let price = parts.get(3).map_or(Some(0.0), |price| price.parse().ok())?;
        let power = Watts(watts.parse().ok().filter(|watts| (0.0..=1e6).contains(watts))?);
        (parts.len() <= 4).then_some(CostOption {
            name: (*name).to_owned(),
            power,
            instances: instances.parse().ok()?,
            price,
        })
    };
    read().with_context(|| {
        format!(
            "--option {text:?}: want NAME:WATTS:INSTANCES or NAME:WATTS:INSTANCES:PRICE, such \
            as mini:72:2:1900"
        )
    })
}

/// Reads the output of `sprat rack power --json`. Returns the mean of the measured servers, and a
/// note about the source and its gaps.
fn measured(path: &Path, price: f64) -> Result<(CostOption, String)> {
    let context = || format!("--measured {}", path.display());
    let bytes = std::fs::read(path).with_context(context)?;
    let value: Value = serde_json::from_slice(&bytes).with_context(context)?;
    let total = &value["report"]["total"];
    let (watts, servers) = (total["watts"].as_f64(), total["measured"].as_u64());
    let number = |value: Option<u64>| value.and_then(|number| u32::try_from(number).ok());
    let (watts, servers) =
        watts.zip(number(servers).filter(|servers| *servers > 0)).with_context(|| {
            format!(
                "{}: want the output of `sprat rack power --json`, with measured power",
                context()
            )
        })?;
    let Some(instances) =
        number(total["instances"].as_u64()).filter(|instances| *instances >= servers)
    else {
        bail!(
            "{}: the number of instances is missing: measure again with `sprat rack power --here \
             --instances COUNT`",
            context()
        );
    };
    let power = Watts(watts / f64::from(servers));
    let mut note = format!("measured: {}", path.display());
    if let Some(there_are) =
        number(total["there-are"].as_u64()).filter(|there_are| *there_are > servers)
    {
        note += &format!(
            "; {} of {there_are} servers were not read: taken as the mean of the others",
            there_are - servers
        );
    }
    if let Some(unread) = total["unread"].as_f64().filter(|unread| *unread > 0.0) {
        note += &format!(
            "; {} % of the time was not read: taken as the mean of the rest",
            digits(unread * 100.0)
        );
    }
    Ok((
        CostOption { name: "measured".to_owned(), power, instances: instances / servers, price },
        note,
    ))
}

/// Renders the inputs that all servers share.
fn input_lines(cost: &Cost) -> Vec<String> {
    let line = |name: &str, value: String| format!("{name:<18} {value}");
    let carbon = cost
        .carbon
        .map_or("not counted".to_owned(), |grams| format!("{} g of CO2 a kWh", digits(grams)));
    vec![
        line("instances", cost.instances.to_string()),
        line("price of a kWh", format!("{} {}", digits(cost.kwh), cost.currency)),
        line("PUE", format!("{} W of the building for each W of servers", digits(cost.pue))),
        line("years", format!("{}, of {HOURS} hours each, all under load", digits(cost.years))),
        line("carbon", carbon),
    ]
}

fn money(amount: f64) -> String {
    if amount.abs() < 100.0 { format!("{amount:.2}") } else { format!("{amount:.0}") }
}

/// Renders the inputs and results of each kind of server.
fn table(cost: &Cost, totals: &[OptionCost]) -> Table {
    let names: Vec<&str> = totals.iter().map(|total| total.option.name.as_str()).collect();
    let mut table = Table::new(&[&[""], &names[..]].concat());
    let mut row = |name: &str, cell: &dyn Fn(&OptionCost) -> String| {
        table.row(std::iter::once(name.to_owned()).chain(totals.iter().map(cell)).collect());
    };
    let in_currency = |name: &str| format!("{name}, {}", cost.currency);
    row("W a server", &|total| digits(total.option.power.0));
    row("instances a server", &|total| total.option.instances.to_string());
    row(&in_currency("price of a server"), &|total| {
        if total.option.price > 0.0 { money(total.option.price) } else { "not given".to_owned() }
    });
    row("servers", &|total| total.servers.to_string());
    row("W an instance", &|total| digits(total.watts_per_instance.0));
    row("W of all servers", &|total| digits(total.watts.0));
    row("W of the building", &|total| digits(total.watts_with_building.0));
    row("kWh a year", &|total| format!("{:.0}", total.kwh_per_year));
    row(&in_currency("energy a year"), &|total| money(total.energy_per_year));
    row(&in_currency("energy, all years"), &|total| money(total.energy));
    row(&in_currency("purchase"), &|total| money(total.purchase));
    row(&in_currency("total"), &|total| money(total.total));
    row(&in_currency("total, an instance"), &|total| money(total.total_per_instance));
    if cost.carbon.is_some() {
        row("CO2 of energy, kg", &|total| {
            total.carbon.map_or("-".to_owned(), |kg| format!("{kg:.0}"))
        });
    }
    table
}

fn notes(cost: &Cost, totals: &[OptionCost], sources: &[String]) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some((first, others)) = totals.split_first() {
        for other in others {
            let times = |of: f64, than: f64| {
                if than > 0.0 { format!("{} times", digits(of / than)) } else { "-".to_owned() }
            };
            let energy = times(other.energy, first.energy);
            lines.push(format!(
                "{}: {energy} the energy of {}, {} the total",
                other.option.name,
                first.option.name,
                times(other.total, first.total)
            ));
        }
    }
    if totals.iter().any(|total| total.option.price <= 0.0) {
        lines.push("totals leave out the purchase of servers without a price".to_owned());
    }
    if totals.iter().any(|total| total.servers * total.option.instances > cost.instances) {
        lines.push("a partly used server counts as a whole one".to_owned());
    }
    lines.extend(sources.iter().cloned());
    lines
}

/// Renders the report as an HTML page.
fn page(cost: &Cost, totals: &[OptionCost], sources: &[String]) -> Page {
    let mut page = Page::new("sprat rack cost", &Machine::describe());
    let mut given = Table::new(&["input", "value"]);
    for line in input_lines(cost) {
        let (name, value) = line.split_at_checked(18).unwrap_or((&line, ""));
        given.row(vec![name.trim().to_owned(), value.trim().to_owned()]);
    }
    page.table("Inputs", &given);
    page.table("Results", &table(cost, totals));
    let bar = |total: &OptionCost| StackedBar {
        name: total.option.name.clone(),
        parts: vec![(0, total.purchase), (1, total.energy)],
    };
    let title = format!(
        "{}, over {} years, {} instances",
        cost.currency,
        digits(cost.years),
        cost.instances
    );
    let bars: Vec<StackedBar> = totals.iter().map(bar).collect();
    page.figure("Purchase and energy", &stacked(&title, &["purchase", "energy"], &bars, money));
    let watts: Vec<StackedBar> = totals
        .iter()
        .map(|total| StackedBar {
            name: total.option.name.clone(),
            parts: vec![(0, total.watts_per_instance.0)],
        })
        .collect();
    page.figure(
        "Power of an instance",
        &stacked("W", &["W an instance, servers only"], &watts, digits),
    );
    notes(cost, totals, sources).iter().for_each(|line| page.note(line));
    page
}
