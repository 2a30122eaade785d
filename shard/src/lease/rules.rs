//! How long a lease and a grace are.

use std::fmt;

/// Both lengths, in microseconds of CLOCK_BOOTTIME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRules {
    lease_us: u64,
    grace_us: u64,
}

/// Lengths that are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRules {
    /// The lease is too short or too long.
    Lease {
        /// The lease.
        lease_us: u64,
    },
    /// The grace is shorter than five quarters of the lease.
    Grace {
        /// The lease.
        lease_us: u64,
        /// The grace.
        grace_us: u64,
    },
}

impl LeaseRules {
    /// For machines with few cores and neighbours: the default.
    pub const STARVED: LeaseRules = LeaseRules {
        lease_us: 1_600_000,
        grace_us: 2_000_000,
    };
    /// For machines whose cores are their own.
    pub const QUIET: LeaseRules = LeaseRules {
        lease_us: 400_000,
        grace_us: 500_000,
    };
    /// A shard that has not turned for so long is not vouched for.
    pub const STANDSTILL_US: u64 = 300_000;
    /// What each candidate behind the first waits more.
    pub const RANK_US: u64 = 150_000;
    /// A handover that has not come for so long is given up: another member may take over.
    pub const HANDOVER_US: u64 = 10_000_000;
    const LEASE_US_MIN: u64 = 200_000;
    const LEASE_US_MAX: u64 = 10_000_000;

    /// Rules of these lengths.
    ///
    /// # Errors
    /// [`BadRules`].
    pub const fn new(lease_us: u64, grace_us: u64) -> Result<Self, BadRules> {
        if lease_us < Self::LEASE_US_MIN || lease_us > Self::LEASE_US_MAX {
            return Err(BadRules::Lease { lease_us });
        }
        if grace_us / 5 < lease_us / 4 {
            return Err(BadRules::Grace { lease_us, grace_us });
        }
        Ok(LeaseRules { lease_us, grace_us })
    }

    /// How long a primary may serve by a heartbeat, from its sending on.
    #[must_use]
    pub const fn lease_us(&self) -> u64 {
        self.lease_us
    }

    /// How long a member does not take over behind a heartbeat, from its reading on.
    #[must_use]
    pub const fn grace_us(&self) -> u64 {
        self.grace_us
    }

    /// Between two heartbeats: 100 ms, or an eighth of a shorter lease, so that one late heartbeat
    /// removes nobody.
    #[must_use]
    pub const fn beat_us(&self) -> u64 {
        match self.lease_us / 8 {
            shorter_us @ ..100_000 => shorter_us,
            _ => 100_000,
        }
    }

    /// A member that confirms nothing for so long is to be removed.
    #[must_use]
    pub const fn silence_us(&self) -> u64 {
        self.lease_us / 2
    }

    /// Several members that confirm nothing together are to be removed after so long. If they are
    /// there, the first of them has taken over by then, unless a hold-down keeps it from that.
    #[must_use]
    pub const fn alone_us(&self) -> u64 {
        2 * self.grace_us
    }
}

/// For people.
impl fmt::Display for BadRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadRules::Lease { lease_us } => write!(
                f,
                "lease_ms = {}: it is {} to {}",
                lease_us / 1000,
                LeaseRules::LEASE_US_MIN / 1000,
                LeaseRules::LEASE_US_MAX / 1000
            ),
            BadRules::Grace { lease_us, grace_us } => write!(
                f,
                "grace_ms = {} with lease_ms = {}: clocks may differ by a quarter, so it is at \
                 least {}",
                grace_us / 1000,
                lease_us / 1000,
                lease_us / 4 * 5 / 1000
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_may_be_late_without_a_removal() {
        assert_eq!(LeaseRules::STARVED.beat_us(), 100_000);
        assert_eq!(LeaseRules::QUIET.beat_us(), 50_000);
        for rules in [LeaseRules::STARVED, LeaseRules::QUIET] {
            assert!(3 * rules.beat_us() < rules.silence_us());
        }
    }

    #[test]
    fn a_grace_below_five_quarters_of_the_lease_is_refused() {
        for rules in [LeaseRules::STARVED, LeaseRules::QUIET] {
            let again = LeaseRules::new(rules.lease_us(), rules.grace_us());
            assert_eq!(again, Ok(rules));
        }
        let cause = LeaseRules::new(1_600_000, 1_900_000).unwrap_err();
        assert!(cause.to_string().contains("at least 2000"), "{cause}");
        for lease_us in [0, 199_000, 10_001_000] {
            let cause = LeaseRules::new(lease_us, u64::MAX).unwrap_err();
            assert_eq!(cause, BadRules::Lease { lease_us });
        }
    }
}
