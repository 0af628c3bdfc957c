//! Tests how figures and reports are printed.

use sprat_bench::basic::PUBLISHED;
use sprat_measure::goals::{Goal, Row, table, verdict};
use sprat_measure::hist::Latencies;
use sprat_measure::report::svg::{Axis, Line, chart};
use sprat_measure::report::{Report, write_json};
use sprat_measure::{machine::Machine, table::Table};
use sprat_units::{figure, html::escape};

/// The bandwidths in [MMS] follow from its averages if its KB are 1,000 B and its MB/s are MiB/s.
/// Our columns assume this.
#[test]
fn published_bandwidths_follow_from_published_averages() {
    for line in PUBLISHED {
        for (us, bandwidth) in
            [(line.atom_avg, line.atom_bandwidth), (line.xeon_avg, line.xeon_bandwidth)]
        {
            let computed = line.bytes as f64 / (us / 1e6) / figure::MIB;
            assert!((computed / bandwidth - 1.0).abs() < 0.03, "{line:?}: {computed}");
        }
        assert!(line.atom_min <= line.atom_avg && line.atom_avg <= line.atom_max);
    }
}

#[test]
fn a_goal_is_judged_and_written_with_these_fields_exactly() {
    let rows = [
        Row::new("read", Some(5.0), Some(50.0), "us", Goal::RatioAtMost(0.15)),
        Row::new("rate", Some(100.0), Some(90.0), "op/s", Goal::RatioAtLeast(1.5)),
        Row::new("memory", Some(164.0), None, "B", Goal::AtMost(165.0)),
        Row::new("absent", None, Some(1.0), "us", Goal::AtMost(1.0)),
        Row::new("zero", Some(1.0), Some(0.0), "us", Goal::RatioAtLeast(1.0)),
        Row::new("beside", Some(1.0), Some(2.0), "us", Goal::Shown),
    ];
    assert_eq!(rows.each_ref().map(|row| row.met), [true, false, true, false, false, true]);
    assert_eq!(verdict(&rows), "2 of 5 goals met");
    let text = table(&rows).to_string();
    assert_eq!(text.matches("MISSED").count(), 3);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bench").join("x.json");
    write_json(&rows[..], &path).expect("written");
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(path).expect("read")).expect("JSON");
    let mut fields: Vec<&String> = json[0].as_object().expect("an object").keys().collect();
    fields.sort();
    assert_eq!(fields, ["goal", "load", "met", "name", "ours", "peer", "ratio", "unit"]);
    assert_eq!(json[0]["goal"], "ratio <= 0.15");
    assert_eq!(json[2]["peer"], serde_json::Value::Null);
}

#[test]
fn columns_line_up() {
    let mut table = Table::new(&["name", "value"]);
    table.row(vec!["µ".into(), "1".into()]);
    table.row(vec!["longer".into(), "1000".into()]);
    assert_eq!(table.to_string(), "name    value\nµ           1\nlonger   1000\n");
}

#[test]
fn latencies_know_their_quantiles_and_merge() {
    let (mut low, mut high) = (Latencies::new(), Latencies::new());
    (1..=900).for_each(|us| low.record(us * 1000));
    (901..=1000).for_each(|us| high.record(us * 1000));
    high.record(0);
    low.merge(&high);
    let summary = low.summary();
    assert_eq!(summary.count, 1001);
    for (found, us) in
        [(summary.p50, 500), (summary.p90, 900), (summary.p99, 990), (summary.max, 1000)]
    {
        assert!(found.abs_diff(us * 1000) <= us + 1000, "{found} for {us} us");
    }
    assert_eq!(low.bars().iter().map(|bar| bar.count).sum::<u64>(), 1001);
    assert!(
        low.curve()
            .windows(2)
            .all(|pair| pair[0].ns <= pair[1].ns && pair[0].quantile < pair[1].quantile)
    );
    assert!(Latencies::new().bars().is_empty() && Latencies::new().summary().count == 0);
}

#[test]
fn axes_cover_all_values() {
    for (least, most) in [(1.0, 1.0), (3.0, 7.0), (90.0, 1e9), (1.0, 10.0), (f64::INFINITY, 0.0)] {
        let axis = Axis::decades("x", least, most, figure::time);
        assert!(axis.to > axis.from && axis.ticks.len() >= 2, "{axis:?}");
        assert!(
            axis.ticks.iter().all(|tick| tick.at >= axis.from - 1e-3 && tick.at <= axis.to + 1e-3)
        );
        if least.is_finite() {
            assert!(axis.from <= least.log10() + 1e-9 && axis.to >= most.log10() - 1e-9);
        }
    }
    for most in [0.0, 0.003, 1.0, 99.0, 12_345.0, f64::NAN] {
        let axis = Axis::linear("y", most, figure::digits);
        assert!(
            axis.to > 0.0
                && (most.is_nan() || axis.to >= most)
                && (2..=12).contains(&axis.ticks.len()),
            "{axis:?}"
        );
    }
}

#[test]
fn nothing_a_name_says_becomes_markup() {
    let nasty = "<script>\"'&";
    assert_eq!(escape(nasty), "&lt;script&gt;&quot;&#39;&amp;");
    let axis = Axis::linear(nasty, 1.0, |_| nasty.to_owned());
    let line = Line { name: nasty.to_owned(), points: vec![(0.0, 0.0), (1.0, 5.0)], filled: true };
    let mut report = Report::new(nasty, &Machine::describe());
    report.note(&format!("{nasty}{}", nasty));
    let page = report.html() + &chart(&axis, &axis, &[line]);
    assert!(!page.contains("<script"));
    assert!(!page.contains("http://") && !page.contains("https://"), "a page needs nothing else");
}
