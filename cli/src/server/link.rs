//! A connection to one server: TCP, TLS or a Unix socket.
//!
//! The timeout applies to the whole reply, so a server that sends one byte at a time can't block the program.

use super::prefix::renamed;
use super::resp::{Limits, MAX_FILTER, MAX_NAME, MAX_REPLY, read_reply};
use redis::{ConnectionLike, RedisConnectionInfo, RedisResult, Value};
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A connection. After a connection error, it stays closed.
pub(crate) struct Link {
    stream: BufReader<Timed>,
    timeout: Duration,
    db: i64,
    /// The module's PREFIX argument; `None` if its commands have their default names.
    prefix: Option<String>,
    limits: Limits,
    is_open: bool,
}

/// The underlying transport.
pub(super) enum Stream {
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    Unix(UnixStream),
}

/// A stream whose reads and writes must end by a given time.
struct Timed {
    stream: Stream,
    until: Instant,
    /// A deadline for all replies. It applies if it is earlier than the timeout.
    deadline: Option<Instant>,
}

impl Link {
    /// Authenticates on a new stream and selects the database. `timeout` applies to each reply.
    pub(super) fn new(
        stream: Stream,
        user: &RedisConnectionInfo,
        timeout: Duration,
        deadline: Option<Instant>,
    ) -> RedisResult<Link> {
        let timed = Timed { stream, until: Instant::now() + timeout, deadline };
        let mut link = Link {
            stream: BufReader::with_capacity(1 << 16, timed),
            timeout,
            db: user.db(),
            prefix: None,
            limits: Limits { reply: MAX_REPLY, nested: u64::MAX },
            is_open: true,
        };
        if let Some(password) = user.password() {
            redis::cmd("AUTH").arg(user.username()).arg(password).query::<()>(&mut link)?;
        }
        if user.db() != 0 {
            redis::cmd("SELECT").arg(user.db()).query::<()>(&mut link)?;
        }
        Ok(link)
    }

    /// Sets the prefix that the link gives to the module's commands.
    pub(super) fn with_prefix(self, prefix: Option<String>) -> Link {
        Link { prefix, ..self }
    }

    /// Makes the link accept replies that contain a whole filter.
    pub(super) fn with_filters(self) -> Link {
        Link { limits: Limits { reply: MAX_FILTER, ..self.limits }, ..self }
    }

    /// Makes the link leave out key names of more than [`MAX_NAME`] bytes: they are nil in the replies.
    pub(crate) fn without_long_names(self) -> Link {
        Link { limits: Limits { nested: MAX_NAME, ..self.limits }, ..self }
    }

    /// Sets the time by which all further replies must have arrived.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.stream.get_mut().deadline = deadline;
    }

    /// Sends commands and reads their replies.
    fn exchange(&mut self, commands: &[u8], replies: usize) -> RedisResult<Vec<Value>> {
        if !self.is_open {
            return Err(io::Error::new(ErrorKind::NotConnected, "the connection is closed").into());
        }
        self.start_clock();
        // The connection stays closed after an error, because a late reply would otherwise be mistaken for the next
        // command's.
        self.is_open = false;
        match &self.prefix {
            None => self.stream.get_mut().write_all(commands)?,
            Some(prefix) => self.stream.get_mut().write_all(&renamed(commands, prefix))?,
        }
        self.stream.get_mut().flush()?;
        let mut values = Vec::new();
        for _ in 0..replies {
            self.start_clock();
            values.push(read_reply(&mut self.stream, self.limits)?);
        }
        self.is_open = true;
        Ok(values)
    }

    fn start_clock(&mut self) {
        let until = Instant::now() + self.timeout;
        let timed = self.stream.get_mut();
        timed.until = timed.deadline.map_or(until, |deadline| deadline.min(until));
    }
}

impl ConnectionLike for Link {
    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        Ok(self.exchange(command, 1)?.pop().unwrap_or(Value::Nil))
    }

    fn req_packed_commands(
        &mut self,
        commands: &[u8],
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        Ok(self.exchange(commands, offset + count)?.split_off(offset))
    }

    fn get_db(&self) -> i64 {
        self.db
    }

    fn check_connection(&mut self) -> bool {
        redis::cmd("PING").query::<String>(self).is_ok()
    }

    fn is_open(&self) -> bool {
        self.is_open
    }
}

impl Timed {
    /// Sets the timeout of the next system call to the remaining time.
    fn arm(&self) -> io::Result<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(ErrorKind::TimedOut, "the server took too long to reply"));
        }
        let left = Some(left);
        let tcp = match &self.stream {
            Stream::Tcp(stream) => stream,
            Stream::Tls(stream) => &stream.sock,
            Stream::Unix(stream) => {
                return stream.set_read_timeout(left).and_then(|()| stream.set_write_timeout(left));
            }
        };
        tcp.set_read_timeout(left).and_then(|()| tcp.set_write_timeout(left))
    }
}

/// Turns the error of a system call that timed out into a readable one.
fn late<T>(result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => io::Error::new(ErrorKind::TimedOut, "the server took too long to reply"),
        _ => error,
    })
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.arm()?;
        late(match &mut self.stream {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        })
    }
}

impl Write for Timed {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.arm()?;
        late(match &mut self.stream {
            Stream::Tcp(stream) => stream.write(buffer),
            Stream::Tls(stream) => stream.write(buffer),
            Stream::Unix(stream) => stream.write(buffer),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.arm()?;
        late(match &mut self.stream {
            Stream::Tcp(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
            Stream::Unix(stream) => stream.flush(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::IntoConnectionInfo;
    use std::net::TcpListener;
    use std::thread;

    fn link(serve: impl FnOnce(TcpStream) + Send + 'static, timeout: Duration) -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        thread::spawn(move || serve(listener.accept().unwrap().0));
        let info = ("127.0.0.1", 1).into_connection_info().unwrap();
        Link::new(Stream::Tcp(stream), info.redis_settings(), timeout, None).unwrap()
    }

    /// Each byte arrives before the timeout, but the whole reply doesn't.
    #[test]
    fn a_reply_that_trickles_ends_at_the_timeout() {
        let trickle = |mut stream: TcpStream| {
            while stream.write_all(b"*1\r\n").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        };
        let error = |link: &mut Link| redis::cmd("PING").query::<Value>(link).unwrap_err();
        let mut late = link(trickle, Duration::from_millis(200));
        assert!(error(&mut late).is_timeout());
        assert!(!late.is_open());
        assert!(error(&mut late).to_string().contains("closed"));
        let mut late = link(trickle, Duration::from_secs(3600));
        late.set_deadline(Some(Instant::now() + Duration::from_millis(200)));
        assert!(error(&mut late).is_timeout());
    }

    #[test]
    fn several_replies_are_read_in_order() {
        let mut link =
            link(|mut stream| stream.write_all(b"+A\r\n-ERR b\r\n:3\r\n").unwrap(), Duration::from_secs(60));
        let values = link.req_packed_commands(b"x", 1, 2).unwrap();
        assert!(matches!(values.as_slice(), [Value::ServerError(_), Value::Int(3)]), "{values:?}");
        // The server has closed the connection.
        assert!(link.req_packed_command(b"x").is_err());
    }
}
