//! BF.*: commands on Bloom filters.

use super::ArgumentKind::{Block, Double, Integer, Key, Layouts, OneOf, Options, Text};
use super::{Argument, BLOBS, option, optional, required, word};
use bloomery::options::{self, BLOOM, SIZE, TIGHTENING};

pub(crate) const RESERVE: &[Argument] = &[
    required("error_rate", Double),
    required("capacity", Integer),
    required("option", Options(BLOOM)),
    option("other", "LIKE", Key),
    Argument {
        name: "foreign",
        token: None,
        kind: Block(&[
            Argument {
                optional: false,
                ..option(
                    "scheme",
                    "SCHEME",
                    OneOf(&[
                        word("sbbf", "SBBF"),
                        word("bloomv3", "BLOOMV3"),
                        word("guava", "GUAVA"),
                        word("redisson", "REDISSON"),
                        word("gozero", "GOZERO"),
                    ]),
                )
            },
            option("type", "TYPE", Text),
            option("funnel", "FUNNEL", Text),
            option("codec", "CODEC", Text),
        ]),
        optional: true,
        multiple: false,
    },
];

pub(crate) const AGE: &[Argument] = &[required("item", Text), optional(word("ms", "MS"))];

pub(crate) const INSERT: &[Argument] = &[
    required("option", Options(options::INSERT)),
    required("option", Options(&[TIGHTENING])),
    option("seed", "SEED", Text),
    option("capacity", "VALIDATESCALETO", Integer),
    Argument { name: "item", token: Some("ITEMS"), kind: Text, optional: false, multiple: true },
];

pub(crate) const INFO: &[Argument] = &[Argument {
    name: "single_value",
    token: None,
    kind: OneOf(&[
        word("capacity", "CAPACITY"),
        word("size", "SIZE"),
        word("filters", "FILTERS"),
        word("items", "ITEMS"),
        word("expansion", "EXPANSION"),
        word("error", "ERROR"),
        word("tightening", "TIGHTENING"),
        word("maxscaledcapacity", "MAXSCALEDCAPACITY"),
    ]),
    optional: true,
    multiple: false,
}];

pub(crate) const IMPORT: &[Argument] = &[required(
    "format",
    OneOf(&[
        Argument {
            name: "gozero",
            token: None,
            kind: Block(&[
                Argument { optional: false, ..option("source", "GOZERO", Key) },
                Argument { optional: false, ..option("bits", "BITS", Integer) },
                option("hashes", "MAPS", Integer),
                option("bitmap", "DATA", Text),
            ]),
            optional: false,
            multiple: false,
        },
        Argument {
            name: "redisson",
            token: None,
            kind: Block(&[
                Argument { optional: false, ..option("source", "REDISSON", Key) },
                required("config", Key),
                option(
                    "codec",
                    "CODEC",
                    OneOf(&[word("string", "STRING"), word("json", "JSON"), word("kryo5", "KRYO5")]),
                ),
                option(
                    "data",
                    "DATA",
                    Block(&[
                        required("size", Integer),
                        required("iterations", Integer),
                        required("bitmap", Text),
                    ]),
                ),
            ]),
            optional: false,
            multiple: false,
        },
        Argument { optional: false, ..option("data", "BLOOMV3", Text) },
        Argument {
            name: "guava",
            token: None,
            kind: Block(&[
                Argument { optional: false, ..option("data", "GUAVA", Text) },
                option(
                    "funnel",
                    "FUNNEL",
                    OneOf(&[
                        word("bytes", "BYTES"),
                        word("utf16", "UTF16"),
                        word("long", "LONG"),
                        word("int", "INT"),
                    ]),
                ),
            ]),
            optional: false,
            multiple: false,
        },
        Argument {
            name: "sbbf",
            token: None,
            kind: Block(&[
                Argument { optional: false, ..option("data", "SBBF", Text) },
                option(
                    "type",
                    "TYPE",
                    OneOf(&[word("bytes", "BYTES"), word("long", "LONG"), word("int", "INT")]),
                ),
            ]),
            optional: false,
            multiple: false,
        },
    ]),
)];

pub(crate) const REBUILD: &[Argument] = &[
    Argument {
        name: "begin",
        token: None,
        kind: Block(&[
            word("begin", "BEGIN"),
            required("option", Options(SIZE)),
            option("layout", "LAYOUT", Layouts),
            Argument { multiple: true, ..optional(required("option", Text)) },
        ]),
        optional: false,
        multiple: false,
    },
    Argument { name: "item", token: Some("ADD"), kind: Text, optional: false, multiple: true },
    Argument {
        name: "bulk",
        token: None,
        kind: Block(&[word("addbulk", "ADDBULK"), BLOB]),
        optional: false,
        multiple: false,
    },
    word("commit", "COMMIT"),
    word("abort", "ABORT"),
    word("status", "STATUS"),
];

/// Many items in one string.
pub(crate) const BLOB: Argument = required(
    "items",
    OneOf(&[
        Argument {
            name: "fixed",
            token: None,
            kind: Block(&[
                Argument { optional: false, ..option("width", "FIXED", Integer) },
                required("blob", Text),
            ]),
            optional: false,
            multiple: false,
        },
        Argument { optional: false, ..option("blob", "PREFIXED", Text) },
    ]),
);

/// The keys of other filters.
pub(crate) const SOURCES: &[Argument] = &[Argument { multiple: true, ..required("source", Key) }];

/// The keys of other filters, or filters as bytes.
pub(crate) const MERGE: &[Argument] = &[required(
    "sources",
    OneOf(&[
        Argument { multiple: true, ..required("source", Key) },
        Argument {
            name: "blobs",
            token: None,
            kind: Block(&[word("blob", BLOBS), Argument { multiple: true, ..required("data", Text) }]),
            optional: false,
            multiple: false,
        },
    ]),
)];

pub(crate) const O_CELLS: &str = "O(n), where n is the number of bytes of all filters named";
pub(crate) const O_K: &str = "O(k), where k is the number of probes of an item";
pub(crate) const O_K_N: &str =
    "O(k * n), where k is the number of probes of an item and n is the number of items";
