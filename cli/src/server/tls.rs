//! Encrypted streams.

use crate::error::Failure;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::net::TcpStream;
use std::sync::Arc;

/// The authorities to trust, and the client's own certificate.
pub(super) struct Certificates {
    /// The authorities to trust; `None` for the system's.
    pub(super) authorities: Option<Vec<CertificateDer<'static>>>,
    /// The client's own certificate and key.
    pub(super) own: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
}

/// Encrypts a new connection to `host`. The host's certificate must be valid.
pub(super) fn encrypt(
    stream: TcpStream,
    host: &str,
    certificates: Certificates,
) -> anyhow::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    match certificates.authorities {
        Some(authorities) => {
            for authority in authorities {
                roots.add(authority).map_err(|error| Failure::Usage(format!("--cacert: {error}")))?;
            }
        }
        // System certificates that can't be used are skipped.
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = match certificates.own {
        Some((chain, key)) => config
            .with_client_auth_cert(chain, key)
            .map_err(|error| Failure::Usage(format!("--cert and --key: {error}")))?,
        None => config.with_no_client_auth(),
    };
    let name = ServerName::try_from(host.to_owned()).map_err(|error| {
        Failure::Usage(format!("{host} cannot be the name in a TLS certificate: {error}"))
    })?;
    Ok(StreamOwned::new(ClientConnection::new(Arc::new(config), name)?, stream))
}
