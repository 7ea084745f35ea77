//! TDIGEST.MERGE.

use super::commands::{COMPRESSION, compression, is_word};
use super::digest::{Digest, Refused, capacity};
use super::stored::{MISSING, TDigest, refusal};
use crate::call::{Access, Admitted, Background, Call, Data, Effect, Key, TwoStep};
use crate::error::CommandError;
use crate::items::limit_sources;
use crate::options::integer;
use crate::reply::Reply;
use crate::table::ArgumentKind::{Integer, Key as KeyArgument};
use crate::table::{Argument, Entry, KeyUse, MoreKeys, command, optional, required, word};
use bloomery::parallel::{ParallelFor, alone, is_wanted};
use std::sync::Arc;

command!(
    Merge,
    |call| merge(call),
    Entry {
        name: "tdigest.merge",
        arity: -4,
        key: KeyUse::Update,
        flags: "deny-oom",
        summary: "Merges t-digests into a t-digest, creating it if needed",
        complexity: "O(n) for n nodes in all t-digests",
        since: "2.4.0",
        arguments: &[
            required("numkeys", Integer),
            Argument { multiple: true, ..required("source", KeyArgument) },
            COMPRESSION,
            optional(word("override", "OVERRIDE")),
        ],
        more_keys: &[MoreKeys::Counted],
        ..Entry::PLAIN
    }
);

/// The index of the first source among the arguments.
const FIRST_SOURCE: usize = 3;

const NO_MEMORY: &str = "ERR T-Digest: allocation of destination digest failed";

/// A node takes as long as this many bytes of the filters that other commands merge: it is sorted twice.
const BYTES_OF_A_NODE: u64 = 256;

/// `TDIGEST.MERGE destination numkeys source [source…] [COMPRESSION compression] [OVERRIDE]`.
fn merge<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open::<TDigest>(1, Access::Write);
    key.value()?;
    let sources = sources(call)?;
    let (wanted, overrides) = merge_options(call, FIRST_SOURCE.saturating_add(sources), NO_MEMORY)?;
    limit_sources(call, sources, "Merge the others with further commands")?;
    let opened = open_sources(call, sources);
    let digests = inputs(&key, &opened, overrides)?;
    let largest = || digests.iter().map(|digest| digest.seen().compression()).fold(0.0, f64::max);
    let own = key.value()?.filter(|_| !overrides).map(|digest| digest.seen().compression());
    let compression = wanted.or(own).unwrap_or_else(largest);
    let nodes = digests.iter().map(|digest| digest.seen().nodes().len()).fold(0, usize::saturating_add);
    let most = capacity(compression);
    // Besides the result, there is a compressed copy of each digest.
    let bytes = Digest::bytes_of(nodes).saturating_add(Digest::bytes_of(nodes.min(most)));
    let goes_to_background = call.goes_to_background((nodes as u64).saturating_mul(BYTES_OF_A_NODE));
    // The destination keeps its content until the merge is complete.
    let memory = match goes_to_background && key.value()?.is_some() {
        true => Admitted::beside_keys(call, Digest::bytes_of(most), bytes),
        false => Admitted::in_new_key(call, Digest::bytes_of(most), bytes),
    };
    let memory = memory.map_err(|why| why.or_redisblooms(refusal(NO_MEMORY)))?;
    let inputs = digests.into_iter().map(TDigest::share).collect();
    let mut merging = Merging { inputs, compression, sources, overrides };
    if goes_to_background {
        let keys = [1].into_iter().chain((FIRST_SOURCE..).take(sources)).collect();
        let job = Background { keys, inputs: Arc::new([]), data: Data::Arguments(0..0), memory };
        return call.in_background(job, merging);
    }
    let merged = merging.prepare(&[], &alone);
    merging.put(call, key, opened, merged)
}

/// A merge that has been checked.
struct Merging {
    /// The digests to merge, in order. They share their memory with those in the keys.
    inputs: Vec<TDigest>,
    compression: f64,
    sources: usize,
    overrides: bool,
}

impl TwoStep for Merging {
    type Prepared = Result<Digest, Refused>;

    fn prepare(&mut self, _: &[&[u8]], parallel: &ParallelFor<'_>) -> Self::Prepared {
        let mut merged = Digest::new(self.compression);
        for input in &self.inputs {
            // Without this, other jobs would wait, and nothing would end work that isn't needed.
            if !is_wanted(parallel) {
                break;
            }
            merged.add_all(input.compressed()?)?;
        }
        Ok(merged)
    }

    fn commit<'a, C: Call<'a>>(
        self,
        call: &C,
        merged: impl FnOnce() -> Self::Prepared,
    ) -> Result<Reply, CommandError> {
        let key = call.open::<TDigest>(1, Access::Write);
        let opened = open_sources(call, self.sources);
        let now = inputs(&key, &opened, self.overrides)?;
        let mut pairs = self.inputs.iter().zip(&now);
        if self.inputs.len() != now.len() || !pairs.all(|(given, now)| given.is_shared_with(now)) {
            return Err(CommandError::Changed);
        }
        self.put(call, key, opened, merged())
    }
}

impl Merging {
    /// Puts the merged digest into the destination.
    fn put<'a, C: Call<'a>>(
        &self,
        call: &C,
        mut key: C::Key<TDigest>,
        mut opened: Vec<C::Key<TDigest>>,
        merged: Result<Digest, Refused>,
    ) -> Result<Reply, CommandError> {
        let merged = merged?;
        for (source, input) in opened.iter_mut().rev().zip(self.inputs.iter().rev()) {
            source.value_mut()?.ok_or(MISSING)?.take_read(input);
        }
        key.create(TDigest::new(call, merged));
        call.replicate(Effect::Verbatim);
        call.changed(c"tdigest.merge");
        Ok(Reply::Ok)
    }
}

fn open_sources<'a, C: Call<'a>>(call: &C, sources: usize) -> Vec<C::Key<TDigest>> {
    (FIRST_SOURCE..).take(sources).map(|index| call.open(index, Access::Read)).collect()
}

/// The digests to merge: what the destination holds, unless the merge overrides it, and the sources.
fn inputs<'k, K: Key<TDigest>>(
    key: &'k K,
    opened: &'k [K],
    overrides: bool,
) -> Result<Vec<&'k TDigest>, CommandError> {
    let destination = key.value()?.filter(|_| !overrides);
    let sources = opened.iter().map(|source| source.value()?.ok_or(MISSING));
    destination.map(Ok).into_iter().chain(sources).collect()
}

/// Number of sources of a merge.
fn sources<'a, C: Call<'a>>(call: &C) -> Result<usize, CommandError> {
    let sources = integer(call.arg(2)).ok_or(refusal("ERR T-Digest: error parsing numkeys"))?;
    if sources <= 0 {
        return Err(refusal("ERR T-Digest: numkeys needs to be a positive integer"));
    }
    let most = call.argc().saturating_sub(FIRST_SOURCE);
    usize::try_from(sources).ok().filter(|sources| *sources <= most).ok_or(CommandError::Arity)
}

/// The options of a merge, which begin at this index: its compression, and whether it overrides the destination. As in
/// RedisBloom, other words are ignored beside one of the two.
fn merge_options<'a, C: Call<'a>>(
    call: &C,
    from: usize,
    too_large: &'static str,
) -> Result<(Option<f64>, bool), CommandError> {
    let overrides = (from..call.argc()).any(|index| is_word(call, index, b"OVERRIDE"));
    let Some(index) = (from..call.argc()).find(|index| is_word(call, *index, b"COMPRESSION")) else {
        let is_plain = overrides || from == call.argc();
        return if is_plain { Ok((None, overrides)) } else { Err(refusal("ERR T-Digest: wrong keyword")) };
    };
    let value = index.saturating_add(1);
    if value == call.argc() {
        return Err(CommandError::Arity);
    }
    Ok((Some(compression(call, value, too_large)?), overrides))
}
