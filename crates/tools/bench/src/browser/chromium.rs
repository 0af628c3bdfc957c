//! Starts and controls Chromium.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::devtools::Devtools;
use super::{Browser, BrowserKind, Control, StartOutcome, User, wait_for};

/// The extension's id, which Chromium derives from the key in its manifest.
const EXTENSION: &str = "nmfcekbbhphmppflmnbdkhmijiobiccl";

/// Writes the preferences of a user's profile.
pub(super) fn prepare(user: &User) -> Result<()> {
    let settings = json!({
        "download": { "default_directory": user.downloads(), "prompt_for_download": false },
    });
    let profile = user.profile(BrowserKind::Chromium).join("Default");
    fs::create_dir_all(&profile)?;
    Ok(fs::write(profile.join("Preferences"), settings.to_string())?)
}

/// Starts the browser.
pub(super) fn start(user: &User, program: &Path) -> Result<StartOutcome> {
    let log = user.log();
    let stderr = fs::File::create(&log).with_context(|| format!("making {}", log.display()))?;
    // Chromium expects the pipes at the file descriptors 3 and 4. A shell moves them there.
    let mut command = user.command(Path::new("sh"));
    command.args(["-c", "exec \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null", "sh"]).arg(program);
    command.args([
        "--headless",
        "--remote-debugging-pipe",
        "--enable-unsafe-extension-debugging",
        "--no-first-run",
    ]);
    // Uses no desktop key ring, no graphics card, and no servers except those of pages.
    command.args([
        "--password-store=basic",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-sync",
    ]);
    if user.is_root() {
        command.arg("--no-sandbox"); // Chromium's sandbox does not work for root
    }
    if !user.trusted().is_empty() {
        command.arg(format!(
            "--unsafely-treat-insecure-origin-as-secure={}",
            user.trusted().join(",")
        ));
    }
    let mut data = std::ffi::OsString::from("--user-data-dir=");
    data.push(user.profile(BrowserKind::Chromium));
    command.arg(data).arg("about:blank");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
    let mut child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
    let pipes = child.stdin.take().zip(child.stdout.take());
    let (to, from) = pipes.context("a child's pipes")?;
    let mut devtools = Devtools::new(to, from)?;
    let begun = devtools.call(None, "Target.getTargets", json!({}));
    let targets = match (begun, child.try_wait()?) {
        (Ok(targets), _) => targets,
        (Err(_), Some(status)) => {
            let said = fs::read_to_string(&log).unwrap_or_default();
            return Ok(StartOutcome::Ended(format!(
                "{status}: {}",
                said.lines().last().unwrap_or("it said nothing")
            )));
        }
        (Err(error), None) => {
            let _ = child.kill(); // the error that is returned is the one of interest
            let _ = child.wait();
            return Err(error);
        }
    };
    let mut all = targets["targetInfos"].as_array().into_iter().flatten();
    let page = all.find(|target| target["type"] == "page").context("Chromium has no tab")?;
    let mut control = Chromium { devtools, at: Value::Null };
    control.at = control.attached(&page["targetId"])?;
    Ok(StartOutcome::Runs(Box::new(Browser::new(child, Box::new(control))?)))
}

#[derive(Debug)]
struct Chromium {
    devtools: Devtools,
    /// The current tab: its target id, and the id of our session with it.
    at: Value,
}

/// Limit on the attempts to click on an element.
const CLICKS: u32 = 50;

impl Chromium {
    /// Starts a session with a tab.
    fn attached(&mut self, target: &Value) -> Result<Value> {
        let session = self.devtools.call(
            None,
            "Target.attachToTarget",
            json!({ "targetId": target, "flatten": true }),
        )?;
        Ok(json!({ "target": target, "session": session["sessionId"] }))
    }

    /// Sends a command to the current tab and returns its result.
    fn call(&mut self, command: &str, parameters: Value) -> Result<Value> {
        self.devtools.call(self.at["session"].as_str(), command, parameters)
    }
}

impl Control for Chromium {
    fn pages(&self) -> String {
        format!("chrome-extension://{EXTENSION}")
    }

    fn install(&mut self, extension: &Path) -> Result<()> {
        let installed =
            self.devtools.call(None, "Extensions.loadUnpacked", json!({ "path": extension }))?;
        ensure!(installed["id"] == EXTENSION, "another extension was installed: {installed}");
        Ok(())
    }

    fn tab(&mut self) -> Result<Value> {
        Ok(self.at.clone())
    }

    fn new_tab(&mut self) -> Result<Value> {
        let made =
            self.devtools.call(None, "Target.createTarget", json!({ "url": "about:blank" }))?;
        self.attached(&made["targetId"])
    }

    fn switch(&mut self, tab: &Value) -> Result<()> {
        self.at = tab.clone();
        self.devtools
            .call(None, "Target.activateTarget", json!({ "targetId": tab["target"] }))
            .map(drop)
    }

    fn go(&mut self, url: &str) -> Result<()> {
        let result = self.call("Page.navigate", json!({ "url": url }))?;
        ensure!(result["errorText"].is_null(), "{url}: {}", result["errorText"]);
        wait_for(self, "return document.readyState === 'complete'").map(drop)
    }

    /// Clicks, and repeats until a listener reports that the click hit the element. The page may
    /// move between finding the element's position and the click, since lines about transfers
    /// appear and disappear.
    fn click(&mut self, selector: &str) -> Result<()> {
        let selector = Value::from(selector);
        for _ in 0..CLICKS {
            // The position of the element's middle, after scrolling it into view.
            let middle = self.script(&format!(
                "const element = document.querySelector({selector}); \
                 if (element === null) return null; \
                 element.scrollIntoView({{ block: 'center', behavior: 'instant' }}); \
                 window.spratHit = false; \
                 const hit = (event) => \
                 {{ window.spratHit ||= event.target.closest({selector}) !== null; }}; \
                 document.addEventListener('click', hit, {{ capture: true, once: true }}); \
                 const box = element.getBoundingClientRect(); \
                 return {{ x: box.x + box.width / 2, y: box.y + box.height / 2 }}"
            ))?;
            ensure!(!middle.is_null(), "there is no {selector}");
            for (kind, buttons) in [("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 0)] {
                let button = if kind == "mouseMoved" { "none" } else { "left" };
                let event = json!({
                    "type": kind, "x": middle["x"], "y": middle["y"], "button": button,
                    "buttons": buttons, "clickCount": 1,
                });
                self.call("Input.dispatchMouseEvent", event)?;
            }
            // If the click has led to another page, the flag is gone, so the click was a hit.
            if self.script("return window.spratHit ?? true")? != false {
                return Ok(());
            }
        }
        bail!("{selector} was missed {CLICKS} times")
    }

    fn script(&mut self, body: &str) -> Result<Value> {
        let expression = format!("(() => {{ {body} }})()");
        let parameters =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.call("Runtime.evaluate", parameters)?;
        ensure!(answer["exceptionDetails"].is_null(), "{body}: {}", answer["exceptionDetails"]);
        Ok(answer["result"]["value"].take())
    }

    fn choose(&mut self, _selector: &str, _item: &str) -> Result<()> {
        bail!("without a screen Chromium has no menus")
    }
}
