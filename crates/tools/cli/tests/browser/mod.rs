//! Tests the browser extension in a real Firefox and a real Chromium: links are clicked, and files
//! arrive.

use crate::support;
use serde_json::Value;
use sprat_bench::browser::{Browser, BrowserKind, StartOutcome, User};
use sprat_flow::share::{Options, Pace, Share, Tokens};
use sprat_testing::until;
use std::fs;
use std::path::Path;
use support::skip;
use tempfile::TempDir;

/// Length of the downloaded files: some seconds at [`PACE`].
const LENGTH: usize = 24 << 20;

/// The rate of each of sixteen connections. It is slow enough that a download does not end before
/// the test examines it.
const PACE: Pace = Pace::Limit(2_000_000 / 8);

/// A shared directory.
struct Shared {
    share: Share,
    directory: TempDir,
}

impl Shared {
    fn new(pace: Pace) -> Self {
        Self::with(pace, Tokens::default())
    }

    /// Shares a directory with clients that have a token.
    fn with(pace: Pace, tokens: Tokens) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut options =
            Options::new(directory.path().to_owned(), vec!["127.0.0.1:0".parse().unwrap()]);
        options.pace = pace;
        options.tokens = tokens;
        Self { share: Share::start(options).unwrap(), directory }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.share.addresses()[0])
    }

    /// Writes a file to the directory. Returns the file's content.
    fn put(&self, name: &str) -> Vec<u8> {
        let content: Vec<u8> = (0..u32::try_from(LENGTH).unwrap())
            .map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3])
            .collect();
        fs::write(self.directory.path().join(name), &content).unwrap();
        content
    }

    /// Returns the bytes sent in verified form, by transfers in progress and by those that ended.
    fn sent_verified(&self) -> u64 {
        let (live, past) = self.share.transfers().snapshot();
        let all = live.iter().chain(&past).map(|transfer| serde_json::to_value(transfer).unwrap());
        all.filter(|transfer| transfer["verified"] == true)
            .filter_map(|transfer| transfer["sent"].as_u64())
            .sum()
    }
}

/// Returns a selector of the link on a share's page that our extension handles.
fn accelerated(name: &str) -> String {
    format!("a[href='./{name}?download=sprat']")
}

fn length(path: &Path) -> u64 {
    path.metadata().map_or(0, |meta| meta.len())
}

/// Makes a user of a browser. If this machine has no such browser, returns `None` and prints why.
fn user(kind: BrowserKind) -> Option<User> {
    if kind.program().is_none() {
        skip(&format!("{kind} is not installed: the browser's extension was not tried in it"));
        return None;
    }
    Some(User::new(Path::new(env!("CARGO_BIN_EXE_sprat")), &std::env::temp_dir(), None).unwrap())
}

/// Starts the user's browser. If it does not run on this machine, returns `None` and prints why.
fn start(user: &User, kind: BrowserKind) -> Option<Browser> {
    match user.start(kind).unwrap() {
        StartOutcome::Runs(browser) => Some(*browser),
        StartOutcome::Ended(why) => {
            skip(&format!(
                "{kind} does not run here ({why}): the browser's extension was not tried in it"
            ));
            None
        }
    }
}

/// Starts the browser with the extension, and opens the popup's page in a tab.
fn start_with_popup(user: &User, kind: BrowserKind, extension: &Path) -> Option<Browser> {
    let mut browser = start(user, kind)?;
    browser.install(extension).unwrap();
    browser.popup().unwrap();
    Some(browser)
}

#[test]
fn a_click_in_firefox_downloads_a_verified_file() {
    a_click_downloads_the_file(BrowserKind::Firefox);
}

#[test]
fn a_click_in_chromium_downloads_a_verified_file() {
    a_click_downloads_the_file(BrowserKind::Chromium);
}

fn a_click_downloads_the_file(kind: BrowserKind) {
    let Some(user) = user(kind) else { return };
    let shared = Shared::new(PACE);
    let content = shared.put("big.iso");
    shared.put("other.iso");
    shared.put("third.iso");
    user.install_for(kind).unwrap();
    let Some(mut browser) = start_with_popup(&user, kind, &user.extension(kind)) else { return };
    browser.follow(&shared.url(), &accelerated("big.iso")).unwrap();
    let text = browser.wait_for_download("big.iso", "running").unwrap();
    assert!(text.contains("of 25.2 MB"), "{text}");
    let some = "const bar = document.querySelector('progress'); return bar.value > 0 && bar.value \
        < bar.max";
    browser.wait_for(some).unwrap();
    let text = browser.wait_for_download("big.iso", "done").unwrap();
    assert!(text.contains("25.2 MB, verified, blake3 "), "{text}");
    assert_eq!(fs::read(user.downloads().join("big.iso")).unwrap(), content);
    assert_eq!(user.names().unwrap(), ["big.iso"], "the browser's own download left no file");

    // A download is paused in the middle, and then resumed.
    browser.follow(&shared.url(), &accelerated("other.iso")).unwrap();
    browser.wait_for_download("other.iso", "running").unwrap();
    browser
        .wait_for("return document.querySelector('li[data-state=running] progress').value > 2e6")
        .unwrap();
    browser.click("li[data-state=running] [data-do=pause]").unwrap();
    browser.wait_for_download("other.iso", "stopped").unwrap();
    assert_eq!(
        user.names().unwrap(),
        ["big.iso", "other.iso.sprat-journal", "other.iso.sprat-part"]
    );
    browser.click("li[data-state=stopped] [data-do=resume]").unwrap();
    browser.wait_for_download("other.iso", "done").unwrap();
    assert_eq!(fs::read(user.downloads().join("other.iso")).unwrap(), content);

    // A download is cancelled: no part of it remains, and it leaves the list.
    browser.follow(&shared.url(), &accelerated("third.iso")).unwrap();
    browser.wait_for_download("third.iso", "running").unwrap();
    browser.click("li[data-state=running] [data-do=remove]").unwrap();
    browser.wait_for("return document.querySelectorAll('li').length === 2").unwrap();
    assert_eq!(user.names().unwrap(), ["big.iso", "other.iso"]);

    // The browser itself handles ordinary links, unless the user chooses otherwise.
    browser.click("#all").unwrap();
    browser.wait_for("return document.getElementById('all').checked").unwrap();
    browser.follow(&shared.url(), "td.name a[href='./third.iso']").unwrap();
    let text = browser.wait_for_download("third.iso", "done").unwrap();
    assert!(text.contains("verified, blake3"), "{text}");
    assert_eq!(fs::read(user.downloads().join("third.iso")).unwrap(), content);
    assert_eq!(user.names().unwrap(), ["big.iso", "other.iso", "third.iso"]);
}

#[test]
fn the_menu_of_any_link_downloads_its_file() {
    // Chromium's menus cannot be used without a screen.
    let kind = BrowserKind::Firefox;
    let Some(user) = user(kind) else { return };
    let shared = Shared::new(Pace::Off);
    let content = shared.put("big.iso");
    user.install_for(kind).unwrap();
    let Some(mut browser) = start_with_popup(&user, kind, &user.extension(kind)) else { return };
    // An ordinary link, which the browser itself would handle after a click.
    browser.choose(&shared.url(), "td.name a[href='./big.iso']", "Download with Sprat").unwrap();
    let text = browser.wait_for_download("big.iso", "done").unwrap();
    assert!(text.contains("verified, blake3"), "{text}");
    assert_eq!(fs::read(user.downloads().join("big.iso")).unwrap(), content);
    assert_eq!(user.names().unwrap(), ["big.iso"], "the browser has downloaded nothing itself");
}

#[test]
fn firefox_passes_its_credentials_on() {
    the_browser_passes_its_credentials_on(BrowserKind::Firefox);
}

#[test]
fn chromium_passes_its_credentials_on() {
    the_browser_passes_its_credentials_on(BrowserKind::Chromium);
}

fn the_browser_passes_its_credentials_on(kind: BrowserKind) {
    let Some(user) = user(kind) else { return };
    let tokens = tempfile::NamedTempFile::new().unwrap();
    fs::write(tokens.path(), "correct-horse-battery\n").unwrap();
    let shared = Shared::with(Pace::Off, Tokens::read(tokens.path()).unwrap());
    let content = shared.put("big.iso");
    user.install_for(kind).unwrap();
    let Some(mut browser) = start_with_popup(&user, kind, &user.extension(kind)) else { return };
    let page = format!("{}?token=correct-horse-battery", shared.url());
    browser.follow(&page, "a[href^='./big.iso?download=sprat&ticket=']").unwrap();
    let text = browser.wait_for_download("big.iso", "done").unwrap();
    assert!(text.contains("verified, blake3"), "{text}");
    assert_eq!(fs::read(user.downloads().join("big.iso")).unwrap(), content);
    assert_eq!(
        user.names().unwrap(),
        ["big.iso"],
        "the browser's own file was removed, complete or not"
    );
    let api = "(globalThis.browser ?? globalThis.chrome)";
    let kept = browser
        .wait_for(&format!("return {api}.storage.local.get().then((kept) => JSON.stringify(kept))"))
        .unwrap();
    let kept = kept.as_str().unwrap();
    assert!(
        kept.contains("big.iso") && !kept.contains("ticket"),
        "a download that has ended is kept without its ticket: {kept}"
    );
}

#[test]
fn without_sprat_firefox_downloads_itself() {
    without_sprat_the_browser_downloads_itself(BrowserKind::Firefox);
}

#[test]
fn without_sprat_chromium_downloads_itself() {
    without_sprat_the_browser_downloads_itself(BrowserKind::Chromium);
}

fn without_sprat_the_browser_downloads_itself(kind: BrowserKind) {
    let Some(user) = user(kind) else { return };
    let shared = Shared::new(Pace::Off);
    let content = shared.put("big.iso");
    // The extension is installed. Then the program that browsers start disappears.
    user.install_for(kind).unwrap();
    let kept = user.downloads().with_file_name(if kind == BrowserKind::Firefox {
        "kept.xpi"
    } else {
        "kept"
    });
    fs::rename(user.extension(kind), &kept).unwrap();
    user.sprat(&["uninstall"]).unwrap();
    let Some(mut browser) = start_with_popup(&user, kind, &kept) else { return };
    browser.follow(&shared.url(), &accelerated("big.iso")).unwrap();
    until("the browser downloads the file itself", || {
        length(&user.downloads().join("big.iso")) == LENGTH as u64
    });
    assert_eq!(fs::read(user.downloads().join("big.iso")).unwrap(), content);
    assert_eq!(shared.sent_verified(), 0);
    let text = browser.wait_for_download("big.iso", "browser").unwrap();
    assert!(
        text.contains("left to the browser") && text.contains("sprat browser install"),
        "{text}"
    );
}

#[test]
fn firefox_may_download_what_a_server_refuses_sprat() {
    the_browser_may_download_what_a_server_refuses_sprat(BrowserKind::Firefox);
}

#[test]
fn chromium_may_download_what_a_server_refuses_sprat() {
    the_browser_may_download_what_a_server_refuses_sprat(BrowserKind::Chromium);
}

fn the_browser_may_download_what_a_server_refuses_sprat(kind: BrowserKind) {
    let Some(user) = user(kind) else { return };
    // A server that serves the file only to browsers.
    let server = picky();
    user.install_for(kind).unwrap();
    let Some(mut browser) = start_with_popup(&user, kind, &user.extension(kind)) else { return };
    browser.follow(&format!("http://{server}/"), "a").unwrap();
    let text = browser.wait_for_download("big.iso", "browser").unwrap();
    assert!(text.contains("403"), "{text}");
    until("the browser downloads the file itself", || {
        length(&user.downloads().join("big.iso")) == LENGTH as u64
    });
    until("only the final name is left", || user.names().unwrap() == ["big.iso"]);
    assert_eq!(fs::read(user.downloads().join("big.iso")).unwrap(), vec![7; LENGTH]);
    browser.wait_for("return document.querySelectorAll('li').length === 1").unwrap();
}

#[test]
fn a_download_resumes_after_a_crash_of_firefox() {
    a_download_resumes_after_a_crash_of_the_browser(BrowserKind::Firefox);
}

#[test]
fn a_download_resumes_after_a_crash_of_chromium() {
    a_download_resumes_after_a_crash_of_the_browser(BrowserKind::Chromium);
}

fn a_download_resumes_after_a_crash_of_the_browser(kind: BrowserKind) {
    let Some(user) = user(kind) else { return };
    let shared = Shared::new(PACE);
    let content = shared.put("big.iso");
    user.install_for(kind).unwrap();
    let Some(mut browser) = start_with_popup(&user, kind, &user.extension(kind)) else { return };
    browser.follow(&shared.url(), &accelerated("big.iso")).unwrap();
    browser.wait_for_download("big.iso", "running").unwrap();

    browser.wait_for("return document.querySelector('progress').value > 4e6").unwrap();
    browser.kill();
    until("the host ends", || !user.has_host());
    assert!(!user.downloads().join("big.iso").exists());
    let before = shared.sent_verified();
    let Some(mut browser) = start(&user, kind) else { return };
    if kind == BrowserKind::Chromium {
        // An extension loaded by remote control is loaded for one session only.
        browser.install(&user.extension(kind)).unwrap();
    }
    browser.popup().unwrap();
    browser.wait_for_download("big.iso", "done").unwrap();
    assert_eq!(fs::read(user.downloads().join("big.iso")).unwrap(), content);
    assert_eq!(user.names().unwrap(), ["big.iso"]);
    let again = shared.sent_verified() - before;
    assert!(again < LENGTH as u64 - (1 << 20), "{again} B were sent again after {before}");
}

#[test]
fn installing_is_seen_and_undone() {
    let home = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let mut command = support::sprat();
        for variable in ["XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
            command.env_remove(variable);
        }
        let output = command
            .env("HOME", home.path())
            .arg("browser")
            .args(args)
            .arg("--json")
            .output()
            .unwrap();
        (output.status.code(), serde_json::from_slice::<Value>(&output.stdout).unwrap())
    };
    let (code, dry) = run(&["install", "--for", "all", "--dry-run"]);
    assert_eq!((code, &dry["written"]), (Some(0), &false.into()));
    assert!(fs::read_dir(home.path()).unwrap().next().is_none(), "nothing was written");
    assert_eq!(run(&["status"]).0, Some(1));
    let (code, installed) = run(&["install", "--for", "all", "--downloads", "/srv/what's here"]);
    assert_eq!((code, &installed["files"]), (Some(0), &dry["files"]));
    let (code, status) = run(&["status"]);
    assert_eq!(code, Some(0), "{status}");
    for what in [
        &status["extension"],
        &status["host"],
        &status["browsers"]["firefox"],
        &status["browsers"]["chrome"],
    ] {
        assert_eq!(what, "installed", "{status}");
    }
    let manifest = home.path().join(".mozilla/native-messaging-hosts/sprat.browser.json");
    let manifest: Value = serde_json::from_slice(&fs::read(manifest).unwrap()).unwrap();
    let host = fs::read_to_string(manifest["path"].as_str().unwrap()).unwrap();
    assert!(host.contains("browser host --downloads '/srv/what'\\''s here' -- \"$@\""), "{host}");
    // An older installed version is detected.
    let background = home.path().join(".local/share/sprat/browser/extension/background.js");
    fs::write(&background, "// another").unwrap();
    assert!(run(&["status"]).1["extension"].as_str().unwrap().contains("install again"));
    let (code, removed) = run(&["uninstall"]);
    assert_eq!(
        (code, removed["removed"].as_array().map(Vec::len)),
        (Some(0), installed["files"].as_array().map(Vec::len))
    );
    assert_eq!(run(&["status"]).0, Some(1));
    assert!(!home.path().join(".local/share/sprat").exists());
}

/// Starts a server that serves a page with a link to every client, but refuses the file to user
/// agents that name sprat.
fn picky() -> std::net::SocketAddr {
    use std::io::{BufRead as _, BufReader, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for tcp in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let head: Vec<String> = BufReader::new(&tcp)
                    .lines()
                    .map_while(Result::ok)
                    .take_while(|line| !line.is_empty())
                    .collect();
                let file = head.first().is_some_and(|line| line.contains("big.iso"));
                let ours = head.iter().any(|line| line.starts_with("User-Agent: sprat/"));
                let (status, kind, body) = match (file, ours) {
                    (true, true) => ("403 Forbidden", "text/plain", b"not to you".to_vec()),
                    (true, false) => ("200 OK", "application/octet-stream", vec![7; LENGTH]),
                    (false, _) => (
                        "200 OK",
                        "text/html",
                        b"<a href='big.iso?download=sprat'>file</a>".to_vec(),
                    ),
                };
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: \
                     {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                let _ = (&tcp).write_all(head.as_bytes()).and_then(|()| (&tcp).write_all(&body));
            });
        }
    });
    address
}
