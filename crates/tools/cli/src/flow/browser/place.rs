//! Where browsers look for what we install.

use crate::flow::browser::ForArg;
use crate::flow::browser::extension::{CHROMIUM_ID, GECKO_ID};
use crate::flow::browser::folder::{data, home, settings};
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// What browsers call the host.
pub(super) const HOST_NAME: &str = "sprat.browser";

/// Where Debian's Firefox finds extensions for all users, by the name of the program that they are
/// for, which is Firefox.
const FIREFOX_EXTENSIONS: &str =
    "/usr/share/mozilla/extensions/{ec8030f7-c20a-464f-9b0e-13a3a9e97384}";

/// The same of Debian's Chromium: it loads every folder there.
const CHROMIUM_EXTENSIONS: &str = "/usr/share/chromium/extensions";

/// A browser that we know.
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

    /// Whether one of its programs is here.
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

    /// What the host's manifest says: how it is started, and for whom.
    pub(super) fn manifest(self, host: &Path) -> Value {
        let mut manifest = json!({
            "name": HOST_NAME,
            "description": "Sprat fetches downloads: verified, resumed, fast over long ways",
            "path": host,
            "type": "stdio",
        });
        let (field, who) = match self {
            Self::Firefox => ("allowed_extensions", GECKO_ID.to_owned()),
            Self::Chromium | Self::Chrome => ("allowed_origins", origin()),
        };
        manifest[field] = json!([who]);
        manifest
    }
}

/// Whose folders: a user's, or the machine's.
#[derive(Debug)]
pub(super) enum Place {
    User { home: PathBuf },
    System,
}

impl Place {
    pub(super) fn of(system: bool) -> Result<Self> {
        if system { Ok(Self::System) } else { Ok(Self::User { home: home()? }) }
    }

    /// What all browsers share.
    pub(super) fn folder(&self) -> PathBuf {
        match self {
            Self::User { home } => data(home).join("sprat/browser"),
            Self::System => "/usr/local/lib/sprat/browser".into(),
        }
    }

    /// The program that browsers start.
    pub(super) fn host(&self) -> PathBuf {
        self.folder().join("host")
    }

    /// The extension's files.
    pub(super) fn extension(&self) -> PathBuf {
        self.folder().join("extension")
    }

    /// The extension as one file.
    pub(super) fn packed(&self) -> PathBuf {
        self.folder().join("sprat.xpi")
    }

    /// Where Firefox finds the extension by itself.
    pub(super) fn found_by_firefox(&self) -> Option<PathBuf> {
        match self {
            Self::User { .. } => None,
            Self::System => Some(Path::new(FIREFOX_EXTENSIONS).join(format!("{GECKO_ID}.xpi"))),
        }
    }

    /// The folder in which Debian's Chromium finds the extension by itself.
    pub(super) fn found_by_chromium(&self) -> Option<PathBuf> {
        match self {
            Self::User { .. } => None,
            Self::System => Some(Path::new(CHROMIUM_EXTENSIONS).join("sprat")),
        }
    }

    /// Where a browser looks for the host's manifest.
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

    /// What is left to do by hand.
    pub(super) fn next(&self, browser: Browser) -> String {
        let (packed, folder) = (self.packed(), self.extension());
        match (self, browser) {
            (Self::System, Browser::Firefox) => {
                format!(
                    "Debian's has it when it starts next; of others see docs/browser.md, for {}",
                    packed.display()
                )
            }
            (Self::System, Browser::Chromium) => {
                format!(
                    "Debian's has it when it starts next; any other: see docs/browser.md, for {}",
                    folder.display()
                )
            }
            (_, Browser::Firefox) => format!(
                "ESR: in about:config set xpinstall.signatures.required to false, then open {}; any other: on \
                 about:debugging#/runtime/this-firefox load it, until Firefox ends",
                packed.display()
            ),
            (_, Browser::Chromium | Browser::Chrome) => format!(
                "on chrome://extensions switch the developer mode on, and load {} by \"Load unpacked\"",
                folder.display()
            ),
        }
    }
}

/// What Chromium says of who is calling.
fn origin() -> String {
    format!("chrome-extension://{CHROMIUM_ID}/")
}

/// Refuses who is not our extension. Browsers start us for nobody else; and they say whom for:
/// Firefox by the manifest's path and the extension's name, Chromium by its origin.
pub(super) fn check_caller(caller: &[String]) -> Result<()> {
    if caller.iter().any(|word| *word == GECKO_ID || *word == origin()) {
        return Ok(());
    }
    bail!("this is for browsers to start; `sprat browser install` tells them how")
}
