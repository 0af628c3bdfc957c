//! Limits the width of lines. Texts that cannot be broken are exempt: raw strings, and texts that
//! tests expect or send.

use crate::Finding;
use crate::source::{Source, is_test_file};

/// Limit on the columns of a line of Rust, as in `rustfmt.toml`. rustfmt does not break strings and
/// comments.
pub const MAX_COLUMNS: usize = 100;

/// Finds lines that are too wide.
#[must_use]
pub fn check(source: &Source) -> Vec<Finding> {
    let in_test = is_test_file(&source.path);
    let wide = |(line, text): (usize, &str)| {
        let columns = text.chars().count();
        let is_text = text.contains("r#") || in_test && text.contains('"');
        (columns > MAX_COLUMNS && !is_text).then(|| {
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
