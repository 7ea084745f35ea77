//! Encrypted streams.

use super::stream::Timed;
use crate::error::Failure;
use redis::RedisError;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io;
use std::sync::Arc;

/// The authorities to trust, and the client's own certificate.
pub(super) struct Certificates {
    /// The authorities to trust; `None` for the system's.
    pub(super) authorities: Option<Vec<CertificateDer<'static>>>,
    /// The client's own certificate and key.
    pub(super) own: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
}

/// Encrypts a new connection to `host`, and shakes hands. The host's certificate must be valid.
pub(super) fn encrypt(
    mut socket: Timed,
    host: &str,
    certificates: Certificates,
) -> anyhow::Result<StreamOwned<ClientConnection, Timed>> {
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
    let mut connection = ClientConnection::new(Arc::new(config), name)?;
    connection.complete_io(&mut socket).map_err(|error| RedisError::from(explained(error)))?;
    Ok(StreamOwned::new(connection, socket))
}

/// What a failed handshake may mean. A server without TLS waits for the rest of a command, or refuses what it got, and
/// one with TLS gives a reason.
fn explained(error: io::Error) -> io::Error {
    match error.get_ref().and_then(|cause| cause.downcast_ref()) {
        None | Some(rustls::Error::InvalidMessage(_)) => {
            io::Error::new(error.kind(), format!("{error}; perhaps it does not speak TLS"))
        }
        Some(_) => error,
    }
}
