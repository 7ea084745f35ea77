//! Exported bytes are the ones that the original system writes, and can be imported again.

use super::recorded::{fixture, json, number};
use crate::support::rdb::hex;
use crate::support::{describe, golden};
use bloomery::Filter;
use bloomery::filter::Foreign;
use bloomery::filter::foreign::{Encoding, Scheme};
use bloomery::parallel::alone;
use bloomery::wire::import::{self, bitmap};
use bloomery::wire::{DecodeError, Export};

/// The bytes that BF.EXPORT returns; `None` for RedisBloom's filters.
pub(super) fn exported(filter: &Foreign) -> Option<Vec<u8>> {
    let export = Export::new(filter)?;
    let bytes = export.read(0, usize::MAX);
    assert_eq!(bytes.len() as u64, export.len());
    Some(bytes)
}

/// The filter that BF.IMPORT creates from these bytes. Parameters that the bytes don't contain come from `like`.
pub(super) fn imported(like: &Foreign, bytes: &[u8]) -> Result<Foreign, DecodeError> {
    let spec = like.links()[0].spec();
    let encoding = like.encoding();
    match like.scheme() {
        Scheme::GoZero => bitmap::go_zero(spec.modulus, spec.probes, bytes, &alone),
        Scheme::Redisson => bitmap::redisson(spec.modulus, spec.probes, encoding, bytes, &alone),
        Scheme::BloomV3 => import::bloom_v3(bytes, &alone),
        Scheme::GuavaMitz32 | Scheme::GuavaMitz64 => import::guava(bytes, encoding, &alone),
        Scheme::Sbbf => import::sbbf(bytes, encoding, &alone),
        Scheme::ValkeyBloom { .. } => import::valkey_bloom_payload(bytes, &alone),
        Scheme::RedisBloom(_) => panic!("not in one string"),
    }
}

/// Everything about a filter that its file contains, for every system except valkey-bloom. The number of items isn't
/// part of it, because an import estimates this number from the bits.
fn essence(filter: Foreign) -> (Scheme, Encoding, Vec<u8>) {
    (*filter.scheme(), filter.encoding(), crate::support::wire::body(&filter))
}

#[test]
fn filters_of_every_system_come_back() {
    let mut systems = std::collections::BTreeSet::new();
    for (name, recipe) in golden::FOREIGN {
        let filter = recipe();
        let Some(bytes) = exported(&filter) else {
            assert_eq!(filter.origin(), "redisbloom", "{name}");
            continue;
        };
        systems.insert(filter.origin());
        let back = imported(&filter, &bytes).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert!(exported(&back).unwrap() == bytes, "{name}");
        if filter.origin() == "valkey-bloom" {
            let boxed = |filter| Filter::Foreign(Box::new(filter));
            assert_eq!(describe(&boxed(back)), describe(&boxed(filter)), "{name}");
        } else {
            assert!(essence(back) == essence(filter), "{name}");
        }
    }
    assert_eq!(systems.len(), 6, "{systems:?}");
}

/// A piece of any length, from any offset, equals the same part of the whole export.
#[test]
fn pieces_are_those_of_the_whole() {
    for (name, recipe) in golden::FOREIGN {
        let filter = recipe();
        let Some(export) = Export::new(&filter) else { continue };
        let whole = export.read(0, usize::MAX);
        for count in [1, 3, 7, 8, 64, 1000] {
            for offset in 0..=whole.len() + 1 {
                let expected: Vec<u8> = whole.iter().skip(offset).take(count).copied().collect();
                assert_eq!(export.read(offset as u64, count), expected, "{name}: {count} from {offset}");
            }
        }
        assert_eq!(export.read(u64::MAX, 9), [0; 0], "{name}");
    }
}

/// Filters written by the originals are exported unchanged.
#[test]
fn recorded_files_come_out_as_they_came() {
    for name in ["filter.bin", "filter.writeto"] {
        let file = fixture(&format!("bits-and-blooms/{name}"));
        assert!(exported(&import::bloom_v3(&file, &alone).unwrap()).unwrap() == file, "{name}");
    }
    let file = hex("0103000000010000010400000020");
    assert_eq!(exported(&import::guava(&file, Encoding::Bytes, &alone).unwrap()).unwrap(), file);
    let manifest = json("go-zero/manifest.json");
    let (bits, maps) = (number(&manifest["bits"]), number(&manifest["maps"]) as u32);
    let mut file = fixture("go-zero/bitmap.bin");
    let bytes = exported(&bitmap::go_zero(bits, maps, &file, &alone).unwrap()).unwrap();
    // The original's string ends with the byte that contains its last set bit.
    file.resize(bits.div_ceil(8) as usize, 0);
    assert!(bytes == file);
}
