//! The family of Bloom filters: BF.*.
//!
//! | file | commands |
//! | --- | --- |
//! | `add` | BF.ADD, ADDNX, MADD, INSERT, BULKADD |
//! | `test` | BF.EXISTS, MEXISTS, TEST, BULKTEST, COUNT |
//! | `delete` | BF.DEL, MDEL |
//! | `window` | BF.ROTATE, AGE |
//! | `lifecycle` | BF.RESERVE, CLEAR |
//! | `algebra` | BF.MERGE, INTERSECT, EQUAL |
//! | `rebuild` | BF.REBUILD |
//! | `import` | BF.IMPORT, LOAD |
//! | `export` | BF.EXPORT |
//! | `transfer` | BF.SCANDUMP, LOADCHUNK |

mod add;
mod algebra;
mod create;
mod delete;
mod export;
mod generations;
mod grow;
mod import;
mod lifecycle;
pub(super) mod reach;
mod rebuild;
mod shadow;
mod stored;
mod test;
mod transfer;
mod window;

use super::describe;
use super::table::ForEach;
use bloomery::filter::Filter;

/// What the family consists of.
pub(super) fn each(work: &mut impl ForEach) {
    work.family(c"bloom");
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
    work.command::<describe::Feedback>();
    work.command::<add::Bulkadd>();
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
