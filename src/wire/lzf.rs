//! LZF, the compression algorithm for strings in RDB files and DUMP payloads.

use super::codec::take;
use super::error::DecodeError;
use alloc::vec::Vec;

/// Maximum number of bytes that one packed byte can expand to: three packed bytes can stand for a run of 264 bytes.
pub(super) const MOST_UNPACKED: u64 = 264 / 3;

/// Unpacks a string. A packed string consists of runs of plain bytes, and of references to earlier output.
///
/// # Errors
/// [`DecodeError::Length`] if the result isn't `length` bytes long; [`DecodeError::OutOfMemory`].
pub fn unpack(packed: &[u8], length: u64) -> Result<Vec<u8>, DecodeError> {
    let damaged = DecodeError::Length("compressed string");
    if length > MOST_UNPACKED.saturating_mul(packed.len() as u64) {
        return Err(damaged);
    }
    let len = usize::try_from(length).map_err(|_| damaged)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| DecodeError::OutOfMemory { bytes: length })?;
    let mut rest = packed;
    while let Some([control]) = take(&mut rest) {
        let left = len.saturating_sub(bytes.len());
        if control < 32 {
            let plain = rest.split_off(..=usize::from(control));
            bytes.extend_from_slice(plain.filter(|plain| plain.len() <= left).ok_or(damaged)?);
            continue;
        }
        let mut run = usize::from(control >> 5).saturating_add(2);
        if control >> 5 == 7 {
            let [more] = take(&mut rest).ok_or(damaged)?;
            run = run.saturating_add(more.into());
        }
        let [low] = take(&mut rest).ok_or(damaged)?;
        let back = usize::from(u16::from_be_bytes([control & 31, low])).saturating_add(1);
        let from = bytes.len().checked_sub(back).filter(|_| run <= left).ok_or(damaged)?;
        // A run can be longer than the distance that it goes back. In that case it repeats itself.
        while run > 0 {
            let step = run.min(bytes.len().saturating_sub(from));
            bytes.extend_from_within(from..from.saturating_add(step));
            run = run.saturating_sub(step);
        }
    }
    if bytes.len() == len { Ok(bytes) } else { Err(damaged) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_unpacked() {
        // Three plain bytes, then a run of five from three bytes back.
        assert_eq!(unpack(b"\x02abc\x60\x02", 8).as_deref(), Ok(&b"abcabcab"[..]));
        assert_eq!(unpack(b"\x02abc\xe0\x01\x02", 13).as_deref(), Ok(&b"abcabcabcabca"[..]));
        // The longest run.
        assert_eq!(unpack(b"\x00a\xe0\xff\x00", 265), Ok(vec![b'a'; 265]));
        for (packed, length) in [
            (b"\x02ab".as_slice(), 3),
            (b"\x60\x02", 5),
            (b"\x02abc", 2),
            (b"\x02abc", 4),
            (b"\x02abc\x60", 8),
            (b"\x02abc\x60\x03", 8),
            (b"\x00a\xe0\xff\x00", 264),
            (b"\x00a\xe0\xff\x00", 1 << 60),
        ] {
            assert_eq!(unpack(packed, length), Err(DecodeError::Length("compressed string")));
        }
    }
}
