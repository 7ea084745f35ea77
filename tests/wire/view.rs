//! A saved filter is tested where it is, with the answers of the loaded filter, and no bytes make it panic.

use crate::support::golden::{bytes, item, names};
use crate::support::{kinds, seeded, wire};
use bloomery::wire::{DecodeError, Decoder, Encoder};
use bloomery::{Bloom, Cell, Family, Filter, HashKind, Layout, Seed, Spec, StaticBuilder, View};

fn fixed(layout: Layout, capacity: u64, error_rate: f64) -> Spec {
    Spec { layout: Some(layout), seed: Seed::from(7), ..Spec::fixed(capacity, error_rate) }
}

fn built(spec: Spec, items: u64) -> Bloom {
    let mut builder = StaticBuilder::with_spec(spec).unwrap();
    (0..items).try_for_each(|item| builder.insert(item)).unwrap();
    builder.build().unwrap()
}

/// Whether the filter has a view, and that then both have the same answers, for these numbers of items.
fn agrees(filter: &Bloom, items: u64) -> bool {
    let bytes = filter.to_bytes();
    let view = match View::new(&bytes) {
        Ok(view) => view,
        Err(DecodeError::Kind) => return false,
        Err(why) => panic!("{why}"),
    };
    assert_eq!((view.spec(), view.items()), (filter.spec(), filter.items()));
    for number in (0..2 * items).step_by((items / 20_000).max(1) as usize) {
        assert_eq!(view.contains(number), filter.contains(number), "{number}, {:?}", filter.spec());
        assert!(number >= items || view.contains(view.hash(number)));
    }
    true
}

#[test]
fn a_view_answers_as_the_loaded_filter() {
    for (name, spec) in kinds::ALL {
        let mut filter = Bloom::new(seeded(&spec(), 3)).unwrap();
        (0..50u64).for_each(|item| _ = filter.insert(item).unwrap());
        let Spec { family, layout, cell, .. } = filter.spec();
        let is_viewable = matches!(family, Family::Fixed(_))
            && cell == Cell::Bit
            && layout.is_none_or(|layout| layout.has_probes() || layout.is_built());
        assert_eq!(agrees(&filter, 50), is_viewable, "{name}");
    }
    // Filters of several chunks, and of any number of probes or columns.
    for error_rate in [0.3, 0.01, 1e-5, 1e-9] {
        for layout in [Layout::Blocked, Layout::Classic, Layout::Partitioned] {
            for (shards, hash) in [(1, HashKind::Xxh3), (16, HashKind::SipHash)] {
                let spec = Spec { shards, hash, ..fixed(layout, 1_000_000, error_rate) };
                let mut filter = Bloom::new(spec).unwrap();
                (0..1_000_000u64).for_each(|item| _ = filter.insert(item).unwrap());
                assert!(agrees(&filter, 1_000_000));
            }
        }
        for layout in [Layout::Fuse, Layout::Ribbon] {
            let spec = fixed(layout, 1_000_000, error_rate);
            assert!(agrees(&built(spec, 1_000_000), 1_000_000));
            assert!(agrees(&built(spec, 0), 0) && agrees(&built(spec, 1), 1));
        }
    }
}

#[test]
fn golden_files_are_viewed_or_must_be_loaded() {
    let mut viewed = 0;
    for name in names() {
        let bytes = bytes(name);
        let Ok(Filter::Bloom(filter)) = Decoder::read(&bytes) else {
            assert_eq!(View::new(&bytes).err(), Some(DecodeError::Kind), "{name}");
            continue;
        };
        let Ok(view) = View::new(&bytes) else { continue };
        assert!((0..600).all(|i| view.contains(item(i)) == filter.contains(item(i))), "{name}");
        viewed += 1;
    }
    assert!(viewed >= 8, "{viewed}");
}

/// The place of each byte decides whether its damage is noticed. No damage makes a test panic.
#[test]
fn damaged_bytes_are_refused_or_only_give_other_answers() {
    for spec in
        [fixed(Layout::Blocked, 900, 0.01), fixed(Layout::Fuse, 300, 0.01), fixed(Layout::Ribbon, 300, 0.01)]
    {
        let filter = if spec.is_static() { built(spec, 200) } else { Bloom::new(spec).unwrap() };
        let bytes = filter.to_bytes();
        let head = Encoder::new(&filter).head().len();
        for len in 0..bytes.len() {
            assert!(View::new(&bytes[..len]).is_err(), "{len}");
        }
        assert!(View::new(&[&bytes[..], b"x"].concat()).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            match View::new(&damaged) {
                // The checksum of the cells isn't looked at.
                Ok(view) => {
                    assert!(bit / 8 >= head + 16, "{bit}");
                    (0..100u64).for_each(|item| _ = view.contains(item));
                }
                Err(_) => assert!(bit / 8 < head + 16 || bit / 8 >= bytes.len() - 8, "{bit}"),
            }
        }
        // With a valid checksum: a word that describes cells that the filter doesn't have.
        if spec.is_static() {
            for byte in bytes.len() - 8..bytes.len() {
                let mut forged = bytes.clone();
                forged[byte] ^= 0xFF;
                let at = wire::pieces(&forged);
                wire::seal(&mut forged, &at);
                assert_eq!(View::new(&forged).err(), Some(DecodeError::Field("cells")), "{byte}");
            }
        }
    }
}

#[test]
fn chunks_in_other_places_or_of_other_filters_are_refused() {
    let filter = Bloom::new(fixed(Layout::Blocked, 2_000_000, 0.01)).unwrap();
    let bytes = filter.to_bytes();
    let at = wire::pieces(&bytes);
    let swapped = [0, 2, 1, 3].map(|piece| &bytes[at[piece].clone()]).concat();
    assert_eq!(swapped.len(), bytes.len());
    assert!(View::new(&bytes).is_ok() && View::new(&swapped).is_err());
    let other = Bloom::new(Spec { seed: Seed::from(8), ..filter.spec() }).unwrap();
    let mixed = [Encoder::new(&other).head(), &bytes[at[1].start..]].concat();
    assert!(View::new(&mixed).is_err());
}
