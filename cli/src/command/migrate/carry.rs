//! Copies filters in rounds.
//!
//! Each round visits all keys and copies filters that are missing at the target, or differ there. A round that copies
//! nothing is the last one. So each copy is checked by the next round (bit for bit, if the source can dump the filter
//! in pieces), and a filter that was written to in the meantime is copied again.

use super::failed::Failed;
use super::payload;
use super::side::{Held, Key, Side, text};
use crate::interrupt::Interrupted;
use crate::output;
use crate::server::family::{FAMILIES, Family};
use crate::server::key::neighbour;
use redis::Value;
use std::collections::BTreeMap;

/// How far apart the expiry times of equal filters may be at the source and the target, in milliseconds.
const CLOCK_MS: u64 = 1000;

/// Maximum size in bytes of an argument that a server accepts by default; used if a server doesn't disclose its limit.
const DEFAULT_BULK: u64 = 512 << 20;

/// Maximum number of bytes in a payload besides the filter.
const ENVELOPE: u64 = 1 << 20;

/// How filters are copied.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    /// Whether filters at the target that differ are overwritten.
    pub(super) replace: bool,
    /// Filters of this many bytes or more are copied in pieces.
    pub(super) pieces_from: u64,
}

/// A migration from a source to a target.
pub(super) struct Migration {
    pub(super) source: Side,
    pub(super) target: Side,
    rules: Rules,
    /// The families whose filters the source can dump in pieces. valkey-bloom can dump none.
    in_pieces: Vec<&'static Family>,
    /// Maximum size in bytes of a filter that the target accepts as one argument.
    longest: u64,
    /// An RDB version that the target reads; 0 if nothing is to be written.
    version: u16,
    /// The keys that this run has copied, each with its size in bytes.
    pub(super) copied: BTreeMap<Vec<u8>, u64>,
    /// Keys that are missing or wrong at the target, each with the reason.
    pub(super) failed: BTreeMap<Vec<u8>, String>,
    /// Keys whose filters gave other answers than at the source, and what differed. The next round copies them.
    pub(super) wrong: BTreeMap<Vec<u8>, String>,
}

/// What a round did.
#[derive(Default)]
pub(super) struct Round {
    /// Number of keys that were copied, or that failed but may be copied in the next round.
    pub(super) unsettled: u64,
    pub(super) is_interrupted: bool,
}

impl Migration {
    /// Finds out what the two sides can do. If the target will be written to, also writes a temporary key to it, to
    /// learn its RDB version.
    pub(super) fn new(
        mut source: Side,
        mut target: Side,
        rules: Rules,
        writes: bool,
    ) -> anyhow::Result<Migration> {
        let mut in_pieces = Vec::new();
        for family in FAMILIES {
            if source.knows(&family.command("SCANDUMP"))? {
                in_pieces.push(family);
            }
        }
        anyhow::ensure!(
            target.knows("BF.EXISTS")?,
            "{target}, has no module with BF.* commands; load Bloomery there"
        );
        let longest = longest_argument(&mut target);
        let version = if writes { target.rdb_version()? } else { 0 };
        let rules = Rules { pieces_from: rules.pieces_from.min(longest), ..rules };
        Ok(Migration {
            source,
            target,
            rules,
            in_pieces,
            longest,
            version,
            copied: BTreeMap::new(),
            failed: BTreeMap::new(),
            wrong: BTreeMap::new(),
        })
    }

    /// Runs one round. After each key, calls `done` with the total bytes of the keys visited so far.
    pub(super) fn round(
        &mut self,
        keys: &[Key],
        may_copy: bool,
        interrupted: &Interrupted,
        mut done: impl FnMut(u64),
    ) -> anyhow::Result<Round> {
        let earlier = std::mem::take(&mut self.failed);
        let mut round = Round::default();
        let mut bytes = 0;
        for key in keys {
            if interrupted.is_set() {
                round.is_interrupted = true;
                break;
            }
            match self.settle(key, may_copy, interrupted) {
                Ok(copied) => round.unsettled += u64::from(copied),
                Err(Failed::Run(error)) => return Err(error),
                Err(Failed::Filter(why) | Failed::ThisTime(why)) if !may_copy => {
                    // Keep the reason from the earlier round: it is more informative than "is new at the source".
                    let why = earlier.get(&key.name).cloned().unwrap_or(why);
                    self.failed.insert(key.name.clone(), why);
                }
                Err(Failed::Filter(why)) => drop(self.failed.insert(key.name.clone(), why)),
                Err(Failed::ThisTime(why)) => {
                    self.failed.insert(key.name.clone(), why);
                    round.unsettled += 1;
                }
            }
            bytes += key.bytes;
            done(bytes);
        }
        Ok(round)
    }

    /// Makes the target's key equal to the source's. Returns whether the filter was copied.
    fn settle(&mut self, key: &Key, may_copy: bool, interrupted: &Interrupted) -> Result<bool, Failed> {
        let settled = self.try_settle(key, may_copy, interrupted);
        match settled {
            // It isn't a failure if the filter has expired at the source, or was deleted there.
            Err(Failed::Filter(_) | Failed::ThisTime(_)) if !self.source.has(&key.name)? => Ok(false),
            settled => settled,
        }
    }

    fn try_settle(&mut self, key: &Key, may_copy: bool, interrupted: &Interrupted) -> Result<bool, Failed> {
        let is_there = self.target.has(&key.name)?;
        let difference = if is_there { self.difference(key)? } else { Some("is new at the source".into()) };
        let wrong = self.wrong.remove(&key.name);
        let Some(difference) = difference.or(wrong) else { return Ok(false) };
        if is_there && !self.rules.replace && !self.copied.contains_key(&key.name) {
            return Err(Failed::Filter(format!(
                "is at the target already, and differs: {difference}. --replace overwrites it"
            )));
        }
        if !may_copy {
            let what = if is_there { format!("differs again: {difference}") } else { difference };
            return Err(Failed::Filter(format!(
                "{what}. Is it being written to? Stop that, and run this again with --replace"
            )));
        }
        let is_copied = self.copy(key, is_there, interrupted)?;
        if is_copied {
            self.copied.insert(key.name.clone(), key.bytes);
        }
        Ok(is_copied)
    }

    /// What differs between the two sides; `None` if the filter is equal on both.
    pub(super) fn difference(&mut self, key: &Key) -> Result<Option<String>, Failed> {
        let held = self.replaceable(&key.name)?;
        if Held::of_type(&held) != Some(key.held) {
            return Ok(Some(format!("it is a {held} there")));
        }
        let expiries = self.source.expiry(&key.name)?.zip(self.target.expiry(&key.name)?);
        let equal =
            |(here, there): (u64, u64)| (here == 0) == (there == 0) && here.abs_diff(there) <= CLOCK_MS;
        if !expiries.is_some_and(equal) {
            return Ok(Some("its time to live".into()));
        }
        if let Some(field) = self.different_field(key)? {
            return Ok(Some(field));
        }
        let differs = if let Some(family) = self.in_pieces(key) {
            self.source.digest(family, &key.name)? != self.target.digest(family, &key.name)?
        } else if key.bytes < self.rules.pieces_from {
            let (here, there) = (self.source.value(key)?, self.target.value(key)?);
            here.zip(there).is_some_and(|(here, there)| here != there)
        } else {
            false
        };
        Ok(differs.then(|| "its bits".into()))
    }

    /// The type of the target's key. Fails if the key holds neither a filter nor a sketch, because such a key is never
    /// overwritten.
    fn replaceable(&mut self, name: &[u8]) -> Result<String, Failed> {
        let held: String = self.target.of_key("TYPE", name)?;
        if Held::of_type(&held).is_none() && held != "none" {
            return Err(Failed::Filter(format!(
                "holds a {held} at the target, not a filter; delete it first"
            )));
        }
        Ok(held)
    }

    /// The filter's family, if the source can dump it in pieces, so that the bits of a filter of any size can be
    /// compared.
    pub(super) fn in_pieces(&self, key: &Key) -> Option<&'static Family> {
        key.held.family().filter(|family| self.in_pieces.contains(family))
    }

    /// The first field of BF.INFO or CF.INFO that both sides have and that differs. Size is left out: it is memory,
    /// which differs by implementation.
    pub(super) fn different_field(&mut self, key: &Key) -> Result<Option<String>, Failed> {
        let Some(family) = key.held.family() else { return Ok(None) };
        let (here, there) = (self.source.info(family, &key.name)?, self.target.info(family, &key.name)?);
        Ok(here.into_iter().filter(|(name, _)| text(name) != "Size").find_map(|(name, here)| {
            let (_, there) = there.iter().find(|(other, _)| text(other) == text(&name))?;
            let differs =
                !matches!((&here, there), (Value::Nil, _) | (_, Value::Nil)) && text(&here) != text(there);
            differs.then(|| {
                format!("{} is {} at the source and {} at the target", text(&name), text(&here), text(there))
            })
        }))
    }

    /// Copies a large filter in pieces, and a smaller one whole. If that fails, tries the other method. Returns false
    /// if the key is gone, or after an interruption.
    fn copy(&mut self, key: &Key, replace: bool, interrupted: &Interrupted) -> Result<bool, Failed> {
        let pieces_first = key.bytes >= self.rules.pieces_from;
        let mut refusals: Vec<String> = Vec::new();
        for in_pieces in [pieces_first, !pieces_first] {
            let copied = if in_pieces {
                self.copy_in_pieces(key, replace, interrupted)
            } else {
                self.copy_whole(key, replace)
            };
            match copied {
                Err(Failed::Filter(why) | Failed::ThisTime(why)) if !refusals.contains(&why) => {
                    refusals.push(why)
                }
                Err(Failed::Filter(_) | Failed::ThisTime(_)) => {}
                ended => return ended,
            }
        }
        Err(Failed::ThisTime(format!("could not be copied: {}", refusals.join("; "))))
    }

    /// Copies with DUMP and RESTORE. Returns false if the key is gone.
    fn copy_whole(&mut self, key: &Key, replace: bool) -> Result<bool, Failed> {
        if key.bytes > self.longest {
            let size = output::bytes(key.bytes);
            return Err(Failed::Filter(format!(
                "its {size} are longer than an argument may be at the target"
            )));
        }
        // The expiry is sent as a point in time, which doesn't depend on how long the copy takes.
        let Some(expiry) = self.source.expiry(&key.name)? else { return Ok(false) };
        let Some(mut payload): Option<Vec<u8>> = self.source.of_key("DUMP", &key.name)? else {
            return Ok(false);
        };
        payload::set_version(&mut payload, self.version);
        let mut command = redis::cmd("RESTORE");
        command.arg(&key.name).arg(expiry).arg(payload).arg("ABSTTL");
        if replace {
            self.replaceable(&key.name)?;
            command.arg("REPLACE");
        }
        self.target.ask::<()>(&command)?;
        Ok(true)
    }

    /// Copies with SCANDUMP and LOADCHUNK to a key with another name, which is renamed when the copy is complete.
    /// Returns false if the key is gone, or after an interruption.
    fn copy_in_pieces(
        &mut self,
        key: &Key,
        replace: bool,
        interrupted: &Interrupted,
    ) -> Result<bool, Failed> {
        let Some(family) = self.in_pieces(key) else {
            return Err(Failed::Filter("the source cannot give it in pieces".into()));
        };
        // The name depends only on the filter's key, so that the next run after an interruption deletes this key. Both
        // keys are in the same cluster slot.
        let loading = [&neighbour(&key.name, ":bloomery-migrate:"), &key.name[..]].concat();
        self.target.of_key::<()>("DEL", &loading)?;
        let load = family.command("LOADCHUNK");
        let mut at = 0;
        while let Some(piece) = self.source.piece(family, &key.name, at)? {
            if interrupted.is_set() {
                return Ok(false);
            }
            self.target.ask::<()>(redis::cmd(&load).arg(&loading).arg(piece.iterator).arg(piece.bytes))?;
            at = piece.iterator;
        }
        if at == 0 {
            return Err(Failed::Filter("the source gives no pieces of an empty filter".into()));
        }
        let named = self.name(key, &loading, replace);
        self.target.of_key::<()>("DEL", &loading)?;
        named
    }

    /// Sets the expiry of the loaded filter, and renames its key to the final name. Returns false if the filter is gone
    /// at the source.
    fn name(&mut self, key: &Key, loading: &[u8], replace: bool) -> Result<bool, Failed> {
        let Some(expiry) = self.source.expiry(&key.name)? else { return Ok(false) };
        if expiry > 0 {
            self.target.ask::<()>(redis::cmd("PEXPIREAT").arg(loading).arg(expiry))?;
        }
        if replace {
            self.replaceable(&key.name)?;
            self.target.ask::<()>(redis::cmd("RENAME").arg(loading).arg(&key.name))?;
        } else if !self.target.ask::<bool>(redis::cmd("RENAMENX").arg(loading).arg(&key.name))? {
            let why = "appeared at the target during the run. --replace overwrites it";
            return Err(Failed::Filter(why.into()));
        }
        Ok(true)
    }

    /// Number of items in a filter at the source; all there can be if the source doesn't say.
    pub(super) fn items(&mut self, family: &'static Family, name: &[u8]) -> Result<u64, Failed> {
        Ok(self.source.items(family, name)?.unwrap_or(u64::MAX))
    }

    /// Checks that both sides give the same answers for these items. Returns how many answers are yes.
    pub(super) fn check(
        &mut self,
        family: &'static Family,
        name: &[u8],
        items: &[Vec<u8>],
    ) -> Result<u64, Failed> {
        let here = self.source.answers(family, name, items)?;
        let there = self.target.answers(family, name, items)?;
        let wrong: Vec<usize> = (0..items.len()).filter(|&item| here.get(item) != there.get(item)).collect();
        match wrong.first() {
            None => Ok(here.iter().filter(|yes| **yes).count() as u64),
            Some(&first) => Err(Failed::Filter(format!(
                "{} of {} answers differ, for '{}' to begin with",
                wrong.len(),
                items.len(),
                output::key(&items[first])
            ))),
        }
    }
}

/// Maximum size in bytes of a filter that the target accepts as one argument. Many users have no permission to query
/// the limit; then the server's default is assumed.
fn longest_argument(target: &mut Side) -> u64 {
    let limit: Option<(String, u64)> =
        target.ask(redis::cmd("CONFIG").arg("GET").arg("proto-max-bulk-len")).ok();
    limit.map_or(DEFAULT_BULK, |(_, bytes)| bytes).saturating_sub(ENVELOPE)
}
