//! Who may see what is shared: those who know a token, and of one file those who have a ticket from them.

use super::ticket::{self, Seal};
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
    /// A token in a field of its head, or in a cookie.
    Head(Seal),
    /// A token that is a part of its address, where others may read it.
    Address(Seal),
    /// A ticket: for this file alone.
    Ticket,
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
            let token = Some(token.trim()).filter(|_| scheme.eq_ignore_ascii_case("bearer"))?;
            return self.seal(token).map(Proof::Head);
        }
        let parameter = |name| request.target.as_ref().and_then(|target| target.parameter(name));
        if let Some(token) = parameter("token") {
            return self.seal(&token).map(Proof::Address);
        }
        // Who has a ticket that is over may have a cookie.
        if let (Some(ticket), Some(target)) = (parameter(ticket::PARAMETER), &request.target)
            && self.hashes.iter().fold(false, |found, one| found | Seal::of(one).opens(&ticket, target))
        {
            return Some(Proof::Ticket);
        }
        let cookies = request.field("cookie")?;
        let mut pairs = cookies.split(';').filter_map(|pair| pair.trim().split_once('='));
        pairs.find_map(|(name, value)| (name == COOKIE).then(|| self.cookie_seal(value))?).map(Proof::Head)
    }

    /// What a cookie holds for a token: something that is of no use as one.
    #[must_use]
    pub fn cookie(token: &str) -> String {
        in_cookie(blake3::hash(token.as_bytes()))
    }

    /// The seal of a token that is one of ours. All are compared, whichever it is.
    fn seal(&self, token: &str) -> Option<Seal> {
        let hash = blake3::hash(token.as_bytes());
        let found = self.hashes.iter().fold(false, |found, one| found | (*one == hash));
        found.then(|| Seal::of(&hash))
    }

    /// The same of what a cookie holds.
    fn cookie_seal(&self, value: &str) -> Option<Seal> {
        let value = blake3::hash(value.as_bytes());
        let is_it = |one: &blake3::Hash| blake3::hash(in_cookie(*one).as_bytes()) == value;
        self.hashes.iter().fold(None, |found, one| if is_it(one) { Some(Seal::of(one)) } else { found })
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
