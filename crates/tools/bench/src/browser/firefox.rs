//! Starts and controls Firefox.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::marionette::Marionette;
use super::{Browser, BrowserKind, Control, PATIENCE, POLL_INTERVAL, StartOutcome, User, wait_for};
use sprat_measure::cpu::pause;

/// The extension's id, and the address of its pages. The profile's preferences fix the address.
const EXTENSION: &str = "browser@sprat";
const PAGES: &str = "moz-extension://00112233-4455-6677-8899-aabbccddeeff";

/// Writes the preferences of a user's profile.
pub(super) fn prepare(user: &User) -> Result<()> {
    let preferences = json!({
        "marionette.port": 0,
               // Users of Firefox ESR set this to install extensions that Mozilla has not signed.
        "xpinstall.signatures.required": false,
        "extensions.webextensions.uuids": json!({
            EXTENSION: PAGES.trim_start_matches("moz-extension://"),
        }).to_string(),
               // Suspend the extension's background script as soon as possible, so that tests cover
               // its restart.
        "extensions.background.idle.timeout": 500,
        "browser.download.folderList": 2,
        "browser.download.dir": user.downloads(),
    });
    let lines: String = preferences
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| format!("user_pref({}, {value});\n", Value::from(&name[..])))
        .collect();
    let profile = user.profile(BrowserKind::Firefox);
    fs::create_dir_all(&profile)?;
    Ok(fs::write(profile.join("user.js"), lines)?)
}

/// Starts the browser.
pub(super) fn start(user: &User, program: &Path) -> Result<StartOutcome> {
    let profile = user.profile(BrowserKind::Firefox);
    let port_file = profile.join("MarionetteActivePort");
    let _ = fs::remove_file(&port_file); // that of a browser that was killed
    let log = user.log();
    let stderr = fs::File::create(&log).with_context(|| format!("making {}", log.display()))?;
    let mut command = user.command(program);
    // Without `--remote-allow-system-access` Firefox does not open pages of extensions.
    command
        .args([
            "--headless",
            "--no-remote",
            "--marionette",
            "--remote-allow-system-access",
            "--profile",
        ])
        .arg(profile);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    let mut child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
    let until = Instant::now() + PATIENCE;
    loop {
        let port = fs::read_to_string(&port_file).ok().and_then(|text| text.trim().parse().ok());
        if let Some(port) = port
            && let Some(marionette) = Marionette::connect(port)?
        {
            return Ok(StartOutcome::Runs(Box::new(Browser::new(
                child,
                Box::new(Firefox(marionette)),
            )?)));
        }
        if let Some(status) = child.try_wait()? {
            let said = fs::read_to_string(&log).unwrap_or_default();
            return Ok(StartOutcome::Ended(format!(
                "{status}: {}",
                said.lines().last().unwrap_or("it said nothing")
            )));
        }
        if Instant::now() > until {
            let _ = child.kill(); // the error below is the one of interest
            let _ = child.wait();
            bail!("Firefox neither runs nor ends");
        }
        pause(POLL_INTERVAL);
    }
}

#[derive(Debug)]
struct Firefox(Marionette);

impl Control for Firefox {
    fn pages(&self) -> String {
        PAGES.to_owned()
    }

    fn install(&mut self, extension: &Path) -> Result<()> {
        let installed =
            self.0.call("Addon:Install", json!({ "path": extension, "temporary": false }))?;
        ensure!(installed["value"] == EXTENSION, "another extension was installed: {installed}");
        Ok(())
    }

    fn tab(&mut self) -> Result<Value> {
        Ok(self.0.call("WebDriver:GetWindowHandle", json!({}))?["value"].take())
    }

    fn new_tab(&mut self) -> Result<Value> {
        Ok(self.0.call("WebDriver:NewWindow", json!({ "type": "tab" }))?["handle"].take())
    }

    fn switch(&mut self, tab: &Value) -> Result<()> {
        self.0.call("WebDriver:SwitchToWindow", json!({ "handle": tab })).map(drop)
    }

    fn go(&mut self, url: &str) -> Result<()> {
        self.0.call("WebDriver:Navigate", json!({ "url": url })).map(drop)
    }

    fn click(&mut self, selector: &str) -> Result<()> {
        let found = self.0.find(selector)?;
        let id = found.as_object().and_then(|element| element.values().next());
        self.0.call("WebDriver:ElementClick", json!({ "id": id })).map(drop)
    }

    fn script(&mut self, body: &str) -> Result<Value> {
        Ok(self.0.call("WebDriver:ExecuteScript", json!({ "script": body, "args": [] }))?["value"]
            .take())
    }

    fn choose(&mut self, selector: &str, item: &str) -> Result<()> {
        let element = self.0.find(selector)?;
        let mouse = json!({
            "type": "pointer",
            "id": "mouse",
            "parameters": { "pointerType": "mouse" },
            "actions": [
                { "type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": element },
                { "type": "pointerDown", "button": 2 },
                { "type": "pointerUp", "button": 2 },
            ],
        });
        self.0.call("WebDriver:PerformActions", json!({ "actions": [mouse] }))?;
        // The context menu is part of the browser's own window, not of the page.
        self.0.call("Marionette:SetContext", json!({ "value": "chrome" }))?;
        let label = Value::from(item);
        wait_for(
            self,
            &format!(
                "const menu = document.getElementById('contentAreaContextMenu'); \
                 if (menu.state !== 'open') return false; \
                 const item = [...menu.querySelectorAll('menuitem')].find((item) => item.label \
                 === {label} && !item.hidden); \
                 if (!item) return false; \
                 menu.activateItem(item); \
                 return true"
            ),
        )?;
        self.0.call("Marionette:SetContext", json!({ "value": "content" })).map(drop)
    }
}
