//! Histories in bounded memory.
#![allow(clippy::cast_precision_loss, reason = "small numbers")]

use proptest::prelude::*;
use sprat_lab::series::{
    About, Figures, FlowSample, History, LineSample, MAX_NAME_BYTES, MAX_SAMPLES, Sample,
    SeriesError,
};

fn sample(from: f64, seconds: f64, rate: f64, drops: u64) -> Sample {
    let figures = Figures { bits_per_second: rate, queue: drops * 10, drops };
    let flow = FlowSample { flow: "a".into(), figures, rtt_ms: Some(rate) };
    let line = LineSample { line: "to b".into(), all: figures, flows: vec![flow] };
    Sample { from, to: from + seconds, lines: vec![line] }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn nothing_is_lost_by_joining(
        samples in prop::collection::vec(
            (0.001..1.0f64, 0.0..1e9f64, 0u64..100), 1..6 * MAX_SAMPLES
        ),
    ) {
        let mut history = History::new();
        let (mut from, mut bits, mut drops, mut longest) = (0.0, 0.0, 0, 0);
        for (seconds, rate, dropped) in &samples {
            history.push(sample(from, *seconds, *rate, *dropped));
            from += seconds;
            bits += rate * seconds;
            drops += dropped;
            longest = longest.max(dropped * 10);
        }
        let kept: Vec<_> = history.samples().cloned().collect();
        prop_assert!(kept.len() <= MAX_SAMPLES, "{}", kept.len());
        prop_assert!(kept.len() >= samples.len().min(MAX_SAMPLES / 2), "{}", kept.len());
        for of in [
            |sample: &Sample| sample.lines[0].all,
            |sample: &Sample| sample.lines[0].flows[0].figures,
        ] {
            let sum: f64 =
                kept.iter().map(|sample| of(sample).bits_per_second * sample.seconds()).sum();
            prop_assert!((sum - bits).abs() <= bits * 1e-9 + 1e-6, "{} bits, not {}", sum, bits);
            prop_assert_eq!(kept.iter().map(|sample| of(sample).drops).sum::<u64>(), drops);
            prop_assert_eq!(kept.iter().map(|sample| of(sample).queue).max(), Some(longest));
        }
        let ends: Vec<_> = kept.windows(2).map(|pair| (pair[0].to - pair[1].from).abs()).collect();
        prop_assert!(ends.iter().all(|gap| *gap < 1e-9), "no gaps");
    }
}

#[test]
fn a_late_flow_is_kept_with_its_share() {
    let mut history = History::new();
    for at in 0..MAX_SAMPLES {
        let mut one = sample(at as f64, 1.0, 100.0, 0);
        if at % 2 == 1 {
            one.lines[0].flows[0].flow = "b".into();
        }
        history.push(one);
    }
    let first = history.samples().next().expect("some").clone();
    assert_eq!(first.seconds(), 2.0);
    let flows: Vec<_> = first.lines[0]
        .flows
        .iter()
        .map(|flow| (&flow.flow[..], flow.figures.bits_per_second))
        .collect();
    assert_eq!(flows, [("a", 50.0), ("b", 50.0)]);
}

#[test]
fn invalid_samples_are_refused() {
    let good = sample(1.0, 1.0, 5.0, 1);
    assert_eq!(good.check(1.0), Ok(()));
    assert_eq!(good.check(1.5), Err(SeriesError::Times(1.0, 2.0)));
    assert!(matches!(sample(0.0, f64::NAN, 1.0, 1).check(0.0), Err(SeriesError::Number("to", _))));
    assert!(matches!(
        sample(0.0, 1.0, -1.0, 1).check(0.0),
        Err(SeriesError::Number("bits_per_second", _))
    ));
    assert!(matches!(sample(0.0, 1.0, f64::INFINITY, 1).check(0.0), Err(SeriesError::Number(..))));
    let mut long = good;
    long.lines[0].flows[0].flow = "x".repeat(MAX_NAME_BYTES + 1);
    assert!(matches!(long.check(0.0), Err(SeriesError::Long("bytes of a name", _))));
    let other = About { sprat_lab_series: 2, ..About::default() };
    assert!(other.check().expect_err("another version").to_string().contains("reads version 1"));
}
