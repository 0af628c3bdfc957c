//! Settings of a line as text, for flags, for TOML, and for changes while the box runs.

use crate::chance::Probability;
use crate::engine::Tolerance;
use crate::line::{
    Discipline, GilbertElliott, LineSettings, Loss, MAX_BUFFER, MAX_DELAY, MAX_LISTED, MAX_RATE,
    MIN_RATE, Rate, Reorder, Timing,
};
use serde::{Deserialize, Serialize};
use sprat_units::{UnitError, duration, size};
use std::borrow::Cow;
use std::time::Duration;

/// A value as text. In TOML it may also be a number.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "TextOrNumber")]
pub struct Word(pub String);

#[derive(Deserialize)]
#[serde(untagged)]
enum TextOrNumber {
    Text(String),
    Whole(i64),
    Broken(f64),
}

impl From<TextOrNumber> for Word {
    fn from(value: TextOrNumber) -> Self {
        Self(match value {
            TextOrNumber::Text(text) => text,
            TextOrNumber::Whole(number) => number.to_string(),
            TextOrNumber::Broken(number) => number.to_string(),
        })
    }
}

impl From<&str> for Word {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// The settings of a line that were given; a line keeps its values for all others. [`set`] checks
/// the values.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[expect(missing_docs, reason = "each is the setting of that name")]
pub struct LineWords {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Word>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Word>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Word>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Word>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_rate: Option<Word>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<Word>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timing: Option<Word>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Word>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Word>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Word>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Word>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<Word>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrupt: Option<Word>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<Word>,
}

impl LineWords {
    /// Returns the settings that are given, by name.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, &Word)> {
        [
            ("delay", &self.delay),
            ("rate", &self.rate),
            ("buffer", &self.buffer),
            ("queue", &self.queue),
            ("flow-rate", &self.flow_rate),
            ("burst", &self.burst),
            ("timing", &self.timing),
            ("overhead", &self.overhead),
            ("loss", &self.loss),
            ("jitter", &self.jitter),
            ("reorder", &self.reorder),
            ("duplicate", &self.duplicate),
            ("corrupt", &self.corrupt),
            ("seed", &self.seed),
        ]
        .into_iter()
        .filter_map(|(key, word)| Some((key, word.as_ref()?)))
    }

    /// Applies the settings that are given.
    ///
    /// # Errors
    /// [`WordError`] for the first setting that is invalid. The settings before it are applied.
    pub fn apply(&self, settings: &mut LineSettings) -> Result<(), WordError> {
        self.given().try_for_each(|(key, word)| set(settings, key, &word.0))
    }
}

/// An invalid setting.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{key} {value:?}: want {want}")]
pub struct WordError {
    /// The setting's name.
    pub key: String,
    /// The value that was given.
    pub value: String,
    /// A description of the values that are allowed.
    pub want: Cow<'static, str>,
}

const DELAY: &str = "a time up to 500ms, such as 100ms or 20us";
const RATE: &str = "a rate from 1kb/s to 1000Gb/s, such as 2Gb/s, or none";
const BUFFER: &str = "bytes up to 8GiB, such as 64MB";
const QUEUE: &str = "drop-tail or harmonize";
const BURST: &str = "segments, 1 or more, or none";
const TIMING: &str = "store-and-forward or cut-through";
const OVERHEAD: &str = "bytes a frame, 0 to 1000";
const LOSS: &str = "none, a share such as 0.1%, bursts:TO_BAD,TO_GOOD[,LOSS_BAD[,LOSS_GOOD]] in \
                    shares, or list:N,N,...";
const REORDER: &str = "none, or SHARE:TIME such as 1%:5ms, the time up to 500ms";
const SHARE: &str = "a share, such as 0.1%";
const SEED: &str = "a whole number";
const KEY: &str = "one of delay, rate, buffer, queue, flow-rate, burst, timing, overhead, loss, \
                   jitter, reorder, duplicate, corrupt, seed";

/// Changes one setting.
///
/// # Errors
/// [`WordError`] if there is no such setting, or the value is invalid.
pub fn set(settings: &mut LineSettings, key: &str, value: &str) -> Result<(), WordError> {
    let unclear = |want| WordError { key: key.to_owned(), value: value.to_owned(), want };
    let error = |want: &'static str| unclear(want.into());
    let time = || match duration(value) {
        Ok(time) if time <= MAX_DELAY => Ok(time),
        Ok(_) => Err(error(DELAY)),
        Err(why) => Err(unclear(readings(why.into(), DELAY))),
    };
    let rate = || match value {
        "none" => Ok(None),
        _ => match sprat_units::rate(value) {
            Ok(bits) if (MIN_RATE..=MAX_RATE).contains(&bits) => Ok(Rate::new(bits)),
            Ok(_) => Err(error(RATE)),
            Err(why) => Err(unclear(readings(why.into(), RATE))),
        },
    };
    let share = || probability(value).map_err(|why| unclear(readings(why.into(), SHARE)));
    match key {
        "delay" => settings.delay = time()?,
        "jitter" => settings.jitter = time()?,
        "rate" => settings.rate = rate()?,
        "flow-rate" => settings.flow_rate = rate()?,
        "buffer" => {
            let bytes = size(value).ok().filter(|bytes| *bytes <= MAX_BUFFER);
            settings.buffer = bytes.ok_or_else(|| error(BUFFER))?;
        }
        "queue" => {
            settings.queue = match value {
                "drop-tail" => Discipline::DropTail,
                "harmonize" => Discipline::Harmonize,
                _ => return Err(error(QUEUE)),
            }
        }
        "burst" => {
            settings.burst = match value {
                "none" => None,
                _ => Some(value.parse().map_err(|_| error(BURST))?),
            }
        }
        "timing" => {
            settings.timing = match value {
                "store-and-forward" => Timing::StoreAndForward,
                "cut-through" => Timing::CutThrough,
                _ => return Err(error(TIMING)),
            }
        }
        "overhead" => {
            let bytes = value.parse().ok().filter(|bytes| *bytes <= 1_000);
            settings.overhead = bytes.ok_or_else(|| error(OVERHEAD))?;
        }
        "loss" => settings.loss = loss(value).map_err(|why| unclear(readings(why, LOSS)))?,
        "reorder" => {
            settings.reorder = reorder(value).map_err(|why| unclear(readings(why, REORDER)))?
        }
        "duplicate" => settings.duplicate = share()?,
        "corrupt" => settings.corrupt = share()?,
        "seed" => settings.seed = value.parse().map_err(|_| error(SEED))?,
        _ => return Err(error(KEY)),
    }
    Ok(())
}

/// Describes the values that are allowed: for an ambiguous value both of its readings, otherwise
/// `usual`.
fn readings(why: Option<UnitError>, usual: &'static str) -> Cow<'static, str> {
    match why {
        Some(UnitError::Ambiguous { text, one, other }) => {
            format!("{one} or {other}: {text:?} can be read both ways").into()
        }
        _ => usual.into(),
    }
}

/// Parses a share, such as `5%`, as a probability.
pub(super) fn probability(text: &str) -> Result<Probability, UnitError> {
    sprat_units::share(text).map(|share| Probability::new(share).expect("a share is from 0 to 1"))
}

/// Parses a tolerance: the share of segments that may be late, as in `5%`, or the share and the
/// lateness beyond which a segment counts as late, as in `5%:10ms`.
///
/// # Errors
/// The share or the time is invalid.
pub fn tolerance(text: &str) -> Result<Tolerance, UnitError> {
    let usual = Tolerance::default();
    let (part, late) = text.split_once(':').map_or((text, None), |(part, late)| (part, Some(late)));
    let late = late.map_or(Ok(usual.late), duration)?;
    Ok(Tolerance { share: probability(part)?, late })
}

/// Parses `loss`. If a unit is at fault, the error says which; otherwise the error is `None`.
fn loss(text: &str) -> Result<Loss, Option<UnitError>> {
    if text == "none" {
        return Ok(Loss::None);
    }
    if let Some(list) = text.strip_prefix("list:") {
        let numbers =
            list.split(',').map(|number| number.trim().parse().ok()).collect::<Option<Vec<u64>>>();
        let mut numbers = numbers.filter(|numbers| numbers.len() <= MAX_LISTED).ok_or(None)?;
        numbers.sort_unstable();
        return if numbers[0] > 0 { Ok(Loss::Listed(numbers)) } else { Err(None) };
    }
    if let Some(model) = text.strip_prefix("bursts:") {
        let shares = model.split(',').map(probability).collect::<Result<Vec<_>, _>>()?;
        let &[to_bad, to_good, ref losses @ ..] = &shares[..] else { return Err(None) };
        let (loss_bad, loss_good) = match *losses {
            [] => (Probability::ALWAYS, Probability::NEVER),
            [bad] => (bad, Probability::NEVER),
            [bad, good] => (bad, good),
            _ => return Err(None),
        };
        return Ok(Loss::Bursts(GilbertElliott { to_bad, to_good, loss_bad, loss_good }));
    }
    let share = probability(text)?;
    Ok(if share == Probability::NEVER { Loss::None } else { Loss::Random(share) })
}

fn reorder(text: &str) -> Result<Option<Reorder>, Option<UnitError>> {
    if text == "none" {
        return Ok(None);
    }
    let (share, by) = text.split_once(':').ok_or(None)?;
    let by = duration(by)?;
    if !(Duration::from_nanos(1)..=MAX_DELAY).contains(&by) {
        return Err(None);
    }
    Ok(Some(Reorder { share: probability(share)?, by }))
}
