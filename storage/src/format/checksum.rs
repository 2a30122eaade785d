//! CRC-32 (IEEE) of parts.
//!
//! Most parts are far shorter than the 128 bytes from which the carry-less multiplication of
//! `crc32fast` pays. A process may give a function for shorter ones ([`use_for_short`]): this crate
//! has no code for one processor. Without it sixteen bytes at a time are looked up (Kounavis and
//! Berry, "A systematic approach to building high performance software-based CRC generators",
//! 2005).

use std::ops::RangeInclusive;
use std::sync::OnceLock;

const POLYNOMIAL: u32 = 0xEDB8_8320;
const STRIDE: usize = 16;
/// From here on the library is faster.
pub(crate) const SHORT_BYTES_MAX: usize = 128;

/// What a function that is given is for.
const GIVEN_BYTES: RangeInclusive<usize> = 32..=SHORT_BYTES_MAX - 1;

static GIVEN: OnceLock<fn(&[u8]) -> u32> = OnceLock::new();

/// Has this function compute the CRC-32 of inputs of 32 to 127 bytes in the whole process, from now
/// on. The first one that is given stays.
///
/// # Panics
/// If it computes anything else.
pub fn use_for_short(crc32: fn(&[u8]) -> u32) {
    for len in GIVEN_BYTES {
        let bytes: Vec<u8> = (1..=u8::MAX).take(len).collect();
        assert_eq!(crc32(&bytes), short(&bytes), "of {len} bytes");
    }
    GIVEN.get_or_init(|| crc32);
}

/// The CRC-32 of `bytes`, the same as every library computes.
#[inline]
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    if bytes.len() >= SHORT_BYTES_MAX {
        crc32fast::hash(bytes)
    } else if GIVEN_BYTES.contains(&bytes.len())
        && let Some(given) = GIVEN.get()
    {
        given(bytes)
    } else {
        short(bytes)
    }
}

/// Eight bytes, as a little-endian number, that stand in front of `bytes` if the CRC-32 of all
/// together is `crc`. There are many such; in front of anything else they all give the same CRC-32
/// too, because nothing of them is left but the 32 bits of state behind them.
pub(crate) fn bytes_before(bytes: &[u8], crc: u32) -> u64 {
    // The register runs backwards: its highest bit tells whether the polynomial was added.
    let back = |state: u32, byte: &u8| {
        let state = (0..8).fold(state, |state, _| match state >> 31 {
            0 => state << 1,
            _ => ((state ^ POLYNOMIAL) << 1) | 1,
        });
        state ^ u32::from(*byte)
    };
    let behind = bytes.iter().rfold(!crc, back);
    // Four bytes added to the register are the same as four zeros after they were added.
    let zeros = [0; 4];
    let last = !crc32fast::hash(&zeros) ^ zeros.iter().rfold(behind, back);
    u64::from(last) << 32
}

#[inline(never)]
fn short(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    let (strides, rest) = bytes.as_chunks::<STRIDE>();
    for stride in strides {
        // These look-ups do not depend on the bytes before, so the processor can begin them early.
        let early = TABLES[..12].iter().rev().zip(&stride[4..]);
        let early = early.fold(0, |sum, (table, &byte)| sum ^ table[usize::from(byte)]);
        let head = u32::from_le_bytes([stride[0], stride[1], stride[2], stride[3]]) ^ crc;
        let [a, b, c, d] = head.to_le_bytes();
        let late = (TABLES[15][usize::from(a)] ^ TABLES[14][usize::from(b)])
            ^ (TABLES[13][usize::from(c)] ^ TABLES[12][usize::from(d)]);
        crc = early ^ late;
    }
    for &byte in rest {
        let [low, ..] = crc.to_le_bytes();
        crc = (crc >> 8) ^ TABLES[0][usize::from(low ^ byte)];
    }
    !crc
}

/// `TABLES[n][byte]` is what `byte` contributes when `n` more bytes follow it in the stride.
static TABLES: [[u32; 256]; STRIDE] = tables();

const fn tables() -> [[u32; 256]; STRIDE] {
    let mut tables = [[0; 256]; STRIDE];
    let mut byte = 0u32;
    while byte < 256 {
        let mut crc = byte;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ POLYNOMIAL
            } else {
                crc >> 1
            };
            bit += 1;
        }
        tables[0][byte as usize] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < STRIDE {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xFF) as usize];
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
    fn short_and_long_inputs_have_the_checksum_of_every_library() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        let bytes: Vec<u8> = (0..300u32).map(|n| (n * 7919).to_le_bytes()[1]).collect();
        for start in 0..17 {
            for end in start..bytes.len() {
                let bytes = &bytes[start..end];
                assert_eq!(short(bytes), crc32fast::hash(bytes), "{start}..{end}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "of 32 bytes")]
    fn a_function_that_computes_something_else_is_not_taken() {
        use_for_short(|_| 0);
    }

    #[test]
    fn bytes_before_give_the_checksum_and_stand_for_those_that_were_there() {
        let text = b"a header of sixty bytes, and what else was sealed with it";
        let other = b"the body";
        for salt in [0, 1, 0x1122_3344_5566_7788, u64::MAX] {
            let sealed = |salt: u64, bytes: &[u8]| crc32(&[&salt.to_le_bytes(), bytes].concat());
            let found = bytes_before(text, sealed(salt, text));
            assert_eq!(sealed(found, text), sealed(salt, text));
            assert_eq!(sealed(found, other), sealed(salt, other));
        }
    }
}
