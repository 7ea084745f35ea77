//! Blobs: many items in one string. The server spends 65 to 115 ns on every argument and 20 ns on every reply. A string
//! of a thousand items costs the server little more than a single item.

use super::call::{Call, Continuation, Within};
use super::error::CommandError;
use super::options::{Arguments, unsigned};
use crate::items::{limit_items, most_items};
use bloomery::filter::bloom::batch::GROUP;
use std::num::NonZeroUsize;

/// How the items of a blob are separated.
enum Form {
    /// All items have the same number of bytes.
    Fixed { width: NonZeroUsize },
    /// Each item is preceded by its length, a little-endian u32. `starts` has the offset of every
    /// [`PART`](Blob::PART)th item.
    Prefixed { starts: Vec<usize> },
}

/// Where the items of a blob are, and how they are separated.
struct Place {
    width: Option<NonZeroUsize>,
    /// Index of the argument that contains the blob.
    argument: usize,
}

impl Place {
    /// Parses the arguments `FIXED width blob` or `PREFIXED blob`, which begin at index `first`. Also returns the
    /// blob's bytes.
    fn parse<'a, C: Call<'a>>(call: &C, first: usize) -> Result<(Place, &'a [u8]), CommandError> {
        let mut words = Arguments { call, next: first };
        let form = words.next().unwrap_or_default();
        let width = if form.eq_ignore_ascii_case(b"FIXED") {
            let expected = "the number of bytes of each item, 1 or more";
            let positive = |word| NonZeroUsize::new(usize::try_from(unsigned(word)?).ok()?);
            Some(words.value("FIXED", expected, positive)?)
        } else if form.eq_ignore_ascii_case(b"PREFIXED") {
            None
        } else {
            return Err(CommandError::Expected("FIXED width or PREFIXED after the key"));
        };
        let argument = words.next;
        let bytes = words.next().ok_or(CommandError::Arity)?;
        Ok((Place { width, argument }, bytes))
    }
}

/// A blob that hasn't been read yet, so that a thread other than the main thread can read it. Reading the lengths in
/// 460 MiB of short items takes 250 ms.
pub(super) struct Unread {
    place: Place,
    len: usize,
    /// Maximum number of items in one command, if there is a limit.
    most_items: Option<u64>,
}

impl Unread {
    /// Parses the arguments `FIXED width blob` or `PREFIXED blob`, which begin at index `first`. Also returns the
    /// blob's bytes.
    pub(super) fn parse<'a, C: Call<'a>>(call: &C, first: usize) -> Result<(Unread, &'a [u8]), CommandError> {
        let (place, bytes) = Place::parse(call, first)?;
        Ok((Unread { place, len: bytes.len(), most_items: most_items(call) }, bytes))
    }

    /// Index of the argument that contains the blob.
    pub(super) fn argument(&self) -> usize {
        self.place.argument
    }

    /// Whether the blob is longer than a part. If so, reading and hashing its bytes can take long, even if it has only
    /// a few items: 4 ms per MiB with the slowest codec.
    pub(super) fn is_long(&self) -> bool {
        self.len > Parts::BYTES
    }

    /// Reads the blob's bytes. Calls `pause` from time to time if reading may take long.
    pub(super) fn read<'a>(&self, bytes: &'a [u8], pause: impl Fn()) -> Result<Blob<'a>, CommandError> {
        let blob = match self.place.width {
            Some(width) => Blob::fixed(bytes, width)?,
            None => Blob::prefixed(bytes, usize::MAX, pause)?,
        };
        let items = blob.len() as u64;
        match self.most_items {
            Some(most) if items > most => Err(CommandError::TooManyItems { items, most }),
            _ => Ok(blob),
        }
    }
}

/// A validated blob: it doesn't end in the middle of an item.
pub(super) struct Blob<'a> {
    bytes: &'a [u8],
    form: Form,
    /// Number of items.
    len: usize,
}

impl<'a> Blob<'a> {
    /// Maximum number of items in a parallel task. Processing them takes about 100 µs, whereas handing a task to
    /// another thread takes 1 µs.
    pub(super) const PART: usize = 64 * GROUP;

    pub(super) fn fixed(bytes: &'a [u8], width: NonZeroUsize) -> Result<Blob<'a>, CommandError> {
        let (len, rest) = (bytes.len() / width, bytes.len() % width);
        if rest != 0 {
            return Err(CommandError::BadBlob { item: len, needed: width.get(), left: rest });
        }
        Ok(Blob { bytes, form: Form::Fixed { width }, len })
    }

    /// Reads the items that begin in the first `most` bytes. Calls `pause` before every [`PART`](Blob::PART)th item.
    fn prefixed(bytes: &'a [u8], most: usize, pause: impl Fn()) -> Result<Blob<'a>, CommandError> {
        let (mut rest, mut len, mut starts) = (bytes, 0usize, Vec::new());
        let start = |rest: &[u8]| bytes.len().saturating_sub(rest.len());
        while !rest.is_empty() && start(rest) < most {
            if len.is_multiple_of(Blob::PART) {
                starts.push(start(rest));
                pause();
            }
            let left = rest.len();
            let (_, after) =
                split_prefixed(rest).map_err(|needed| CommandError::BadBlob { item: len, needed, left })?;
            rest = after;
            len = len.saturating_add(1);
        }
        let bytes = bytes.get(..start(rest)).unwrap_or_default();
        Ok(Blob { bytes, form: Form::Prefixed { starts }, len })
    }

    /// Number of items.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The items of part number `part`, counted from 0, and of all later parts.
    pub(super) fn items_from(&self, part: usize) -> Items<'a, '_> {
        let start = match &self.form {
            Form::Fixed { width } => part.saturating_mul(Blob::PART).saturating_mul(width.get()),
            Form::Prefixed { starts } => starts.get(part).copied().unwrap_or(self.bytes.len()),
        };
        Items { rest: self.bytes.get(start..).unwrap_or_default(), form: &self.form }
    }

    /// All items.
    pub(super) fn items(&self) -> Items<'a, '_> {
        self.items_from(0)
    }

    /// Number of bytes that the first `count` items occupy.
    fn bytes_of(&self, count: usize) -> usize {
        let mut items = self.items();
        if count < self.len() {
            items.by_ref().take(count).for_each(drop);
            self.bytes.len().saturating_sub(items.rest.len())
        } else {
            self.bytes.len()
        }
    }
}

/// A blob whose items are added part by part, so that the server can serve other clients in between.
pub(super) struct Parts<'a> {
    place: Place,
    bytes: &'a [u8],
    /// Offset in bytes of the first item that isn't done.
    at: usize,
    /// Number of items that are done.
    done: usize,
    /// Total number of items, if they have been counted.
    of: Option<usize>,
}

impl<'a> Parts<'a> {
    /// Approximate maximum number of bytes in a part. Before its first item is added, a part is checked, which takes
    /// 500 µs.
    const BYTES: usize = 1 << 20;

    /// Maximum number of items in a part, if all items have the same number of bytes.
    const ITEMS: usize = 1 << 15;

    /// Parses the arguments `FIXED width blob` or `PREFIXED blob`, which begin at index `first`. No further arguments
    /// may follow.
    pub(super) fn parse<C: Call<'a>>(call: &C, first: usize) -> Result<Parts<'a>, CommandError> {
        let (place, bytes) = Place::parse(call, first)?;
        if call.argc() != place.argument.saturating_add(1) {
            return Err(CommandError::Arity);
        }
        let of = match place.width {
            Some(width) => Some(Blob::fixed(bytes, width)?.len()),
            None => None,
        };
        limit_items(call, of.unwrap_or_default())?;
        limit_prefixed(call, if of.is_none() { bytes } else { &[] })?;
        Ok(Parts { place, bytes, at: 0, done: 0, of })
    }

    /// The next part of the items that aren't done. `None` if all items are done.
    pub(super) fn next(&mut self) -> Result<Option<Blob<'a>>, CommandError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        let Some(width) = self.place.width else {
            let blob = Blob::prefixed(rest, Parts::BYTES, || ()).map_err(|why| why.after(self.done))?;
            if blob.bytes.len() == self.bytes.len() {
                self.of = Some(blob.len());
            }
            return Ok(Some(blob));
        };
        let most = width.get().saturating_mul(Parts::ITEMS).min(Parts::BYTES);
        let (bytes, _) = cut(rest, Some(width), most);
        Blob::fixed(rest.get(..bytes).unwrap_or_default(), width).map(Some)
    }

    /// Counts the first `done` items of a part as done.
    pub(super) fn advance(&mut self, part: &Blob<'a>, done: usize) {
        self.at = self.at.saturating_add(part.bytes_of(done));
        self.done = self.done.saturating_add(done);
    }

    /// Whether all items are done.
    pub(super) fn are_done(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Total number of items, if they have been counted.
    pub(super) fn of(&self) -> Option<usize> {
        self.of
    }

    /// What is left of the command, to be run later.
    pub(super) fn rest(&self) -> Continuation {
        let within = Some(Within { at: self.at, width: self.place.width });
        Continuation { first: self.place.argument, done: self.done, of: self.of, within }
    }

    /// The arguments of a command that adds the items that are done.
    pub(super) fn done(&self) -> Vec<Vec<u8>> {
        let bytes = self.bytes.get(..self.at).unwrap_or_default().to_vec();
        match self.place.width {
            Some(width) => vec![b"FIXED".to_vec(), width.to_string().into_bytes(), bytes],
            None => vec![b"PREFIXED".to_vec(), bytes],
        }
    }
}

/// Refuses a blob with more items than one command may have. The items are counted only if the blob is long enough to
/// exceed the limit, and only until they exceed it.
fn limit_prefixed<'a, C: Call<'a>>(call: &C, bytes: &[u8]) -> Result<(), CommandError> {
    const SHORTEST: usize = size_of::<u32>();
    let most = bytes.len() / SHORTEST;
    if limit_items(call, most).is_ok() {
        return Ok(());
    }
    let limit = usize::try_from(call.settings().max_items_per_command).unwrap_or(usize::MAX);
    let form = Form::Prefixed { starts: Vec::new() };
    limit_items(call, Items { rest: bytes, form: &form }.take(limit.saturating_add(1)).count())
}

/// Cuts off the first complete items that together have at most `most` bytes, but at least one item. Returns their
/// length in bytes and their number. If the first item isn't complete, cuts off all bytes, which no command accepts.
pub(super) fn cut(bytes: &[u8], width: Option<NonZeroUsize>, most: usize) -> (usize, usize) {
    if let Some(width) = width {
        let items = most.min(bytes.len()) / width;
        let items = items.max(1);
        return (items.saturating_mul(width.get()).min(bytes.len()), items);
    }
    let (mut len, mut items, mut rest) = (0, 0usize, bytes);
    while let Ok((_, after)) = split_prefixed(rest) {
        let next = bytes.len().saturating_sub(after.len());
        if next > most && items > 0 {
            break;
        }
        (len, items, rest) = (next, items.saturating_add(1), after);
    }
    if items == 0 { (bytes.len(), 1) } else { (len, items) }
}

/// The first item, without its length, and the rest of the bytes. The error is the number of bytes that were expected.
#[inline(always)]
fn split_prefixed(bytes: &[u8]) -> Result<(&[u8], &[u8]), usize> {
    let (length, rest) = bytes.split_first_chunk().ok_or(size_of::<u32>())?;
    let length = u32::from_le_bytes(*length) as usize;
    rest.split_at_checked(length).ok_or(length.saturating_add(size_of::<u32>()))
}

/// An iterator over items of a blob.
#[derive(Clone)]
pub(super) struct Items<'a, 'f> {
    rest: &'a [u8],
    form: &'f Form,
}

impl<'a> Items<'a, '_> {
    /// The remaining items, if each is 16 bytes long, like a UUID or an MD5 digest. With a length that the compiler
    /// knows, hashing needs no branches.
    pub(super) fn of_16(&self) -> Option<impl Iterator<Item = &'a [u8]> + use<'a>> {
        match self.form {
            Form::Fixed { width } if width.get() == 16 => {
                Some(self.rest.as_chunks::<16>().0.iter().map(|item| item.as_slice()))
            }
            _ => None,
        }
    }
}

impl<'a> Iterator for Items<'a, '_> {
    type Item = &'a [u8];

    #[inline(always)]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (item, rest) = match self.form {
            Form::Fixed { width } => self.rest.split_at_checked(width.get())?,
            Form::Prefixed { .. } => split_prefixed(self.rest).ok()?,
        };
        self.rest = rest;
        Some(item)
    }
}
