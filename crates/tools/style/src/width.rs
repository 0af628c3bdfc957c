//! Limits the width of lines.

use crate::Finding;
use crate::source::Source;

/// Most columns of a line of Rust, as in `rustfmt.toml`. rustfmt leaves strings and comments alone.
pub const MAX_COLUMNS: usize = 100;

/// Finds lines that are too wide.
#[must_use]
pub fn check(source: &Source) -> Vec<Finding> {
    let wide = |(line, text): (usize, &str)| {
        let columns = text.chars().count();
        (columns > MAX_COLUMNS).then(|| {
            let problem = format!("{columns} columns, {MAX_COLUMNS} are the limit");
            Finding::new(
                &source.path,
                line + 1,
                problem,
                "break the comment, or the string by `\\`",
            )
        })
    };
    source.text.lines().enumerate().filter_map(wide).collect()
}
