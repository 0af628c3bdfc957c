//! What a line is to do, in words: the same for flags, for TOML, and for changes while it runs.

use super::units;
use crate::chance::Probability;
use crate::line::{Discipline, GilbertElliott, Loss, MAX_BUFFER, MAX_DELAY, MAX_LISTED, Reorder, Settings, Timing};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A value in words; in TOML a number will do.
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

/// Settings of a line that were given; the others stay as they are. See [`set`] for what each may be.
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
    /// Settings that were given, by name.
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

    /// Changes what was given.
    ///
    /// # Errors
    /// The first that means nothing.
    pub fn apply(&self, settings: &mut Settings) -> Result<(), WordError> {
        self.given().try_for_each(|(key, word)| set(settings, key, &word.0))
    }
}

/// A setting that means nothing.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{key} {value:?}: want {want}")]
pub struct WordError {
    /// Its name.
    pub key: String,
    /// What was given.
    pub value: String,
    /// What would do.
    pub want: &'static str,
}

const DELAY: &str = "a time up to 500ms, such as 100ms or 20us";
const RATE: &str = "a rate from 1kb/s to 1000Gb/s, such as 2Gb/s, or none";
const BUFFER: &str = "bytes up to 8GiB, such as 64MB";
const QUEUE: &str = "drop-tail or harmonize";
const BURST: &str = "segments, 1 or more, or none";
const TIMING: &str = "store-and-forward or cut-through";
const OVERHEAD: &str = "bytes a frame, 0 to 1000";
const LOSS: &str =
    "none, a share such as 0.1%, bursts:TO_BAD,TO_GOOD[,LOSS_BAD[,LOSS_GOOD]] in shares, or list:N,N,...";
const REORDER: &str = "none, or SHARE:TIME such as 1%:5ms, the time up to 500ms";
const SHARE: &str = "a share, such as 0.1% or 0.001";
const SEED: &str = "a whole number";
const KEY: &str = "one of delay, rate, buffer, queue, flow-rate, burst, timing, overhead, loss, jitter, reorder, duplicate, \
                   corrupt, seed";

/// Changes one setting.
///
/// # Errors
/// There is no such setting, or it cannot be that.
pub fn set(settings: &mut Settings, key: &str, value: &str) -> Result<(), WordError> {
    let error = |want| WordError { key: key.to_owned(), value: value.to_owned(), want };
    let time = || units::duration(value).filter(|time| *time <= MAX_DELAY).ok_or_else(|| error(DELAY));
    let rate = || match value {
        "none" => Ok(None),
        _ => units::rate(value).map(Some).ok_or_else(|| error(RATE)),
    };
    let share = || units::share(value).ok_or_else(|| error(SHARE));
    match key {
        "delay" => settings.delay = time()?,
        "jitter" => settings.jitter = time()?,
        "rate" => settings.rate = rate()?,
        "flow-rate" => settings.flow_rate = rate()?,
        "buffer" => {
            let bytes = units::size(value).filter(|bytes| *bytes <= MAX_BUFFER);
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
        "loss" => settings.loss = loss(value).ok_or_else(|| error(LOSS))?,
        "reorder" => settings.reorder = reorder(value).ok_or_else(|| error(REORDER))?,
        "duplicate" => settings.duplicate = share()?,
        "corrupt" => settings.corrupt = share()?,
        "seed" => settings.seed = value.parse().map_err(|_| error(SEED))?,
        _ => return Err(error(KEY)),
    }
    Ok(())
}

fn loss(text: &str) -> Option<Loss> {
    if text == "none" {
        return Some(Loss::None);
    }
    if let Some(list) = text.strip_prefix("list:") {
        let mut numbers = list.split(',').map(|number| number.trim().parse().ok()).collect::<Option<Vec<u64>>>()?;
        numbers.sort_unstable();
        return (numbers.len() <= MAX_LISTED && numbers[0] > 0).then_some(Loss::Listed(numbers));
    }
    if let Some(model) = text.strip_prefix("bursts:") {
        let shares = model.split(',').map(units::share).collect::<Option<Vec<_>>>()?;
        let &[to_bad, to_good, ref losses @ ..] = &shares[..] else { return None };
        let (loss_bad, loss_good) = match *losses {
            [] => (Probability::ALWAYS, Probability::NEVER),
            [bad] => (bad, Probability::NEVER),
            [bad, good] => (bad, good),
            _ => return None,
        };
        return Some(Loss::Bursts(GilbertElliott { to_bad, to_good, loss_bad, loss_good }));
    }
    let share = units::share(text)?;
    Some(if share == Probability::NEVER { Loss::None } else { Loss::Random(share) })
}

fn reorder(text: &str) -> Option<Option<Reorder>> {
    if text == "none" {
        return Some(None);
    }
    let (share, by) = text.split_once(':')?;
    let by = units::duration(by).filter(|by| (Duration::from_nanos(1)..=MAX_DELAY).contains(by))?;
    Some(Some(Reorder { share: units::share(share)?, by }))
}
