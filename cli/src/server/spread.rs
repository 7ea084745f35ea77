//! One logical Bloom filter that is spread across the nodes of a cluster, with a connection for each of its parts.

use super::connection::{Connection, Server};
use crate::filter::parts::{part_keys, part_of};
use crate::input::items_of;
use crate::output;
use anyhow::Context;
use std::thread;

/// Maximum number of parts that are processed at the same time.
const TOGETHER: usize = 8;

/// A spread filter: the key of each part, and a connection to its node.
pub(crate) struct Spread {
    parts: Vec<(String, Connection)>,
}

/// The items that belong to one part.
#[derive(Clone, Default)]
pub(crate) struct Share {
    /// The items' positions in the whole blob.
    pub(crate) places: Vec<usize>,
    /// The items, each preceded by its length.
    pub(crate) blob: Vec<u8>,
}

impl Spread {
    /// Opens a connection for each part.
    pub(crate) fn connect(server: &Server, name: &str, parts: u16) -> anyhow::Result<Spread> {
        let connect = |key| Ok((key, server.connect()?));
        Ok(Spread { parts: part_keys(name, parts)?.into_iter().map(connect).collect::<anyhow::Result<_>>()? })
    }

    /// Number of parts.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// Groups the items of a blob by the part they belong to.
    pub(crate) fn shares(&self, blob: &[u8]) -> Vec<Share> {
        let mut shares = vec![Share::default(); self.len()];
        for (place, item) in items_of(blob).enumerate() {
            let share = &mut shares[part_of(item, self.len())];
            share.places.push(place);
            share.blob.extend_from_slice(&(item.len() as u32).to_le_bytes());
            share.blob.extend_from_slice(item);
        }
        shares
    }

    /// Runs `work` for every part, several parts at a time, and returns the results in the order of the parts. If a
    /// part fails, the others are still processed. The first error is then returned, with the name of its part.
    pub(crate) fn each<T: Send>(
        &mut self,
        work: impl Fn(usize, &str, &mut Connection) -> anyhow::Result<T> + Sync,
    ) -> anyhow::Result<Vec<T>> {
        let size = self.len().div_ceil(TOGETHER);
        let work = &work;
        let of_chunk = |first: usize, parts: &mut [(String, Connection)]| {
            let numbered = (first..).zip(parts);
            let named = |(part, (key, connection)): (usize, &mut (String, Connection))| {
                work(part, key, connection).with_context(|| format!("part {}", output::key(key.as_bytes())))
            };
            numbered.map(named).collect::<Vec<_>>()
        };
        let results = thread::scope(|scope| {
            let chunks = self.parts.chunks_mut(size).enumerate();
            let threads: Vec<_> =
                chunks.map(|(index, parts)| scope.spawn(move || of_chunk(index * size, parts))).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, Vec<anyhow::Result<T>>>| {
                thread.join().unwrap_or_else(|_| vec![Err(anyhow::anyhow!("a thread has panicked"))])
            };
            threads.into_iter().flat_map(join).collect::<Vec<_>>()
        });
        results.into_iter().collect()
    }
}
