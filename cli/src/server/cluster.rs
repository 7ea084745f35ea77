//! Commands whose keys are all in one slot of a cluster.
//!
//! A command is sent again only after an error that says it wasn't executed: MOVED, ASK or TRYAGAIN. It is never
//! repeated after a connection error: the node might have executed it, and then `load` would add a batch twice.

use super::connection::Connection;
use super::options::other_node;
use crate::error;
use redis::{ConnectionInfo, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// Pause before a command is sent for the third time, and before each further time. For a moment after a slot has
/// moved, nodes disagree and can redirect to each other.
const PAUSE: Duration = Duration::from_millis(20);

/// Where to send a command instead.
enum Elsewhere {
    /// To another node from now on.
    Moved(ConnectionInfo),
    /// To another node, only this time.
    Ask(ConnectionInfo),
    /// To the same node.
    Later,
}

impl Connection {
    /// Sends a command. In a cluster, sends it to the node that has its keys: follows redirects, and retries while the
    /// slot of the keys is moving, for at most the reply timeout.
    pub(super) fn follow(&mut self, command: &[u8]) -> RedisResult<Value> {
        let started = Instant::now();
        let mut pause = Duration::ZERO;
        let mut answer = self.send(command);
        loop {
            let Err(error) = &answer else { return answer };
            let Some(elsewhere) = self.elsewhere(error) else { return answer };
            if started.elapsed() >= self.server.reply_timeout() {
                return answer;
            }
            thread::sleep(pause);
            pause = PAUSE;
            answer = match elsewhere {
                Elsewhere::Moved(node) => {
                    *self = self.other(node)?;
                    self.send(command)
                }
                Elsewhere::Ask(node) => {
                    let mut other = self.other(node)?;
                    redis::cmd("ASKING").query::<()>(&mut other)?;
                    other.send(command)
                }
                Elsewhere::Later => self.send(command),
            };
        }
    }

    /// Sends a command to the current node. If the node redirects it and must not be followed, the error says so.
    fn send(&mut self, command: &[u8]) -> RedisResult<Value> {
        let error = match self.exchange(command, 1)?.pop().unwrap_or(Value::Nil).extract_error() {
            Err(error) if !self.server.cluster && error.redirect_node().is_some() => error,
            answer => return answer,
        };
        let (kind, detail) = (error.kind(), error.detail().unwrap_or_default());
        let detail = format!("{detail}: {} is a node of a cluster; use --cluster", self.node.addr());
        Err((kind, "redirected", detail).into())
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

    /// The node that the error redirects to.
    fn redirect(&self, error: &RedisError) -> Option<ConnectionInfo> {
        let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
        Some(other_node(&self.node, host, port.parse().ok()?))
    }

    /// A connection to another node, with the same deadline and limits. Its errors are connection errors, because the
    /// command wasn't sent.
    fn other(&self, node: ConnectionInfo) -> RedisResult<Connection> {
        let opened = self.server.open_by(node, self.deadline);
        let mut opened = opened.map_err(|why| io::Error::other(error::text(&why)))?;
        opened.limits = self.limits;
        Ok(opened)
    }
}
