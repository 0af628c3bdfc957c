//! `lab ctl`.

use super::lab::settings_in;
use super::lab_up::dir;
use super::{print_json, print_line};
use crate::args::{LabCtlArgs, LabCtlCommand, LabFilterCommand};
use anyhow::{Context as _, Result, bail};
use serde_json::json;
use sprat_lab::config::{LineWords, Word};
use sprat_lab::control::{BoxState, Client, Place, PortState, RuleState};
use sprat_lab::filter::RuleWords;
use std::process::ExitCode;

pub(crate) fn ctl(args: &LabCtlArgs) -> Result<ExitCode> {
    let mut client = Place::of(&dir(&args.state)).connect(args.name.as_deref())?;
    match &args.command {
        LabCtlCommand::Show => show(&mut client, args.json)?,
        LabCtlCommand::Filter(command) => filter(&mut client, command, args.json)?,
        LabCtlCommand::Set { to, settings } => set(&mut client, to.as_deref(), settings, args.json)?,
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
    print_line(&format!("{name}: {forward}, process {process}, {} MB of packet memory", memory / 1_000_000))?;
    ports.iter().try_for_each(told)?;
    told_rules(&rules)
}

fn filter(client: &mut Client, command: &LabFilterCommand, json: bool) -> Result<()> {
    let list = match command {
        LabFilterCommand::List => client.rules()?,
        LabFilterCommand::Add { expression, action, from, at } => {
            let rule = RuleWords { expression: expression.clone(), from: from.clone(), action: action.clone() };
            client.add_rule(rule, *at)?
        }
        LabFilterCommand::Remove { number } => client.remove_rule(*number)?,
        LabFilterCommand::Clear => client.replace_rules(Vec::new())?,
    };
    if json {
        return print_json(&serde_json::to_value(&list)?);
    }
    for gone in &list.removed {
        print_line(&format!("  removed: {}", told_rule(gone)))?;
    }
    told_rules(&list.rules)
}

fn told_rules(rules: &[RuleState]) -> Result<()> {
    let told = |(number, rule)| print_line(&format!("  filters[{number}]: {}", told_rule(rule)));
    rules.iter().enumerate().try_for_each(told)
}

fn told_rule(RuleState { rule, seen }: &RuleState) -> String {
    let RuleWords { expression, from, action } = rule;
    let from = from.as_ref().map_or_else(String::new, |from| format!(" from {from}"));
    let lacking = if seen.lacking > 0 { format!(", {} without the field", seen.lacking) } else { String::new() };
    format!("{expression:?}{from} {action}: {} packets, {} bytes{lacking}", seen.packets, seen.bytes)
}

fn set(client: &mut Client, to: Option<&str>, settings: &[String], json: bool) -> Result<()> {
    let changed = client.set(to, &words(settings)?)?;
    for warning in &changed.warnings {
        eprintln!("sprat: {warning}");
    }
    if json {
        return print_json(&serde_json::to_value(&changed)?);
    }
    changed.lines.iter().try_for_each(told)
}

/// `SETTING=VALUE`, a word each, or several in one with commas between.
fn words(settings: &[String]) -> Result<LineWords> {
    let mut words = serde_json::Map::new();
    for (key, value) in settings.iter().flat_map(|text| settings_in(text)) {
        let Some(value) = value else { bail!("{key:?}: want SETTING=VALUE, such as delay=50ms") };
        if words.insert(key.to_owned(), value.into()).is_some() {
            bail!("{key} is set twice: once is enough");
        }
    }
    serde_json::from_value(words.into()).context("no such setting")
}

/// A line, without what it leaves as it is by default.
fn told(port: &PortState) -> Result<()> {
    let usual = LineWords::of(&Default::default());
    let usual: Vec<_> = usual.given().collect();
    let told =
        |(key, word): (&'static str, &Word)| (!usual.contains(&(key, word))).then(|| format!("{key}={}", word.0));
    let told: Vec<_> = port.line.given().filter_map(told).collect();
    let told = if told.is_empty() { "a cable: at once, and nothing lost".to_owned() } else { told.join(" ") };
    print_line(&format!("  to {}: {told}", port.port))
}
