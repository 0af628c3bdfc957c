//! A user: a home with profiles and a download folder, of somebody who may do everything, or of an
//! ordinary one.

use std::fs;
use std::os::unix::fs::lchown;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use super::{Kind, Start, chromium, firefox};

/// See the module. The home is gone with it.
#[derive(Debug)]
pub struct User {
    home: TempDir,
    sprat: PathBuf,
    /// Whom programs run as, if not as us.
    id: Option<u32>,
    /// From where they want files though nothing is encrypted.
    trusted: Vec<String>,
}

impl User {
    /// A user of this `sprat`, with a home in a folder. With an `id` programs run as the user and
    /// group of that number, who may do nothing that others may not; that takes root.
    ///
    /// # Errors
    /// The home cannot be made.
    pub fn new(sprat: &Path, within: &Path, id: Option<u32>) -> Result<Self> {
        let home = tempfile::tempdir_in(within).context("a home for a browser's user")?;
        let user = Self { home, sprat: sprat.to_owned(), id, trusted: Vec::new() };
        fs::create_dir(user.downloads())?;
        firefox::prepare(&user)?;
        chromium::prepare(&user)?;
        if let Some(id) = id {
            give(user.home.path(), id).context("giving a home to its user, which takes root")?;
        }
        Ok(user)
    }

    /// Browsers that are started from here on save files from this origin, `http://HOST:PORT`, without asking: Chromium asks whenever something
    /// comes over plain HTTP from another machine.
    pub fn trust(&mut self, origin: &str) {
        self.trusted.push(origin.to_owned());
    }

    /// See [`User::trust`].
    pub(super) fn trusted(&self) -> &[String] {
        &self.trusted
    }

    /// Where browsers put what they download, and `sprat` if it is told so.
    #[must_use]
    pub fn downloads(&self) -> PathBuf {
        self.home.path().join("Downloads")
    }

    /// Names in the download folder, sorted.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.downloads())? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    /// Runs `sprat browser` as this user; gives what it prints.
    ///
    /// # Errors
    /// It cannot be run, or fails.
    pub fn sprat(&self, args: &[&str]) -> Result<String> {
        let output = self.command(&self.sprat).arg("browser").args(args).output()?;
        ensure!(output.status.success(), "sprat browser: {output:?}");
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Installs the extension and the host for a browser, which fetches into the download folder.
    ///
    /// # Errors
    /// As [`User::sprat`].
    pub fn install_for(&self, kind: Kind) -> Result<()> {
        let downloads = self.downloads();
        let downloads = downloads.to_str().context("a folder in UTF-8")?;
        self.sprat(&["install", "--for", kind.argument(), "--downloads", downloads]).map(drop)
    }

    /// Starts a browser. It ends with the calling thread.
    ///
    /// # Errors
    /// There is none here, or it cannot be driven.
    pub fn start(&self, kind: Kind) -> Result<Start> {
        let program = kind
            .program()
            .with_context(|| format!("{kind} is not installed; scripts/setup does that"))?;
        match kind {
            Kind::Firefox => firefox::start(self, &program),
            Kind::Chromium => chromium::start(self, &program),
        }
    }

    /// Whether a host that writes into the download folder runs.
    #[must_use]
    pub fn has_host(&self) -> bool {
        let folder = self.downloads().into_os_string().into_encoded_bytes();
        let processes = fs::read_dir("/proc").into_iter().flatten().map_while(Result::ok);
        // One that has just ended has no command line any more.
        let mut lines =
            processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        lines.any(|line| line.split(|byte| *byte == 0).any(|word| word == folder))
    }

    /// The extension as it was installed: one file for Firefox, a folder for Chromium.
    #[must_use]
    pub fn extension(&self, kind: Kind) -> PathBuf {
        self.home.path().join(".local/share/sprat/browser").join(match kind {
            Kind::Firefox => "sprat.xpi",
            Kind::Chromium => "extension",
        })
    }

    /// The folder of a browser's profile.
    pub(super) fn profile(&self, kind: Kind) -> PathBuf {
        self.home.path().join(match kind {
            Kind::Firefox => "profile",
            // Its own place, where it looks for hosts too.
            Kind::Chromium => ".config/chromium",
        })
    }

    /// Where a browser complains.
    pub(super) fn log(&self) -> PathBuf {
        self.home.path().join("browser.log")
    }

    /// A command of this user's, with nothing of the caller's desktop, which dies with the calling
    /// thread.
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

    /// Whether programs run as somebody who may do everything.
    pub(super) fn is_root(&self) -> bool {
        self.id.is_none() && rustix::process::geteuid().is_root()
    }
}

/// Gives a folder and all that is in it to somebody.
fn give(path: &Path, id: u32) -> Result<()> {
    lchown(path, Some(id), Some(id))?;
    if path.symlink_metadata()?.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), id)?;
        }
    }
    Ok(())
}
