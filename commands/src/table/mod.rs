//! The table of commands: what the server is told about each command for COMMAND DOCS, ACLs, cluster routing and arity
//! checks.

pub(super) mod bloom;
pub(super) mod cuckoo;

use super::call::Call;
use super::chunked::Chunked;
use super::error::CommandError;
use super::reply::Reply;
use super::stored::DataType;
use ArgumentKind::{PureToken, Text};
use bloomery::options::OptionRow;
use std::ffi::CStr;

/// A command. Each is a type of its own, so that the server's entry function is compiled separately for each.
pub trait Command: 'static {
    /// What the server is told about the command.
    const ENTRY: Entry;

    /// Runs the command.
    ///
    /// # Errors
    /// If the command is refused. A refused command leaves its keys unchanged, except for rotations that were due and
    /// items that were added before the refused one; see [`CommandError::Stopped`].
    fn run<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError>;
}

/// Declares a command: a type of this name that implements [`Command`], with the function that runs it and its entry.
macro_rules! command {
    ($name:ident, |$call:ident| $run:expr, $entry:expr $(,)?) => {
        pub(crate) struct $name;

        impl $crate::table::Command for $name {
            const ENTRY: $crate::table::Entry = $entry;

            fn run<'a, C: $crate::call::Call<'a>>(
                $call: &C,
            ) -> Result<$crate::reply::Reply, $crate::error::CommandError> {
                $run
            }
        }
    };
}
pub(super) use command;

/// A family of commands.
#[derive(Debug)]
pub struct Family {
    /// What the names of its commands begin with, under the prefix `bf`.
    pub name: &'static str,
    /// Its ACL category.
    pub category: &'static CStr,
    /// Whether its first data type is our own. If not, all its values are RedisBloom's, and the family needs that
    /// type, which another module may have registered.
    pub has_own_type: bool,
}

/// Something that is done for each family, or for what it consists of. A family comes before its parts.
pub trait ForEach {
    /// Does it for a family.
    fn family(&mut self, _family: &'static Family) {}

    /// Does it for a data type.
    fn data_type<D: DataType>(&mut self) {}

    /// Does it for a type of values that SCANDUMP transfers.
    fn chunked<T: Chunked>(&mut self) {}

    /// Does it for a command.
    fn command<T: Command>(&mut self) {}
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

/// When LATENCY is told how long a command took. Reading the clock twice takes about 50 ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// Never: reading the clock would be a large part of the command's time. The server's flag for this is `fast`.
    Never,
    /// If it has many arguments, or once it says that it [may be long](Call::may_be_long).
    IfLong,
    /// Always.
    Always,
}

/// Everything the server is told about one command.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name in lower case, under the prefix `bf`.
    pub name: &'static str,
    /// Number of arguments, including the name; negative for a minimum.
    pub arity: i32,
    /// What the command does to its key.
    pub key: KeyUse,
    /// Flags in the server's command table, besides those that follow from `key` and `timing`.
    pub flags: &'static str,
    /// ACL categories, besides those of the family and of `key`.
    pub categories: &'static str,
    /// One line for COMMAND DOCS.
    pub summary: &'static str,
    /// Complexity for COMMAND DOCS.
    pub complexity: &'static str,
    /// Tips for clients, in the server's words. They concern only commands that read.
    pub tips: &'static str,
    /// First version with the command: RedisBloom's version for its commands, Bloomery's for our own.
    pub since: &'static str,
    /// Arguments after the key.
    pub arguments: &'static [Argument],
    /// Keys after the first.
    pub more_keys: &'static [MoreKeys],
    /// When it is timed.
    pub timing: Timing,
    /// Whether the command runs in pieces if it has many items.
    pub in_pieces: bool,
}

/// Keys after the first. The command only reads them.
#[derive(Debug)]
pub enum MoreKeys {
    /// All arguments after the first key.
    Rest,
    /// All arguments after the first key, unless they are [blobs](has_blobs).
    RestUnlessBlobs,
    /// Keys after their number, which follows the first key.
    Counted,
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
    /// AUTO, or any layout.
    Layouts,
    /// The options of a filter. Each is an argument of its own.
    Options(&'static [OptionRow]),
}

impl Entry {
    /// What most commands have in common.
    pub(super) const PLAIN: Entry = Entry {
        name: "",
        arity: 2,
        key: KeyUse::Read,
        flags: "",
        categories: "",
        summary: "",
        complexity: "O(1)",
        // A reply may change although nobody writes to the key: items leave a window by the clock, and statistics and
        // iterators are a server's own. So no client may cache it.
        tips: "dont_cache",
        since: "0.1.0",
        arguments: &[],
        more_keys: &[],
        timing: Timing::Always,
        in_pieces: false,
    };

    /// The full name of the command in a module with this prefix. With the prefix `bf`, commands have RedisBloom's
    /// names: `bf.add` and `cf.add`. Any other prefix gives `prefix.add` and `prefixcf.add`, because some cluster
    /// clients refuse a name with two dots.
    pub fn name(&self, prefix: &str) -> String {
        match self.name.strip_prefix("bf") {
            _ if prefix == "bf" => self.name.to_owned(),
            name => format!("{prefix}{}", name.unwrap_or(self.name)),
        }
    }

    /// Whether the command writes the key at argument 1. No command writes any other key.
    pub const fn writes(&self) -> bool {
        !matches!(self.key, KeyUse::Read)
    }

    /// All flags in the server's command table, with an `extra` one, which may be empty.
    pub fn all_flags(&self, extra: &str) -> String {
        let access = if self.writes() { "write" } else { "readonly" };
        let fast = if self.timing == Timing::Never { "fast" } else { "" };
        listed(&[access, self.flags, fast, extra])
    }

    /// All ACL categories of the command, which belongs to a family with this category.
    pub fn all_categories(&self, family: &str) -> String {
        let access = if self.writes() { "write" } else { "read" };
        listed(&[access, self.categories, family])
    }
}

/// Words with one space between them: the server refuses a list with an empty word.
fn listed(words: &[&str]) -> String {
    let words: Vec<&str> = words.iter().copied().filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

pub(super) const fn required(name: &'static str, kind: ArgumentKind) -> Argument {
    Argument { name, token: None, kind, optional: false, multiple: false }
}

pub(super) const fn option(name: &'static str, token: &'static str, kind: ArgumentKind) -> Argument {
    Argument { name, token: Some(token), kind, optional: true, multiple: false }
}

pub(super) const fn word(name: &'static str, token: &'static str) -> Argument {
    Argument { name, token: Some(token), kind: PureToken, optional: false, multiple: false }
}

pub(super) const fn optional(argument: Argument) -> Argument {
    Argument { optional: true, ..argument }
}

pub(super) const ITEM: &[Argument] = &[required("item", Text)];
pub(super) const ITEMS: &[Argument] =
    &[Argument { name: "item", token: None, kind: Text, optional: false, multiple: true }];
