//! A Rust file as tokens. Each token has its line, and whether it is test code. Comments and the
//! contents of strings are not tokens, so a rule about calls ignores prose.

use crate::Finding;
use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// One token. `::` is one token; a group becomes its two brackets and its contents.
#[derive(Clone, Debug)]
pub struct Token {
    /// The token's text in the file.
    pub text: String,
    /// Line, from 1.
    pub line: usize,
    /// Whether only tests compile it.
    pub in_test: bool,
}

/// A parsed Rust file.
#[derive(Clone, Debug)]
pub struct Source {
    /// Path from the root of the repository, with `/`.
    pub path: String,
    /// The text.
    pub text: String,
    /// The tokens, in order.
    pub tokens: Vec<Token>,
}

impl Source {
    /// Parses a file.
    ///
    /// # Errors
    /// If `text` cannot be split into Rust tokens. The finding names the line.
    pub fn parse(path: &str, text: &str) -> Result<Self, Finding> {
        let stream: TokenStream = text.parse().map_err(|error: proc_macro2::LexError| {
            let line = error.span().start().line;
            Finding::new(path, line, format!("not Rust: {error}"), "see what the compiler says")
        })?;
        let mut tokens = Vec::new();
        flatten(stream, is_test_file(path), &mut tokens);
        Ok(Self { path: path.to_owned(), text: text.to_owned(), tokens })
    }

    /// Returns the crate's folder, such as `crates/store/wire` for `crates/store/wire/src/lib.rs`.
    /// Returns the empty text for a file outside `src`.
    #[must_use]
    pub fn crate_folder(&self) -> &str {
        self.path.find("/src/").map_or("", |end| &self.path[..end])
    }

    /// Returns the number of lines of the file.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.text.lines().count()
    }

    /// Finds the places where the tokens of `pattern` follow each other. For each place, returns
    /// all tokens from there to the end of the file.
    pub fn find<'a>(&'a self, pattern: &'a [&str]) -> impl Iterator<Item = &'a [Token]> {
        (0..self.tokens.len()).map(|at| &self.tokens[at..]).filter(move |rest| {
            rest.len() >= pattern.len()
                && rest.iter().zip(pattern).all(|(token, text)| token.text == *text)
        })
    }
}

/// Returns whether the whole file is test code.
#[must_use]
pub fn is_test_file(path: &str) -> bool {
    path.starts_with("fuzz/")
        || ["/tests/", "/benches/", "/examples/"].iter().any(|folder| path.contains(folder))
        || path.ends_with("/tests.rs")
}

fn flatten(stream: TokenStream, in_test: bool, tokens: &mut Vec<Token>) {
    let mut rest = stream.into_iter().peekable();
    let mut whole = in_test; // the rest of this group is test code
    let mut item = false; // the next item is test code
    while let Some(tree) = rest.next() {
        let in_test = whole || item;
        let mut push = |text: String, span: proc_macro2::Span| {
            tokens.push(Token { text, line: span.start().line, in_test });
        };
        match tree {
            TokenTree::Punct(punct)
                if punct.as_char() == ':' && punct.spacing() == Spacing::Joint =>
            {
                push("::".to_owned(), punct.span());
                rest.next_if(
                    |next| matches!(next, TokenTree::Punct(second) if second.as_char() == ':'),
                );
            }
            TokenTree::Punct(punct) => {
                push(punct.to_string(), punct.span());
                match punct.as_char() {
                    ';' => item = false,
                    '#' => {
                        let inner = rest.next_if(|next| next.to_string() == "!").is_some();
                        if let Some(TokenTree::Group(group)) = rest.peek()
                            && means_test(&group.stream())
                        {
                            *(if inner { &mut whole } else { &mut item }) = true;
                        }
                    }
                    _ => {}
                }
            }
            TokenTree::Ident(ident) => push(ident.to_string(), ident.span()),
            TokenTree::Literal(literal) => push(literal.to_string(), literal.span()),
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                push(open.to_owned(), group.span_open());
                flatten(group.stream(), in_test, tokens);
                tokens.push(Token {
                    text: close.to_owned(),
                    line: group.span_close().start().line,
                    in_test,
                });
                if group.delimiter() == Delimiter::Brace {
                    item = false;
                }
            }
        }
    }
}

/// Returns whether an attribute is `test`, `…::test`, or a `cfg` that requires `test`.
fn means_test(attribute: &TokenStream) -> bool {
    let mut tokens = Vec::new();
    flatten(attribute.clone(), false, &mut tokens);
    let words: Vec<&str> = tokens.iter().map(|token| &token.text[..]).collect();
    match words.as_slice() {
        ["cfg", inside @ ..] => {
            inside.contains(&"test")
                && !inside.windows(3).any(|three| three == ["not", "(", "test"])
        }
        [.., "test"] => true,
        _ => false,
    }
}
