//! BF.SCANDUMP and LOADCHUNK; see [`crate::transfer`].

use crate::table::ArgumentKind::{Integer, Text};
use crate::table::{Entry, KeyUse, Timing, command, required};
use crate::transfer::{load_chunk, scan_dump};
use bloomery::filter::Filter;

command!(
    Scandump,
    |call| scan_dump::<Filter, C>(call),
    Entry {
        name: "bf.scandump",
        arity: 3,
        key: KeyUse::Read,
        summary: "Begins or continues to save a Bloom filter in pieces",
        complexity: "O(n), where n is the length of the piece",
        since: "1.0.0",
        arguments: &[required("iterator", Integer)],
        timing: Timing::IfLong,
        ..Entry::PLAIN
    }
);

command!(
    Loadchunk,
    |call| load_chunk::<Filter, C>(call),
    Entry {
        name: "bf.loadchunk",
        arity: 4,
        key: KeyUse::Insert,
        // No deny-oom: the end of a load frees memory. For other pieces, the command checks the limit itself.
        summary: "Begins or continues to restore a Bloom filter from pieces",
        complexity: "O(n), where n is the length of the piece",
        since: "1.0.0",
        arguments: &[required("iterator", Integer), required("data", Text)],
        ..Entry::PLAIN
    }
);
