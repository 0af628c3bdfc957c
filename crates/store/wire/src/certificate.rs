//! The layout of certificates, which a cluster's root issues to members.
//!
//! ```text
//! bytes
//! 1      version, 1
//! 1      role: 1 admin, 2 server, 3 client
//! 1      length of the name
//! 1      number of grants
//! 8      valid from, seconds since 1970
//! 8      valid until
//! 32     the member's public key (X25519)
//!        the name, UTF-8
//!        each grant: rights (1 read, 3 read and write), length of the pattern, the pattern
//! 64     the root's signature of `CONTEXT` and all before it (Ed25519)
//! ```
//!
//! The crate `key` verifies the signature.

use crate::MAX_TABLE_NAME;
use std::fmt::{self, Display};
use thiserror::Error;
use zerocopy::byteorder::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Prefix of the signed bytes, so that a signature of a certificate is valid for nothing else.
pub const CONTEXT: &[u8] = b"sprat certificate\0";

/// The longest certificate, in bytes, with its signature. It fits into one frame together with the
/// rest of a handshake message.
pub const MAX_CERTIFICATE: usize = 1024;

/// The largest number of grants in a certificate.
pub const MAX_GRANTS: usize = 32;

/// The longest name of a member, in bytes of UTF-8.
pub const MAX_NAME: usize = 64;

/// Bytes of a public key, and of a secret one.
pub const KEY_BYTES: usize = 32;

/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;

/// The version of the layout that this module reads and writes.
const VERSION: u8 = 1;

/// The role of a member in the cluster.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Role {
    /// Administers the cluster: makes and drops tables, reads and writes all of them.
    Admin = 1,
    /// A server or coordinator: may send all requests that servers send each other.
    Server = 2,
    /// Uses the tables that its grants name, with the rights in these grants.
    Client = 3,
}

impl Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Admin => "admin",
            Self::Server => "server",
            Self::Client => "client",
        })
    }
}

/// What a grant allows on the tables that it names.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Rights {
    /// Reading objects.
    Read = 1,
    /// Reading and changing objects.
    Write = 3,
}

/// Gives a client rights on all tables whose names match a pattern.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Grant {
    /// A pattern for the names of the tables; `*` stands for any run of characters.
    pub pattern: String,
    /// The client's rights on these tables.
    pub rights: Rights,
}

/// The statement of a cluster's root about a member.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Certificate {
    /// The member's role.
    pub role: Role,
    /// The member's name, for people.
    pub name: String,
    /// The member's public key.
    pub key: [u8; KEY_BYTES],
    /// The first second of the certificate's validity, in seconds since 1970.
    pub from: u64,
    /// The first second after the certificate's validity, in seconds since 1970.
    pub until: u64,
    /// The tables that the member may use; empty unless the member is a client.
    pub grants: Vec<Grant>,
}

/// Why bytes are not a certificate, or why fields cannot be encoded as one.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum BadCertificate {
    /// Too short, too long, or not as long as its fields say.
    #[error("{0} bytes are not a certificate's length")]
    Length(usize),
    /// A version that this program does not know.
    #[error("the certificate has version {0}, this program knows {VERSION}: use a newer one")]
    Version(u8),
    /// An unknown role.
    #[error("unknown role {0}")]
    Role(u8),
    /// A name that is empty, too long or not UTF-8.
    #[error("a name has 1 to {MAX_NAME} bytes of UTF-8")]
    Name,
    /// An invalid grant, too many of them, or a grant of a member that is not a client.
    #[error(
        "only clients have grants, at most {MAX_GRANTS}, each of r or rw for a table's name of 1 \
         to {MAX_TABLE_NAME} bytes"
    )]
    Grant,
    /// The certificate is valid at no time: `until` is not above `from`.
    #[error("its validity period is empty")]
    Never,
}

#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    version: u8,
    role: u8,
    name: u8,
    grants: u8,
    from: U64,
    until: U64,
    key: [u8; KEY_BYTES],
}

impl Certificate {
    /// Encodes the bytes to be signed, without [`CONTEXT`] and signature.
    ///
    /// # Errors
    /// [`BadCertificate`] when the name, a grant or the period of validity is invalid, or the
    /// certificate is over [`MAX_CERTIFICATE`].
    pub fn encode(&self) -> Result<Vec<u8>, BadCertificate> {
        let name = u8::try_from(self.name.len()).map_err(|_| BadCertificate::Name)?;
        let grants = u8::try_from(self.grants.len()).map_err(|_| BadCertificate::Grant)?;
        let raw = Raw {
            version: VERSION,
            role: self.role as u8,
            name,
            grants,
            from: self.from.into(),
            until: self.until.into(),
            key: self.key,
        };
        let mut out = raw.as_bytes().to_vec();
        out.extend_from_slice(self.name.as_bytes());
        for grant in &self.grants {
            out.push(grant.rights as u8);
            out.push(u8::try_from(grant.pattern.len()).map_err(|_| BadCertificate::Grant)?);
            out.extend_from_slice(grant.pattern.as_bytes());
        }
        // Parsing checks every field, as the reader will.
        match Self::parse_signed(&out, out.len() + SIGNATURE_BYTES)? == *self {
            true => Ok(out),
            false => Err(BadCertificate::Length(out.len())),
        }
    }

    /// Parses a certificate: returns it, the bytes that were signed, and the signature, which is
    /// not verified.
    ///
    /// # Errors
    /// [`BadCertificate`] when the length differs from what the fields say or is over
    /// [`MAX_CERTIFICATE`], the version or role is unknown, or the name, a grant or the period of
    /// validity is invalid.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8], &[u8; SIGNATURE_BYTES]), BadCertificate> {
        let (signed, signature) = bytes
            .split_last_chunk::<SIGNATURE_BYTES>()
            .ok_or(BadCertificate::Length(bytes.len()))?;
        Ok((Self::parse_signed(signed, bytes.len())?, signed, signature))
    }

    fn parse_signed(bytes: &[u8], total: usize) -> Result<Self, BadCertificate> {
        let length = BadCertificate::Length(total);
        let (raw, mut rest) = Raw::ref_from_prefix(bytes).map_err(|_| length)?;
        if total > MAX_CERTIFICATE {
            return Err(length);
        }
        if raw.version != VERSION {
            return Err(BadCertificate::Version(raw.version));
        }
        let role = match raw.role {
            1 => Role::Admin,
            2 => Role::Server,
            3 => Role::Client,
            other => return Err(BadCertificate::Role(other)),
        };
        let mut take = |len: u8| {
            let (taken, behind) = rest.split_at_checked(usize::from(len)).ok_or(length)?;
            rest = behind;
            Ok(taken)
        };
        let name = str::from_utf8(take(raw.name)?).map_err(|_| BadCertificate::Name)?;
        if !(1..=MAX_NAME).contains(&name.len()) {
            return Err(BadCertificate::Name);
        }
        if usize::from(raw.grants) > MAX_GRANTS || (raw.grants > 0 && role != Role::Client) {
            return Err(BadCertificate::Grant);
        }
        let mut grants = Vec::new();
        for _ in 0..raw.grants {
            let rights = match take(1)? {
                [1] => Rights::Read,
                [3] => Rights::Write,
                _ => return Err(BadCertificate::Grant),
            };
            let len = take(1)?[0];
            let pattern = str::from_utf8(take(len)?).map_err(|_| BadCertificate::Grant)?;
            if !(1..=MAX_TABLE_NAME).contains(&pattern.len()) {
                return Err(BadCertificate::Grant);
            }
            grants.push(Grant { pattern: pattern.to_owned(), rights });
        }
        if !rest.is_empty() {
            return Err(length);
        }
        let (from, until) = (raw.from.get(), raw.until.get());
        if from >= until {
            return Err(BadCertificate::Never);
        }
        Ok(Self { role, name: name.to_owned(), key: raw.key, from, until, grants })
    }

    /// Returns whether the certificate is valid at `unix`, in seconds since 1970.
    #[must_use]
    pub fn is_valid_at(&self, unix: u64) -> bool {
        (self.from..self.until).contains(&unix)
    }

    /// Returns the rights that the certificate gives on the table of that name; `None` when it
    /// gives none.
    #[must_use]
    pub fn rights(&self, table: &str) -> Option<Rights> {
        match self.role {
            Role::Admin | Role::Server => Some(Rights::Write),
            Role::Client => {
                let fits = self
                    .grants
                    .iter()
                    .filter(|grant| matches(grant.pattern.as_bytes(), table.as_bytes()));
                fits.map(|grant| grant.rights).max()
            }
        }
    }
}

/// Returns whether a name matches a pattern, in which `*` stands for any run of bytes. Takes at
/// most time proportional to the product of both lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut seen) = (0, 0);
    // Where to continue when the bytes after the last `*` do not match: directly after the `*`,
    // which then matches one byte more.
    let mut star: Option<(usize, usize)> = None;
    while seen < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, seen));
                at += 1;
            }
            Some(byte) if *byte == name[seen] => {
                at += 1;
                seen += 1;
            }
            _ => {
                let Some((behind, taken)) = star else { return false };
                star = Some((behind, taken + 1));
                (at, seen) = (behind, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}
