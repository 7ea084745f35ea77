//! Checksums of bytes: the CRC-32C of our format, and the CRC-64 of DUMP payloads. One of the few files with `unsafe`.

#![allow(unsafe_code)]

/// Polynomials with their bits reversed: that of Castagnoli, and that of Jones, which servers use.
const CASTAGNOLI: u64 = 0x82F6_3B78;
const JONES: u64 = 0x95AC_9329_AC4B_C9B5;

static CRC32C: Tables = tables(CASTAGNOLI);
static CRC64: Tables = tables(JONES);

/// Entry `b` of table n is the remainder of byte `b` and n zero bytes after it.
type Tables = [[u64; 256]; 16];

const fn tables(polynomial: u64) -> Tables {
    let (mut tables, mut byte) = ([[0; 256]; 16], 0);
    while byte < 256 {
        let (mut rest, mut table) = (byte as u64, 0);
        while table < 16 {
            rest = after_zeros(polynomial, rest, 1);
            tables[table][byte] = rest;
            table += 1;
        }
        byte += 1;
    }
    tables
}

/// The remainder after this many zero bytes.
const fn after_zeros(polynomial: u64, mut rest: u64, bytes: usize) -> u64 {
    let mut bit = 0;
    while bit < 8 * bytes {
        rest = (rest >> 1) ^ ((rest & 1) * polynomial);
        bit += 1;
    }
    rest
}

/// The remainder of `bytes` after bytes with the remainder `rest`, sixteen bytes at a time (Kounavis, Berry, "A
/// Systematic Approach to Building High Performance Software-Based CRC Generators", 2005).
fn by_table(tables: &Tables, mut rest: u64, bytes: &[u8]) -> u64 {
    let (chunks, last) = bytes.as_chunks::<16>();
    for chunk in chunks {
        let chunk = (u128::from_le_bytes(*chunk) ^ u128::from(rest)).to_le_bytes();
        rest = (0..16).fold(0, |sum, at| sum ^ tables[15 - at][usize::from(chunk[at])]);
    }
    last.iter().fold(rest, |rest, byte| rest >> 8 ^ tables[0][usize::from(rest as u8 ^ byte)])
}

/// CRC-32C with the processor's instruction, which isn't part of the baseline.
#[cfg(all(feature = "std", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod instruction {
    #[cfg(target_arch = "aarch64")]
    use core::arch::aarch64::{__crc32cb as of_byte, __crc32cd as of_word};
    #[cfg(target_arch = "x86_64")]
    use core::arch::x86_64::{_mm_crc32_u8 as of_byte, _mm_crc32_u64};

    /// Bytes of one of the three lanes that are computed at the same time. The processor can begin an instruction in
    /// each cycle, but its result takes three.
    const LANE: usize = 1024;

    /// What skips a lane: entry `b` of table n is the remainder of byte `b`, n zero bytes, and a lane of zero bytes.
    static SKIP: [[u32; 256]; 4] = {
        let (mut tables, mut bit) = ([[0; 256]; 4], 0);
        while bit < 32 {
            let (rest, mut byte) = (super::after_zeros(super::CASTAGNOLI, 1 << bit, LANE) as u32, 0);
            while byte < 256 {
                tables[bit / 8][byte] ^= rest * (byte as u32 >> (bit % 8) & 1);
                byte += 1;
            }
            bit += 1;
        }
        tables
    };

    fn skip(rest: u32) -> u32 {
        let bytes = rest.to_le_bytes();
        (0..4).fold(0, |sum, at| sum ^ SKIP[at][usize::from(bytes[at])])
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "sse4.2")]
    fn of_word(rest: u32, word: u64) -> u32 {
        _mm_crc32_u64(rest.into(), word) as u32
    }

    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "sse4.2"))]
    #[cfg_attr(target_arch = "aarch64", target_feature(enable = "crc"))]
    fn remainder(mut rest: u32, bytes: &[u8]) -> u32 {
        let (threes, bytes) = bytes.as_chunks::<{ 3 * LANE }>();
        for three in threes {
            let (words, _) = three.as_chunks();
            let mut lanes = [rest, 0, 0];
            for at in 0..LANE / 8 {
                for (index, lane) in lanes.iter_mut().enumerate() {
                    *lane = of_word(*lane, u64::from_le_bytes(words[index * (LANE / 8) + at]));
                }
            }
            rest = skip(skip(lanes[0]) ^ lanes[1]) ^ lanes[2];
        }
        let (words, last) = bytes.as_chunks();
        for word in words {
            rest = of_word(rest, u64::from_le_bytes(*word));
        }
        for byte in last {
            rest = of_byte(rest, *byte);
        }
        rest
    }

    /// Like [`by_table`](super::by_table); `None` if the processor lacks the instruction.
    pub(super) fn by_instruction(rest: u32, bytes: &[u8]) -> Option<u32> {
        #[cfg(target_arch = "x86_64")]
        let is_there = std::arch::is_x86_feature_detected!("sse4.2");
        #[cfg(target_arch = "aarch64")]
        let is_there = std::arch::is_aarch64_feature_detected!("crc");
        // SAFETY: the processor has the instruction.
        is_there.then(|| unsafe { remainder(rest, bytes) })
    }
}

/// Without `std`, nobody knows what the processor has.
#[cfg(not(all(feature = "std", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod instruction {
    pub(super) fn by_instruction(_: u32, _: &[u8]) -> Option<u32> {
        None
    }
}

/// CRC-32C.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// CRC-32C of bytes with the checksum `before`, and of `bytes` after them.
pub(crate) fn crc32c_append(before: u32, bytes: &[u8]) -> u32 {
    let by_table = || by_table(&CRC32C, (!before).into(), bytes) as u32;
    !instruction::by_instruction(!before, bytes).unwrap_or_else(by_table)
}

/// The CRC-64 of Redis and Valkey.
pub(crate) fn crc64(bytes: &[u8]) -> u64 {
    by_table(&CRC64, 0, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_other_programs() {
        assert_eq!(crc64(b"123456789"), 0xE9C6_D914_C4B8_D9CA, "in Redis's src/crc64.c");
        assert_eq!(crc32c(b"123456789"), 0xE306_9283, "of the catalogue of CRCs");
        let bytes: Vec<u8> = (0..8000u32).map(|byte| ((byte * byte) ^ (byte / 7)) as u8).collect();
        for first in 0..17 {
            for end in (first..100).chain([3088, 7000, 8000]) {
                let (before, bytes) = (first as u32 * 0x0765_4321, &bytes[first..end]);
                let expected = ::crc32c::crc32c_append(before, bytes);
                assert_eq!(crc32c_append(before, bytes), expected);
                assert_eq!(!(by_table(&CRC32C, (!before).into(), bytes) as u32), expected);
            }
        }
    }
}
