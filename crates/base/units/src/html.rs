//! Escapes text for HTML and SVG.

/// Returns `text` escaped for the content of an element or for a quoted attribute. A browser shows
/// the text unchanged, and treats none of it as markup.
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
