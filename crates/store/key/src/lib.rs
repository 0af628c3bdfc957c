//! The identities of a cluster's members: roots, certificates, identities, and their files.
//!
//! A cluster has a [`Root`], which its administrator keeps. The root issues [`Identity`]s to
//! servers, clients and administrators. An identity has four parts: a secret key, the root's
//! [`Certificate`] of the public half of that key, the root's public key, and the *door key*. The
//! door key is a secret that all members share: with it a server ignores strangers before it does
//! any costly work for them.
//!
//! The caller supplies the time, in seconds since 1970. Random bytes come from the system.

mod file;
mod identity;
mod root;

pub use file::{FileError, MAX_FILE};
pub use identity::{Identity, Untrusted, verify};
pub use root::{IssueError, Root, Terms};
pub use sprat_wire::certificate::{BadCertificate, Certificate, Grant, Rights, Role};

/// The operating system returned no random bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the operating system provided no random bytes")]
pub struct NoEntropy;

/// Returns random bytes that are fit for secrets.
///
/// # Errors
/// [`NoEntropy`] when the operating system provides no random bytes.
pub fn random() -> Result<[u8; 32], NoEntropy> {
    let random = ring::rand::generate(&ring::rand::SystemRandom::new()).map_err(|_| NoEntropy)?;
    Ok(random.expose())
}
