//! Tickets, by which a client that has a token can give a program or another browser access to one
//! file for a day.
//!
//! ```text
//! ticket = until "-" sum        until: seconds since 1970; sum: 64 hexadecimal digits
//! sum    = BLAKE3 of until (8 bytes, little-endian) and the file's path from the root,
//!          keyed by the token's ticket key
//! ```
//! A ticket reveals nothing about the token, survives a restart of the server, and is invalid once
//! the token is removed.

use sprat_http::server::target::Target;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The query parameter that holds a ticket.
pub const PARAMETER: &str = "ticket";

/// How long a ticket is valid.
pub const TICKET_TIME: Duration = Duration::from_secs(24 * 3600);

/// The key that signs the tickets of one token.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct TicketKey([u8; 32]);

impl TicketKey {
    /// Derives the key from a token's hash.
    pub(super) fn of(token: &blake3::Hash) -> Self {
        Self(blake3::derive_key("sprat share, ticket, 1", token.as_bytes()))
    }

    /// Creates a ticket for a file, which is valid for [`TICKET_TIME`] from now on.
    #[must_use]
    pub fn ticket(&self, target: &Target) -> String {
        let until = now().saturating_add(TICKET_TIME.as_secs());
        format!("{until}-{}", self.sum(target, until).to_hex())
    }

    /// Returns whether a ticket was made with this key, for this file, and has not expired.
    pub(super) fn verifies(&self, ticket: &str, target: &Target) -> bool {
        let Some((until, sum)) = ticket.split_once('-') else { return false };
        let (Ok(until), Ok(sum)) = (until.parse(), blake3::Hash::from_hex(sum)) else {
            return false;
        };
        // Hashes are compared in constant time.
        self.sum(target, until) == sum && now() < until
    }

    fn sum(&self, target: &Target, until: u64) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&until.to_le_bytes());
        for name in target.names() {
            hasher.update(b"/").update(name.as_bytes());
        }
        hasher.finalize()
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal")
    }
}

/// Returns the seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_for_one_file_one_token_and_a_day() {
        let (key, other) =
            (TicketKey::of(&blake3::hash(b"one")), TicketKey::of(&blake3::hash(b"other")));
        let target = |text| Target::parse(text).expect("a target");
        let file = target("/a%20b/file?download=sprat");
        let ticket = key.ticket(&file);
        assert!(key.verifies(&ticket, &target("/a b/./file")), "the same file, in other words");
        assert!(!other.verifies(&ticket, &file));
        for path in ["/a%20b", "/a%20b/fil", "/a%20bfile", "/a%20b/file2", "/", "/a%20b/file/x"] {
            assert!(!key.verifies(&ticket, &target(path)), "{path}");
        }
        let (until, sum) = ticket.split_once('-').expect("two parts");
        let later = until.parse::<u64>().expect("a number") + 1;
        for forged in [
            format!("{later}-{sum}"),
            sum.to_owned(),
            format!("{until}-"),
            format!("-{sum}"),
            String::new(),
        ] {
            assert!(!key.verifies(&forged, &file), "{forged}");
        }
        let past = now() - 1;
        assert!(
            !key.verifies(&format!("{past}-{}", key.sum(&file, past).to_hex()), &file),
            "its day is over"
        );
    }
}
