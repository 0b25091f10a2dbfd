//! TLS with a certificate from files.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// A certificate and its key, as PEM files.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate, followed by those that sign it.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

impl TlsFiles {
    pub(super) fn acceptor(&self) -> io::Result<TlsAcceptor> {
        let problem = |file: &PathBuf, error: &dyn std::fmt::Display| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", file.display()))
        };
        let certificates = CertificateDer::pem_file_iter(&self.certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| problem(&self.certificate, &error))?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| problem(&self.key, &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| problem(&self.certificate, &error))?
            .with_no_client_auth()
            .with_single_cert(certificates, key)
            .map_err(|error| problem(&self.certificate, &error))?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}
