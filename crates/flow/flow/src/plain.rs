//! Makes text from other machines safe to print on a terminal.

use std::borrow::Cow;

/// Returns whether a character may affect a terminal instead of being displayed. Such characters
/// are control characters (including C1, which UTF-8 encodes above ASCII), and characters that
/// change the direction of writing, have no width, or end a line.
#[must_use]
pub fn is_unprintable(char: char) -> bool {
    let is_invisible = matches!(
        char,
        '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}'
            | '\u{feff}'
    );
    char.is_control() || is_invisible
}

/// Replaces every [unprintable](is_unprintable) character by its escape, such as `\u{1b}` or `\n`.
/// A message or file name from a server can then not move the cursor, change the terminal's title,
/// or imitate a line of our output.
#[must_use]
pub fn escape_controls(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if is_unprintable(char) { plain.extend(char.escape_default()) } else { plain.push(char) }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        for (text, shown) in [
            ("plain, with \u{e9} and \u{1f980}", "plain, with \u{e9} and \u{1f980}"),
            ("\u{1b}]0;title\u{7}\u{1b}[31mred", r"\u{1b}]0;title\u{7}\u{1b}[31mred"),
            ("a\r\nb\tc", r"a\r\nb\tc"),
            ("\u{9b}31m\u{7f}", r"\u{9b}31m\u{7f}"),
            ("gnp.\u{202e}exe", r"gnp.\u{202e}exe"),
        ] {
            assert_eq!(escape_controls(text), shown);
        }
    }
}
