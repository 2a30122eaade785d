//! Addresses whose logins have failed, and how long they are refused.

use std::net::IpAddr;

/// Failures until an address is delayed, and then again.
const FAILURES: u32 = 5;
/// The first delay; each next one is twice as long.
const DELAY_US_MIN: u64 = 1_000_000;
/// The longest delay.
const DELAY_US_MAX: u64 = 60_000_000;
/// An address is forgotten so long after its last failure.
const FORGET_US: u64 = 600_000_000;
/// Addresses that are remembered, at most: the one that failed longest ago makes room.
const ADDRESSES_MAX: usize = 1024;

/// One address. Of IPv6 its first 64 bits: one customer of a provider has all of them.
type Address = u128;

fn address_of(peer: Option<IpAddr>) -> Address {
    match peer.map(|peer| peer.to_canonical()) {
        None => 0,
        Some(IpAddr::V4(address)) => address.to_ipv6_mapped().to_bits(),
        Some(IpAddr::V6(address)) => address.to_bits() >> 64 << 64,
    }
}

#[derive(Debug)]
struct Failed {
    address: Address,
    failures: u32,
    last_us: u64,
    until_us: u64,
}

/// A bounded table; looked through only where users exist and a login is not made.
#[derive(Debug, Default)]
pub(super) struct FailedLogins {
    all: Vec<Failed>,
}

impl FailedLogins {
    /// For how many milliseconds more logins of an address are refused, if they are.
    pub(super) fn delay_ms(&self, now_us: u64, peer: Option<IpAddr>) -> Option<u64> {
        let address = address_of(peer);
        let failed = self.all.iter().find(|failed| failed.address == address)?;
        let left_us = failed.until_us.checked_sub(now_us)?;
        (left_us > 0).then(|| left_us.div_ceil(1000))
    }

    /// A login of an address has failed. Whether it is delayed from now on.
    pub(super) fn failed(&mut self, now_us: u64, peer: Option<IpAddr>) -> bool {
        self.all
            .retain(|failed| now_us < failed.last_us + FORGET_US);
        let address = address_of(peer);
        let mut all = self.all.iter();
        let at = all.position(|failed| failed.address == address);
        let at = at.unwrap_or_else(|| self.add(address));
        let failed = &mut self.all[at];
        failed.last_us = now_us;
        failed.failures = failed.failures.saturating_add(1);
        if !failed.failures.is_multiple_of(FAILURES) {
            return false;
        }
        let doubled = (failed.failures / FAILURES - 1).min(16);
        failed.until_us = now_us + (DELAY_US_MIN << doubled).min(DELAY_US_MAX);
        true
    }

    fn add(&mut self, address: Address) -> usize {
        if self.all.len() >= ADDRESSES_MAX {
            let oldest = self.all.iter().enumerate();
            let oldest = oldest.min_by_key(|(_, failed)| failed.last_us);
            self.all.swap_remove(oldest.expect("it is full").0);
        }
        self.all.push(Failed {
            address,
            failures: 0,
            last_us: 0,
            until_us: 0,
        });
        self.all.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("an address"))
    }

    #[test]
    fn five_failures_delay_an_address_by_a_second_and_each_further_five_by_twice_as_long() {
        let mut failures = FailedLogins::default();
        let (mut now_us, who) = (7, peer("10.0.0.1"));
        let mut delays = Vec::new();
        for number in 1..=40 {
            let is_delayed = failures.failed(now_us, who);
            assert_eq!(is_delayed, number % 5 == 0, "failure {number}");
            let delay_ms = failures.delay_ms(now_us, who);
            assert_eq!(delay_ms.is_some(), is_delayed);
            if let Some(ms) = delay_ms {
                delays.push(ms);
                now_us += ms * 1000;
                assert_eq!(failures.delay_ms(now_us - 1, who), Some(1));
                assert_eq!(failures.delay_ms(now_us, who), None);
            }
        }
        let expected = [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000];
        assert_eq!(delays, expected);
        // Others are let in meanwhile, and the address is forgotten in the end.
        assert_eq!(failures.delay_ms(now_us - 1, peer("10.0.0.2")), None);
        assert!(!failures.failed(now_us + FORGET_US, who), "it begins anew");
        assert_eq!(failures.all.len(), 1);
    }

    #[test]
    fn the_first_half_of_an_ipv6_address_counts_and_an_ipv4_one_has_one_form() {
        let mut failures = FailedLogins::default();
        for last in 1..=5 {
            failures.failed(9, peer(&format!("2001:db8:1:2::{last}")));
        }
        assert!(failures.delay_ms(9, peer("2001:db8:1:2:ffff::")).is_some());
        assert!(failures.delay_ms(9, peer("2001:db8:1:3::1")).is_none());
        for peer_of in [
            "192.0.2.1",
            "::ffff:192.0.2.1",
            "192.0.2.1",
            "192.0.2.1",
            "192.0.2.1",
        ] {
            failures.failed(9, peer(peer_of));
        }
        assert!(failures.delay_ms(9, peer("192.0.2.1")).is_some());
    }

    #[test]
    fn the_table_is_bounded_and_keeps_those_that_failed_last() {
        let mut failures = FailedLogins::default();
        for number in 0..5_000u32 {
            failures.failed(number.into(), Some(IpAddr::V4(number.into())));
        }
        assert_eq!(failures.all.len(), ADDRESSES_MAX);
        let mut oldest = failures.all.iter().map(|failed| failed.last_us);
        assert!(oldest.all(|us| us >= 5_000 - ADDRESSES_MAX as u64));
    }
}
