//! Reads the filter or the sketch in a DUMP payload.

use super::rdb::{CRC, Found, MODULE, RdbReader, field};
use crate::server::family::{SKETCHES, TOP_K};

/// Reads the filter or sketch in a DUMP payload, and returns it with the RDB version. `None` if the payload isn't
/// intact, or contains something else.
pub(in crate::command) fn found(bytes: &[u8]) -> anyhow::Result<Option<(u16, Found)>> {
    let Some(value) = value_in(bytes) else { return Ok(None) };
    let version = bytes.get(value.len()..).and_then(|footer| footer.first_chunk().copied());
    let version = u16::from_le_bytes(version.unwrap_or_default());
    let mut reader = RdbReader::new(value);
    reader.byte()?;
    let Some((key_type, value)) = reader.module_value()? else { return Ok(None) };
    reader.end()?;
    let found = Found { at: 1, database: 0, key: Vec::new(), expires_ms: None, key_type, value };
    Ok(Some((version, found)))
}

/// Size of an entry of a Top-K's heap in bytes.
const ENTRY: usize = 24;

/// Reads the fields of a sketch in a DUMP payload. Of a Top-K, without what RedisBloom fills with pointers and padding.
/// `None` if the payload isn't intact, or doesn't contain a sketch.
pub(in crate::command) fn sketch(bytes: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
    let Some(value) = value_in(bytes) else { return Ok(None) };
    let mut reader = RdbReader::new(value);
    reader.byte()?;
    let (name, _) = reader.type_name()?;
    let Some(sketch) = SKETCHES.iter().find(|sketch| sketch.key_type.as_bytes() == name) else {
        return Ok(None);
    };
    let (mut fields, mut strings) = (name, 0);
    loop {
        let kind = reader.length()?;
        match kind {
            field::END => break,
            field::UNSIGNED => fields.extend(reader.length()?.to_le_bytes()),
            field::DOUBLE => fields.extend(reader.array::<8>()?),
            field::STRING => {
                let mut string = reader.string(u64::MAX)?;
                strings += 1;
                // The second string is the heap.
                if sketch.key_type == TOP_K && strings == 2 {
                    for entry in string.chunks_exact_mut(ENTRY) {
                        entry[8..16].fill(0);
                        entry[20..].fill(0);
                    }
                }
                fields.extend((string.len() as u64).to_le_bytes());
                fields.extend(string);
            }
            _ => return Ok(None),
        }
    }
    reader.end()?;
    Ok(Some(fields))
}

/// The value in a DUMP payload. `None` if the payload isn't intact, or doesn't contain a module's value.
fn value_in(bytes: &[u8]) -> Option<&[u8]> {
    let (value, footer) = bytes.split_last_chunk::<10>()?;
    let is_intact = CRC.checksum(&bytes[..bytes.len() - 8]).to_le_bytes() == footer[2..];
    (is_intact && value.first() == Some(&MODULE)).then_some(value)
}
