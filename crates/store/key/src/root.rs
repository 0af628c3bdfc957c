//! A cluster's root, which issues identities to members.

use crate::identity::Identity;
use crate::{Certificate, Grant, NoEntropy, Role};
use curve25519_dalek::MontgomeryPoint;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use sprat_wire::certificate::{BadCertificate, CONTEXT, KEY_BYTES};
use std::fmt;
use thiserror::Error;

/// The key of a cluster, which signs its members' certificates, and the cluster's door key. Anyone
/// who has them can issue any identity, so they must not be kept on a server.
pub struct Root {
    pub(crate) seed: [u8; KEY_BYTES],
    pub(crate) door_key: [u8; KEY_BYTES],
    pair: Ed25519KeyPair,
}

/// The contents of an identity to be issued.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The member's role.
    pub role: Role,
    /// The member's name, for people.
    pub name: String,
    /// The tables that the member may use; empty unless the member is a client.
    pub grants: Vec<Grant>,
    /// The period of validity, in seconds since 1970: its first second, and the first second after
    /// it.
    pub valid: (u64, u64),
}

/// Why an identity was not issued.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum IssueError {
    /// The terms are invalid.
    #[error(transparent)]
    Terms(#[from] BadCertificate),
    /// The system returned no random bytes.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
}

impl Root {
    /// Makes a new root.
    ///
    /// # Errors
    /// [`NoEntropy`] when the operating system provides no random bytes.
    pub fn generate() -> Result<Self, NoEntropy> {
        Ok(Self::from_parts(crate::random()?, crate::random()?))
    }

    pub(crate) fn from_parts(seed: [u8; KEY_BYTES], door_key: [u8; KEY_BYTES]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("a seed has 32 bytes");
        Self { seed, door_key, pair }
    }

    /// Returns the public key, with which members' certificates are verified.
    #[must_use]
    pub fn public(&self) -> [u8; KEY_BYTES] {
        self.pair.public_key().as_ref().try_into().expect("a public key has 32 bytes")
    }

    /// Issues an identity, with a new secret key.
    ///
    /// # Errors
    /// [`IssueError::Terms`] when the name, a grant or the period of validity is invalid or the
    /// certificate would be too long, and [`IssueError::Entropy`] when the operating system
    /// provides no random bytes.
    pub fn issue(&self, terms: &Terms) -> Result<Identity, IssueError> {
        let secret = crate::random()?;
        let Terms { role, name, grants, valid: (from, until) } = terms.clone();
        let key = MontgomeryPoint::mul_base_clamped(secret).to_bytes();
        let mut certificate = Certificate { role, name, key, from, until, grants }.encode()?;
        let signature = self.pair.sign(&[CONTEXT, &certificate].concat());
        certificate.extend_from_slice(signature.as_ref());
        Ok(Identity::from_parts(secret, self.door_key, self.public(), certificate)
            .expect("just made"))
    }
}

impl fmt::Debug for Root {
    /// Shows the root without its secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root").field("public", &self.public()).finish_non_exhaustive()
    }
}
