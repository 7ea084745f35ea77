//! Every refusal that a client can see, and its text. Some variants contain a text, or part of one, that is worded
//! where the command is refused.
//!
//! If RedisBloom refuses the same thing, we use exactly its text, which may or may not begin with `ERR`, because
//! clients match on these strings. Our own texts say what was wrong and what to do.

use crate::metrics::{CREATIONS_REFUSED, Counter, PAYLOADS_REFUSED};
use bloomery::Error;
use bloomery::params::limits;
use bloomery::wire::DecodeError;
use std::fmt;

/// Why a command was refused.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the texts below say what they mean")]
pub enum CommandError {
    Arity,
    WrongType,
    NotNative,
    NotForeign,
    ExportedInPieces,
    /// The reply of BF.EXPORT would be too long.
    LongExport {
        bytes: u64,
    },
    TooLargeForScheme,
    NotFound,
    /// An add that may not create a filter.
    NotCreated {
        /// The command that creates one.
        by: &'static str,
    },
    Exists,
    BadErrorRate,
    ErrorRateRange,
    ErrorRateTooSmall,
    BadCapacity,
    /// The capacity is an integer out of range. The error text names RedisBloom's upper bound; ours is the available
    /// memory.
    CapacityRange,
    CapacityTooLarge,
    NoExpansion,
    BadExpansion,
    ExpansionRange,
    NonscalingExpands,
    /// A refusal in RedisBloom's words that has no variable part.
    RedisBloom(&'static str),
    /// A refusal in valkey-bloom's words that has no variable part.
    ValkeyBloom(&'static str),
    Unparsed {
        option: &'static str,
    },
    OptionRange {
        option: &'static str,
        least: u64,
        /// The largest value, which may be configured.
        most: u64,
    },
    BadInfoField,
    /// An iterator that isn't a number. BF.LOADCHUNK's text begins with ERR, but BF.SCANDUMP's doesn't.
    BadIterator {
        /// Whether the text begins with ERR.
        prefixed: bool,
    },
    UnknownOption(String),
    BadOption {
        option: &'static str,
        expected: &'static str,
    },
    Expected(&'static str),
    Exclusive(&'static str),
    LikeNotFound,
    /// LIKE, with an error rate or capacity that differs from the named filter's.
    LikeDiffers {
        error_rate: f64,
        capacity: u64,
    },
    BadItem(&'static str),
    /// A string of many items ends in the middle of an item.
    BadBlob {
        /// Number of the item, from 0.
        item: usize,
        needed: usize,
        left: usize,
    },
    /// One of several items was refused. The items before it were added.
    Stopped {
        done: usize,
        /// Number of items in all, if they have been counted.
        of: Option<usize>,
        /// Why the next item was refused.
        why: Box<CommandError>,
    },
    TooManyItems {
        items: u64,
        most: u64,
    },
    TooManySources {
        sources: usize,
        most: usize,
        /// How to combine the others.
        how: &'static str,
    },
    ManyWaiting {
        most: u64,
    },
    /// With this command, the arguments of commands that wait for worker threads would exceed the maximum number of
    /// bytes.
    MuchWaiting {
        /// Total size in bytes of the arguments that are already waiting.
        bytes: u64,
        most: u64,
    },
    Full,
    CannotGrow(Box<CommandError>),
    Memory {
        bytes: u64,
        /// The limit, if one is known, and its name.
        bound: Option<(u64, &'static str)>,
    },
    Background(Box<CommandError>),
    Changed,
    SlotMoved,
    Locked,
    NotCounting,
    NotWindow,
    /// The filter is being rebuilt. The command would begin another rebuild, or would not change the shadow.
    Rebuilding,
    /// The filter isn't being rebuilt. If the last rebuild ended by itself, this says why.
    NotRebuilding(Option<String>),
    /// This server, which obeys a primary or an AOF, has ended a rebuild that continues on the server that sent the
    /// command. Contains the reason.
    ShadowLost(String),
    OutOfMemory,
    NotForClients(&'static str),
    /// The data isn't a Bloom filter, or isn't the next chunk of one.
    BadData(Option<DecodeError>),
    /// The data isn't the head of a cuckoo filter.
    BadHeader(Option<DecodeError>),
    /// The data isn't the next chunk of a cuckoo filter.
    BadChunk(DecodeError),
    /// A chunk that ends beyond the end of a filter that is already complete.
    NoLink,
    BadSource {
        /// Number of the source, from 1.
        blob: usize,
        why: DecodeError,
    },
    CuckooSource {
        /// Number of the source, from 1.
        blob: usize,
    },
    /// A source that can't be combined with the other filters, and how it differs.
    Incompatible {
        /// The source's key in quotes, or its number.
        source: String,
        what: &'static str,
    },
    /// A merge of windows that would lose items of a source, because the clock was ahead and has been set back.
    ClockBehind {
        /// The source's key in quotes, or its number.
        source: String,
    },
    SeveralLayers {
        /// The source's key in quotes, or its number.
        source: String,
    },
    Fingerprints {
        /// The source's key in quotes, or its number.
        source: String,
    },
    UnionFull {
        capacity: u64,
    },
    TooManyPairs,
    CountedTwice,
    Core(Error),
    NoRandomness,
    /// The server refused a piece of a command, in these words.
    Server(String),
    /// A panic, or a state that should be impossible.
    Internal,
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

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::Arity => f.write_str("ERR wrong number of arguments"),
            CommandError::WrongType => {
                f.write_str("WRONGTYPE Operation against a key holding the wrong kind of value")
            }
            CommandError::NotNative => f.write_str(
                "ERR the command needs one of Bloomery's own filters, and this one came from another system. If you have \
                 its items, BF.REBUILD key BEGIN converts it",
            ),
            CommandError::NotForeign => {
                f.write_str("ERR the filter is Bloomery's own, and has no other system's format. Use BF.SCANDUMP or DUMP.")
            }
            CommandError::ExportedInPieces => f.write_str(
                "ERR the filter is RedisBloom's, which loads filters with BF.LOADCHUNK and RESTORE. Use BF.SCANDUMP or \
                 DUMP.",
            ),
            CommandError::LongExport { bytes } => write!(
                f,
                "ERR the filter has {bytes} bytes, and a reply has at most 1048576. Read it in pieces, with OFFSET and \
                 COUNT."
            ),
            CommandError::TooLargeForScheme => f.write_str(
                "ERR the other system has no filters of that size. Choose another capacity or error rate.",
            ),
            CommandError::NotFound => f.write_str("ERR not found"),
            CommandError::NotCreated { by } => {
                write!(f, "ERR no filter is in the key, and auto-create is no. Create the filter first, with {by}")
            }
            CommandError::Exists => f.write_str("ERR item exists"),
            CommandError::BadErrorRate => f.write_str("ERR bad error rate"),
            CommandError::ErrorRateRange => {
                f.write_str("ERR error rate must be in the range (0.000000, 1.000000)")
            }
            CommandError::ErrorRateTooSmall => {
                write!(f, "ERR error rate must be at least {:e}", limits::MIN_ERROR_RATE)
            }
            CommandError::BadCapacity => f.write_str("ERR bad capacity"),
            CommandError::CapacityRange => f.write_str("ERR capacity must be in the range [1, 1073741824]"),
            CommandError::CapacityTooLarge => {
                write!(f, "ERR capacity must be at most {}", limits::MAX_CAPACITY)
            }
            CommandError::NoExpansion => f.write_str("ERR no expansion"),
            CommandError::BadExpansion => f.write_str("ERR bad expansion"),
            CommandError::ExpansionRange => f.write_str("ERR expansion must be in the range [0, 32768]"),
            CommandError::NonscalingExpands => f.write_str("Nonscaling filters cannot expand"),
            CommandError::RedisBloom(text) | CommandError::ValkeyBloom(text) => f.write_str(text),
            CommandError::Unparsed { option } => write!(f, "Couldn't parse {option}"),
            CommandError::OptionRange { option, least, most } => {
                write!(f, "{option}: value must be in the range [{least}, {most}]")
            }
            CommandError::BadInfoField => f.write_str("Invalid information value"),
            CommandError::BadIterator { prefixed } => {
                f.write_str(if *prefixed { "ERR " } else { "" })?;
                f.write_str("Second argument must be numeric")
            }
            CommandError::UnknownOption(option) => write!(f, "ERR unknown option '{option}'"),
            CommandError::BadOption { option, expected } => write!(f, "ERR {option} expects {expected}"),
            CommandError::TooManyItems { items, most } => {
                write!(f, "ERR the command has {items} items, and max-items-per-command is {most}")
            }
            CommandError::TooManySources { sources, most, how } => {
                write!(f, "ERR the command has {sources} sources, and the maximum is {most}. {how}")
            }
            CommandError::ManyWaiting { most } => write!(
                f,
                "ERR {most} commands are waiting for worker threads, which is the maximum. Send the command again when \
                 some of them have been answered"
            ),
            CommandError::MuchWaiting { bytes, most } => write!(
                f,
                "ERR commands with {} of arguments are waiting for worker threads, and offload-max-bytes is {}. Send the \
                 command again when some of them have been answered, or raise the limit",
                Size(*bytes),
                Size(*most)
            ),
            CommandError::Expected(what) => write!(f, "ERR syntax error: expected {what}"),
            CommandError::Exclusive(why) => write!(f, "ERR {why}"),
            CommandError::LikeNotFound => f.write_str("ERR LIKE names a key that holds no filter"),
            CommandError::LikeDiffers { error_rate, capacity } => {
                write!(
                    f,
                    "ERR the filter named by LIKE has error rate {error_rate} and capacity {capacity}; use those"
                )
            }
            CommandError::BadItem(expected) => write!(f, "ERR the items of this filter are {expected}"),
            CommandError::BadBlob { item, needed, left } => {
                write!(f, "ERR the items end early: item {item} needs {needed} bytes, and {left} are left")
            }
            CommandError::Stopped { done, of: Some(of), why } => {
                write!(f, "{why}; {done} of {of} items were added")
            }
            CommandError::Stopped { done, of: None, why } => write!(f, "{why}; {done} items were added"),
            CommandError::Full => f.write_str("ERR non scaling filter is full"),
            CommandError::CannotGrow(why) => write!(f, "ERR problem inserting into filter: {}", WithoutPrefix(why)),
            CommandError::Memory { bytes, bound } => {
                write!(f, "ERR Insufficient memory to create filter: it needs {}", Size(*bytes))?;
                match bound {
                    Some((limit, name)) => write!(f, ", and {name} is {}", Size(*limit)),
                    None => Ok(()),
                }
            }
            CommandError::Background(why) => write!(
                f,
                "{why}. The command works in the background while the server serves others, and evicts no keys for \
                 that; in MULTI it runs at once"
            ),
            CommandError::Changed => f.write_str(
                "ERR a key of the command was deleted, replaced or renamed while the command was running, and nothing \
                 was done. Send the command again",
            ),
            // Cluster clients send the command again after TRYAGAIN, and are then told where the slot is.
            CommandError::SlotMoved => f.write_str("TRYAGAIN the slot of the keys has moved while the command waited"),
            CommandError::Locked => f.write_str("TRYAGAIN the server does not let the key be written now"),
            CommandError::NotCounting => f.write_str(
                "ERR not a counting filter; BF.RESERVE key error_rate capacity COUNTING creates one",
            ),
            CommandError::NotWindow => f.write_str(
                "ERR not a window; BF.RESERVE key error_rate capacity WINDOW generations creates one",
            ),
            CommandError::Rebuilding => f.write_str(
                "ERR the filter is being rebuilt. End the rebuild first, with BF.REBUILD key COMMIT or BF.REBUILD key \
                 ABORT",
            ),
            CommandError::NotRebuilding(ended) => {
                f.write_str("ERR no rebuild is running; BF.REBUILD key BEGIN starts one")?;
                match ended {
                    Some(why) => write!(f, ". The last one ended because items could not be added to its shadow: {why}"),
                    None => Ok(()),
                }
            }
            CommandError::ShadowLost(why) => write!(
                f,
                "ERR items could not be added to the filter's shadow: {why}. The rebuild has ended here, but not on \
                 the server that sent the command. Restart this server without its RDB and append-only files, so that it \
                 copies everything again"
            ),
            // The server's own words.
            CommandError::OutOfMemory => {
                f.write_str("OOM command not allowed when used memory > 'maxmemory'.")
            }
            CommandError::NotForClients(word) => {
                write!(f, "ERR {word} is for replication only; to rotate, use BF.ROTATE key")
            }
            CommandError::BadData(None) => f.write_str("ERR received bad data"),
            CommandError::BadData(Some(why)) => write!(f, "ERR received bad data: {why}"),
            CommandError::BadHeader(None) => f.write_str("Invalid header"),
            CommandError::BadHeader(Some(why)) => write!(f, "Invalid header: {why}"),
            CommandError::BadChunk(why) => write!(f, "Couldn't load chunk!: {why}"),
            CommandError::NoLink => f.write_str("ERR invalid offset - no link found"),
            CommandError::BadSource { blob, why } => write!(f, "ERR received bad data in blob {blob}: {why}"),
            CommandError::CuckooSource { blob } => {
                write!(f, "ERR blob {blob} is a cuckoo filter; only Bloom filters can be merged")
            }
            CommandError::Incompatible { source, what } => write!(
                f,
                "ERR the filter in {source} has a different {what}; BF.RESERVE key error_rate capacity LIKE other creates \
                 filters that can be combined"
            ),
            CommandError::ClockBehind { source } => write!(
                f,
                "ERR the clock was set back, and another window of this merge has already dropped what \
                 {source} still holds. Add to each of the windows, and merge after their next rotation"
            ),
            CommandError::SeveralLayers { source } => write!(
                f,
                "ERR the filter in {source} is a window or has grown, so its layers do not correspond to those of \
                 another filter, and an intersection would lose items"
            ),
            CommandError::Fingerprints { source } => write!(
                f,
                "ERR {source} or the destination has LAYOUT FINGERPRINT, FUSE or RIBBON. BF.INTERSECT accepts \
                 none of these, and BF.MERGE only filters of LAYOUT FINGERPRINT and fixed size that are LIKE each other. \
                 Use LAYOUT BLOCKED or CLASSIC"
            ),
            CommandError::UnionFull { capacity } => write!(
                f,
                "ERR the union does not fit into a filter for {capacity} items. Nothing was changed. Create larger \
                 filters, or use LAYOUT BLOCKED or CLASSIC"
            ),
            CommandError::TooManyPairs => f.write_str(
                "ERR the filters have too many layers to merge all of them at once. Merge fewer at a time, or rebuild \
                 those with many layers first: BF.REBUILD key BEGIN",
            ),
            CommandError::CountedTwice => {
                f.write_str("ERR a counting filter would be counted twice; name each key once")
            }
            CommandError::Core(Error::Static) => f.write_str(
                "ERR a static filter accepts no adds. Build it again with them: BF.REBUILD key BEGIN, then ADD all \
                 items and COMMIT",
            ),
            CommandError::Core(why) => write!(f, "ERR {why}"),
            CommandError::NoRandomness => {
                f.write_str("ERR the system provided no randomness for a seed; use SEED")
            }
            CommandError::Server(text) => f.write_str(text),
            CommandError::Internal => f.write_str("ERR internal error; the server's log says more"),
        }
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> CommandError {
        match error {
            Error::Full => CommandError::Full,
            Error::OutOfMemory { bytes } => CommandError::Memory { bytes, bound: None },
            Error::NoRandomness => CommandError::NoRandomness,
            Error::NotCounting => CommandError::NotCounting,
            Error::NotWindow => CommandError::NotWindow,
            Error::Exclusive(why) => CommandError::Exclusive(why),
            other => CommandError::Core(other),
        }
    }
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
