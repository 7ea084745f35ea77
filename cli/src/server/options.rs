//! Options that specify a server or a cluster, and the addresses of its nodes.

use super::connection::{Connection, about};
use super::prefix;
use super::tls::Certificates;
use crate::arguments::parse_whole_seconds;
use crate::error::{Failure, fail};
use anyhow::Context;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, Value};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Options that specify a server and a user.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Server")]
pub(crate) struct Server {
    /// redis://, rediss:// (TLS) or unix:// address, by default $REDIS_URL; the options below override its parts
    #[arg(short, long, env = "BLOOMERY_URL", hide_env_values = true, value_name = "URL")]
    url: Option<String>,

    /// Host name or address [default: 127.0.0.1]
    #[arg(short = 'H', long)]
    host: Option<String>,

    /// Port [default: 6379]
    #[arg(short, long)]
    port: Option<u16>,

    /// ACL user
    #[arg(long, env = "BLOOMERY_USER", value_name = "NAME")]
    user: Option<String>,

    /// Password, by default $REDISCLI_AUTH; prefer the environment, because other users can read the command line
    #[arg(short = 'a', long, env = "BLOOMERY_PASSWORD", hide_env_values = true)]
    password: Option<String>,

    /// Database number
    #[arg(long, value_name = "N")]
    db: Option<i64>,

    /// Encrypt the connection (TLS)
    #[arg(long)]
    tls: bool,

    /// Trust the certificate authorities in this PEM file instead of the system's
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,

    /// Client certificate (PEM file)
    #[arg(long, value_name = "FILE", requires = "key_file")]
    cert: Option<PathBuf>,

    /// Private key of the client certificate (PEM file)
    #[arg(long = "key", id = "key_file", value_name = "FILE", requires = "cert")]
    key_file: Option<PathBuf>,

    /// Treat the server as a node of a cluster, and use all nodes of that cluster
    #[arg(long)]
    pub(crate) cluster: bool,

    /// Prefix of the module's commands, if the server loads the module with PREFIX
    #[arg(long, env = "BLOOMERY_PREFIX", value_name = "NAME")]
    pub(super) prefix: Option<String>,

    /// How long to wait for a reply, in seconds or with a unit as in 2m
    // Commands with many items or on large filters can need several seconds.
    #[arg(long, value_name = "TIME", default_value = "60", value_parser = parse_whole_seconds)]
    timeout: u64,

    /// Whether these options are for [another server](Server::of_another), whose address is the source of a migration.
    #[arg(skip)]
    is_source: bool,

    /// Whether a server has replied to any connection with these options.
    #[arg(skip)]
    pub(super) has_replied: Arc<AtomicBool>,

    /// Whether to accept replies that contain a whole filter.
    #[arg(skip)]
    pub(super) takes_filters: bool,

    /// What the variables of other clients say: the address without `--url`, and the password without any other. Like
    /// those of this program, they are for the server that the options name, not for [another](Server::of_another).
    #[arg(skip = environment("REDIS_URL"))]
    redis_url: Option<String>,
    #[arg(skip = environment("REDISCLI_AUTH"))]
    rediscli_auth: Option<String>,
}

/// A server that holds keys: the one server, or a primary of the cluster.
pub(crate) struct Node {
    /// `host:port`, or the path to a socket.
    pub(crate) address: String,
    /// A connection to this node only.
    pub(crate) connection: Connection,
}

impl Server {
    /// Connects to every server that holds keys: the server, or each primary of the cluster.
    pub(crate) fn nodes(&self) -> anyhow::Result<Vec<Node>> {
        let open = |info: ConnectionInfo| {
            Ok(Node { address: info.addr().to_string(), connection: self.open(info)? })
        };
        self.primaries(&[])?.into_iter().map(open).collect()
    }

    /// Returns the addresses of the servers that hold keys: the server, or the primaries of the cluster. If the node
    /// that the user specified doesn't answer, asks the `known` nodes.
    pub(crate) fn primaries(&self, known: &[ConnectionInfo]) -> anyhow::Result<Vec<ConnectionInfo>> {
        let named = self.info()?;
        if !self.cluster {
            return Ok(vec![named]);
        }
        let mut answer = self.ask_for_primaries(&named);
        for other in known {
            if answer.is_err() {
                answer = self.ask_for_primaries(other).or(answer);
            }
        }
        answer
    }

    fn ask_for_primaries(&self, info: &ConnectionInfo) -> anyhow::Result<Vec<ConnectionInfo>> {
        let mut connection = self.open(info.clone())?;
        let slots: Value = redis::cmd("CLUSTER").arg("SLOTS").query(&mut connection).map_err(|error| {
            about(error, format!("cannot ask {} for the nodes of its cluster", info.addr()))
        })?;
        let primaries = primaries(&slots);
        if primaries.is_empty() {
            let why = "knows no node with slots; name a node of a cluster that works";
            fail!(Server, "{} {why}", info.addr());
        }
        Ok(primaries.into_iter().map(|(host, port)| other_node(info, &host, port)).collect())
    }

    /// These options for replies that contain a whole filter, with a higher size limit.
    pub(crate) fn for_filters(self) -> Server {
        Server { takes_filters: true, ..self }
    }

    /// These options without the variables of other clients, and with this password, if there is one.
    pub(crate) fn without_environment(self, password: Option<String>) -> Server {
        Server { redis_url: None, rediscli_auth: None, password: password.or(self.password), ..self }
    }

    /// The options for another server, with the same timeout, and with the same certificates if its address has TLS.
    pub(crate) fn of_another(&self, url: &str, user: Option<String>, password: Option<String>) -> Server {
        Server {
            url: Some(url.to_owned()),
            is_source: true,
            user,
            password,
            cacert: self.cacert.clone(),
            cert: self.cert.clone(),
            key_file: self.key_file.clone(),
            timeout: self.timeout,
            ..Server::default()
        }
    }

    /// The name under which the module is loaded.
    pub(crate) fn module(&self) -> &str {
        self.prefix.as_deref().unwrap_or(prefix::DEFAULT)
    }

    /// Timeout for a reply.
    pub(crate) fn reply_timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.max(1))
    }

    /// Determines the server's address, the user and the database from the URL and the options that override its parts.
    /// Also checks that the certificate files are usable.
    pub(crate) fn address(&self) -> anyhow::Result<ConnectionInfo> {
        self.certificates()?;
        self.info()
    }

    /// Determines the server's address, the user and the database from the URL and the options that override its parts.
    pub(super) fn info(&self) -> anyhow::Result<ConnectionInfo> {
        let (url, from) = match &self.url {
            None => (&self.redis_url, "REDIS_URL"),
            url if self.is_source => (url, "the source"),
            url => (url, "--url or BLOOMERY_URL"),
        };
        let given = match url {
            Some(url) => url
                .as_str()
                .into_connection_info()
                // The message doesn't repeat the URL, which might contain a password.
                .map_err(|error| Failure::Usage(format!("{from} is not the address of a server: {error}")))?,
            None => ("127.0.0.1", 6379).into_connection_info()?,
        };
        let host = |host: String| self.host.clone().unwrap_or(host);
        let address = match given.addr().clone() {
            ConnectionAddr::Tcp(at, port) => ConnectionAddr::Tcp(host(at), self.port.unwrap_or(port)),
            ConnectionAddr::TcpTls { host: at, port, insecure, tls_params } => ConnectionAddr::TcpTls {
                host: host(at),
                port: self.port.unwrap_or(port),
                insecure,
                tls_params,
            },
            _ if self.host.is_some() || self.port.is_some() => {
                fail!(Usage, "--host and --port cannot be combined with a unix:// address");
            }
            address => address,
        };
        let given = given.set_addr(address);
        let mut settings: RedisConnectionInfo = given.redis_settings().clone();
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        let otherwise = self.rediscli_auth.as_ref().filter(|_| settings.password().is_none());
        if let Some(password) = self.password.as_ref().or(otherwise) {
            settings = settings.set_password(password);
        }
        if let Some(db) = self.db {
            settings = settings.set_db(db);
        }
        let wants_tls = self.tls || !self.is_source && (self.cacert.is_some() || self.cert.is_some());
        let address = match given.addr().clone() {
            ConnectionAddr::Tcp(host, port) if wants_tls => {
                ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
            }
            address => address,
        };
        Ok(given.set_addr(address).set_redis_settings(settings))
    }

    pub(super) fn certificates(&self) -> anyhow::Result<Certificates> {
        let own = match (&self.cert, &self.key_file) {
            (Some(cert), Some(key)) => {
                let private = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| {
                    Failure::Usage(format!("{} contains no private key in PEM: {error}", key.display()))
                })?;
                Some((certificates(cert)?, private))
            }
            _ => None,
        };
        let authorities = self.cacert.as_deref().map(certificates).transpose()?;
        Ok(Certificates { authorities, own })
    }
}

/// Another node of the cluster that `known` belongs to, with TLS if `known` has TLS. A node that doesn't know its own
/// address sends an empty host, or `?` if it should send a name and has none: the host is that of `known`.
pub(super) fn other_node(known: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let host = |known: &str| if matches!(host, "" | "?") { known } else { host }.to_owned();
    let address = match known.addr() {
        ConnectionAddr::TcpTls { host: at, insecure, tls_params, .. } => ConnectionAddr::TcpTls {
            host: host(at),
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        ConnectionAddr::Tcp(at, _) => ConnectionAddr::Tcp(host(at), port),
        _ => ConnectionAddr::Tcp(host("127.0.0.1"), port),
    };
    known.clone().set_addr(address)
}

/// Reads an environment variable that other Redis clients also use. An empty value counts as missing.
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Reads the certificates in a file. There must be at least one: with none, no server would be trusted, and the
/// connection errors wouldn't say why.
fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(Failure::Usage(format!("{} contains no certificate in PEM", path.display())).into()),
    }
}

/// The primaries in a reply to CLUSTER SLOTS, without duplicates. No host is an empty one.
fn primaries(slots: &Value) -> Vec<(String, u16)> {
    let mut found = Vec::new();
    for range in slots.as_sequence().unwrap_or_default() {
        let Some(primary) = range.as_sequence().and_then(|range| range.get(2)?.as_sequence()) else {
            continue;
        };
        let host: Option<String> = primary.first().and_then(|host| redis::from_redis_value_ref(host).ok());
        let port: Option<u16> = primary.get(1).and_then(|port| redis::from_redis_value_ref(port).ok());
        let host = host.unwrap_or_default();
        if let Some(port) = port
            && !found.contains(&(host.clone(), port))
        {
            found.push((host, port));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        server: Server,
    }

    fn info(words: &[&str]) -> anyhow::Result<ConnectionInfo> {
        Line::try_parse_from([&["x"], words].concat())?.server.info()
    }

    #[test]
    fn options_override_the_url() {
        let plain = info(&[]).unwrap();
        assert_eq!(plain.addr().to_string(), "127.0.0.1:6379");
        let url = info(&["--url", "redis://ada:secret@example.org:7000/3", "--db", "5", "--tls"]).unwrap();
        assert_eq!(url.addr().to_string(), "example.org:7000");
        assert!(matches!(url.addr(), ConnectionAddr::TcpTls { insecure: false, .. }));
        assert_eq!(url.redis_settings().db(), 5);
        assert_eq!(url.redis_settings().username(), Some("ada"));
        let socket = info(&["--url", "unix:///run/redis.sock"]).unwrap();
        assert!(matches!(socket.addr(), ConnectionAddr::Unix(_)));
        let moved = info(&["--url", "redis://example.org:7000", "--host", "y"]).unwrap();
        assert_eq!(moved.addr().to_string(), "y:7000");
        assert!(info(&["--url", "unix:///run/redis.sock", "-p", "7000"]).is_err());
        assert!(info(&["--cert", "x"]).is_err());
    }

    /// The certificates may be for the target only.
    #[test]
    fn the_address_of_a_source_says_whether_it_has_tls() {
        let target = Line::try_parse_from(["x", "--cacert", "x"]).unwrap().server;
        let has_tls = |info: ConnectionInfo| matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        let source = |url| target.of_another(url, None, None).info();
        assert!(has_tls(target.info().unwrap()));
        assert!(has_tls(source("rediss://example.org").unwrap()));
        assert!(!has_tls(source("redis://example.org").unwrap()));
        assert!(
            source("x").unwrap_err().to_string().starts_with("the source is not the address of a server")
        );
    }

    #[test]
    fn a_node_without_a_host_is_at_the_host_that_was_asked() {
        for (url, host, expected) in [
            ("redis://asked:7000", "", "asked:1"),
            ("rediss://asked:7000", "?", "asked:1"),
            ("unix:///run/redis.sock", "?", "127.0.0.1:1"),
            ("redis://asked:7000", "10.0.0.1", "10.0.0.1:1"),
        ] {
            let asked = url.into_connection_info().unwrap();
            let other = other_node(&asked, host, 1);
            assert_eq!(other.addr().to_string(), expected);
            assert_eq!(url.starts_with("rediss"), matches!(other.addr(), ConnectionAddr::TcpTls { .. }));
        }
    }
}
