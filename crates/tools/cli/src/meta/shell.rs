//! `completions` and `man`: generated from the table of commands.

use crate::cli;
use anyhow::{Context as _, Result};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat completions bash > /etc/bash_completion.d/sprat
  sprat completions zsh > /usr/local/share/zsh/site-functions/_sprat
  sprat completions fish > ~/.config/fish/completions/sprat.fish")]
pub(crate) struct CompletionArgs {
    /// Shell to complete for.
    shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat man /usr/local/share/man/man1
  sprat man pages && man pages/sprat-cp.1")]
pub(crate) struct ManArgs {
    /// Directory to write to; created if it does not exist.
    dir: PathBuf,
}

pub(crate) fn completions(args: &CompletionArgs) -> Result<ExitCode> {
    // The script is generated in memory first: the generator panics when it writes to a closed
    // pipe.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli::command(), "sprat", &mut script);
    crate::output::print_bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(args: &ManArgs) -> Result<ExitCode> {
    let dir = &args.dir;
    let wrote =
        std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(cli::command(), dir));
    wrote.with_context(|| format!("cannot write man pages to {}", dir.display()))?;
    eprintln!(
        "wrote man pages to {}; read one with `man {}/sprat.1`",
        dir.display(),
        dir.display()
    );
    Ok(ExitCode::SUCCESS)
}
