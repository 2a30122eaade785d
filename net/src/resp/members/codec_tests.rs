//! What the tests of all codecs of members have in common: damage, and bytes by chance.

use super::head::{Corrupt, MemberType};

/// A codec under test.
pub(super) struct Codec {
    pub(super) of: MemberType,
    /// Reads a value whole and writes what was read.
    pub(super) again: fn(&[u8]) -> Result<Vec<u8>, Corrupt>,
}

impl Codec {
    /// Cuts a value at every byte and flips every bit of it: it is refused, or read as it stands.
    pub(super) fn check_damage(&self, value: &[u8]) {
        assert_eq!((self.again)(value).as_deref(), Ok(value));
        for cut in 0..value.len() {
            assert_eq!((self.again)(&value[..cut]), Err(Corrupt), "cut at {cut}");
        }
        let longer = [value, &[0]].concat();
        assert_eq!((self.again)(&longer), Err(Corrupt));
        for bit in 0..value.len() * 8 {
            let mut flipped = value.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(again) = (self.again)(&flipped) {
                assert_eq!(again, flipped, "bit {bit}");
            }
        }
    }

    /// Reads bytes by chance behind a good head. A member that stands twice is written by nobody,
    /// and is read as it stands.
    pub(super) fn check_any_bytes(&self) {
        let (mut random, mut read) = (7, 0);
        for _ in 0..200_000 {
            let count = u8::try_from(1 + number(&mut random) % 3).expect("few");
            let mut value = vec![self.of.number(), 0, 0, 0, count, 0, 0, 0];
            for _ in 0..number(&mut random) % 24 {
                let short = number(&mut random) % 6;
                let any = number(&mut random) % 256;
                let byte = if any < 200 { short } else { any };
                value.push(u8::try_from(byte).expect("a byte"));
            }
            if let Ok(again) = (self.again)(&value) {
                assert_eq!(again, value);
                read += 1;
            }
        }
        assert!(read > 1_000, "{read}");
    }
}

/// A number by chance.
pub(super) fn number(state: &mut u64) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    usize::try_from(*state >> 33).expect("31 bits")
}
