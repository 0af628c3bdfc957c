//! The `sprat` binary: argument parsing, progress and tables, nothing else.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the comment at a flag is its help text, brackets included"
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

use clap::FromArgMatches as _;
use cli::Cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    let parsed = cli::command().try_get_matches();
    let parsed = parsed.and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches));
    let command = match parsed {
        Ok(cli) => cli.command,
        Err(error) => return print_parse_error(&error),
    };
    match command.run() {
        Ok(code) => code,
        // A reader such as `head` closes the pipe when it has read enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let text = output::describe_error(&error);
            let lines: Vec<_> = text.lines().map(sprat_flow::escape_controls).collect();
            eprintln!("sprat: {}", lines.join("\n"));
            ExitCode::from(exit::exit_code(&error))
        }
    }
}

/// Prints the help, the version, or an error in the arguments. clap returns all three as errors.
fn print_parse_error(parse_error: &clap::Error) -> ExitCode {
    match parse_error.print() {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("sprat: cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
        _ => u8::try_from(parse_error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}
