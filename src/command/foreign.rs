//! What BF.* do with other systems' filters: they test and add as the original did. The road is the readable one, since
//! each system hashes in its own way; a filter of our own is faster.

use super::error::CommandError;
use super::info::{estimate, general, lines};
use super::items::{Adds, Mode, added_one, yes};
use super::reply::{Answers, Reply};
use super::{Call, Key, advice, feedback};
use crate::error::Error;
use crate::filter::foreign::redisbloom::{FORCE_64, NO_SCALING};
use crate::filter::foreign::{Encoding, Growth};
use crate::filter::{Added, Foreign};

/// Argument of the first item, in all commands but INSERT.
const FIRST_ITEM: usize = 2;

/// `BF.EXISTS key item`, `BF.TEST key item`.
pub(super) fn test<'a, C: Call<'a>>(call: &C, filter: &Foreign) -> Reply {
    let found = filter.contains(call.arg(FIRST_ITEM));
    filter.usage().answered(found);
    Reply::Bool(found)
}

/// `BF.MEXISTS key item…`, `BF.MTEST key item…`.
pub(super) fn test_many<'a, C: Call<'a>>(call: &C, filter: &Foreign) -> Reply {
    let answers = (FIRST_ITEM..call.argc()).map(|index| {
        let found = filter.contains(call.arg(index));
        filter.usage().answered(found);
        yes(found)
    });
    Reply::Answers(Answers { answers: answers.collect(), error: None })
}

/// `BF.ADD key item`, `BF.ADDNX key item`: they are the same here, because no original counts an item twice.
#[cold]
pub(super) fn add<'a, C: Call<'a>>(call: &C, key: &mut C::Key, mode: Mode) -> Result<Reply, CommandError> {
    let filter = key.foreign_mut().ok_or(CommandError::NotFound)?;
    let done = add_item(call, filter, call.arg(FIRST_ITEM))?;
    filter.usage().added(1);
    Ok(added_one(call, mode, done))
}

/// Adds the arguments from `first` on, as `items::add_items` does.
#[cold]
pub(super) fn add_items<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key,
    first: usize,
) -> Result<Reply, CommandError> {
    let filter = key.foreign_mut().ok_or(CommandError::NotFound)?;
    let mut adds = Adds::new(call, first);
    let _ = (first..call.argc()).try_for_each(|index| adds.note(add_item(call, filter, call.arg(index))));
    filter.usage().added(adds.accepted());
    Ok(adds.finish(call))
}

/// Adds one item, opening a link within the limits of memory.
pub(super) fn add_item<'a, C: Call<'a>>(
    call: &C,
    filter: &mut Foreign,
    item: &[u8],
) -> Result<Added, CommandError> {
    match filter.add_without_growth(item) {
        Err(Error::Full) => {}
        Err(Error::Foreign("item")) => return Err(CommandError::BadItem(takes(filter.encoding()))),
        result => return Ok(result?),
    }
    let grown = (|| {
        let Some(link) = filter.next_link()? else { return Err(CommandError::Full) };
        if !call.obeys() {
            call.admit(filter.bytes().saturating_add(link.bytes), link.bytes)?;
        }
        filter.grow()?;
        Ok(())
    })();
    match grown {
        Ok(()) => Ok(filter.add_without_growth(item)?),
        Err(CommandError::Full) => Err(CommandError::Full),
        Err(why) => Err(CommandError::CannotGrow(Box::new(why))),
    }
}

fn takes(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Bytes => "bytes",
        Encoding::Utf16 | Encoding::Json | Encoding::Kryo5 => "text in UTF-8",
        Encoding::Long => "integers of 64 bits",
        Encoding::Int => "integers of 32 bits",
    }
}

/// The value of BF.INFO's field of this word.
pub(super) fn field(filter: &Foreign, word: &str) -> Reply {
    match word {
        "CAPACITY" => filter.capacity().into(),
        "SIZE" => (filter.allocated() as u64).into(),
        "FILTERS" => (filter.links().len() as u64).into(),
        "ITEMS" => filter.items().into(),
        _ => expansion(filter).map_or(Reply::Null, |expansion| u64::from(expansion).into()),
    }
}

pub(super) fn expansion(filter: &Foreign) -> Option<u32> {
    match filter.growth() {
        Growth::RedisBloom { options, growth } if options & NO_SCALING == 0 => Some(growth),
        Growth::ValkeyBloom { expansion, .. } if expansion > 0 => Some(expansion),
        _ => None,
    }
}

/// BF.INFO FULL.
pub(super) fn full<'a, C: Call<'a>>(call: &C, filter: &Foreign, memory: u64) -> Vec<(&'static str, Reply)> {
    let encoding = Encoding::ALL.iter().find(|(_, known)| *known == filter.encoding());
    let kind = if expansion(filter).is_some() { "scaling" } else { "fixed" };
    let links = filter.links().iter().map(|link| {
        let spec = link.spec();
        Reply::Map(vec![
            ("Capacity", spec.capacity.into()),
            ("Number of items inserted", link.items().into()),
            ("Error rate", estimate(spec.error_rate)),
            ("Error rate now", estimate(link.rate_now())),
            ("Cells", spec.modulus.into()),
            ("Probes", u64::from(spec.probes).into()),
            ("Fill", estimate(link.fill())),
        ])
    });
    let mut fields = vec![
        ("Kind", Reply::from(kind)),
        ("Origin", Reply::from(filter.origin())),
        ("Items are", encoding.map_or(Reply::Null, |(name, _)| Reply::from(*name))),
        ("Error rate", filter.error_rate().map_or(Reply::Null, estimate)),
        ("Error rate now", estimate(filter.rate_now())),
        ("Capacity", filter.capacity().into()),
        ("Number of items inserted", filter.items().into()),
        ("Approximate number of items", filter.estimate().into()),
        ("Number of filters", (filter.links().len() as u64).into()),
        ("Cells", filter.cells().into()),
        ("Cells set", filter.ones().into()),
        ("Fill", estimate(filter.fill())),
        ("Size", (filter.allocated() as u64).into()),
        ("Memory", memory.into()),
        ("Expansion rate", expansion(filter).map_or(Reply::Null, |expansion| u64::from(expansion).into())),
    ];
    fields.extend(feedback::fields(filter.usage(), call.now_ms()));
    fields.push(("Advice", lines(advice::on_foreign(filter, call.now_ms()))));
    fields.push(("Layers", Reply::Array(links.collect())));
    fields
}

/// `BF.DEBUG key`: RedisBloom's lines.
pub(super) fn debug(filter: &Foreign) -> Reply {
    let width = match filter.growth() {
        Growth::RedisBloom { options, .. } if options & FORCE_64 == 0 => 32,
        _ => 64,
    };
    let mut lines = vec![Reply::Bulk(format!("size:{}", filter.items()).into_bytes())];
    for link in filter.links() {
        let spec = link.spec();
        let line = format!(
            "bytes:{} bits:{} hashes:{} hashwidth:{width} capacity:{} size:{} ratio:{}",
            spec.bytes,
            spec.bits,
            spec.probes,
            spec.capacity,
            link.items(),
            general(spec.error_rate),
        );
        lines.push(Reply::Bulk(line.into_bytes()));
    }
    Reply::Array(lines)
}
