//! The folders in which browsers look for the extension and for the native messaging host, the
//! program that they start.

use crate::flow::browser::ForArg;
use crate::flow::browser::extension::{CHROMIUM_ID, GECKO_ID};
use crate::flow::browser::folder::{data, home, settings};
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Name of the native messaging host in browsers.
pub(super) const HOST_NAME: &str = "sprat.browser";

/// Folder in which Debian's Firefox finds extensions for all users. Its last part is Firefox's id
/// as an application.
const FIREFOX_EXTENSIONS: &str =
    "/usr/share/mozilla/extensions/{ec8030f7-c20a-464f-9b0e-13a3a9e97384}";

/// Folder in which Debian's Chromium finds extensions for all users: it loads each folder in it.
const CHROMIUM_EXTENSIONS: &str = "/usr/share/chromium/extensions";

/// A supported browser.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Browser {
    Firefox,
    Chromium,
    Chrome,
}

impl Browser {
    pub(super) const ALL: [Self; 3] = [Self::Firefox, Self::Chromium, Self::Chrome];

    pub(super) fn arg(self) -> ForArg {
        match self {
            Self::Firefox => ForArg::Firefox,
            Self::Chromium => ForArg::Chromium,
            Self::Chrome => ForArg::Chrome,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Firefox => "firefox",
            Self::Chromium => "chromium",
            Self::Chrome => "chrome",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Firefox => "Firefox",
            Self::Chromium => "Chromium",
            Self::Chrome => "Chrome",
        }
    }

    /// Returns whether one of the browser's programs is in `PATH`.
    pub(super) fn is_here(self) -> bool {
        let programs: &[&str] = match self {
            Self::Firefox => &["firefox", "firefox-esr"],
            Self::Chromium => &["chromium", "chromium-browser"],
            Self::Chrome => &["google-chrome", "google-chrome-stable"],
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .any(|folder| programs.iter().any(|program| folder.join(program).is_file()))
    }

    /// Returns the native messaging host's manifest: the program to start, and the extension that
    /// may start it.
    pub(super) fn manifest(self, host: &Path) -> Value {
        let mut manifest = json!({
            "name": HOST_NAME,
            "description": "Sprat fetches downloads: verified, resumable, fast over long distances",
            "path": host,
            "type": "stdio",
        });
        let (field, extension) = match self {
            Self::Firefox => ("allowed_extensions", GECKO_ID.to_owned()),
            Self::Chromium | Self::Chrome => ("allowed_origins", origin()),
        };
        manifest[field] = json!([extension]);
        manifest
    }
}

/// Where to install: in one user's folders, or, for all users, in the machine's folders.
#[derive(Debug)]
pub(super) enum InstallPlace {
    User { home: PathBuf },
    System,
}

impl InstallPlace {
    pub(super) fn of(system: bool) -> Result<Self> {
        if system { Ok(Self::System) } else { Ok(Self::User { home: home()? }) }
    }

    /// Returns the folder with the files that all browsers share.
    pub(super) fn folder(&self) -> PathBuf {
        match self {
            Self::User { home } => data(home).join("sprat/browser"),
            Self::System => "/usr/local/lib/sprat/browser".into(),
        }
    }

    /// Returns the path of the native messaging host, the program that browsers start.
    pub(super) fn host(&self) -> PathBuf {
        self.folder().join("host")
    }

    /// Returns the extension's files.
    pub(super) fn extension(&self) -> PathBuf {
        self.folder().join("extension")
    }

    /// Returns the extension packed into one file.
    pub(super) fn packed(&self) -> PathBuf {
        self.folder().join("sprat.xpi")
    }

    /// Returns the file that Debian's Firefox loads as an extension without configuration. Only an
    /// installation for all users has this file.
    pub(super) fn firefox_autoload(&self) -> Option<PathBuf> {
        match self {
            Self::User { .. } => None,
            Self::System => Some(Path::new(FIREFOX_EXTENSIONS).join(format!("{GECKO_ID}.xpi"))),
        }
    }

    /// Returns the folder that Debian's Chromium loads as an extension without configuration. Only
    /// an installation for all users has this folder.
    pub(super) fn chromium_autoload(&self) -> Option<PathBuf> {
        match self {
            Self::User { .. } => None,
            Self::System => Some(Path::new(CHROMIUM_EXTENSIONS).join("sprat")),
        }
    }

    /// Returns the file in which a browser looks for the native messaging host's manifest.
    pub(super) fn manifest(&self, browser: Browser) -> PathBuf {
        let folder = match (self, browser) {
            (Self::User { home }, Browser::Firefox) => home.join(".mozilla/native-messaging-hosts"),
            (Self::User { home }, Browser::Chromium) => {
                settings(home).join("chromium/NativeMessagingHosts")
            }
            (Self::User { home }, Browser::Chrome) => {
                settings(home).join("google-chrome/NativeMessagingHosts")
            }
            (Self::System, Browser::Firefox) => "/usr/lib/mozilla/native-messaging-hosts".into(),
            (Self::System, Browser::Chromium) => "/etc/chromium/native-messaging-hosts".into(),
            (Self::System, Browser::Chrome) => "/etc/opt/chrome/native-messaging-hosts".into(),
        };
        folder.join(format!("{HOST_NAME}.json"))
    }

    /// Describes what the user has to do by hand after installing.
    pub(super) fn next_steps(&self, browser: Browser) -> String {
        let (packed, folder) = (self.packed(), self.extension());
        match (self, browser) {
            (Self::System, Browser::Firefox) => {
                format!(
                    "Debian's Firefox loads it at its next start; others load {}: see \
                     docs/browser.md",
                    packed.display()
                )
            }
            (Self::System, Browser::Chromium) => {
                format!(
                    "Debian's Chromium loads it at its next start; others load {}: see \
                     docs/browser.md",
                    folder.display()
                )
            }
            (_, Browser::Firefox) => format!(
                "ESR: set xpinstall.signatures.required to false in about:config, then open {}; \
                 others: load it on about:debugging#/runtime/this-firefox after each start",
                packed.display()
            ),
            (_, Browser::Chromium | Browser::Chrome) => format!(
                "on chrome://extensions enable developer mode, choose \"Load unpacked\", and \
                 select {}",
                folder.display()
            ),
        }
    }
}

/// Returns the origin by which Chromium identifies the extension that starts the native messaging
/// host.
fn origin() -> String {
    format!("chrome-extension://{CHROMIUM_ID}/")
}

/// Returns an error unless our extension started this process. The arguments identify the
/// extension: Firefox passes the manifest's path and the extension's id, and Chromium passes the
/// extension's origin.
pub(super) fn check_caller(caller: &[String]) -> Result<()> {
    if caller.iter().any(|word| *word == GECKO_ID || *word == origin()) {
        return Ok(());
    }
    bail!("only browsers start this command; `sprat browser install` sets them up")
}
