//! CF.SCANDUMP and LOADCHUNK; see [`crate::command::transfer`].

use crate::command::call::Call;
use crate::command::error::CommandError;
use crate::command::reply::Reply;
use crate::command::table::ArgumentKind::{Integer, Text};
use crate::command::table::{Command, Entry, KeyUse, Timing, cuckoo::O_PIECE, required};
use crate::command::transfer::{load_chunk, scan_dump};
use crate::filter::Cuckoo;

/// CF.SCANDUMP.
pub(super) struct Scandump;

impl Command for Scandump {
    const ENTRY: Entry = Entry {
        name: "cf.scandump",
        arity: 3,
        key: KeyUse::Read,
        summary: "Begins or continues to save a cuckoo filter in pieces",
        complexity: O_PIECE,
        since: "1.0.0",
        arguments: &[required("iterator", Integer)],
        timing: Timing::IfLong,
        ..Entry::PLAIN
    };

    fn run<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
        scan_dump::<Cuckoo, C>(call)
    }
}

/// CF.LOADCHUNK.
pub(super) struct Loadchunk;

impl Command for Loadchunk {
    const ENTRY: Entry = Entry {
        name: "cf.loadchunk",
        arity: 4,
        key: KeyUse::Insert,
        // No deny-oom: the end of a load frees memory. For other pieces, the command checks the limit itself.
        summary: "Begins or continues to restore a cuckoo filter from pieces",
        complexity: O_PIECE,
        since: "1.0.0",
        arguments: &[required("iterator", Integer), required("data", Text)],
        ..Entry::PLAIN
    };

    fn run<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
        load_chunk::<Cuckoo, C>(call)
    }
}
