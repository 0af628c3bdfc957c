//! `browser` and what belongs to it.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  sprat browser install               for the browsers that are here
  sprat browser status
  sprat browser uninstall")]
pub(crate) enum BrowserCommand {
    /// Write the extension, and tell browsers how to start sprat.
    Install(BrowserInstallArgs),
    /// Take away what install wrote.
    Uninstall(BrowserPlaceArgs),
    /// Show what is installed.
    Status(BrowserPlaceArgs),
    /// What the browser starts; it speaks native messaging on standard input and output.
    #[command(hide = true)]
    Host(BrowserHostArgs),
}

/// A browser, or all.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum ForArg {
    /// Mozilla Firefox.
    Firefox,
    /// Chromium.
    Chromium,
    /// Google Chrome.
    Chrome,
    /// Every one of them.
    All,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat browser install                         for the browsers that are here, and this user
  sprat browser install --for firefox --downloads /data/incoming
  sprat browser install --dry-run               only says what it would write
  sudo sprat browser install --system           for all users; Debian's Firefox and Chromium have it at once

What a browser fetches through sprat goes into --downloads, under the name that its address has,
never over a file that is there. The program must stay where it is: browsers start it by its path.
Run it again after an update of sprat.")]
pub(crate) struct BrowserInstallArgs {
    /// Which browser [default: those that are here].
    #[arg(long = "for", value_name = "BROWSER", value_enum, value_delimiter = ',')]
    pub(crate) browsers: Vec<ForArg>,

    /// Where files go [default: the user's download folder].
    #[arg(long, value_name = "DIR")]
    pub(crate) downloads: Option<PathBuf>,

    /// Write nothing, only say what would be written.
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) place: BrowserPlaceArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct BrowserPlaceArgs {
    /// For all users of this machine (needs root).
    #[arg(long)]
    pub(crate) system: bool,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct BrowserHostArgs {
    /// Where files go [default: the user's download folder].
    #[arg(long, value_name = "DIR")]
    pub(crate) downloads: Option<PathBuf>,

    /// What the browser says of who is calling.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub(crate) caller: Vec<String>,
}
