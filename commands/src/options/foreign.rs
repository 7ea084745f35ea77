//! Options for other systems' filters: how their items are encoded, and which system's filter BF.RESERVE creates.

use super::bloom::{capacity, error_rate};
use super::{Arguments, printable, upper};
use crate::call::Call;
use crate::error::CommandError;
use bloomery::filter::foreign::{Encoding, Scheme};

/// An option that says how a filter's items are encoded.
pub(crate) struct ItemsOption {
    name: &'static str,
    expected: &'static str,
    encodings: &'static [Encoding],
    /// The option's value for items that are plain bytes.
    bytes: &'static str,
}

/// Guava's option.
pub(crate) const FUNNEL: ItemsOption = ItemsOption {
    name: "FUNNEL",
    expected: "BYTES, UTF16, LONG or INT",
    encodings: &[Encoding::Bytes, Encoding::Utf16, Encoding::Long, Encoding::Int],
    bytes: "BYTES",
};

/// Parquet's option.
pub(crate) const TYPE: ItemsOption = ItemsOption {
    name: "TYPE",
    expected: "BYTES, LONG or INT",
    encodings: &[Encoding::Bytes, Encoding::Long, Encoding::Int],
    bytes: "BYTES",
};

/// Redisson's option.
pub(crate) const CODEC: ItemsOption = ItemsOption {
    name: "CODEC",
    expected: "STRING, JSON or KRYO5",
    encodings: &[Encoding::Bytes, Encoding::Json, Encoding::Kryo5],
    bytes: "STRING",
};

/// No option, for systems whose items are always plain bytes.
const NO_OPTION: ItemsOption =
    ItemsOption { name: "", expected: "", encodings: &[Encoding::Bytes], bytes: "" };

impl ItemsOption {
    /// The option's value for this encoding.
    pub(crate) fn word(&self, encoding: Encoding) -> &'static str {
        if encoding == Encoding::Bytes { self.bytes } else { encoding.as_str() }
    }

    /// Reads the option's value.
    pub(crate) fn value<'a, C: Call<'a>>(
        &self,
        words: &mut Arguments<'_, C>,
    ) -> Result<Encoding, CommandError> {
        let known = |word: &[u8]| {
            let is_meant = |encoding: &&Encoding| word.eq_ignore_ascii_case(self.word(**encoding).as_bytes());
            self.encodings.iter().find(is_meant).copied()
        };
        words.value(self.name, self.expected, known)
    }
}

/// Reads the arguments starting at index `from`, among which only this option may occur. Returns the encoding of the
/// items: plain bytes if the option is missing.
pub(crate) fn items<'a, C: Call<'a>>(
    call: &C,
    from: usize,
    option: &ItemsOption,
) -> Result<Encoding, CommandError> {
    let mut encoding = Encoding::Bytes;
    let mut words = Arguments { call, next: from };
    while let Some(word) = words.next() {
        if !word.eq_ignore_ascii_case(option.name.as_bytes()) {
            return Err(CommandError::UnknownOption(printable(word)));
        }
        encoding = option.value(&mut words)?;
    }
    Ok(encoding)
}

/// The systems whose filters BF.RESERVE can create.
const SYSTEMS: [(&str, Scheme, ItemsOption); 5] = [
    ("SBBF", Scheme::Sbbf, TYPE),
    ("BLOOMV3", Scheme::BloomV3, NO_OPTION),
    ("GUAVA", Scheme::GuavaMitz64, FUNNEL),
    ("REDISSON", Scheme::Redisson, CODEC),
    ("GOZERO", Scheme::GoZero, NO_OPTION),
];

/// The index of the word SCHEME among the arguments of BF.RESERVE.
const SCHEME: usize = 4;

/// A filter of another system that a BF.RESERVE requests.
pub(crate) struct ForeignReservation {
    pub(crate) scheme: Scheme,
    pub(crate) encoding: Encoding,
    pub(crate) error_rate: f64,
    pub(crate) capacity: u64,
    /// The arguments after the key with which BF.RESERVE creates the same filter on a replica. These filters have no
    /// seed: the SEED at the end only shows that the command doesn't come from RedisBloom.
    pub(crate) creation: Vec<Vec<u8>>,
}

/// `BF.RESERVE key error_rate capacity SCHEME system [FUNNEL|TYPE|CODEC items] [SEED 0]`; `None` for any other
/// BF.RESERVE.
pub(crate) fn reservation<'a, C: Call<'a>>(call: &C) -> Result<Option<ForeignReservation>, CommandError> {
    let mut words = Arguments { call, next: SCHEME };
    if !words.next().is_some_and(|word| word.eq_ignore_ascii_case(b"SCHEME")) {
        return Ok(None);
    }
    let (error_rate, capacity) = (error_rate(call.arg(2))?, capacity(call.arg(3))?);
    let named = |word: &[u8]| SYSTEMS.iter().find(|(name, ..)| word.eq_ignore_ascii_case(name.as_bytes()));
    let (name, scheme, option) = words.value("SCHEME", "SBBF, BLOOMV3, GUAVA, REDISSON or GOZERO", named)?;
    let mut encoding = Encoding::Bytes;
    while let Some(word) = words.next() {
        match upper(word).as_slice() {
            word if word == option.name.as_bytes() => encoding = option.value(&mut words)?,
            b"SEED" => drop(words.value("SEED", "0 with SCHEME", |seed| (seed == b"0").then_some(seed))?),
            _ => return Err(CommandError::UnknownOption(printable(word))),
        }
    }
    let items = (encoding != Encoding::Bytes).then(|| [option.name, option.word(encoding)]);
    let words = [error_rate.to_string(), capacity.to_string(), "SCHEME".to_owned(), (*name).to_owned()];
    let words = words.into_iter().chain(items.into_iter().flatten().chain(["SEED", "0"]).map(str::to_owned));
    Ok(Some(ForeignReservation {
        scheme: *scheme,
        encoding,
        error_rate,
        capacity,
        creation: words.map(String::into_bytes).collect(),
    }))
}
