//! A filter that can be created, and the command that creates it.

use bloomery::options::{BLOOM, CUCKOO, DEFAULT_EXPANSION, Options, SIZE};
use bloomery::{CuckooSpec, Spec};

/// A filter that can be created: its parameters have been validated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    /// A Bloom filter of any family.
    Bloom(Spec),
    /// A cuckoo filter.
    Cuckoo(CuckooSpec),
}

/// The words of the BF.RESERVE or CF.RESERVE that creates the filter, or of the BF.REBUILD that begins a static one.
/// Options with default values are left out, and so is the seed.
pub fn command(wanted: &Wanted, key: &str) -> Vec<String> {
    let (name, size, mut options, usual) = match wanted {
        Wanted::Bloom(spec) if spec.is_static() => {
            let options = Options::of(spec, 0);
            let size = [vec!["BEGIN".into()], options.words(SIZE)].concat();
            ("BF.REBUILD", size, options, Options::usual())
        }
        Wanted::Bloom(spec) => {
            let size = vec![spec.error_rate.to_string(), spec.capacity.to_string()];
            ("BF.RESERVE", size, fewest(spec), Options::usual())
        }
        Wanted::Cuckoo(spec) => {
            let usual = Options::of_cuckoo(&CuckooSpec::new(spec.capacity));
            ("CF.RESERVE", vec![spec.capacity.to_string()], Options::of_cuckoo(spec), usual)
        }
    };
    options.seed = None;
    let table = if matches!(wanted, Wanted::Bloom(_)) { BLOOM } else { CUCKOO };
    [vec![name.into(), key.into()], size, options.words_unlike(&usual, table)].concat()
}

/// The options that this filter needs: each of the others is what follows from these.
fn fewest(spec: &Spec) -> Options {
    let given = Options::of(spec, 0);
    // The default tightening has no word.
    let tightening = given.tightening.filter(|tightening| tightening.ratio().is_some());
    let mut fewest = Options { since_ms: None, tightening, ..given };
    let steps: [fn(&mut Options); 4] = [
        |options| options.layout = None,
        |options| options.expansion = None,
        |options| options.on_full = None,
        |options| options.nonscaling = options.on_full.take().is_some(),
    ];
    for step in steps {
        let mut fewer = fewest.clone();
        step(&mut fewer);
        if fewer.kind(None, DEFAULT_EXPANSION) == fewest.kind(None, DEFAULT_EXPANSION) {
            fewest = fewer;
        }
    }
    fewest
}
