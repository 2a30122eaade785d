//! Numbers as text, as `%g` and Lua write them.

/// Significant digits of a number that becomes a string.
pub(crate) const DIGITS: usize = 14;

/// A number as Lua writes it: 14 digits, without zeros at the end.
pub(crate) fn text_of(number: f64) -> String {
    // Most numbers are small integers.
    #[expect(clippy::cast_possible_truncation, reason = "compared with what it was")]
    let integer = number as i64;
    #[expect(clippy::cast_precision_loss, reason = "compared with what it was")]
    if integer as f64 == number && integer.unsigned_abs() < 100_000_000_000_000 && integer != 0 {
        return integer.to_string();
    }
    general(number, DIGITS, Zeros::Dropped)
}

/// Whether zeros at the end of a fraction stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zeros {
    Dropped,
    Kept,
}

/// Text of what is no finite number; its sign is written as the C library writes it.
pub(crate) fn special(number: f64) -> Option<&'static str> {
    match (
        number.is_nan(),
        number.is_infinite(),
        number.is_sign_negative(),
    ) {
        (true, _, false) => Some("nan"),
        (true, _, true) => Some("-nan"),
        (_, true, false) => Some("inf"),
        (_, true, true) => Some("-inf"),
        _ => None,
    }
}

/// `%.<digits>g`.
pub(crate) fn general(number: f64, digits: usize, zeros: Zeros) -> String {
    if let Some(text) = special(number) {
        return String::from(text);
    }
    let digits = digits.max(1);
    let scientific = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = scientific
        .split_once('e')
        .expect("the form has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    let digits = i32::try_from(digits).expect("digits are few");
    if exponent < -4 || exponent >= digits {
        let mantissa = trimmed(mantissa, zeros);
        return format!("{mantissa}{}", exponent_text(exponent));
    }
    let places = usize::try_from(digits - 1 - exponent).expect("checked above");
    String::from(trimmed(&format!("{number:.places$}"), zeros))
}

/// `%.<places>e`.
pub(crate) fn scientific(number: f64, places: usize) -> String {
    if let Some(text) = special(number) {
        return String::from(text);
    }
    let text = format!("{number:.places$e}");
    let (mantissa, exponent) = text.split_once('e').expect("the form has an exponent");
    let exponent = exponent.parse().expect("the exponent is a number");
    format!("{mantissa}{}", exponent_text(exponent))
}

/// `%.<places>f`.
pub(crate) fn fixed(number: f64, places: usize) -> String {
    match special(number) {
        Some(text) => String::from(text),
        None => format!("{number:.places$}"),
    }
}

fn exponent_text(exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("e{sign}{:02}", exponent.unsigned_abs())
}

fn trimmed(text: &str, zeros: Zeros) -> &str {
    match zeros == Zeros::Dropped && text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

/// The integer that a cast of C makes of a number: towards zero; what does not fit, and what is no
/// number, is the lowest one.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
pub(crate) fn integer_of(number: f64) -> i64 {
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    match (-BOUND..BOUND).contains(&number) {
        true => number as i64,
        false => i64::MIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_lua_writes_them() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-17.0, "-17"),
            (0.1, "0.1"),
            (1.0 / 3.0, "0.33333333333333"),
            (1e14, "1e+14"),
            (99_999_999_999_999.0, "99999999999999"),
            (1e15, "1e+15"),
            (1e300, "1e+300"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (123_456.789, "123456.789"),
            (f64::INFINITY, "inf"),
        ];
        for (number, text) in cases {
            assert_eq!(text_of(number), text);
        }
    }

    #[test]
    fn numbers_are_cut_towards_zero() {
        assert_eq!(integer_of(-2.7), -2);
        assert_eq!(integer_of(1e20), i64::MIN);
        assert_eq!(integer_of(f64::NAN), i64::MIN);
    }
}
