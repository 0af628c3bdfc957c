//! What is left on disk: a report in one HTML file (machine, goals, tables, drawings of the
//! distributions), and JSON.

pub mod bars;
pub mod html;
pub mod over_time;
pub mod svg;

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

pub use html::Report;

/// Writes `value` (results, a basic table, goals) to `path` as JSON, making its folder.
///
/// # Errors
/// When the file cannot be written.
pub fn write_json<T: Serialize + ?Sized>(value: &T, path: &Path) -> Result<()> {
    let mut json = serde_json::to_string_pretty(value)?;
    json.push('\n');
    write_file(path, &json)
}

/// The same without line breaks, for results that hold every count.
///
/// # Errors
/// When the file cannot be written.
pub fn write_compact_json<T: Serialize + ?Sized>(value: &T, path: &Path) -> Result<()> {
    write_file(path, &(serde_json::to_string(value)? + "\n"))
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("creating {}", folder.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
