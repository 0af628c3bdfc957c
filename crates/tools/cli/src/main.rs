//! The `sprat` binary: argument parsing, progress and tables, nothing else.

mod args;
mod cmd;

use args::doctor::DoctorCommand;
use args::{
    BenchCommand, BrowserCommand, Cli, Command, GrapeCommand, KeyCommand, LabCommand, RackCommand, ServerArgs,
    ServerCommand, StoreCommand,
};
use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(shown) => return show(&shown),
    };
    let result = match command {
        Command::Server(ServerArgs { command: Some(ServerCommand::Drain(args)), .. }) => cmd::moves::drain(&args),
        Command::Server(args) => cmd::serve::server(&args),
        Command::Coordinator(args) => cmd::serve::coordinator(&args),
        Command::Get(args) => cmd::objects::get(&args),
        Command::Put(args) => cmd::objects::put(&args),
        Command::Del(args) => cmd::objects::del(&args),
        Command::Incr(args) => cmd::objects::incr(&args),
        Command::Scan(args) => cmd::scan::scan(&args),
        Command::Table(args) => cmd::tables::table(&args),
        Command::Status(args) => cmd::tables::status(&args),
        Command::Import(args) => cmd::import::import(&args),
        Command::Export(args) => cmd::export::export(&args),
        Command::Check(args) => cmd::check::check(&args),
        Command::Store(StoreCommand::Verify(args)) => cmd::store::verify(&args),
        Command::Store(StoreCommand::Export(args)) => cmd::store::export(&args),
        Command::Store(StoreCommand::Rebuild(args)) => cmd::store::rebuild(&args),
        Command::Bench(BenchCommand::Basic(args)) => cmd::bench::basic(&args),
        Command::Bench(BenchCommand::Echo(args)) => cmd::bench::echo(&args),
        Command::Bench(BenchCommand::Ping(args)) => cmd::bench::ping(&args),
        Command::Bench(BenchCommand::Store(args)) => cmd::bench::store(&args),
        Command::Bench(BenchCommand::Breakdown(args)) => cmd::bench::breakdown(&args),
        Command::Bench(BenchCommand::Bypass(args)) => cmd::bench::bypass(&args),
        Command::Bench(BenchCommand::Lab(args)) => cmd::bench::lab(&args),
        Command::Bench(BenchCommand::Cluster(args)) => cmd::bench::replicated(&args),
        Command::Bench(BenchCommand::Flow(args)) => cmd::bench::flow(&args),
        Command::Bench(BenchCommand::Rack(args)) => cmd::bench::rack(&args),
        Command::Bench(BenchCommand::Grape(args)) => cmd::bench::grape(&args),
        Command::Bench(BenchCommand::Distribution(args)) => cmd::distribution::distribution(&args),
        Command::Bench(BenchCommand::Jitter(args)) => cmd::distribution::jitter(&args),
        Command::ClusterPerf(args) => cmd::bench::cluster_perf(&args),
        Command::Demo(args) => cmd::demo::demo(&args),
        Command::Sim(args) => cmd::sim::sim(&args),
        Command::Cp(args) => cmd::cp::cp(&args),
        Command::Share(args) => cmd::share::share(&args),
        Command::Browser(BrowserCommand::Install(args)) => cmd::browser::install(&args),
        Command::Browser(BrowserCommand::Uninstall(args)) => cmd::browser::uninstall(&args),
        Command::Browser(BrowserCommand::Status(args)) => cmd::browser::status(&args),
        Command::Browser(BrowserCommand::Host(args)) => cmd::browser::host(&args),
        Command::Key(KeyCommand::Init(args)) => cmd::key::init(&args),
        Command::Key(KeyCommand::Issue(args)) => cmd::key::issue(&args),
        Command::Key(KeyCommand::Show(args)) => cmd::key::show(&args),
        Command::Lab(LabCommand::Run(args)) => cmd::lab::run(&args),
        Command::Lab(LabCommand::Ctl(args)) => cmd::lab_ctl::ctl(&args),
        Command::Lab(LabCommand::Up(args)) => cmd::lab_up::up(&args),
        Command::Lab(LabCommand::Down(args)) => cmd::lab_up::down(&args),
        Command::Lab(LabCommand::Ls(args)) => cmd::lab_up::ls(&args),
        Command::Lab(LabCommand::Watch(args)) => cmd::lab_watch::watch(&args),
        Command::Lab(LabCommand::Report(args)) => cmd::lab_series::report(&args),
        Command::Lab(LabCommand::Topologies(args)) => cmd::lab_up::topologies(&args),
        Command::Rack(RackCommand::Plan(args)) => cmd::rack::plan(&args),
        Command::Rack(RackCommand::Simulate(args)) => cmd::rack::simulated(&args),
        Command::Rack(RackCommand::Up(args)) => cmd::rack_up::up(&args),
        Command::Rack(RackCommand::Status(args)) => cmd::rack_up::status(&args),
        Command::Rack(RackCommand::Rolling(args)) => cmd::rack_rolling::rolling(&args),
        Command::Rack(RackCommand::Add(args)) => cmd::rack_add::add(&args),
        Command::Rack(RackCommand::Remove(args)) => cmd::rack_remove::remove(&args),
        Command::Rack(RackCommand::Replace(args)) => cmd::rack_up::replace(&args),
        Command::Rack(RackCommand::Load(args)) => cmd::rack_load::load(&args),
        Command::Rack(RackCommand::Tune(args)) => cmd::rack_tune::tune(&args),
        Command::Rack(RackCommand::Bridge(args)) => cmd::rack_bridge::bridge(&args),
        Command::Rack(RackCommand::Power(args)) => cmd::rack_power::power(&args),
        Command::Rack(RackCommand::Cost(args)) => cmd::rack_cost::cost(&args),
        Command::Rack(RackCommand::Down(args)) => cmd::rack_up::down(&args),
        Command::Rack(RackCommand::Examples(args)) => cmd::rack::examples(&args),
        Command::Grape(GrapeCommand::Kernels(args)) => cmd::grape::kernels(&args),
        Command::Grape(GrapeCommand::Run(args)) => cmd::grape::run(&args),
        Command::Grape(GrapeCommand::Explain(args)) => cmd::grape_explain::explain(&args),
        Command::Grape(GrapeCommand::Asm(args)) => cmd::grape_sim::asm(&args),
        Command::Grape(GrapeCommand::Sim(args)) => cmd::grape_sim::sim(&args),
        Command::Grape(GrapeCommand::Nbody(args)) => cmd::grape_nbody::nbody(&args),
        Command::Grape(GrapeCommand::Dgemm(args)) => cmd::grape_matrix::dgemm(&args),
        Command::Grape(GrapeCommand::Lu(args)) => cmd::grape_matrix::lu(&args),
        Command::Doctor(DoctorCommand::Net(args)) => cmd::doctor::net(&args),
        Command::Completions(args) => cmd::shell::completions(&args),
        Command::Man(args) => cmd::shell::man(&args),
    };
    match result {
        Ok(code) => code,
        // A reader that has seen enough, such as `head`.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let told = told(&error);
            let lines: Vec<_> = told.lines().map(sprat_flow::plain).collect();
            eprintln!("sprat: {}", lines.join("\n"));
            ExitCode::from(cmd::exit_code(&error))
        }
    }
}

/// Prints help, the version, or what is wrong with the arguments.
fn show(shown: &clap::Error) -> ExitCode {
    match shown.print() {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("sprat: cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
        _ => u8::try_from(shown.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from),
    }
}

/// The error with its causes; those that its own words end with already are not said twice.
pub(crate) fn told(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}
