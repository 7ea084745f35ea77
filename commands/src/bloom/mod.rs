//! The family of Bloom filters: BF.*.

mod add;
mod algebra;
mod bulk_add;
mod create;
mod delete;
mod describe;
mod export;
mod feedback;
mod generations;
mod grow;
mod import;
mod lifecycle;
mod merge_blobs;
pub(super) mod reach;
mod rebuild;
mod shadow;
mod stored;
mod test;
mod transfer;
mod unite;
mod valkey_bloom;
mod window;

use super::table::{Family, ForEach};
use bloomery::filter::Filter;

/// What the family consists of.
pub(super) fn each(work: &mut impl ForEach) {
    work.family(&Family { name: "bf", category: c"bloom", has_own_type: true });
    work.data_type::<stored::Native>();
    work.data_type::<stored::RedisBloom>();
    work.data_type::<stored::ValkeyBloom>();
    work.chunked::<Filter>();
    work.command::<lifecycle::Reserve>();
    work.command::<add::Add>();
    work.command::<add::Madd>();
    work.command::<add::Addnx>();
    work.command::<add::Insert>();
    work.command::<test::Exists>();
    work.command::<test::Mexists>();
    work.command::<test::Test>();
    work.command::<delete::Del>();
    work.command::<delete::Mdel>();
    work.command::<test::Count>();
    work.command::<window::Rotate>();
    work.command::<window::Age>();
    work.command::<lifecycle::Clear>();
    work.command::<describe::Card>();
    work.command::<describe::Info>();
    work.command::<describe::Stats>();
    work.command::<describe::Debug>();
    work.command::<feedback::Feedback>();
    work.command::<bulk_add::Bulkadd>();
    work.command::<test::Bulktest>();
    work.command::<algebra::Merge>();
    work.command::<algebra::Intersect>();
    work.command::<algebra::Equal>();
    work.command::<transfer::Scandump>();
    work.command::<transfer::Loadchunk>();
    work.command::<import::Import>();
    work.command::<export::Export>();
    work.command::<import::Load>();
    work.command::<rebuild::Rebuild>();
}
