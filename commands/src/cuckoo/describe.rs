//! Commands that describe a cuckoo filter as a whole: CF.INFO, STATS, DEBUG.

use crate::advice;
use crate::call::{Access, Call, Key};
use crate::error::CommandError;
use crate::reply::{Numbers, Reply, fields};
use crate::table::{Entry, Timing, command};
use bloomery::filter::record::Replies;
use bloomery::filter::{Cuckoo, FilterRef};
use std::ffi::CStr;

command!(
    Info,
    |call| info(call),
    Entry {
        name: "cf.info",
        summary: "Returns information about a cuckoo filter",
        since: "1.0.0",
        timing: Timing::IfLong,
        ..Entry::PLAIN
    }
);

/// `CF.INFO key`.
fn info<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open::<Cuckoo>(1, Access::Read);
    Ok(Reply::Numbers(brief(key.value()?.ok_or(CommandError::NotFound)?)))
}

command!(
    Stats,
    |call| stats(call),
    Entry {
        name: "cf.stats",
        summary: "Returns all that is known about a cuckoo filter, with advice",
        ..Entry::PLAIN
    }
);

/// `CF.STATS key`.
fn stats<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    // There may be many sub-filters.
    call.may_be_long();
    let key = call.open::<Cuckoo>(1, Access::Read);
    let filter = key.value()?.ok_or(CommandError::NotFound)?;
    let mut summary = FilterRef::from(filter).summary(call.now_ms());
    summary.fill_when_full = Some(advice::first_refusal(filter.spec().bucket_size));
    summary.refused = Some(filter.refused());
    let advice = advice::on_cuckoo(call.arg(1), &summary, &filter.spec());
    summary.advice = advice.into_iter().map(|line| call.renamed(line)).collect();
    let mut all = brief(filter).fields();
    let others = fields(&summary, Replies::Cuckoo);
    let others = others.into_iter().filter(|(name, _)| !all.iter().any(|(known, _)| known == name));
    all.extend(Vec::from_iter(others));
    Ok(Reply::Map(all))
}

/// The fields of CF.INFO, which are RedisBloom's.
fn brief(filter: &Cuckoo) -> Numbers {
    const NAMES: [&CStr; 8] = [
        c"Size",
        c"Number of buckets",
        c"Number of filters",
        c"Number of items inserted",
        c"Number of items deleted",
        c"Bucket size",
        c"Expansion rate",
        c"Max iterations",
    ];
    let spec = filter.spec();
    let values = [
        filter.allocated() as u64,
        spec.first_buckets(),
        filter.tables().len() as u64,
        filter.items(),
        filter.deletes(),
        spec.bucket_size.into(),
        spec.expansion.into(),
        spec.max_iterations.into(),
    ];
    Numbers::new(&NAMES, values.map(Some))
}

command!(
    Debug,
    |call| debug(call),
    Entry {
        name: "cf.debug",
        summary: "Returns a line about a cuckoo filter",
        since: "1.0.0",
        ..Entry::PLAIN
    }
);

/// `CF.DEBUG key`: one line, in RedisBloom's format.
fn debug<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open::<Cuckoo>(1, Access::Read);
    let filter = key.value()?.ok_or(CommandError::NotFound)?;
    let spec = filter.spec();
    let line = format!(
        "bktsize:{} buckets:{} items:{} deletes:{} filters:{} max_iterations:{} expansion:{}",
        spec.bucket_size,
        spec.first_buckets(),
        filter.items(),
        filter.deletes(),
        filter.tables().len(),
        spec.max_iterations,
        spec.expansion,
    );
    Ok(Reply::Bulk(line.into_bytes()))
}
