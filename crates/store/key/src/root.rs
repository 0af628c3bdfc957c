//! A cluster's root: what makes members of it.

use crate::identity::Identity;
use crate::{Certificate, Grant, NoEntropy, Role};
use curve25519_dalek::MontgomeryPoint;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use sprat_wire::certificate::{BadCertificate, CONTEXT, KEY_BYTES};
use std::fmt;
use thiserror::Error;

/// The key of a cluster by which its members are made. Whoever has it can be anybody: it belongs on
/// no server.
pub struct Root {
    pub(crate) seed: [u8; KEY_BYTES],
    pub(crate) door_key: [u8; KEY_BYTES],
    pair: Ed25519KeyPair,
}

/// What a member is to be.
#[derive(Clone, Debug)]
pub struct Terms {
    /// What it is to the cluster.
    pub role: Role,
    /// What people call it.
    pub name: String,
    /// Tables that it may use; of clients only.
    pub grants: Vec<Grant>,
    /// Seconds since 1970 from which on it is valid, and the first in which it is not any more.
    pub valid: (u64, u64),
}

/// Why an identity was not issued.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum IssueError {
    /// What was asked for cannot be certified.
    #[error(transparent)]
    Terms(#[from] BadCertificate),
    /// There are no random bytes.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
}

impl Root {
    /// A root of a cluster that there was not.
    ///
    /// # Errors
    /// [`NoEntropy`].
    pub fn generate() -> Result<Self, NoEntropy> {
        Ok(Self::from_parts(crate::random()?, crate::random()?))
    }

    pub(crate) fn from_parts(seed: [u8; KEY_BYTES], door_key: [u8; KEY_BYTES]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("a seed has 32 bytes");
        Self { seed, door_key, pair }
    }

    /// Its public key, by which members know one another.
    #[must_use]
    pub fn public(&self) -> [u8; KEY_BYTES] {
        self.pair.public_key().as_ref().try_into().expect("a public key has 32 bytes")
    }

    /// Makes a member.
    ///
    /// # Errors
    /// [`IssueError`].
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
    /// Tells nothing that is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root").field("public", &self.public()).finish_non_exhaustive()
    }
}
