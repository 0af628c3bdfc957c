//! `browser`: installs, removes and checks the browser extension, and serves browsers.

mod extension;
mod folder;
mod place;
mod plan;

use crate::flow::browser::place::{Browser, InstallPlace};
use crate::flow::browser::plan::{PlannedFile, State};
use crate::output::{print_json, print_line};
use crate::signals::signals;
use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

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

impl BrowserCommand {
    /// Runs the command and returns the process's exit code.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        match self {
            Self::Install(args) => install(args),
            Self::Uninstall(args) => uninstall(args),
            Self::Status(args) => status(args),
            Self::Host(args) => host(args),
        }
    }
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
    browsers: Vec<ForArg>,

    /// Where files go [default: the user's download folder].
    #[arg(long, value_name = "DIR")]
    downloads: Option<PathBuf>,

    /// Write nothing, only say what would be written.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    place: BrowserPlaceArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct BrowserPlaceArgs {
    /// For all users of this machine (needs root).
    #[arg(long)]
    system: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct BrowserHostArgs {
    /// Where files go [default: the user's download folder].
    #[arg(long, value_name = "DIR")]
    downloads: Option<PathBuf>,

    /// What the browser says of who is calling.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    caller: Vec<String>,
}

pub(crate) fn install(args: &BrowserInstallArgs) -> Result<ExitCode> {
    let place = InstallPlace::of(args.place.system)?;
    let browsers = chosen(&args.browsers)?;
    if let Some(downloads) = &args.downloads
        && !downloads.is_absolute()
    {
        bail!(
            "--downloads {}: want the whole path, for browsers start sprat anywhere",
            downloads.display()
        );
    }
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let planned = plan::plan(&place, &browsers, &program, args.downloads.as_deref())?;
    if !args.dry_run {
        planned.iter().try_for_each(PlannedFile::write)?;
    }
    if args.place.json {
        let files: Vec<String> =
            planned.iter().map(|planned| planned.path.display().to_string()).collect();
        let next: Vec<Value> = browsers
            .iter()
            .map(|one| json!({ "browser": one.name(), "next": place.next_steps(*one) }))
            .collect();
        print_json(&json!({ "written": !args.dry_run, "files": files, "browsers": next }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let word = if args.dry_run { "would write" } else { "wrote" };
    planned
        .iter()
        .try_for_each(|planned| print_line(&format!("{word} {}", planned.path.display())))?;
    for browser in browsers {
        print_line(&format!("{}: {}", browser.title(), place.next_steps(browser)))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn uninstall(args: &BrowserPlaceArgs) -> Result<ExitCode> {
    let place = InstallPlace::of(args.system)?;
    let mut removed = Vec::new();
    for path in plan::paths(&place) {
        if plan::remove(&path)? {
            removed.push(path.display().to_string());
        }
    }
    plan::remove_folders(&place);
    if args.json {
        print_json(&json!({ "removed": removed }))?;
    } else if removed.is_empty() {
        print_line("nothing was installed")?;
    } else {
        removed.iter().try_for_each(|path| print_line(&format!("removed {path}")))?;
        print_line("Take the extension out of the browser too, if you loaded it there yourself.")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints which parts are installed. The exit code is 1 if no browser could start the host.
pub(crate) fn status(args: &BrowserPlaceArgs) -> Result<ExitCode> {
    let place = InstallPlace::of(args.system)?;
    let extension = plan::extension_state(&place)?;
    let host = plan::host_state(&place);
    let states: Vec<(Browser, State)> =
        Browser::ALL.iter().map(|one| (*one, plan::manifest_state(&place, *one))).collect();
    let works =
        host == State::Installed && states.iter().any(|(_, state)| *state == State::Installed);
    if args.json {
        let browsers: serde_json::Map<String, Value> = states
            .iter()
            .map(|(browser, state)| (browser.name().to_owned(), state.name().into()))
            .collect();
        print_json(
            &json!({ "extension": extension.name(), "host": host.name(), "browsers": browsers }),
        )?;
    } else {
        print_line(&format!(
            "extension: {}, in {}",
            extension.name(),
            place.extension().display()
        ))?;
        print_line(&format!("host: {}, {}", host.name(), place.host().display()))?;
        for (browser, state) in states {
            print_line(&format!("{}: {}", browser.title(), state.name()))?;
        }
    }
    Ok(if works { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Serves the browser that started this process, over standard input and output.
pub(crate) fn host(args: &BrowserHostArgs) -> Result<ExitCode> {
    place::check_caller(&args.caller)?;
    let folder = match &args.downloads {
        Some(folder) => folder.clone(),
        None => folder::downloads()?,
    };
    sprat_browser::serve(std::io::stdin(), std::io::stdout(), &folder, signals()?).with_context(
        || format!("cannot serve the browser, with files into {}", folder.display()),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the browsers that `--for` names; without it, those installed on this machine.
fn chosen(wanted: &[ForArg]) -> Result<Vec<Browser>> {
    let browsers: Vec<Browser> = match wanted {
        [] => Browser::ALL.into_iter().filter(|browser| browser.is_here()).collect(),
        wanted if wanted.contains(&ForArg::All) => Browser::ALL.to_vec(),
        wanted => {
            Browser::ALL.into_iter().filter(|browser| wanted.contains(&browser.arg())).collect()
        }
    };
    if browsers.is_empty() {
        bail!(
            "neither Firefox nor Chromium nor Chrome is here; --for firefox, say, installs for \
             one all the same"
        );
    }
    Ok(browsers)
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> Result<String> {
    let text = path.to_str().with_context(|| {
        format!("{}: is not UTF-8, which a browser cannot start", path.display())
    })?;
    Ok(format!("'{}'", text.replace('\'', "'\\''")))
}
