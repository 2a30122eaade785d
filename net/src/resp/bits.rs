//! SETBIT, GETBIT and BITCOUNT: a value as bits, the highest of the first byte first.

use super::fault::{Fault, NOT_AN_INTEGER, SYNTAX};
use super::number::read_integer;
use super::parser::Arguments;

/// Bits of a value of Redis, at most: 512 MiB.
const BITS_MAX: u64 = 1 << 32;
/// A bit that no value here has.
pub(super) const NO_BIT: &str = "ERR bit offset is not an integer or out of range";

/// Neighbouring bits or bytes: both ends count, negative ones from behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    start: i64,
    end: i64,
    is_of_bits: bool,
}

/// All of a value.
const WHOLE: Stretch = Stretch {
    start: 0,
    end: -1,
    is_of_bits: false,
};

impl Stretch {
    /// Reads what stands behind the key of BITCOUNT.
    pub(super) fn read(args: Arguments<'_>) -> Result<Self, Fault> {
        if args.len() > 5 {
            return Err(SYNTAX);
        }
        let end = |number: usize, usual: i64| match number < args.len() {
            true => read_integer(args.get(number)).ok_or(NOT_AN_INTEGER),
            false => Ok(usual),
        };
        // In the order in which Redis finds what is wrong.
        let start = end(2, WHOLE.start)?;
        let is_of_bits = match args.len() {
            5 if args.get(4).eq_ignore_ascii_case(b"BIT") => true,
            5 if !args.get(4).eq_ignore_ascii_case(b"BYTE") => return Err(SYNTAX),
            _ => false,
        };
        Ok(Stretch {
            start,
            end: end(3, WHOLE.end)?,
            is_of_bits,
        })
    }

    /// How many bits of it are set.
    pub(super) fn count(self, value: &[u8]) -> u64 {
        let bytes = i64::try_from(value.len()).expect("values are bounded");
        let units = if self.is_of_bits { 8 * bytes } else { bytes };
        let absolute = |at: i64| if at < 0 { units.saturating_add(at) } else { at };
        // An end before the first one is the first one, as in Redis.
        let (start, end) = (
            absolute(self.start).max(0),
            absolute(self.end).max(0).min(units - 1),
        );
        if start > end || self.start < 0 && self.end < 0 && self.start > self.end {
            return 0;
        }
        let place = |at: i64| usize::try_from(at).expect("within the value");
        let ones =
            |bytes: &[u8]| -> u64 { bytes.iter().map(|it| u64::from(it.count_ones())).sum() };
        if !self.is_of_bits {
            return ones(&value[place(start)..=place(end)]);
        }
        let part = &value[place(start / 8)..=place(end / 8)];
        let (before, behind) = (start % 8, 7 - end % 8);
        let first = part[0] & !(0xFF >> before);
        let first = if before == 0 { 0 } else { first };
        let last = part[part.len() - 1] & ((1u8 << behind) - 1);
        ones(part) - ones(&[first, last])
    }
}

/// The number of a bit.
pub(super) fn read_place(text: &[u8]) -> Result<u64, Fault> {
    let place = read_integer(text).and_then(|place| u64::try_from(place).ok());
    place
        .filter(|place| *place < BITS_MAX)
        .ok_or(Fault::Text(NO_BIT))
}

/// What a bit is to be.
pub(super) fn read_bit(text: &[u8]) -> Result<bool, Fault> {
    match text {
        b"0" => Ok(false),
        b"1" => Ok(true),
        _ => Err(Fault::Text("ERR bit is not an integer or out of range")),
    }
}

/// The byte of a bit, and the bit within it.
pub(super) fn byte_of(place: u64) -> (usize, u8) {
    let byte = usize::try_from(place / 8).expect("512 MiB at most");
    (byte, 0x80 >> (place % 8))
}

/// Whether a bit is set; those behind the value are not.
pub(super) fn is_set(value: &[u8], place: u64) -> bool {
    let (byte, bit) = byte_of(place);
    value.get(byte).is_some_and(|byte| byte & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_a_stretch_are_those_that_one_by_one_are_set() {
        let value = [0b1010_0101, 0xFF, 0x00, 0b0001_1000];
        let units = |is_of_bits| if is_of_bits { 32i64 } else { 4 };
        for is_of_bits in [false, true] {
            let units = units(is_of_bits);
            for start in -units - 2..units + 2 {
                for end in -units - 2..units + 2 {
                    let absolute = |at: i64| if at < 0 { at + units } else { at };
                    let per = if is_of_bits { 1 } else { 8 };
                    let is_reversed = start < 0 && end < 0 && start > end;
                    let last = if is_reversed {
                        -1
                    } else {
                        absolute(end).max(0)
                    };
                    let inside = absolute(start).max(0)..=last.min(units - 1);
                    let bits = inside.flat_map(|unit| unit * per..(unit + 1) * per);
                    let expected = bits
                        .filter(|bit| is_set(&value, bit.cast_unsigned()))
                        .count();
                    let stretch = Stretch {
                        start,
                        end,
                        is_of_bits,
                    };
                    assert_eq!(stretch.count(&value), expected as u64, "{stretch:?}");
                }
            }
        }
        assert_eq!(WHOLE.count(&[]), 0);
    }
}
