//! BF.FEEDBACK, and what BF.INFO FULL says of how a filter is used.

use super::error::CommandError;
use super::info::estimate;
use super::options::{bad, unsigned};
use super::reply::Reply;
use super::{Access, Call, Key, WrongType};
use crate::filter::Usage;
use crate::filter::usage::Span;

/// `BF.FEEDBACK key checked false`: of `checked` answers "yes", `false` were wrong.
pub(super) fn feedback<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let takes = "the number of answers \"yes\" that were checked";
    let checked = unsigned(call.arg(2)).ok_or(bad("checked", takes))?;
    let takes = "the number of those that were false, at most the number checked";
    let wrong = unsigned(call.arg(3)).filter(|wrong| *wrong <= checked).ok_or(bad("false", takes))?;
    let key = call.open(1, Access::Read);
    let usage = key.value()?.ok_or(CommandError::NotFound)?.usage().ok_or(WrongType)?;
    usage.report(call.now_ms(), checked, wrong);
    Ok(Reply::Ok)
}

/// The fields of BF.INFO FULL.
pub(super) fn fields(usage: &Usage, now_ms: u64) -> [(&'static str, Reply); 5] {
    let tests = usage.tests();
    let spans = [("Minute", Span::Minute), ("Hour", Span::Hour), ("Life", Span::Life)];
    let spans = spans.map(|(name, span)| {
        let observed = usage.observed(now_ms, span);
        let figures = vec![
            ("Checked", observed.checked.into()),
            ("False", observed.wrong.into()),
            ("Share false", observed.share_wrong().map_or(Reply::Null, estimate)),
            ("Observed error rate", observed.error_rate().map_or(Reply::Null, estimate)),
        ];
        (name, Reply::Map(figures))
    });
    [
        ("Tests answered yes", tests.yes.into()),
        ("Tests answered no", tests.no.into()),
        ("Adds", usage.adds().into()),
        ("Deletes", usage.deletes().into()),
        ("Feedback", Reply::Map(spans.into())),
    ]
}
