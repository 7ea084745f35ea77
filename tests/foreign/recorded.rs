//! Helpers that compare filters with what the original systems wrote and answered, recorded in vectors and in
//! tests/fixtures. An imported filter gives the same answers, including false positives.

use crate::support::rdb::numbered;
use crate::support::wire;
use bloomery::Added;
use bloomery::filter::Foreign;
use bloomery::wire::DecodeError;
use serde_json::Value as Json;
use std::path::PathBuf;

pub(super) fn add(filter: &mut Foreign, item: &[u8]) -> bool {
    let before = filter.contains(item);
    let added = filter.try_add(item).unwrap();
    assert_eq!(added, Added { added: !before, changed: !before });
    assert!(filter.contains(item));
    added.added
}

/// Positions of the bits that are set.
pub(super) fn positions(filter: &Foreign) -> Vec<usize> {
    let bits = wire::body(filter);
    (0..bits.len() * 8).filter(|bit| bits[bit / 8] >> (bit % 8) & 1 == 1).collect()
}

/// Adds the item to an empty filter, and checks that exactly the bits at these positions are set.
pub(super) fn lies_at<const N: usize>(
    filter: Result<Foreign, DecodeError>,
    item: &[u8],
    expected: [usize; N],
) {
    let mut filter = filter.unwrap();
    assert!(add(&mut filter, item));
    let expected: std::collections::BTreeSet<_> = expected.into();
    assert_eq!(positions(&filter), expected.into_iter().collect::<Vec<_>>(), "{item:?}");
}

pub(super) fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    std::fs::read(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

pub(super) fn json(name: &str) -> Json {
    serde_json::from_slice(&fixture(name)).unwrap()
}

pub(super) fn number(json: &Json) -> u64 {
    json.as_u64().unwrap()
}

pub(super) fn numbers(json: &Json) -> Vec<u64> {
    json.as_array().unwrap().iter().map(number).collect()
}

/// Checks that every member is found, and, of the absent items, exactly those that the original found.
pub(super) fn answers_alike(
    contains: impl Fn(&[u8]) -> bool,
    prefix: &str,
    members: std::ops::Range<u64>,
    absent: std::ops::Range<u64>,
    found: &[u64],
) {
    assert!(members.clone().all(|i| contains(&numbered(prefix, i))), "{prefix}: a member is missing");
    let wrong: Vec<_> = absent.filter(|i| contains(&numbered(prefix, *i))).collect();
    assert_eq!(wrong, found, "{prefix}: other false positives");
}
