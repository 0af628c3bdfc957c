//! Puts a load on a real Cassandra, and on one that stalls for two seconds.
#![allow(clippy::disallowed_methods, reason = "a test that waits for a process")]

use crate::support;
use rustix::process::Signal;
use sprat_load::{
    Arrivals, Cassandra, Consistency, FinishedLoad, Load, LoadError, LoadTarget as _, Operation,
    Operations, RunningLoad, Step, Workload,
};
use sprat_testing::PATIENCE;
use std::thread::sleep;
use std::time::{Duration, Instant};
use support::Node;

fn load(node: &Node, rate: f64, seconds: u64, workload: Workload) -> Load {
    let step = Step { rate, duration: Duration::from_secs(seconds) };
    let mut load = Load::new([node.contact.clone()], vec![step]);
    (load.workload, load.replication, load.consistency) = (workload, 1, Consistency::One);
    load
}

fn run(load: Load) -> FinishedLoad {
    finish(RunningLoad::start(load).unwrap_or_else(|error| panic!("{error}")))
}

fn finish(running: RunningLoad) -> FinishedLoad {
    let begun = Instant::now();
    while !running.is_done() && begun.elapsed() < PATIENCE {
        sleep(Duration::from_millis(20));
    }
    running.stop(); // has no effect if the load is done
    let finished = running.finish();
    assert!(begun.elapsed() < PATIENCE + Duration::from_secs(10), "it ends after stop");
    finished
}

#[track_caller]
fn assert_nothing_lost(finished: &FinishedLoad, keys: u64) {
    let verified = finished.verify().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        (verified.checked, verified.lost_keys, verified.unread),
        (keys, 0, 0),
        "{verified:?}"
    );
}

fn print_report(what: &str, finished: &FinishedLoad) {
    let report = &finished.report;
    let delivered: Vec<u64> = report.windows.iter().map(|window| window.delivered).collect();
    eprintln!(
        "{what}: response {:?}, service {:?}, lateness {:?}, delivered {delivered:?}, missed {:?}, \
         failed {} {:?}",
        report.response,
        report.service,
        report.lateness,
        report.missed,
        report.failed,
        report.failures
    );
}

/// One test does everything with one node, since starting a node takes longest.
#[test]
#[ignore = "starts Cassandra: make test-rack"]
fn a_stall_of_a_real_cassandra_shows_in_the_report() {
    let Some(node) = Node::start() else { return };

    let mut values = load(&node, 500.0, 3, Workload::KeyValue { keys: 300 });
    (values.remember, values.arrivals) = (true, Arrivals::Poisson);
    let finished = run(values.clone());
    print_report("keys and values", &finished);
    let report = &finished.report;
    assert!(report.scheduled > 1_000 && report.done == report.scheduled, "{report:?}");
    assert_nothing_lost(&finished, 300);
    // A second run, whose write timestamps are above those of the first run.
    values.steps[0].duration = Duration::from_secs(1);
    assert_nothing_lost(&run(values), 300);

    for (what, workload) in
        [("series", Workload::Series { sensors: 20 }), ("wide", Workload::Wide { partitions: 3 })]
    {
        let finished = run(load(&node, 300.0, 2, workload));
        print_report(what, &finished);
        let report = &finished.report;
        assert_eq!((report.scheduled, report.done), (600, 600), "{report:?}");
        assert!(report.found_nothing < 200, "most reads find a value: {report:?}");
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
    assert_eq!(there.iter().sum::<u64>(), written, "rows follow those that exist: {there:?}");
    assert_eq!(run(again).report.found_nothing, 0);

    stalls_show_in_the_report(&node);
    errors_name_the_remedy(&node);
}

fn stalls_show_in_the_report(node: &Node) {
    let mut values = load(node, 200.0, 6, Workload::KeyValue { keys: 300 });
    values.remember = true;
    let running = RunningLoad::start(values).unwrap_or_else(|error| panic!("{error}"));
    sleep(Duration::from_secs(2));
    node.signal(Signal::STOP);
    sleep(Duration::from_secs(2));
    node.signal(Signal::CONT);
    let finished = finish(running);
    print_report("two seconds of standing still", &finished);
    let report = &finished.report;
    assert_eq!((report.scheduled, report.not_sent), (1_200, 0));
    // A third of the operations of six seconds were scheduled during the stall, and none was held
    // back.
    assert!(report.response.p999 >= 1_500_000 && report.response.max >= 1_900_000, "{report:?}");
    assert!(report.response.p99 >= 1_500_000 && report.service.p99 >= 1_500_000, "{report:?}");
    assert!(!report.missed.is_empty() && !report.kept_rate(), "{report:?}");
    assert_nothing_lost(&finished, 300);
}

fn errors_name_the_remedy(node: &Node) {
    let good = || load(node, 1.0, 1, Workload::KeyValue { keys: 1 });
    let error = |load: Load| RunningLoad::start(load).expect_err("it must not start");
    let mut elsewhere = good();
    elsewhere.datacenter = "nowhere".to_owned();
    assert!(matches!(error(elsewhere), LoadError::Datacenter { there, .. } if there == "dc1"));
    let mut many = good();
    many.replication = 3;
    assert!(matches!(error(many), LoadError::Nodes { nodes: 1, .. }));
    // Here another program listens at the port.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("it has one").to_string();
    let answers = std::thread::spawn(move || drop(silent.accept()));
    let mut other = good();
    other.contacts = vec![address.clone()];
    let said = error(other).to_string();
    assert!(said.contains(&address), "{said}");
    answers.join().expect("no panic");
}
