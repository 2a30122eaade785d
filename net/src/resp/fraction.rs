//! INCRBYFLOAT: numbers with a point, as exact decimals.
//!
//! Redis adds in the binary floating point of its machine and writes 17 digits behind the point, so
//! 5000.1 becomes 5000.10000000000000009 there. Here a sum is what a person would write, and the
//! same on each machine.

/// Digits behind the point.
const PLACES: u32 = 17;
/// One, in units of the last digit.
const ONE: i128 = 10i128.pow(PLACES);
/// Digits in front of the point, at most.
const WHOLE_DIGITS_MAX: u32 = 21;
/// All numbers are between this and its negative, both left out.
const END: i128 = 10i128.pow(PLACES + WHOLE_DIGITS_MAX);
/// An exponent beyond this is as this: the number is 0 or too long either way.
const EXPONENT_MAX: i64 = 1 << 40;

/// Why a text is no number that can be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    NoNumber,
    Infinite,
    TooLong,
}

impl Refused {
    /// The error of RESP: that of Redis, but for numbers that only Redis has.
    pub(super) fn text(self) -> &'static str {
        match self {
            Refused::NoNumber => "ERR value is not a valid float",
            Refused::Infinite => "ERR increment would produce NaN or Infinity",
            Refused::TooLong => {
                "ERR value is out of range: a number has at most 21 digits in front of the point"
            }
        }
    }
}

/// A number in units of the 17th digit behind the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fraction(i128);

impl Fraction {
    /// Reads digits with or without a sign, a point and an exponent. Digits behind the 17th are
    /// rounded, half to even.
    pub(super) fn read(text: &[u8]) -> Result<Self, Refused> {
        let (is_negative, unsigned) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let is = |name: &[u8]| unsigned.eq_ignore_ascii_case(name);
        if is(b"inf") || is(b"infinity") {
            return Err(Refused::Infinite);
        }
        let end = unsigned.iter().position(|byte| matches!(byte, b'e' | b'E'));
        let (digits, exponent) = unsigned.split_at(end.unwrap_or(unsigned.len()));
        let exponent = match exponent {
            [] => 0,
            [_, exponent @ ..] => read_exponent(exponent)?,
        };
        let point = digits.iter().position(|byte| *byte == b'.');
        let (whole, behind) = digits.split_at(point.unwrap_or(digits.len()));
        let behind = behind.get(1..).unwrap_or_default();
        let mut all = whole.iter().chain(behind).copied();
        if whole.len() + behind.len() == 0 || !all.clone().all(|byte| byte.is_ascii_digit()) {
            return Err(Refused::NoNumber);
        }
        // How many digits stand in front of the last place of a number here.
        let kept =
            i64::try_from(whole.len()).unwrap_or(EXPONENT_MAX) + exponent + i64::from(PLACES);
        let mut units: i128 = 0;
        let mut left = kept;
        while left > 0 && (units > 0 || all.size_hint().0 > 0) {
            // Ten times as much is END or more, and may be more than the type holds.
            if units >= END / 10 {
                return Err(Refused::TooLong);
            }
            let digit = all.next().map_or(0, |byte| byte - b'0');
            units = units * 10 + i128::from(digit);
            left -= 1;
        }
        if left == 0 {
            let first = all.next().map_or(0, |byte| byte - b'0');
            let is_more = all.any(|byte| byte != b'0');
            let rounds_up = first > 5 || first == 5 && (is_more || units % 2 == 1);
            units += i128::from(rounds_up);
        }
        let units = if is_negative { -units } else { units };
        Fraction(units).within()
    }

    /// The sum, if it is not too long.
    pub(super) fn plus(self, other: Self) -> Result<Self, Refused> {
        let sum = self.0.checked_add(other.0).ok_or(Refused::TooLong)?;
        Fraction(sum).within()
    }

    fn within(self) -> Result<Self, Refused> {
        match self.0.unsigned_abs() < END.unsigned_abs() {
            true => Ok(self),
            false => Err(Refused::TooLong),
        }
    }

    /// Its digits, without zeros at their end and without a point that nothing follows.
    pub(super) fn text(self) -> String {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (one, units) = (ONE.unsigned_abs(), self.0.unsigned_abs());
        let (whole, behind) = (units / one, units % one);
        let places = PLACES as usize;
        let text = format!("{sign}{whole}.{behind:0places$}");
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    }
}

fn read_exponent(text: &[u8]) -> Result<i64, Refused> {
    let (is_negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Refused::NoNumber);
    }
    let exponent = digits.iter().fold(0i64, |exponent, digit| {
        (exponent * 10 + i64::from(digit - b'0')).min(EXPONENT_MAX)
    });
    Ok(if is_negative { -exponent } else { exponent })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(given: &str) -> Result<String, Refused> {
        Fraction::read(given.as_bytes()).map(Fraction::text)
    }

    #[test]
    fn digits_of_any_count_are_a_number_or_too_long() {
        let whole = WHOLE_DIGITS_MAX as usize;
        for first in 1..=9 {
            for zeros in 0..60 {
                let (digits, places) = (format!("{first}{}", "9".repeat(zeros)), "9".repeat(zeros));
                let is_long = zeros + 1 > whole;
                for sign in ["", "-"] {
                    let one = text(&format!("{sign}{digits}"));
                    assert_eq!(one.is_err(), is_long, "{sign}{digits}");
                    let behind = text(&format!("{sign}{first}.{places}"));
                    assert!(behind.is_ok(), "{sign}{first}.{places}");
                    let power = text(&format!("{sign}{first}e{zeros}"));
                    assert_eq!(power.is_err(), is_long, "{sign}{first}e{zeros}");
                }
            }
        }
        let last = format!("{}.{}", "9".repeat(whole), "9".repeat(PLACES as usize));
        assert_eq!(text(&last).as_deref(), Ok(last.as_str()));
        assert_eq!(text(&format!("{last}9")), Err(Refused::TooLong));
    }

    #[test]
    fn a_number_is_read_exactly_and_written_with_as_few_digits_as_it_has() {
        for (given, expected) in [
            ("0", "0"),
            ("-0.0", "0"),
            ("5.", "5"),
            (".5", "0.5"),
            ("+1", "1"),
            ("-10.50", "-10.5"),
            ("1e3", "1000"),
            ("1.25E+2", "125"),
            ("12.5e-1", "1.25"),
            ("5e-17", "0.00000000000000005"),
            ("5e-18", "0"),
            ("15e-18", "0.00000000000000002"),
            ("25e-18", "0.00000000000000002"),
            ("25.0000001e-18", "0.00000000000000003"),
            ("6e-18", "0.00000000000000001"),
            ("1e-99999999999999999999", "0"),
            ("0e99999999999999999999", "0"),
            ("0.9999999999999999999", "1"),
            ("999999999999999999999.9", "999999999999999999999.9"),
            ("000000000000000000000000000000000007", "7"),
        ] {
            assert_eq!(text(given).as_deref(), Ok(expected), "{given}");
        }
        for given in [
            "", "-", ".", "e5", "1e", "1e+", " 1", "1 ", "1.2.3", "0x10", "nan", "--1",
        ] {
            assert_eq!(text(given), Err(Refused::NoNumber), "{given}");
        }
        assert_eq!(text("-Inf"), Err(Refused::Infinite));
        for given in ["1e21", "-1000000000000000000000", "1e99999999999999999999"] {
            assert_eq!(text(given), Err(Refused::TooLong), "{given}");
        }
    }

    #[test]
    fn sums_are_exact_and_end_at_21_digits() {
        let sum = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|it| Fraction::read(it.as_bytes()).expect(it));
            one.plus(other).map(Fraction::text)
        };
        assert_eq!(sum("0.1", "0.2").as_deref(), Ok("0.3"));
        assert_eq!(sum("5000.1", "-5000.1").as_deref(), Ok("0"));
        assert_eq!(sum("-0.25", "0.2").as_deref(), Ok("-0.05"));
        assert_eq!(sum("9e20", "9e20"), Err(Refused::TooLong));
    }
}
