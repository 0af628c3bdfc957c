//! Encryption: certificates from files, or one that is made on the spot.

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Why there is no encryption.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rustls::pki_types::pem::Error,
    },
    /// There is nothing in it.
    #[error("{} has no certificate", .0.display())]
    Empty(PathBuf),
    /// Certificate and key are of no use, or do not belong together.
    #[error("the certificate cannot be used: {0}")]
    Unfit(#[from] rustls::Error),
    /// One could not be made.
    #[error("cannot make a certificate: {0}")]
    Making(#[from] rcgen::Error),
}

/// A certificate that nobody signed but itself.
#[derive(Clone, Debug)]
pub struct SelfSigned {
    /// For [`Options::tls`](super::Options::tls).
    pub config: Arc<ServerConfig>,
    /// For a client that is to trust it (`curl --cacert`).
    pub pem: String,
    /// SHA-256 of the certificate, in hexadecimal with colons, as browsers show it.
    pub fingerprint: String,
}

/// Reads a chain of certificates, the server's own first, and its private key, both PEM.
///
/// # Errors
/// [`TlsError`].
pub fn load(chain: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let file = |path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::File { path, source }
    };
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(chain).map_err(file(chain))?.collect();
    let certificates = certificates.map_err(file(chain))?;
    if certificates.is_empty() {
        return Err(TlsError::Empty(chain.to_owned()));
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(file(key))?;
    config(certificates, key)
}

/// Makes a certificate for these host names and addresses.
///
/// # Errors
/// [`TlsError`]: a name is none.
pub fn self_signed(names: &[String]) -> Result<SelfSigned, TlsError> {
    let made = rcgen::generate_simple_self_signed(names)?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())
        .expect("a key as it was just made");
    let der = made.cert.der().clone();
    let digest = ring::digest::digest(&ring::digest::SHA256, &der);
    let pairs: Vec<_> = digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    Ok(SelfSigned {
        config: config(vec![der], key)?,
        pem: made.cert.pem(),
        fingerprint: pairs.join(":"),
    })
}

fn config(
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_single_cert(certificates, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
