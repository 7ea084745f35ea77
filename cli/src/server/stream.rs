//! A stream to one server: TCP, TLS or a Unix socket, with a time by which reads and writes must end.

use super::tls::{Certificates, encrypt};
use crate::error::Failure;
use redis::{ConnectionAddr, RedisError, RedisResult};
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The transport.
pub(super) enum Stream {
    Plain(Timed),
    Tls(Box<StreamOwned<ClientConnection, Timed>>),
}

/// A socket whose reads and writes must end by a given time. A Unix socket has the same system calls as one for TCP, so
/// one type serves for both.
pub(super) struct Timed {
    socket: TcpStream,
    pub(super) until: Instant,
}

impl Stream {
    /// Connects to the address, and shakes hands if it has TLS, all within `limit`.
    pub(super) fn open(
        address: &ConnectionAddr,
        certificates: impl FnOnce() -> anyhow::Result<Certificates>,
        limit: Duration,
    ) -> anyhow::Result<Stream> {
        let until = Instant::now() + limit;
        let timed = |socket| Timed { socket, until };
        match address {
            ConnectionAddr::Tcp(host, port) => Ok(Stream::Plain(timed(tcp(host, *port, limit)?))),
            ConnectionAddr::TcpTls { host, port, .. } => {
                let certificates = certificates()?;
                let socket = timed(tcp(host, *port, limit)?);
                Ok(Stream::Tls(Box::new(encrypt(socket, host, certificates)?)))
            }
            ConnectionAddr::Unix(path) => {
                let socket = UnixStream::connect(path).map_err(RedisError::from)?;
                Ok(Stream::Plain(timed(OwnedFd::from(socket).into())))
            }
            _ => Err(Failure::Usage("this is not an address for this program".into()).into()),
        }
    }

    pub(super) fn timed(&mut self) -> &mut Timed {
        match self {
            Stream::Plain(timed) => timed,
            Stream::Tls(stream) => &mut stream.sock,
        }
    }
}

/// Connects to the host's first address that answers.
fn tcp(host: &str, port: u16, timeout: Duration) -> RedisResult<TcpStream> {
    let mut result = Err(io::Error::new(ErrorKind::NotFound, "the host has no address"));
    for address in (host, port).to_socket_addrs()? {
        result = TcpStream::connect_timeout(&address, timeout);
        if result.is_ok() {
            break;
        }
    }
    let stream = result?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Timed {
    /// Gives the next system call the remaining time.
    fn arm(&self) -> io::Result<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.socket.set_read_timeout(Some(left)).and_then(|()| self.socket.set_write_timeout(Some(left)))
    }
}

/// The error of a system call that timed out, in words.
fn in_words(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => io::Error::new(ErrorKind::TimedOut, "the server took too long to reply"),
        _ => error,
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.arm().and_then(|()| self.socket.read(buffer)).map_err(in_words)
    }
}

impl Write for Timed {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.arm().and_then(|()| self.socket.write(buffer)).map_err(in_words)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(buffer),
            Stream::Tls(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}
