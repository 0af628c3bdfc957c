//! Identities of members, and the verification of other members' certificates.

use crate::{Certificate, Role};
use curve25519_dalek::MontgomeryPoint;
use ring::signature::{ED25519, UnparsedPublicKey};
use sprat_wire::certificate::{BadCertificate, CONTEXT, KEY_BYTES};
use std::fmt;
use thiserror::Error;

/// A member's identity: its secret key, its certificate, the root's public key, and the cluster's
/// door key. It proves membership to other members, and verifies theirs. Keep it secret: a process
/// that has it can act as this member.
#[derive(Clone)]
pub struct Identity {
    pub(crate) secret: [u8; KEY_BYTES],
    pub(crate) door_key: [u8; KEY_BYTES],
    pub(crate) root: [u8; KEY_BYTES],
    /// The encoded certificate, with its signature.
    pub(crate) certificate_bytes: Vec<u8>,
    certificate: Certificate,
}

/// Why a certificate is not trusted.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum Untrusted {
    /// The bytes are not a certificate.
    #[error(transparent)]
    Malformed(#[from] BadCertificate),
    /// The signature is not that of the cluster's root.
    #[error("it was not issued by this cluster's root")]
    Root,
    /// The certificate is for another key.
    #[error("it belongs to another key")]
    Key,
    /// The certificate's period of validity has not begun.
    #[error("it is not valid yet: is the clock right?")]
    Early,
    /// The certificate's period of validity has ended.
    #[error("it has expired: issue a new one (`sprat key issue`)")]
    Expired,
}

/// Parses a certificate and verifies that `root` has signed it. Does not check its period of
/// validity.
///
/// # Errors
/// [`Untrusted::Malformed`] when the bytes cannot be parsed, and [`Untrusted::Root`] when the
/// signature is not that of `root`.
pub fn verify(root: &[u8; KEY_BYTES], bytes: &[u8]) -> Result<Certificate, Untrusted> {
    let (certificate, signed, signature) = Certificate::parse(bytes)?;
    let message = [CONTEXT, signed].concat();
    UnparsedPublicKey::new(&ED25519, root)
        .verify(&message, signature)
        .map_err(|_| Untrusted::Root)?;
    Ok(certificate)
}

impl Identity {
    /// Makes an identity from its parts.
    ///
    /// # Errors
    /// [`Untrusted`] when the certificate cannot be parsed, `root` has not signed it, or it is for
    /// another key than `secret`.
    pub(crate) fn from_parts(
        secret: [u8; KEY_BYTES],
        door_key: [u8; KEY_BYTES],
        root: [u8; KEY_BYTES],
        certificate_bytes: Vec<u8>,
    ) -> Result<Self, Untrusted> {
        let certificate = verify(&root, &certificate_bytes)?;
        if MontgomeryPoint::mul_base_clamped(secret).to_bytes() != certificate.key {
            return Err(Untrusted::Key);
        }
        Ok(Self { secret, door_key, root, certificate_bytes, certificate })
    }

    /// Returns the member's secret key (X25519).
    #[must_use]
    pub fn secret(&self) -> &[u8; KEY_BYTES] {
        &self.secret
    }

    /// Returns the door key, a secret that all members of the cluster share.
    #[must_use]
    pub fn door_key(&self) -> &[u8; KEY_BYTES] {
        &self.door_key
    }

    /// Returns the public key of the cluster's root (Ed25519).
    #[must_use]
    pub fn root(&self) -> &[u8; KEY_BYTES] {
        &self.root
    }

    /// Returns the member's certificate.
    #[must_use]
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Returns the encoded certificate, to be sent to other members.
    #[must_use]
    pub fn certificate_bytes(&self) -> &[u8] {
        &self.certificate_bytes
    }

    /// Checks that the identity is valid at second `unix` since 1970.
    ///
    /// # Errors
    /// [`Untrusted::Early`] before the identity's period of validity, and [`Untrusted::Expired`]
    /// after it.
    pub fn check(&self, unix: u64) -> Result<(), Untrusted> {
        valid(&self.certificate, unix)
    }

    /// Verifies the certificate of a peer at second `unix` since 1970, and returns it. The peer
    /// must have proven before that it has the secret half of `key`.
    ///
    /// # Errors
    /// [`Untrusted`] when the bytes cannot be parsed, the cluster's root has not signed them, they
    /// certify another key than `key`, or `unix` is outside the period of validity.
    pub fn verify_peer(
        &self,
        certificate_bytes: &[u8],
        key: &[u8],
        unix: u64,
    ) -> Result<Certificate, Untrusted> {
        let certificate = verify(&self.root, certificate_bytes)?;
        if certificate.key != key {
            return Err(Untrusted::Key);
        }
        valid(&certificate, unix)?;
        Ok(certificate)
    }

    /// Returns the member's role.
    #[must_use]
    pub fn role(&self) -> Role {
        self.certificate.role
    }
}

fn valid(certificate: &Certificate, unix: u64) -> Result<(), Untrusted> {
    match unix {
        early if early < certificate.from => Err(Untrusted::Early),
        late if late >= certificate.until => Err(Untrusted::Expired),
        _ => Ok(()),
    }
}

impl fmt::Debug for Identity {
    /// Shows the identity without its secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}
