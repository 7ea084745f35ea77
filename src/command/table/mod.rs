//! The table of commands: what the server is told about each command for COMMAND DOCS, ACLs, cluster routing and arity
//! checks.

mod all;
mod bloom;
mod cuckoo;

pub use all::TABLE;

use ArgumentKind::{PureToken, Text};

/// Defines the commands, and `for_each_command!(then)`, which passes all commands to the macro `then`.
macro_rules! commands {
    ($($command:ident)*) => {
        /// The commands.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "they are the commands' names")]
        pub enum Command { $($command),* }

        #[cfg(feature = "module")]
        macro_rules! for_each_command {
            ($then:ident) => { $then!($($command)*) };
        }
        #[cfg(feature = "module")]
        pub(crate) use for_each_command;
    };
}

commands! {
    Reserve Insert Add Madd Addnx Exists Mexists Test Del Mdel Count Rotate Age Clear Card
    Info Stats Debug Feedback Bulkadd Bulktest Merge Intersect Equal Scandump Loadchunk Import Export Load
    Rebuild CfReserve CfAdd CfAddnx CfInsert CfInsertnx CfExists CfMexists CfDel CfCount CfCompact
    CfInfo CfStats CfDebug CfScandump CfLoadchunk
}

/// Which filters a command is for. This is the first part of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// Bloom filters, `bf.`
    Bloom,
    /// Cuckoo filters, `cf.`
    Cuckoo,
}

/// What a command does to its key. This decides which key permissions (`%R~`, `%W~`) it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// Only reads.
    Read,
    /// Adds, without changing or deleting what is there.
    Insert,
    /// Changes what is there, or the time at which it is dropped.
    Update,
    /// Replaces what is there.
    Overwrite,
    /// Deletes items.
    Delete,
}

/// Everything the server is told about one command.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The command.
    pub command: Command,
    /// The first part of the command's name.
    pub namespace: Namespace,
    /// The rest of the command's name, in lower case as in RedisBloom's arity errors.
    pub verb: &'static str,
    /// Number of arguments, including the name; negative for a minimum.
    pub arity: i32,
    /// What the command does to its key.
    pub key: KeyUse,
    /// Flags in the server's command table.
    pub flags: &'static str,
    /// ACL categories.
    pub categories: &'static str,
    /// One line for COMMAND DOCS.
    pub summary: &'static str,
    /// Complexity for COMMAND DOCS.
    pub complexity: &'static str,
    /// First version with the command: RedisBloom's version for its commands, Bloomery's for our own.
    pub since: &'static str,
    /// Arguments after the key.
    pub arguments: &'static [Argument],
    /// Keys after the first.
    pub more_keys: &'static [MoreKeys],
}

/// Keys after the first. The command only reads them.
#[derive(Debug)]
pub enum MoreKeys {
    /// All arguments after the first key.
    Rest,
    /// All arguments after the first key, unless they are [blobs](has_blobs).
    RestUnlessBlobs,
    /// Keys that follow a word.
    Behind {
        /// The word.
        word: &'static std::ffi::CStr,
        /// Index of the first argument that may be the word.
        from: u8,
        /// Whether the word is recognised only as argument `from`. A later argument may be a key of that name.
        only: bool,
        /// Number of keys.
        count: u8,
    },
}

/// The word after the key that says that the remaining arguments are filters themselves, not keys.
pub const BLOBS: &str = "BLOB";

/// Whether a command with `argc` arguments has the word [`BLOBS`] after its key. `second` is the argument after the
/// key. If it is the last argument, it is always the name of a key.
pub fn has_blobs(argc: usize, second: &[u8]) -> bool {
    argc > 3 && second.eq_ignore_ascii_case(BLOBS.as_bytes())
}

/// An argument, as COMMAND DOCS describes it.
#[derive(Debug)]
pub struct Argument {
    /// Its name.
    pub name: &'static str,
    /// The word before the argument, or the argument itself if it is just a word.
    pub token: Option<&'static str>,
    /// Its type.
    pub kind: ArgumentKind,
    /// Whether it is optional.
    pub optional: bool,
    /// Whether it may be repeated.
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

impl Entry {
    /// The full name of the command in a module with this prefix. With the prefix `bf`, commands have RedisBloom's
    /// names: `bf.add` and `cf.add`. Any other prefix gives `prefix.add` and `prefix.cf.add`.
    pub fn name(&self, prefix: &str) -> String {
        match self.namespace {
            Namespace::Bloom => format!("{prefix}.{}", self.verb),
            Namespace::Cuckoo if prefix == "bf" => format!("cf.{}", self.verb),
            Namespace::Cuckoo => format!("{prefix}.cf.{}", self.verb),
        }
    }
}

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
