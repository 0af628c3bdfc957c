//! `lab watch`: shows the traffic of a running box, live.

mod screen;
mod view;

use crate::lab::up::{LabState, dir};
use crate::lab::watch::view::View;
use crate::output::{print_json, print_line};
use crate::quantity;
use crate::signals::signals;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use sprat_lab::config::set;
use sprat_lab::control::{Client, ControlDir, ControlError};
use sprat_lab::line::LineSettings;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat lab watch                               the only running box
  sprat lab watch two-sites.wan
  sprat lab watch wan --once                    one screen as text
  sprat lab watch wan --json --every 100ms      samples for programs

Keys: q quits, arrows and Tab select a line, s changes the order of flows, p pauses.

The table shows, for each port: rates in and out, the queue and its share of the buffer, drops
by reason since the start of the box, and how late packets leave. Below it are the rate of the
selected line over time, and its flows.")]
pub(crate) struct LabWatchArgs {
    /// Box to watch, BOX or LAB.BOX [default: the only running one].
    #[arg(value_name = "BOX")]
    name: Option<String>,

    /// Interval between updates, 100ms to 60s.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1s",
        value_parser = quantity::update_interval
    )]
    every: Duration,

    /// Print one screen as text, and exit.
    #[arg(long, conflicts_with = "json")]
    once: bool,

    #[command(flatten)]
    state: LabState,

    /// Print samples as JSON, one value a line, until the box ends.
    #[arg(long)]
    json: bool,
}

/// Interval at which the screen checks for keys and signals.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Interval between attempts to reconnect to a box that was lost.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// Columns and rows of the screen that `--once` prints.
const ONCE: (u16, u16) = (120, 40);

pub(crate) fn watch(args: &LabWatchArgs) -> Result<ExitCode> {
    let every = args.every;
    let place = ControlDir::of(&dir(&args.state));
    let mut client = place.connect(args.name.as_deref())?;
    let view = begin(&mut client)?;
    if args.json || args.once {
        return plain(client, view, every, args.json);
    }
    if !std::io::stdout().is_terminal() {
        bail!(
            "standard output is not a terminal; use --json for programs, or --once for one screen \
             as text"
        );
    }
    let signals = signals()?;
    // Until `restore`, the terminal is in raw mode; ratatui's panic hook also restores it.
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    let ended = screen(&mut terminal, &place, client, view, every, &signals);
    ratatui::restore();
    ended
}

/// Starts the view of a box. Gives it the buffer sizes, and the present counters, from which the
/// first sample is computed.
fn begin(client: &mut Client) -> Result<View, ControlError> {
    let state = client.settings()?;
    let buffer = |port: &sprat_lab::control::PortState| {
        let mut settings = LineSettings::default();
        // If the buffer size cannot be parsed, only the buffer's fill level is not shown.
        let parsed = port.line.buffer.as_ref().map(|word| set(&mut settings, "buffer", &word.0));
        matches!(parsed, Some(Ok(()))).then(|| (port.port.clone(), settings.buffer))
    };
    let buffers = state.ports.iter().filter_map(buffer).collect();
    let mut view = View::new(client.name().to_owned(), buffers);
    view.take(client.report()?);
    Ok(view)
}

/// Prints without a terminal: a JSON sample on each line until the box ends, or one screen as text.
fn plain(mut client: Client, mut view: View, every: Duration, json: bool) -> Result<ExitCode> {
    loop {
        #[expect(clippy::disallowed_methods, reason = "a program that waits for time to pass")]
        std::thread::sleep(every);
        match client.report() {
            Ok(report) => view.take(report),
            Err(ControlError::Lost { name, .. }) if json => {
                eprintln!("sprat: box {name} has ended");
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) => return Err(error.into()),
        }
        if !json {
            screen::text(&view, ONCE)?.iter().try_for_each(|line| print_line(line))?;
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(sample) = view.sample() {
            let mut value = serde_json::to_value(sample)?;
            value["box"] = view.name().into();
            print_json(&value)?;
        }
    }
}

/// Samples the box and draws until the user leaves or a signal arrives.
fn screen(
    terminal: &mut DefaultTerminal,
    place: &ControlDir,
    client: Client,
    mut view: View,
    every: Duration,
    signals: &Receiver<()>,
) -> Result<ExitCode> {
    let (mut client, mut next) = (Some(client), Instant::now() + every);
    loop {
        terminal.draw(|frame| screen::draw(&view, frame)).context("cannot use the terminal")?;
        let left = next.saturating_duration_since(Instant::now()).min(POLL_INTERVAL);
        if event::poll(left).context("cannot use the terminal")?
            && let Event::Key(key) = event::read().context("cannot use the terminal")?
            && key.kind == KeyEventKind::Press
            && view.key(key)
        {
            return Ok(ExitCode::SUCCESS);
        }
        if !matches!(signals.try_recv(), Err(TryRecvError::Empty)) {
            return Ok(ExitCode::SUCCESS);
        }
        if Instant::now() < next {
            continue;
        }
        next = Instant::now() + every;
        let report = match &mut client {
            Some(client) => client.report(),
            None => place.connect(Some(view.name())).and_then(|mut found| {
                let fresh = begin(&mut found)?;
                client = Some(found);
                view = fresh;
                client.as_mut().expect("just found").report()
            }),
        };
        match report {
            Ok(report) => view.take(report),
            Err(error) => {
                client = None;
                view.lost(&error.to_string());
                next = Instant::now() + RECONNECT_INTERVAL;
            }
        }
    }
}
