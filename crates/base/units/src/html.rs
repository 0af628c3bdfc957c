//! Escapes text for HTML and SVG.

/// Returns `text` escaped as content of an element or as a quoted attribute: a browser shows it as
/// it is, and treats none of it as markup.
///
/// ```
/// use sprat_units::html::escape;
/// assert_eq!(escape("<i>R&D</i>"), "&lt;i&gt;R&amp;D&lt;/i&gt;");
/// ```
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(char),
        }
    }
    escaped
}
