//! Who may speak in a cluster: roots, certificates, identities, and the files they are in.
//!
//! A cluster has a [`Root`], which stays with whoever runs it. The root issues [`Identity`]s: to
//! servers, to clients, to those who administer. An identity is a secret key, the root's
//! [`Certificate`] of its public half, the root's public key, and the *door key*, a secret that all
//! members have and that only keeps strangers out.
//!
//! The time is the caller's, in seconds since 1970. Random bytes are the system's.

mod file;
mod identity;
mod root;

pub use file::{FileError, MAX_FILE};
pub use identity::{Identity, Untrusted, verify};
pub use root::{IssueError, Root, Terms};
pub use sprat_wire::certificate::{BadCertificate, Certificate, Grant, Rights, Role};

/// The system has no random bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the system gives no random bytes")]
pub struct NoEntropy;

/// Random bytes that nobody can guess.
///
/// # Errors
/// [`NoEntropy`].
pub fn random() -> Result<[u8; 32], NoEntropy> {
    let random = ring::rand::generate(&ring::rand::SystemRandom::new()).map_err(|_| NoEntropy)?;
    Ok(random.expose())
}
