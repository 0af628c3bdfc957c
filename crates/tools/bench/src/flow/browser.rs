//! A click on a link until the file is there, in real browsers of an ordinary user, far away:
//! through our extension, and by the browser itself.

use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use sprat_lab::line::LineSettings as Line;

use super::transfer::{Server, Serving, folder, make, median, plain};
use crate::browser::{Kind, Start, User};
use crate::lab::net::{Net, delayed, gigabits};
use crate::promises::{Findings, Settings};
use sprat_measure::cpu::pause;
use sprat_measure::goals::Goal;
use sprat_measure::table::Table;
use sprat_units::figure;

/// Bytes of the files; and without `--full`.
const BYTES_FULL: &[u64] = &[100_000_000, 1_000_000_000];
const BYTES: &[u64] = &[100_000_000];

const ROUND_TRIP: Duration = Duration::from_millis(200);

/// Rate of the path.
const RATE: f64 = 2.0;
const BUFFER: u64 = 128_000_000;

/// Whom browsers run as: a number that no account has.
const USER: u32 = 60_999;

/// What the file is called: something that browsers save.
const NAME: &str = "file.iso";

/// How long a browser is left alone after its start.
const SETTLING: Duration = Duration::from_secs(4);

/// Between two looks at the file.
const LOOK: Duration = Duration::from_millis(5);

/// Longest that it may take to come.
const LONGEST: Duration = Duration::from_secs(280);

/// How much faster than the browser itself, on a system as it comes.
const FASTER: f64 = 3.0;

/// How much faster where windows are large.
const AS_FAST: f64 = 1.0;

/// Share of the path's rate, from the click on, that a file of [`LONG`] bytes or more is to get:
/// the figure published for the Data Accelerator.
const FILLED: f64 = 0.8;
const LONG: u64 = 1_000_000_000;

/// Bytes that are compared at a time.
const BLOCK_BYTES: usize = 1 << 20;

/// Who serves, and who fetches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    /// Through the extension, from `sprat share`.
    Extension,
    /// By the browser itself, from `sprat share` too.
    OwnFromShare,
    /// By the browser itself, from nginx.
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

    /// The link that is clicked on.
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

/// A system, a browser, and what it is to do.
#[derive(Clone, Copy, Debug)]
struct Turn {
    kind: Kind,
    plain: bool,
    way: Way,
}

/// See the module.
pub(super) fn chapter(settings: &Settings, findings: &mut Findings) -> Result<()> {
    let kinds: Vec<Kind> = [Kind::Firefox, Kind::Chromium]
        .into_iter()
        .filter(|kind| kind.program().is_some())
        .collect();
    if !kinds.contains(&Kind::Firefox) {
        bail!("Firefox is not installed; scripts/setup does that");
    }
    let turns: Vec<Turn> = kinds
        .iter()
        .flat_map(|&kind| [true, false].map(|plain| Way::ALL.map(|way| Turn { kind, plain, way })))
        .flatten()
        .collect();
    for &bytes in if settings.full { BYTES_FULL } else { BYTES } {
        let (_folder, at) = folder(settings)?;
        make(&at.join(NAME), bytes)?;
        std::fs::write(
            at.join("index.html"),
            format!("<!DOCTYPE html><a href=\"{NAME}\" download>file</a>"),
        )?;
        let mut results: Vec<Vec<f64>> = turns.iter().map(|_| Vec::new()).collect();
        for _ in 0..settings.lab.rounds {
            for (turn, results) in turns.iter().zip(&mut results) {
                results.push(fetched(settings, *turn, &at, bytes)?);
                rustix::fs::sync(); // what one has written is not for the next to wait for
            }
        }
        tell(bytes, &turns, &results, findings);
    }
    findings.note(format!(
        "From the click to the file under its name; browsers run as an ordinary user (number {USER}), servers as root. A system as it comes lets \
         a user have windows of 6 MB. The extension's host takes 16 streams, a browser one."
    ));
    Ok(())
}

/// One file, over a network of its own; gives the seconds.
fn fetched(settings: &Settings, turn: Turn, at: &Path, bytes: u64) -> Result<f64> {
    let there = Line { rate: gigabits(RATE), buffer: BUFFER, ..delayed(ROUND_TRIP / 2) };
    let net = Net::pair(there, delayed(ROUND_TRIP / 2))?;
    if turn.plain {
        net.hosts.iter().try_for_each(plain)?;
    }
    let from: IpAddr = net.address(0, false);
    let serving =
        Serving::start(turn.way.server(), &net.hosts[0], from, &settings.program, at, at)?;
    let (url, program, source) = (serving.url(), settings.program.clone(), at.join(NAME));
    let within = settings.lab.setup.data.clone();
    net.hosts[1].run(move || clicked(turn, &url, &program, &within, &source, bytes))
}

/// On the browser's host: a browser of a new user's is started, and one link clicked on.
fn clicked(
    turn: Turn,
    url: &str,
    program: &Path,
    within: &Path,
    source: &Path,
    bytes: u64,
) -> Result<f64> {
    let Turn { kind, way, .. } = turn;
    let mut user = User::new(program, within, Some(USER))?;
    user.trust(url.trim_end_matches('/'));
    user.install_for(kind)?;
    let mut browser = match user.start(kind)? {
        Start::Runs(browser) => browser,
        Start::Ended(why) => bail!("{kind} does not run here: {why}"),
    };
    browser.install(&user.extension(kind))?;
    pause(SETTLING);
    browser.visit(url)?;
    let file = user.downloads().join(NAME);
    let begun = Instant::now();
    let watched = file.clone();
    // A browser may be busy with the click for longer than the file takes.
    let watch = std::thread::spawn(move || arrival(&watched, bytes, begun));
    browser.click(&way.link())?;
    let seconds = watch.join().map_err(|_| anyhow!("a thread panicked; its message is above"))?;
    let seconds = seconds
        .with_context(|| format!("{kind}, {}, which has {:?}", way.title(), user.names()))?;
    ensure!(same(&file, source)?, "{kind}, {}: another file has come", way.title());
    if way == Way::Extension {
        browser.popup()?;
        let said = browser.shows(NAME, "done")?;
        ensure!(said.contains("verified, blake3"), "{kind}: the popup says {said}");
    }
    Ok(seconds)
}

/// When a file is whole, seconds since `begun`.
fn arrival(file: &Path, bytes: u64, begun: Instant) -> Result<f64> {
    loop {
        if file.metadata().is_ok_and(|meta| meta.len() == bytes) {
            return Ok(begun.elapsed().as_secs_f64());
        }
        ensure!(begun.elapsed() < LONGEST, "{} does not come", file.display());
        pause(LOOK);
    }
}

/// Whether two files are the same.
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

fn tell(bytes: u64, turns: &[Turn], results: &[Vec<f64>], findings: &mut Findings) {
    let size = figure::decimal_bytes(bytes as f64);
    let mut table =
        Table::new(&["browser", "system", "fetched by", "seconds, median", "all rounds"]);
    for (turn, results) in turns.iter().zip(results) {
        table.row(vec![
            turn.kind.to_string(),
            if turn.plain { "as it comes" } else { "windows of 1 GB" }.to_owned(),
            turn.way.title().to_owned(),
            median(results.clone()).map_or("-".to_owned(), figure::digits),
            results.iter().map(|seconds| figure::digits(*seconds)).collect::<Vec<_>>().join(" "),
        ]);
    }
    findings.table(&format!("{size} by a click, 200 ms away"), table);
    let of = |like: Turn, way: Way| {
        let found = turns
            .iter()
            .position(|turn| turn.kind == like.kind && turn.plain == like.plain && turn.way == way);
        let seconds = found.and_then(|at| median(results[at].clone()))?;
        Some(bytes as f64 * 8e-9 / seconds)
    };
    for turn in turns.iter().filter(|turn| turn.way == Way::Extension) {
        let own = [Way::OwnFromShare, Way::OwnFromNginx].map(|way| of(*turn, way));
        let best = own.into_iter().flatten().reduce(f64::max);
        let (system, goal) = match turn.plain {
            true => ("systems as they come", Goal::RatioAtLeast(FASTER)),
            false => ("windows of 1 GB", Goal::RatioAtLeast(AS_FAST)),
        };
        let name = format!(
            "{size} by a click in {}, 200 ms, {system}: vs the better of its own",
            turn.kind
        );
        findings.row(&name, of(*turn, Way::Extension), best, "Gb/s", goal);
        if bytes >= LONG {
            let name =
                format!("{size} by a click in {}, 200 ms, {system}: vs the path's rate", turn.kind);
            findings.row(
                &name,
                of(*turn, Way::Extension),
                Some(RATE),
                "Gb/s",
                Goal::RatioAtLeast(FILLED),
            );
        }
    }
}
