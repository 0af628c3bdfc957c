//! Inline commands: words on a line, as people type them into a terminal.

use std::ops::Range;

/// Limit on the length of an inline command, in bytes.
pub const MAX_INLINE: usize = 64 << 10;

/// Splits a line into words. A word, or a part of it, may be quoted: in double quotes, `\n`, `\r`,
/// `\t`, `\b`, `\a`, `\xHH` and any other character after `\` are escapes; in single quotes only
/// `\'` is one. Appends the words to `words`, and where each lies to `parts`. Returns `None` if a
/// quote is not closed, or something else than a space follows a closing quote.
pub(crate) fn split(line: &[u8], words: &mut Vec<u8>, parts: &mut Vec<Range<u32>>) -> Option<()> {
    let mut rest = line.iter().copied().peekable();
    loop {
        while rest.next_if(|byte| is_space(*byte)).is_some() {}
        if rest.peek().is_none() {
            return Some(());
        }
        let begin = words.len();
        while let Some(byte) = rest.next_if(|byte| !is_space(*byte)) {
            if byte != b'"' && byte != b'\'' {
                words.push(byte);
                continue;
            }
            loop {
                match (rest.next()?, byte) {
                    (closing, quote) if closing == quote => break,
                    (b'\\', b'"') => words.push(escaped(&mut rest)?),
                    (b'\\', _) if rest.next_if_eq(&b'\'').is_some() => words.push(b'\''),
                    (other, _) => words.push(other),
                }
            }
            if rest.peek().is_some_and(|next| !is_space(*next)) {
                return None;
            }
        }
        let at = |len| u32::try_from(len).expect("no longer than the line");
        parts.push(at(begin)..at(words.len()));
    }
}

/// Returns whether a byte is a space for C's `isspace`, or ends the line for Redis.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r' | 0)
}

/// Returns the character that follows a backslash in double quotes.
fn escaped(rest: &mut (impl Iterator<Item = u8> + Clone)) -> Option<u8> {
    Some(match rest.next()? {
        b'x' => {
            let mut digits = rest.clone();
            let mut digit = || digits.next().and_then(|byte| char::from(byte).to_digit(16));
            let (Some(high), Some(low)) = (digit(), digit()) else { return Some(b'x') };
            *rest = digits;
            u8::try_from(high << 4 | low).expect("two hexadecimal digits")
        }
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    })
}
