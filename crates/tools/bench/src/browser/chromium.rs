//! Chromium.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::devtools::Devtools;
use super::{Browser, Control, Kind, Start, User, waits};

/// The extension's name: follows from the key in its manifest.
const EXTENSION: &str = "nmfcekbbhphmppflmnbdkhmijiobiccl";

/// Writes the settings of a profile.
pub(super) fn prepare(user: &User) -> Result<()> {
    let settings = json!({
        "download": { "default_directory": user.downloads(), "prompt_for_download": false },
    });
    let profile = user.profile(Kind::Chromium).join("Default");
    fs::create_dir_all(&profile)?;
    Ok(fs::write(profile.join("Preferences"), settings.to_string())?)
}

/// Starts it.
pub(super) fn start(user: &User, program: &Path) -> Result<Start> {
    let log = user.log();
    let said = fs::File::create(&log).with_context(|| format!("making {}", log.display()))?;
    // It speaks on its third and fourth pipe, which a shell lays.
    let mut command = user.command(Path::new("sh"));
    command.args(["-c", "exec \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null", "sh"]).arg(program);
    command.args([
        "--headless",
        "--remote-debugging-pipe",
        "--enable-unsafe-extension-debugging",
        "--no-first-run",
    ]);
    // No keys of a desktop, no graphics card, and no talk with anybody but those whom pages name.
    command.args([
        "--password-store=basic",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-sync",
    ]);
    if user.is_root() {
        command.arg("--no-sandbox"); // root has none
    }
    if !user.trusted().is_empty() {
        command.arg(format!(
            "--unsafely-treat-insecure-origin-as-secure={}",
            user.trusted().join(",")
        ));
    }
    let mut data = std::ffi::OsString::from("--user-data-dir=");
    data.push(user.profile(Kind::Chromium));
    command.arg(data).arg("about:blank");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(said);
    let mut child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
    let pipes = child.stdin.take().zip(child.stdout.take());
    let (to, from) = pipes.context("a child's pipes")?;
    let mut devtools = Devtools::new(to, from)?;
    let begun = devtools.ask(None, "Target.getTargets", json!({}));
    let targets = match (begun, child.try_wait()?) {
        (Ok(targets), _) => targets,
        (Err(_), Some(status)) => {
            let said = fs::read_to_string(&log).unwrap_or_default();
            return Ok(Start::Ended(format!(
                "{status}: {}",
                said.lines().last().unwrap_or("it said nothing")
            )));
        }
        (Err(error), None) => {
            let _ = child.kill(); // the error is said all the same
            let _ = child.wait();
            return Err(error);
        }
    };
    let mut all = targets["targetInfos"].as_array().into_iter().flatten();
    let page = all.find(|target| target["type"] == "page").context("Chromium has no tab")?;
    let mut control = Chromium { devtools, at: Value::Null };
    control.at = control.attached(&page["targetId"])?;
    Ok(Start::Runs(Box::new(Browser::new(child, Box::new(control))?)))
}

#[derive(Debug)]
struct Chromium {
    devtools: Devtools,
    /// The tab: its target's name, and that of our session with it.
    at: Value,
}

/// Clicks that may miss what they are for.
const CLICKS: u32 = 50;

impl Chromium {
    /// A session with a tab.
    fn attached(&mut self, target: &Value) -> Result<Value> {
        let session = self.devtools.ask(
            None,
            "Target.attachToTarget",
            json!({ "targetId": target, "flatten": true }),
        )?;
        Ok(json!({ "target": target, "session": session["sessionId"] }))
    }

    /// Does a command of the tab's.
    fn ask(&mut self, command: &str, parameters: Value) -> Result<Value> {
        self.devtools.ask(self.at["session"].as_str(), command, parameters)
    }
}

impl Control for Chromium {
    fn pages(&self) -> String {
        format!("chrome-extension://{EXTENSION}")
    }

    fn install(&mut self, extension: &Path) -> Result<()> {
        let installed =
            self.devtools.ask(None, "Extensions.loadUnpacked", json!({ "path": extension }))?;
        ensure!(installed["id"] == EXTENSION, "another extension was installed: {installed}");
        Ok(())
    }

    fn tab(&mut self) -> Result<Value> {
        Ok(self.at.clone())
    }

    fn new_tab(&mut self) -> Result<Value> {
        let made =
            self.devtools.ask(None, "Target.createTarget", json!({ "url": "about:blank" }))?;
        self.attached(&made["targetId"])
    }

    fn switch(&mut self, tab: &Value) -> Result<()> {
        self.at = tab.clone();
        self.devtools
            .ask(None, "Target.activateTarget", json!({ "targetId": tab["target"] }))
            .map(drop)
    }

    fn go(&mut self, url: &str) -> Result<()> {
        let gone = self.ask("Page.navigate", json!({ "url": url }))?;
        ensure!(gone["errorText"].is_null(), "{url}: {}", gone["errorText"]);
        waits(self, "return document.readyState === 'complete'").map(drop)
    }

    /// A page may move while we look where to click: what is told of transfers comes and goes. So
    /// it is looked whether the click came where it should.
    fn click(&mut self, selector: &str) -> Result<()> {
        let selector = Value::from(selector);
        for _ in 0..CLICKS {
            // Where its middle is, once it can be seen.
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
                self.ask("Input.dispatchMouseEvent", event)?;
            }
            // On another page, where a click has led, nobody knows.
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
        let mut told = self.ask("Runtime.evaluate", parameters)?;
        ensure!(told["exceptionDetails"].is_null(), "{body}: {}", told["exceptionDetails"]);
        Ok(told["result"]["value"].take())
    }

    fn choose(&mut self, _selector: &str, _item: &str) -> Result<()> {
        bail!("without a screen Chromium has no menus")
    }
}
