//! `rack tune`.

mod live;
mod page;

use super::rack_up::Rack;
use super::{INCOMPLETE, print_json, print_line};
use crate::args::RackTuneArgs;
use anyhow::{Context as _, Result, bail};
use live::Live;
use serde_json::json;
use sprat_rack::hosts;
use sprat_tune::{Candidate, Class, Facts, Journal, SCRIPT, candidates, run, undo};
use std::process::ExitCode;

pub(crate) fn tune(args: &RackTuneArgs) -> Result<ExitCode> {
    let rack = Rack::new(&args.place)?;
    if rack.plan.spec.cassandra.is_none() {
        bail!("{}: the plan has no [cassandra]", args.place.rack);
    }
    if args.check {
        return check(args, &rack);
    }
    let (measured, warm) = (args.duration, args.warm);
    let _mine = rack.folder.lock()?;
    let mut journal = Journal::open(rack.folder.path())?;
    let mut live = Live::new(args, rack, warm, measured)?;
    if args.undo {
        let undone = undo(&mut live, &mut journal).map_err(|error| live.explain(error))?;
        live.keep_across_boots(&journal)?;
        print_line(&format!("{undone} settings are as they were"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let advised = advised(args, live.rack())?;
    let ran = run(&mut live, &mut journal, &advised);
    live.finish();
    ran.map_err(|error| live.explain(error))?;
    live.keep_across_boots(&journal)?;
    if let Some(path) = &args.html {
        page::page(live.rack().name(), &journal).write(path)?;
    }
    if args.json {
        print_json(&serde_json::to_value(&journal)?)?;
    } else {
        print_line(page::tried(&journal).to_string().trim_end())?;
        page::text(&journal).iter().try_for_each(|line| print_line(line))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Tells what is otherwise than advised.
fn check(args: &RackTuneArgs, rack: &Rack) -> Result<ExitCode> {
    let advised = advised(args, rack)?;
    if args.json {
        print_json(&json!({ "advised": advised }))?;
    } else if advised.is_empty() {
        print_line("all is as advised")?;
    } else {
        let mut last = None;
        for candidate in &advised {
            if last.replace(candidate.class) != Some(candidate.class) {
                print_line(&format!("{}: {}", candidate.class.name(), candidate.why))?;
            }
            print_line(&format!("  {} -> {}", candidate.present, candidate.what))?;
        }
    }
    Ok(if advised.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(INCOMPLETE) })
}

/// What is worth a try on a rack, by what its hosts say now.
fn advised(args: &RackTuneArgs, rack: &Rack) -> Result<Vec<Candidate>> {
    let only = args
        .only
        .iter()
        .map(|name| {
            let known = || Class::ALL.map(Class::name).join(", ");
            Class::named(name.trim()).with_context(|| format!("--only {name}: there are {}", known()))
        })
        .collect::<Result<Vec<_>>>()?;
    let mut told = Vec::new();
    for host in &hosts(&rack.plan) {
        let folders: Vec<_> = host.instances.iter().map(|instance| instance.home.display().to_string()).collect();
        let script = SCRIPT.replace('\'', "'\\''");
        let answer = rack.ask(host, &format!("sh -c '{script}' sh {}", folders.join(" ")))?;
        let facts = Facts::parse(&answer).with_context(|| host.name.clone())?;
        told.push((host.name.clone(), facts));
    }
    let tables = match args.tables.is_empty() {
        true => Vec::new(),
        false => rack.within(|| live::tables(rack, &args.tables))??,
    };
    let mut all = candidates(&rack.plan.spec, &told, &tables);
    all.retain(|candidate| only.is_empty() || only.contains(&candidate.class));
    Ok(all)
}
