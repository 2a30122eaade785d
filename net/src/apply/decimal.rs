//! Decimals: a whole value that is an i64 as text, as Redis keeps its counters.

/// Bytes of a decimal, at most: the sign and 19 digits.
pub const DECIMAL_BYTES_MAX: usize = 20;

/// A decimal that was written.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    bytes: [u8; DECIMAL_BYTES_MAX],
    start: usize,
}

impl Decimal {
    /// Writes a number.
    #[must_use]
    pub fn new(number: i64) -> Self {
        let mut bytes = [0; DECIMAL_BYTES_MAX];
        let start = write_decimal(&mut bytes, number);
        Decimal { bytes, start }
    }

    /// Its text.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Reads a number. `None` for any text that [`Decimal::new`] does not write: a sign `+`, a zero
    /// in front, spaces, `-0`, or a number that an i64 cannot hold.
    #[must_use]
    pub fn read(text: &[u8]) -> Option<i64> {
        let (is_negative, digits) = match text {
            [b'-', digits @ ..] => (true, digits),
            digits => (false, digits),
        };
        let is_canonical = match digits {
            [b'0'] => !is_negative,
            [b'1'..=b'9', ..] => digits.len() < DECIMAL_BYTES_MAX,
            _ => false,
        };
        if !is_canonical {
            return None;
        }
        digits.iter().try_fold(0i64, |number, byte| {
            let digit = i64::from(byte.checked_sub(b'0').filter(|digit| *digit < 10)?);
            let tens = number.checked_mul(10)?;
            match is_negative {
                true => tens.checked_sub(digit),
                false => tens.checked_add(digit),
            }
        })
    }
}

/// The numbers from 0 to 99 as two digits.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let (mut number, mut tens) = (0, b'0');
    while number < pairs.len() {
        let mut ones = b'0';
        while ones <= b'9' {
            pairs[number] = [tens, ones];
            (number, ones) = (number + 1, ones + 1);
        }
        tens += 1;
    }
    pairs
};

/// Writes a number at the end of bytes that are as many as a decimal has at most. Where it begins.
#[inline]
pub(crate) fn write_decimal(bytes: &mut [u8; DECIMAL_BYTES_MAX], number: i64) -> usize {
    let mut left = number.unsigned_abs();
    let mut start = DECIMAL_BYTES_MAX;
    for pair in bytes.as_chunks_mut().0.iter_mut().rev() {
        *pair = PAIRS[usize::try_from(left % 100).expect("below 100")];
        (start, left) = (start - 2, left / 100);
        if left == 0 {
            break;
        }
    }
    // The first pair may begin with a zero.
    start += usize::from(bytes[start] == b'0');
    if number < 0 {
        start -= 1;
        bytes[start] = b'-';
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_as_they_were_written() {
        let tens = (0..19).map(|power| 10i64.pow(power));
        let around = tens.flat_map(|ten| [-ten - 1, -ten, 1 - ten, ten - 1, ten, ten + 1, 7 * ten]);
        let most = [i64::MIN, i64::MIN + 1, 1234, i64::MAX];
        for number in around.chain(most) {
            let text = Decimal::new(number);
            assert_eq!(text.bytes(), number.to_string().as_bytes());
            assert_eq!(Decimal::read(text.bytes()), Some(number));
        }
    }

    #[test]
    fn text_that_is_not_the_one_form_of_a_number_is_none() {
        for text in [
            "",
            "-",
            "+1",
            "-0",
            "00",
            "01",
            " 1",
            "1 ",
            "1x",
            "/1",
            ":",
            "1e3",
            "0x1",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
            "100000000000000000000",
        ] {
            assert_eq!(Decimal::read(text.as_bytes()), None, "{text:?}");
        }
    }
}
