//! The smallest filter for numbers that are all known, 10 million by default:
//! `cargo run --release --example static_set -- 10000000`.

use bloomery::{Layout, Spec, StaticBuilder};
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let count = std::env::args().nth(1).map_or(Ok(10_000_000), |number| number.parse::<u64>())?;
    // Any numbers; repeated ones would count once.
    let numbers = || (0..count).map(|index| index.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    // A seed that nobody can guess, so that nobody can choose numbers that test present.
    let spec = Spec::fixed(count, 0.01).with_random_seed()?;
    for layout in [Layout::Fuse, Layout::Ribbon] {
        let started = Instant::now();
        let mut builder = StaticBuilder::with_spec(Spec { layout: Some(layout), ..spec })?;
        numbers().try_for_each(|number| builder.insert(number))?;
        let filter = builder.build()?;
        let built = started.elapsed();

        let started = Instant::now();
        assert!(numbers().all(|number| filter.contains(number)), "no number is missing");
        let tested = started.elapsed();
        let wrong = numbers().filter(|number| filter.contains(number ^ 1 << 63)).count();
        println!(
            "{layout}: {:.2} bits per number, {:.2}% false positives; built in {built:.1?}, tested in {tested:.1?}",
            filter.bytes() as f64 * 8.0 / count as f64,
            100.0 * wrong as f64 / count as f64,
        );
    }
    Ok(())
}
