//! Which slot a key routes to: CRC-16/XMODEM of the key, or of its `{tag}`, modulo 16384, as Redis
//! Cluster specifies it, so that related keys can be kept together by a tag.

/// Slots.
pub const SLOTS: u16 = 16_384;

/// The slot of `key`. If it has a `{` with a `}` behind it and something between the first such
/// pair, only that is hashed.
#[inline]
#[must_use]
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(tag_of(key)) % SLOTS
}

#[inline]
fn tag_of(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else {
        return key;
    };
    let behind = &key[open + 1..];
    match behind.iter().position(|&byte| byte == b'}') {
        Some(len) if len > 0 => &behind[..len],
        _ => key,
    }
}

#[inline]
fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = 0u16;
    let mut chunks = bytes.chunks_exact(4);
    for four in &mut chunks {
        // Four bytes at once: the table of a byte n places before the end advances it by n bytes.
        crc ^= u16::from_be_bytes([four[0], four[1]]);
        let [high, low] = crc.to_be_bytes();
        crc = TABLES[3][usize::from(high)]
            ^ TABLES[2][usize::from(low)]
            ^ TABLES[1][usize::from(four[2])]
            ^ TABLES[0][usize::from(four[3])];
    }
    for &byte in chunks.remainder() {
        let [high, low] = crc.to_be_bytes();
        crc = u16::from_be_bytes([low, 0]) ^ TABLES[0][usize::from(high ^ byte)];
    }
    crc
}

static TABLES: [[u16; 256]; 4] = tables();

const fn tables() -> [[u16; 256]; 4] {
    let mut tables = [[0u16; 256]; 4];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "byte is below 256")]
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 {
                (crc << 1) ^ 0x1021
            } else {
                crc << 1
            };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 4 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before << 8) ^ tables[0][(before >> 8) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_check_values_hold() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot_of(b"foo"), 12182);
        assert_eq!(slot_of(b""), 0);
    }

    #[test]
    fn four_bytes_at_once_give_what_one_at_a_time_gives() {
        let bytes: Vec<u8> = (0..1030u32)
            .map(|n| u8::try_from(n * n % 251).unwrap())
            .collect();
        for len in 0..bytes.len() {
            let slow = bytes[..len].iter().fold(0u16, |crc, &byte| {
                (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
                    if crc & 0x8000 != 0 {
                        (crc << 1) ^ 0x1021
                    } else {
                        crc << 1
                    }
                })
            });
            assert_eq!(crc16(&bytes[..len]), slow, "length {len}");
        }
    }

    #[test]
    fn only_the_first_non_empty_tag_counts() {
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(slot_of(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        assert_eq!(slot_of(b"foo{bar}{zap}"), slot_of(b"bar"));
        assert_eq!(slot_of(b"open{only"), crc16(b"open{only") % SLOTS);
    }
}
