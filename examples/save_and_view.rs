//! A filter is saved, tested in the bytes of its file, and loaded: `cargo run --release --example save_and_view`.

use bloomery::{Bloom, View};
use std::error::Error;
use std::fs::{self, File};

fn main() -> Result<(), Box<dyn Error>> {
    let mut filter = Bloom::fixed(1_000_000, 0.01)?;
    for number in 0..1_000_000u64 {
        filter.insert(number)?;
    }
    let path = std::env::temp_dir().join(format!("save_and_view-{}.bloom", std::process::id()));
    filter.write_to(File::create(&path)?)?;

    // The bytes can also be a map of the file, by a crate such as memmap2. Then only the parts that are tested are
    // read, and processes that map the file share its memory.
    let bytes = fs::read(&path)?;
    let view = View::new(&bytes)?;
    assert!((0..1_000_000u64).all(|number| view.contains(number)));
    let wrong = (1_000_000..2_000_000u64).filter(|number| view.contains(number)).count();
    println!("{} items in {} bytes; of a million others, {wrong} test present", view.items(), bytes.len());

    // A loaded filter accepts more items. Loading verifies all checksums.
    let mut loaded = Bloom::read_from(File::open(&path)?)?;
    assert_eq!(loaded, filter);
    println!("one more item: {:?}", loaded.insert("ada"));
    fs::remove_file(&path)?;
    Ok(())
}
