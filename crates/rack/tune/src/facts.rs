//! What a host is set to, as it tells it.

use std::collections::BTreeMap;

/// What a host is asked: a script for its shell. Folders whose disks are meant are its arguments.
pub const SCRIPT: &str = include_str!("../files/facts");

/// Longest answer, bytes.
pub const MAX_ANSWER: usize = 4 << 20;

/// Most cores that are believed.
const MAX_CORES: usize = 65_536;

/// What a host is set to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Facts {
    /// Its cores.
    pub cores: usize,
    /// Whether systemd is its init.
    pub systemd: bool,
    /// Whether somebody spreads interrupts already.
    pub irqbalance: bool,
    /// Disks that hold instances' data, those that they consist of among them, by their names in
    /// `/sys/block`.
    pub disks: Vec<String>,
    /// Interrupts of its network cards, by card.
    pub irqs: BTreeMap<String, Vec<u32>>,
    /// Files of the kernel, and what they say.
    pub values: BTreeMap<String, String>,
}

/// An answer that is none.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FactsError {
    /// It is too long.
    #[error("{0} bytes, where {MAX_ANSWER} would do")]
    Long(usize),
    /// A line means nothing.
    #[error("line {number} of what it told of itself means nothing: {line:?}")]
    Line {
        /// Which, from 1.
        number: usize,
        /// What it says.
        line: String,
    },
}

impl Facts {
    /// From what a host answered to [`SCRIPT`].
    ///
    /// # Errors
    /// It is not an answer to that.
    pub fn parse(text: &str) -> Result<Self, FactsError> {
        if text.len() > MAX_ANSWER {
            return Err(FactsError::Long(text.len()));
        }
        let mut facts = Self::default();
        for (at, line) in text.lines().enumerate() {
            if facts.line(line).is_none() {
                return Err(FactsError::Line {
                    number: at + 1,
                    line: line.chars().take(80).collect(),
                });
            }
        }
        Ok(facts)
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let mut words = line.split('\t');
        match (words.next()?, words.next(), words.next(), words.next()) {
            ("cores", Some(count), None, None) => {
                self.cores = count.parse().ok().filter(|count| (1..=MAX_CORES).contains(count))?;
            }
            ("systemd", None, None, None) => self.systemd = true,
            ("irqbalance", None, None, None) => self.irqbalance = true,
            ("disk", Some(name), None, None) if is_name(name) => {
                if !self.disks.iter().any(|known| known == name) {
                    self.disks.push(name.to_owned());
                }
            }
            ("irq", Some(card), Some(number), None) if is_name(card) => {
                let of_card = self.irqs.entry(card.to_owned()).or_default();
                let number = number.parse().ok()?;
                if !of_card.contains(&number) {
                    of_card.push(number);
                }
            }
            ("value", Some(path), Some(value), None) => {
                // A device's own place is long; what everybody calls it is as good.
                let path = match path.rsplit_once("/queue/") {
                    Some((device, file)) => {
                        format!("/sys/block/{}/queue/{file}", device.rsplit('/').next()?)
                    }
                    None => path.to_owned(),
                };
                if !is_kernel_file(&path) {
                    return None;
                }
                self.values.insert(path, value.trim().to_owned());
            }
            _ => return None,
        }
        Some(())
    }

    /// What a file says; of choices, the one in brackets.
    #[must_use]
    pub fn value(&self, path: &str) -> Option<&str> {
        self.values.get(path).map(|text| chosen(text))
    }

    /// What a file could say, where it tells choices.
    #[must_use]
    pub fn offers(&self, path: &str, value: &str) -> bool {
        let words = self.values.get(path).map_or("", String::as_str);
        words.split_whitespace().any(|word| word.trim_matches(['[', ']']) == value)
    }
}

/// `always [madvise] never` says `madvise`.
#[must_use]
pub fn chosen(text: &str) -> &str {
    let text = text.trim();
    match text.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
        Some((chosen, _)) => chosen,
        None => text,
    }
}

/// Whether a path is one that tuning may read and write: of the kernel, without a way out of it.
#[must_use]
pub fn is_kernel_file(path: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.:@,".contains(c);
    let below = ["/sys/", "/proc/sys/", "/proc/irq/"].iter().any(|root| path.starts_with(root));
    below
        && path.len() <= 256
        && path.chars().all(plain)
        && !path.split('/').any(|part| part == "..")
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.!".contains(c))
}
