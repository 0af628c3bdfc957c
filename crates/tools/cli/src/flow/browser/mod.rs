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
  sprat browser install               for the installed browsers
  sprat browser status
  sprat browser uninstall")]
pub(crate) enum BrowserCommand {
    /// Install the extension and the program that browsers start.
    Install(BrowserInstallArgs),
    /// Remove the files that install wrote.
    Uninstall(BrowserPlaceArgs),
    /// Show what is installed.
    #[command(after_help = "Exit codes:
  0  a browser can start sprat
  1  no browser can start it, or another error")]
    Status(BrowserPlaceArgs),
    /// Serve a browser that started this, by native messaging on standard input and output.
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
    /// All of them.
    All,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat browser install                         for the installed browsers, for this user
  sprat browser install --for firefox --downloads /data/incoming
  sprat browser install --dry-run               list the files only
  sudo sprat browser install --system           for all users; Debian's browsers load it

Browsers start this program by its path: do not move it, and run install again after an update.
Downloads are named after their addresses and never replace existing files.")]
pub(crate) struct BrowserInstallArgs {
    /// Browser to install for; repeat for several [default: the installed ones].
    #[arg(long = "for", value_name = "BROWSER", value_enum, value_delimiter = ',')]
    browsers: Vec<ForArg>,

    /// Folder for downloads, an absolute path [default: the user's download folder].
    #[arg(long, value_name = "DIR")]
    downloads: Option<PathBuf>,

    /// List the files that would be written, and write nothing.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    place: BrowserPlaceArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct BrowserPlaceArgs {
    /// Use the system's folders, for all users (needs root).
    #[arg(long)]
    system: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct BrowserHostArgs {
    /// Folder for downloads, an absolute path [default: the user's download folder].
    #[arg(long, value_name = "DIR")]
    downloads: Option<PathBuf>,

    /// The browser's arguments, which identify the calling extension.
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
            "--downloads {}: want an absolute path, because browsers start sprat in any folder",
            downloads.display()
        );
    }
    let program = std::env::current_exe().context("cannot determine the path of this program")?;
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
        print_line("nothing to remove")?;
    } else {
        removed.iter().try_for_each(|path| print_line(&format!("removed {path}")))?;
        print_line("If you loaded the extension in a browser yourself, remove it there too.")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints which parts are installed. The exit code is 1 if no browser could start the native
/// messaging host.
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
        || format!("cannot serve the browser with downloads to {}", folder.display()),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the browsers that `--for` names, or, without `--for`, the browsers installed on this
/// machine.
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
            "found neither Firefox nor Chromium nor Chrome; name the browser to install for, such \
             as --for firefox"
        );
    }
    Ok(browsers)
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> Result<String> {
    let text = path.to_str().with_context(|| {
        format!("{}: not UTF-8; browsers cannot start such a path", path.display())
    })?;
    Ok(format!("'{}'", text.replace('\'', "'\\''")))
}
