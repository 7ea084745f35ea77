//! The check at the end: the same items are tested on both sides.

use super::carry::Migration;
use super::failed::Failed;
use super::side::Key;
use super::{Options, Report, Trouble, said};
use crate::error::fail;
use crate::input::{BatchLimits, Input, InputFormat, Items, items_of};
use crate::output::Name;
use crate::output::progress::Progress;
use crate::server::scan::rest_since;
use bloomery::{HashKind, Seed};
use std::path::Path;
use std::time::Instant;

/// Number of items in one query.
const BATCH: usize = 1000;

/// Maximum number of random items to test in all filters together. Each filter gets the same share, and what others
/// don't need.
const MOST_ASKED: u64 = 1_000_000;

/// Minimum share of a filter, as fewer answers say little. If there isn't enough for all, the last filters get none.
const LEAST_ASKED: u64 = 100;

/// Tests the same items on both sides, for every filter that both sides have.
pub(super) fn compare(migration: &mut Migration, keys: &[Key], options: &Options) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let mut progress = Progress::new(&options.pace, Some(keys.iter().map(|key| key.bytes).sum()), 0);
    let (mut done, mut left) = (0, MOST_ASKED);
    for (index, key) in keys.iter().enumerate() {
        progress.at(done, 0);
        done += key.bytes;
        if migration.failed.contains_key(&key.name) {
            continue;
        }
        let share = share(left, keys.len() - index);
        match compare_one(migration, key, share, options, &mut report) {
            Ok(asked) => left = left.saturating_sub(asked),
            Err(Failed::Run(error)) => return Err(error),
            // It isn't a failure if a filter has since been deleted at the source.
            Err(Failed::Filter(why) | Failed::ThisTime(why)) if migration.source.has(&key.name)? => {
                migration.wrong.insert(key.name.clone(), why.clone());
                migration.failed.insert(key.name.clone(), why);
            }
            Err(_) => {}
        }
    }
    progress.finish();
    let good = || keys.iter().filter(|key| !migration.failed.contains_key(&key.name));
    report.copied = good().filter(|key| migration.copied.contains_key(&key.name)).count();
    report.bytes = good().filter_map(|key| migration.copied.get(&key.name)).sum();
    report.equal_before = good().count() - report.copied;
    let trouble = |(name, why): (&Vec<u8>, &String)| Trouble { key: Name::new(name), why: said(why) };
    report.failed = migration.failed.iter().map(trouble).collect();
    Ok(report)
}

/// Number of random items to test in the next filter, if `left` may be tested in the remaining `filters` together.
fn share(left: u64, filters: usize) -> u64 {
    (left / filters as u64).max(LEAST_ASKED).min(left)
}

/// Tests items in one filter, and compares its numbers. If the bits were compared, at most `share` of the items are
/// random. Returns how many random items were tested.
fn compare_one(
    migration: &mut Migration,
    key: &Key,
    share: u64,
    options: &Options,
    report: &mut Report,
) -> Result<u64, Failed> {
    let Some(family) = key.held.family() else { return Ok(0) };
    // If the bits were compared, answers only show that both servers read them in the same way.
    let (wanted, most) = match migration.in_pieces(key) {
        Some(_) => (options.sample.min(migration.items(family, &key.name)?), share),
        None => (options.sample, u64::MAX),
    };
    let random = wanted.min(most);
    report.unasked += u64::from(random == 0 && wanted > 0);
    let mut answered = Ok(());
    batches(options, random, |items| {
        let start = Instant::now();
        answered = migration.check(family, &key.name, &items).map(|yes| {
            report.answers += items.len() as u64;
            report.answers_yes += yes;
        });
        // A few items cost a server nothing, and the time of many round trips is the network's.
        if items.len() == BATCH {
            rest_since(start);
        }
        answered.is_ok()
    })
    .map_err(Failed::Run)?;
    answered?;
    migration.different_field(key)?.map_or(Ok(random), |field| Err(Failed::Filter(field)))
}

/// Calls `ask` with batches of the items to test, until it returns false.
///
/// The random items are almost certainly absent. So if there are many times 1 / error rate of them, and all answers
/// agree, both sides almost certainly have the same bits.
fn batches(options: &Options, random: u64, mut ask: impl FnMut(Vec<Vec<u8>>) -> bool) -> anyhow::Result<()> {
    let seed = Seed::random(HashKind::Xxh3)?;
    let first = u128::from(seed);
    let item = |number: u64| format!("{:032x}", first.wrapping_add(number.into())).into_bytes();
    let mut next = 0;
    while next < random {
        let end = random.min(next + BATCH as u64);
        if !ask((next..end).map(item).collect()) {
            return Ok(());
        }
        next = end;
    }
    let Some(file) = &options.check else { return Ok(()) };
    let mut lines = items(file, options.binary)?;
    while let Some(batch) = lines.next_batch(BatchLimits { items: BATCH as u64, bytes: 1 << 20 })? {
        if !ask(items_of(&batch.blob).map(<[u8]>::to_vec).collect()) {
            break;
        }
    }
    Ok(())
}

/// Opens the file with the items to test. It is read once for each filter.
pub(super) fn items(file: &Path, binary: bool) -> anyhow::Result<Items> {
    if file.as_os_str() == "-" {
        fail!(Usage, "--check needs a file, which can be read more than once");
    }
    if file.metadata().is_ok_and(|data| !data.is_file()) {
        fail!(
            Usage,
            "--check {}: this is not a regular file, so it cannot be read more than once",
            file.display()
        );
    }
    Input { file: file.to_owned(), format: InputFormat { binary, ..InputFormat::default() } }.open()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_filters_together_get_a_million() {
        let asked = |wanted: &[u64]| {
            let (mut left, count) = (MOST_ASKED, wanted.len());
            let ask = |(index, wanted): (usize, &u64)| {
                let asked = share(left, count - index).min(*wanted);
                left -= asked;
                asked
            };
            wanted.iter().enumerate().map(ask).collect::<Vec<_>>()
        };
        assert_eq!(asked(&[2_000_000]), [1_000_000]);
        assert_eq!(asked(&[10_000; 50]), [10_000; 50]);
        assert_eq!(asked(&[10_000; 200]), [5_000; 200]);
        assert_eq!(asked(&[0, 7, 900_000, 900_000]), [0, 7, 499_996, 499_997]);
        let many = asked(&[10_000; 20_000]);
        assert_eq!((many[9_999], many[10_000], many.iter().sum()), (100, 0, MOST_ASKED));
    }
}
