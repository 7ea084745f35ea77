//! TDIGEST.*: the commands that read.

use super::digest::{Digest, capacity};
use super::query::Query;
use super::stored::{MISSING, TDigest, refusal};
use crate::call::{Access, Call, Effect, Key};
use crate::error::CommandError;
use crate::items::limit_items;
use crate::options::{integer, number};
use crate::reply::Reply;
use crate::table::ArgumentKind::{Double, Integer};
use crate::table::{Argument, Entry, Timing, command, required};
use smallvec::SmallVec;

/// The index of the first value among the arguments.
const FIRST: usize = 2;

/// What the commands that read have in common.
const READ: Entry = Entry {
    arity: -3,
    categories: "fast",
    tips: "",
    since: "2.4.0",
    timing: Timing::IfLong,
    complexity: O_NODES,
    ..Entry::PLAIN
};

const O_NODES: &str = "O(n) for n nodes";

/// Arguments of a command that answers each of them.
const fn each(name: &'static str, kind: crate::table::ArgumentKind) -> Argument {
    Argument { multiple: true, ..required(name, kind) }
}

/// Opens the key of a command that answers each of its arguments.
fn open<'a, C: Call<'a>>(call: &C) -> Result<C::Key<TDigest>, CommandError> {
    limit_items(call, call.argc().saturating_sub(FIRST))?;
    Ok(call.open::<TDigest>(1, Access::Read))
}

/// The digest in an opened key.
fn existing<K: Key<TDigest>>(key: &K) -> Result<&TDigest, CommandError> {
    key.value()?.ok_or(MISSING)
}

/// The arguments after the key.
fn parsed<'a, C: Call<'a>, T>(
    call: &C,
    parse: impl Fn(&[u8]) -> Result<T, CommandError>,
) -> Result<SmallVec<[T; 16]>, CommandError> {
    (FIRST..call.argc()).map(|index| parse(call.arg(index))).collect()
}

/// Parses any number, or refuses with this text.
fn any(bytes: &[u8], otherwise: &'static str) -> Result<f64, CommandError> {
    number(bytes).ok_or(refusal(otherwise))
}

/// Answers each value: `at_once`, or from the merged nodes. If all are answered at once, nothing is compressed, as in
/// RedisBloom, where INFO shows the difference.
fn answer<T: Copy>(
    value: &TDigest,
    asked: &[T],
    at_once: impl Fn(&Digest, T) -> Option<Reply>,
    from_nodes: impl Fn(&Query<'_>, T) -> Reply,
) -> Result<Reply, CommandError> {
    let seen = value.seen();
    let compresses = asked.iter().any(|one| at_once(seen, *one).is_none());
    let seen = if compresses { value.compressed()? } else { seen };
    let query = compresses.then(|| seen.query());
    let reply = |one: &T| {
        let known = at_once(seen, *one);
        known.or_else(|| Some(from_nodes(query.as_ref()?, *one))).unwrap_or(Reply::Null)
    };
    Ok(Reply::Array(asked.iter().map(reply).collect()))
}

command!(
    Quantile,
    |call| quantile(call),
    Entry {
        name: "tdigest.quantile",
        summary: "Estimates the values at quantiles",
        arguments: &[each("quantile", Double)],
        ..READ
    }
);

/// `TDIGEST.QUANTILE key quantile [quantile…]`.
fn quantile<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    if call.is_from_primary() {
        return compress(call);
    }
    let key = open(call)?;
    let value = existing(&key)?;
    let asked = parsed(call, |bytes| {
        let quantile = any(bytes, "ERR T-Digest: error parsing quantile")?;
        let is_one = (0.0..=1.0).contains(&quantile);
        if is_one { Ok(quantile) } else { Err(refusal("ERR T-Digest: quantile should be in [0,1]")) }
    })?;
    answer(value, &asked, |_, _| None, |query, asked| Reply::ServersDouble(query.quantile(asked)))
}

/// Compresses the digest, because the server that sent this has compressed its own.
fn compress<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let mut key = call.open::<TDigest>(1, Access::Write);
    key.value_mut()?.ok_or(MISSING)?.compress()?;
    call.replicate(Effect::Verbatim);
    Ok(Reply::Ok)
}

command!(
    Cdf,
    |call| cdf(call),
    Entry {
        name: "tdigest.cdf",
        summary: "Estimates the fractions of observations up to values",
        arguments: &[each("value", Double)],
        ..READ
    }
);

/// `TDIGEST.CDF key value [value…]`.
fn cdf<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = open(call)?;
    let value = existing(&key)?;
    let asked = parsed(call, |bytes| any(bytes, "ERR T-Digest: error parsing cdf"))?;
    answer(value, &asked, |_, _| None, |query, asked| Reply::ServersDouble(query.cdf(asked)))
}

command!(
    Rank,
    |call| rank(call, |digest| (-1, digest.observations()), |query, value| query.rank(value)),
    Entry {
        name: "tdigest.rank",
        summary: "Estimates the numbers of observations below values",
        arguments: &[each("value", Double)],
        ..READ
    }
);

command!(
    Revrank,
    |call| rank(call, |digest| (digest.observations(), -1), |query, value| query.reverse_rank(value)),
    Entry {
        name: "tdigest.revrank",
        summary: "Estimates the numbers of observations above values",
        ..Rank::ENTRY
    }
);

/// `TDIGEST.RANK key value [value…]`, `TDIGEST.REVRANK …`. `beyond` has the answers for values below and above all
/// observations.
fn rank<'a, C: Call<'a>>(
    call: &C,
    beyond: impl Fn(&Digest) -> (i64, i64),
    inside: impl Fn(&Query<'_>, f64) -> i64,
) -> Result<Reply, CommandError> {
    let key = open(call)?;
    let value = existing(&key)?;
    let asked = parsed(call, |bytes| any(bytes, "ERR T-Digest: error parsing value"))?;
    let at_once = |digest: &Digest, value: f64| {
        let (below, above) = beyond(digest);
        let rank = match () {
            _ if digest.nodes().is_empty() => -2,
            _ if value < digest.min() => below,
            _ if value > digest.max() => above,
            _ => return None,
        };
        Some(Reply::Integer(rank))
    };
    answer(value, &asked, at_once, |query, asked| Reply::Integer(inside(query, asked)))
}

command!(
    Byrank,
    |call| by_rank(call, |digest| (digest.min(), f64::INFINITY), |query, rank| query.by_rank(rank)),
    Entry {
        name: "tdigest.byrank",
        summary: "Estimates the values with ranks, counted from the smallest",
        arguments: &[each("rank", Integer)],
        ..READ
    }
);

command!(
    Byrevrank,
    |call| by_rank(
        call,
        |digest| (digest.max(), f64::NEG_INFINITY),
        |query, rank| query.by_reverse_rank(rank)
    ),
    Entry {
        name: "tdigest.byrevrank",
        summary: "Estimates the values with ranks, counted from the largest",
        ..Byrank::ENTRY
    }
);

/// `TDIGEST.BYRANK key rank [rank…]`, `TDIGEST.BYREVRANK …`. `ends` has the answers for the first rank and for ranks
/// beyond the last.
fn by_rank<'a, C: Call<'a>>(
    call: &C,
    ends: impl Fn(&Digest) -> (f64, f64),
    inside: impl Fn(&Query<'_>, i64) -> f64,
) -> Result<Reply, CommandError> {
    let key = open(call)?;
    let value = existing(&key)?;
    let asked = parsed(call, |bytes| {
        let rank = integer(bytes).ok_or(refusal("ERR T-Digest: error parsing rank"))?;
        if rank < 0 { Err(refusal("ERR T-Digest: rank needs to be non negative")) } else { Ok(rank) }
    })?;
    let at_once = |digest: &Digest, rank: i64| {
        let (first, beyond) = ends(digest);
        let value = match () {
            _ if digest.nodes().is_empty() => f64::NAN,
            _ if rank == 0 => first,
            _ if rank >= digest.observations() => beyond,
            _ => return None,
        };
        Some(Reply::ServersDouble(value))
    };
    answer(value, &asked, at_once, |query, asked| Reply::ServersDouble(inside(query, asked)))
}

command!(
    TrimmedMean,
    |call| trimmed_mean(call),
    Entry {
        name: "tdigest.trimmed_mean",
        arity: 4,
        categories: "",
        summary: "Estimates the mean of the observations between two quantiles",
        arguments: &[required("low_cut_quantile", Double), required("high_cut_quantile", Double)],
        ..READ
    }
);

/// `TDIGEST.TRIMMED_MEAN key low high`.
fn trimmed_mean<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open::<TDigest>(1, Access::Read);
    let value = existing(&key)?;
    let low = any(call.arg(2), "ERR T-Digest: error parsing low_cut_percentile")?;
    let high = any(call.arg(3), "ERR T-Digest: error parsing high_cut_percentile")?;
    if ![low, high].iter().all(|cut| (0.0..=1.0).contains(cut)) {
        return Err(refusal("ERR T-Digest: low_cut_percentile and high_cut_percentile should be in [0,1]"));
    }
    if low >= high {
        return Err(refusal("ERR T-Digest: low_cut_percentile should be lower than high_cut_percentile"));
    }
    Ok(Reply::ServersDouble(value.compressed()?.query().trimmed_mean(low, high)))
}

command!(
    Min,
    |call| end(call, Digest::min),
    Entry {
        name: "tdigest.min",
        arity: 2,
        summary: "Returns the smallest observation",
        complexity: "O(1)",
        ..READ
    }
);

command!(
    Max,
    |call| end(call, Digest::max),
    Entry { name: "tdigest.max", summary: "Returns the largest observation", ..Min::ENTRY }
);

/// `TDIGEST.MIN key`, `TDIGEST.MAX key`.
fn end<'a, C: Call<'a>>(call: &C, end: impl Fn(&Digest) -> f64) -> Result<Reply, CommandError> {
    let key = call.open::<TDigest>(1, Access::Read);
    let digest = existing(&key)?.seen();
    Ok(Reply::ServersDouble(if digest.nodes().is_empty() { f64::NAN } else { end(digest) }))
}

command!(
    Info,
    |call| info(call),
    Entry {
        name: "tdigest.info",
        summary: "Returns information about a t-digest",
        tips: Entry::PLAIN.tips,
        ..Min::ENTRY
    }
);

/// Bytes in RedisBloom besides the nodes.
const REDISBLOOMS_HEAD: u64 = 80;

/// `TDIGEST.INFO key`.
fn info<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open::<TDigest>(1, Access::Read);
    let digest = existing(&key)?.seen();
    #[allow(clippy::cast_possible_truncation, reason = "it is at most MOST_COMPRESSION")]
    let compression = digest.compression() as i64;
    let unmerged = digest.nodes().len().saturating_sub(digest.merged());
    let capacity = capacity(digest.compression());
    Ok(Reply::Map(vec![
        ("Compression", Reply::Integer(compression)),
        ("Capacity", (capacity as u64).into()),
        ("Merged nodes", (digest.merged() as u64).into()),
        ("Unmerged nodes", (unmerged as u64).into()),
        ("Merged weight", Reply::Integer(digest.merged_weight())),
        ("Unmerged weight", Reply::Integer(digest.unmerged_weight())),
        ("Observations", Reply::Integer(digest.observations())),
        ("Total compressions", Reply::Integer(digest.compressions())),
        ("Memory usage", Digest::bytes_of(capacity).saturating_add(REDISBLOOMS_HEAD).into()),
    ]))
}
