//! Austin Appleby's Murmur hashes, which other systems' filters use to place items: MurmurHash2, MurmurHash64A and
//! MurmurHash3 x64-128. Native filters don't use these hashes: without a secret key, anyone can construct items that
//! collide. Sketches use them as well, because RedisBloom reads and writes their cells.

/// MurmurHash64A: 64 bits, 8-byte blocks.
pub(crate) fn murmur64a(bytes: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(M);
    let blocks = bytes.chunks_exact(8);
    let tail = blocks.remainder();
    for block in blocks {
        let mut k = word(block).wrapping_mul(M);
        k = (k ^ k >> 47).wrapping_mul(M);
        hash = (hash ^ k).wrapping_mul(M);
    }
    if !tail.is_empty() {
        hash = (hash ^ word(tail)).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 47).wrapping_mul(M);
    hash ^ hash >> 47
}

/// MurmurHash2: 32 bits, 4-byte blocks.
#[inline]
pub fn murmur2(bytes: &[u8], seed: u32) -> u32 {
    let [hash] = murmur2_each(bytes, [seed]);
    hash
}

/// The [hash](murmur2) of the bytes with each of these seeds. Reads the bytes once, and one instruction works on
/// several hashes.
#[inline]
pub fn murmur2_each<const N: usize>(bytes: &[u8], seeds: [u32; N]) -> [u32; N] {
    const M: u32 = 0x5bd1_e995;
    let (blocks, tail) = bytes.as_chunks::<4>();
    let len = bytes.len() as u32;
    let mut hashes = seeds.map(|seed| seed ^ len);
    for block in blocks {
        let mut k = u32::from_le_bytes(*block).wrapping_mul(M);
        k = (k ^ k >> 24).wrapping_mul(M);
        hashes = hashes.map(|hash| hash.wrapping_mul(M) ^ k);
    }
    if !tail.is_empty() {
        let tail = tail.iter().rev().fold(0, |tail, byte| tail << 8 | u32::from(*byte));
        hashes = hashes.map(|hash| (hash ^ tail).wrapping_mul(M));
    }
    hashes.map(|hash| {
        let hash = (hash ^ hash >> 13).wrapping_mul(M);
        hash ^ hash >> 15
    })
}

/// The state of MurmurHash3 x64-128 with seed 0 after a string of bytes. It can be finished with or without one more
/// byte, so the string is read only once even if it is hashed with several different last bytes.
#[derive(Clone, Copy)]
pub(crate) struct Murmur3 {
    h1: u64,
    h2: u64,
    /// Bytes after the last block of 16, then zeros.
    last: [u8; 16],
    len: usize,
}

impl Murmur3 {
    pub(crate) fn new(bytes: &[u8]) -> Murmur3 {
        let (blocks, rest) = bytes.as_chunks::<16>();
        let mut last = [0; 16];
        last[..rest.len()].copy_from_slice(rest);
        let mut state = Murmur3 { h1: 0, h2: 0, last, len: bytes.len() };
        blocks.iter().for_each(|block| state.add(block));
        state
    }

    fn add(&mut self, block: &[u8; 16]) {
        let (k1, k2) = mixed(block);
        self.h1 ^= k1;
        self.h1 = self.h1.rotate_left(27).wrapping_add(self.h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        self.h2 ^= k2;
        self.h2 = self.h2.rotate_left(31).wrapping_add(self.h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }

    /// The hash of the bytes, as two words.
    pub(crate) fn finish(self) -> [u64; 2] {
        // A tail of zeros mixes to 0, so its length doesn't matter.
        let (k1, k2) = mixed(&self.last);
        let (mut h1, mut h2) = (self.h1 ^ k1 ^ self.len as u64, self.h2 ^ k2 ^ self.len as u64);
        h1 = h1.wrapping_add(h2);
        h2 = h2.wrapping_add(h1);
        (h1, h2) = (avalanche(h1), avalanche(h2));
        h1 = h1.wrapping_add(h2);
        [h1, h2.wrapping_add(h1)]
    }

    /// The hash of the bytes followed by one more.
    pub(crate) fn finish_with(mut self, byte: u8) -> [u64; 2] {
        self.last[self.len % 16] = byte;
        self.len += 1;
        if self.len.is_multiple_of(16) {
            let last = core::mem::take(&mut self.last);
            self.add(&last);
        }
        self.finish()
    }
}

/// The two words of a block, mixed.
fn mixed(block: &[u8; 16]) -> (u64, u64) {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    let (k1, k2) = (word(&block[..8]), word(&block[8..]));
    (
        k1.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2),
        k2.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1),
    )
}

/// MurmurHash3's final mixing of a word.
fn avalanche(mut k: u64) -> u64 {
    k = (k ^ k >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    k = (k ^ k >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ k >> 33
}

/// The little-endian value of up to 8 bytes.
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from RedisBloom (v2.0.1 and v1.1.0 for the old seeds) and from the Go package of bits-and-blooms.
    #[test]
    fn pinned_vectors() {
        const SEED: u64 = 0xc6a4_a793_5bd1_e995;
        for (item, a, b) in [
            (&b"hello"[..], 0x5ba5_b8a5_9803_e699, 0xa7d4_51d5_88a0_c2a4),
            (b"foo", 0x822b_4f99_b121_f10d, 0x9d63_d52a_557f_61c2),
            (b"", 0x1ab1_1ea5_a7b2_c56e, 0xbbdd_cb5a_b56d_d547),
            (b"0123456789abcdef", 0x7339_7e4f_b095_abef, 0x357e_078c_4cda_6880),
        ] {
            assert_eq!((murmur64a(item, SEED), murmur64a(item, a)), (a, b));
        }
        assert_eq!(murmur64a(b"hello", 0), 0x1e68_d17c_457b_f117);
        assert_eq!(murmur2(b"hello", 0x9747_b28c), 0x7f1d_dbbd);
        assert_eq!(murmur2(b"hello", 0x7f1d_dbbd), 0xed99_9d2d);
        assert_eq!(murmur2(b"foo", 0x9747_b28c), 0x23a2_56d0);
        assert_eq!(murmur2(b"hello", 0), 0xe561_29cb);
        for (item, hashes) in [
            (&b""[..], [0, 1_540_447_798, 3_080_895_597, 1_250_256_608]),
            (b"a", [2_456_313_694, 626_045_324, 754_329_161, 4_064_081_175]),
            (b"abc", [324_500_635, 1_621_425_345, 3_876_204_518, 3_632_428_247]),
            (b"abcd", [646_393_889, 3_376_380_438, 24_344_973, 2_176_146_243]),
            (b"hello world", [1_151_865_881, 2_213_174_766, 3_645_516_539, 4_221_574_969]),
        ] {
            assert_eq!(murmur2_each(item, [0, 1, 2, 1919]), hashes);
        }
        assert_eq!(Murmur3::new(b"hello").finish(), [0xcbd8_a7b3_41bd_9b02, 0x5b1e_906a_48ae_1d19]);
        assert_eq!(Murmur3::new(b"hello").finish_with(1), [0xb8ea_181a_11c6_bf22, 0x5e83_9703_b348_769c]);
    }

    #[test]
    fn a_suffix_is_one_byte_more() {
        for len in 0..50u8 {
            let bytes: Vec<u8> = (0..len).collect();
            let whole = Murmur3::new(&[&bytes[..], &[7]].concat());
            assert_eq!(Murmur3::new(&bytes).finish_with(7), whole.finish(), "{len}");
        }
    }
}
