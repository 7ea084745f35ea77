//! BF.SCANDUMP and LOADCHUNK; see [`crate::transfer`].

use crate::table::command;
use crate::transfer::{load_chunk, load_chunk_entry, scan_dump, scan_dump_entry};
use bloomery::filter::Filter;

command!(
    Scandump,
    |call| scan_dump::<Filter, C>(call),
    scan_dump_entry("bf.scandump", "Begins or continues to save a Bloom filter in pieces"),
);

command!(
    Loadchunk,
    |call| load_chunk::<Filter, C>(call),
    load_chunk_entry("bf.loadchunk", "Begins or continues to restore a Bloom filter from pieces"),
);
