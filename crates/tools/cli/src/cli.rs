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
use crate::store::check::CheckArgs;
use crate::store::demo::DemoArgs;
use crate::store::export::ExportArgs;
use crate::store::files::StoreCommand;
use crate::store::import::ImportArgs;
use crate::store::objects::{DelArgs, GetArgs, IncrArgs, PutArgs};
use crate::store::scan::ScanArgs;
use crate::store::server::{CoordinatorArgs, ServerArgs};
use crate::store::sim::SimArgs;
use crate::store::status::StatusArgs;
use crate::store::table::TableArgs;
use crate::{bench, flow, meta, store};
use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// DRAM storage for clusters of small servers: microsecond reads, every write durable.
#[derive(Debug, Parser)]
#[command(
    name = "sprat",
    version,
    propagate_version = true,
    max_term_width = 100,
    arg_required_else_help = true
)]
#[command(after_help = "Examples:
  sprat server                          a whole store on this machine, data in ./sprat-data
  sprat table create users
  sprat put users alice 'likes tea'
  sprat get users alice
  sprat bench basic                     latency of reads and writes by size

`sprat COMMAND --help` shows each command with examples.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a server: alone, it is coordinator, master and backup in one.
    Server(ServerArgs),
    /// Run a coordinator by itself.
    Coordinator(CoordinatorArgs),
    /// Print an object's value.
    Get(GetArgs),
    /// Store an object.
    Put(PutArgs),
    /// Remove an object.
    Del(DelArgs),
    /// Add to a number, atomically.
    Incr(IncrArgs),
    /// List a table's objects.
    Scan(ScanArgs),
    /// Make, drop, list and measure tables.
    Table(TableArgs),
    /// Show servers, tables and their counters.
    Status(StatusArgs),
    /// Load files, CSV or JSON lines into a table.
    Import(ImportArgs),
    /// Write a table out again, exactly as it was imported.
    Export(ExportArgs),
    /// Run mixed operations against a cluster and hold every answer against a model.
    Check(CheckArgs),
    /// Check, salvage or mend the files of a server that is stopped.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Measure.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Measure, as the seed's program of that name: an alias of `bench basic`.
    #[command(name = "ClusterPerf", hide = true)]
    ClusterPerf(ClusterPerfArgs),
    /// Show the whole store on real input: import, verify, measure, kill, recover.
    Demo(DemoArgs),
    /// Run the store in the simulator, faults included, and check every history.
    Sim(SimArgs),
    /// Copy files from servers, however far, whole and verified.
    Cp(CpArgs),
    /// Serve a directory over HTTP, for any client, and verified for `sprat cp`.
    Share(ShareArgs),
    /// Let Firefox and Chromium hand their downloads to sprat.
    #[command(subcommand)]
    Browser(BrowserCommand),
    /// Make a cluster's root, and identities by which its members know one another.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Networks to try things on: long fat pipes, harmonizers, switches.
    #[command(subcommand)]
    Lab(LabCommand),
    /// Racks of small servers: on paper, then as the paper has it.
    #[command(subcommand)]
    Rack(RackCommand),
    /// Kernels of particle interactions, on this processor's vectors or a simulated GRAPE-DR.
    #[command(subcommand)]
    Grape(GrapeCommand),
    /// Find what holds this machine back.
    #[command(subcommand)]
    Doctor(DoctorCommand),
    /// Print a completion script for a shell.
    Completions(CompletionArgs),
    /// Write man pages into a directory.
    Man(ManArgs),
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
            Self::Scan(args) => store::scan::scan(args),
            Self::Table(args) => store::table::table(args),
            Self::Status(args) => store::status::status(args),
            Self::Import(args) => store::import::import(args),
            Self::Export(args) => store::export::export(args),
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
    use clap::CommandFactory as _;

    #[test]
    fn the_table_is_consistent() {
        Cli::command().debug_assert();
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
