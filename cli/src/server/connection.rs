//! A connection to one server. In a cluster, it moves to the node that has the keys of the most recent command.

pub(crate) use super::options::{Node, Server};
use super::prefix::renamed;
use super::resp::{Limits, MAX_FILTER, MAX_NAME, MAX_REPLY, read_reply};
use super::stream::Stream;
use anyhow::Context;
use redis::{ConnectionAddr, ConnectionInfo, ConnectionLike, RedisError, RedisResult, Value};
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Maximum time for connecting, with the handshake of TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection. After a connection error, it stays closed. The timeout applies to each reply as a whole, so a server
/// that sends one byte at a time can't block the program.
pub(crate) struct Connection {
    pub(super) server: Server,
    pub(super) node: ConnectionInfo,
    stream: BufReader<Stream>,
    /// A deadline for all replies. It applies if it is earlier than the timeout.
    pub(super) deadline: Option<Instant>,
    pub(super) limits: Limits,
    is_open: bool,
}

impl Server {
    /// Connects to the server, or to the named node of the cluster.
    pub(crate) fn connect(&self) -> anyhow::Result<Connection> {
        self.open(self.info()?)
    }

    /// Connects to one of the servers that [`primaries`](Server::primaries) returns.
    pub(crate) fn open(&self, node: ConnectionInfo) -> anyhow::Result<Connection> {
        self.open_by(node, None)
    }

    /// Connects as [`open`](Server::open) does. All replies must have arrived by the deadline.
    pub(crate) fn open_by(
        &self,
        node: ConnectionInfo,
        deadline: Option<Instant>,
    ) -> anyhow::Result<Connection> {
        let cannot = format!("cannot connect to {}", name(&node));
        let left =
            deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
        let limit = CONNECT_TIMEOUT.min(self.reply_timeout()).min(left).max(Duration::from_millis(1));
        let stream =
            Stream::open(node.addr(), || self.certificates(), limit).with_context(|| cannot.clone())?;
        let mut connection = Connection {
            server: self.clone(),
            node,
            stream: BufReader::with_capacity(1 << 16, stream),
            deadline,
            limits: Limits {
                reply: if self.takes_filters { MAX_FILTER } else { MAX_REPLY },
                nested: u64::MAX,
            },
            is_open: true,
        };
        connection.log_in().map_err(|error| about(error, cannot))?;
        Ok(connection)
    }
}

/// The name of a server in errors.
fn name(node: &ConnectionInfo) -> String {
    let tls = if matches!(node.addr(), ConnectionAddr::TcpTls { .. }) { " with TLS" } else { "" };
    format!("{}{tls}", node.addr())
}

/// Says what the server refused. Connection errors name the server already.
pub(super) fn about(error: RedisError, what: impl Display + Send + Sync + 'static) -> anyhow::Error {
    let is_connections = error.is_io_error();
    let error = anyhow::Error::new(error);
    if is_connections { error } else { error.context(what) }
}

impl Connection {
    /// Authenticates, and selects the database. A user without a password is sent with an empty one: otherwise, the
    /// commands would silently run as the default user.
    fn log_in(&mut self) -> RedisResult<()> {
        let settings = self.node.redis_settings().clone();
        if settings.username().or(settings.password()).is_some() {
            let password = settings.password().unwrap_or_default();
            redis::cmd("AUTH").arg(settings.username()).arg(password).query::<()>(self)?;
        }
        if settings.db() != 0 {
            redis::cmd("SELECT").arg(settings.db()).query::<()>(self)?;
        }
        Ok(())
    }

    /// Makes the connection leave out key names of more than [`MAX_NAME`] bytes: they are nil in the replies.
    pub(crate) fn without_long_names(self) -> Connection {
        Connection { limits: Limits { nested: MAX_NAME, ..self.limits }, ..self }
    }

    /// Sets the time by which all further replies must have arrived.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Sends commands and reads their replies.
    pub(super) fn exchange(&mut self, commands: &[u8], replies: usize) -> RedisResult<Vec<Value>> {
        if !self.is_open {
            let closed = io::Error::new(ErrorKind::NotConnected, "the connection is closed");
            return Err(self.named(closed.into()));
        }
        // The connection stays closed after an error, because a late reply would otherwise be mistaken for the next
        // command's.
        self.is_open = false;
        let values = self.try_exchange(commands, replies).map_err(|error| self.named(error))?;
        self.is_open = true;
        Ok(values)
    }

    fn try_exchange(&mut self, commands: &[u8], replies: usize) -> RedisResult<Vec<Value>> {
        self.start_clock();
        match &self.server.prefix {
            None => self.stream.get_mut().write_all(commands)?,
            Some(prefix) => self.stream.get_mut().write_all(&renamed(commands, prefix))?,
        }
        self.stream.get_mut().flush()?;
        let mut values = Vec::new();
        for _ in 0..replies {
            self.start_clock();
            if !self.stream.fill_buf()?.is_empty() {
                self.server.has_replied.store(true, Relaxed);
            }
            values.push(read_reply(&mut self.stream, self.limits)?);
        }
        Ok(values)
    }

    fn start_clock(&mut self) {
        let until = Instant::now() + self.server.reply_timeout();
        let deadline = self.deadline;
        self.stream.get_mut().timed().until = deadline.map_or(until, |deadline| deadline.min(until));
    }

    /// The connection error, with the name of the server. If the server ends a connection without TLS, and nothing has
    /// ever arrived, it may be waiting for TLS.
    fn named(&self, error: RedisError) -> RedisError {
        if !error.is_io_error() {
            return error;
        }
        let kind = if error.is_timeout() { ErrorKind::TimedOut } else { ErrorKind::Other };
        let may_need_tls =
            matches!(self.node.addr(), ConnectionAddr::Tcp(..)) && !self.server.has_replied.load(Relaxed);
        let what = match error.is_connection_dropped() {
            false => error.to_string(),
            true if may_need_tls => {
                "the server has closed the connection without a reply; does it need --tls?".to_owned()
            }
            true => "the server has closed the connection".to_owned(),
        };
        io::Error::new(kind, format!("{}: {what}", name(&self.node))).into()
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        self.follow(command)
    }

    /// Sends all commands to the current node, because their keys might be on several nodes.
    fn req_packed_commands(
        &mut self,
        commands: &[u8],
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        Ok(self.exchange(commands, offset + count)?.split_off(offset))
    }

    fn get_db(&self) -> i64 {
        self.node.redis_settings().db()
    }

    fn check_connection(&mut self) -> bool {
        redis::cmd("PING").query::<String>(self).is_ok()
    }

    fn is_open(&self) -> bool {
        self.is_open
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::IntoConnectionInfo;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    /// A connection to a server that serves one connection after the other.
    fn connection(serve: impl FnMut(TcpStream) + Send + 'static) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let node = listener.local_addr().unwrap().to_string();
        let node = format!("redis://{node}").into_connection_info().unwrap();
        thread::spawn(move || listener.incoming().map(Result::unwrap).for_each(serve));
        Server::default().open(node).unwrap()
    }

    /// Each byte arrives before the timeout, but the whole reply doesn't.
    #[test]
    fn a_reply_that_trickles_ends_at_the_timeout() {
        let trickle = |mut stream: TcpStream| {
            while stream.write_all(b"+").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        };
        let error = |late: &mut Connection| redis::cmd("PING").query::<Value>(late).unwrap_err();
        let mut late = connection(trickle);
        assert!(error(&mut late).is_timeout());
        assert!(!late.is_open());
        assert!(error(&mut late).to_string().contains("closed"));
        let mut late = connection(trickle);
        late.set_deadline(Some(Instant::now() + Duration::from_millis(200)));
        assert!(error(&mut late).is_timeout());
    }

    #[test]
    fn only_a_server_that_never_replied_may_need_tls() {
        let mut replies = ["", "*2\r\n:1\r\n", ""].into_iter();
        let mut first = connection(move |mut stream| {
            let _ = stream.read(&mut [0; 100]);
            stream.write_all(replies.next().unwrap().as_bytes()).unwrap();
        });
        let mut second = first.server.open(first.node.clone()).unwrap();
        let mut third = first.server.open(first.node.clone()).unwrap();
        for (connection, may_need_tls) in [(&mut first, true), (&mut second, false), (&mut third, false)] {
            let error = redis::cmd("PING").query::<Value>(connection).unwrap_err().to_string();
            assert!(error.contains("the server has closed the connection"), "{error}");
            assert_eq!(error.contains("--tls"), may_need_tls, "{error}");
        }
    }

    #[test]
    fn a_redirect_keeps_the_deadline_and_the_limits() {
        let mut is_first = true;
        let connection = connection(move |mut stream| {
            let _ = stream.read(&mut [0; 100]);
            let port = stream.local_addr().unwrap().port();
            let moved = format!("-MOVED 1 ?:{port}\r\n");
            stream.write_all(if is_first { moved.as_bytes() } else { b"+OK\r\n" }).unwrap();
            is_first = false;
        });
        let mut connection = connection.without_long_names();
        connection.server.cluster = true;
        let deadline = Some(Instant::now() + Duration::from_secs(3600));
        connection.set_deadline(deadline);
        redis::cmd("PING").query::<()>(&mut connection).unwrap();
        assert_eq!((connection.deadline, connection.limits.nested), (deadline, MAX_NAME));
    }

    #[test]
    fn several_replies_are_read_in_order() {
        let mut several = connection(|mut stream| stream.write_all(b"+A\r\n-ERR b\r\n:3\r\n").unwrap());
        let values = several.req_packed_commands(b"x", 1, 2).unwrap();
        assert!(matches!(values.as_slice(), [Value::ServerError(_), Value::Int(3)]), "{values:?}");
        // The server has closed the connection.
        assert!(several.req_packed_command(b"x").is_err());
    }
}
