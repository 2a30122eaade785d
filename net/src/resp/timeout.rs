//! How long a command that blocks waits.

use crate::limits::EXPIRY_MS_MAX;

use super::fault::Fault;

const NOT_A_FLOAT: Fault = Fault::Text("ERR timeout is not a float or out of range");
const OUT_OF_RANGE: Fault = Fault::Text("ERR timeout is out of range");
const NEGATIVE: Fault = Fault::Text("ERR timeout is negative");

/// Reads seconds with a fraction, as milliseconds. `None`: it waits for ever.
///
/// # Errors
/// The words of Valkey for what is wrong.
pub(super) fn read_timeout(text: &[u8]) -> Result<Option<u64>, Fault> {
    let seconds = std::str::from_utf8(text).ok();
    let seconds = seconds.and_then(|text| text.parse::<f64>().ok());
    let seconds = seconds.filter(|it| !it.is_nan()).ok_or(NOT_A_FLOAT)?;
    // A part of a millisecond is a whole one, as in Redis.
    let ms = (seconds * 1000.0).ceil();
    if ms < 0.0 {
        return Err(NEGATIVE);
    }
    // The end of the wait, as a unix time, is to be a number of 63 bits.
    #[expect(clippy::cast_precision_loss, reason = "the limit is far from any use")]
    let is_good = ms <= (i64::MAX.unsigned_abs() - EXPIRY_MS_MAX) as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number between 0 and the limit"
    )]
    match is_good {
        true => Ok(Some(ms as u64).filter(|ms| *ms > 0)),
        false => Err(OUT_OF_RANGE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_read_as_valkey_does() {
        // What a Valkey 9.1.2 has answered, and how long it has waited.
        for (text, expected) in [
            ("0", Ok(None)),
            ("-0.0001", Ok(None)),
            ("0.0001", Ok(Some(1))),
            ("1.5", Ok(Some(1500))),
            ("1e3", Ok(Some(1_000_000))),
            ("-1", Err(NEGATIVE)),
            ("-inf", Err(NEGATIVE)),
            ("inf", Err(OUT_OF_RANGE)),
            ("1e400", Err(OUT_OF_RANGE)),
            ("1e16", Err(OUT_OF_RANGE)),
            ("9223372036854775807", Err(OUT_OF_RANGE)),
            ("nan", Err(NOT_A_FLOAT)),
            ("x", Err(NOT_A_FLOAT)),
            ("", Err(NOT_A_FLOAT)),
            (" 1", Err(NOT_A_FLOAT)),
            ("1 ", Err(NOT_A_FLOAT)),
        ] {
            assert_eq!(read_timeout(text.as_bytes()), expected, "{text:?}");
        }
    }
}
