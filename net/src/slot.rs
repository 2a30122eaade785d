//! The slot of a key: CRC-16/XMODEM of the key, or of its `{tag}`, modulo 16384, as Redis Cluster
//! specifies it. Keys with the same tag have the same slot.

use std::ops::RangeInclusive;

/// Number of slots.
pub const SLOTS: u16 = 16_384;

/// The slot of `key`. If the first `{` of the key and the first `}` behind it enclose at least one
/// byte, only the enclosed bytes are hashed.
#[inline]
#[must_use]
pub fn slot_of(key: &[u8]) -> u16 {
    let (strides, rest) = key.as_chunks::<STRIDE>();
    // Most keys have no brace: the sum is taken, and then thrown away for those that have one.
    let (mut crc, mut braces) = (0, 0);
    for stride in strides {
        crc = advance(crc, stride);
        braces |= braces_in(u64::from_le_bytes(*stride));
    }
    match braces != 0 || rest.contains(&b'{') {
        true => crc16(tag_in(key)) % SLOTS,
        false => advance(crc, rest) % SLOTS,
    }
}

/// The `{tag}` that a key begins with, braces included: every key that begins with these bytes has
/// the same slot. `None` if it begins otherwise; [`slot_of`] decides then.
#[inline]
#[must_use]
pub fn leading_tag(key: &[u8]) -> Option<&[u8]> {
    if key.first() != Some(&b'{') {
        return None;
    }
    match key.iter().position(|&byte| byte == b'}') {
        // An empty tag is none.
        None | Some(1) => None,
        Some(close) => Some(&key[..=close]),
    }
}

/// Whether two keys begin with the same `{tag}`, so that both have one slot. Keys of one slot that
/// begin otherwise are not told apart from others: [`slot_of`] does.
#[inline]
#[must_use]
pub fn begin_with_one_tag(one: &[u8], other: &[u8]) -> bool {
    leading_tag(one).is_some_and(|tag| other.starts_with(tag))
}

/// Slots of a partition: what belongs together on each node, whatever its number of shards.
pub(crate) const PARTITION_SLOTS: u16 = 64;

/// The partitions of all slots.
const PARTITIONS: u16 = SLOTS / PARTITION_SLOTS;

/// The core that owns a slot on a node of so many cores, 1 to 256: each core has neighbouring
/// partitions, and nearly as many as each other one.
#[inline]
#[must_use]
pub fn core_of(slot: u16, cores: u16) -> u16 {
    slot / PARTITION_SLOTS * cores / PARTITIONS
}

/// The slots that a core owns on a node of so many cores, 1 to 256.
#[must_use]
pub fn slots_of(core: u16, cores: u16) -> RangeInclusive<u16> {
    let begin = |core: u16| {
        let partition = (u32::from(core) * u32::from(PARTITIONS)).div_ceil(cores.into());
        u16::try_from(partition).expect("at most 256") * PARTITION_SLOTS
    };
    begin(core)..=begin(core + 1) - 1
}

/// The last slot of the partition of a slot.
#[must_use]
pub fn partition_end(slot: u16) -> u16 {
    slot | (PARTITION_SLOTS - 1)
}

/// Two bytes that lead to a slot as a `{tag}` of a key, wherever it stands: [`slot_of`] backwards.
///
/// # Panics
/// If there is no such slot.
#[must_use]
pub fn tag_of(slot: u16) -> [u8; 2] {
    assert!(slot < SLOTS, "slot {slot}");
    // Of the two bytes that each of these sums belongs to, one may be a brace.
    let sums = (0..4).map(|high| slot + high * SLOTS);
    let mut tags = sums.map(two_bytes_of);
    tags.find(|tag| !tag.contains(&b'}') && !tag.contains(&b'{'))
        .expect("at most one of four has a brace")
}

/// The two bytes that have this CRC: there is one such pair for each.
fn two_bytes_of(crc: u16) -> [u8; 2] {
    let mut register = crc;
    for _ in 0..16 {
        // The polynomial was added if a bit left at the top, and then its lowest bit is set.
        register = match register & 1 {
            1 => (register ^ 0x1021) >> 1 | 0x8000,
            _ => register >> 1,
        };
    }
    register.to_be_bytes()
}

/// Not zero if one of the eight bytes is a `{`.
#[inline]
fn braces_in(eight: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    // A brace makes its byte of the difference zero.
    let difference = eight ^ (ONES * b'{' as u64);
    difference.wrapping_sub(ONES) & !difference & HIGHS
}

#[cold]
fn tag_in(key: &[u8]) -> &[u8] {
    let open = key
        .iter()
        .position(|&byte| byte == b'{')
        .unwrap_or(key.len());
    let behind = key.get(open + 1..).unwrap_or_default();
    match behind.iter().position(|&byte| byte == b'}') {
        Some(len) if len > 0 => &behind[..len],
        _ => key,
    }
}

/// Bytes that one call of [`advance`] takes at most.
const STRIDE: usize = 8;

#[inline]
fn crc16(bytes: &[u8]) -> u16 {
    let (strides, rest) = bytes.as_chunks::<STRIDE>();
    let crc = strides.iter().fold(0, |crc, stride| advance(crc, stride));
    advance(crc, rest)
}

/// Advances the CRC by up to [`STRIDE`] bytes at once. Table `n` has the effect of a byte that `n`
/// more bytes follow, so the look-ups are independent of each other.
#[inline]
fn advance(crc: u16, stride: &[u8]) -> u16 {
    let [high, low] = crc.to_be_bytes();
    let carried = [high, low, 0, 0, 0, 0, 0, 0];
    let tables = TABLES[..stride.len()].iter().rev();
    let sum = tables
        .zip(stride.iter().zip(carried))
        .fold(0, |sum, (table, (&byte, carried))| {
            sum ^ table[usize::from(byte ^ carried)]
        });
    // A stride of one byte leaves the low byte of the CRC to be shifted up.
    if stride.len() == 1 {
        sum ^ u16::from_be_bytes([low, 0])
    } else if stride.is_empty() {
        crc
    } else {
        sum
    }
}

static TABLES: [[u16; 256]; STRIDE] = tables();

const fn tables() -> [[u16; 256]; STRIDE] {
    let mut tables = [[0u16; 256]; STRIDE];
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
    while table < STRIDE {
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
    fn every_slot_has_one_core_whatever_their_number_is() {
        for cores in [1, 2, 3, 7, 64, 255, 256] {
            let mut next = 0;
            for core in 0..cores {
                let slots = slots_of(core, cores);
                assert_eq!(*slots.start(), next, "{cores} cores");
                next = slots.end() + 1;
                assert!(slots.clone().all(|slot| core_of(slot, cores) == core));
                assert_eq!(partition_end(*slots.end()), *slots.end());
            }
            assert_eq!(next, SLOTS);
        }
    }

    #[test]
    fn the_published_check_values_hold() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot_of(b"foo"), 12182);
        assert_eq!(slot_of(b""), 0);
    }

    #[test]
    fn every_slot_has_a_tag_that_leads_there_whatever_stands_around_it() {
        for slot in 0..SLOTS {
            let [first, second] = tag_of(slot);
            assert_eq!(slot_of(&[first, second]), slot);
            let key = [b"\0key/{", &[first, second][..], b"}{other}\xFF"].concat();
            assert_eq!(slot_of(&key), slot, "{first} {second}");
        }
    }

    #[test]
    fn eight_bytes_at_once_give_what_one_at_a_time_gives() {
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
    fn keys_that_begin_with_one_tag_have_one_slot() {
        let keys: [&[u8]; 12] = [
            b"{a}", b"{a}x", b"{a}{b}", b"{a", b"{}a", b"{}", b"{b}x", b"x{a}", b"{a}}", b"{{a}x",
            b"{{a}y", b"",
        ];
        let mut alike = 0;
        for one in keys {
            for other in keys {
                if begin_with_one_tag(one, other) {
                    assert_eq!(slot_of(one), slot_of(other), "{one:?} {other:?}");
                    alike += 1;
                }
            }
        }
        // Four keys with tag `a`, two with tag `{a`, and one with tag `b`.
        assert_eq!(alike, 16 + 4 + 1);
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
