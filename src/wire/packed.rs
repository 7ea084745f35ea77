//! A small filter in one string, as in RDB files and DUMP payloads.
//!
//! A server may save a million default filters. A head and a chunk would be more than twice as long as the cells of
//! such a filter, because they are designed for dumps in pieces. A packed string repeats nothing, and one checksum
//! covers everything.
//!
//! ```text
//!  0  u8      kind, see `codec::Kind`
//!  1  u8      how the cells are written, see `Form`
//!  2  number  length of the header
//!     header
//!     cells
//!     u32     CRC-32C of everything before it
//! ```

use super::arrival::Filled;
use super::codec::{Kind, put_number, take, take_number};
use super::error::DecodeError;
use super::format::MOST_PACKED;
use super::kind::{self, Whole};
use crate::filter::{Array, Census, Filter, FilterRef};
use crate::mem::{Words, crc32c};
use crate::sync::Ordering::Relaxed;
use alloc::{boxed::Box, vec::Vec};

/// How the cells are written: in the form that is estimated to be shorter. A reader refuses the other form.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// The cells unchanged.
    Whole = 0,
    /// For each set bit, the number of unset bits since the previous set bit. Used if there are fewer set bits than
    /// bytes.
    Positions = 1,
    /// The leaves of a table.
    Leaves = 2,
}

impl Form {
    /// The form for cells in which `ones` bits are set.
    fn of(ones: u64, bytes: u64) -> Form {
        if ones < bytes { Form::Positions } else { Form::Whole }
    }
}

/// Whether a filter is packed: if it is small, and has no table beside other cells.
pub(super) fn fits(filter: FilterRef<'_>) -> bool {
    let mut tables = filter.arrays().filter_map(Array::table);
    match (tables.next(), filter.arrays().nth(1)) {
        (None, _) => filter.bytes() <= MOST_PACKED as u64,
        // The bytes of a table also depend on its past.
        (Some(table), None) => table.has_one_leaf() && table.items() <= MOST_PACKED as u64 / 4,
        (Some(_), Some(_)) => false,
    }
}

/// Packs a filter with at most [`MOST_PACKED`] bytes of cells into one string.
pub(super) fn pack(filter: FilterRef<'_>) -> Vec<u8> {
    let (kind, header) = kind::pack(filter);
    let cells = || filter.arrays().filter_map(Array::cells);
    let table = filter.arrays().find_map(Array::table);
    let form = match table {
        Some(_) => Form::Leaves,
        None => Form::of(cells().map(Words::ones).sum(), filter.bytes()),
    };
    let mut packed = Vec::with_capacity(256);
    packed.extend_from_slice(&[kind as u8, form as u8]);
    put_number(&mut packed, header.len() as u64);
    packed.extend_from_slice(&header);
    let words = cells().flatten().map(|word| word.load(Relaxed));
    match form {
        Form::Leaves => {
            let mut leaves = Vec::new();
            let _ = table.and_then(|table| table.reading()?.write(0, usize::MAX, &mut leaves));
            leaves.iter().for_each(|word| packed.extend_from_slice(&word.to_le_bytes()));
        }
        Form::Whole => words.for_each(|word| packed.extend_from_slice(&word.to_le_bytes())),
        Form::Positions => {
            let mut next = 0u64;
            for (start, mut word) in (0u64..).step_by(64).zip(words) {
                while word != 0 {
                    let position = start.saturating_add(word.trailing_zeros().into());
                    put_number(&mut packed, position.saturating_sub(next));
                    next = position.saturating_add(1);
                    word &= word.wrapping_sub(1);
                }
            }
        }
    }
    let crc = crc32c(&packed);
    packed.extend_from_slice(&crc.to_le_bytes());
    packed
}

/// Reads and validates a packed string.
pub(super) fn unpack(bytes: &[u8]) -> Result<Filter, DecodeError> {
    let short = DecodeError::Length("value");
    let (sealed, crc) = bytes.split_last_chunk().ok_or(short)?;
    if crc32c(sealed) != u32::from_le_bytes(*crc) {
        return Err(DecodeError::Checksum("value"));
    }
    let mut rest = sealed;
    let [kind, form] = take(&mut rest).ok_or(short)?;
    let kind = Kind::from_number(kind).ok_or(DecodeError::Field("kind"))?;
    let header_len = take_number(&mut rest).and_then(|len| usize::try_from(len).ok()).ok_or(short)?;
    let (header, cells) = rest.split_at_checked(header_len).ok_or(short)?;
    let head = kind::unpack(kind, header)?;

    if form == Form::Leaves as u8 {
        let mut loading =
            head.loading(0).filter(|_| head.array(1).is_none()).ok_or(DecodeError::Field("form"))?;
        let (words, []) = cells.as_chunks() else { return Err(DecodeError::Length("body")) };
        loading.read(&words.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<_>>())?;
        return head.build(vec![Whole::Table(Box::new(loading))]);
    }
    if head.loading(0).is_some() {
        return Err(DecodeError::Field("form"));
    }

    let mut body = [0; MOST_PACKED];
    let body_len = head.body_len().and_then(|len| usize::try_from(len).ok());
    let body = body_len.and_then(|len| body.get_mut(..len)).ok_or(DecodeError::Length("body"))?;
    let form = [Form::Whole, Form::Positions].into_iter().find(|known| *known as u8 == form);
    let ones = match form.ok_or(DecodeError::Field("form"))? {
        Form::Whole if cells.len() == body.len() => {
            body.copy_from_slice(cells);
            body.iter().map(|byte| u64::from(byte.count_ones())).sum()
        }
        Form::Whole | Form::Leaves => return Err(DecodeError::Length("body")),
        Form::Positions => place_ones(body, cells).ok_or(DecodeError::Length("body"))?,
    };
    if Some(Form::of(ones, body.len() as u64)) != form {
        return Err(DecodeError::Field("form"));
    }

    let (mut arrays, mut rest) = (Vec::new(), &*body);
    while let Some(len) = head.array(arrays.len()) {
        let bytes = usize::try_from(len).ok().and_then(|len| rest.split_off(..len)).unwrap_or_default();
        let words = Words::zeroed(len / 8)?;
        let census = head.place(arrays.len()).place(&words, 0, bytes, Census::default());
        arrays.push(Whole::Cells(Filled { words, census }));
    }
    head.build(arrays)
}

/// Sets the bits whose positions are in `positions`, which has the form [`Form::Positions`]. Returns their number.
fn place_ones(body: &mut [u8], mut positions: &[u8]) -> Option<u64> {
    let (mut next, mut ones) = (0u64, 0u64);
    while !positions.is_empty() {
        let position = next.checked_add(take_number(&mut positions)?)?;
        *body.get_mut(usize::try_from(position / 8).ok()?)? |= 1u8.checked_shl((position % 8) as u32)?;
        next = position.checked_add(1)?;
        ones = ones.saturating_add(1);
    }
    Some(ones)
}
