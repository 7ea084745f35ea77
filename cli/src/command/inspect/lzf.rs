//! LZF, the compression of strings in RDB files.

/// Unpacks runs of plain bytes and references to earlier output; `None` if the result isn't `length` bytes long.
pub(super) fn unpack(packed: &[u8], length: u64) -> Option<Vec<u8>> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut rest = packed.iter().copied();
    while let Some(control) = rest.next() {
        if control < 32 {
            for _ in 0..=control {
                bytes.push(rest.next()?);
            }
        } else {
            let mut run = usize::from(control >> 5) + 2;
            if control >> 5 == 7 {
                run += usize::from(rest.next()?);
            }
            let back = (usize::from(control & 31) << 8 | usize::from(rest.next()?)) + 1;
            let from = bytes.len().checked_sub(back)?;
            for index in from..from + run {
                bytes.push(bytes[index]);
            }
        }
        if bytes.len() as u64 > length {
            return None;
        }
    }
    (bytes.len() as u64 == length).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_unpacked() {
        // Three plain bytes, then a run of five from three bytes back.
        assert_eq!(unpack(b"\x02abc\x60\x02", 8).unwrap(), b"abcabcab");
        assert_eq!(unpack(b"\x02abc\xe0\x01\x02", 13).unwrap(), b"abcabcabcabca");
        for (packed, length) in [
            (b"\x02ab".as_slice(), 3),
            (b"\x60\x02", 5),
            (b"\x02abc", 2),
            (b"\x02abc", 4),
            (b"\x02abc\x60", 8),
        ] {
            assert_eq!(unpack(packed, length), None);
        }
    }
}
