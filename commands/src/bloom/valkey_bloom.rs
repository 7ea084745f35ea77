//! The fields of BF.INFO that valkey-bloom has and RedisBloom doesn't. As in valkey-bloom, the reply is only the value.

use super::reach;
use crate::call::Call;
use crate::error::CommandError;
use crate::reply::Reply;
use bloomery::filter::LiveRef;
use bloomery::params::Family;

/// The value of the field that `word` names.
pub(super) fn field<'a, C: Call<'a>>(
    call: &C,
    word: &[u8],
    live: LiveRef<'_>,
) -> Result<Reply, CommandError> {
    // The reply for a field that only growing filters have.
    let of_scaling = |value: &dyn Fn() -> Reply| match live.expansion() {
        Some(_) => Ok(value()),
        None => Err(CommandError::ValkeyBloom("ERR invalid information value")),
    };
    let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let double = |number: Option<f64>| number.map_or(Reply::Null, Reply::Double);
    if is("ERROR") {
        let rate = match live {
            LiveRef::Bloom(filter) => Some(filter.spec().error_rate),
            LiveRef::Foreign(filter) => filter.error_rate(),
        };
        return Ok(double(rate));
    }
    if is("TIGHTENING") {
        return of_scaling(&|| {
            double(match live {
                LiveRef::Foreign(filter) => filter.tightening(),
                LiveRef::Bloom(filter) => match filter.spec().family {
                    Family::Scaling { tightening, .. } => tightening.ratio(),
                    _ => None,
                },
            })
        });
    }
    if is("MAXSCALEDCAPACITY") {
        return of_scaling(&|| reach::most(call, live).into());
    }
    Err(CommandError::BadInfoField)
}
