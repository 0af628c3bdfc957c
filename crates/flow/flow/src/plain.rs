//! Text from somebody else, made fit for a terminal.

use std::borrow::Cow;

/// Whether a character does something to a screen rather than stand on it: control characters
/// (those that UTF-8 hides above ASCII too), and the ones that turn the direction of writing, have
/// no width, or end a line.
#[must_use]
pub fn is_tricky(char: char) -> bool {
    let turns = matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    char.is_control() || turns
}

/// The text with every such character written as its escape, such as `\u{1b}` or `\n`: what a
/// server says, or what a file there is called, moves no cursor, changes no title and feigns no
/// line of ours.
#[must_use]
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_tricky) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if is_tricky(char) { plain.extend(char.escape_default()) } else { plain.push(char) }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_a_cursor_is_written_out() {
        for (text, shown) in [
            ("plain, with \u{e9} and \u{1f980}", "plain, with \u{e9} and \u{1f980}"),
            ("\u{1b}]0;title\u{7}\u{1b}[31mred", r"\u{1b}]0;title\u{7}\u{1b}[31mred"),
            ("a\r\nb\tc", r"a\r\nb\tc"),
            ("\u{9b}31m\u{7f}", r"\u{9b}31m\u{7f}"),
            ("gnp.\u{202e}exe", r"gnp.\u{202e}exe"),
        ] {
            assert_eq!(plain(text), shown);
        }
    }
}
