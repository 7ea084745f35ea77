//! BF.EXPORT: returns another system's filter as exactly the bytes that the system itself would write.

use crate::call::{Access, BloomKey, Call};
use crate::error::CommandError;
use crate::options::{Arguments, printable, unsigned, upper};
use crate::reply::Reply;
use crate::table::{ArgumentKind::Integer, Entry, command, option};
use bloomery::filter::Filter;
use bloomery::wire;

/// Maximum number of bytes in a reply.
pub(super) const MOST: u64 = 1 << 20;

command!(
    Export,
    |call| export(call),
    Entry {
        name: "bf.export",
        arity: -2,
        summary: "Returns another system's filter in the format of that system",
        complexity: "O(n), where n is the length of the reply",
        arguments: &[option("offset", "OFFSET", Integer), option("count", "COUNT", Integer)],
        ..Entry::PLAIN
    }
);

/// `BF.EXPORT key [OFFSET offset] [COUNT count]`.
fn export<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let (mut offset, mut count) = (0, None);
    let mut words = Arguments { call, next: 2 };
    while let Some(word) = words.next() {
        match upper(word).as_slice() {
            b"OFFSET" => offset = words.value("OFFSET", "a number of bytes", unsigned)?,
            b"COUNT" => {
                let positive = |value| unsigned(value).filter(|count| (1..=MOST).contains(count));
                count = Some(words.value("COUNT", "a number of bytes from 1 to 1048576", positive)?);
            }
            _ => return Err(CommandError::UnknownOption(printable(word))),
        }
    }
    let key = call.open::<Filter>(1, Access::Read);
    let filter = key.bloom()?.ok_or(CommandError::NotFound)?;
    let filter = filter.foreign().ok_or(CommandError::NotForeign)?;
    let export = wire::Export::new(filter).ok_or(CommandError::ExportedInPieces)?;
    let rest = export.len().saturating_sub(offset);
    // Without a COUNT, only a complete reply is allowed, because a part could be mistaken for the whole.
    if count.is_none() && rest > MOST {
        return Err(CommandError::LongExport { bytes: rest });
    }
    let count = usize::try_from(count.unwrap_or(MOST)).unwrap_or(usize::MAX);
    Ok(Reply::Bulk(export.read(offset, count)))
}
