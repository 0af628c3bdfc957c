//! Report files: an HTML file that shows the machine, the goals, the tables and drawings of the
//! distributions; and a JSON file with the results.

pub mod bars;
pub mod html;
pub mod over_time;
pub mod svg;

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

pub use html::Report;

/// Writes `value` (results, a basic table, goals) to `path` as JSON. Creates the folder of `path`
/// if it is missing.
///
/// # Errors
/// If the file cannot be written.
pub fn write_json<T: Serialize + ?Sized>(value: &T, path: &Path) -> Result<()> {
    let mut json = serde_json::to_string_pretty(value)?;
    json.push('\n');
    write_file(path, &json)
}

/// Writes `value` as JSON without line breaks, for results that contain every count.
///
/// # Errors
/// If the file cannot be written.
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
