//! The results of histories.

use crate::trace::Trace;
use std::cell::RefCell;
use std::fmt;
use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

/// Totals over some histories.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Summary {
    /// Number of histories.
    pub histories: u64,
    /// Number of calls on objects.
    pub operations: u64,
    /// Number of calls whose outcome is known.
    pub answered: u64,
    /// Number of calls on a cluster's objects that were answered without a coordinator, after the
    /// last of its leases had ended.
    pub alone: u64,
    /// Number of transactions that clients tried to commit.
    pub transactions: u64,
    /// Number of transactions that were committed.
    pub committed: u64,
    /// Number of pages of scans.
    pub pages: u64,
    /// Number of backups of a cluster.
    pub backups: u64,
    /// Number of changes that watches of a cluster's tables reported.
    pub reports: u64,
    /// Number of crashes of servers. With a single server, crashes because a start failed or
    /// because its disk failed count too; in a cluster only injected crashes count.
    pub crashes: u64,
    /// Number of proper shutdowns of servers; in a cluster, number of times that a server ended
    /// because its session with the coordinator ended.
    pub stops: u64,
    /// Number of changes of the leader among several coordinators.
    pub takeovers: u64,
    /// Number of starts of a single server that replayed a log.
    pub replays: u64,
    /// Number of replays that found the end of the log torn.
    pub cuts: u64,
    /// Number of faults that the simulator injected into disks.
    pub disk_faults: u64,
    /// Number of frames sent.
    pub frames: u64,
    /// Number of frames lost.
    pub frames_lost: u64,
    /// Number of requests, and of ranges of long messages, that were sent or requested again. Not
    /// counted in a cluster.
    pub retransmissions: u64,
    /// Number of replicas of sealed segments that were created again.
    pub healed: u64,
    /// Number of tablets that moved while they were served.
    pub moved: u64,
    /// Number of bits that were flipped in replicas on disk.
    pub flips: u64,
    /// Number of whole racks that were lost for good and had more servers than a log has replicas.
    pub racks_lost: u64,
    /// Number of segments that the cleaner combined or compacted.
    pub cleaned: u64,
    /// Number of tables that were dropped and replaced; in a cluster, number of requests to drop a
    /// table.
    pub recreated: u64,
    /// Number of objects whose calls overlap too much to decide.
    pub undecided: u64,
    /// Virtual time of all histories.
    pub time: Duration,
    /// A hash of all events.
    pub hash: u64,
}

impl AddAssign for Summary {
    fn add_assign(&mut self, other: Self) {
        self.histories += other.histories;
        self.operations += other.operations;
        self.answered += other.answered;
        self.alone += other.alone;
        self.transactions += other.transactions;
        self.committed += other.committed;
        self.pages += other.pages;
        self.backups += other.backups;
        self.reports += other.reports;
        self.crashes += other.crashes;
        self.stops += other.stops;
        self.takeovers += other.takeovers;
        self.replays += other.replays;
        self.cuts += other.cuts;
        self.disk_faults += other.disk_faults;
        self.frames += other.frames;
        self.frames_lost += other.frames_lost;
        self.retransmissions += other.retransmissions;
        self.cleaned += other.cleaned;
        self.healed += other.healed;
        self.moved += other.moved;
        self.flips += other.flips;
        self.racks_lost += other.racks_lost;
        self.recreated += other.recreated;
        self.undecided += other.undecided;
        self.time += other.time;
        // The sum must not depend on the order in which histories are added.
        self.hash ^= other.hash;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            histories,
            operations,
            answered,
            pages,
            crashes,
            stops,
            takeovers,
            replays,
            cuts,
            ..
        } = self;
        let Self {
            disk_faults,
            frames,
            frames_lost,
            retransmissions,
            cleaned,
            healed,
            recreated,
            transactions,
            committed,
            undecided,
            ..
        } = self;
        let (moved, racks, flips, backups) =
            (self.moved, self.racks_lost, self.flips, self.backups);
        writeln!(
            f,
            "histories       {histories:>12}  in {:.1} s of virtual time",
            self.time.as_secs_f64()
        )?;
        writeln!(f, "operations      {operations:>12}  {answered} with a known end")?;
        writeln!(f, "without a lease {:>12}  of a coordinator", self.alone)?;
        writeln!(f, "transactions    {transactions:>12}  {committed} committed")?;
        writeln!(f, "pages of scans  {pages:>12}")?;
        writeln!(f, "backups         {backups:>12}")?;
        writeln!(f, "watched changes {:>12}", self.reports)?;
        writeln!(f, "crashes         {crashes:>12}  and {stops} stops in order")?;
        writeln!(f, "takeovers       {takeovers:>12}")?;
        writeln!(
            f,
            "replays         {replays:>12}  {cuts} of a log with a torn end, which was cut"
        )?;
        writeln!(f, "disk faults     {disk_faults:>12}  and {flips} bits flipped")?;
        writeln!(f, "frames          {frames:>12}  {frames_lost} lost")?;
        writeln!(f, "retransmissions {retransmissions:>12}")?;
        writeln!(f, "cleaned         {cleaned:>12}  segments")?;
        writeln!(f, "healed          {healed:>12}  replicas")?;
        writeln!(f, "moved           {moved:>12}  tablets")?;
        writeln!(f, "lost            {racks:>12}  racks, whole and for good")?;
        writeln!(f, "tables dropped  {recreated:>12}")?;
        writeln!(f, "undecided       {undecided:>12}  objects")?;
        write!(f, "hash         {:>15}", format!("{:016x}", self.hash))
    }
}

/// Runs a history and reports on it. The store's assertions are a further check: a panic counts as
/// a failure.
pub(crate) fn run_seed(
    seed: u64,
    cluster: bool,
    operations: Option<u64>,
    run: impl FnOnce(Rc<RefCell<Trace>>) -> Result<Summary, String>,
) -> Result<(Summary, Trace), Box<Failure>> {
    let trace = Rc::new(RefCell::new(Trace::default()));
    let shared = Rc::clone(&trace);
    let result = catch_unwind(AssertUnwindSafe(move || run(shared)));
    let result = result.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("without a word")))
    });
    let trace = trace.borrow().clone();
    match result {
        Ok(mut summary) => {
            summary.hash = trace.hash();
            Ok((summary, trace))
        }
        Err(what) => Err(Box::new(Failure {
            seed,
            what,
            trace: trace.lines().to_vec(),
            cluster,
            operations,
        })),
    }
}

/// A history that violates the guarantees of the store, or that did not end.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of the history.
    pub seed: u64,
    /// A description of the fault.
    pub what: String,
    /// The events of the history, one on each line.
    pub trace: Vec<String>,
    /// Whether the run simulates a cluster.
    pub cluster: bool,
    /// The number of operations of the history, if the seed did not decide it.
    pub operations: Option<u64>,
}

impl Failure {
    /// Returns the command that repeats the history and shows its events.
    #[must_use]
    pub fn command(&self) -> String {
        let Self { seed, cluster, operations, .. } = self;
        let cluster = if *cluster { "--cluster " } else { "" };
        let operations =
            operations.map_or(String::new(), |operations| format!("--operations {operations} "));
        format!("sprat sim {cluster}{operations}--seed {seed} --verbose")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, what, .. } = self;
        write!(f, "seed {seed}: {what}\nto see it happen: {}", self.command())
    }
}

impl std::error::Error for Failure {}
