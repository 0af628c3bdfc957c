//! Access control. A token grants access to everything. A ticket, which is made from a token,
//! grants access to a single file.

use super::ticket::{self, TicketKey};
use sprat_http::server::request::Request;
use std::path::{Path, PathBuf};
use std::{fmt, io};
use thiserror::Error;

/// The smallest length of a token, in bytes. A random token of this length cannot be guessed over a
/// network.
pub const MIN_TOKEN: usize = 16;

/// The largest length of a token, in bytes. A file of tokens with a longer token is rejected.
pub const MAX_TOKEN: usize = 1024;

/// Limit on the number of tokens in a file of tokens. A file with more tokens is rejected.
pub const MAX_TOKENS: usize = 1024;

/// The name of the cookie that replaces a token in a browser's address.
pub const COOKIE: &str = "sprat-token";

/// The tokens that grant access. If there are no tokens, everybody has access. Tokens are kept as
/// hashes. Every check compares with all hashes in constant time, so that timing reveals nothing.
#[derive(Clone, Default)]
pub struct Tokens {
    /// The hash of each token, and its right.
    all: Vec<(blake3::Hash, Right)>,
}

/// The right that a token grants.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Right {
    /// To read.
    Read,
    /// To read, and to upload if the server allows uploads.
    Write,
}

/// Why a file of tokens is invalid.
#[derive(Debug, Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the tokens in {}: {source}", path.display())]
    Io {
        /// The path of the file of tokens.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A line is not a token.
    #[error("{}, line {line}: want a token of {MIN_TOKEN} to {MAX_TOKEN} letters, digits and \
         marks, with ` read` or ` write` after it if wanted", path.display())]
    Line {
        /// The path of the file of tokens.
        path: PathBuf,
        /// The number of the line, counted from 1.
        line: usize,
    },
    /// The file has no tokens, or too many.
    #[error("{} has {count} tokens; want 1 to {MAX_TOKENS}, one per line", path.display())]
    Count {
        /// The path of the file of tokens.
        path: PathBuf,
        /// The number of tokens in the file.
        count: usize,
    },
}

/// How a request proved its right.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Proof {
    /// No token is required.
    None,
    /// A token in the field `Authorization`, or the cookie that stands for a token.
    Head(TicketKey, Right),
    /// A token in the request's address, which others may read in histories and logs.
    Address(TicketKey, Right),
    /// A ticket, which is valid only for the requested file.
    Ticket,
}

impl Tokens {
    /// Reads a file with a token on each line; empty lines and those that begin with `#` are
    /// skipped. After a token and a space, a line may state its right: `read`, or `write`, which is
    /// the default.
    ///
    /// # Errors
    /// The file cannot be read or is not UTF-8, a line is not a token of [`MIN_TOKEN`] to
    /// [`MAX_TOKEN`] visible ASCII characters with a known right, or there are no tokens or more
    /// than [`MAX_TOKENS`].
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| TokenError::Io { path: path.to_owned(), source })?;
        let mut all = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let token = line.trim();
            if token.is_empty() || token.starts_with('#') {
                continue;
            }
            let (token, right) = match token.split_once(char::is_whitespace) {
                None => (token, Some(Right::Write)),
                Some((token, word)) => match word.trim() {
                    "read" => (token, Some(Right::Read)),
                    "write" => (token, Some(Right::Write)),
                    _ => (token, None),
                },
            };
            let fits = (MIN_TOKEN..=MAX_TOKEN).contains(&token.len());
            match right.filter(|_| fits && token.bytes().all(|byte| byte.is_ascii_graphic())) {
                Some(right) => all.push((blake3::hash(token.as_bytes()), right)),
                None => return Err(TokenError::Line { path: path.to_owned(), line: at + 1 }),
            }
        }
        match all.len() {
            1..=MAX_TOKENS => Ok(Self { all }),
            count => Err(TokenError::Count { path: path.to_owned(), count }),
        }
    }

    /// Checks a request. `None` if the request grants no right.
    #[must_use]
    pub fn check(&self, request: &Request) -> Option<Proof> {
        if !self.are_required() {
            return Some(Proof::None);
        }
        if let Some(field) = request.field("authorization") {
            let (scheme, token) = field.split_once(' ')?;
            let token = Some(token.trim()).filter(|_| scheme.eq_ignore_ascii_case("bearer"))?;
            return self.key(token).map(|(key, right)| Proof::Head(key, right));
        }
        let parameter = |name| request.target.as_ref().and_then(|target| target.parameter(name));
        if let Some(token) = parameter("token") {
            return self.key(&token).map(|(key, right)| Proof::Address(key, right));
        }
        // A client with an expired ticket may still have a cookie.
        if let (Some(ticket), Some(target)) = (parameter(ticket::PARAMETER), &request.target)
            && self
                .all
                .iter()
                .fold(false, |found, (one, _)| found | TicketKey::of(one).verifies(&ticket, target))
        {
            return Some(Proof::Ticket);
        }
        let cookies = request.field("cookie")?;
        let mut pairs = cookies.split(';').filter_map(|pair| pair.trim().split_once('='));
        let found =
            pairs.find_map(|(name, value)| (name == COOKIE).then(|| self.cookie_key(value))?);
        found.map(|(key, right)| Proof::Head(key, right))
    }

    /// Returns whether a token is required, because there is at least one.
    #[must_use]
    pub fn are_required(&self) -> bool {
        !self.all.is_empty()
    }

    /// Returns the cookie value for a token, from which the token cannot be derived.
    #[must_use]
    pub fn cookie(token: &str) -> String {
        in_cookie(blake3::hash(token.as_bytes()))
    }

    /// Returns the ticket key and right of a token, if the token is valid. Always compares with all
    /// tokens.
    fn key(&self, token: &str) -> Option<(TicketKey, Right)> {
        let hash = blake3::hash(token.as_bytes());
        self.find(|one| *one == hash)
    }

    /// Returns the ticket key and right of the token that a cookie stands for.
    fn cookie_key(&self, value: &str) -> Option<(TicketKey, Right)> {
        let value = blake3::hash(value.as_bytes());
        self.find(|one| blake3::hash(in_cookie(*one).as_bytes()) == value)
    }

    fn find(&self, is_it: impl Fn(&blake3::Hash) -> bool) -> Option<(TicketKey, Right)> {
        let found = |found, (one, right): &(blake3::Hash, Right)| match is_it(one) {
            true => Some((TicketKey::of(one), *right)),
            false => found,
        };
        self.all.iter().fold(None, found)
    }
}

fn in_cookie(hash: blake3::Hash) -> String {
    blake3::derive_key("sprat share, cookie, 1", hash.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.all.len())
    }
}
