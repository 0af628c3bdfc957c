//! Reads the sensors of a plan in parallel.
#![allow(clippy::disallowed_methods, reason = "a test that waits for other processes")]

use sprat_plan::{Plan, Spec};
use sprat_power::Watts;
use sprat_power::sampling::Sampling;
use sprat_power::targets::{TargetKind, of_rack};
use std::time::{Duration, Instant};

const RACK: &str = "name = \"r\"\n[server]\ncores = 2\nmemory = \"1GiB\"\ndisks = [\"1GB\"]\n\
                    port-rate = \"1Gb/s\"\n\
                    [chassis]\nservers = 3\n[cassandra]\nreplication = 1\n";

fn plan(power: &str) -> Plan {
    Plan::new(Spec::from_toml(&format!("{RACK}{power}")).expect("a rack")).expect("a plan")
}

/// Rounds a mean to 1 µW. A mean is energy divided by measured seconds, and both are sums over
/// times that differ between runs, so a constant 70 W can have a mean of 70.00000000000001 W.
fn rounded(mean: Watts) -> f64 {
    (mean.0 * 1e6).round() / 1e6
}

#[test]
fn each_server_is_read_by_its_own_sensors() {
    let plan = plan(
        "[[power.sensors]]\nkind = \"command\"\ncommand = [\"sh\", \"-c\", \"test {name} = \
         c0-n{slot} && echo {slot}0\"]\n",
    );
    let sampling =
        Sampling::start(of_rack(&plan), Duration::from_millis(50), Duration::from_millis(200));
    let report = sampling.finish();
    let result: Vec<_> = report
        .targets
        .iter()
        .map(|target| (target.name.as_str(), target.watts.map(rounded)))
        .collect();
    assert_eq!(result, [("c0-n1", Some(10.0)), ("c0-n2", Some(20.0)), ("c0-n3", Some(30.0))]);
    let total = report.total.expect("all told");
    assert_eq!((total.of, total.instances, total.measured), (TargetKind::Server, 3, 3));
    // At least two readings: at the start and at the end. How many lie between depends on the
    // machine's load.
    assert!(
        report
            .targets
            .iter()
            .all(|target| target.sensors[0].reads >= 2 && target.sensors[0].failed == 0),
        "{report:?}"
    );
}

/// One sensor hangs until the test releases it. All other sensors are read repeatedly meanwhile.
#[test]
fn a_hanging_sensor_delays_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let go = folder.path().join("go");
    let hangs = format!(
        "test {{slot}} = 1 && while ! test -e {}; do sleep 0.05; done; echo {{slot}}",
        go.display()
    );
    let sensors = format!(
        "[power]\ntimeout = \"60s\"\nsensors = [{{ kind = \"command\", command = [\"sh\", \"-c\", \
         \"{hangs}\"] }}]\n"
    );
    let text = RACK.replace("servers = 3", "servers = 70");
    let plan =
        Plan::new(Spec::from_toml(&format!("{text}{sensors}")).expect("a rack")).expect("a plan");
    let sampling =
        Sampling::start(of_rack(&plan), Duration::from_secs(1), Duration::from_secs(3_600));
    let begun = Instant::now();
    while !sampling.report().targets[1..].iter().all(|target| target.sensors[0].reads >= 2) {
        assert!(begun.elapsed() < Duration::from_secs(50), "some wait for the one that hangs");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(sampling.report().targets[0].sensors[0].reads, 0);
    std::fs::write(go, "").expect("a file");
    sampling.stop();
    let report = sampling.finish();
    assert_eq!(report.targets[69].watts.map(rounded), Some(70.0));
}

#[test]
fn stopped_measurements_end_early() {
    let plan =
        plan("[[power.chassis]]\nkind = \"command\"\ncommand = [\"echo\", \"{chassis}90\"]\n");
    let sampling =
        Sampling::start(of_rack(&plan), Duration::from_secs(3_600), Duration::from_secs(36_000));
    while sampling
        .report()
        .targets
        .iter()
        .all(|target| target.sensors.iter().all(|sensor| sensor.reads == 0))
    {
        std::thread::yield_now();
    }
    sampling.stop();
    let report = sampling.finish();
    assert!(report.stopped && report.seconds < 3_600.0);
    let total = report.total.expect("it told");
    assert_eq!((total.of, rounded(total.watts)), (TargetKind::Chassis, 90.0));
    assert_eq!(report.targets[1].watts.map(rounded), Some(30.0), "a server has its part");
}
