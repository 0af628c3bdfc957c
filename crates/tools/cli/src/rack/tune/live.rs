//! A running rack as the subject of tuning.

use crate::rack::load::{contacts, work};
use crate::rack::tune::RackTuneArgs;
use crate::rack::watch::{Output, Terminal, spinner};
use crate::signals::signals;
use anyhow::{Context as _, Error, Result, bail};
use indicatif::ProgressBar;
use sprat_load::{Load, LoadReport, RunningLoad, Step};
use sprat_plan::Plan;
use sprat_rack::{Host, hosts};
use sprat_ring::{Deployment, update_instance, wait_until_well};
use sprat_tune::{
    Change, Entry, Journal, Measured, Overlay, Subject, Table, Tables, TrialState, TuneError,
    TuneEvent, chosen, is_kernel_file,
};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Interval at which to check whether a measurement is over.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Folder of files from which systemd writes kernel settings when a host starts.
const ACROSS_BOOTS: &str = "/etc/tmpfiles.d";

/// A running rack: applies changes to its hosts, instances and tables, and measures them under
/// load.
pub(super) struct Live<'a> {
    args: &'a RackTuneArgs,
    rack: Deployment,
    jars: PathBuf,
    overlay: Overlay,
    warm: Duration,
    measured: Duration,
    signals: Receiver<()>,
    stopped: Cell<bool>,
    /// Whether the instances have had no load since their last restart.
    fresh: Cell<bool>,
    bar: ProgressBar,
}

impl<'a> Live<'a> {
    pub(super) fn new(
        args: &'a RackTuneArgs,
        rack: Deployment,
        warm: Duration,
        measured: Duration,
    ) -> Result<Self> {
        let jars =
            args.jars.as_ref().context("add --jars FOLDER, the folder with Cassandra's jars")?;
        let overlay = Overlay::read(rack.folder.path())?;
        Ok(Self {
            args,
            rack,
            jars: std::path::absolute(jars)?,
            overlay,
            warm,
            measured,
            signals: signals()?,
            stopped: Cell::new(false),
            fresh: Cell::new(false),
            bar: spinner(),
        })
    }

    pub(super) fn rack(&self) -> &Deployment {
        &self.rack
    }

    /// Removes the progress display.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Adds to an error the steps that the user can take.
    pub(super) fn explain(&self, error: TuneError) -> Error {
        self.finish();
        let mend = "tuning stopped: run it again, which first undoes an unfinished change, or \
            undo all with `sprat rack tune --undo`";
        Error::new(error).context(mend)
    }

    fn host(&self, name: &str) -> Result<Host, String> {
        let found = hosts(&self.rack.plan).into_iter().find(|host| host.name == name);
        found.ok_or_else(|| format!("the plan no longer has the server {name}"))
    }

    /// Runs a command on a host and returns its output.
    fn run(&self, host: &str, command: &str) -> Result<String, String> {
        self.rack
            .run_command(&self.host(host)?, command)
            .map_err(|error| format!("{host}: {error:#}"))
    }

    /// Reads a kernel setting of a host. If the file lists choices, returns the selected one.
    fn read_setting(&self, host: &str, path: &str) -> Result<String, String> {
        let answer = self.run(host, &format!("head -n 1 {path}"))?;
        Ok(chosen(&answer).split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// Writes the configuration of all instances, and restarts them one after the other.
    fn restart(&mut self, overlay: &Overlay) -> Result<()> {
        self.fresh.set(false);
        overlay.write(self.rack.folder.path())?;
        self.overlay = overlay.clone();
        self.rack.plan = Plan::new(overlay.adapt(self.rack.described.clone()))?;
        let hosts = self.rack.folder.write(&self.rack.plan, &self.jars)?;
        let mut terminal = Terminal::on(self.bar.clone(), Output::Nothing);
        for host in &hosts {
            for instance in &host.instances {
                update_instance(&self.rack, host, instance, true, false, &mut terminal)?;
                wait_until_well(&self.rack, &hosts, &mut terminal)?;
            }
        }
        self.fresh.set(true);
        Ok(())
    }

    /// Runs the load for `duration`. The progress display shows `doing` as the load's purpose.
    fn load(&self, doing: &str, duration: Duration) -> Result<LoadReport> {
        let Some(cassandra) = &self.rack.plan.spec.cassandra else {
            bail!("the plan has no [cassandra]")
        };
        let steps = vec![Step { rate: self.args.rate, duration }];
        let load: Load =
            work(&self.args.work, contacts(&hosts(&self.rack.plan)), steps, cassandra)?;
        load.check()?;
        self.fresh.set(false);
        // Threads inherit the network namespace. So the load's threads stay in the namespace from
        // which the hosts can be reached.
        let running = self.rack.within(|| RunningLoad::start(load))??;
        while !running.is_done() {
            let progress = running.progress();
            let (at, of) = (progress.elapsed.as_secs_f64(), progress.length.as_secs_f64());
            self.bar.set_message(format!("{doing}: {at:.0} of {of:.0} s"));
            self.bar.tick();
            match self.signals.recv_timeout(POLL_INTERVAL) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                    self.stopped.set(true);
                    running.stop();
                }
            }
        }
        Ok(running.finish().report)
    }

    /// Makes systemd on the hosts apply the kept kernel settings at every start. Removes the file
    /// from hosts on which no setting was kept.
    pub(super) fn keep_across_boots(&self, journal: &Journal) -> Result<()> {
        let mut lines: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
        for change in journal.standing().flat_map(|entry| &entry.changes) {
            if let Change::Host { host, path, value } = change {
                lines.entry(host).or_default().insert(path, value);
            }
        }
        let file = format!("{ACROSS_BOOTS}/sprat-{}.conf", self.rack.name());
        for host in &hosts(&self.rack.plan) {
            let mut text = String::from(
                "# Settings from `sprat rack tune`; `sprat rack tune --undo` removes them.\n",
            );
            for (path, value) in lines.get(host.name.as_str()).into_iter().flatten() {
                writeln!(text, "w {path} - - - - {value}").expect("a string takes all");
            }
            let write = match lines.contains_key(host.name.as_str()) {
                true => format!("printf %s '{text}' > {file}"),
                false => format!("rm -f {file}"),
            };
            self.rack
                .run_command(host, &format!("if [ -d /run/systemd/system ]; then {write}; fi"))?;
        }
        Ok(())
    }
}

impl Subject for Live<'_> {
    fn present(&mut self, change: &Change) -> Result<Change, String> {
        match change {
            Change::Host { host, path, .. } => {
                let value = self.read_setting(host, kernel_file(path)?)?;
                Ok(Change::Host { host: host.clone(), path: path.clone(), value })
            }
            Change::Instances(_) => Ok(Change::Instances(self.overlay.clone())),
            Change::Table { table, property, .. } => {
                let found = self
                    .rack
                    .within(|| tables(&self.rack, std::slice::from_ref(table)))
                    .map_err(Error::from)
                    .flatten();
                let found = found.map_err(|error| format!("{error:#}"))?.pop().unwrap_or_default();
                let value = found.properties.get(property).cloned().unwrap_or_default();
                Ok(Change::Table { table: table.clone(), property: property.clone(), value })
            }
        }
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), String> {
        let mut overlay = None;
        for change in changes {
            match change {
                Change::Host { host, path, value } => {
                    let (path, plain) = (
                        kernel_file(path)?,
                        value.chars().all(|c| c.is_ascii_alphanumeric() || " -_,".contains(c)),
                    );
                    if !plain {
                        return Err(format!(
                            "{host}: {path} = {value:?}: only letters, digits, spaces and -_, are \
                             allowed"
                        ));
                    }
                    // A value that is already set is not written: the file may be read-only.
                    if self.read_setting(host, path)? == *value {
                        continue;
                    }
                    self.run(host, &format!("printf %s '{value}' > {path}"))?;
                    let said = self.read_setting(host, path)?;
                    if said != *value {
                        return Err(format!("{host}: {path} is {said} after {value} was written"));
                    }
                }
                Change::Instances(wanted) => overlay = Some(wanted),
                Change::Table { table, property, value } => {
                    let contacts = contacts(&hosts(&self.rack.plan));
                    self.rack
                        .within(|| Tables::connect(&contacts)?.set(table, property, value))
                        .map_err(|error| format!("{error:#}"))??;
                    self.rewrite(table, property)?;
                }
            }
        }
        match overlay.filter(|wanted| **wanted != self.overlay) {
            Some(wanted) => self.restart(wanted).map_err(|error| format!("{error:#}")),
            None => Ok(()),
        }
    }

    fn restart_instances(&mut self) -> Result<(), String> {
        if self.fresh.get() {
            return Ok(());
        }
        self.restart(&self.overlay.clone()).map_err(|error| format!("{error:#}"))
    }

    fn measure(&mut self) -> Result<Measured, String> {
        let warmed = self.load("warming up", self.warm);
        let report = warmed
            .and_then(|_| self.load("measuring", self.measured))
            .map_err(|error| format!("{error:#}"))?;
        Ok(Measured::of(&report))
    }

    fn stopped(&self) -> bool {
        self.stopped.get()
    }

    fn notify(&mut self, event: &TuneEvent<'_>) {
        let line = match event {
            TuneEvent::Before(measured, margin) => {
                format!(
                    "before: {}; two measurements differ by {:.0} %",
                    describe(measured),
                    margin * 100.0
                )
            }
            TuneEvent::Trying(candidate, number, of) => {
                self.bar.set_prefix(format!(
                    "{number}/{of} {}: {}",
                    candidate.class.name(),
                    candidate.proposed
                ));
                return;
            }
            TuneEvent::Tried(entry) => outcome(entry),
            TuneEvent::Recovered(entry) => {
                format!("undid a change that an earlier run left unfinished: {}", entry.proposed)
            }
            TuneEvent::After(measured) => format!("after: {}", describe(measured)),
        };
        self.bar.suspend(|| eprintln!("{line}"));
    }
}

impl Live<'_> {
    /// If a table's compression was changed, makes all instances rewrite the table's files with the
    /// new compression. Does nothing for other properties.
    fn rewrite(&self, table: &str, property: &str) -> Result<(), String> {
        let Some((keyspace, name)) = table.split_once('.').filter(|_| property == "compression")
        else {
            return Ok(());
        };
        for host in &hosts(&self.rack.plan) {
            for instance in &host.instances {
                let command = format!(
                    "{}/nodetool recompress_sstables {keyspace} {name}",
                    instance.home.display()
                );
                self.run(&host.name, &command)?;
            }
        }
        Ok(())
    }
}

/// Reads the properties of tables. Call it inside [`Deployment::within`], where the instances can
/// be reached.
pub(super) fn tables(rack: &Deployment, names: &[String]) -> Result<Vec<Table>> {
    let tables = Tables::connect(&contacts(&hosts(&rack.plan))).map_err(Error::msg)?;
    names.iter().map(|name| tables.table(name).map_err(Error::msg)).collect()
}

fn kernel_file(path: &str) -> Result<&str, String> {
    if is_kernel_file(path) {
        Ok(path)
    } else {
        Err(format!("{path} is not a kernel setting that tuning may change"))
    }
}

fn describe(measured: &Measured) -> String {
    format!("p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms", measured.p50, measured.p99, measured.p999)
}

fn outcome(entry: &Entry) -> String {
    let p99 = |measured: Option<Measured>| {
        measured.map_or("-".to_owned(), |measured| format!("{:.2}", measured.p99))
    };
    let what = format!("{}: {}", entry.class.name(), entry.proposed);
    let times = format!("p99 {} -> {} ms", p99(entry.before), p99(entry.after));
    match &entry.state {
        TrialState::Trying => format!("trying  {what}"),
        TrialState::Kept => format!("kept    {what} ({times})"),
        TrialState::Undone => format!("undone  {what} ({times})"),
        TrialState::Failed(why) => format!("failed  {what}: {why}"),
    }
}
