//! Drives real browsers without a screen, for benchmarks and tests. Each browser has its own home
//! folder, and our extension as `sprat browser install` writes it.
//!
//! Each browser is driven by its built-in remote control, so no driver has to be installed: Firefox
//! by Marionette, Chromium by the DevTools protocol.

mod chromium;
mod devtools;
mod firefox;
mod marionette;
mod user;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::Value;

pub use user::User;

use sprat_measure::cpu::pause;

/// Timeout of every browser command: far more than a command needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Interval at which to check whether an awaited state has been reached.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A supported browser.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BrowserKind {
    /// Mozilla Firefox.
    Firefox,
    /// Chromium.
    Chromium,
}

impl fmt::Display for BrowserKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Firefox => "Firefox",
            Self::Chromium => "Chromium",
        })
    }
}

impl BrowserKind {
    /// Returns the browser's name in `sprat browser install --for`.
    #[must_use]
    pub fn argument(self) -> &'static str {
        match self {
            Self::Firefox => "firefox",
            Self::Chromium => "chromium",
        }
    }

    /// Returns the path of the browser's program, if it is installed.
    #[must_use]
    pub fn program(self) -> Option<PathBuf> {
        let names = match self {
            Self::Firefox => ["firefox-esr", "firefox"],
            Self::Chromium => ["chromium", "chromium-browser"],
        };
        let path = std::env::var_os("PATH")?;
        let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let mut all =
            names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
        all.find(|program| program.is_file())
    }
}

/// The outcome of starting a browser.
#[derive(Debug)]
pub enum StartOutcome {
    /// The browser runs.
    Runs(Box<Browser>),
    /// The browser does not run on this machine, for the given reason.
    Ended(String),
}

/// A running browser, with one tab for pages and, after [`popup`](Self::popup), another for the
/// extension's popup. Commands go to the current tab.
///
/// The browser is killed when this value is dropped, and when the thread that started it ends.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    control: Box<dyn Control>,
    page: Value,
    popup: Value,
}

/// A remote control of a browser. Its commands go to the current tab.
trait Control: fmt::Debug + Send {
    /// Returns the address of the extension's pages, without a slash at its end.
    fn pages(&self) -> String;
    /// Installs the extension.
    fn install(&mut self, extension: &Path) -> Result<()>;
    /// Returns the current tab.
    fn tab(&mut self) -> Result<Value>;
    /// Opens a new tab, and returns it without switching to it.
    fn new_tab(&mut self) -> Result<Value>;
    /// Makes another tab the current one.
    fn switch(&mut self, tab: &Value) -> Result<()>;
    /// Loads an address, and waits until the page is loaded.
    fn go(&mut self, url: &str) -> Result<()>;
    /// Clicks on the first element that matches a selector.
    fn click(&mut self, selector: &str) -> Result<()>;
    /// Runs a function with this body in the page, and returns its result.
    fn script(&mut self, body: &str) -> Result<Value>;
    /// Opens the context menu of the first element that matches a selector, and chooses an item.
    fn choose(&mut self, selector: &str, item: &str) -> Result<()>;
}

impl Browser {
    fn new(child: Child, mut control: Box<dyn Control>) -> Result<Self> {
        let page = control.tab()?;
        Ok(Self { child, control, page, popup: Value::Null })
    }

    /// Installs the extension: [`User::extension`], or a copy of it.
    ///
    /// # Errors
    /// The browser's error.
    pub fn install(&mut self, extension: &Path) -> Result<()> {
        self.control.install(extension)
    }

    /// Opens the popup's page in a new tab, which becomes the current one.
    ///
    /// # Errors
    /// The browser's error.
    pub fn popup(&mut self) -> Result<()> {
        self.popup = self.control.new_tab()?;
        self.control.switch(&self.popup)?;
        let page = format!("{}/popup.html", self.control.pages());
        self.control.go(&page)?;
        // Wait until the popup shows the native messaging host: it does so when the extension's
        // background script runs. On a busy machine a click came before that, and the browser
        // itself downloaded the file.
        self.wait_for("return (document.getElementById('about')?.textContent ?? '') !== ''")
            .map(drop)
    }

    /// Makes the tab for pages the current one, and loads a page.
    ///
    /// # Errors
    /// The browser's error.
    pub fn visit(&mut self, url: &str) -> Result<()> {
        self.control.switch(&self.page)?;
        self.control.go(url)
    }

    /// Clicks on the first element of the current tab that matches a selector.
    ///
    /// # Errors
    /// The browser's error, also if no element matches.
    pub fn click(&mut self, selector: &str) -> Result<()> {
        self.control.click(selector)
    }

    /// Clicks on a link of a page in the tab for pages, and returns to the popup. The page stays
    /// loaded: leaving it could cancel the click.
    ///
    /// # Errors
    /// The browser's error.
    pub fn follow(&mut self, url: &str, link: &str) -> Result<()> {
        self.visit(url)?;
        self.click(link)?;
        self.control.switch(&self.popup)
    }

    /// Opens the context menu of a link of a page, chooses an item, and returns to the popup.
    ///
    /// # Errors
    /// The browser's error. Chromium always returns one: its menus cannot be controlled.
    pub fn choose(&mut self, url: &str, link: &str, item: &str) -> Result<()> {
        self.visit(url)?;
        self.control.choose(link, item)?;
        self.control.switch(&self.popup)
    }

    /// Waits until the popup shows a download in this state, and returns the text about it.
    ///
    /// # Errors
    /// If the popup does not show this within a minute. The error contains the popup's text.
    pub fn wait_for_download(&mut self, name: &str, state: &str) -> Result<String> {
        let find = format!(
            "return [...document.querySelectorAll('li[data-state={state}]')].find((row) => \
             row.querySelector('.name').textContent \
             === '{name}')?.innerText ?? null"
        );
        Ok(self.wait_for(&find)?.as_str().unwrap_or_default().to_owned())
    }

    /// Runs a function with this body in the page until it returns a value other than null and
    /// false, and returns that value.
    ///
    /// # Errors
    /// If no such value is returned within a minute. The error contains the page's text.
    pub fn wait_for(&mut self, body: &str) -> Result<Value> {
        wait_for(self.control.as_mut(), body)
    }

    /// Kills the browser, as a crash would.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill(); // fails if it has ended
        let _ = self.child.wait();
    }
}

fn wait_for(control: &mut dyn Control, body: &str) -> Result<Value> {
    let until = Instant::now() + PATIENCE;
    loop {
        let value = control.script(body)?;
        if !matches!(value, Value::Null | Value::Bool(false)) {
            return Ok(value);
        }
        if Instant::now() > until {
            let page = control.script("return document.body?.innerText ?? document.title")?;
            bail!("in vain: {body}\nthe page says: {page}");
        }
        pause(POLL_INTERVAL);
    }
}
