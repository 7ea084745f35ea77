//! Computes how far a filter can grow within its memory limits, for valkey-bloom's VALIDATESCALETO and
//! MAXSCALEDCAPACITY.

use crate::call::Call;
use crate::error::CommandError;
use crate::options::bloom::New;
use bloomery::filter::foreign::Growth;
use bloomery::filter::{LiveRef, Step, layers_after};

/// Where growth ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// At the requested capacity.
    Wanted,
    /// At the memory limit.
    Memory,
    /// At an error rate or a number of arrays beyond which the filter can't grow.
    Limit,
}

/// The capacity that a filter reaches with these steps, and why its growth ends there.
fn reach<'a, C: Call<'a>>(
    call: &C,
    (mut capacity, bytes): (u64, u64),
    wanted: u64,
    steps: impl Iterator<Item = Step>,
) -> (u64, End) {
    call.may_be_long();
    let mut more = 0u64;
    for step in steps {
        if capacity >= wanted {
            return (capacity, End::Wanted);
        }
        more = more.saturating_add(step.bytes);
        if call.admit(bytes.saturating_add(more), more).is_err() {
            return (capacity, End::Memory);
        }
        capacity = capacity.saturating_add(step.capacity);
    }
    (capacity, if capacity >= wanted { End::Wanted } else { End::Limit })
}

/// MAXSCALEDCAPACITY: the capacity that the filter can grow to.
pub(crate) fn most<'a, C: Call<'a>>(call: &C, filter: LiveRef<'_>) -> u64 {
    reach(call, (filter.capacity(), filter.bytes()), u64::MAX, filter.outlook()).0
}

/// VALIDATESCALETO: refuses to create a filter that can't grow to this capacity.
pub(crate) fn validate<'a, C: Call<'a>>(call: &C, new: &New, wanted: u64) -> Result<(), CommandError> {
    const MEMORY: CommandError =
        CommandError::ValkeyBloom("ERR provided VALIDATESCALETO causes bloom object to exceed memory limit");
    const ERROR_RATE: CommandError =
        CommandError::ValkeyBloom("ERR provided VALIDATESCALETO causes false positive to degrade to 0");
    let nothing = (0, 0);
    match new {
        New::Bloomery(spec) => {
            // The error rates of our layers have a lower bound, so only the size of the layers can end growth.
            match reach(call, nothing, wanted, layers_after(*spec, Vec::new())).1 {
                End::Wanted => Ok(()),
                End::Memory | End::Limit => Err(MEMORY),
            }
        }
        New::ValkeyBloom(spec) => {
            let first = spec.first_link();
            let work = first.map_or(0, |link| u64::from(link.probes));
            let links = first.into_iter().chain(Growth::valkey_bloom(spec).links_after(first, 1, work));
            match reach(call, nothing, wanted, links.map(Step::from)).1 {
                End::Wanted => Ok(()),
                End::Memory => Err(MEMORY),
                End::Limit => Err(ERROR_RATE),
            }
        }
        // RedisBloom doesn't have VALIDATESCALETO.
        New::RedisBloom(_) => Ok(()),
    }
}
