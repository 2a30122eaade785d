//! Scores: numbers of 64 bits with a point, as Redis reads and writes them.

/// Reads a score, which is all of the text. NaN, and what is too large or too small for 64 bits, is
/// none.
pub(super) fn read_score(text: &[u8]) -> Option<f64> {
    let score = parse(text)?;
    let is_cut = match score {
        0.0 => {
            let mantissa = text.split(|byte| matches!(byte, b'e' | b'E')).next();
            mantissa.is_some_and(|it| it.iter().any(|byte| matches!(byte, b'1'..=b'9')))
        }
        _ => score.is_infinite() && text.iter().any(u8::is_ascii_digit),
    };
    (!is_cut).then_some(score)
}

/// Reads the end of a range, up to a byte 0: no text is 0, and what is too large is infinite.
pub(super) fn read_end(text: &[u8]) -> Option<f64> {
    match text.split(|byte| *byte == 0).next() {
        None | Some([]) => Some(0.0),
        Some(text) => parse(text),
    }
}

fn parse(text: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// Integers up to this one are written with all their digits.
const INTEGER_MAX: f64 = 4_611_686_018_427_387_904.0;

/// The shortest text that is read as this score again, in the form of Redis.
pub(in crate::resp) fn score_text(score: f64) -> String {
    if score.is_infinite() {
        return if score > 0.0 { "inf" } else { "-inf" }.into();
    }
    if score.abs() <= INTEGER_MAX && score.fract() == 0.0 {
        return format!("{score:.0}");
    }
    let text = format!("{:e}", score.abs());
    let (mantissa, exponent) = text.split_once('e').expect("it was asked for");
    let exponent: i32 = exponent.parse().expect("it is one");
    let digits: String = mantissa.chars().filter(|it| *it != '.').collect();
    let len = i32::try_from(digits.len()).expect("17 at most");
    // The number is its digits times ten to this power.
    let power = exponent - (len - 1);
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
    let is_short = power >= 0 && exponent < len + 7;
    let has_point = power < 0 && (power > -7 || exponent.abs() < 4);
    let unsigned = match usize::try_from(len + power) {
        _ if is_short => digits + &zeros(power),
        Ok(whole @ 1..) if has_point => format!("{}.{}", &digits[..whole], &digits[whole..]),
        _ if has_point => format!("0.{}{digits}", zeros(-power - len)),
        _ => {
            let (first, rest) = digits.split_at(1);
            let point = if rest.is_empty() { "" } else { "." };
            format!("{first}{point}{rest}e{exponent:+}")
        }
    };
    format!("{}{unsigned}", if score < 0.0 { "-" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_written_as_valkey_does() {
        // What a Valkey 9.1.2 has answered.
        for (given, expected) in [
            ("0", "0"),
            ("-0", "-0"),
            ("1.", "1"),
            (".5", "0.5"),
            ("-10.50", "-10.5"),
            ("+inf", "inf"),
            ("-INFINITY", "-inf"),
            ("123456.789", "123456.789"),
            ("3.0000000000000004", "3.0000000000000004"),
            ("1e17", "100000000000000000"),
            ("123456789012345678", "123456789012345680"),
            ("4000000000000000512", "4000000000000000512"),
            ("4611686018427387904", "4611686018427387904"),
            ("4611686018427388928", "4611686018427389000"),
            ("-4611686018427388928", "-4611686018427389000"),
            ("5e18", "5e+18"),
            ("12e18", "1.2e+19"),
            ("12345678901234567890", "12345678901234567000"),
            ("1e20", "1e+20"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("0.1", "0.1"),
            ("1e-5", "0.00001"),
            ("1e-6", "0.000001"),
            ("1e-7", "1e-7"),
            ("0.00001234", "1.234e-5"),
            ("1234567e-10", "1.234567e-4"),
            ("5e-324", "5e-324"),
        ] {
            let score = read_score(given.as_bytes()).expect(given);
            assert_eq!(score_text(score), expected, "{given}");
        }
    }

    #[test]
    fn every_score_is_read_again_as_it_was_written() {
        let mut bits = 1_u64;
        for _ in 0..100_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let score = f64::from_bits(bits);
            if !score.is_nan() {
                let text = score_text(score);
                let again = read_score(text.as_bytes()).map(f64::to_bits);
                assert_eq!(again, Some(bits), "{text}");
            }
        }
    }

    #[test]
    fn what_is_no_score_is_refused_and_an_end_of_a_range_takes_more() {
        for text in [
            "", " 1", "1 ", ".", "1e", "5e+", "1\0", "nan", "-nan", "infi", "0x10", "--5", "+-5",
            "1_0", "1e400", "-1e400", "1e-400", "2e-324",
        ] {
            assert_eq!(read_score(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(read_score(b"\xff"), None);
        assert_eq!(read_score(b"0e-400"), Some(0.0));
        for (text, end) in [
            ("", Some(0.0)),
            ("1\0x", Some(1.0)),
            ("1e400", Some(f64::INFINITY)),
            ("1e-400", Some(0.0)),
            ("nan", None),
            (" 1", None),
            ("1e", None),
        ] {
            assert_eq!(read_end(text.as_bytes()), end, "{text:?}");
        }
    }
}
