//! Measures the time from a click on a link until the file is complete, in real browsers of an
//! ordinary user, over a long path. The file is fetched by our extension, or by the browser itself.

use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use sprat_lab::line::LineSettings as Line;

use super::transfer::{Server, Serving, folder, make, median, plain};
use crate::browser::{BrowserKind, StartOutcome, User};
use crate::lab::net::{Net, delayed, gigabits};
use crate::promises::{Findings, Settings};
use sprat_measure::cpu::pause;
use sprat_measure::goals::Goal;
use sprat_measure::table::Table;
use sprat_units::figure;

/// Bytes of the files: with `--full`, and by default.
const BYTES_FULL: &[u64] = &[100_000_000, 1_000_000_000];
const BYTES: &[u64] = &[100_000_000];

const ROUND_TRIP: Duration = Duration::from_millis(200);

/// Rate of the path in Gb/s.
const RATE: f64 = 2.0;
const BUFFER: u64 = 128_000_000;

/// User id of the browsers. No account has this id.
const USER: u32 = 60_999;

/// Name of the file, of a type that browsers save rather than display.
const NAME: &str = "file.iso";

/// Time to let a browser settle after its start.
const SETTLING: Duration = Duration::from_secs(4);

/// Interval at which to poll for the file.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Time after which a download fails.
const LONGEST: Duration = Duration::from_secs(280);

/// Goal: our speed as a multiple of the browser's own, with default system settings.
const FASTER: f64 = 3.0;

/// Goal: our speed as a multiple of the browser's own, with large TCP windows.
const AS_FAST: f64 = 1.0;

/// Goal: share of the path's rate, counted from the click, for a file of at least [`LONG`] bytes.
/// It is the figure published for the Data Accelerator.
const FILLED: f64 = 0.8;
const LONG: u64 = 1_000_000_000;

/// Bytes that are compared at a time.
const BLOCK_BYTES: usize = 1 << 20;

/// The server and the client of a download.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    /// Our extension, from `sprat share`.
    Extension,
    /// The browser itself, from `sprat share`.
    OwnFromShare,
    /// The browser itself, from nginx.
    OwnFromNginx,
}

impl Way {
    const ALL: [Self; 3] = [Self::Extension, Self::OwnFromShare, Self::OwnFromNginx];

    fn server(self) -> Server {
        match self {
            Self::Extension | Self::OwnFromShare => Server::Sprat,
            Self::OwnFromNginx => Server::Nginx,
        }
    }

    /// Returns the selector of the link to click on.
    fn link(self) -> String {
        match self {
            Self::Extension => format!("a[href='./{NAME}?download=sprat']"),
            Self::OwnFromShare => format!("td.name a[href='./{NAME}']"),
            Self::OwnFromNginx => "a".to_owned(),
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Extension => "sprat's extension, from sprat share",
            Self::OwnFromShare => "itself, from sprat share",
            Self::OwnFromNginx => "itself, from nginx",
        }
    }
}

/// A measurement: a browser, system settings, and a way to download.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: BrowserKind,
    /// Whether the hosts have default settings instead of large TCP windows.
    plain: bool,
    way: Way,
}

/// Runs all cases and reports the results.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let kinds: Vec<BrowserKind> = [BrowserKind::Firefox, BrowserKind::Chromium]
        .into_iter()
        .filter(|kind| kind.program().is_some())
        .collect();
    if !kinds.contains(&BrowserKind::Firefox) {
        bail!("Firefox is not installed; scripts/setup does that");
    }
    let cases: Vec<Case> = kinds
        .iter()
        .flat_map(|&kind| [true, false].map(|plain| Way::ALL.map(|way| Case { kind, plain, way })))
        .flatten()
        .collect();
    for &bytes in if settings.full { BYTES_FULL } else { BYTES } {
        let (_folder, at) = folder(settings)?;
        make(&at.join(NAME), bytes)?;
        std::fs::write(
            at.join("index.html"),
            format!("<!DOCTYPE html><a href=\"{NAME}\" download>file</a>"),
        )?;
        let mut results: Vec<Vec<f64>> = cases.iter().map(|_| Vec::new()).collect();
        for _ in 0..settings.lab.rounds {
            for (case, results) in cases.iter().zip(&mut results) {
                results.push(fetched(settings, *case, &at, bytes)?);
                rustix::fs::sync(); // so that the next download does not wait for these writes
            }
        }
        report(bytes, &cases, &results, findings);
    }
    findings.note(format!(
        "From the click to the file under its name; browsers run as an ordinary user (number \
         {USER}), servers as root. A system as it comes lets \
         a user have windows of 6 MB. The extension's host takes 16 streams, a browser one."
    ));
    Ok(())
}

/// Downloads one file over a new network. Returns the seconds.
fn fetched(settings: &Settings, case: Case, at: &Path, bytes: u64) -> Result<f64> {
    let there = Line { rate: gigabits(RATE), buffer: BUFFER, ..delayed(ROUND_TRIP / 2) };
    let net = Net::pair(there, delayed(ROUND_TRIP / 2))?;
    if case.plain {
        net.hosts.iter().try_for_each(plain)?;
    }
    let from: IpAddr = net.address(0, false);
    let serving =
        Serving::start(case.way.server(), &net.hosts[0], from, &settings.program, at, at)?;
    let (url, program, source) = (serving.url(), settings.program.clone(), at.join(NAME));
    let within = settings.lab.setup.data.clone();
    net.hosts[1].run(move || click_and_wait(case, &url, &program, &within, &source, bytes))
}

/// On the browser's host, starts a browser as a new user and clicks on the link. Returns the
/// seconds until the file is complete.
fn click_and_wait(
    case: Case,
    url: &str,
    program: &Path,
    within: &Path,
    source: &Path,
    bytes: u64,
) -> Result<f64> {
    let Case { kind, way, .. } = case;
    let mut user = User::new(program, within, Some(USER))?;
    user.trust(url.trim_end_matches('/'));
    user.install_for(kind)?;
    let mut browser = match user.start(kind)? {
        StartOutcome::Runs(browser) => browser,
        StartOutcome::Ended(why) => bail!("{kind} does not run here: {why}"),
    };
    browser.install(&user.extension(kind))?;
    pause(SETTLING);
    browser.visit(url)?;
    let file = user.downloads().join(NAME);
    let begun = Instant::now();
    let watched = file.clone();
    // The click may return only after the file is complete, so another thread watches the file.
    let watch = std::thread::spawn(move || arrival(&watched, bytes, begun));
    browser.click(&way.link())?;
    let seconds = watch.join().map_err(|_| anyhow!("a thread panicked; its message is above"))?;
    let seconds = seconds
        .with_context(|| format!("{kind}, {}, which has {:?}", way.title(), user.names()))?;
    ensure!(same(&file, source)?, "{kind}, {}: another file has come", way.title());
    if way == Way::Extension {
        browser.popup()?;
        let said = browser.wait_for_download(NAME, "done")?;
        ensure!(said.contains("verified, blake3"), "{kind}: the popup says {said}");
    }
    Ok(seconds)
}

/// Waits until a file is complete. Returns the seconds since `begun`.
fn arrival(file: &Path, bytes: u64, begun: Instant) -> Result<f64> {
    loop {
        if file.metadata().is_ok_and(|meta| meta.len() == bytes) {
            return Ok(begun.elapsed().as_secs_f64());
        }
        ensure!(begun.elapsed() < LONGEST, "{} does not come", file.display());
        pause(POLL_INTERVAL);
    }
}

/// Returns whether two files have the same content.
fn same(one: &Path, other: &Path) -> Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    let (mut ours, mut theirs) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    let mut left = one.metadata()?.len();
    if other.metadata()?.len() != left {
        return Ok(false);
    }
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK_BYTES);
        one.read_exact(&mut ours[..part])?;
        other.read_exact(&mut theirs[..part])?;
        if ours[..part] != theirs[..part] {
            return Ok(false);
        }
        left -= part as u64;
    }
    Ok(true)
}

fn report(bytes: u64, cases: &[Case], results: &[Vec<f64>], findings: &mut Findings) {
    let size = figure::decimal_bytes(bytes as f64);
    let mut table =
        Table::new(&["browser", "system", "fetched by", "seconds, median", "all rounds"]);
    for (case, results) in cases.iter().zip(results) {
        table.row(vec![
            case.kind.to_string(),
            if case.plain { "as it comes" } else { "windows of 1 GB" }.to_owned(),
            case.way.title().to_owned(),
            median(results.clone()).map_or("-".to_owned(), figure::digits),
            results.iter().map(|seconds| figure::digits(*seconds)).collect::<Vec<_>>().join(" "),
        ]);
    }
    findings.table(&format!("{size} by a click, 200 ms away"), table);
    let of = |like: Case, way: Way| {
        let found = cases
            .iter()
            .position(|case| case.kind == like.kind && case.plain == like.plain && case.way == way);
        let seconds = found.and_then(|at| median(results[at].clone()))?;
        Some(bytes as f64 * 8e-9 / seconds)
    };
    for case in cases.iter().filter(|case| case.way == Way::Extension) {
        let own = [Way::OwnFromShare, Way::OwnFromNginx].map(|way| of(*case, way));
        let best = own.into_iter().flatten().reduce(f64::max);
        let (system, goal) = match case.plain {
            true => ("systems as they come", Goal::RatioAtLeast(FASTER)),
            false => ("windows of 1 GB", Goal::RatioAtLeast(AS_FAST)),
        };
        let name = format!(
            "{size} by a click in {}, 200 ms, {system}: vs the better of its own",
            case.kind
        );
        findings.row(&name, of(*case, Way::Extension), best, "Gb/s", goal);
        if bytes >= LONG {
            let name =
                format!("{size} by a click in {}, 200 ms, {system}: vs the path's rate", case.kind);
            findings.row(
                &name,
                of(*case, Way::Extension),
                Some(RATE),
                "Gb/s",
                Goal::RatioAtLeast(FILLED),
            );
        }
    }
}
