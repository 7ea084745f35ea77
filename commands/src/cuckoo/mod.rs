//! The family of cuckoo filters: CF.*.

mod commands;
mod describe;
mod grow;
mod stored;
mod transfer;

use super::table::{Family, ForEach};
use bloomery::filter::Cuckoo;

/// What the family consists of.
pub(super) fn each(work: &mut impl ForEach) {
    work.family(&Family { name: "cf", category: c"cuckoo", has_own_type: true });
    work.data_type::<stored::Native>();
    work.data_type::<stored::RedisBloom>();
    work.chunked::<Cuckoo>();
    work.command::<commands::Reserve>();
    work.command::<commands::Add>();
    work.command::<commands::Addnx>();
    work.command::<commands::Insert>();
    work.command::<commands::Insertnx>();
    work.command::<commands::Exists>();
    work.command::<commands::Mexists>();
    work.command::<commands::Del>();
    work.command::<commands::Count>();
    work.command::<commands::Compact>();
    work.command::<describe::Info>();
    work.command::<describe::Stats>();
    work.command::<describe::Debug>();
    work.command::<transfer::Scandump>();
    work.command::<transfer::Loadchunk>();
}
