//! A filter of the users who are online, from which they are deleted: `cargo run --release --example deletes`.

use bloomery::Bloom;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut online = Bloom::counting(10_000, 0.001)?;
    for user in 0..10_000u32 {
        online.insert(user)?;
    }
    // Delete only what was added: a delete of another item might take an item with it that shares its counters.
    for user in 0..9_000u32 {
        assert!(online.remove(user)?.present);
    }
    // Each insert counts, so a user with two devices is deleted twice.
    online.insert(9_500u32)?;
    online.remove(9_500u32)?;
    assert!((9_000..10_000u32).all(|user| online.contains(user)), "nobody else has left");

    let wrong = (0..9_000u32).filter(|user| online.contains(*user)).count();
    println!("{} users are online, in {} bytes", online.items(), online.bytes());
    println!("of 9,000 who left, {wrong} still test present");
    assert!(wrong < 50);
    Ok(())
}
