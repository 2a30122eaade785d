//! Lifetimes and versions as words of the shell.

use crate::limits::EXPIRY_MS_MAX;
use crate::request::Version;

/// Reads `EPOCH:SEQUENCE`.
///
/// # Errors
/// What is allowed.
pub fn parse_version(text: &str) -> Result<Version, String> {
    text.split_once(':')
        .and_then(|(epoch, sequence)| {
            Some(Version {
                epoch: epoch.parse().ok()?,
                sequence: sequence.parse().ok()?,
            })
        })
        .ok_or_else(|| "allowed is EPOCH:SEQUENCE, as set and get --version print it".to_string())
}

/// Reads a whole number with a unit, as in `30s`, as milliseconds.
///
/// # Errors
/// What is allowed.
pub fn parse_lifetime(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 5] = [
        ("ms", 1),
        ("s", 1_000),
        ("m", 60_000),
        ("h", 3_600_000),
        ("d", 86_400_000),
    ];
    UNITS
        .iter()
        .find_map(|(unit, ms)| {
            let number = text.strip_suffix(unit)?.parse::<u64>().ok()?;
            number.checked_mul(*ms)
        })
        .filter(|ms| (1..=EXPIRY_MS_MAX).contains(ms))
        .ok_or_else(|| {
            format!("allowed is a whole number and ms, s, m, h or d, from 1ms to {EXPIRY_MS_MAX}ms")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_have_a_unit_and_a_limit() {
        let allowed = [
            ("1ms", 1),
            ("30s", 30_000),
            ("10m", 600_000),
            ("2h", 7_200_000),
        ];
        for (text, ms) in allowed {
            assert_eq!(parse_lifetime(text), Ok(ms));
        }
        assert_eq!(parse_lifetime("281474976710655ms"), Ok(EXPIRY_MS_MAX));
        let wrong = [
            "",
            "30",
            "0s",
            "-1s",
            "1.5s",
            "s",
            "281474976710656ms",
            "99999999999999999d",
        ];
        for text in wrong {
            assert!(
                parse_lifetime(text)
                    .unwrap_err()
                    .contains("from 1ms to 281474976710655ms")
            );
        }
    }
}
