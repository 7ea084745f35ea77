//! Tests items in a saved filter, without loading it.

use super::error::DecodeError;
use super::format::CHUNK;
use super::kind::Head;
use super::{chunk, head};
use crate::filter::layout::Shape;
use crate::hash::{Hashed, Hasher, Item};
use crate::item::ItemBytes;
use crate::mem::Source;
use crate::params::Spec;
use crate::sync::AtomicU64;
use smallvec::SmallVec;

/// A saved filter that is tested where it is, for example in a file that is mapped into memory. Nothing is copied, and
/// a test reads only the bytes that it needs.
///
/// The bytes are those of `to_bytes` or `write_to`, of a filter of fixed size: what
/// [`Bloom::fixed`](crate::Bloom::fixed), [`AtomicBloom::fixed`](crate::AtomicBloom::fixed) and
/// [`StaticBuilder`](crate::StaticBuilder) make. Filters that grow, count or expire must be loaded.
///
/// ```
/// use bloomery::{StaticBuilder, View};
///
/// let mut builder = StaticBuilder::new(1000, 0.01)?;
/// (0..1000).try_for_each(|number| builder.insert(number))?;
/// let bytes = builder.build()?.to_bytes();
///
/// // The bytes may as well be a map of a file.
/// let filter = View::new(&bytes)?;
/// assert!((0..1000).all(|number| filter.contains(number)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    cells: SavedCells<'a>,
    spec: Spec,
    shape: Shape,
    items: u64,
}

impl<'a> View<'a> {
    /// Checks the head, and that the chunks of cells have their places, which reads 20 bytes of each MiB. The cells
    /// themselves aren't read: if they are damaged, answers may be wrong, but nothing panics.
    ///
    /// # Errors
    /// What is wrong with the bytes; [`DecodeError::Kind`] if the filter must be loaded.
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, DecodeError> {
        let wrong = DecodeError::Length("body");
        let (head_bytes, body) =
            bytes.split_at_checked(head::len(bytes)?).ok_or(DecodeError::Length("head"))?;
        let (head, stamp) = head::decode(head_bytes)?;
        let Head::Bloom(head) = head else { return Err(DecodeError::Kind) };
        let (spec, shape, items) = head.only_layer_of_bits().ok_or(DecodeError::Kind)?;
        let (mut rest, mut offset) = (body, 0u64);
        while offset < shape.bytes() {
            let len = shape.bytes().saturating_sub(offset).min(CHUNK as u64);
            let piece = usize::try_from(len).ok().and_then(|len| len.checked_add(chunk::PREFIX));
            let piece = piece.and_then(|len| rest.split_off(..len)).ok_or(wrong)?;
            if !chunk::is_at(piece, offset, stamp) {
                return Err(DecodeError::Field("chunk"));
            }
            offset = offset.saturating_add(len);
        }
        let cells = SavedCells { body, len: usize::try_from(shape.words()).map_err(|_| wrong)? };
        if !rest.is_empty() {
            return Err(wrong);
        }
        if !shape.is_described_by(items, cells.word(cells.len.saturating_sub(1))) {
            return Err(DecodeError::Field("cells"));
        }
        Ok(View { cells, spec, shape, items })
    }

    /// Whether the item may be in the filter. `false` is certain.
    pub fn contains(&self, item: impl Item) -> bool {
        self.shape.contains_in(self.cells, item.hash_by(self.hasher()))
    }

    /// Hashes an item for the filter.
    pub fn hash(&self, item: impl ItemBytes) -> Hashed {
        Hashed::new(self.hasher(), item.item_bytes().as_ref())
    }

    fn hasher(&self) -> Hasher {
        self.spec.hash.hasher(self.spec.seed)
    }

    /// The parameters.
    pub fn spec(&self) -> Spec {
        self.spec
    }

    /// Number of items in the filter.
    pub fn items(&self) -> u64 {
        self.items
    }
}

/// The words of a filter's only layer, in the chunks that follow its head.
#[derive(Clone, Copy, Debug)]
struct SavedCells<'a> {
    body: &'a [u8],
    /// Number of words.
    len: usize,
}

impl Source for SavedCells<'_> {
    /// An item's rows in a block of a ribbon filter are up to 32 words.
    type Run = SmallVec<[AtomicU64; 32]>;

    #[inline(always)]
    fn len(self) -> usize {
        self.len
    }

    /// The word; 0 beyond the last.
    #[inline(always)]
    fn word(self, index: usize) -> u64 {
        let prefixes = (index / (CHUNK / 8)).saturating_add(1).saturating_mul(chunk::PREFIX);
        let word = index.saturating_mul(8).checked_add(prefixes).and_then(|at| self.body.get(at..));
        word.and_then(|word| word.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
    }

    #[inline(always)]
    fn run(self, first: usize, len: usize) -> Self::Run {
        (first..first.saturating_add(len)).map(|index| AtomicU64::new(self.word(index))).collect()
    }
}
