//! How durable something must be before a reply leaves.

/// The ack level of a request, and the level that a reply reached. Ordered by what they promise,
/// which is not the order of their numbers on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AckLevel {
    /// Nothing is promised.
    None,
    /// Durable within the server's stated interval.
    Interval,
    /// Durable on the device before the reply.
    #[default]
    Disk,
    /// Durable here and received by every node that may write next. `disk` while there is none.
    All,
    /// Durable here and received by every member of the sync set, at least one.
    Replica,
}

impl AckLevel {
    /// The number on the wire.
    #[inline]
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            AckLevel::None => 0,
            AckLevel::Interval => 1,
            AckLevel::Disk => 2,
            AckLevel::Replica => 3,
            AckLevel::All => 4,
        }
    }

    /// Whether a reply at this level waits for members of the sync set.
    #[inline]
    #[must_use]
    pub const fn waits_for_members(self) -> bool {
        matches!(self, AckLevel::All | AckLevel::Replica)
    }

    /// The level as a client is told it that does not know [`AckLevel::All`].
    #[inline]
    #[must_use]
    pub const fn without_all(self) -> Self {
        match self {
            AckLevel::All => AckLevel::Replica,
            level => level,
        }
    }

    /// The level with this number.
    #[inline]
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(AckLevel::None),
            1 => Some(AckLevel::Interval),
            2 => Some(AckLevel::Disk),
            3 => Some(AckLevel::Replica),
            4 => Some(AckLevel::All),
            _ => None,
        }
    }

    /// Its name as the documents write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            AckLevel::None => "none",
            AckLevel::Interval => "interval",
            AckLevel::Disk => "disk",
            AckLevel::All => "all",
            AckLevel::Replica => "replica",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_by_what_they_promise_and_keep_their_numbers() {
        let ascending = [
            (AckLevel::None, 0),
            (AckLevel::Interval, 1),
            (AckLevel::Disk, 2),
            (AckLevel::All, 4),
            (AckLevel::Replica, 3),
        ];
        assert!(ascending.is_sorted_by(|(one, _), (next, _)| one < next));
        for (level, code) in ascending {
            assert_eq!(
                (level.code(), AckLevel::from_code(code)),
                (code, Some(level))
            );
        }
        for unknown in 5..=u8::MAX {
            assert_eq!(AckLevel::from_code(unknown), None);
        }
    }
}
