//! Parquet's split-block filter, compared with the one in the crate `parquet`.

use super::export::exported;
use super::recorded::{add, lies_at};
use bloomery::filter::Foreign;
use bloomery::filter::foreign::Encoding;
use bloomery::parallel::alone;
use bloomery::wire::import;
use parquet::bloom_filter::Sbbf;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const QUESTIONS: usize = 100_000;

fn read(blob: &[u8]) -> Foreign {
    import::sbbf(blob, Encoding::Bytes, &alone).unwrap()
}

/// What Parquet writes to a file: header and bitset.
fn written(original: &Sbbf) -> Vec<u8> {
    let mut blob = Vec::new();
    original.write(&mut blob).unwrap();
    blob
}

fn bitset(original: &Sbbf) -> Vec<u8> {
    let mut blob = Vec::new();
    original.write_bitset(&mut blob).unwrap();
    blob
}

/// Random items, of all the lengths that XXH64 treats differently.
fn items(seed: u64, count: usize) -> Vec<Vec<u8>> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut item = || {
        let mut item = vec![0; random.random_range(0..80)];
        random.fill(&mut item[..]);
        item
    };
    (0..count).map(|_| item()).collect()
}

/// Tests the members, and absent items up to a total of [`QUESTIONS`], in both filters. The answers must be the same.
fn answer_alike(filter: &Foreign, original: &Sbbf, members: &[Vec<u8>]) {
    let strangers = items(99, QUESTIONS - members.len());
    for item in members.iter().chain(&strangers) {
        assert_eq!(filter.contains(item), original.check(&item[..]), "{item:02x?}");
    }
    assert!(members.iter().all(|item| filter.contains(item)));
}

#[test]
fn parquets_items_are_where_it_puts_them() {
    let empty = |blocks: usize| import::sbbf(&vec![0; 32 * blocks], Encoding::Bytes, &alone);
    lies_at(empty(4), b"hello", [20, 41, 74, 103, 137, 191, 220, 251]);
    lies_at(empty(1), b"", [29, 32, 89, 124, 142, 182, 221, 254]);
    let text = b"0123456789abcdef0123456789abcdef!";
    lies_at(empty(1024), text, [142084, 142134, 142167, 142196, 142229, 142248, 142297, 142316]);
    let long = import::sbbf(&[0; 96], Encoding::Long, &alone);
    let mut original = Sbbf::new(&[0; 96]);
    original.insert(&42i64);
    let mut long = long.unwrap();
    assert!(add(&mut long, b"42") && original.check(&42i64) && long.try_add(b"x").is_err());
    assert_eq!(crate::support::wire::body(&long), bitset(&original));
}

#[test]
fn parquets_filter_answers_as_it_did_and_takes_more() {
    for (count, rate) in [(1, 0.5), (50_000, 0.01), (20_000, 0.0001)] {
        let (members, more) = (items(1, count), items(2, count / 2));
        let mut original = Sbbf::new_with_ndv_fpp(count as u64, rate).unwrap();
        members.iter().for_each(|item| original.insert(&item[..]));
        let mut filter = read(&written(&original));
        assert_eq!(filter.origin(), "parquet");
        answer_alike(&filter, &original, &members);
        for item in &more {
            add(&mut filter, item);
            original.insert(&item[..]);
        }
        answer_alike(&filter, &original, &more);
        assert!(crate::support::wire::body(&filter) == bitset(&original));
        assert!(crate::support::wire::body(&read(&bitset(&original))) == bitset(&original));
        // In the other direction, Parquet reads what we export, and gives the same answers.
        let bytes = exported(&filter).unwrap();
        assert!(bytes == written(&original));
        let again = Sbbf::from_bytes(&bytes).unwrap();
        answer_alike(&filter, &again, &members);
        answer_alike(&read(&bytes), &again, &more);
    }
}

/// Compares the number of items and the current error rate, which follow from the fill, with the true values.
#[test]
fn what_is_told_of_parquets_filter_is_so() {
    // Short items might occur twice.
    let distinct = |seed, count| items(seed, 2 * count).into_iter().filter(|item| item.len() > 8).take(count);
    for per_block in [5, 12, 24] {
        let blocks = 1 << 12;
        let mut original = Sbbf::new_with_num_of_bytes(32 * blocks);
        let added = per_block * blocks;
        distinct(3, added).for_each(|item| original.insert(&item[..]));
        let filter = read(&bitset(&original));
        let asked = 400_000.0;
        let wrong = distinct(4, asked as usize).filter(|item| filter.contains(item)).count() as f64 / asked;
        let told = filter.rate_now();
        println!(
            "{per_block} a block: {told} told, {wrong} measured; {} items of {added}",
            filter.estimate()
        );
        assert!((filter.estimate() as f64 / added as f64 - 1.0).abs() < 0.01);
        assert!((told - wrong).abs() < 5.0 * (told / asked).sqrt() + 0.02 * told);
    }
}

#[test]
fn parquets_header_is_read() {
    let original = Sbbf::new_with_num_of_bytes(64);
    let blob = written(&original);
    assert_eq!(blob.len(), 16 + 64);
    let refused = |blob: &[u8]| import::sbbf(blob, Encoding::Bytes, &alone).unwrap_err().to_string();
    for len in (0..blob.len()).filter(|len| len % 32 != 0) {
        refused(&blob[..len]);
    }
    assert!(refused(&[]).contains("bitset"));
    for at in 0..16 {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut other = blob.clone();
            other[at] = value;
            assert!(
                other == blob || import::sbbf(&other, Encoding::Bytes, &alone).is_err(),
                "{value} at {at}"
            );
        }
    }
    // A negative number of bytes, and one that means more bits than fit in an i32.
    let mut other = blob.clone();
    other.splice(1..3, [0xff, 0x00]);
    assert!(refused(&other).contains("bitset"));
    other.splice(1..3, [0x80, 0x81, 0x80, 0x80, 0x80, 0x00]);
    assert!(refused(&other).contains("header"));
}
