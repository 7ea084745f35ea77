//! The footer of a DUMP payload: two bytes for the version of the RDB format and eight for a CRC-64, both
//! little-endian.

use crc::{CRC_64_REDIS, Crc};

static CRC: Crc<u64> = Crc::<u64>::new(&CRC_64_REDIS);

/// Size of the footer in bytes.
const FOOTER: usize = 10;

/// The RDB version in the footer; `None` if there are too few bytes for a footer.
pub(in crate::command) fn version(payload: &[u8]) -> Option<u16> {
    let footer = payload.len().checked_sub(FOOTER)?;
    Some(u16::from_le_bytes([payload[footer], payload[footer + 1]]))
}

/// Turns the payload into the one that a server with another RDB version would have written. Servers refuse payloads of
/// newer versions, and often those of the other product (Redis or Valkey). But a module's value is the same in all
/// versions.
///
/// The CRC covers the version. Because it starts at 0, it is linear, and leading zeros don't change it. So the new CRC
/// is the old one XOR the CRC of the change. It isn't recomputed from the value, so the target notices if the value
/// didn't arrive as the source sent it.
pub(in crate::command) fn set_version(payload: &mut [u8], to: u16) {
    let Some(from) = version(payload) else { return };
    let (_, footer) = payload.split_at_mut(payload.len() - FOOTER);
    let change = CRC.checksum(&(from ^ to).to_le_bytes());
    footer[..2].copy_from_slice(&to.to_le_bytes());
    for (byte, change) in footer[2..].iter_mut().zip(change.to_le_bytes()) {
        *byte ^= change;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(value: &[u8], version: u16) -> Vec<u8> {
        let mut payload = [value, &version.to_le_bytes()].concat();
        let crc = CRC.checksum(&payload);
        payload.extend(crc.to_le_bytes());
        payload
    }

    #[test]
    fn the_footer_is_that_of_the_other_version() {
        for to in [9, 10, 11, 12, 80, 1000] {
            let mut changed = payload(b"a value", 12);
            set_version(&mut changed, to);
            assert_eq!(changed, payload(b"a value", to));
            assert_eq!(version(&changed), Some(to));
        }
        assert_eq!(version(b"short"), None);
        set_version(&mut [], 9);
    }

    #[test]
    fn a_damaged_payload_keeps_a_wrong_checksum() {
        let mut damaged = payload(b"a value", 12);
        damaged[3] ^= 1;
        set_version(&mut damaged, 9);
        let (summed, crc) = damaged.split_at(damaged.len() - 8);
        assert_ne!(CRC.checksum(summed).to_le_bytes(), crc);
    }
}
