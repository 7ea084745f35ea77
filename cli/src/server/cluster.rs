//! A connection to a cluster, for commands whose keys are all in one slot.
//!
//! A command is sent again only after an error that says it wasn't executed: MOVED, ASK or TRYAGAIN. It is never
//! repeated after a connection error: the node might have executed it, and then `load` would add a batch twice.

use super::link::Link;
use super::options::Server;
use redis::{
    Cmd, ConnectionInfo, ConnectionLike, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value,
};
use std::thread;
use std::time::{Duration, Instant};

/// Pause before a command is sent again after MOVED or TRYAGAIN.
const PAUSE: Duration = Duration::from_millis(20);

/// A connection to the node that holds the key of the most recent command.
pub(crate) struct Follower {
    server: Server,
    node: ConnectionInfo,
    connection: Link,
}

/// Where to send a command instead.
enum Elsewhere {
    /// To another node from now on.
    Moved(ConnectionInfo),
    /// To another node, only this time.
    Ask(ConnectionInfo),
    /// To the same node, a little later.
    Later,
}

impl Follower {
    /// Connects to one node. The first command might be redirected to another one.
    pub(super) fn connect(server: Server, node: ConnectionInfo) -> anyhow::Result<Follower> {
        let connection = server.open(node.clone())?;
        Ok(Follower { server, node, connection })
    }

    /// Sends a command to the node that has its keys. Follows redirects, and retries while the slot of the keys is
    /// moving, for at most the reply timeout.
    fn send(&mut self, command: &[u8]) -> RedisResult<Value> {
        let started = Instant::now();
        let mut answer = self.connection.req_packed_command(command).and_then(Value::extract_error);
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
                    self.connection = self.open(&node)?;
                    self.node = node;
                    self.connection.req_packed_command(command)
                }
                Elsewhere::Ask(node) => {
                    let mut other = self.open(&node)?;
                    redis::cmd("ASKING").query::<()>(&mut other)?;
                    other.req_packed_command(command)
                }
                Elsewhere::Later => {
                    thread::sleep(PAUSE);
                    self.connection.req_packed_command(command)
                }
            }
            .and_then(Value::extract_error);
        }
    }

    /// Where to send the command after this error; `None` if the error is final.
    fn elsewhere(&self, error: &RedisError) -> Option<Elsewhere> {
        let ErrorKind::Server(kind) = error.kind() else { return None };
        match kind {
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

    fn open(&self, node: &ConnectionInfo) -> RedisResult<Link> {
        self.server.open(node.clone()).map_err(|error| match error.downcast::<RedisError>() {
            Ok(error) => error,
            Err(error) => (ErrorKind::Client, "cannot connect to a node", format!("{error:#}")).into(),
        })
    }
}

impl ConnectionLike for Follower {
    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        self.send(command)
    }

    /// Not supported: the keys of a pipeline might be on several nodes.
    fn req_packed_commands(&mut self, _: &[u8], _: usize, _: usize) -> RedisResult<Vec<Value>> {
        Err((ErrorKind::Client, "a pipeline cannot follow the slots of a cluster").into())
    }

    fn req_command(&mut self, command: &Cmd) -> RedisResult<Value> {
        self.send(&command.get_packed_command())
    }

    fn get_db(&self) -> i64 {
        0
    }

    fn check_connection(&mut self) -> bool {
        self.connection.check_connection()
    }

    fn is_open(&self) -> bool {
        self.connection.is_open()
    }
}
