//! Every refusal that a client can see, and its text. Some variants contain a text, or part of one, that is worded
//! where the command is refused.
//!
//! If RedisBloom refuses the same thing, we use exactly its text, which may or may not begin with `ERR`, because
//! clients match on these strings. Our own texts say what was wrong and what to do.

use crate::metrics::{CREATIONS_REFUSED, Counter, PAYLOADS_REFUSED};
use bloomery::Error;
use bloomery::filter::Refusal;
use bloomery::params::{SIZES, limits};
use bloomery::wire::DecodeError;
use std::fmt;

/// Declares the refusals, each with its text, and the values that stand for `{}` in it.
macro_rules! refusals {
    ($(
        $(#[$about:meta])*
        $name:ident $(($value:ident: $of:ty))? $({ $($(#[$field_about:meta])* $field:ident: $type:ty),* $(,)? })?
            => $text:literal $(, $argument:expr)*;
    )*) => {
        /// Why a command was refused.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "the texts say what they mean")]
        pub enum CommandError {
            $($(#[$about])* $name $(($of))? $({ $($(#[$field_about])* $field: $type),* })?,)*
        }

        impl fmt::Display for CommandError {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(CommandError::$name $(($value))? $({ $($field),* })? => write!(f, $text $(, $argument)*),)*
                }
            }
        }
    };
}

// A `source` is the key of a source in quotes, or its number. A `blob` is the number of a source, from 1.
refusals! {
    Arity => "ERR wrong number of arguments";
    WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value";
    NotNative =>
        "ERR the command needs one of Bloomery's own filters, and this one came from another system. If you have \
        its items, BF.REBUILD key BEGIN converts it";
    NotForeign => "ERR the filter is Bloomery's own, and has no other system's format. Use BF.SCANDUMP or DUMP.";
    ExportedInPieces =>
        "ERR the filter is RedisBloom's, which loads filters with BF.LOADCHUNK and RESTORE. Use BF.SCANDUMP or \
        DUMP.";
    /// The reply of BF.EXPORT would be too long.
    LongExport { bytes: u64 } =>
        "ERR the filter has {bytes} bytes, and a reply has at most 1048576. Read it in pieces, with OFFSET and \
        COUNT.";
    TooLargeForScheme => "ERR the other system has no filters of that size. Choose another capacity or error rate.";
    NotFound => "ERR not found";
    /// An add that may not create a filter.
    NotCreated {
        /// The command that creates one.
        by: &'static str,
    } => "ERR no filter is in the key, and auto-create is no. Create the filter first, with {by}";
    Exists => "ERR item exists";
    BadErrorRate => "ERR bad error rate";
    ErrorRateRange => "ERR error rate must be in the range (0.000000, 1.000000)";
    ErrorRateTooSmall => "ERR error rate must be at least {:e}", limits::MIN_ERROR_RATE;
    BadCapacity => "ERR bad capacity";
    /// The capacity is an integer out of range. The error text names RedisBloom's upper bound; ours is the available
    /// memory.
    CapacityRange => "ERR capacity must be in the range [1, 1073741824]";
    TooFewBytes => "ERR a filter of this kind needs more bytes, even for one item";
    CapacityTooLarge => "ERR capacity must be at most {}", limits::MAX_CAPACITY;
    NoExpansion => "ERR no expansion";
    BadExpansion => "ERR bad expansion";
    ExpansionRange => "ERR expansion must be in the range [0, 32768]";
    NonscalingExpands => "Nonscaling filters cannot expand";
    /// A refusal in RedisBloom's words that has no variable part.
    RedisBloom(text: &'static str) => "{text}";
    /// A refusal in valkey-bloom's words that has no variable part.
    ValkeyBloom(text: &'static str) => "{text}";
    Unparsed { option: &'static str } => "Couldn't parse {option}";
    OptionRange {
        option: &'static str,
        least: u64,
        /// The largest value, which may be configured.
        most: u64,
    } => "{option}: value must be in the range [{least}, {most}]";
    BadInfoField => "Invalid information value";
    /// An iterator that isn't a number. BF.LOADCHUNK's text begins with ERR, but BF.SCANDUMP's doesn't.
    BadIterator {
        /// Whether the text begins with ERR.
        prefixed: bool,
    } => "{}Second argument must be numeric", if *prefixed { "ERR " } else { "" };
    UnknownOption(option: String) => "ERR unknown option '{option}'";
    BadOption { option: &'static str, expected: &'static str } => "ERR {option} expects {expected}";
    Expected(what: &'static str) => "ERR syntax error: expected {what}";
    Exclusive(why: &'static str) => "ERR {why}";
    LikeNotFound => "ERR LIKE names a key that holds no filter";
    /// LIKE, with an error rate or capacity that differs from the named filter's.
    LikeDiffers { error_rate: f64, capacity: u64 } =>
        "ERR the filter named by LIKE has error rate {error_rate} and capacity {capacity}; use those";
    BadItem(expected: &'static str) => "ERR the items of this filter are {expected}";
    /// A string of many items ends in the middle of an item.
    BadBlob {
        /// Number of the item, from 0.
        item: usize,
        needed: usize,
        left: usize,
    } => "ERR the items end early: item {item} needs {needed} bytes, and {left} are left";
    /// One of several items was refused. The items before it were added.
    Stopped {
        done: usize,
        /// Number of items in all, if they have been counted.
        of: Option<usize>,
        /// Why the next item was refused.
        why: Box<CommandError>,
    } => "{why}; {done}{} items were added", optional(of, |of| format!(" of {of}"));
    TooManyItems { items: u64, most: u64 } =>
        "ERR the command has {items} items, and max-items-per-command is {most}";
    TooManySources {
        sources: usize,
        most: usize,
        /// How to combine the others.
        how: &'static str,
    } => "ERR the command has {sources} sources, and the maximum is {most}. {how}";
    SketchTooDeep { rows: u64 } => "ERR any item takes too long in a sketch with {rows} rows";
    SketchItemTooLong { rows: u64, most: u64 } =>
        "ERR an item takes too long in a sketch with {rows} rows. Its bytes, and with TOPK.INCRBY 12 times its \
        increment, may be {most} together";
    ManyWaiting { most: u64 } =>
        "ERR {most} commands are waiting for worker threads, which is the maximum. Send the command again when \
        some of them have been answered";
    /// With this command, the arguments of commands that wait for worker threads would exceed the maximum number of
    /// bytes.
    MuchWaiting {
        /// Total size in bytes of the arguments that are already waiting.
        bytes: u64,
        most: u64,
    } =>
        "ERR commands with {} of arguments are waiting for worker threads, and offload-max-bytes is {}. Send the \
        command again when some of them have been answered, or raise the limit",
        Size(*bytes),
        Size(*most);
    /// A filter that a primary or an append-only file creates or adds to. Contains its number.
    OtherSizes(sizes: Option<u16>) =>
        "ERR another version of Bloomery{} computed the filter's size, and this one would compute another. Run the same \
        version on a server and its replicas, and to read an append-only file",
        optional(sizes, |sizes| format!(", with SIZES {sizes} instead of {SIZES},"));
    Full => "ERR non scaling filter is full";
    /// A leaf of a table has all cells that it can have, mostly parts of divided prefixes, and a split wouldn't help.
    Saturated => "ERR merges of filters with high error rates have left no room in this table. Create a larger filter";
    CannotGrow(why: Box<CommandError>) => "ERR problem inserting into filter: {}", WithoutPrefix(why);
    Memory { bytes: u64, bound: Option<(u64, &'static str)> } =>
        "ERR Insufficient memory to create filter: it needs {}{}",
        Size(*bytes),
        optional(bound, |(limit, name)| format!(", and {name} is {}", Size(*limit)));
    TenantBytes { prefix: String, bytes: u64, more: u64, most: u64 } =>
        "ERR the filters of tenant {prefix} have {}, and {} more are needed. Its limit in the option tenants is {}",
        Size(*bytes),
        Size(*more),
        Size(*most);
    TenantFilters { prefix: String, filters: u64, most: u64 } =>
        "ERR tenant {prefix} has {filters} filters, and its limit in the option tenants is {most}";
    Background(why: Box<CommandError>) =>
        "{why}. The command works in the background while the server serves others, and evicts no keys for \
        that; in MULTI it runs at once";
    Changed =>
        "ERR a key of the command was deleted, replaced or renamed while the command was running, and nothing \
        was done. Send the command again";
    /// Cluster clients send the command again after TRYAGAIN, and are then told where the slot is.
    SlotMoved => "TRYAGAIN the slot of the keys has moved while the command waited";
    Locked => "TRYAGAIN the server does not let the key be written now";
    NotCounting => "ERR not a counting filter; BF.RESERVE key error_rate capacity COUNTING creates one";
    NotWindow => "ERR not a window; BF.RESERVE key error_rate capacity WINDOW generations creates one";
    /// The filter is being rebuilt. The command would begin another rebuild, or would not change the shadow.
    Rebuilding =>
        "ERR the filter is being rebuilt. End the rebuild first, with BF.REBUILD key COMMIT or BF.REBUILD key \
        ABORT";
    /// The filter isn't being rebuilt. If the last rebuild ended by itself, this says why.
    NotRebuilding(ended: Option<String>) =>
        "ERR no rebuild is running; BF.REBUILD key BEGIN starts one{}",
        optional(ended, |why| format!(". The last one ended because items could not be added to its shadow: {why}"));
    /// This server, which obeys a primary or an AOF, has ended a rebuild that continues on the server that sent the
    /// command. Contains the reason.
    ShadowLost(why: String) =>
        "ERR items could not be added to the filter's shadow: {why}. The rebuild has ended here, but not on \
        the server that sent the command. Restart this server without its RDB and append-only files, so that it \
        copies everything again";
    /// In the server's own words.
    OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.";
    NotForClients(word: &'static str) => "ERR {word} is for replication only; to rotate, use BF.ROTATE key";
    /// The data isn't a Bloom filter, or isn't the next chunk of one.
    BadData(why: Option<DecodeError>) => "ERR received bad data{}", optional(why, |why| format!(": {why}"));
    /// The data isn't the head of a cuckoo filter.
    BadHeader(why: Option<DecodeError>) => "Invalid header{}", optional(why, |why| format!(": {why}"));
    /// The data isn't the next chunk of a cuckoo filter.
    BadChunk(why: DecodeError) => "Couldn't load chunk!: {why}";
    /// A chunk that ends beyond the end of a filter that is already complete.
    NoLink => "ERR invalid offset - no link found";
    BadSource { blob: usize, why: DecodeError } => "ERR received bad data in blob {blob}: {why}";
    CuckooSource { blob: usize } => "ERR blob {blob} is a cuckoo filter; only Bloom filters can be merged";
    /// A source that can't be combined with the other filters, and how it differs.
    Incompatible { source: String, what: &'static str } =>
        "ERR the filter in {source} has a different {what}; BF.RESERVE key error_rate capacity LIKE other creates \
        filters that can be combined";
    /// A merge of windows that would lose items of a source, because the clock was ahead and has been set back.
    ClockBehind { source: String } =>
        "ERR the clock was set back, and another window of this merge has already dropped what \
        {source} still holds. Add to each of the windows, and merge after their next rotation";
    SeveralLayers { source: String } =>
        "ERR the filter in {source} is a window or has grown, so its layers do not correspond to those of \
        another filter, and an intersection would lose items";
    OtherLayouts { source: String } =>
        "ERR {source} or the destination is static, or only one of them has LAYOUT QUOTIENT, so they cannot be \
        combined. BF.REBUILD moves a filter into another layout";
    TooCoarse { source: String } =>
        "ERR the error rate of {source} is too high for a destination of this size. Merge fewer filters at a time, \
        or reserve the destination with a smaller capacity: it grows";
    UnionFull { capacity: u64 } =>
        "ERR the union does not fit into a filter for {capacity} items. Nothing was changed. Create a larger filter, \
        or one that may grow";
    TooManyPairs =>
        "ERR the filters have too many layers to merge all of them at once. Merge fewer at a time, or rebuild \
        those with many layers first: BF.REBUILD key BEGIN";
    CountedTwice => "ERR a counting filter would be counted twice; name each key once";
    Core(why: Error) => "ERR {}", explained(why);
    /// The server refused a piece of a command, in these words.
    Server(text: String) => "{text}";
    /// A panic, or a state that should be impossible.
    Internal => "ERR internal error; the server's log says more";
}

impl CommandError {
    /// The counter in INFO for refusals like this one.
    pub fn counter(&self) -> Option<&'static Counter> {
        use CommandError::{BadChunk, BadData, BadHeader, BadSource, NoLink, NotCreated};
        match self {
            BadData(_) | BadHeader(_) | BadChunk(_) | BadSource { .. } | NoLink => Some(&PAYLOADS_REFUSED),
            NotCreated { .. } => Some(&CREATIONS_REFUSED),
            _ => None,
        }
    }

    /// Why a filter that was to grow refused an item.
    pub(super) fn refusal(&self) -> Refusal {
        match self {
            CommandError::Full | CommandError::Core(Error::LastGeneration) => Refusal::Full,
            CommandError::Core(_) | CommandError::Saturated => Refusal::Limit,
            _ => Refusal::Memory,
        }
    }

    /// The refusal of memory for a sketch, in RedisBloom's words, unless they would hide a limit that it doesn't know.
    pub(super) fn or_redisblooms(self, words: CommandError) -> CommandError {
        match self {
            CommandError::TenantBytes { .. } | CommandError::TenantFilters { .. } => self,
            _ => words,
        }
    }

    /// The same refusal, with items numbered from the beginning of the command. `before` is the number of items in
    /// earlier pieces.
    #[must_use]
    pub fn after(self, before: usize) -> CommandError {
        match self {
            CommandError::BadBlob { item, needed, left } => {
                CommandError::BadBlob { item: item.saturating_add(before), needed, left }
            }
            other => other,
        }
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> CommandError {
        match error {
            Error::Full => CommandError::Full,
            Error::OutOfMemory { bytes } => CommandError::Memory { bytes, bound: None },
            Error::NotCounting => CommandError::NotCounting,
            Error::NotWindow => CommandError::NotWindow,
            Error::Exclusive(why) => CommandError::Exclusive(why),
            other => CommandError::Core(other),
        }
    }
}

/// What the library says, and what to do about it.
fn explained(why: &Error) -> String {
    match why {
        Error::Static => {
            "a static filter accepts no adds. Build it again with them: BF.REBUILD key BEGIN, then ADD all \
                          items and COMMIT"
                .to_owned()
        }
        why => why.to_string(),
    }
}

/// A part of a text that is left out if there is no value.
fn optional<T>(value: &Option<T>, text: impl FnOnce(&T) -> String) -> String {
    value.as_ref().map(text).unwrap_or_default()
}

/// An error text without its leading `ERR `, for quoting inside another one.
pub(super) struct WithoutPrefix<'a>(pub(super) &'a CommandError);

impl fmt::Display for WithoutPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        f.write_str(text.strip_prefix("ERR ").unwrap_or(&text))
    }
}

/// A number of bytes in human-readable form.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        for unit in ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"] {
            if value < 1024.0 {
                return if unit == "bytes" {
                    write!(f, "{value} bytes")
                } else {
                    write!(f, "{value:.1} {unit}")
                };
            }
            value /= 1024.0;
        }
        write!(f, "{value:.1} EiB")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let memory = CommandError::Memory { bytes: 120 << 40, bound: Some((23 << 30, "max-filter-bytes")) };
        assert_eq!(
            memory.to_string(),
            "ERR Insufficient memory to create filter: it needs 120.0 TiB, and max-filter-bytes is 23.0 GiB"
        );
        assert_eq!(
            CommandError::CannotGrow(Box::new(CommandError::Memory { bytes: 512, bound: None })).to_string(),
            "ERR problem inserting into filter: Insufficient memory to create filter: it needs 512 bytes"
        );
    }
}
