//! `lab ctl`: shows and changes the settings of a running box.

use crate::lab::run::settings_in;
use crate::lab::up::{LabState, dir};
use crate::output::{print_json, print_line};
use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use serde_json::json;
use sprat_lab::config::{LineWords, Word};
use sprat_lab::control::{BoxState, Client, ControlDir, PortState, RuleState};
use sprat_lab::filter::RuleWords;
use std::process::ExitCode;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat lab ls                                  names of the running boxes
  sprat lab ctl wan show
  sprat lab ctl wan set delay=50ms rate=1Gb/s   every line
  sprat lab ctl wan set --to b0 loss=0.1%       one line; other settings stay
  sprat lab ctl set buffer=64MB                 the only running box
  sprat lab ctl wan filter add 'udp port 53' drop --from a0
  sprat lab ctl wan stop

A box of a lab is named LAB.BOX, or BOX if only one lab has such a box. A change neither loses
nor reorders packets: those in the box arrive when they would have, and later ones not before
them.")]
pub(crate) struct LabCtlArgs {
    /// Box to control [default: the only running one].
    #[arg(value_name = "BOX")]
    name: Option<String>,

    #[command(subcommand)]
    command: LabCtlCommand,

    #[command(flatten)]
    state: LabState,

    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCtlCommand {
    /// Show the settings of each line, and the filter.
    Show,
    /// Change settings of lines.
    Set {
        /// Change only the line to this port.
        #[arg(long = "to", value_name = "PORT")]
        to: Option<String>,
        /// Setting of `sprat lab run`, such as delay=50ms; the value `none` removes a rate, loss,
        /// reordering or burst.
        #[arg(required = true, value_name = "SETTING=VALUE")]
        settings: Vec<String>,
    },
    /// Show or change the packet filter.
    #[command(subcommand)]
    Filter(LabFilterCommand),
    /// Print the counters so far as JSON.
    Report,
    /// Stop the box as Ctrl-C would; this ends its lab too.
    Stop,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabFilterCommand {
    /// List the rules and what each has matched.
    List,
    /// Add a rule.
    Add {
        /// Packets to match: a tcpdump expression, such as 'udp port 53'.
        #[arg(value_name = "EXPRESSION")]
        expression: String,
        /// Action for these packets: count, drop, mirror:PORT (in a switch), or
        /// rewrite:FIELD=VALUE,...
        #[arg(value_name = "ACTION")]
        action: String,
        /// Match only packets that arrive at this port.
        #[arg(long, value_name = "PORT")]
        from: Option<String>,
        /// Insert the rule before the rule of this number [default: after all].
        #[arg(long, value_name = "NUMBER")]
        at: Option<usize>,
    },
    /// Remove a rule, by its number in the list.
    Remove {
        /// Number of the rule.
        #[arg(value_name = "NUMBER")]
        number: usize,
    },
    /// Remove all rules.
    Clear,
}

pub(crate) fn ctl(args: &LabCtlArgs) -> Result<ExitCode> {
    let mut client = ControlDir::of(&dir(&args.state)).connect(args.name.as_deref())?;
    match &args.command {
        LabCtlCommand::Show => show(&mut client, args.json)?,
        LabCtlCommand::Filter(command) => filter(&mut client, command, args.json)?,
        LabCtlCommand::Set { to, settings } => {
            set(&mut client, to.as_deref(), settings, args.json)?
        }
        LabCtlCommand::Report => print_json(&serde_json::to_value(client.report()?)?)?,
        LabCtlCommand::Stop => {
            let name = client.name().to_owned();
            client.stop()?;
            if args.json {
                print_json(&json!({ "stopped": name }))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(client: &mut Client, json: bool) -> Result<()> {
    let (state, rules) = (client.settings()?, client.rules()?.rules);
    if json {
        let mut value = serde_json::to_value(&state)?;
        value["rules"] = serde_json::to_value(&rules)?;
        return print_json(&value);
    }
    let BoxState { name, process, forward, memory, ports } = &state;
    print_line(&format!(
        "{name}: {forward}, process {process}, {} MB of packet memory",
        memory / 1_000_000
    ))?;
    ports.iter().try_for_each(print_port)?;
    print_rules(&rules)
}

fn filter(client: &mut Client, command: &LabFilterCommand, json: bool) -> Result<()> {
    let list = match command {
        LabFilterCommand::List => client.rules()?,
        LabFilterCommand::Add { expression, action, from, at } => {
            let rule = RuleWords {
                expression: expression.clone(),
                from: from.clone(),
                action: action.clone(),
            };
            client.add_rule(rule, *at)?
        }
        LabFilterCommand::Remove { number } => client.remove_rule(*number)?,
        LabFilterCommand::Clear => client.replace_rules(Vec::new())?,
    };
    if json {
        return print_json(&serde_json::to_value(&list)?);
    }
    for gone in &list.removed {
        print_line(&format!("  removed: {}", describe_rule(gone)))?;
    }
    print_rules(&list.rules)
}

fn print_rules(rules: &[RuleState]) -> Result<()> {
    let print =
        |(number, rule)| print_line(&format!("  filters[{number}]: {}", describe_rule(rule)));
    rules.iter().enumerate().try_for_each(print)
}

fn describe_rule(RuleState { rule, seen }: &RuleState) -> String {
    let RuleWords { expression, from, action } = rule;
    let from = from.as_ref().map_or_else(String::new, |from| format!(" from {from}"));
    let lacking = if seen.lacking > 0 {
        format!(", {} without the field to rewrite", seen.lacking)
    } else {
        String::new()
    };
    format!(
        "{expression:?}{from} {action}: {} packets, {} bytes{lacking}",
        seen.packets, seen.bytes
    )
}

fn set(client: &mut Client, to: Option<&str>, settings: &[String], json: bool) -> Result<()> {
    let changed = client.set(to, &words(settings)?)?;
    for warning in &changed.warnings {
        eprintln!("sprat: {warning}");
    }
    if json {
        return print_json(&serde_json::to_value(&changed)?);
    }
    changed.lines.iter().try_for_each(print_port)
}

/// Parses settings. Each argument is `SETTING=VALUE`, or several of these separated by commas.
fn words(settings: &[String]) -> Result<LineWords> {
    let mut words = serde_json::Map::new();
    for (key, value) in settings.iter().flat_map(|text| settings_in(text)) {
        let Some(value) = value else { bail!("{key:?}: want SETTING=VALUE, such as delay=50ms") };
        if words.insert(key.to_owned(), value.into()).is_some() {
            bail!("{key} is set twice; give it once");
        }
    }
    serde_json::from_value(words.into()).context("no such setting")
}

/// Prints the settings of the line to a port, but only those that differ from the defaults.
fn print_port(port: &PortState) -> Result<()> {
    let defaults = LineWords::of(&Default::default());
    let defaults: Vec<_> = defaults.given().collect();
    let setting = |(key, word): (&'static str, &Word)| {
        (!defaults.contains(&(key, word))).then(|| format!("{key}={}", word.0))
    };
    let settings: Vec<_> = port.line.given().filter_map(setting).collect();
    let settings = if settings.is_empty() {
        "no delay, no rate limit, no loss".to_owned()
    } else {
        settings.join(" ")
    };
    print_line(&format!("  to {}: {settings}", port.port))
}
