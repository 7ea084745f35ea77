//! Fills filters quickly: builds them with the library, then sends them to the server piece by piece.

use crate::items::{self, item};
use crate::server::{Server, query};
use anyhow::{Result, ensure};
use bloomery::wire::Encoder;
use bloomery::{Bloom, Family, ItemHash, Layer, Layout, Spec};
use std::ops::Range;

/// Number of items whose cache misses overlap, as in the server.
pub const GROUP: usize = 64;

/// The spec of a filter of fixed size.
pub fn fixed(capacity: u64, error_rate: f64, layout: impl Into<Option<Layout>>) -> Spec {
    Spec { layout: layout.into(), ..Spec::fixed(capacity, error_rate) }
}

/// The largest capacity at which a filter of this spec has a size of at most `bytes`.
pub fn capacity_for(spec: Spec, bytes: u64) -> Result<u64> {
    let (mut fits, mut exceeds) = (1u64, bytes.max(2) * 8);
    while exceeds - fits > 1 {
        let middle = fits.midpoint(exceeds);
        if Bloom::bytes_for(&Spec { capacity: middle, ..spec })? <= bytes {
            fits = middle;
        } else {
            exceeds = middle;
        }
    }
    Ok(fits)
}

/// Adds the items with these numbers to a layer.
pub fn fill<const W: usize>(filter: &Bloom, layer: &Layer, numbers: Range<u64>) {
    let mut start = numbers.start;
    while start < numbers.end {
        let end = (start + GROUP as u64).min(numbers.end);
        let mut group = [ItemHash::default(); GROUP];
        for (slot, number) in group.iter_mut().zip(start..end) {
            *slot = filter.hash(item::<W>(number)).into();
            layer.prefetch(*slot);
        }
        for hash in &group[..(end - start) as usize] {
            layer.insert_single_writer(*hash).expect("no filter here is overfull");
        }
        start = end;
    }
}

/// Makes a filter of one layer, and adds the items numbered below `items` to it.
pub fn filled<const W: usize>(spec: Spec, items: u64) -> Result<Bloom> {
    let filter = Bloom::new(spec)?;
    fill::<W>(&filter, &filter.layers()[0], 0..items);
    Ok(filter)
}

/// Makes a filter with the items numbered below `items`. In a window, they are spread over the generations so that each
/// generation would get the same share of all items numbered below `end`.
pub fn filled_in_turn<const W: usize>(spec: Spec, items: u64, end: u64) -> Result<Bloom> {
    let mut filter = Bloom::new(spec)?;
    for number in 0..items {
        if let Family::Window { generations, .. } = spec.family {
            filter.advance(number / end.div_ceil(generations.into()))?;
        }
        filter.add(item::<W>(number))?;
    }
    Ok(filter)
}

/// Sends the filter to the server, which stores it at `key`.
pub fn load(server: &Server, key: &str, filter: &Bloom) -> Result<()> {
    let mut client = server.client()?;
    let encoder = Encoder::new(filter);
    let mut send = |iterator: u64, piece: &[u8]| -> redis::RedisResult<()> {
        redis::cmd("BF.LOADCHUNK").arg(key).arg(iterator).arg(piece).query(&mut client)
    };
    send(1, encoder.head())?;
    let mut result = Ok(());
    encoder.chunks(|offset, piece| {
        if result.is_ok() {
            result = send(offset + 1, piece);
        }
    });
    Ok(result?)
}

/// Makes a filter as [`filled`] does, and stores it at `key` on the server.
pub fn serve<const W: usize>(server: &Server, key: &str, spec: Spec, items: u64) -> Result<()> {
    load(server, key, &filled::<W>(spec, items)?)
}

/// Adds the items with these numbers to the key. Sends one `command` for every 1000 items.
pub fn send(server: &Server, command: &str, key: &str, numbers: Range<u64>) -> Result<()> {
    let mut connection = server.connect()?;
    for start in numbers.clone().step_by(100_000) {
        let part: Vec<u64> = (start..(start + 100_000).min(numbers.end)).collect();
        let said = connection.run(&items::commands(command, key, &part, 1000))?;
        ensure!(said.error.is_none(), "{command}: {said:?}");
    }
    Ok(())
}

/// Makes the key for the floor's commands.
pub fn floor(server: &Server) -> Result<()> {
    query(&mut server.client()?, &["FLOOR.RESERVE", "floor"])
}

/// Makes the key for the commands that touch `each` cache lines per item. It is as large as a filter with this spec.
pub fn lines(server: &Server, spec: Spec, each: u16) -> Result<()> {
    let bytes = Bloom::bytes_for(&spec)?;
    query(&mut server.client()?, &["FLOOR.RESERVE", "lines", &bytes.to_string(), &each.to_string()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_fit_their_bytes() {
        for layout in [Some(Layout::Blocked), Some(Layout::Classic)] {
            let spec = fixed(1, 0.01, layout);
            let capacity = capacity_for(spec, 1 << 20).expect("a capacity");
            let bytes = |capacity| Bloom::bytes_for(&Spec { capacity, ..spec }).expect("a size");
            assert!(bytes(capacity) <= 1 << 20 && bytes(capacity + 1) > 1 << 20);
        }
    }

    #[test]
    fn what_is_filled_holds_its_items() {
        let filter = filled::<16>(fixed(1000, 0.01, None), 1000).expect("a filter");
        assert!((0..1000).all(|number| filter.contains(filter.hash(item::<16>(number)))));
        let strangers =
            (1000..2000).filter(|number| filter.contains(filter.hash(item::<16>(*number)))).count();
        assert!(strangers < 50);
    }
}
