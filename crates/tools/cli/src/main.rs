//! The `sprat` binary: argument parsing, progress and tables, nothing else.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "what stands at a flag is its help, brackets and all"
)]

mod bench;
mod cli;
mod connect;
mod exit;
mod flow;
mod grape;
mod lab;
mod meta;
mod output;
mod progress;
mod quantity;
mod rack;
mod signals;
mod store;

use clap::Parser as _;
use cli::Cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(shown) => return show(&shown),
    };
    match command.run() {
        Ok(code) => code,
        // A reader that has seen enough, such as `head`.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let told = output::told(&error);
            let lines: Vec<_> = told.lines().map(sprat_flow::escape_controls).collect();
            eprintln!("sprat: {}", lines.join("\n"));
            ExitCode::from(exit::exit_code(&error))
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

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}
