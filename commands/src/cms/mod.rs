//! The family of count-min sketches: CMS.*. A sketch counts items in a fixed amount of memory, and never too low
//! (Cormode, Muthukrishnan, "An Improved Data Stream Summary: The Count-Min Sketch and its Applications", 2005).

mod commands;
mod merge;
mod sketch;
mod stored;

use super::table::{Family, ForEach};
pub(super) use commands::{INCREMENTS, replicate_until};

/// What the family consists of.
pub(super) fn each(work: &mut impl ForEach) {
    work.family(&Family { name: "cms", category: c"cms", has_own_type: false });
    work.data_type::<stored::RedisBloom>();
    work.command::<commands::Initbydim>();
    work.command::<commands::Initbyprob>();
    work.command::<commands::Incrby>();
    work.command::<commands::Query>();
    work.command::<merge::Merge>();
    work.command::<commands::Info>();
}
