//! Empty filters of other systems, created here: they are as large as the originals, and after adds of the same items,
//! they are equal to the originals.

use super::export::exported;
use super::recorded::{add, fixture, json, number};
use crate::support::rdb::numbered;
use bloomery::filter::Foreign;
use bloomery::filter::foreign::{Encoding, Growth, Link, LinkSpec, Scheme};
use parquet::bloom_filter::Sbbf;

fn reserved(scheme: Scheme, error_rate: f64, capacity: u64) -> Foreign {
    let link = Link::empty(LinkSpec::reserved(&scheme, error_rate, capacity).unwrap()).unwrap();
    Foreign::new(scheme, Encoding::Bytes, Growth::Bitmap, vec![link]).unwrap()
}

/// Bits and probes.
fn size(scheme: Scheme, error_rate: f64, capacity: u64) -> (u64, u32) {
    let spec = LinkSpec::reserved(&scheme, error_rate, capacity).unwrap();
    (spec.modulus, spec.probes)
}

/// The sizes were recorded from the originals: bits-and-blooms 3, Guava 31.1, Redisson 3. go-zero's authors recommend
/// 20 bits per item for an error rate of 0.000067.
#[test]
fn sizes_are_those_of_the_originals() {
    for (rate, capacity, bloom_v3, guava, redisson) in [
        (0.01, 100, (959, 7), (960, 7), (958, 7)),
        (0.001, 1000, (14378, 10), (14400, 10), (14377, 10)),
        (0.1, 10, (48, 4), (64, 3), (47, 3)),
    ] {
        assert_eq!(size(Scheme::BloomV3, rate, capacity), bloom_v3);
        assert_eq!(size(Scheme::GuavaMitz64, rate, capacity), guava);
        assert_eq!(size(Scheme::Redisson, rate, capacity), redisson);
    }
    assert_eq!(size(Scheme::Redisson, 0.03, 55_000_000), (401_414_246, 5));
    let (bits, probes) = size(Scheme::GoZero, 0.000_067, 1_000_000);
    assert!((bits as f64 / 20e6 - 1.0).abs() < 0.001 && probes == 14, "{bits}");
    // No original creates these.
    for (scheme, rate, capacity) in [
        (Scheme::Redisson, 0.01, 1 << 40),
        (Scheme::GuavaMitz64, 1e-12, 1 << 40),
        (Scheme::Redisson, 0.9999, 1),
        (Scheme::BloomV3, 1e-12, 1 << 48),
        (Scheme::GuavaMitz32, 0.01, 100),
    ] {
        assert_eq!(LinkSpec::reserved(&scheme, rate, capacity), None, "{scheme:?}");
    }
}

#[test]
fn parquets_filter_has_the_size_and_the_bits_of_the_original() {
    for rate in [0.5, 0.1, 0.05, 0.01, 0.001, 1e-6, 1e-12] {
        for capacity in [1, 7, 26, 100, 1000, 12_345, 1_000_000, 300_000_000] {
            let original = Sbbf::new_with_ndv_fpp(capacity, rate).unwrap();
            let bits = original.num_blocks() as u64 * 256;
            assert_eq!(size(Scheme::Sbbf, rate, capacity), (bits, 8), "{rate} {capacity}");
        }
    }
    let mut filter = reserved(Scheme::Sbbf, 0.01, 50_000);
    let mut original = Sbbf::new_with_ndv_fpp(50_000, 0.01).unwrap();
    for i in 0..50_000 {
        let item = numbered("item", i);
        add(&mut filter, &item);
        original.insert(&item[..]);
    }
    for i in 0..100_000 {
        let item = numbered("item", i);
        assert_eq!(filter.contains(&item), original.check(&item[..]), "{i}");
    }
    let mut bytes = Vec::new();
    original.write(&mut bytes).unwrap();
    assert!(exported(&filter).unwrap() == bytes);
}

/// Recreates the recorded file of bits-and-blooms from its parameters and its items.
#[test]
fn a_recorded_filter_comes_out_of_the_same_items() {
    let manifest = json("bits-and-blooms/manifest.json");
    let mut filter = reserved(Scheme::BloomV3, 0.001, 10_000);
    for i in 0..10_000 {
        add(&mut filter, &numbered("user", i));
    }
    assert_eq!(number(&manifest["m_bits"]), filter.cells());
    assert!(exported(&filter).unwrap() == fixture("bits-and-blooms/filter.bin"));
}
