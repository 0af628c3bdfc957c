//! TLS certificates: from files, or self-signed.

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Why TLS cannot be configured.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file's path.
        path: PathBuf,
        /// Why the file cannot be read.
        source: rustls::pki_types::pem::Error,
    },
    /// The file contains no certificate.
    #[error("{} has no certificate", .0.display())]
    Empty(PathBuf),
    /// The certificate or the key is unusable, or they do not match.
    #[error("the certificate cannot be used: {0}")]
    Unfit(#[from] rustls::Error),
    /// A self-signed certificate could not be created.
    #[error("cannot make a certificate: {0}")]
    Making(#[from] rcgen::Error),
}

/// A self-signed certificate.
#[derive(Clone, Debug)]
pub struct SelfSigned {
    /// The configuration for [`Options::tls`](super::Options::tls).
    pub config: Arc<ServerConfig>,
    /// The certificate in PEM, for a client that is to trust it (`curl --cacert`).
    pub pem: String,
    /// SHA-256 of the certificate, in hexadecimal with colons, as browsers display it.
    pub fingerprint: String,
}

/// Reads a certificate chain, the server's own certificate first, and its private key, both in PEM.
///
/// # Errors
/// A file cannot be read or is not PEM, `chain` contains no certificate, or the certificate and the
/// key cannot be used or do not match.
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

/// Creates a self-signed certificate for host names and addresses.
/// # Errors
/// A name is neither a host name nor an address that a certificate can contain, or the library
/// cannot create or use the certificate.
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
