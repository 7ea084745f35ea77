//! BF.FEEDBACK.

use crate::call::{Access, BloomKey, Call};
use crate::error::CommandError;
use crate::options::{bad, unsigned};
use crate::reply::Reply;
use crate::table::{ArgumentKind::Integer, Entry, Timing, command, required};
use bloomery::filter::Filter;

command!(
    Feedback,
    |call| feedback(call),
    Entry {
        name: "bf.feedback",
        arity: 4,
        summary: "Reports how many positive answers the application checked, and how many of them were wrong",
        arguments: &[required("checked", Integer), required("false", Integer)],
        timing: Timing::Never,
        ..Entry::PLAIN
    }
);

/// `BF.FEEDBACK key checked false`: records that of `checked` "yes" answers, `false` were wrong.
fn feedback<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let expected = "the number of answers \"yes\" that were checked";
    let checked = unsigned(call.arg(2)).ok_or(bad("checked", expected))?;
    let expected = "the number of those that were false, at most the number checked";
    let wrong = unsigned(call.arg(3)).filter(|wrong| *wrong <= checked).ok_or(bad("false", expected))?;
    let key = call.open::<Filter>(1, Access::Read);
    key.bloom()?.ok_or(CommandError::NotFound)?.usage().report(call.now_ms(), checked, wrong);
    Ok(Reply::Ok)
}
