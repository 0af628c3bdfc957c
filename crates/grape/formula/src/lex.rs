//! Splits a kernel's text into tokens.

use crate::error::{Fault, Problem};
use crate::limits::{MAX_NAME, MAX_STATEMENTS, MAX_TEXT};
use crate::span::Span;

/// A token of the text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'t> {
    Name(&'t str),
    Number(f64),
    Symbol(&'static str),
    /// The end of a statement.
    Break,
    /// The end of the text.
    End,
}

/// Longer symbols come before their prefixes.
const SYMBOLS: &[&str] = &[
    "+=", "-=", "&=", "|=", "<=", ">=", "==", "!=", "+", "-", "*", "/", "(", ")", ",", ":", "=",
    "<", ">",
];

/// Returns all tokens of a text, ending with `End`. A statement continues on the next line inside
/// parentheses, and after a comma or an operator.
pub(crate) fn words(text: &str) -> Result<Vec<(Token<'_>, Span)>, Fault> {
    if text.len() > MAX_TEXT {
        return Err(Fault::new(Span { start: 0, end: 0 }, Problem::TextLength { len: text.len() }));
    }
    let mut words: Vec<(Token<'_>, Span)> = Vec::new();
    let (mut at, mut open, mut statements) = (0, 0_usize, 0);
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let (token, len) = match first {
            '#' => {
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            '\n' | ';' => {
                let last = words.last().map_or(Token::Break, |(token, _)| *token);
                let goes_on =
                    matches!(last, Token::Symbol(symbol) if symbol != ")") || last == Token::Break;
                if first == '\n' && (open > 0 || goes_on) || last == Token::Break {
                    at += 1;
                    continue;
                }
                statements += 1;
                (Token::Break, 1)
            }
            _ if first.is_whitespace() => {
                at += first.len_utf8();
                continue;
            }
            '0'..='9' | '.' => {
                let len = number(rest);
                let fault = |problem| Fault::new(Span { start: at, end: at + len }, problem);
                let value: f64 = rest[..len].parse().map_err(|_| fault(Problem::Number))?;
                if value.is_infinite() {
                    return Err(fault(Problem::Beyond { of: "f64" }));
                }
                (Token::Number(value), len)
            }
            'a'..='z' | 'A'..='Z' | '_' => {
                let len = rest.find(|c: char| !is_letter(c)).unwrap_or(rest.len());
                if len > MAX_NAME {
                    return Err(Fault::new(Span { start: at, end: at + len }, Problem::NameLength));
                }
                (Token::Name(&rest[..len]), len)
            }
            _ => match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
                Some(symbol) => (Token::Symbol(symbol), symbol.len()),
                None => {
                    let span = Span { start: at, end: at + first.len_utf8() };
                    return Err(Fault::new(span, Problem::Character { character: first }));
                }
            },
        };
        match token {
            Token::Symbol("(") => open += 1,
            Token::Symbol(")") => open = open.saturating_sub(1),
            _ => {}
        }
        let span = Span { start: at, end: at + len };
        if statements > MAX_STATEMENTS {
            return Err(Fault::new(span, Problem::Statements));
        }
        words.push((token, span));
        at += len;
    }
    words.push((Token::End, Span { start: text.len(), end: text.len() }));
    Ok(words)
}

/// Returns the length of a number at the beginning of `text`. It includes letters that make the
/// number malformed, so that an error message can quote the complete word.
fn number(text: &str) -> usize {
    let mut before = ' ';
    let goes_on = |c: char| {
        let exponent = matches!(before, 'e' | 'E') && matches!(c, '+' | '-');
        before = c;
        is_letter(c) || c == '.' || exponent
    };
    let mut goes_on = goes_on;
    text.find(|c: char| !goes_on(c)).unwrap_or(text.len())
}

fn is_letter(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

impl Token<'_> {
    /// Describes the token for messages.
    pub(crate) fn named(self, span: Span, text: &str) -> String {
        match self {
            Self::End => "the end of the kernel".to_owned(),
            Self::Break => "the end of the statement".to_owned(),
            _ => format!("`{}`", &text[span.start..span.end]),
        }
    }
}
