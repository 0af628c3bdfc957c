//! Parses the present settings that a host reports.

use std::collections::BTreeMap;

/// The shell script that prints a host's facts. Its arguments are the folders whose disks are
/// tuned.
pub const SCRIPT: &str = include_str!("../files/facts");

/// Limit on the output of the script, in bytes. A longer output is refused.
pub const MAX_ANSWER: usize = 4 << 20;

/// Limit on the number of cores. A larger number is refused.
const MAX_CORES: usize = 65_536;

/// The present settings of a host, as [`SCRIPT`] reports them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Facts {
    /// Number of cores.
    pub cores: usize,
    /// Whether the host's init is systemd.
    pub systemd: bool,
    /// Whether irqbalance runs, which already spreads interrupts over the cores.
    pub irqbalance: bool,
    /// Names in `/sys/block` of the disks that hold instances' data, including the members of
    /// arrays.
    pub disks: Vec<String>,
    /// Interrupt numbers of the host's network cards, by card.
    pub irqs: BTreeMap<String, Vec<u32>>,
    /// Contents of kernel files, by path.
    pub values: BTreeMap<String, String>,
}

/// Why the script's output was refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FactsError {
    /// The output has more than [`MAX_ANSWER`] bytes.
    #[error("{0} bytes; the limit is {MAX_ANSWER}")]
    Long(usize),
    /// A line cannot be parsed.
    #[error("line {number} of its facts cannot be parsed: {line:?}")]
    Line {
        /// Number of the line, from 1.
        number: usize,
        /// The line.
        line: String,
    },
}

impl Facts {
    /// Parses the output of [`SCRIPT`].
    ///
    /// # Errors
    /// [`FactsError::Long`] if the output has more than [`MAX_ANSWER`] bytes, and
    /// [`FactsError::Line`] for the first line that the script would not print.
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
                // The path of a block device is long; the path by its name in `/sys/block` is
                // equivalent.
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

    /// Returns the content of a kernel file, or `None` if the facts lack the file. If the file
    /// lists choices, the selected one is returned.
    #[must_use]
    pub fn value(&self, path: &str) -> Option<&str> {
        self.values.get(path).map(|text| chosen(text))
    }

    /// Returns whether a kernel file lists `value` as a choice.
    #[must_use]
    pub fn offers(&self, path: &str, value: &str) -> bool {
        let words = self.values.get(path).map_or("", String::as_str);
        words.split_whitespace().any(|word| word.trim_matches(['[', ']']) == value)
    }
}

/// Returns the selected choice of a kernel file: `madvise` if the file contains `always [madvise]
/// never`.
#[must_use]
pub fn chosen(text: &str) -> &str {
    let text = text.trim();
    match text.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
        Some((chosen, _)) => chosen,
        None => text,
    }
}

/// Returns whether tuning may read and write this path: a file below `/sys`, `/proc/sys` or
/// `/proc/irq`, of at most 256 ASCII letters, digits and `/-_.:@,`, without a part `..`.
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
