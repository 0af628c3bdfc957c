//! Reads power from any program that prints watts, such as one for a serial line or a vendor's
//! tool.

use crate::program::run;
use crate::{Cause, Reading, Watts, plausible};
use std::process::Command as Process;
use std::time::Duration;

/// Parses the number at the start of a program's first line that is not blank: `36.2`, `36.2 W`,
/// `36200 mW`.
///
/// # Errors
/// The line does not begin with a number, the number's unit is unknown, or the power is implausibly
/// large.
pub fn watts(text: &str) -> Result<Watts, Cause> {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let nonsense = || {
        Cause::Nonsense(format!(
            "{:?}: want watts, such as 36.2",
            line.chars().take(80).collect::<String>()
        ))
    };
    let end = line.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(line.len());
    let number: f64 = line[..end].parse().map_err(|_| nonsense())?;
    let scale = match line[end..].trim() {
        "" | "W" | "Watts" | "watts" => 1.0,
        "mW" => 1e-3,
        "kW" => 1e3,
        _ => return Err(nonsense()),
    };
    plausible(number * scale)
}

/// A program that prints watts.
#[derive(Debug)]
pub(crate) struct Command {
    words: Vec<String>,
}

impl Command {
    pub(crate) fn new(words: Vec<String>) -> Self {
        Self { words }
    }

    pub(crate) fn location(&self) -> String {
        self.words.join(" ")
    }

    pub(crate) fn read(&self, time: Duration) -> Result<Reading, Cause> {
        let (name, arguments) =
            self.words.split_first().ok_or_else(|| Cause::Absent("no program".to_owned()))?;
        Ok(Reading::Watts(watts(&run(name, Process::new(name).args(arguments), time)?)?))
    }
}
