//! Tests of the picture of a series.
#![allow(clippy::cast_precision_loss, reason = "small numbers")]

use proptest::prelude::*;
use sprat_lab::series::{About, Figures, FlowSample, History, LineAbout, LineSample, Sample};
use sprat_measure::report::over_time::{page, picture};

/// A series of four streams that start one after the other.
fn series() -> (About, Vec<Sample>) {
    let line = LineAbout {
        line: "to right".into(),
        settings: "delay 100 ms, rate 2000 Mb/s".into(),
        buffer: Some(64_000_000),
    };
    let about = About::new("tap:a0@left <-> tap:b0@right".into(), vec![line]);
    let samples = (0_u32..60).map(|at| {
        let from = f64::from(at) / 10.0;
        let share = 2e9 / f64::from((at / 10 + 1).min(4));
        let flows = (0..(at / 10 + 1).min(4)).map(|flow| FlowSample {
            flow: format!("tcp 10.0.0.1:{} > 10.0.0.2:5201", 40_000 + flow),
            figures: Figures {
                bits_per_second: share,
                queue: u64::from(at) * 200_000,
                drops: u64::from(at % 7),
            },
            rtt_ms: (at % 10 > 2).then(|| 200.0 + f64::from(at)),
        });
        let flows: Vec<_> = flows.collect();
        let drops = flows.iter().map(|flow| flow.figures.drops).sum();
        let all = Figures {
            bits_per_second: share * flows.len() as f64,
            queue: u64::from(at) * 1_000_000,
            drops,
        };
        Sample {
            from,
            to: from + 0.1,
            lines: vec![LineSample { line: "to right".into(), all, flows }],
        }
    });
    (about, samples.collect())
}

#[test]
fn it_looks_as_it_did() {
    let (about, samples) = series();
    let svg = picture(&about, &samples);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/over_time.svg");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"))
            .expect("a folder");
        std::fs::write(path, &svg).expect("written");
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        svg == golden,
        "{path} is another picture: look at it, and run this again with UPDATE_GOLDEN=1"
    );
}

#[test]
fn it_labels_what_it_shows() {
    let (about, samples) = series();
    let svg = picture(&about, &samples);
    for text in [
        "tap:a0@left &lt;-&gt; tap:b0@right",
        "to right: delay 100 ms, rate 2000 Mb/s",
        "queue of 64 MB",
        ">2 Gb/s<",
        "seconds since the box began",
        "tcp 10.0.0.1:40003 &gt; 10.0.0.2:5201",
        "prefers-color-scheme: dark",
    ] {
        assert!(svg.contains(text), "{text:?} is not in {svg}");
    }
    let html = page(&about, &samples);
    assert!(html.starts_with("<!doctype html>") && html.contains(&svg), "{html}");
}

#[test]
fn flows_beyond_the_colours_are_one_curve() {
    let (about, mut samples) = series();
    for sample in &mut samples {
        let line = &mut sample.lines[0];
        line.flows = (0..20)
            .map(|flow| FlowSample {
                flow: format!("flow {flow:02}"),
                figures: Figures {
                    bits_per_second: 1e6 * f64::from(40 - flow),
                    queue: 0,
                    drops: 0,
                },
                rtt_ms: None,
            })
            .collect();
    }
    let svg = picture(&about, &samples);
    assert!(
        svg.contains(">flow 06<") && !svg.contains(">flow 07<") && svg.contains(">all others<"),
        "{svg}"
    );
}

fn figures() -> impl Strategy<Value = Figures> {
    let rates = prop_oneof![Just(0.0), Just(f64::MIN_POSITIVE), 0.0..1e12f64, Just(1e300)];
    (rates, any::<u64>(), any::<u64>()).prop_map(|(bits_per_second, queue, drops)| Figures {
        bits_per_second,
        queue,
        drops,
    })
}

fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let flow =
        ("[a-c]{1}|.{0,40}", figures(), prop_oneof![Just(None), (0.0..1e9f64).prop_map(Some)]);
    let flow = flow.prop_map(|(flow, figures, rtt_ms)| FlowSample { flow, figures, rtt_ms });
    let line = ("[xy]", figures(), prop::collection::vec(flow, 0..12));
    let line = line.prop_map(|(line, all, flows)| LineSample { line, all, flows });
    let sample = (1e-9..1e4f64, prop::collection::vec(line, 0..3));
    prop::collection::vec(sample, 0..30).prop_map(|samples| {
        let mut from = 0.0;
        let sample = samples.into_iter().map(|(seconds, lines)| {
            let sample = Sample { from, to: from + seconds, lines };
            from = sample.to;
            sample
        });
        sample.collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_was_measured_it_is_a_drawing(
        samples in samples(),
        title in ".{0,40}",
        settings in ".{0,40}",
    ) {
        let line = |line: &str| LineAbout {
            line: line.to_owned(),
            settings: settings.clone(),
            buffer: Some(1),
        };
        let about = About::new(title, vec![line("x"), line("<y>"), line("y")]);
        let mut history = History::new();
        for (number, sample) in samples.into_iter().enumerate() {
            if sample.check(0.0).is_ok() {
                history.push(sample);
            }
            prop_assert!(number < 30);
        }
        let svg = picture(&about, history.samples());
        prop_assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}", svg);
        // Every tag is one of ours, since text from the series is escaped.
        for tag in svg.split('<').skip(1) {
            let in_name = |letter: &char| letter.is_ascii_alphabetic() || *letter == '/';
            let name: String = tag.chars().take_while(in_name).collect();
            let ours = [
                "svg", "/svg", "style", "/style", "rect", "text", "/text", "path", "/path", "title",
                "/title",
            ];
            prop_assert!(ours.contains(&&name[..]), "<{}", tag);
        }
    }
}
