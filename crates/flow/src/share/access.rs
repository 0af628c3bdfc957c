//! Who may see what is shared: those who know a token.

use crate::http::request::Request;
use std::path::{Path, PathBuf};
use std::{fmt, io};
use thiserror::Error;

/// Fewest bytes of a token: what nobody guesses over a network.
pub const MIN_TOKEN: usize = 16;

/// Most bytes of a token.
pub const MAX_TOKEN: usize = 1024;

/// Most tokens of a file.
pub const MAX_TOKENS: usize = 1024;

/// The cookie that a browser gets for a token in an address.
pub const COOKIE: &str = "sprat-token";

/// Tokens, any of which gives access. Without one everybody has it.
#[derive(Clone, Default)]
pub struct Tokens {
    /// Of each only its hash, which is compared in constant time, whatever is sent.
    hashes: Vec<blake3::Hash>,
}

/// Why a file of tokens is none.
#[derive(Debug, Error)]
pub enum TokenError {
    /// It cannot be read.
    #[error("cannot read the tokens in {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A line is no token.
    #[error("{}, line {line}: a token has {MIN_TOKEN} to {MAX_TOKEN} letters, digits and marks, without spaces", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Which, counted from 1.
        line: usize,
    },
    /// It has none, or too many.
    #[error("{} has {count} tokens; 1 to {MAX_TOKENS} are wanted, one a line", path.display())]
    Count {
        /// The file.
        path: PathBuf,
        /// How many.
        count: usize,
    },
}

/// How a request proved that it may.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Proof {
    /// Nothing had to be.
    None,
    /// A field of its head, or a cookie.
    Head,
    /// A part of its address, where others may read it.
    Address,
}

impl Tokens {
    /// Reads a file with a token on each line; empty lines, and those that begin with `#`, are passed over.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let text = std::fs::read_to_string(path).map_err(|source| TokenError::Io { path: path.to_owned(), source })?;
        let mut hashes = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let token = line.trim();
            if token.is_empty() || token.starts_with('#') {
                continue;
            }
            if !(MIN_TOKEN..=MAX_TOKEN).contains(&token.len()) || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(TokenError::Line { path: path.to_owned(), line: at + 1 });
            }
            hashes.push(blake3::hash(token.as_bytes()));
        }
        match hashes.len() {
            1..=MAX_TOKENS => Ok(Self { hashes }),
            count => Err(TokenError::Count { path: path.to_owned(), count }),
        }
    }

    /// Whether a request may be answered, and by what; `None` when it may not.
    #[must_use]
    pub fn check(&self, request: &Request) -> Option<Proof> {
        if self.hashes.is_empty() {
            return Some(Proof::None);
        }
        if let Some(field) = request.field("authorization") {
            let (scheme, token) = field.split_once(' ')?;
            return (scheme.eq_ignore_ascii_case("bearer") && self.has(token.trim())).then_some(Proof::Head);
        }
        if let Some(token) = request.target.as_ref().and_then(|target| target.parameter("token")) {
            return self.has(&token).then_some(Proof::Address);
        }
        let cookies = request.field("cookie")?;
        let mut pairs = cookies.split(';').filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(name, value)| name == COOKIE && self.has_cookie(value)).then_some(Proof::Head)
    }

    /// What a cookie holds for a token: something that is of no use as one.
    #[must_use]
    pub fn cookie(token: &str) -> String {
        in_cookie(blake3::hash(token.as_bytes()))
    }

    fn has(&self, token: &str) -> bool {
        let hash = blake3::hash(token.as_bytes());
        self.hashes.iter().fold(false, |found, one| found | (*one == hash))
    }

    fn has_cookie(&self, value: &str) -> bool {
        let value = blake3::hash(value.as_bytes());
        self.hashes.iter().fold(false, |found, one| found | (blake3::hash(in_cookie(*one).as_bytes()) == value))
    }
}

fn in_cookie(hash: blake3::Hash) -> String {
    blake3::derive_key("sprat share, cookie, 1", hash.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.hashes.len())
    }
}
