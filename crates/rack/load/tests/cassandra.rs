//! A real Cassandra under load, and one that stands still for two seconds.
#![allow(clippy::disallowed_methods, reason = "a test that waits for a process")]

use crate::support;
use rustix::process::Signal;
use sprat_load::{
    Arrivals, Cassandra, Consistency, Finished, Load, LoadError, Operation, Operations, Running,
    Step, Target as _, Workload,
};
use std::thread::sleep;
use std::time::{Duration, Instant};
use support::Node;

/// Longest run, its end included: its seconds, its timeouts, and room.
const PATIENCE: Duration = Duration::from_secs(60);

fn load(node: &Node, rate: f64, seconds: u64, workload: Workload) -> Load {
    let step = Step { rate, duration: Duration::from_secs(seconds) };
    let mut load = Load::new([node.contact.clone()], vec![step]);
    (load.workload, load.replication, load.consistency) = (workload, 1, Consistency::One);
    load
}

fn run(load: Load) -> Finished {
    finish(Running::start(load).unwrap_or_else(|error| panic!("{error}")))
}

fn finish(running: Running) -> Finished {
    let begun = Instant::now();
    while !running.is_done() && begun.elapsed() < PATIENCE {
        sleep(Duration::from_millis(20));
    }
    running.stop(); // nothing, where it is done
    let finished = running.finish();
    assert!(begun.elapsed() < PATIENCE + Duration::from_secs(10), "it ends when it is told to");
    finished
}

#[track_caller]
fn nothing_lost(finished: &Finished, keys: u64) {
    let verified = finished.verify().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        (verified.checked, verified.lost_keys, verified.unread),
        (keys, 0, 0),
        "{verified:?}"
    );
}

fn tell(what: &str, finished: &Finished) {
    let report = &finished.report;
    let delivered: Vec<u64> = report.windows.iter().map(|window| window.delivered).collect();
    eprintln!(
        "{what}: response {:?}, service {:?}, lateness {:?}, delivered {delivered:?}, missed {:?}, failed {} {:?}",
        report.response,
        report.service,
        report.lateness,
        report.missed,
        report.failed,
        report.failures
    );
}

/// One node for all: it takes longer to start than to be asked.
#[test]
#[ignore = "starts Cassandra: make test-rack"]
fn a_real_cassandra_is_loaded_and_its_stall_is_seen() {
    let Some(node) = Node::start() else { return };

    let mut values = load(&node, 500.0, 3, Workload::KeyValue { keys: 300 });
    (values.remember, values.arrivals) = (true, Arrivals::Poisson);
    let finished = run(values.clone());
    tell("keys and values", &finished);
    let report = &finished.report;
    assert!(report.asked > 1_000 && report.done == report.asked, "{report:?}");
    nothing_lost(&finished, 300);
    // Again: its writes are above those of the run before.
    values.steps[0].duration = Duration::from_secs(1);
    nothing_lost(&run(values), 300);

    for (what, workload) in
        [("series", Workload::Series { sensors: 20 }), ("wide", Workload::Wide { partitions: 3 })]
    {
        let finished = run(load(&node, 300.0, 2, workload));
        tell(what, &finished);
        let report = &finished.report;
        assert_eq!((report.asked, report.done), (600, 600), "{report:?}");
        assert!(report.found_nothing < 200, "most reads find what was written: {report:?}");
    }
    let again = load(&node, 100.0, 1, Workload::Wide { partitions: 3 });
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let there = runtime
        .block_on(Cassandra::connect(&again))
        .unwrap_or_else(|error| panic!("{error}"))
        .rows();
    let mut operations = Operations::new(&again, 1, Vec::new());
    let written =
        (0..600).filter(|_| matches!(operations.next(0), Operation::Grow { .. })).count() as u64;
    assert_eq!(
        there.iter().sum::<u64>(),
        written,
        "it goes on from the rows that are there: {there:?}"
    );
    assert_eq!(run(again).report.found_nothing, 0);

    a_stall_is_seen(&node);
    what_is_wrong_is_named(&node);
}

fn a_stall_is_seen(node: &Node) {
    let mut values = load(node, 200.0, 6, Workload::KeyValue { keys: 300 });
    values.remember = true;
    let running = Running::start(values).unwrap_or_else(|error| panic!("{error}"));
    sleep(Duration::from_secs(2));
    node.signal(Signal::STOP);
    sleep(Duration::from_secs(2));
    node.signal(Signal::CONT);
    let finished = finish(running);
    tell("two seconds of standing still", &finished);
    let report = &finished.report;
    assert_eq!((report.asked, report.not_sent), (1_200, 0));
    // Of six seconds' operations a third came during the stall, and none of them was held back.
    assert!(report.response.p999 >= 1_500_000 && report.response.max >= 1_900_000, "{report:?}");
    assert!(report.response.p99 >= 1_500_000 && report.service.p99 >= 1_500_000, "{report:?}");
    assert!(!report.missed.is_empty() && !report.kept_rate(), "{report:?}");
    nothing_lost(&finished, 300);
}

fn what_is_wrong_is_named(node: &Node) {
    let good = || load(node, 1.0, 1, Workload::KeyValue { keys: 1 });
    let error = |load: Load| Running::start(load).expect_err("it must not start");
    let mut elsewhere = good();
    elsewhere.datacenter = "nowhere".to_owned();
    assert!(matches!(error(elsewhere), LoadError::Datacenter { there, .. } if there == "dc1"));
    let mut many = good();
    many.replication = 3;
    assert!(matches!(error(many), LoadError::Nodes { nodes: 1, .. }));
    // A port at which somebody else listens.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("it has one").to_string();
    let answers = std::thread::spawn(move || drop(silent.accept()));
    let mut other = good();
    other.contacts = vec![address.clone()];
    let said = error(other).to_string();
    assert!(said.contains(&address), "{said}");
    answers.join().expect("no panic");
}
