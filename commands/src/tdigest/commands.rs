//! TDIGEST.*: the commands that write, except TDIGEST.MERGE.

use super::digest::{Digest, MOST_COMPRESSION, capacity};
use super::stored::{BAD_COMPRESSION, MISSING, TDigest, refusal};
use crate::call::{Access, Admitted, Call, Effect, Key};
use crate::error::CommandError;
use crate::items::limit_items;
use crate::options::{integer, number};
use crate::reply::Reply;
use crate::table::ArgumentKind::{Double, Integer};
use crate::table::{Argument, Entry, KeyUse, Timing, command, option, required};
use smallvec::SmallVec;

/// The compression of a digest that is created without one.
const DEFAULT_COMPRESSION: f64 = 100.0;

/// The index of the first value among the arguments.
const FIRST_VALUE: usize = 2;

pub(super) const COMPRESSION: Argument = option("compression", "COMPRESSION", Integer);

command!(
    Create,
    |call| create(call),
    Entry {
        name: "tdigest.create",
        arity: -2,
        key: KeyUse::Insert,
        flags: "deny-oom",
        categories: "fast",
        summary: "Creates an empty t-digest",
        since: "2.4.0",
        arguments: &[COMPRESSION],
        timing: Timing::IfLong,
        ..Entry::PLAIN
    }
);

/// The largest compression that a client may ask for. The first read after adds compresses up to six nodes for each, at
/// 85 ns, which takes 0.25 s then.
const MOST_FOR_CLIENTS: u32 = 500_000;

/// `TDIGEST.CREATE key [COMPRESSION compression]`.
fn create<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    if ![2, 4].contains(&call.argc()) {
        return Err(CommandError::Arity);
    }
    let mut key = call.open::<TDigest>(1, Access::Write);
    if key.value()?.is_some() {
        return Err(refusal("ERR T-Digest: key already exists"));
    }
    let mut wanted = DEFAULT_COMPRESSION;
    if call.argc() > 2 {
        if !(2..4).any(|index| is_word(call, index, b"COMPRESSION")) {
            return Err(refusal("ERR T-Digest: wrong keyword"));
        }
        wanted = compression(call, 3, "ERR T-Digest: allocation failed")?;
    }
    admit(call, wanted, 0, "ERR T-Digest: allocation failed")?;
    key.create(TDigest::new(call, Digest::new(wanted)));
    call.replicate(Effect::Verbatim);
    call.changed(c"tdigest.create");
    Ok(Reply::Ok)
}

pub(super) fn is_word<'a, C: Call<'a>>(call: &C, index: usize, word: &[u8]) -> bool {
    call.arg(index).eq_ignore_ascii_case(word)
}

/// The compression in an argument. `too_large` is the error for one with which no server has memory for the nodes.
pub(super) fn compression<'a, C: Call<'a>>(
    call: &C,
    index: usize,
    too_large: &'static str,
) -> Result<f64, CommandError> {
    let wanted = integer(call.arg(index)).ok_or(refusal(BAD_COMPRESSION))?;
    if wanted <= 0 {
        return Err(refusal("ERR T-Digest: compression parameter needs to be a positive integer"));
    }
    let fits = u32::try_from(wanted).ok().filter(|wanted| *wanted <= MOST_COMPRESSION);
    let fits = fits.ok_or(refusal(too_large))?;
    if fits > MOST_FOR_CLIENTS && !call.is_from_primary() {
        return Err(refusal("ERR T-Digest: compression parameter must be at most 500000"));
    }
    Ok(f64::from(fits))
}

/// Asks whether a digest may have as many nodes as it grows to, and for the memory of the first ones.
fn admit<'a, C: Call<'a>>(
    call: &C,
    compression: f64,
    nodes: usize,
    why: &'static str,
) -> Result<(), CommandError> {
    let most = capacity(compression);
    let (total, now) = (Digest::bytes_of(most), Digest::bytes_of(nodes.min(most)));
    Admitted::in_new_key(call, total, now).map_err(|refused| refused.or_redisblooms(refusal(why)))?;
    Ok(())
}

command!(
    Reset,
    |call| reset(call),
    Entry {
        name: "tdigest.reset",
        key: KeyUse::Delete,
        flags: "deny-oom",
        categories: "fast",
        summary: "Removes all observations from a t-digest",
        since: "2.4.0",
        timing: Timing::IfLong,
        ..Entry::PLAIN
    }
);

/// `TDIGEST.RESET key`.
fn reset<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let mut key = call.open::<TDigest>(1, Access::Write);
    let value = key.value_mut()?.ok_or(MISSING)?;
    *value = TDigest::new(call, Digest::new(value.seen().compression()));
    call.replicate(Effect::Verbatim);
    call.changed(c"tdigest.reset");
    Ok(Reply::Ok)
}

command!(
    Add,
    |call| add(call),
    Entry {
        name: "tdigest.add",
        arity: -3,
        key: KeyUse::Insert,
        flags: "deny-oom",
        summary: "Adds observations to a t-digest",
        complexity: "O(n) for n observations",
        since: "2.4.0",
        arguments: &[Argument { multiple: true, ..required("value", Double) }],
        timing: Timing::IfLong,
        ..Entry::PLAIN
    }
);

/// `TDIGEST.ADD key value [value…]`.
fn add<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    limit_items(call, call.argc().saturating_sub(FIRST_VALUE))?;
    let mut key = call.open::<TDigest>(1, Access::Write);
    let value = key.value_mut()?.ok_or(MISSING)?;
    let observations = observations(call)?;
    if !call.is_from_primary() {
        call.admit_tenant(|| value.seen().bytes_with(observations.len()))?;
    }
    let digest = value.write(call)?;
    for (done, observation) in observations.iter().enumerate() {
        if let Err(why) = digest.add(*observation, 1) {
            // Only a digest from a crafted file gets here.
            let added: Vec<usize> = (FIRST_VALUE..).take(done).collect();
            call.replicate(Effect::Items("tdigest.add", &added));
            call.changed(c"tdigest.add");
            return Err(why.into());
        }
    }
    call.replicate(Effect::Verbatim);
    call.changed(c"tdigest.add");
    Ok(Reply::Ok)
}

fn observations<'a, C: Call<'a>>(call: &C) -> Result<SmallVec<[f64; 64]>, CommandError> {
    let parse = |index| match number(call.arg(index)) {
        None => Err(refusal("ERR T-Digest: error parsing val parameter")),
        Some(value) if value.is_infinite() => {
            Err(refusal("ERR T-Digest: val parameter needs to be a finite number"))
        }
        Some(value) => Ok(value),
    };
    (FIRST_VALUE..call.argc()).map(parse).collect()
}
