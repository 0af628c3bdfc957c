//! A user of browsers: a home folder with profiles and downloads, for root or for an ordinary user.

use std::fs;
use std::os::unix::fs::lchown;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use super::{BrowserKind, StartOutcome, chromium, firefox};

/// A user of browsers, with a temporary home folder that is removed when this value is dropped.
#[derive(Debug)]
pub struct User {
    home: TempDir,
    sprat: PathBuf,
    /// The user id under which programs run, if it is not this process's own.
    id: Option<u32>,
    /// Origins from which browsers accept files over plain HTTP.
    trusted: Vec<String>,
}

impl User {
    /// Makes a user of the program `sprat`, with a home in the folder `within`. With an `id`,
    /// programs run as the user and group of that number, without privileges; this requires root.
    ///
    /// # Errors
    /// If a folder of the home cannot be made or given to the user.
    pub fn new(sprat: &Path, within: &Path, id: Option<u32>) -> Result<Self> {
        let home = tempfile::tempdir_in(within).context("a home for a browser's user")?;
        let user = Self { home, sprat: sprat.to_owned(), id, trusted: Vec::new() };
        fs::create_dir(user.downloads())?;
        firefox::prepare(&user)?;
        chromium::prepare(&user)?;
        if let Some(id) = id {
            change_owner(user.home.path(), id)
                .context("giving a home to its user, which takes root")?;
        }
        Ok(user)
    }

    /// Lets browsers that are started after this call save files from this origin,
    /// `http://HOST:PORT`, without asking. Chromium asks about every file that arrives over plain
    /// HTTP from another machine.
    pub fn trust(&mut self, origin: &str) {
        self.trusted.push(origin.to_owned());
    }

    /// Returns the origins passed to [`User::trust`].
    pub(super) fn trusted(&self) -> &[String] {
        &self.trusted
    }

    /// Returns the download folder of the browsers. After [`User::install_for`], `sprat` also
    /// downloads into it.
    #[must_use]
    pub fn downloads(&self) -> PathBuf {
        self.home.path().join("Downloads")
    }

    /// Returns the names in the download folder, sorted.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.downloads())? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    /// Runs `sprat browser` as this user, and returns its output.
    ///
    /// # Errors
    /// If the program cannot be run, exits with a status other than 0, or prints text that is not
    /// UTF-8.
    pub fn sprat(&self, args: &[&str]) -> Result<String> {
        let output = self.command(&self.sprat).arg("browser").args(args).output()?;
        ensure!(output.status.success(), "sprat browser: {output:?}");
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Installs the extension and the native messaging host for a browser. The native messaging
    /// host saves files in the download folder.
    ///
    /// # Errors
    /// If the path of the download folder is not UTF-8, or for the reasons of [`User::sprat`].
    pub fn install_for(&self, kind: BrowserKind) -> Result<()> {
        let downloads = self.downloads();
        let downloads = downloads.to_str().context("a folder in UTF-8")?;
        self.sprat(&["install", "--for", kind.argument(), "--downloads", downloads]).map(drop)
    }

    /// Starts a browser. The browser is killed when the calling thread ends.
    ///
    /// # Errors
    /// If the browser is not installed, does not start, or does not accept remote control.
    pub fn start(&self, kind: BrowserKind) -> Result<StartOutcome> {
        let program = kind
            .program()
            .with_context(|| format!("{kind} is not installed; scripts/setup does that"))?;
        match kind {
            BrowserKind::Firefox => firefox::start(self, &program),
            BrowserKind::Chromium => chromium::start(self, &program),
        }
    }

    /// Returns whether a native messaging host that saves files in the download folder is running.
    #[must_use]
    pub fn has_host(&self) -> bool {
        let folder = self.downloads().into_os_string().into_encoded_bytes();
        let processes = fs::read_dir("/proc").into_iter().flatten().map_while(Result::ok);
        // A process that has just ended no longer has a command line.
        let mut lines =
            processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        lines.any(|line| line.split(|byte| *byte == 0).any(|word| word == folder))
    }

    /// Returns the installed extension: one file for Firefox, a folder for Chromium.
    #[must_use]
    pub fn extension(&self, kind: BrowserKind) -> PathBuf {
        self.home.path().join(".local/share/sprat/browser").join(match kind {
            BrowserKind::Firefox => "sprat.xpi",
            BrowserKind::Chromium => "extension",
        })
    }

    /// Returns the folder of a browser's profile.
    pub(super) fn profile(&self, kind: BrowserKind) -> PathBuf {
        self.home.path().join(match kind {
            BrowserKind::Firefox => "profile",
            // Chromium's default folder, below which it looks for native messaging hosts.
            BrowserKind::Chromium => ".config/chromium",
        })
    }

    /// Returns the file with a browser's standard error.
    pub(super) fn log(&self) -> PathBuf {
        self.home.path().join("browser.log")
    }

    /// Prepares a command as this user, without the variables of the caller's desktop. The process
    /// is killed when the calling thread ends.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(id) = self.id {
            command.args([
                format!("--reuid={id}"),
                format!("--regid={id}"),
                "--clear-groups".to_owned(),
            ]);
        }
        command.arg("--").arg(program);
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_str().unwrap_or_default();
            let of_desktop =
                ["XDG_", "MOZ_", "SPRAT_"].iter().any(|start| name_text.starts_with(start));
            if of_desktop || name == "DBUS_SESSION_BUS_ADDRESS" || name == "DISPLAY" {
                command.env_remove(name);
            }
        }
        command.env("HOME", self.home.path()).env("NO_COLOR", "1");
        command
    }

    /// Returns whether programs run as root.
    pub(super) fn is_root(&self) -> bool {
        self.id.is_none() && rustix::process::geteuid().is_root()
    }
}

/// Makes a user the owner of a folder and of everything in it.
fn change_owner(path: &Path, id: u32) -> Result<()> {
    lchown(path, Some(id), Some(id))?;
    if path.symlink_metadata()?.is_dir() {
        for entry in fs::read_dir(path)? {
            change_owner(&entry?.path(), id)?;
        }
    }
    Ok(())
}
