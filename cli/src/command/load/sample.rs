//! A sample of the items in a batch that was added. Before anything else is added, the filter is tested for these
//! items.
//!
//! A filter never says no to an item that it has. So a "no" shows that the filter was emptied, replaced or restored
//! from an older copy, even if other clients have added as many items since then.

use crate::input::items_of;

/// Maximum number of items in a sample. If a filter with an error rate of 5% has none of 16 items, it says yes to all
/// of them in fewer than 1 of 10^20 cases.
const ITEMS: usize = 16;
/// Maximum length in bytes of an item in a sample. A sample is sent with each batch.
const ITEM_BYTES: usize = 4096;

/// Items that must be in the filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) items: Vec<Vec<u8>>,
    /// The filter's number of deletes and rotations before these items were added.
    pub(super) then: String,
}

impl Sample {
    /// Selects some of the items whose flag is set. They are spread over the whole batch, because its beginning or end
    /// may repeat one item many times.
    pub(super) fn of(blob: &[u8], taken: &[bool], then: String) -> Sample {
        let step = taken.iter().filter(|is_in| **is_in).count().div_ceil(ITEMS).max(1);
        let items = items_of(blob).zip(taken).filter(|(_, is_in)| **is_in).step_by(step);
        let short = items.filter(|(item, _)| item.len() <= ITEM_BYTES);
        Sample { items: short.map(|(item, _)| item.to_vec()).collect(), then }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::blob;

    #[test]
    fn a_sample_is_of_items_that_are_in() {
        let names: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        let of = |taken: &[bool]| {
            let blob = blob(names.iter().map(String::as_bytes)).unwrap();
            Sample::of(&blob, taken, "7".into()).items
        };
        let all = of(&[true; 100]);
        assert_eq!((all.len(), all[0].as_slice(), all[14].as_slice()), (15, &b"0"[..], &b"98"[..]));
        assert_eq!(of(&[false, true, false, true]), [b"1", b"3"]);
        assert!(of(&[]).is_empty());
    }

    #[test]
    fn long_items_are_left_out() {
        let long = vec![b'x'; ITEM_BYTES + 1];
        let blob = blob([&long[1..], &long, b"ada"]).unwrap();
        assert_eq!(Sample::of(&blob, &[true; 3], String::new()).items, [&long[1..], b"ada"]);
    }
}
