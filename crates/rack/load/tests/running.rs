//! Runs whole loads against a substitute for Cassandra, which can stall, fail and forget.
#![allow(clippy::disallowed_methods, reason = "a test that waits for what runs beside it")]

use sprat_load::{
    Answer, Failure, FinishedLoad, Load, LoadError, LoadTarget, Operation, RunningLoad, Step,
    Workload,
};
use sprat_testing::PATIENCE;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Threads that send and receive in a load.
const THREADS: u32 = 2;

/// Stores values, and answers at once except while it stalls.
#[derive(Debug, Default)]
struct Memory {
    begun: Mutex<Option<Instant>>,
    /// Start and end of the stall, in ms since the first operation; `None`: no stall.
    still: Option<(u64, u64)>,
    /// Whether the target acknowledges all writes but forgets those of key 0.
    forgets: bool,
    /// Writes fail whose write timestamp is a multiple of this; `None`: none fails.
    fails: Option<u64>,
    never_answers: bool,
    /// How long the target's first operations block all threads of the load; `None`: they block
    /// none.
    holds: Option<Duration>,
    held: AtomicU32,
    unreadable: AtomicBool,
    values: Mutex<HashMap<u64, u64>>,
}

fn refused() -> Failure {
    Failure { kind: "refused", text: "it was told to".to_owned() }
}

impl LoadTarget for Memory {
    async fn perform(&self, operation: Operation) -> Result<Answer, Failure> {
        let since = self.begun.lock().expect("no panic").get_or_insert_with(Instant::now).elapsed();
        if let Some(time) = self.holds
            && self.held.fetch_add(1, Ordering::Relaxed) < THREADS
        {
            std::thread::sleep(time);
        }
        if self.never_answers {
            std::future::pending::<()>().await;
        }
        if let Some((from, to)) = self.still
            && (Duration::from_millis(from)..Duration::from_millis(to)).contains(&since)
        {
            tokio::time::sleep(Duration::from_millis(to) - since).await;
        }
        let mut values = self.values.lock().expect("no panic");
        match operation {
            Operation::Put { stamp, .. } if self.fails.is_some_and(|every| stamp % every == 0) => {
                Err(refused())
            }
            Operation::Put { key, stamp } => {
                if !(self.forgets && key == 0) {
                    let value = values.entry(key).or_insert(0);
                    *value = stamp.max(*value);
                }
                Ok(Answer::Done)
            }
            Operation::Get { key } if values.contains_key(&key) => Ok(Answer::Done),
            _ => Ok(Answer::Nothing),
        }
    }

    async fn stored(&self, key: u64) -> Result<Option<u64>, Failure> {
        match self.unreadable.load(Ordering::Relaxed) {
            true => Err(refused()),
            false => Ok(self.values.lock().expect("no panic").get(&key).copied()),
        }
    }
}

fn load(rate: f64, millis: u64) -> Load {
    let mut load =
        Load::new(["127.0.0.1:9042"], vec![Step { rate, duration: Duration::from_millis(millis) }]);
    (load.workload, load.reads, load.remember) = (Workload::KeyValue { keys: 50 }, 0.2, true);
    load.window = Duration::from_millis(250);
    load
}

fn run(load: Load, target: Memory) -> FinishedLoad<Memory> {
    let patience = if target.never_answers { load.duration() * 3 } else { PATIENCE };
    let running = RunningLoad::start_on(load, target).expect("it starts");
    let begun = Instant::now();
    // A load that hangs is stopped, so that the test fails instead of hanging.
    while !running.is_done() && begun.elapsed() < patience {
        std::thread::sleep(Duration::from_millis(5));
    }
    running.stop();
    running.finish()
}

#[test]
fn every_scheduled_operation_completes() {
    let finished = run(load(2_000.0, 1_000), Memory::default());
    let report = &finished.report;
    assert_eq!(
        (report.scheduled, report.sent, report.done, report.failed),
        (2_000, 2_000, 2_000, 0)
    );
    assert_eq!((report.windows.len(), report.stopped, report.seconds), (4, false, 1.0));
    assert!(
        report.windows.iter().all(|window| window.scheduled == 500 && window.full),
        "{:?}",
        report.windows
    );
    assert_eq!(
        report.windows.iter().map(|window| window.delivered).sum::<u64>() + report.late,
        2_000
    );
    assert_eq!([report.response.count, report.service.count, report.lateness.count], [2_000; 3]);
    assert!(report.found_nothing < 200);
    let verified = finished.verify().expect("it can be read");
    assert_eq!(
        (verified.checked, verified.lost_keys, verified.ahead, verified.unread),
        (50, 0, 0, 0)
    );
    let json = serde_json::to_value(report).expect("it can be written");
    assert_eq!(json["windows"][3]["asked"], 500);
    eprintln!("lateness {:?}, response {:?}", report.lateness, report.response);
}

#[test]
fn stalls_are_not_hidden() {
    let target = Memory { still: Some((500, 1_250)), ..Memory::default() };
    let finished = run(load(400.0, 2_000), target);
    let report = &finished.report;
    assert_eq!((report.scheduled, report.done), (800, 800));
    // Operations scheduled during the stall waited for its end.
    assert!(
        report.response.max >= 740_000 && report.response.p99 >= 700_000,
        "{:?}",
        report.response
    );
    let still: Vec<usize> =
        (0..8).filter(|window| report.windows[*window].delivered == 0).collect();
    assert!(
        !still.is_empty() && still.iter().all(|window| report.missed.contains(window)),
        "{:?}",
        report.windows
    );
    assert!(!report.kept_rate());
}

#[test]
fn lateness_counts_in_response_times() {
    let finished = run(
        load(400.0, 1_000),
        Memory { holds: Some(Duration::from_millis(500)), ..Memory::default() },
    );
    let report = &finished.report;
    assert_eq!((report.scheduled, report.done), (400, 400));
    // Half of all operations could not be sent in time. They were answered at once when they were
    // sent, but late compared with their schedule.
    assert!(
        report.lateness.max >= 400_000 && report.lateness.p99 >= 400_000,
        "{:?}",
        report.lateness
    );
    assert!(report.response.p99 >= 400_000 && !report.kept_rate(), "{:?}", report.response);
    assert!(report.service.p50 < report.lateness.p99, "{:?}", report.service);
}

#[test]
fn operations_beyond_the_limit_are_counted_and_never_sent() {
    let mut load = load(400.0, 1_000);
    (load.outstanding, load.timeout) = (40, Duration::from_millis(100));
    let finished = run(load, Memory { never_answers: true, ..Memory::default() });
    let report = &finished.report;
    assert_eq!(
        (report.scheduled, report.sent, report.not_sent, report.unanswered),
        (400, 40, 360, 40)
    );
    assert_eq!((report.done, report.failed, report.failures.kinds[0].count), (0, 40, 40));
    assert!(!report.kept_rate() && report.missed == [0, 1, 2, 3]);
}

#[test]
fn failures_are_counted_by_kind_with_an_example() {
    let finished = run(load(400.0, 500), Memory { fails: Some(4), ..Memory::default() });
    let report = &finished.report;
    assert!(report.failed > 0 && report.done + report.failed == 200, "{report:?}");
    let kind = &report.failures.kinds[0];
    assert_eq!(
        (kind.kind.as_str(), kind.count, kind.example.as_str()),
        ("refused", report.failed, "it was told to")
    );
    assert!(!report.kept_rate());
    assert_eq!(
        finished.verify().expect("it can be read").lost_keys,
        0,
        "a failed write was never acknowledged"
    );
}

#[test]
fn lost_acknowledged_writes_are_found() {
    let finished = run(load(1_000.0, 500), Memory { forgets: true, ..Memory::default() });
    let verified = finished.verify().expect("it can be read");
    assert_eq!((verified.checked, verified.lost_keys), (50, 1));
    assert!(
        verified.lost[0].key == 0
            && verified.lost[0].found == 0
            && verified.lost[0].acknowledged > 0
    );
}

#[test]
fn failed_verifications_are_errors() {
    let mut forgetful = load(400.0, 100);
    forgetful.remember = false;
    assert!(matches!(run(forgetful, Memory::default()).verify(), Err(LoadError::NotRemembered)));
    let target = Memory { unreadable: AtomicBool::new(true), ..Memory::default() };
    match run(load(400.0, 100), target).verify() {
        Err(LoadError::Unread { unread: 50, example }) => assert_eq!(example, "it was told to"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn loads_report_progress_and_can_be_stopped() {
    let running =
        RunningLoad::start_on(load(400.0, 3_600_000), Memory::default()).expect("it starts");
    let begun = Instant::now();
    while running.progress().last.is_none_or(|window| window.begins < 0.2 || window.scheduled < 100)
    {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", running.progress());
        std::thread::sleep(Duration::from_millis(10));
    }
    let progress = running.progress();
    assert!(
        progress.done > 0 && progress.done <= progress.scheduled && !running.is_done(),
        "{progress:?}"
    );
    assert_eq!(progress.length, Duration::from_secs(3_600));
    assert!(
        progress.last.is_some_and(|window| window.full && window.scheduled == 100),
        "{progress:?}"
    );
    running.stop();
    let finished = running.finish();
    let report = &finished.report;
    assert!(
        report.stopped && report.seconds < 60.0 && report.scheduled == report.done,
        "{report:?}"
    );
    assert!(!report.windows.last().expect("some").full);
    assert_eq!(finished.verify().expect("it can be read").lost_keys, 0);
}

#[test]
fn dropping_a_load_stops_it() {
    let begun = Instant::now();
    drop(RunningLoad::start_on(load(1.0, 3_600_000), Memory::default()).expect("it starts"));
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn unreachable_contacts_are_named() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|socket| socket.local_addr())
        .expect("a port");
    let load =
        Load::new([free.to_string()], vec![Step { rate: 1.0, duration: Duration::from_secs(1) }]);
    let error = RunningLoad::start(load).expect_err("nobody is there").to_string();
    assert!(
        error.contains(&free.to_string())
            && error.contains("refused")
            && error.contains("rpc_address"),
        "{error}"
    );
}
