//! The value in a key, and RedisBloom's data type.
//!
//! In RedisBloom, reads and DUMP compress the key. Primary and replicas aren't read alike, so they drift apart. Here, a
//! read answers from a compressed copy. The next write on a primary makes the copy the digest, as if the read had
//! compressed it, and first tells replicas and the AOF to [compress](MARKER) theirs. So answers are RedisBloom's, and a
//! server's digest depends only on the writes. A merge is a write, so it compresses its sources on all servers.
//!
//! Saved digests are compressed as well, since RedisBloom's encoding has no unmerged nodes. A primary that has saved a
//! digest compresses with its next write. A server that obeys can't do that, because its primary doesn't. So it saves
//! digests as they are, with sorted nodes, which RedisBloom takes for merged ones.

use super::digest::{Digest, MOST_COMPRESSION, Node, Refused, capacity, reserve};
use crate::call::{Call, Effect};
use crate::error::CommandError;
use crate::metrics::SKETCHES;
use crate::stored::{DataType, Handle, Stored};
use bloomery::Error;
use bloomery::metrics::Sum;
use bloomery::parallel::ParallelFor;
use bloomery::wire::{Sink, Source};
use std::borrow::Borrow;
use std::cell::OnceCell;
use std::ffi::CStr;
use std::sync::Arc;

static HANDLES: [Handle; 1] = [const { Handle::new() }];

/// What makes a server that obeys compress its digest, and any other server a compressed copy of it. In RedisBloom, it
/// compresses as well.
const MARKER: &str = "tdigest.quantile";

/// A t-digest in a key.
pub(crate) struct TDigest {
    /// What the writes made. Shared with merges that read it in the background.
    digest: Arc<Digest>,
    /// A compressed copy, if the digest was read after the last write, and has unmerged nodes.
    read: OnceCell<Arc<Digest>>,
    /// The [number of saves](Call::saves) before the last write of a client. 0 for a digest that was loaded: the
    /// server that saved it may have it uncompressed.
    saves: u64,
}

/// A refusal in RedisBloom's words.
pub(super) const fn refusal(text: &'static str) -> CommandError {
    CommandError::RedisBloom(text)
}

pub(super) const MISSING: CommandError = refusal("ERR T-Digest: key does not exist");

pub(super) const BAD_COMPRESSION: &str = "ERR T-Digest: error parsing compression parameter";

impl TDigest {
    /// A digest that the running command has made.
    pub(super) fn new<'a, C: Call<'a>>(call: &C, digest: Digest) -> TDigest {
        TDigest { digest: Arc::new(digest), read: OnceCell::new(), saves: call.saves() }
    }

    /// A value with the same digest in the same memory, for another thread to read.
    pub(super) fn share(&self) -> TDigest {
        TDigest { digest: Arc::clone(&self.digest), read: self.read.clone(), ..*self }
    }

    pub(super) fn is_shared_with(&self, other: &TDigest) -> bool {
        Arc::ptr_eq(&self.digest, &other.digest)
    }

    /// Makes the compressed copy that a [shared](TDigest::share) value has made the digest.
    pub(super) fn take_read(&mut self, shared: &TDigest) {
        if let Some(read) = shared.read.get() {
            self.digest = Arc::clone(read);
            self.read.take();
        }
    }

    /// The digest as its clients see it.
    pub(super) fn seen(&self) -> &Digest {
        self.read.get().map_or(&self.digest, |read| read)
    }

    /// The digest, compressed.
    pub(super) fn compressed(&self) -> Result<&Digest, Refused> {
        if self.digest.is_compressed() {
            return Ok(&self.digest);
        }
        if let Some(read) = self.read.get() {
            return Ok(read);
        }
        let read = Arc::new(self.digest.compressed()?);
        Ok(self.read.get_or_init(|| read))
    }

    /// The digest, to be changed by the running command.
    pub(super) fn write<'a, C: Call<'a>>(&mut self, call: &C) -> Result<&mut Digest, Refused> {
        let (read, before, now) = (self.read.take(), self.saves, call.saves());
        if call.is_from_primary() {
            return self.own();
        }
        let is_behind = before == 0 || before != now && !self.digest.is_compressed();
        if read.is_some() || is_behind {
            match read {
                Some(read) => self.digest = read,
                None => self.own()?.compress(),
            }
            call.replicate(Effect::Arguments(MARKER, vec![b"0.5".to_vec()]));
        }
        self.saves = now;
        self.own()
    }

    /// Compresses the digest itself, as the primary did.
    pub(super) fn compress(&mut self) -> Result<(), Refused> {
        self.read.take();
        self.own()?.compress();
        Ok(())
    }

    /// The digest, to be changed. A merge may still read it: the server has renamed the key, or the merge's client has
    /// left. If so, the change is made to a copy.
    fn own(&mut self) -> Result<&mut Digest, Refused> {
        if Arc::strong_count(&self.digest) > 1 {
            self.digest = Arc::new(self.digest.copy()?);
        }
        match Arc::get_mut(&mut self.digest) {
            Some(digest) => Ok(digest),
            None => unreachable!("only this thread shares digests"),
        }
    }
}

impl From<Refused> for CommandError {
    fn from(why: Refused) -> CommandError {
        match why {
            Refused::Overflow => refusal("ERR T-Digest: overflow detected"),
            Refused::Memory(bytes) => CommandError::Memory { bytes, bound: None },
        }
    }
}

impl Stored for TDigest {
    #[inline(always)]
    fn handles() -> &'static [Handle] {
        &HANDLES
    }

    fn copy(&self, _: &ParallelFor<'_>) -> Result<TDigest, Error> {
        match self.digest.copy() {
            Ok(digest) => Ok(TDigest { digest: Arc::new(digest), read: OnceCell::new(), saves: self.saves }),
            Err(Refused::Memory(bytes)) => Err(Error::OutOfMemory { bytes }),
            Err(Refused::Overflow) => Err(Error::OutOfMemory { bytes: 0 }),
        }
    }

    fn bytes(&self) -> u64 {
        self.digest.bytes()
    }

    fn allocated(&self) -> usize {
        let read =
            self.read.get().map_or(0, |read| (size_of::<Digest>() as u64).saturating_add(read.bytes()));
        let bytes = (size_of::<TDigest>() as u64).saturating_add(self.digest.bytes()).saturating_add(read);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    fn gauge(&self) -> Option<&'static Sum> {
        Some(&SKETCHES.tdigest)
    }
}

/// RedisBloom's type.
pub(super) struct RedisBloom;

impl DataType for RedisBloom {
    type Value = TDigest;
    const NAME: &'static CStr = c"TDIS-TYPE";
    const ENCODING: i32 = 0;

    fn load(source: &mut impl Source, encoding: u32) -> Result<TDigest, String> {
        if encoding != 0 {
            return Err(format!("unknown encoding {encoding}"));
        }
        Ok(TDigest { digest: Arc::new(load(source)?), read: OnceCell::new(), saves: 0 })
    }

    fn save(value: &TDigest, sink: &mut impl Sink) {
        or_give_up(value.compressed(), sink);
    }

    fn save_file(value: &TDigest, sink: &mut impl Sink, obeys: bool) {
        let digest: &Digest = &value.digest;
        match () {
            _ if digest.is_compressed() => save(digest, sink),
            _ if obeys => or_give_up(digest.sorted(), sink),
            _ => or_give_up(digest.compressed(), sink),
        }
    }
}

/// Writes a digest. Without memory for it, the save fails, and the last good file stays.
fn or_give_up(digest: Result<impl Borrow<Digest>, Refused>, sink: &mut impl Sink) {
    match digest {
        Ok(digest) => save(digest.borrow(), sink),
        Err(why) => unreachable!("no memory for a copy of the digest: {why:?}"),
    }
}

/// The weight of unmerged nodes in RedisBloom's fields, if the nodes haven't been compressed. RedisBloom takes it for
/// 0, and the nodes for merged ones, in which it may have one observation each.
const NOT_COMPRESSED: f64 = 0.5;

/// Writes a digest whose nodes are in ascending order.
fn save(digest: &Digest, sink: &mut impl Sink) {
    sink.double(digest.compression());
    sink.double(digest.min());
    sink.double(digest.max());
    sink.unsigned(digest.capacity() as u64);
    sink.unsigned(digest.nodes().len() as u64);
    sink.unsigned(0);
    sink.unsigned(digest.compressions().unsigned_abs());
    sink.double(digest.observations() as f64);
    sink.double(if digest.is_compressed() { 0.0 } else { NOT_COMPRESSED });
    digest.nodes().iter().for_each(|node| sink.double(node.mean));
    digest.nodes().iter().for_each(|node| sink.double(node.weight as f64));
}

/// Reads a digest. Memory is allocated in proportion to the bytes that have come.
fn load(source: &mut impl Source) -> Result<Digest, String> {
    let compression = double(source)?;
    if !(1.0..f64::from(MOST_COMPRESSION) + 1.0).contains(&compression) {
        return Err(bad("compression"));
    }
    let (min, max) = (double(source)?, double(source)?);
    if unsigned(source)? != capacity(compression) as u64 {
        return Err(bad("capacity"));
    }
    let (merged, unmerged) = (unsigned(source)?, unsigned(source)?);
    let compressions = i64::try_from(unsigned(source)?).map_err(|_| bad("number of compressions"))?;
    let (weight, unmerged_weight) = (double(source)?, double(source)?);
    if merged > capacity(compression) as u64 {
        return Err(bad("number of nodes"));
    }
    if merged == 0
        && unmerged == 1
        && unmerged_weight == 1.0
        && weight == 0.0
        && min == max
        && min.is_finite()
    {
        // RedisBloom 2 saves a single observation like this, and forgets it.
        let mut digest = Digest::new(compression);
        digest.add(min, 1).map_err(|why| format!("{why:?}"))?;
        return Ok(digest);
    }
    if unmerged != 0 || ![0.0, NOT_COMPRESSED].contains(&unmerged_weight) {
        return Err(bad("unmerged nodes"));
    }
    if merged > 0 && !(min.is_finite() && max.is_finite()) {
        return Err(bad("bound"));
    }
    let nodes = nodes(source, merged, min, max)?;
    let (min, max) = if nodes.is_empty() { (f64::MAX, f64::MIN) } else { (min, max) };
    let is_compressed = nodes.is_empty() || unmerged_weight == 0.0;
    let digest = Digest::from_parts(compression, (min, max), nodes, compressions, is_compressed);
    let digest = digest.ok_or_else(|| bad("weight"))?;
    // Above 2^53, the weights in the file are rounded.
    let observations = digest.observations() as f64;
    let is_sum = (observations - weight).abs() <= observations * f64::EPSILON * 4.0;
    if is_sum { Ok(digest) } else { Err(bad("total weight")) }
}

/// Reads the means of all nodes, and then their weights.
fn nodes(source: &mut impl Source, count: u64, min: f64, max: f64) -> Result<Vec<Node>, String> {
    let mut nodes: Vec<Node> = Vec::new();
    let mut least = min;
    for _ in 0..count {
        // RedisBloom computes infinities and NaN if it merges values near the largest double. Such a file must not keep
        // a server from starting.
        let mean = Some(double(source)?).filter(|mean| mean.is_finite()).unwrap_or(least);
        if !(least <= mean && mean <= max) {
            return Err(bad("mean"));
        }
        least = mean;
        if nodes.len() == nodes.capacity() {
            let more = nodes.len().max(16);
            reserve(&mut nodes, more).map_err(|why| format!("{why:?}"))?;
        }
        nodes.push(Node { mean, weight: 0 });
    }
    for node in &mut nodes {
        let weight = double(source)?;
        if !(1.0..i64::MAX as f64).contains(&weight) || weight.fract() != 0.0 {
            return Err(bad("weight"));
        }
        #[allow(clippy::cast_possible_truncation, reason = "it was checked")]
        let whole = weight as i64;
        node.weight = whole;
    }
    Ok(nodes)
}

fn unsigned(source: &mut impl Source) -> Result<u64, String> {
    source.unsigned().ok_or_else(|| "it ends too early".to_owned())
}

fn double(source: &mut impl Source) -> Result<f64, String> {
    source.double().ok_or_else(|| "it ends too early".to_owned())
}

fn bad(what: &str) -> String {
    format!("a t-digest with an impossible {what}")
}
