//! The table of commands. clap generates the help, the completions and the man pages from it.

use crate::bench::BenchCommand;
use crate::bench::basic::ClusterPerfArgs;
use crate::flow::browser::BrowserCommand;
use crate::flow::cp::CpArgs;
use crate::flow::share::ShareArgs;
use crate::grape::GrapeCommand;
use crate::lab::LabCommand;
use crate::meta::doctor::DoctorCommand;
use crate::meta::key::KeyCommand;
use crate::meta::shell::{CompletionArgs, ManArgs};
use crate::rack::RackCommand;
use crate::store::backup::{BackupArgs, RestoreArgs};
use crate::store::check::CheckArgs;
use crate::store::demo::DemoArgs;
use crate::store::export::ExportArgs;
use crate::store::files::StoreCommand;
use crate::store::import::ImportArgs;
use crate::store::index::IndexArgs;
use crate::store::objects::{DelArgs, GetArgs, IncrArgs, PutArgs, TtlArgs};
use crate::store::scan::ScanArgs;
use crate::store::server::{CoordinatorArgs, ServerArgs};
use crate::store::sim::SimArgs;
use crate::store::status::StatusArgs;
use crate::store::table::TableArgs;
use crate::store::txn::TxnArgs;
use crate::store::watch::WatchArgs;
use crate::{bench, flow, meta, store};
use anyhow::Result;
use clap::{CommandFactory as _, Parser, Subcommand};
use std::fmt::Write as _;
use std::process::ExitCode;

/// A data platform for clusters of small servers.
#[derive(Debug, Parser)]
#[command(
    name = "sprat",
    version,
    propagate_version = true,
    max_term_width = 100,
    arg_required_else_help = true
)]
#[command(after_help = "Examples:
  sprat server                          run a complete store on this machine
  sprat table create users
  sprat put users alice 'likes tea'
  sprat get users alice
  sprat cp sprat://left.example/big.iso .
  sprat bench basic                     latency of reads and writes by object size

`sprat COMMAND --help` describes a command, with examples.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands in the order of [`GROUPS`], in which the man page lists them.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a storage server; alone, it is a complete store.
    Server(ServerArgs),
    /// Run a coordinator without a storage server.
    Coordinator(CoordinatorArgs),
    /// Create, drop, list and move tables.
    Table(TableArgs),
    /// Create, drop and list the secondary indexes of a table.
    Index(IndexArgs),
    /// Print an object's value.
    Get(GetArgs),
    /// Write an object.
    Put(PutArgs),
    /// Remove an object.
    Del(DelArgs),
    /// Add to a counter atomically.
    Incr(IncrArgs),
    /// Print or set after how long an object expires.
    Ttl(TtlArgs),
    /// Execute steps on several objects together, as one transaction.
    Txn(TxnArgs),
    /// List a table's objects.
    Scan(ScanArgs),
    /// Print the changes of a table as they happen.
    Watch(WatchArgs),
    /// Load files, CSV or JSON lines into a table.
    Import(ImportArgs),
    /// Write a table to files, CSV or JSON lines.
    Export(ExportArgs),
    /// Back up a running cluster; list, verify and prune backups.
    Backup(BackupArgs),
    /// Restore tables from a backup.
    Restore(RestoreArgs),
    /// Show servers, tables and counters.
    Status(StatusArgs),
    /// Create a cluster's root key, and issue identities to its members.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Run random operations on a cluster and check every answer against a model.
    Check(CheckArgs),
    /// Verify, salvage or rebuild the files of a stopped server.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Simulate the store with faults and check that every history is linearizable.
    Sim(SimArgs),
    /// Demonstrate the store: import, verify, benchmark, kill and recover.
    Demo(DemoArgs),
    /// Copy files from servers, verified and resumable.
    Cp(CpArgs),
    /// Serve a directory over HTTP, with hashes that `sprat cp` verifies.
    Share(ShareArgs),
    /// Hand the downloads of Firefox and Chromium to sprat.
    #[command(subcommand)]
    Browser(BrowserCommand),
    /// Emulate networks: long fat pipes, stream harmonizers and switches.
    #[command(subcommand)]
    Lab(LabCommand),
    /// Plan, set up, load and tune racks of small servers.
    #[command(subcommand)]
    Rack(RackCommand),
    /// Run particle-interaction kernels on this processor or a simulated GRAPE-DR.
    #[command(subcommand)]
    Grape(GrapeCommand),
    /// Benchmark Sprat and its peers, or the machine itself.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Benchmark reads and writes: an alias of `bench basic`, under RAMCloud's name.
    #[command(name = "ClusterPerf", hide = true)]
    ClusterPerf(ClusterPerfArgs),
    /// Find system settings that limit network throughput.
    #[command(subcommand)]
    Doctor(DoctorCommand),
    /// Print a completion script for a shell.
    Completions(CompletionArgs),
    /// Write man pages to a directory.
    Man(ManArgs),
}

/// The visible commands by part of Sprat: heading and names, in the order in which `sprat --help`
/// lists them.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Store",
        &[
            "server",
            "coordinator",
            "table",
            "index",
            "get",
            "put",
            "del",
            "incr",
            "ttl",
            "txn",
            "scan",
            "watch",
            "import",
            "export",
            "backup",
            "restore",
            "status",
            "key",
            "check",
            "store",
            "sim",
            "demo",
        ],
    ),
    ("File transfer", &["cp", "share", "browser"]),
    ("Network lab", &["lab"]),
    ("Racks", &["rack"]),
    ("Kernels", &["grape"]),
    ("Benchmarks", &["bench"]),
    ("This machine", &["doctor", "completions", "man", "help"]),
];

/// clap adds this command when it parses; its line on the root page is ours.
const HELP: (&str, &str) = ("help", "Print help for a command");

/// Returns the whole command line, with a root page that lists the commands by group. clap lists
/// the subcommands of a command in one table only, so the groups are part of the page's template.
pub(crate) fn command() -> clap::Command {
    let command = Cli::command();
    let template = root_template(&command);
    command.help_template(template)
}

fn root_template(command: &clap::Command) -> String {
    let styles = command.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let names = GROUPS.iter().flat_map(|(_, names)| *names);
    let width = names.map(|name| name.len()).max().unwrap_or(0);
    let mut list = String::new();
    for (heading, names) in GROUPS {
        writeln!(list, "{header}{heading}:{header:#}").expect("a string");
        for name in *names {
            let about = about(command, name);
            writeln!(list, "  {literal}{name:<width$}{literal:#}  {about}").expect("a string");
        }
        list.push('\n');
    }
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}\
         {header}Options:{header:#}\n{{options}}{{after-help}}"
    )
}

/// Returns the line that describes a command.
fn about(command: &clap::Command, name: &str) -> String {
    match command.find_subcommand(name) {
        Some(found) => found.get_about().map(ToString::to_string).unwrap_or_default(),
        None => HELP.1.to_owned(),
    }
}

impl Command {
    /// Runs the command and returns the process's exit code.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        match self {
            Self::Server(args) => store::server::server(args),
            Self::Coordinator(args) => store::server::coordinator(args),
            Self::Get(args) => store::objects::get(args),
            Self::Put(args) => store::objects::put(args),
            Self::Del(args) => store::objects::del(args),
            Self::Incr(args) => store::objects::incr(args),
            Self::Ttl(args) => store::objects::ttl(args),
            Self::Txn(args) => store::txn::txn(args),
            Self::Scan(args) => store::scan::scan(args),
            Self::Watch(args) => store::watch::watch(args),
            Self::Table(args) => store::table::table(args),
            Self::Index(args) => store::index::index(args),
            Self::Status(args) => store::status::status(args),
            Self::Import(args) => store::import::import(args),
            Self::Export(args) => store::export::export(args),
            Self::Backup(args) => store::backup::backup(args),
            Self::Restore(args) => store::backup::restore(args),
            Self::Check(args) => store::check::check(args),
            Self::Store(command) => command.run(),
            Self::Bench(command) => command.run(),
            Self::ClusterPerf(args) => bench::basic::cluster_perf(args),
            Self::Demo(args) => store::demo::demo(args),
            Self::Sim(args) => store::sim::sim(args),
            Self::Cp(args) => flow::cp::cp(args),
            Self::Share(args) => flow::share::share(args),
            Self::Browser(command) => command.run(),
            Self::Key(command) => command.run(),
            Self::Lab(command) => command.run(),
            Self::Rack(command) => command.run(),
            Self::Grape(command) => command.run(),
            Self::Doctor(command) => command.run(),
            Self::Completions(args) => meta::shell::completions(args),
            Self::Man(args) => meta::shell::man(args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_table_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn root_page_lists_every_visible_command_once() {
        let command = Cli::command();
        let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
        let visible: Vec<&str> = visible.map(clap::Command::get_name).chain([HELP.0]).collect();
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let (unique, visible_set): (BTreeSet<&str>, BTreeSet<&str>) =
            (listed.iter().copied().collect(), visible.iter().copied().collect());
        assert_eq!(unique, visible_set, "add each command to a group of GROUPS");
        assert_eq!(listed.len(), unique.len(), "a command is in two groups");
        assert_eq!(listed, visible, "Command and GROUPS have different orders");
        let page = super::command().render_help().to_string();
        for name in listed {
            let line = page.lines().find(|line| line.starts_with(&format!("  {name} ")));
            let line = line.unwrap_or_else(|| panic!("no line of the page describes {name}"));
            assert!(line.ends_with(&about(&command, name)), "{line}");
            assert!(line.len() <= 96, "clap does not wrap this line: {line}");
        }
    }

    #[test]
    fn the_published_command_lines_parse() {
        for line in [
            "sprat coordinator -C tcp:host=192.168.100.31,port=12246",
            "sprat server -C tcp:host=192.168.100.31,port=12246 \
             -L fast+dpdk:host=192.168.101.29,mac=94:DE:80:AB:01:79,port=12247 -r 0",
            "sprat server --nodes 2 --core 2,3",
            "sprat ClusterPerf -C tcp:host=192.168.100.31,port=12246 --numClients 1 basic",
        ] {
            Cli::try_parse_from(line.split_whitespace()).unwrap();
        }
    }
}
