//! The table of commands: what the server is told about each, for COMMAND DOCS, ACL, cluster routing and arity.

/// The commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are the commands' names")]
pub enum Command {
    Reserve,
    Insert,
    Add,
    Madd,
    Addnx,
    Exists,
    Mexists,
    Test,
    Mtest,
    Del,
    Mdel,
    Count,
    Rotate,
    Age,
    Clear,
    Card,
    Info,
    Debug,
    Scandump,
    Loadchunk,
}

/// What a command does to its key: decides which key permissions (`%R~`, `%W~`) it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// Looks only.
    Read,
    /// Adds without looking at what else is there.
    Insert,
    /// Changes what is there, or when it is dropped.
    Update,
    /// Deletes items.
    Delete,
}

/// Everything the server is told about one command.
#[derive(Debug)]
pub struct Entry {
    /// The command.
    pub command: Command,
    /// Its name behind the prefix, in lower case as in RedisBloom's arity errors.
    pub verb: &'static str,
    /// Number of arguments with the name; negative for a minimum.
    pub arity: i32,
    /// What it does to its key.
    pub key: KeyUse,
    /// Flags of the server's command table.
    pub flags: &'static str,
    /// ACL categories.
    pub categories: &'static str,
    /// One line for COMMAND DOCS.
    pub summary: &'static str,
    /// For COMMAND DOCS.
    pub complexity: &'static str,
    /// RedisBloom's version for its commands, Bloomery's for its own.
    pub since: &'static str,
    /// Arguments behind the key.
    pub arguments: &'static [Argument],
}

/// An argument for COMMAND DOCS.
#[derive(Debug)]
pub struct Argument {
    /// Its name.
    pub name: &'static str,
    /// The word before it, or the word that it is.
    pub token: Option<&'static str>,
    /// Its type.
    pub kind: ArgumentKind,
    /// May be left out.
    pub optional: bool,
    /// May be repeated.
    pub multiple: bool,
}

/// Types of arguments.
#[derive(Debug)]
#[allow(missing_docs, reason = "they are the server's names")]
pub enum ArgumentKind {
    Text,
    Integer,
    Double,
    Key,
    PureToken,
    OneOf(&'static [Argument]),
    Block(&'static [Argument]),
}

use ArgumentKind::{Block, Double, Integer, Key, OneOf, PureToken, Text};

const fn required(name: &'static str, kind: ArgumentKind) -> Argument {
    Argument { name, token: None, kind, optional: false, multiple: false }
}

const fn option(name: &'static str, token: &'static str, kind: ArgumentKind) -> Argument {
    Argument { name, token: Some(token), kind, optional: true, multiple: false }
}

const fn word(name: &'static str, token: &'static str) -> Argument {
    Argument { name, token: Some(token), kind: PureToken, optional: false, multiple: false }
}

const fn optional(argument: Argument) -> Argument {
    Argument { optional: true, ..argument }
}

const ITEM: &[Argument] = &[required("item", Text)];
const ITEMS: &[Argument] =
    &[Argument { name: "item", token: None, kind: Text, optional: false, multiple: true }];

const RESERVE: &[Argument] = &[
    required("error_rate", Double),
    required("capacity", Integer),
    option("expansion", "EXPANSION", Integer),
    optional(word("nonscaling", "NONSCALING")),
    Argument {
        name: "counting",
        token: None,
        kind: Block(&[word("counting", "COUNTING"), optional(required("bits", Integer))]),
        optional: true,
        multiple: false,
    },
    Argument {
        name: "window",
        token: None,
        kind: Block(&[
            Argument { optional: false, ..option("generations", "WINDOW", Integer) },
            option("milliseconds", "EVERY", Integer),
            option("unix_milliseconds", "SINCE", Integer),
        ]),
        optional: true,
        multiple: false,
    },
    option("shards", "SHARDS", Integer),
    option(
        "layout",
        "LAYOUT",
        OneOf(&[word("auto", "AUTO"), word("blocked", "BLOCKED"), word("classic", "CLASSIC")]),
    ),
    option("hash", "HASH", OneOf(&[word("xxh3", "XXH3"), word("siphash", "SIPHASH")])),
    option("seed", "SEED", Text),
    option("tightening", "TIGHTENING", Double),
    option(
        "onfull",
        "ONFULL",
        OneOf(&[word("error", "ERROR"), word("saturate", "SATURATE"), word("scale", "SCALE")]),
    ),
    option("like", "LIKE", Key),
];

const INSERT: &[Argument] = &[
    option("capacity", "CAPACITY", Integer),
    option("error", "ERROR", Double),
    option("expansion", "EXPANSION", Integer),
    optional(word("nocreate", "NOCREATE")),
    optional(word("nonscaling", "NONSCALING")),
    Argument { name: "item", token: Some("ITEMS"), kind: Text, optional: false, multiple: true },
];

const INFO: &[Argument] = &[Argument {
    name: "single_value",
    token: None,
    kind: OneOf(&[
        word("capacity", "CAPACITY"),
        word("size", "SIZE"),
        word("filters", "FILTERS"),
        word("items", "ITEMS"),
        word("expansion", "EXPANSION"),
        word("full", "FULL"),
    ]),
    optional: true,
    multiple: false,
}];

const O_K: &str = "O(k), where k is the number of probes of an item";
const O_K_N: &str = "O(k * n), where k is the number of probes of an item and n is the number of items";

/// All commands.
pub const TABLE: &[Entry] = &[
    Entry {
        command: Command::Reserve,
        verb: "reserve",
        arity: -4,
        key: KeyUse::Insert,
        flags: "write deny-oom",
        categories: "write fast bloom",
        summary: "Creates an empty Bloom filter",
        complexity: "O(1)",
        since: "1.0.0",
        arguments: RESERVE,
    },
    Entry {
        command: Command::Add,
        verb: "add",
        arity: 3,
        key: KeyUse::Insert,
        flags: "write deny-oom fast",
        categories: "write bloom",
        summary: "Adds an item to a Bloom filter, creating it if needed",
        complexity: O_K,
        since: "1.0.0",
        arguments: ITEM,
    },
    Entry {
        command: Command::Madd,
        verb: "madd",
        arity: -3,
        key: KeyUse::Insert,
        flags: "write deny-oom",
        categories: "write bloom",
        summary: "Adds items to a Bloom filter, creating it if needed",
        complexity: O_K_N,
        since: "1.0.0",
        arguments: ITEMS,
    },
    Entry {
        command: Command::Addnx,
        verb: "addnx",
        arity: 3,
        key: KeyUse::Insert,
        flags: "write deny-oom fast",
        categories: "write bloom",
        summary: "Adds an item to a Bloom filter only if it is absent",
        complexity: O_K,
        since: "0.1.0",
        arguments: ITEM,
    },
    Entry {
        command: Command::Insert,
        verb: "insert",
        arity: -4,
        key: KeyUse::Insert,
        flags: "write deny-oom",
        categories: "write bloom",
        summary: "Adds items to a Bloom filter, creating it with the given parameters if needed",
        complexity: O_K_N,
        since: "1.0.0",
        arguments: INSERT,
    },
    Entry {
        command: Command::Exists,
        verb: "exists",
        arity: 3,
        key: KeyUse::Read,
        flags: "readonly fast",
        categories: "read bloom",
        summary: "Tests whether an item may be in a Bloom filter",
        complexity: O_K,
        since: "1.0.0",
        arguments: ITEM,
    },
    Entry {
        command: Command::Mexists,
        verb: "mexists",
        arity: -3,
        key: KeyUse::Read,
        flags: "readonly fast",
        categories: "read bloom",
        summary: "Tests whether items may be in a Bloom filter",
        complexity: O_K_N,
        since: "1.0.0",
        arguments: ITEMS,
    },
    Entry {
        command: Command::Test,
        verb: "test",
        arity: 3,
        key: KeyUse::Read,
        flags: "readonly fast",
        categories: "read bloom",
        summary: "Tests whether an item may be in a Bloom filter",
        complexity: O_K,
        since: "0.1.0",
        arguments: ITEM,
    },
    Entry {
        command: Command::Mtest,
        verb: "mtest",
        arity: -3,
        key: KeyUse::Read,
        flags: "readonly fast",
        categories: "read bloom",
        summary: "Tests whether items may be in a Bloom filter",
        complexity: O_K_N,
        since: "0.1.0",
        arguments: ITEMS,
    },
    Entry {
        command: Command::Del,
        verb: "del",
        arity: 3,
        key: KeyUse::Delete,
        flags: "write fast",
        categories: "write bloom",
        summary: "Deletes one occurrence of an item from a counting filter",
        complexity: O_K,
        since: "0.1.0",
        arguments: ITEM,
    },
    Entry {
        command: Command::Mdel,
        verb: "mdel",
        arity: -3,
        key: KeyUse::Delete,
        flags: "write",
        categories: "write bloom",
        summary: "Deletes one occurrence of each item from a counting filter",
        complexity: O_K_N,
        since: "0.1.0",
        arguments: ITEMS,
    },
    Entry {
        command: Command::Count,
        verb: "count",
        arity: 3,
        key: KeyUse::Read,
        flags: "readonly fast",
        categories: "read bloom",
        summary: "Estimates how often an item was added to a counting filter",
        complexity: O_K,
        since: "0.1.0",
        arguments: ITEM,
    },
    Entry {
        command: Command::Rotate,
        verb: "rotate",
        arity: -2,
        key: KeyUse::Update,
        flags: "write",
        categories: "write bloom",
        summary: "Opens a fresh generation of a window and drops the oldest",
        complexity: "O(1)",
        since: "0.1.0",
        arguments: &[],
    },
    Entry {
        command: Command::Age,
        verb: "age",
        arity: 3,
        key: KeyUse::Read,
        flags: "readonly fast",
        categories: "read bloom",
        summary: "Returns how many generations ago an item was last added to a window",
        complexity: O_K,
        since: "0.1.0",
        arguments: ITEM,
    },
    Entry {
        command: Command::Clear,
        verb: "clear",
        arity: 2,
        key: KeyUse::Delete,
        flags: "write",
        categories: "write bloom",
        summary: "Empties a filter and keeps its parameters",
        complexity: "O(1)",
        since: "0.1.0",
        arguments: &[],
    },
    Entry {
        command: Command::Card,
        verb: "card",
        arity: 2,
        key: KeyUse::Read,
        flags: "readonly fast",
        categories: "read fast bloom",
        summary: "Returns the number of items added to a Bloom filter",
        complexity: "O(1)",
        since: "2.4.4",
        arguments: &[],
    },
    Entry {
        command: Command::Info,
        verb: "info",
        arity: -2,
        key: KeyUse::Read,
        flags: "readonly fast",
        categories: "read fast bloom",
        summary: "Returns information about a Bloom filter",
        complexity: "O(1)",
        since: "1.0.0",
        arguments: INFO,
    },
    Entry {
        command: Command::Debug,
        verb: "debug",
        arity: 2,
        key: KeyUse::Read,
        flags: "readonly fast",
        categories: "read bloom",
        summary: "Returns a line about each layer of a Bloom filter",
        complexity: "O(n), where n is the number of layers",
        since: "1.0.0",
        arguments: &[],
    },
    Entry {
        command: Command::Scandump,
        verb: "scandump",
        arity: 3,
        key: KeyUse::Read,
        flags: "readonly fast",
        categories: "read bloom",
        summary: "Begins or continues to save a Bloom filter in pieces",
        complexity: "O(n), where n is the length of the piece",
        since: "1.0.0",
        arguments: &[required("iterator", Integer)],
    },
    Entry {
        command: Command::Loadchunk,
        verb: "loadchunk",
        arity: 4,
        key: KeyUse::Insert,
        flags: "write deny-oom",
        categories: "write bloom",
        summary: "Begins or continues to restore a Bloom filter from pieces",
        complexity: "O(n), where n is the length of the piece",
        since: "1.0.0",
        arguments: &[required("iterator", Integer), required("data", Text)],
    },
];
