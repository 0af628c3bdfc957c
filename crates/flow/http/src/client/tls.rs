//! Decides which TLS certificates to trust.

use super::fault::Fault;
use super::options::Options;
use crate::error::Error;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// The certificates to trust. The authorities are loaded when the first session needs them.
pub(super) struct Trust {
    authorities: Option<PathBuf>,
    any_certificate: bool,
    /// SHA-256 of the only certificate to trust.
    pin: Option<[u8; 32]>,
    config: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trust({:?}, anybody: {})", self.authorities, self.any_certificate)
    }
}

impl Trust {
    /// Takes the trust settings from `options`.
    ///
    /// # Errors
    /// [`Error::File`] if the file of certificate authorities cannot be opened.
    pub(super) fn new(options: &Options) -> Result<Self, Error> {
        let Options { authorities, insecure, pin, .. } = options;
        if let Some(path) = authorities {
            std::fs::File::open(path)
                .map_err(|source| Error::File { path: path.clone(), source })?;
        }
        Ok(Self {
            authorities: authorities.clone(),
            any_certificate: *insecure,
            pin: *pin,
            config: OnceLock::new(),
        })
    }

    /// Makes a TLS session for a connection to `host`.
    pub(super) fn session(&self, host: &str) -> Result<ClientConnection, Fault> {
        let config = self.config.get_or_init(|| self.config()).clone().map_err(Fault::Untrusted)?;
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| Fault::Untrusted(error.to_string()))?;
        ClientConnection::new(config, name).map_err(|error| Fault::Untrusted(error.to_string()))
    }

    fn config(&self) -> Result<Arc<ClientConfig>, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone());
        let builder =
            builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let mut config = if self.any_certificate || self.pin.is_some() {
            let named = Arc::new(PinnedOrAny { pin: self.pin, provider });
            builder.dangerous().with_custom_certificate_verifier(named).with_no_client_auth()
        } else {
            builder.with_root_certificates(self.roots()?).with_no_client_auth()
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        let Some(path) = &self.authorities else {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                let why =
                    found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
                return Err(format!("this machine has no trusted certificates{why}"));
            }
            return Ok(roots);
        };
        let named = |error: &dyn fmt::Display| format!("{}: {error}", path.display());
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| named(&error))? {
            roots
                .add(certificate.map_err(|error| named(&error))?)
                .map_err(|error| named(&error))?;
        }
        if roots.is_empty() { Err(named(&"no certificate in it")) } else { Ok(roots) }
    }
}

/// Accepts one certificate, or any certificate, because the user asked for it.
#[derive(Debug)]
struct PinnedOrAny {
    pin: Option<[u8; 32]>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedOrAny {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let sum = ::ring::digest::digest(&::ring::digest::SHA256, shown);
        if self.pin.is_some_and(|pin| sum.as_ref() != pin) {
            let hex: String = sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            return Err(rustls::Error::General(format!(
                "its certificate is not the trusted one; its SHA-256 is {hex}"
            )));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
