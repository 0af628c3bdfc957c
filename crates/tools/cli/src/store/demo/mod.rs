//! `demo`: shows the whole store on real input. It starts a server, imports and verifies files,
//! measures latencies, kills the server during writes, checks that no acknowledged write is lost,
//! and reads a file with a Redis client.

mod child;
mod crash;
mod files;
mod measure;
mod redis;

use crate::output::print_line;
use crate::store::demo::child::{Sandbox, ServerChild};
use crate::store::demo::files::Tree;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use sprat_client::{Client, Options};
use sprat_measure::machine::Machine;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat demo
  sprat demo --tree /usr/share/doc
  TMPDIR=/srv sprat demo                        keep the data on that disk meanwhile

Takes up to two minutes. Starts a server of its own in a temporary directory, and removes both
at the end.")]
pub(crate) struct DemoArgs {
    /// Directory tree to import [default: the cargo registry's sources, /usr/share or
    /// /usr/include].
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
}

/// Timeout for an operation.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Memory in addition to that for the files: for the measured objects, and for the writes before
/// the kill.
const MEMORY_BESIDE_FILES: u64 = 640 << 20;

/// Load average above which other processes affect the figures.
const BUSY: f64 = 0.5;

/// The table of Redis' database 0.
const TABLE: &str = "redis-0";

pub(crate) fn demo(args: &DemoArgs) -> Result<ExitCode> {
    let started = Instant::now();
    let mut steps = Steps { number: 0, colour: std::io::stdout().is_terminal() };
    let tree = Tree::choose(args.tree.as_deref())?;
    let memory = (tree.bytes * 3 / 2 + MEMORY_BESIDE_FILES).next_multiple_of(64 << 20);
    let machine = Machine::describe();
    ensure!(
        memory < machine.memory_bytes,
        "the demo needs {} MiB of memory, more than this machine has",
        memory >> 20
    );
    let sandbox = Sandbox::new(memory)?;

    steps.begin("Start a server: coordinator, master and backup in one process")?;
    let server = ServerChild::start(&sandbox)?;
    steps.done(&format!(
        "ready in {} at {}, data in {}",
        seconds(server.started_in),
        server.listen,
        sandbox.describe()
    ))?;

    steps.begin(&format!("Import real files: {}", tree.root.display()))?;
    for note in &tree.notes {
        steps.note(note)?;
    }
    let mut client = connect(&server.coordinator)?;
    let table = client.create_table(TABLE)?;
    let imported = files::import(&tree, &mut client, table)?;
    steps.done(&imported.to_string())?;

    steps.begin("Read everything back and compare it with the disk, byte for byte")?;
    let verified = files::verify(&tree, &mut client, table)?;
    ensure!(
        verified.files == imported.files,
        "read back {} files, but imported {}",
        verified.files,
        imported.files
    );
    let held = client.table_stats(table)?.objects;
    ensure!(
        held == imported.files,
        "the table has {held} objects, but {} files were imported",
        imported.files
    );
    steps.done(&format!("{verified}; all equal"))?;

    steps.begin("Benchmark: one client on loopback, each write acknowledged when on disk")?;
    print_line(&measure::latencies(&server.coordinator)?)?;
    if machine.load_average > BUSY {
        let (load, cores) = (machine.load_average, machine.cores);
        steps
            .note(&format!("other processes slowed this down: load {load:.1} on {cores} cores"))?;
    }

    steps.begin("Kill the server (SIGKILL) while clients write")?;
    let writes = crash::write_until_killed(server)?;
    steps.done(&writes.to_string())?;
    let server = ServerChild::start(&sandbox)?;
    steps.done(&format!("started again in {}: {}", seconds(server.started_in), server.restored))?;
    let mut client = connect(&server.coordinator)?;
    steps.done(&writes.verify(&mut client)?)?;
    let table = client.table(TABLE)?;
    let verified = files::verify(&tree, &mut client, table)?;
    ensure!(
        verified.files == imported.files,
        "read back {} files, but imported {}",
        verified.files,
        imported.files
    );
    steps.done(&format!("{verified}; all imported files still equal"))?;

    steps.begin("Read a file with the Redis client of this machine")?;
    match redis::read_back(&tree, server.redis)? {
        Some(read) => steps.done(&read)?,
        None => steps.note("left out: there is no redis-cli (Debian: apt install redis-tools)")?,
    }

    steps.begin("Stop the server")?;
    let stopping = Instant::now();
    server.stop()?;
    steps.done(&format!("stopped in {}", seconds(stopping.elapsed())))?;
    sandbox.remove()?;
    print_line(&format!(
        "\nEvery check passed, in {}. The server and its data are removed.",
        seconds(started.elapsed())
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn connect(coordinator: &str) -> Result<Client> {
    let options =
        Options { coordinator: coordinator.to_owned(), timeout: TIMEOUT, ..Options::default() };
    Client::connect(&options).with_context(|| format!("cannot connect to {coordinator}"))
}

/// Renders a duration in seconds.
fn seconds(duration: Duration) -> String {
    match duration.as_secs_f64() {
        few if few < 10.0 => format!("{few:.2} s"),
        many => format!("{many:.0} s"),
    }
}

/// Renders a count with separators: `19,524`.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Prints numbered steps, each with its outcome.
struct Steps {
    number: u32,
    colour: bool,
}

impl Steps {
    fn begin(&mut self, what: &str) -> Result<()> {
        self.number += 1;
        let line = format!("{}  {what}", self.number);
        let gap = if self.number == 1 { "" } else { "\n" };
        print_line(&if self.colour {
            format!("{gap}\x1b[1m{line}\x1b[0m")
        } else {
            format!("{gap}{line}")
        })
    }

    fn done(&self, what: &str) -> Result<()> {
        let mark = if self.colour { "\x1b[32m✓\x1b[0m" } else { "✓" };
        print_line(&format!("   {mark} {what}"))
    }

    fn note(&self, what: &str) -> Result<()> {
        print_line(&format!("     {what}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_their_thousands_apart() {
        let texts = [0, 12, 999, 1000, 123_456, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "12", "999", "1,000", "123,456", "1,234,567"]);
    }
}
