//! Tests of energy and costs.

use proptest::prelude::*;
use sprat_plan::power::{Cost, CostOption};
use sprat_power::cost::{HOURS, published, totals};
use sprat_power::meter::{MAX_POINTS, Meter};
use sprat_power::report::{MeasuredTarget, Report};
use sprat_power::targets::TargetKind;
use sprat_power::{Cause, Error, Reading, Watts};

fn failed() -> Error {
    Error { kind: "command", place: "here".to_owned(), cause: Cause::Silent("1".to_owned()) }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

proptest! {
    /// Power that changes linearly is integrated exactly, whatever the times of the readings. A
    /// counter of the same power gives the same energy.
    #[test]
    fn energy_is_the_integral_of_power(
        from in 0.0..500.0_f64,
        slope in 0.0..50.0_f64,
        steps in prop::collection::vec(0.1..3.0_f64, 1..40),
    ) {
        let (mut power, mut counter) = (Meter::with_interval(1.0), Meter::with_interval(1.0));
        let under = |at: f64| from * at + slope * at * at / 2.0;
        let mut at = 0.0;
        for step in std::iter::once(0.0).chain(steps) {
            at += step;
            power.record(at, Ok(Reading::Watts(Watts(from + slope * at))));
            counter.record(at, Ok(Reading::Joules(under(at))));
        }
        prop_assert!(close(power.joules, under(at)), "{} {}", power.joules, under(at));
        prop_assert!(close(counter.joules, under(at)));
        prop_assert!(close(power.covered, at) && close(counter.covered, at));
    }
}

#[test]
fn gaps_are_counted_only_by_counters() {
    let (mut power, mut counter) = (Meter::with_interval(1.0), Meter::with_interval(1.0));
    for at in [0.0, 1.0, 9.0, 10.0] {
        power.record(at, Ok(Reading::Watts(Watts(100.0))));
        counter.record(at, Ok(Reading::Joules(100.0 * at)));
    }
    assert!(close(power.joules, 200.0) && close(power.covered, 2.0), "{power:?}");
    assert!(close(counter.joules, 1_000.0) && close(counter.covered, 10.0), "{counter:?}");
    // A single failed reading leaves no gap in the energy of power readings.
    let mut meter = Meter::with_interval(1.0);
    meter.record(0.0, Ok(Reading::Watts(Watts(10.0))));
    meter.record(1.0, Err(failed()));
    assert_eq!((meter.now, meter.error.clone()), (None, Some(failed())));
    meter.record(2.0, Ok(Reading::Watts(Watts(30.0))));
    assert!(
        close(meter.joules, 40.0)
            && meter.failed == 1
            && meter.error.is_none()
            && meter.peak == Watts(30.0)
    );
}

#[test]
fn a_long_run_keeps_a_bounded_number_of_points() {
    let mut meter = Meter::with_interval(1.0);
    for at in 0..20_000 {
        meter.record(f64::from(at), Ok(Reading::Watts(Watts(f64::from(at % 2) * 10.0))));
    }
    let points = meter.points();
    assert!(points.len() < MAX_POINTS && points.len() > MAX_POINTS / 4, "{}", points.len());
    assert!(points.iter().all(|(_, watts)| close(*watts, 5.0)), "each stands for as many of both");
    assert!(points.is_sorted_by(|one, other| one.0 < other.0));
}

fn measured(name: &str, of: TargetKind, watts: &[(&'static str, Option<f64>)]) -> MeasuredTarget {
    let meter = |(kind, watts): &(&'static str, Option<f64>)| {
        let mut meter = Meter::with_interval(1.0);
        for at in [0.0, 1.0] {
            meter.record(at, watts.map(|watts| Reading::Watts(Watts(watts))).ok_or_else(failed));
        }
        (*kind, "there".to_owned(), meter)
    };
    let instances = if of == TargetKind::Server { 2 } else { 4 };
    MeasuredTarget {
        name: name.to_owned(),
        of,
        chassis: 0,
        instances,
        meters: watts.iter().map(meter).collect(),
    }
}

#[test]
fn only_sensors_of_the_first_kind_count() {
    let one = measured(
        "a",
        TargetKind::Server,
        &[("shelly", Some(40.0)), ("shelly", Some(30.0)), ("rapl", Some(25.0))],
    );
    let other = measured(
        "b",
        TargetKind::Server,
        &[("shelly", Some(50.0)), ("shelly", None), ("rapl", Some(25.0))],
    );
    let report = Report::of(&[one.clone(), other], 1.0, 1.0, false);
    assert_eq!(report.targets[0].watts, Some(Watts(70.0)));
    assert_eq!(report.targets[0].watts_per_instance, Some(Watts(35.0)));
    assert_eq!(report.targets[1].watts, None, "a half of what a server takes is not what it takes");
    let total = report.total.expect("one told");
    assert_eq!(
        (total.watts, total.measured, total.there_are, total.instances),
        (Watts(70.0), 1, 2, 2)
    );
    assert!(!report.is_whole());
    let report = Report::of(&[one], 1.0, 1.0, false);
    assert!(report.is_whole());
    assert_eq!(report.joules_per_million(1_000), Some(70.0 / 1e-3));
    assert_eq!(report.joules_per_million_over(1_000, 10.0), Some(700.0 / 1e-3));
    assert_eq!(report.joules_per_million(0), None);
    assert!(
        !Report::of(&[measured("a", TargetKind::Server, &[("ipmi", Some(1.0))])], 2.0, 1.0, false)
            .is_whole(),
        "half of the time"
    );
}

/// A sensor that hangs or restarts affects no other sensor. The report states which readings are
/// missing, and for how long.
#[test]
fn missing_readings_are_reported() {
    let read = |name: &str, until: i32| {
        let mut one = measured(name, TargetKind::Server, &[("shelly", None)]);
        let mut meter = Meter::with_interval(1.0);
        (0..=10).for_each(|at| {
            meter.record(
                f64::from(at),
                if at <= until { Ok(Reading::Watts(Watts(40.0))) } else { Err(failed()) },
            );
        });
        one.meters[0].2 = meter;
        one
    };
    let report = Report::of(&[read("a", 10), read("b", 2), read("c", -1)], 10.0, 1.0, false);
    let unread: Vec<_> =
        report.targets.iter().map(|target| (target.joules, target.unread)).collect();
    assert_eq!(unread, [(Some(400.0), 0.0), (Some(80.0), 8.0), (None, 10.0)]);
    let total = report.total.expect("two told");
    assert_eq!((total.joules, total.measured, total.there_are), (480.0, 2, 3));
    assert!(close(total.unread, 18.0 / 30.0), "{total:?}");
    assert_eq!(
        (report.joules_per_million(1_000), report.joules_per_million_over(1_000, 5.0)),
        (None, None)
    );
    assert!(!report.is_whole());

    // The first kind counts even while it gives no reading: RAPL measures only a part of a server's
    // power.
    let silent = measured("a", TargetKind::Server, &[("redfish", None), ("rapl", Some(25.0))]);
    let report = Report::of(&[silent], 1.0, 1.0, false);
    assert_eq!((report.targets[0].watts, report.total), (None, None));
    assert!(report.targets[0].sensors[0].counts && !report.targets[0].sensors[1].counts);

    // A counter that restarts loses only one interval.
    let mut meter = Meter::with_interval(1.0);
    meter.record(0.0, Ok(Reading::Joules(0.0)));
    meter.record(1.0, Ok(Reading::Joules(50.0)));
    let restarted = Error { cause: Cause::Restarted("it began again".to_owned()), ..failed() };
    meter.record(2.0, Err(restarted));
    meter.record(3.0, Ok(Reading::Joules(60.0)));
    assert!(
        close(meter.joules, 110.0) && close(meter.covered, 2.0) && meter.failed == 1,
        "{meter:?}"
    );
    assert!(close(meter.peak.0, 60.0));
}

#[test]
fn servers_without_sensors_share_the_chassis_power() {
    let servers =
        || [measured("a", TargetKind::Server, &[]), measured("b", TargetKind::Server, &[])];
    let chassis = |watts| measured("c0", TargetKind::Chassis, &[("redfish", watts)]);
    let all: Vec<_> = servers().into_iter().chain([chassis(Some(100.0))]).collect();
    let report = Report::of(&all, 1.0, 1.0, false);
    assert_eq!(report.targets[0].watts, Some(Watts(50.0)));
    assert!(report.targets[0].shared && report.is_whole());
    let total = report.total.expect("it told");
    assert_eq!(
        (total.of, total.watts, total.watts_per_instance),
        (TargetKind::Chassis, Watts(100.0), Some(Watts(25.0)))
    );
    let all: Vec<_> = servers().into_iter().chain([chassis(None)]).collect();
    assert_eq!(Report::of(&all, 1.0, 1.0, false).total, None);
}

#[test]
fn costs_of_the_published_servers() {
    let cost = Cost { options: published(), carbon: Some(400.0), ..Cost::default() };
    let all = totals(&cost);
    let each: Vec<f64> = all.iter().map(|total| total.watts_per_instance.0).collect();
    assert_eq!(each, [36.0, 300.0, 375.0], "published, each of them for an instance");
    let servers: Vec<f64> = all.iter().map(|total| total.option.power.0).collect();
    assert_eq!(servers, [72.0, 1_200.0, 1_500.0], "published, each of them for a server");
    let mini = &all[0];
    assert_eq!(mini.servers, 6);
    assert!(close(mini.kwh_per_year, 0.432 * 1.4 * HOURS), "{mini:?}");
    assert!(close(mini.total, mini.kwh_per_year * 0.15 * 5.0));
    assert_eq!(mini.carbon.map(f64::round), Some((mini.kwh_per_year * 5.0 * 0.4).round()));
    // Servers are bought whole, even if the last one is not fully used.
    let one =
        CostOption { name: "x".to_owned(), power: Watts(100.0), instances: 4, price: 1_000.0 };
    let cost = Cost { instances: 5, pue: 1.0, kwh: 0.0, options: vec![one], ..Cost::default() };
    let total = &totals(&cost)[0];
    assert_eq!(
        (total.servers, total.watts, total.total, total.total_per_instance),
        (2, Watts(200.0), 2_000.0, 400.0)
    );
}
