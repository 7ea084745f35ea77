//! CF.SCANDUMP and LOADCHUNK; see [`crate::transfer`].

use crate::table::ArgumentKind::{Integer, Text};
use crate::table::{Entry, KeyUse, Timing, command, cuckoo::O_PIECE, required};
use crate::transfer::{load_chunk, scan_dump};
use bloomery::filter::Cuckoo;

command!(
    Scandump,
    |call| scan_dump::<Cuckoo, C>(call),
    Entry {
        name: "cf.scandump",
        arity: 3,
        key: KeyUse::Read,
        summary: "Begins or continues to save a cuckoo filter in pieces",
        complexity: O_PIECE,
        since: "1.0.0",
        arguments: &[required("iterator", Integer)],
        timing: Timing::IfLong,
        ..Entry::PLAIN
    }
);

command!(
    Loadchunk,
    |call| load_chunk::<Cuckoo, C>(call),
    Entry {
        name: "cf.loadchunk",
        arity: 4,
        key: KeyUse::Insert,
        // No deny-oom: the end of a load frees memory. For other pieces, the command checks the limit itself.
        summary: "Begins or continues to restore a cuckoo filter from pieces",
        complexity: O_PIECE,
        since: "1.0.0",
        arguments: &[required("iterator", Integer), required("data", Text)],
        ..Entry::PLAIN
    }
);
