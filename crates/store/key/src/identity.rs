//! What a member of a cluster is, and how others are told to be members too.

use crate::{Certificate, Role};
use curve25519_dalek::MontgomeryPoint;
use ring::signature::{ED25519, UnparsedPublicKey};
use sprat_wire::certificate::{BadCertificate, CONTEXT, KEY_BYTES};
use std::fmt;
use thiserror::Error;

/// A member of a cluster: whoever has this is it.
#[derive(Clone)]
pub struct Identity {
    pub(crate) secret: [u8; KEY_BYTES],
    pub(crate) door_key: [u8; KEY_BYTES],
    pub(crate) root: [u8; KEY_BYTES],
    /// As others are shown it.
    pub(crate) certificate_bytes: Vec<u8>,
    certificate: Certificate,
}

/// Why a certificate is not believed.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum Untrusted {
    /// It is none.
    #[error(transparent)]
    Malformed(#[from] BadCertificate),
    /// Another root has signed it, or none.
    #[error("it is not of this cluster's root")]
    Root,
    /// It says something of another key.
    #[error("it is of another key")]
    Key,
    /// It is valid later.
    #[error("it is not valid yet: is the clock right?")]
    Early,
    /// It was valid.
    #[error("it has expired: have another issued (`sprat key issue`)")]
    Expired,
}

/// Reads a certificate and finds out whether `root` has signed it.
///
/// # Errors
/// [`Untrusted`]: `Malformed` or `Root`.
pub fn verify(root: &[u8; KEY_BYTES], bytes: &[u8]) -> Result<Certificate, Untrusted> {
    let (certificate, signed, signature) = Certificate::parse(bytes)?;
    let message = [CONTEXT, signed].concat();
    UnparsedPublicKey::new(&ED25519, root)
        .verify(&message, signature)
        .map_err(|_| Untrusted::Root)?;
    Ok(certificate)
}

impl Identity {
    /// The member that has these.
    ///
    /// # Errors
    /// [`Untrusted`], when they do not belong together.
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

    /// Its secret key (X25519).
    #[must_use]
    pub fn secret(&self) -> &[u8; KEY_BYTES] {
        &self.secret
    }

    /// The secret that all members of the cluster have.
    #[must_use]
    pub fn door_key(&self) -> &[u8; KEY_BYTES] {
        &self.door_key
    }

    /// The public key of the cluster's root (Ed25519).
    #[must_use]
    pub fn root(&self) -> &[u8; KEY_BYTES] {
        &self.root
    }

    /// What the root says of it.
    #[must_use]
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// The same as bytes, to be shown to others.
    #[must_use]
    pub fn certificate_bytes(&self) -> &[u8] {
        &self.certificate_bytes
    }

    /// Whether it may be used at that second since 1970.
    ///
    /// # Errors
    /// [`Untrusted`]: `Early` or `Expired`.
    pub fn check(&self, unix: u64) -> Result<(), Untrusted> {
        valid(&self.certificate, unix)
    }

    /// Believes a certificate that was shown by whoever has the secret half of `key`, at that
    /// second.
    ///
    /// # Errors
    /// [`Untrusted`].
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

    /// What it is to the cluster.
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
    /// Tells nothing that is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}
