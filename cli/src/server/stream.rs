//! A stream to one server: TCP, TLS or a Unix socket, with a time by which reads and writes must end.

use super::tls::{Certificates, encrypt};
use crate::error::Failure;
use redis::{ConnectionAddr, RedisError, RedisResult};
use rustls::{ClientConnection, StreamOwned};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
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
            ConnectionAddr::Tcp(host, port) => Ok(Stream::Plain(timed(tcp(host, *port, until)?))),
            ConnectionAddr::TcpTls { host, port, .. } => {
                let certificates = certificates()?;
                let socket = timed(tcp(host, *port, until)?);
                Ok(Stream::Tls(Box::new(encrypt(socket, host, certificates)?)))
            }
            ConnectionAddr::Unix(path) => {
                let socket = unix(path, limit).map_err(|error| RedisError::from(in_words(error)))?;
                Ok(Stream::Plain(timed(socket)))
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

fn tcp(host: &str, port: u16, until: Instant) -> RedisResult<TcpStream> {
    let stream = first(&(host, port).to_socket_addrs()?.collect::<Vec<_>>(), until)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Connects to the first address that answers. Each may use an equal share of the time that is left, so that one that
/// doesn't answer leaves time for the others.
fn first(addresses: &[SocketAddr], until: Instant) -> io::Result<TcpStream> {
    let mut result = Err(io::Error::new(ErrorKind::NotFound, "the host has no address"));
    for (address, others) in addresses.iter().zip((1..=addresses.len() as u32).rev()) {
        let share = until.saturating_duration_since(Instant::now()) / others;
        result = TcpStream::connect_timeout(address, share.max(Duration::from_millis(1)));
        if result.is_ok() {
            break;
        }
    }
    result
}

/// Connects to the socket at the path. A server that hangs accepts no connections; on Linux, the limit for writes then
/// applies to connecting too.
fn unix(path: &Path, limit: Duration) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_write_timeout(Some(limit))?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(socket.into())
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

/// Makes the error of a system call that timed out say so.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The first connection fills the backlog, so the next ones wait.
    #[test]
    fn all_addresses_of_a_host_share_the_time() {
        let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        full.listen(0).unwrap();
        let address = full.local_addr().unwrap().as_socket().unwrap();
        let _only = TcpStream::connect(address).unwrap();
        let started = Instant::now();
        assert!(first(&[address; 60], started + Duration::from_secs(1)).is_err());
        // Much less than a second for each of them.
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
