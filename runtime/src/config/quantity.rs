//! Numbers, sizes and times as people write them, and back.

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

/// The unit in which an option's time is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// us
    Microseconds,
    /// ms
    Milliseconds,
    /// s
    Seconds,
}

impl Unit {
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Unit::Microseconds => "us",
            Unit::Milliseconds => "ms",
            Unit::Seconds => "s",
        }
    }

    fn microseconds(self) -> u64 {
        match self {
            Unit::Microseconds => 1,
            Unit::Milliseconds => 1_000,
            Unit::Seconds => 1_000_000,
        }
    }
}

/// Digits, with `_` between them as TOML writes long numbers.
pub(super) fn parse_number(text: &str) -> Option<u64> {
    let plain = text.starts_with(|c: char| c.is_ascii_digit()) && !text.ends_with('_');
    if !plain || !text.chars().all(|c| c.is_ascii_digit() || c == '_') {
        return None;
    }
    text.replace('_', "").parse().ok()
}

/// Splits `64 MiB` into the number and its unit, which may be missing.
pub(super) fn parse_with_unit(text: &str) -> Option<(u64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '_')
        .unwrap_or(text.len());
    Some((parse_number(&text[..end])?, text[end..].trim_start()))
}

/// Only binary units: `MB` would be read as one by some and as the other by the rest.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = parse_with_unit(text)?;
    let factor = match unit {
        "" | "B" => 1,
        "KiB" => KIB,
        "MiB" => MIB,
        "GiB" => GIB,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// What someone probably meant who wrote a size with a unit that is none: `512M` as `512MiB`.
pub(super) fn meant_size(text: &str) -> Option<String> {
    let (number, unit) = parse_with_unit(text.trim())?;
    let unit = match unit.to_ascii_lowercase().as_str() {
        "k" | "kb" | "ki" | "kib" => "KiB",
        "m" | "mb" | "mi" | "mib" => "MiB",
        "g" | "gb" | "gi" | "gib" => "GiB",
        _ => return None,
    };
    Some(format!("{number}{unit}"))
}

/// The same of a time: `30 sec` as `30s`.
pub(super) fn meant_duration(text: &str) -> Option<String> {
    let (number, unit) = parse_with_unit(text.trim())?;
    let unit = match unit.to_ascii_lowercase().as_str() {
        "usec" | "usecs" | "\u{b5}s" => "us",
        "ms" | "msec" | "msecs" | "millis" => "ms",
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "min" | "mins" | "minute" | "minutes" => "m",
        "h" | "hour" | "hours" => "h",
        "d" | "day" | "days" => return Some(format!("{}h", number.checked_mul(24)?)),
        _ => return None,
    };
    Some(format!("{number}{unit}"))
}

/// Only whole units of the option: 1500us is no number of milliseconds.
pub(super) fn parse_duration(text: &str, unit: Unit) -> Option<u64> {
    let (number, written) = parse_with_unit(text)?;
    let microseconds = match written {
        "" => return Some(number),
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        _ => return None,
    };
    let total = number.checked_mul(microseconds)?;
    (total % unit.microseconds() == 0).then(|| total / unit.microseconds())
}

pub(crate) fn size_text(bytes: u64) -> String {
    let units = [(GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")];
    match units
        .iter()
        .find(|(factor, _)| bytes != 0 && bytes.is_multiple_of(*factor))
    {
        Some((factor, unit)) => format!("{}{unit}", bytes / factor),
        None => format!("{bytes}B"),
    }
}

pub(super) fn duration_text(unit: Unit, number: u64) -> String {
    let microseconds = number * unit.microseconds();
    let larger = [
        (3_600_000_000, "h"),
        (60_000_000, "m"),
        (1_000_000, "s"),
        (1_000, "ms"),
    ];
    match larger.iter().find(|(factor, _)| {
        *factor > unit.microseconds() && number != 0 && microseconds.is_multiple_of(*factor)
    }) {
        Some((factor, larger_unit)) => format!("{}{larger_unit}", microseconds / factor),
        None => format!("{number}{}", unit.suffix()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_take_units_and_nothing_ambiguous() {
        assert_eq!(parse_size("64MiB"), Some(64 << 20));
        assert_eq!(parse_size("64 KiB"), Some(64 << 10));
        assert_eq!(parse_size("1_000"), Some(1000));
        for wrong in ["", "MiB", "64MB", "64M", "-1", "1.5MiB", "+3", "1_", "0x10"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
        for (wrong, meant) in [
            ("64M", "64MiB"),
            ("64MB", "64MiB"),
            ("1_000 k", "1000KiB"),
            ("2Gi", "2GiB"),
            ("2gib", "2GiB"),
        ] {
            assert_eq!(meant_size(wrong).as_deref(), Some(meant));
            assert!(parse_size(wrong).is_none() && parse_size(meant).is_some());
        }
        for other in ["", "M", "64T", "1.5M", "64 MiB x"] {
            assert_eq!(meant_size(other), None, "{other}");
        }
        for (wrong, meant) in [
            ("30sec", "30s"),
            ("5 Min", "5m"),
            ("2d", "48h"),
            ("9MS", "9ms"),
        ] {
            assert_eq!(meant_duration(wrong).as_deref(), Some(meant));
            assert!(parse_duration(wrong, Unit::Milliseconds).is_none());
            assert!(parse_duration(meant, Unit::Milliseconds).is_some());
        }
        assert_eq!(parse_size("99999999999999999GiB"), None);
        assert_eq!(parse_duration("100ms", Unit::Milliseconds), Some(100));
        assert_eq!(parse_duration("2s", Unit::Milliseconds), Some(2000));
        assert_eq!(parse_duration("7", Unit::Seconds), Some(7));
        assert_eq!(parse_duration("1500us", Unit::Milliseconds), None);
        assert_eq!(parse_duration("1d", Unit::Seconds), None);
    }
}
