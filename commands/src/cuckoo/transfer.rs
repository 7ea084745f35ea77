//! CF.SCANDUMP and LOADCHUNK; see [`crate::transfer`].

use crate::table::command;
use crate::transfer::{load_chunk, load_chunk_entry, scan_dump, scan_dump_entry};
use bloomery::filter::Cuckoo;

command!(
    Scandump,
    |call| scan_dump::<Cuckoo, C>(call),
    scan_dump_entry("cf.scandump", "Begins or continues to save a cuckoo filter in pieces"),
);

command!(
    Loadchunk,
    |call| load_chunk::<Cuckoo, C>(call),
    load_chunk_entry("cf.loadchunk", "Begins or continues to restore a cuckoo filter from pieces"),
);
