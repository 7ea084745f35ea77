//! The commands: arguments in, reply and effects out. There are no server types here, so every rule can be tested
//! without a server.
//!
//! A command sees the server through [`Call`]: its arguments, the keys it may open, the clock and the configuration.
//! Besides replying, it can replicate what it did, send a keyspace event, and have memory freed on another thread.
//!
//! | file | commands |
//! | --- | --- |
//! | `add` | BF.ADD, ADDNX, MADD, INSERT, BULKADD |
//! | `test` | BF.EXISTS, MEXISTS, TEST, BULKTEST, COUNT |
//! | `delete` | BF.DEL, MDEL |
//! | `window` | BF.ROTATE, AGE |
//! | `lifecycle` | BF.RESERVE, CLEAR |
//! | `describe` | BF.CARD, INFO, STATS, DEBUG, FEEDBACK; CF.INFO, STATS, DEBUG |
//! | `algebra` | BF.MERGE, INTERSECT, EQUAL |
//! | `rebuild` | BF.REBUILD |
//! | `import` | BF.IMPORT, LOAD |
//! | `export` | BF.EXPORT |
//! | `cuckoo` | CF.RESERVE, ADD, ADDNX, INSERT, INSERTNX, EXISTS, MEXISTS, DEL, COUNT, COMPACT |
//! | `transfer` | BF.SCANDUMP, LOADCHUNK; CF.SCANDUMP, LOADCHUNK |
//!
//! The commands share `write` (limits, creating, catching up, growing), `blob` (many items in one string), `options`,
//! `uploads` (filters that arrive in chunks), `pieces` (commands with many items), and `reach` (how far a
//! filter can grow).

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation
)]

mod add;
mod algebra;
mod blob;
mod call;
mod cuckoo;
mod delete;
mod describe;
mod error;
mod export;
mod import;
mod lifecycle;
mod options;
mod pieces;
mod reach;
mod rebuild;
mod reply;
pub mod table;
mod test;
mod transfer;
mod uploads;
mod window;
mod write;

pub use call::{Access, Background, Call, Continuation, Data, Effect, Key, TwoStep, WrongType};
pub use error::CommandError;
pub use pieces::{Pieces, Progress};
pub use reply::{Answer, Answers, Reply};
pub use table::{Command, Namespace, TABLE};
pub use transfer::{each_piece, put_sent};
pub use uploads::{ABANDONED, END, Ended, MAX_UPLOADS, Uploads, upload_command};

use write::Mode;

/// Runs a command.
///
/// # Errors
/// If the command is refused. A refused command leaves its keys unchanged, except for rotations that were due and items
/// that were added before the refused one; see [`CommandError::Stopped`].
#[inline(always)]
pub fn run<'a, C: Call<'a>>(command: Command, call: &C) -> Result<Reply, CommandError> {
    match command {
        Command::Reserve => lifecycle::reserve(call),
        Command::Insert => add::insert(call),
        Command::Rotate => window::rotate(call),
        Command::Clear => lifecycle::clear(call),
        Command::Add => add::add(call, Mode::Add),
        Command::Madd => add::add_many(call),
        Command::Addnx => add::add(call, Mode::AddIfAbsent),
        Command::Exists | Command::Test => test::test(call),
        Command::Mexists => test::test_many(call),
        Command::Del => delete::delete(call),
        Command::Mdel => delete::delete_many(call),
        Command::Count => test::count(call),
        Command::Age => window::age(call),
        Command::Card => describe::card(call),
        Command::Info => describe::info(call),
        Command::Stats => describe::stats(call),
        Command::Debug => describe::debug(call),
        Command::Feedback => describe::feedback(call),
        Command::Scandump => transfer::scan_dump(call, Namespace::Bloom),
        Command::Loadchunk => transfer::load_chunk(call, Namespace::Bloom),
        Command::Bulkadd => add::add_bulk(call),
        Command::Bulktest => test::test_bulk(call),
        Command::Merge => algebra::merge(call),
        Command::Intersect => algebra::intersect(call),
        Command::Equal => algebra::equal(call),
        Command::Import => import::import(call),
        Command::Export => export::export(call),
        Command::Load => import::load(call),
        Command::Rebuild => rebuild::rebuild(call),
        Command::CfReserve => cuckoo::reserve(call),
        Command::CfAdd => cuckoo::add(call, Mode::Add),
        Command::CfAddnx => cuckoo::add(call, Mode::AddIfAbsent),
        Command::CfInsert => cuckoo::insert(call, Mode::Add),
        Command::CfInsertnx => cuckoo::insert(call, Mode::AddIfAbsent),
        Command::CfExists => cuckoo::test(call),
        Command::CfMexists => cuckoo::test_many(call),
        Command::CfDel => cuckoo::delete(call),
        Command::CfCount => cuckoo::count(call),
        Command::CfCompact => cuckoo::compact(call),
        Command::CfInfo => describe::cuckoo::info(call),
        Command::CfStats => describe::cuckoo::stats(call),
        Command::CfDebug => describe::cuckoo::debug(call),
        Command::CfScandump => transfer::scan_dump(call, Namespace::Cuckoo),
        Command::CfLoadchunk => transfer::load_chunk(call, Namespace::Cuckoo),
    }
}
