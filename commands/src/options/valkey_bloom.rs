//! The options of BF.INSERT that valkey-bloom has and RedisBloom doesn't.
//!
//! When valkey-bloom creates a filter, it sends a BF.INSERT with every parameter: `BF.INSERT key CAPACITY c ERROR e
//! TIGHTENING t SEED s (NONSCALING | EXPANSION x) [ITEMS item…]`. The seed is 32 raw bytes. A filter that is created
//! with such a seed is valkey-bloom's, because only valkey-bloom's hash uses one.

use super::Arguments;
use super::{integer, number};
use crate::call::Call;
use crate::error::CommandError;
use bloomery::filter::foreign::ValkeySpec;
use bloomery::filter::foreign::valkey_bloom::TIGHTENING;

/// The options of BF.INSERT that only valkey-bloom has.
#[derive(Clone, Copy, Default)]
pub(super) struct Dialect {
    pub(super) tightening: Option<f64>,
    pub(super) seed: Option<[u8; 32]>,
    pub(super) scale_to: Option<u64>,
}

impl Dialect {
    /// Reads the option that `word` names, and its value. The word is in upper case. Returns false if it isn't one of
    /// these options.
    pub(super) fn read<'a, C: Call<'a>>(
        &mut self,
        word: &[u8],
        words: &mut Arguments<'_, C>,
    ) -> Result<bool, CommandError> {
        let refuse = |why| Err(CommandError::ValkeyBloom(why));
        let mut value = || words.next().ok_or(CommandError::Arity);
        match word {
            b"TIGHTENING" => match number(value()?) {
                None => return refuse("ERR bad tightening ratio"),
                Some(ratio) if ratio > 0.0 && ratio < 1.0 => self.tightening = Some(ratio),
                Some(_) => return refuse("ERR (0 < tightening ratio range < 1)"),
            },
            b"SEED" => match value()?.try_into() {
                Ok(seed) => self.seed = Some(seed),
                Err(_) => return refuse("ERR invalid seed"),
            },
            b"VALIDATESCALETO" => match integer(value()?).map(u64::try_from) {
                Some(Ok(0)) => return refuse("ERR (capacity should be larger than 0)"),
                Some(Ok(items)) => self.scale_to = Some(items),
                _ => return refuse("ERR bad capacity"),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether any of these options was given. If so, ITEMS may be missing, as in valkey-bloom.
    pub(super) fn is_spoken(&self) -> bool {
        self.tightening.is_some() || self.seed.is_some() || self.scale_to.is_some()
    }

    /// The valkey-bloom filter that these options and the other parameters request. `None` without SEED.
    pub(super) fn spec(&self, capacity: u64, error_rate: f64, expansion: u32) -> Option<ValkeySpec> {
        let tightening = self.tightening.unwrap_or(TIGHTENING);
        self.seed.map(|seed| ValkeySpec { capacity, error_rate, expansion, tightening, seed })
    }
}

/// The arguments after the key with which BF.INSERT creates this chain, as valkey-bloom sends them.
pub(crate) fn creation(spec: &ValkeySpec) -> Vec<Vec<u8>> {
    let ValkeySpec { capacity, error_rate, expansion, tightening, seed } = spec;
    let [capacity, expansion] = [capacity.to_string(), expansion.to_string()];
    let [error_rate, tightening] = [error_rate, tightening].map(f64::to_string);
    let mut words: Vec<&[u8]> = vec![b"CAPACITY", capacity.as_bytes(), b"ERROR", error_rate.as_bytes()];
    words.extend([b"TIGHTENING", tightening.as_bytes(), b"SEED", seed]);
    match expansion.as_str() {
        "0" => words.push(b"NONSCALING"),
        _ => words.extend([&b"EXPANSION"[..], expansion.as_bytes()]),
    }
    words.into_iter().map(<[u8]>::to_vec).collect()
}
