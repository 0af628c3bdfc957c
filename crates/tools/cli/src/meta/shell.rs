//! `completions` and `man`: generated from the table of commands.

use crate::cli::Cli;
use anyhow::{Context as _, Result};
use clap::{Args, CommandFactory as _};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args, Debug)]
pub(crate) struct CompletionArgs {
    /// Shell.
    shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Directory; made if it does not exist.
    dir: PathBuf,
}

pub(crate) fn completions(args: &CompletionArgs) -> Result<ExitCode> {
    // Generated into memory first: the generator panics when it writes to a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "sprat", &mut script);
    crate::output::print_bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(args: &ManArgs) -> Result<ExitCode> {
    let dir = &args.dir;
    let wrote =
        std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(Cli::command(), dir));
    wrote.with_context(|| format!("cannot write man pages to {}", dir.display()))?;
    eprintln!("man pages are in {}; read one with `man {}/sprat.1`", dir.display(), dir.display());
    Ok(ExitCode::SUCCESS)
}
