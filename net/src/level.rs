//! How durable something must be before a reply leaves.

/// The ack level of a request, and the level that a reply reached. Ordered from weak to strong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AckLevel {
    /// Nothing is promised.
    None = 0,
    /// Durable within the server's stated interval.
    Interval = 1,
    /// Durable on the device before the reply.
    #[default]
    Disk = 2,
    /// Durable here and received by every member of the sync set.
    Replica = 3,
}

impl AckLevel {
    /// The number on the wire.
    #[inline]
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
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
            AckLevel::Replica => "replica",
        }
    }
}
