//! A real Firefox without a screen, with a home of its own, and the extension as `sprat browser install` writes it.

use super::marionette::Marionette;
use super::support::{PATIENCE, skip, sprat};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Its programs, the first that is here.
const PROGRAMS: [&str; 2] = ["firefox-esr", "firefox"];

/// The extension's name, and where Firefox is told to have its pages.
const EXTENSION: &str = "browser@sprat";
const PAGES: &str = "moz-extension://00112233-4455-6677-8899-aabbccddeeff";

/// Between two looks at something that is awaited.
const LOOK: Duration = Duration::from_millis(50);

/// A user: a home with a profile and a download folder.
pub(crate) struct User {
    home: TempDir,
}

/// A browser of theirs. Killed when dropped.
pub(crate) struct Firefox {
    child: Child,
    pub(crate) marionette: Marionette,
    /// Tabs.
    page: Value,
    popup: Value,
}

impl User {
    /// None: there is no Firefox here, which has been said.
    pub(crate) fn new() -> Option<Self> {
        if program().is_none() {
            skip("neither firefox-esr nor firefox is installed: the browser's extension was not tried");
            return None;
        }
        let home = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(home.path().join("profile")).expect("made");
        let user = Self { home };
        fs::create_dir(user.downloads()).expect("made");
        let preferences = json!({
            "marionette.port": 0,
            // As a user of Firefox ESR sets it to install what Mozilla has not signed.
            "xpinstall.signatures.required": false,
            "extensions.webextensions.uuids": json!({ EXTENSION: PAGES.trim_start_matches("moz-extension://") }).to_string(),
            // The background is suspended as soon as it may be, so that tests meet it asleep.
            "extensions.background.idle.timeout": 500,
            "browser.download.folderList": 2,
            "browser.download.dir": user.downloads(),
        });
        let lines: String = preferences
            .as_object()
            .expect("made so")
            .iter()
            .map(|(name, value)| format!("user_pref({}, {value});\n", Value::from(&name[..])))
            .collect();
        fs::write(user.profile().join("user.js"), lines).expect("written");
        Some(user)
    }

    pub(crate) fn downloads(&self) -> PathBuf {
        self.home.path().join("Downloads")
    }

    /// Names in the download folder, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.downloads()).expect("readable");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("readable").file_name().into_string().expect("UTF-8")).collect();
        names.sort();
        names
    }

    fn profile(&self) -> PathBuf {
        self.home.path().join("profile")
    }

    /// Runs `sprat browser` as this user.
    pub(crate) fn sprat(&self, args: &[&str]) -> String {
        let mut command = as_user(sprat(), self.home.path());
        let output = command.arg("browser").args(args).output().expect("the binary runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Starts Firefox. None: it does not run here, which has been said.
    pub(crate) fn firefox(&self) -> Option<Firefox> {
        let port_file = self.profile().join("MarionetteActivePort");
        let _ = fs::remove_file(&port_file); // of one that was killed
        let mut command = as_user(Command::new(program()?), self.home.path());
        let log = self.home.path().join("firefox.log");
        let said = fs::File::create(&log).expect("made");
        // Without the fourth it does not go to pages of extensions.
        command
            .args(["--headless", "--no-remote", "--marionette", "--remote-allow-system-access", "--profile"])
            .arg(self.profile());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let mut child = command.spawn().expect("it was found");
        let until = Instant::now() + PATIENCE;
        loop {
            let port = fs::read_to_string(&port_file).ok().and_then(|text| text.trim().parse().ok());
            if let Some(Ok(marionette)) = port.map(Marionette::connect) {
                return Some(Firefox { child, marionette, page: Value::Null, popup: Value::Null });
            }
            if let Some(status) = child.try_wait().expect("ours") {
                let said = fs::read_to_string(&log).unwrap_or_default();
                let last = said.lines().last().unwrap_or("it said nothing");
                skip(&format!("Firefox does not run here ({status}: {last}): the browser's extension was not tried"));
                return None;
            }
            assert!(Instant::now() < until, "Firefox neither runs nor ends");
            pause();
        }
    }

    /// Whether a host that writes into the download folder runs.
    pub(crate) fn has_host(&self) -> bool {
        let folder = self.downloads().into_os_string().into_encoded_bytes();
        let processes = fs::read_dir("/proc").expect("readable").map_while(Result::ok);
        // One that has just ended has no command line any more.
        let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        lines.into_iter().any(|line| line.split(|byte| *byte == 0).any(|word| word == folder))
    }

    /// The extension in one file.
    pub(crate) fn packed(&self) -> PathBuf {
        self.home.path().join(".local/share/sprat/browser/sprat.xpi")
    }
}

impl Firefox {
    /// Installs the extension, to stay.
    pub(crate) fn install(&mut self, packed: &Path) {
        let installed = self.marionette.ask("Addon:Install", json!({ "path": packed, "temporary": false }));
        assert_eq!(installed["value"], EXTENSION);
    }

    /// Opens the popup's page in a tab of its own, and stays there.
    pub(crate) fn popup(&mut self) {
        let tab = self.marionette.ask("WebDriver:NewWindow", json!({ "type": "tab" }))["handle"].take();
        self.page = self.marionette.ask("WebDriver:GetWindowHandle", json!({}))["value"].take();
        self.switch(&tab);
        self.marionette.go(&format!("{PAGES}/popup.html"));
        self.popup = tab;
    }

    /// Clicks on a link of a page, in the other tab: a page that is left takes a click with it that has not come to anything yet.
    pub(crate) fn follow(&mut self, url: &str, link: &str) {
        let (page, popup) = (self.page.clone(), self.popup.clone());
        self.switch(&page);
        self.marionette.go(url);
        self.marionette.click(link);
        self.switch(&popup);
    }

    /// Opens the menu of a link of a page, as the right button of a mouse does, and chooses an item of the browser's own.
    pub(crate) fn choose(&mut self, url: &str, link: &str, item: &str) {
        let (page, popup) = (self.page.clone(), self.popup.clone());
        self.switch(&page);
        self.marionette.go(url);
        self.marionette.open_menu(link);
        // The menu is the browser's, not the page's.
        self.marionette.ask("Marionette:SetContext", json!({ "value": "chrome" }));
        let label = Value::from(item);
        self.waits(&format!(
            "const menu = document.getElementById('contentAreaContextMenu'); \
             if (menu.state !== 'open') return false; \
             const item = [...menu.querySelectorAll('menuitem')].find((item) => item.label === {label} && !item.hidden); \
             if (!item) return false; \
             menu.activateItem(item); \
             return true"
        ));
        self.marionette.ask("Marionette:SetContext", json!({ "value": "content" }));
        self.switch(&popup);
    }

    fn switch(&mut self, tab: &Value) {
        self.marionette.ask("WebDriver:SwitchToWindow", json!({ "handle": tab }));
    }

    /// Waits until the popup shows a download in this state; gives what it says of it.
    #[track_caller]
    pub(crate) fn shows(&mut self, name: &str, state: &str) -> String {
        let find = format!(
            "return [...document.querySelectorAll('li[data-state={state}]')].find((row) => row.querySelector('.name').textContent \
             === '{name}')?.innerText ?? null"
        );
        self.waits(&find).as_str().expect("text").to_owned()
    }

    /// Waits until a script in the page returns something else than nothing.
    #[track_caller]
    pub(crate) fn waits(&mut self, script: &str) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let value = self.marionette.script(script);
            if !matches!(value, Value::Null | Value::Bool(false)) {
                return value;
            }
            if Instant::now() > until {
                let page = self.marionette.script("return document.body?.innerText ?? document.title");
                panic!("in vain: {script}\nthe page says: {page}");
            }
            pause();
        }
    }

    /// Ends it without a warning, as a crash does.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("ours");
        self.child.wait().expect("ours");
    }
}

impl Drop for Firefox {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "in vain: {what}");
        pause();
    }
}

#[expect(clippy::disallowed_methods, reason = "a browser does not say when it has done something")]
fn pause() {
    std::thread::sleep(LOOK);
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let all = PROGRAMS.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    all.into_iter().find(|program| program.is_file())
}

/// With this home, and nothing else of the caller's desktop.
fn as_user(mut command: Command, home: &Path) -> Command {
    for (name, _) in std::env::vars_os() {
        let of_desktop = name.to_str().is_some_and(|name| name.starts_with("XDG_") || name.starts_with("MOZ_"));
        if of_desktop || name == "DBUS_SESSION_BUS_ADDRESS" || name == "DISPLAY" {
            command.env_remove(name);
        }
    }
    command.env("HOME", home);
    command
}
