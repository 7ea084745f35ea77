//! Connections to one server, or to a cluster.

use super::cluster::Follower;
use super::link::Link;
pub(crate) use super::options::{Node, Server};
use redis::{Cmd, ConnectionLike, RedisResult, Value};

/// A connection to one server or to a cluster. In a cluster, each command is sent to the node that holds its key.
pub(crate) enum Connection {
    /// One server.
    One(Link),
    /// A cluster.
    Cluster(Box<Follower>),
}

impl Server {
    /// Connects to the server or the cluster.
    pub(crate) fn connect(&self) -> anyhow::Result<Connection> {
        let info = self.info()?;
        Ok(if self.cluster {
            Connection::Cluster(Box::new(Follower::connect(self.clone(), info)?))
        } else {
            Connection::One(self.open(info)?)
        })
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
