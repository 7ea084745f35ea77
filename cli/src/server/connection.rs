//! The options that name a server, and connections to it or to a cluster.
//!
//! Connections use RESP2, so that a user with a minimum of permissions doesn't need HELLO.

use crate::error::Failure;
use anyhow::Context;
use redis::cluster::{ClusterClient, ClusterConnection};
use redis::{
    ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, ConnectionLike, IntoConnectionInfo,
    RedisConnectionInfo, RedisResult, TlsCertificates, TlsMode, Value,
};
use std::path::PathBuf;
use std::time::Duration;

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Default timeout for replies, in seconds: commands on many items or on large filters need seconds.
const REPLY_TIMEOUT: u64 = 60;

/// Default timeout for the replies in a scrape, in seconds: Prometheus gives up after 10 s.
const SCRAPE_TIMEOUT: u64 = 3;

/// The options that name a server and a user.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Server")]
pub(crate) struct Server {
    /// redis://, rediss:// (TLS) or unix:// address; the options below override its parts
    #[arg(long, env = "BLOOMERY_URL", hide_env_values = true, value_name = "URL")]
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

    /// Password; prefer the environment, because other users can read the command line
    #[arg(long, env = "BLOOMERY_PASSWORD", hide_env_values = true)]
    password: Option<String>,

    /// Number of the database
    #[arg(long, value_name = "N")]
    db: Option<i64>,

    /// Encrypt the connection (TLS)
    #[arg(long)]
    tls: bool,

    /// Trust the certificate authorities in this PEM file instead of the system's
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,

    /// Client certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "key_file")]
    cert: Option<PathBuf>,

    /// Key of the client certificate, a PEM file
    #[arg(long = "key", id = "key_file", value_name = "FILE", requires = "cert")]
    key_file: Option<PathBuf>,

    /// The server is a node of a cluster: use all its nodes
    #[arg(long)]
    cluster: bool,

    /// Seconds to wait for a reply [default: 60; exporter: 3]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

/// A connection to one server, or to a cluster, where a command goes to the node that holds its key.
pub(crate) enum Connection {
    /// One server.
    One(redis::Connection),
    /// A cluster.
    Cluster(Box<ClusterConnection>),
}

/// A server that holds keys: the one server, or a primary of the cluster.
pub(crate) struct Node {
    /// `host:port`, or the path of a socket.
    pub(crate) address: String,
    /// A connection to this node only.
    pub(crate) connection: redis::Connection,
}

impl Server {
    /// Connects to the server or the cluster.
    pub(crate) fn connect(&self) -> anyhow::Result<Connection> {
        let info = self.info()?;
        if !self.cluster {
            return Ok(Connection::One(self.open(info)?));
        }
        let address = info.addr().to_string();
        let tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        let mut builder = ClusterClient::builder([info])
            .connection_timeout(self.connect_timeout())
            .response_timeout(self.reply_timeout());
        if tls {
            builder = builder.tls(TlsMode::Secure);
            if let Some(certificates) = self.certificates()? {
                builder = builder.certs(certificates);
            }
        }
        let connection = builder
            .build()
            .and_then(|client| client.get_connection())
            .with_context(|| format!("cannot connect to the cluster of {address}"))?;
        Ok(Connection::Cluster(Box::new(connection)))
    }

    /// Connects to every server that holds keys: the server, or each primary of the cluster.
    pub(crate) fn nodes(&self) -> anyhow::Result<Vec<Node>> {
        let open = |info: ConnectionInfo| {
            Ok(Node { address: info.addr().to_string(), connection: self.open(info)? })
        };
        self.primaries(&[])?.into_iter().map(open).collect()
    }

    /// The addresses of the servers that hold keys: the server, or the primaries of the cluster. If the node that the
    /// user named doesn't answer, this asks the `known` ones.
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
        let slots: Value = redis::cmd("CLUSTER")
            .arg("SLOTS")
            .query(&mut self.open(info.clone())?)
            .with_context(|| format!("cannot ask {} for the nodes of its cluster", info.addr()))?;
        let default_host = match info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
            _ => "127.0.0.1".to_owned(),
        };
        let at = |(host, port)| info.clone().set_addr(self.at(info, host, port));
        Ok(primaries(&slots, &default_host).into_iter().map(at).collect())
    }

    /// The address of another node, with the same kind of connection.
    fn at(&self, info: &ConnectionInfo, host: String, port: u16) -> ConnectionAddr {
        match info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        }
    }

    /// Connects to one of the servers that [`primaries`](Server::primaries) returns.
    pub(crate) fn open(&self, info: ConnectionInfo) -> anyhow::Result<redis::Connection> {
        let address = info.addr().to_string();
        let tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        let client = match (tls, self.certificates()?) {
            (true, Some(certificates)) => redis::Client::build_with_tls(info, certificates),
            _ => redis::Client::open(info),
        };
        let connection = client
            .and_then(|client| client.get_connection_with_timeout(self.connect_timeout()))
            .with_context(|| format!("cannot connect to {address}"))?;
        let timeout = Some(self.reply_timeout());
        connection.set_read_timeout(timeout)?;
        connection.set_write_timeout(timeout)?;
        Ok(connection)
    }

    /// These options with the default timeout of scrapes.
    pub(crate) fn for_scrapes(self) -> Server {
        Server { timeout: self.timeout.or(Some(SCRAPE_TIMEOUT)), ..self }
    }

    fn reply_timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.unwrap_or(REPLY_TIMEOUT).max(1))
    }

    fn connect_timeout(&self) -> Duration {
        CONNECT_TIMEOUT.min(self.reply_timeout())
    }

    /// The URL and the options that override it. Also checks that the certificate files are readable.
    pub(crate) fn address(&self) -> anyhow::Result<ConnectionInfo> {
        self.certificates()?;
        self.info()
    }

    /// The URL and the options that override it.
    fn info(&self) -> anyhow::Result<ConnectionInfo> {
        let given = match &self.url {
            Some(url) => url
                .as_str()
                .into_connection_info()
                // The message doesn't repeat the URL, which may contain a password.
                .map_err(|error| Failure::Usage(format!("--url is not the address of a server: {error}")))?,
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
                return Err(Failure::Usage(
                    "--host and --port cannot be combined with a unix:// address".into(),
                )
                .into());
            }
            address => address,
        };
        let given = given.set_addr(address);
        let mut settings: RedisConnectionInfo = given.redis_settings().clone();
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        if let Some(db) = self.db {
            settings = settings.set_db(db);
        }
        let wants_tls = self.tls || self.cacert.is_some() || self.cert.is_some();
        let address = match given.addr().clone() {
            ConnectionAddr::Tcp(host, port) if wants_tls => {
                ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
            }
            address => address,
        };
        if self.cluster && settings.db() != 0 {
            return Err(Failure::Usage("a cluster has only database 0".into()).into());
        }
        Ok(given.set_addr(address).set_redis_settings(settings))
    }

    fn certificates(&self) -> anyhow::Result<Option<TlsCertificates>> {
        let read =
            |path: &PathBuf| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        let client_tls = match (&self.cert, &self.key_file) {
            (Some(cert), Some(key)) => {
                Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? })
            }
            _ => None,
        };
        let root_cert = self.cacert.as_ref().map(read).transpose()?;
        Ok((client_tls.is_some() || root_cert.is_some()).then_some(TlsCertificates { client_tls, root_cert }))
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        match self {
            Connection::One(connection) => connection.req_packed_command(command),
            Connection::Cluster(connection) => connection.req_packed_command(command),
        }
    }

    fn req_packed_commands(
        &mut self,
        commands: &[u8],
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        match self {
            Connection::One(connection) => connection.req_packed_commands(commands, offset, count),
            Connection::Cluster(connection) => connection.req_packed_commands(commands, offset, count),
        }
    }

    fn req_command(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Connection::One(connection) => connection.req_command(command),
            Connection::Cluster(connection) => connection.req_command(command),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Connection::One(connection) => connection.get_db(),
            Connection::Cluster(connection) => connection.get_db(),
        }
    }

    fn check_connection(&mut self) -> bool {
        match self {
            Connection::One(connection) => connection.check_connection(),
            Connection::Cluster(connection) => connection.check_connection(),
        }
    }

    fn is_open(&self) -> bool {
        match self {
            Connection::One(connection) => connection.is_open(),
            Connection::Cluster(connection) => connection.is_open(),
        }
    }
}

/// The primaries in a reply to CLUSTER SLOTS, without duplicates. A node that doesn't know its own address leaves it
/// empty; it is the one that was asked.
fn primaries(slots: &Value, asked: &str) -> Vec<(String, u16)> {
    let mut found = Vec::new();
    for range in slots.as_sequence().unwrap_or_default() {
        let Some(primary) = range.as_sequence().and_then(|range| range.get(2)?.as_sequence()) else {
            continue;
        };
        let host: Option<String> = primary.first().and_then(|host| redis::from_redis_value_ref(host).ok());
        let port: Option<u16> = primary.get(1).and_then(|port| redis::from_redis_value_ref(port).ok());
        let host = host.filter(|host| !host.is_empty()).unwrap_or_else(|| asked.to_owned());
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
    }

    #[test]
    fn a_bad_url_is_an_error_of_use_and_its_password_is_not_repeated() {
        let error = info(&["--url", "http://ada:secret@example.org"]).unwrap_err();
        assert_eq!(crate::error::code(&error), 2);
        assert!(!format!("{error:#}").contains("secret"));
        let moved = info(&["--url", "redis://example.org:7000", "--host", "y"]).unwrap();
        assert_eq!(moved.addr().to_string(), "y:7000");
        assert!(info(&["--url", "unix:///run/redis.sock", "-p", "7000"]).is_err());
        assert!(info(&["--cert", "x"]).is_err());
    }

    #[test]
    fn every_primary_is_named_once() {
        let node = |host: &str, port| {
            Value::Array(vec![
                Value::BulkString(host.into()),
                Value::Int(port),
                Value::BulkString("id".into()),
            ])
        };
        let range = |low, high, nodes: Vec<Value>| {
            Value::Array([vec![Value::Int(low), Value::Int(high)], nodes].concat())
        };
        let slots = Value::Array(vec![
            range(0, 99, vec![node("10.0.0.1", 7000), node("10.0.0.2", 7001)]),
            range(100, 199, vec![node("", 7002)]),
            range(200, 16383, vec![node("10.0.0.1", 7000)]),
        ]);
        assert_eq!(primaries(&slots, "asked"), [("10.0.0.1".into(), 7000), ("asked".into(), 7002)]);
        assert!(primaries(&Value::Nil, "asked").is_empty());
    }
}
