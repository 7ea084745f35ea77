//! Reads and writes the golden files, and makes filters. `scripts/library` runs this with and without `std`, and
//! compares what it prints.

use bloomery::{Bloom, Cell, Cuckoo, CuckooSpec, Error, Filter, HashKind, Layout, Seed, Spec, StaticBuilder};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

fn main() {
    golden();
    for spec in specs() {
        match filter(spec) {
            Ok(bytes) => println!("{spec:?}: {} bytes, {:016x}", bytes.len(), digest(&bytes)),
            Err(why) => println!("{spec:?}: {why}"),
        }
    }
    let mut cuckoo = Cuckoo::new(CuckooSpec { seed: Seed::from(7), ..CuckooSpec::new(100) }).unwrap();
    cuckoo.extend((0..1000u32).map(u32::to_le_bytes));
    println!("cuckoo: {:016x}", digest(&cuckoo.to_bytes()));
    let drawn = Bloom::growing(0.01);
    assert_eq!(drawn.err(), if cfg!(feature = "std") { None } else { Some(Error::NoRandomness) });
}

/// Every golden file is written as it was read.
fn golden() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "bin")).collect();
    files.sort();
    assert!(files.len() > 40, "these are not the golden files");
    for path in files {
        let bytes = std::fs::read(&path).unwrap();
        assert!(Filter::from_bytes(&bytes).unwrap().to_bytes() == bytes, "{}", path.display());
        assert!(Filter::from_bytes(&bytes[..bytes.len() - 1]).is_err(), "{}", path.display());
    }
}

/// Filters of all layouts, and of sizes at which a difference in the last bit of a logarithm could show.
fn specs() -> impl Iterator<Item = Spec> {
    let rates = [0.3, 0.01, 0.001, 1e-6];
    let capacities = [1, 100, 1000, 4321];
    rates.into_iter().flat_map(move |rate| {
        let plain = capacities.into_iter().flat_map(move |capacity| {
            let layouts = [None].into_iter().chain(Layout::ALL.iter().copied().map(Some));
            layouts.map(move |layout| Spec { layout, ..Spec::fixed(capacity, rate) })
        });
        let others = [
            Spec::growing(rate),
            Spec::scaling(10, rate),
            Spec { layout: Some(Layout::Blocked), ..Spec::scaling(10, rate) },
            Spec { cell: Cell::Counter8, layout: Some(Layout::Classic), ..Spec::fixed(1000, rate) },
            Spec { shards: 8, layout: Some(Layout::Partitioned), ..Spec::fixed(1000, rate) },
            Spec { hash: HashKind::SipHash, ..Spec::window(1000, rate, 4) },
        ];
        plain.chain(others).map(|spec| Spec { seed: Seed::from(7), ..spec })
    })
}

fn filter(spec: Spec) -> Result<Vec<u8>, Error> {
    let items = if spec.kind() == "scaling" { 1000 } else { spec.capacity.min(1000) as u32 };
    let items = (0..items).map(u32::to_le_bytes);
    if spec.is_static() {
        let mut builder = StaticBuilder::with_spec(spec)?;
        { items }.try_for_each(|item| builder.insert(item))?;
        return Ok(builder.build()?.to_bytes());
    }
    let mut filter = Bloom::new(spec)?;
    for item in items {
        filter.insert(item)?;
    }
    Ok(filter.to_bytes())
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
