//! Which primary of a cluster has which slots, and whether slots are moving.

use super::options::{Node, Server};
use crate::error::fail;
use anyhow::Context;
use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

/// Pause before the nodes are asked again.
const PAUSE: Duration = Duration::from_millis(200);

/// Of each primary with slots, its identity, configuration epoch and slots. A node that takes over slots gets a new
/// epoch, so a slot that has moved away and back makes a difference.
pub(crate) type Slots = BTreeSet<String>;

impl Server {
    /// The slots as all primaries of the cluster see them; `None` if they disagree, or a slot is moving. A single
    /// server has no slots.
    pub(crate) fn slots(&self) -> anyhow::Result<Option<Slots>> {
        if !self.cluster {
            return Ok(Some(Slots::new()));
        }
        let mut views = Vec::new();
        for Node { address, mut connection } in self.nodes()? {
            let nodes: String = redis::cmd("CLUSTER")
                .arg("NODES")
                .query(&mut connection)
                .with_context(|| format!("cannot ask {address} for its slots"))?;
            views.push(slots(&nodes));
        }
        let first = views.pop().flatten();
        Ok(first.filter(|first| views.iter().all(|view| view.as_ref() == Some(first))))
    }

    /// The slots, as soon as none is moving. Waits for that no longer than for a reply.
    pub(crate) fn slots_at_rest(&self) -> anyhow::Result<Slots> {
        let started = Instant::now();
        loop {
            if let Some(slots) = self.slots()? {
                return Ok(slots);
            }
            if started.elapsed() >= self.reply_timeout() {
                fail!(
                    Server,
                    "slots of the cluster are moving, so keys could be missed; try again when redis-cli --cluster check \
                     finds no open slot"
                );
            }
            thread::sleep(PAUSE);
        }
    }
}

/// The slots in a reply to CLUSTER NODES; `None` if one is moving from or to the node that replied.
fn slots(nodes: &str) -> Option<Slots> {
    let mut all = Slots::new();
    for node in nodes.lines() {
        let words: Vec<&str> = node.split(' ').collect();
        // Identity, address, flags, primary, times of a ping and a pong, epoch, state of the link, slots.
        let [id, _, _, _, _, _, epoch, _, slots @ ..] = words.as_slice() else { continue };
        if slots.iter().any(|slot| slot.starts_with('[')) {
            return None;
        }
        if !slots.is_empty() {
            all.insert(format!("{id} {epoch} {}", slots.join(" ")));
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::slots;

    const PRIMARY: &str = "a1 127.0.0.1:7000@17000,host myself,master - 0 0 3 connected 0-99 200";
    const REPLICA: &str = "b2 127.0.0.1:7001@17001,, slave a1 1 2 3 connected";

    #[test]
    fn a_slot_that_moves_is_noticed() {
        let both = format!("{PRIMARY}\n{REPLICA}\n");
        assert_eq!(slots(&both).unwrap(), ["a1 3 0-99 200".to_owned()].into());
        let later = both.replace(" 0 0 3 ", " 7 8 4 ");
        assert_ne!(slots(&both), slots(&later), "the slot came back");
        for moving in ["[200->-b2]", "[100-<-b2]"] {
            assert_eq!(slots(&format!("{REPLICA}\n{PRIMARY} {moving}\n")), None);
        }
    }
}
