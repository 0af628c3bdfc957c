//! Any program that prints watts: for rails that are read over a serial line, or by a tool that
//! only one maker has.

use crate::program::run;
use crate::{Reading, Trouble, Watts, believed};
use std::process::Command as Process;
use std::time::Duration;

/// The first number of what a program prints: `36.2`, `36.2 W`, `36200 mW`.
///
/// # Errors
/// There is none, or another unit.
pub fn watts(text: &str) -> Result<Watts, Trouble> {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let nonsense = || {
        Trouble::Nonsense(format!(
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
    believed(number * scale)
}

/// A program.
#[derive(Debug)]
pub(crate) struct Command {
    words: Vec<String>,
}

impl Command {
    pub(crate) fn new(words: Vec<String>) -> Self {
        Self { words }
    }

    pub(crate) fn told(&self) -> String {
        self.words.join(" ")
    }

    pub(crate) fn read(&self, time: Duration) -> Result<Reading, Trouble> {
        let (name, arguments) =
            self.words.split_first().ok_or_else(|| Trouble::Absent("no program".to_owned()))?;
        Ok(Reading::Watts(watts(&run(name, Process::new(name).args(arguments), time)?)?))
    }
}
