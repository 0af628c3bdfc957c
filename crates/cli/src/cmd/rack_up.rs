//! `rack up`, `status` and `down`.

use super::rack::read;
use super::{INCOMPLETE, print_json, print_line};
use crate::args::{RackDownArgs, RackPlace, RackReplaceArgs, RackStatusArgs, RackUpArgs};
use anyhow::{Context as _, Result, bail};
use indicatif::ProgressBar;
use serde_json::json;
use sprat_bench::table::Table;
use sprat_plan::Plan;
use sprat_provision::ansible::{Reach, playbook};
use sprat_provision::{Folder, Local, Node, nodes};
use sprat_rack::{Host, hosts};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long the others may take to see that an instance is down, and how often they are asked.
const DOWN_PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_secs(1);

/// A rack, and where it is.
pub(super) struct Rack {
    pub(super) plan: Plan,
    folder: Folder,
    local: Option<Local>,
    pub(super) reach: Reach,
}

impl Rack {
    pub(super) fn new(place: &RackPlace) -> Result<Self> {
        let mut spec = read(&place.rack)?;
        let path = match &place.state {
            Some(path) => std::path::absolute(path)?,
            None => state()?.join(&spec.name),
        };
        let folder = Folder::at(path);
        let local = match (place.local, place.guests) {
            (true, _) => Some(Local::new(&folder)),
            (_, true) => Some(Local::of_guests(&folder, images()?)),
            (false, false) => None,
        };
        let mut reach = Reach::default();
        if let Some(local) = &local {
            reach = local.reach(&spec.name);
            spec = local.adapt(spec);
        }
        reach.ansible.clone_from(&place.ansible);
        let plan = Plan::new(spec).with_context(|| place.rack.clone())?;
        Ok(Self { plan, folder, local, reach })
    }

    pub(super) fn name(&self) -> &str {
        &self.plan.spec.name
    }

    /// The cluster as the first instance sees it that answers, but for one; and who that is.
    fn look(&self, hosts: &[Host], but: Option<&str>) -> Result<(String, Vec<Node>)> {
        let mut why = None;
        for host in hosts {
            for instance in host.instances.iter().filter(|instance| but != Some(&instance.name)) {
                match self.ask(host, &format!("{}/nodetool status", instance.home.display())) {
                    Ok(text) => return Ok((instance.name.clone(), nodes(&text))),
                    Err(error) => _ = why.get_or_insert_with(|| format!("{}: {error}", instance.name)),
                }
            }
        }
        bail!("no instance answers: {}", why.as_deref().unwrap_or("the plan has none"))
    }

    fn ask(&self, host: &Host, command: &str) -> Result<String> {
        Ok(self.reach.ask(&self.plan.spec.provision.user, &host.address.0.to_string(), command)?)
    }
}

fn state() -> Result<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let base = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(home);
    Ok(base.context("no HOME: name a folder with --state")?.join("sprat/racks"))
}

/// Where what guests start from is kept, for all racks.
fn images() -> Result<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    Ok(base.context("no HOME: set XDG_CACHE_HOME to a folder for the guests' image")?.join("sprat/guests"))
}

pub(crate) fn up(args: &RackUpArgs) -> Result<ExitCode> {
    let rack = Rack::new(&args.place)?;
    let hosts = rack.folder.write(&rack.plan, &std::path::absolute(&args.jars)?)?;
    if let Some(local) = &rack.local
        && !local.stands(rack.name())
    {
        local.up(&rack.plan, &hosts)?;
    }
    let mut more = Vec::new();
    if args.check {
        more.extend(["--check", "--diff"]);
    }
    if let Some(names) = &args.limit {
        more.extend(["--limit", names]);
    }
    let bar = ProgressBar::new_spinner();
    let mut line = |line: &str| {
        // What is told of differences is for whoever asked; else the task that runs will do.
        if args.check && !args.json {
            let _ = print_line(line);
        } else {
            show_task(&bar, line);
        }
    };
    let recaps = playbook(&rack.folder, &rack.reach, "site.yml", &more, &mut line);
    bar.finish_and_clear();
    let recaps = recaps?;
    if args.json {
        print_json(&serde_json::to_value(&recaps)?)?;
    } else {
        for recap in &recaps {
            print_line(&format!("{:<12} {} right, of which {} changed", recap.host, recap.ok, recap.changed))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows which task runs.
fn show_task(bar: &ProgressBar, line: &str) {
    if let Some(task) = line.strip_prefix("TASK [") {
        bar.set_message(task.trim_end_matches(['*', ' ', ']']).to_owned());
        bar.tick();
    }
}

pub(crate) fn status(args: &RackStatusArgs) -> Result<ExitCode> {
    let rack = Rack::new(&args.place)?;
    let hosts = hosts(&rack.plan);
    let (by, seen) = rack.look(&hosts, None)?;
    let state = |address: &str| seen.iter().find(|node| node.address == address);
    let all: Vec<(&str, String, Option<&Node>)> = hosts
        .iter()
        .flat_map(|host| &host.instances)
        .map(|instance| (instance.name.as_str(), instance.address.to_string(), state(&instance.address.to_string())))
        .collect();
    if args.json {
        let each = |(name, address, node): &(&str, String, Option<&Node>)| json!({ "name": name, "address": address, "node": node });
        print_json(&json!({ "seen-by": by, "instances": all.iter().map(each).collect::<Vec<_>>() }))?;
    } else {
        let mut table = Table::new(&["instance", "address", "state", "load", "tokens", "rack"]);
        for (name, address, node) in &all {
            let told = |of: &dyn Fn(&Node) -> String| node.map_or("-".to_owned(), of);
            let cells = [
                told(&|node| node.state.clone()),
                told(&|node| node.load.clone()),
                told(&|node| node.tokens.to_string()),
            ];
            let ends = [told(&|node| node.rack.clone())];
            table.row([(*name).to_owned(), address.clone()].into_iter().chain(cells).chain(ends).collect());
        }
        print_line(table.to_string().trim_end())?;
        print_line(&format!("as {by} sees it"))?;
    }
    let well = all.iter().all(|(_, _, node)| node.is_some_and(|node| node.state == "UN"));
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::from(INCOMPLETE) })
}

pub(crate) fn replace(args: &RackReplaceArgs) -> Result<ExitCode> {
    let rack = Rack::new(&args.place)?;
    let hosts = rack.folder.write(&rack.plan, &std::path::absolute(&args.jars)?)?;
    let all = hosts.iter().flat_map(|host| host.instances.iter().map(move |instance| (host, instance)));
    let Some((host, instance)) = all.into_iter().find(|(_, instance)| instance.name == args.instance) else {
        bail!("no instance {:?}: `sprat rack status` names them", args.instance);
    };
    rack.folder.replacing(instance)?;
    // It may run: then it is stopped, or nobody would see it down. A server that is new has nothing to stop.
    let program = format!("{}/instance", instance.home.display());
    rack.ask(host, &format!("test ! -e {program} || {program} stop"))?;
    let begun = Instant::now();
    let address = instance.address.to_string();
    let bar = ProgressBar::new_spinner();
    bar.set_message("waiting until the others see that it is down");
    while rack
        .look(&hosts, Some(&instance.name))?
        .1
        .iter()
        .any(|node| node.address == address && node.state.starts_with('U'))
    {
        if begun.elapsed() > DOWN_PATIENCE {
            bail!("the others still see {} up after {} s", instance.name, DOWN_PATIENCE.as_secs());
        }
        bar.tick();
        #[expect(clippy::disallowed_methods, reason = "a command waits by sleeping")]
        std::thread::sleep(LOOK);
    }
    let chosen = format!("instance={}", instance.name);
    let mut line = |line: &str| show_task(&bar, line);
    let told = playbook(
        &rack.folder,
        &rack.reach,
        "replace.yml",
        &["--limit", &host.name, "--extra-vars", &chosen],
        &mut line,
    );
    bar.finish_and_clear();
    told?;
    print_line(&format!("{} has taken its place anew", instance.name))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn down(args: &RackDownArgs) -> Result<ExitCode> {
    let rack = Rack::new(&args.place)?;
    match &rack.local {
        Some(local) => {
            if local.stands(rack.name()) {
                local.down(rack.name())?;
            }
            if args.purge && rack.folder.path().exists() {
                std::fs::remove_dir_all(rack.folder.path())
                    .with_context(|| rack.folder.path().display().to_string())?;
            }
        }
        None => {
            playbook(&rack.folder, &rack.reach, "stop.yml", &[], &mut |_| {})?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
