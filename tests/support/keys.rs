//! Keys that look like real ones: the members and the absent items of a test share most of their bytes.

/// What the keys look like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Keys {
    /// The index as text: 0, 1, 2, …
    Sequential,
    /// 36 characters, random except for the dashes and the bits for version and variant.
    Uuid,
    /// 80 bytes that all keys have in common, then a number.
    Url,
    /// One byte: at most 256 keys.
    Byte,
    /// 64 KiB, of which the last 8 bytes differ.
    Huge,
}

/// Makes the keys of one kind, each from its index.
pub(crate) struct Writer {
    keys: Keys,
    buffer: Vec<u8>,
}

const PREFIX: &[u8] = b"https://www.example.com/catalogue/2024/spring/clothing/outdoor/jackets/item?id=0";

impl Writer {
    pub(crate) fn new(keys: Keys) -> Writer {
        let buffer = match keys {
            Keys::Url => PREFIX.to_vec(),
            Keys::Huge => vec![b'x'; 64 * 1024],
            _ => Vec::new(),
        };
        Writer { keys, buffer }
    }

    pub(crate) fn key(&mut self, index: u64) -> &[u8] {
        match self.keys {
            Keys::Sequential => {
                self.buffer.clear();
                self.decimal(index);
            }
            Keys::Url => {
                self.buffer.truncate(PREFIX.len());
                self.decimal(index);
            }
            Keys::Uuid => self.uuid(index),
            Keys::Byte => self.buffer = vec![u8::try_from(index).expect("there are 256 bytes")],
            Keys::Huge => {
                let end = self.buffer.len();
                self.buffer[end - 8..].copy_from_slice(&index.to_le_bytes());
            }
        }
        &self.buffer
    }

    fn decimal(&mut self, mut index: u64) {
        let from = self.buffer.len();
        loop {
            self.buffer.push(b'0' + (index % 10) as u8);
            index /= 10;
            if index == 0 {
                break;
            }
        }
        self.buffer[from..].reverse();
    }

    /// A version 4 UUID from two outputs of SplitMix64 (Steele, Lea, Flood, 2014).
    fn uuid(&mut self, index: u64) {
        let halves = [split_mix(2 * index), split_mix(2 * index + 1)];
        self.buffer.clear();
        for (i, byte) in halves.iter().flat_map(|half| half.to_le_bytes()).enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                self.buffer.push(b'-');
            }
            let byte = match i {
                6 => byte & 0x0F | 0x40,
                8 => byte & 0x3F | 0x80,
                _ => byte,
            };
            self.buffer.extend([byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]));
        }
    }
}

/// A bijection that scatters numbers.
pub(crate) fn split_mix(index: u64) -> u64 {
    let mut z = index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
