//! Events are forgotten an hour after they came: `cargo run --release --example expiring`.

use bloomery::ExpiringBloom;
use std::error::Error;
use std::time::Duration;

const HOUR: u64 = 3_600_000;

fn main() -> Result<(), Box<dyn Error>> {
    // With the system's clock.
    let mut seen = ExpiringBloom::new(0.001, Duration::from_secs(3600))?;
    assert!(seen.insert("event 7")?, "it is new");
    assert!(!seen.insert("event 7")?, "it isn't, and its hour begins again");
    assert!(seen.contains("event 7"));

    // With times in the data, in milliseconds: a day of events, one per second.
    let mut seen = ExpiringBloom::new(0.001, Duration::from_secs(3600))?;
    let start = 1_800_000_000_000;
    for second in 0..86_400u64 {
        seen.insert_at(second, start + second * 1000)?;
    }
    let end = start + 24 * HOUR;
    let alive = (0..86_400u64).filter(|second| seen.contains_at(second, end)).count();
    println!("of 86,400 events, {alive} are remembered, in {} bytes", seen.get_ref().bytes());
    assert!((86_400 - 3600..86_400u64).all(|second| seen.contains_at(second, end)), "the last hour");
    assert!(alive < 4000, "events leave up to two minutes after their hour, and few test present by chance");
    assert!(!seen.contains_at(86_399u64, end + 2 * HOUR));
    Ok(())
}
