//! Formats the settings of a line as text that [`set`](super::set) parses back.

use super::words::{LineWords, Word, probability};
use crate::chance::Probability;
use crate::line::{Discipline, LineSettings, Loss, Rate, Timing};
use std::time::Duration;

impl LineWords {
    /// Returns all settings of a line as text.
    #[must_use]
    pub fn of(settings: &LineSettings) -> Self {
        let word = |text: String| Some(Word(text));
        Self {
            delay: word(duration(settings.delay)),
            rate: word(settings.rate.map_or_else(none, rate)),
            buffer: word(size(settings.buffer)),
            queue: word(match settings.queue {
                Discipline::DropTail => "drop-tail".to_owned(),
                Discipline::Harmonize => "harmonize".to_owned(),
            }),
            flow_rate: word(settings.flow_rate.map_or_else(none, rate)),
            burst: word(settings.burst.map_or_else(none, |burst| burst.to_string())),
            timing: word(match settings.timing {
                Timing::StoreAndForward => "store-and-forward".to_owned(),
                Timing::CutThrough => "cut-through".to_owned(),
            }),
            overhead: word(settings.overhead.to_string()),
            loss: word(loss(&settings.loss)),
            jitter: word(duration(settings.jitter)),
            reorder: word(settings.reorder.map_or_else(none, |reorder| {
                format!("{}:{}", share(reorder.share), duration(reorder.by))
            })),
            duplicate: word(share(settings.duplicate)),
            corrupt: word(share(settings.corrupt)),
            seed: word(settings.seed.to_string()),
        }
    }
}

fn none() -> String {
    "none".to_owned()
}

/// Formats a number in the largest unit in which it is whole.
fn whole(number: u64, units: &[(u64, &str)]) -> String {
    let fits = units.iter().find(|(scale, _)| number.is_multiple_of(*scale));
    let (scale, unit) = fits.expect("the last unit is 1");
    format!("{}{unit}", number / scale)
}

fn duration(time: Duration) -> String {
    match crate::time::nanos(time) {
        0 => "0".to_owned(),
        nanos => whole(nanos, &[(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")]),
    }
}

fn rate(rate: Rate) -> String {
    whole(
        rate.bits_per_second(),
        &[(1_000_000_000, "Gb/s"), (1_000_000, "Mb/s"), (1_000, "kb/s"), (1, "b/s")],
    )
}

fn size(bytes: u64) -> String {
    let units = [
        (1_000_000_000, "GB"),
        (1 << 30, "GiB"),
        (1_000_000, "MB"),
        (1 << 20, "MiB"),
        (1_000, "KB"),
        (1 << 10, "KiB"),
    ];
    match bytes {
        0 => "0".to_owned(),
        bytes => whole(bytes, &[&units[..], &[(1, "B")]].concat()),
    }
}

/// Uses few digits if they parse to exactly the same probability. Probabilities are in steps of
/// 2^-64, so 0.1% is stored as a little less than 0.1 %.
fn share(share: Probability) -> String {
    let part = share.share();
    let short = format!("{:.10}", part * 100.0);
    let short = format!("{}%", short.trim_end_matches('0').trim_end_matches('.'));
    match probability(&short) {
        Ok(same) if same == share => short,
        _ => sprat_units::percent(part),
    }
}

fn loss(loss: &Loss) -> String {
    match loss {
        Loss::None => none(),
        Loss::Random(part) => share(*part),
        Loss::Bursts(model) => {
            let shares = [model.to_bad, model.to_good, model.loss_bad, model.loss_good].map(share);
            format!("bursts:{}", shares.join(","))
        }
        Loss::Listed(numbers) => {
            let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
            format!("list:{}", numbers.join(","))
        }
    }
}
