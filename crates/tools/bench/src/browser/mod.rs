//! Real browsers without a screen, for benchmarks and tests: each with a home of its own, and our
//! extension as `sprat browser install` writes it.
//!
//! Both are driven by their own remote control, so that nothing but the browser is to be installed:
//! Firefox by Marionette, Chromium by its protocol for developers' tools.

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

/// How long a browser may take for anything that it is asked: far more than it needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at something that is awaited.
const LOOK: Duration = Duration::from_millis(50);

/// A browser that we know how to drive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Mozilla Firefox.
    Firefox,
    /// Chromium.
    Chromium,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Firefox => "Firefox",
            Self::Chromium => "Chromium",
        })
    }
}

impl Kind {
    /// As `sprat browser install --for` calls it.
    #[must_use]
    pub fn argument(self) -> &'static str {
        match self {
            Self::Firefox => "firefox",
            Self::Chromium => "chromium",
        }
    }

    /// Its program, if one is here.
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

/// What becomes of starting a browser.
#[derive(Debug)]
pub enum Start {
    /// It runs.
    Runs(Box<Browser>),
    /// It does not run on this machine, and why.
    Ended(String),
}

/// A browser that runs, with a tab for pages and, once it was opened, one for the extension's
/// popup. Killed when dropped, and with the thread that started it.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    control: Box<dyn Control>,
    page: Value,
    popup: Value,
}

/// A remote control. It is at one tab at a time.
trait Control: fmt::Debug + Send {
    /// The address of the extension's pages, without a slash at its end.
    fn pages(&self) -> String;
    /// Installs the extension.
    fn install(&mut self, extension: &Path) -> Result<()>;
    /// The tab that it is at.
    fn tab(&mut self) -> Result<Value>;
    /// A new tab.
    fn new_tab(&mut self) -> Result<Value>;
    /// Goes to another tab.
    fn switch(&mut self, tab: &Value) -> Result<()>;
    /// Has the tab go to an address, and waits until the page is there.
    fn go(&mut self, url: &str) -> Result<()>;
    /// Clicks on the first element that a selector finds.
    fn click(&mut self, selector: &str) -> Result<()>;
    /// What a function with this body returns in the page.
    fn script(&mut self, body: &str) -> Result<Value>;
    /// Opens the menu of such an element, as the right button of a mouse does, and chooses an item
    /// of the browser's own.
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
    /// What the browser says.
    pub fn install(&mut self, extension: &Path) -> Result<()> {
        self.control.install(extension)
    }

    /// Opens the popup's page in a tab of its own, and stays there.
    ///
    /// # Errors
    /// What the browser says.
    pub fn popup(&mut self) -> Result<()> {
        self.popup = self.control.new_tab()?;
        self.control.switch(&self.popup)?;
        let page = format!("{}/popup.html", self.control.pages());
        self.control.go(&page)?;
        // It says what host there is once the extension's background runs. A download that begins
        // before that is the browser's own: on a busy machine a click was quicker.
        self.waits("return (document.getElementById('about')?.textContent ?? '') !== ''").map(drop)
    }

    /// Goes to a page, in the tab for pages, and stays there.
    ///
    /// # Errors
    /// What the browser says.
    pub fn visit(&mut self, url: &str) -> Result<()> {
        self.control.switch(&self.page)?;
        self.control.go(url)
    }

    /// Clicks on the first element of the tab that a selector finds; it must be there.
    ///
    /// # Errors
    /// What the browser says.
    pub fn click(&mut self, selector: &str) -> Result<()> {
        self.control.click(selector)
    }

    /// Clicks on a link of a page, in the other tab than the popup's, and comes back: a page that
    /// is left takes a click with it that has not come to anything yet.
    ///
    /// # Errors
    /// What the browser says.
    pub fn follow(&mut self, url: &str, link: &str) -> Result<()> {
        self.visit(url)?;
        self.click(link)?;
        self.control.switch(&self.popup)
    }

    /// Opens the menu of a link of a page, and chooses an item of the browser's own.
    ///
    /// # Errors
    /// What the browser says; or that this one's menus cannot be reached.
    pub fn choose(&mut self, url: &str, link: &str, item: &str) -> Result<()> {
        self.visit(url)?;
        self.control.choose(link, item)?;
        self.control.switch(&self.popup)
    }

    /// Waits until the popup shows a download in this state; gives what it says of it.
    ///
    /// # Errors
    /// It does not, within a minute; with what it shows instead.
    pub fn shows(&mut self, name: &str, state: &str) -> Result<String> {
        let find = format!(
            "return [...document.querySelectorAll('li[data-state={state}]')].find((row) => \
             row.querySelector('.name').textContent \
             === '{name}')?.innerText ?? null"
        );
        Ok(self.waits(&find)?.as_str().unwrap_or_default().to_owned())
    }

    /// Waits until a function with this body, in the page, returns something else than nothing.
    ///
    /// # Errors
    /// It does not, within a minute; with what the page says.
    pub fn waits(&mut self, body: &str) -> Result<Value> {
        waits(self.control.as_mut(), body)
    }

    /// Ends it without a warning, as a crash does.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

fn waits(control: &mut dyn Control, body: &str) -> Result<Value> {
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
        pause(LOOK);
    }
}
