//! Commands whose keys are all in one slot of a cluster.
//!
//! A command is sent again only after an error that says it wasn't executed: MOVED, ASK or TRYAGAIN. It is never
//! repeated after a connection error: the node might have executed it, and then `load` would add a batch twice.

use super::connection::Connection;
use crate::error;
use redis::{ConnectionInfo, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// Pause before a command is sent again after MOVED or TRYAGAIN.
const PAUSE: Duration = Duration::from_millis(20);

/// Where to send a command instead.
enum Elsewhere {
    /// To another node from now on.
    Moved(ConnectionInfo),
    /// To another node, only this time.
    Ask(ConnectionInfo),
    /// To the same node, a little later.
    Later,
}

impl Connection {
    /// Sends a command. In a cluster, sends it to the node that has its keys: follows redirects, and retries while the
    /// slot of the keys is moving, for at most the reply timeout.
    pub(super) fn follow(&mut self, command: &[u8]) -> RedisResult<Value> {
        let started = Instant::now();
        let mut answer = self.send(command);
        loop {
            let Err(error) = &answer else { return answer };
            let Some(elsewhere) = self.elsewhere(error) else { return answer };
            if started.elapsed() >= self.server.reply_timeout() {
                return answer;
            }
            answer = match elsewhere {
                Elsewhere::Moved(node) => {
                    // For a moment after a move, nodes disagree and can redirect to each other.
                    thread::sleep(PAUSE);
                    *self = self.other(node)?;
                    self.send(command)
                }
                Elsewhere::Ask(node) => {
                    let mut other = self.other(node)?;
                    redis::cmd("ASKING").query::<()>(&mut other)?;
                    other.send(command)
                }
                Elsewhere::Later => {
                    thread::sleep(PAUSE);
                    self.send(command)
                }
            };
        }
    }

    /// Sends a command to the current node.
    fn send(&mut self, command: &[u8]) -> RedisResult<Value> {
        self.exchange(command, 1)?.pop().unwrap_or(Value::Nil).extract_error()
    }

    /// Where to send the command after this error; `None` if the error is final.
    fn elsewhere(&self, error: &RedisError) -> Option<Elsewhere> {
        let ErrorKind::Server(kind) = error.kind() else { return None };
        match kind {
            _ if !self.server.cluster => None,
            ServerErrorKind::Moved => Some(Elsewhere::Moved(self.redirect(error)?)),
            ServerErrorKind::Ask => Some(Elsewhere::Ask(self.redirect(error)?)),
            ServerErrorKind::TryAgain => Some(Elsewhere::Later),
            _ => None,
        }
    }

    /// The node that the error redirects to. If the error names no host, because the server doesn't know its own
    /// address, the host is that of the current node.
    fn redirect(&self, error: &RedisError) -> Option<ConnectionInfo> {
        let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
        self.server.other_node(&self.node, host, port.parse().ok()?)
    }

    /// A connection to another node. Its errors are connection errors, because the command wasn't sent.
    fn other(&self, node: ConnectionInfo) -> RedisResult<Connection> {
        self.server.open(node).map_err(|why| io::Error::other(error::text(&why)).into())
    }
}
