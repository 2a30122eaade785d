//! The account of a counter that is sold from: what the connections were told against what is left
//! of it.

use std::fmt;

use crate::connection::Account;

/// The counter of decr against what was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ledger {
    pub(crate) initial: u64,
    pub(crate) left: u64,
    pub(crate) account: Account,
}

impl Ledger {
    /// What the counter has lost.
    pub(crate) fn sold(&self) -> u64 {
        self.initial.saturating_sub(self.left)
    }

    /// Acknowledged sales that the counter does not show.
    pub(crate) fn missing(&self) -> u64 {
        self.account.acked.saturating_sub(self.sold())
    }

    /// Whether the counter lost no less than was acknowledged and no more than was asked.
    pub(crate) fn is_balanced(&self) -> bool {
        let most = self.account.acked + self.account.unknown + self.account.unanswered;
        self.left <= self.initial && (self.account.acked..=most).contains(&self.sold())
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Account {
            acked,
            refused,
            unknown,
            unanswered,
            elsewhere,
            reconnected,
            ..
        } = self.account;
        write!(
            f,
            "sold {}, acknowledged {acked}, refused {refused}, unknown {unknown}",
            self.sold()
        )?;
        if unanswered > 0 {
            write!(f, ", unanswered at the end {unanswered}")?;
        }
        if reconnected + elsewhere > 0 {
            write!(
                f,
                ", sent elsewhere {elsewhere}, connected anew {reconnected}"
            )?;
        }
        match self.is_balanced() {
            true => f.write_str(": balanced"),
            false => write!(f, ": NOT BALANCED, {} missing", self.missing()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_balances_between_what_was_acknowledged_and_what_was_asked() {
        let ledger = |sold: u64, acked, unknown| Ledger {
            initial: 100,
            left: 100 - sold,
            account: Account {
                acked,
                refused: 3,
                unknown,
                ..Account::default()
            },
        };
        assert!(ledger(10, 10, 0).is_balanced());
        assert!(ledger(12, 10, 2).is_balanced());
        assert!(
            !ledger(9, 10, 5).is_balanced(),
            "an acknowledged sale was lost"
        );
        assert_eq!(ledger(9, 10, 5).missing(), 1);
        assert!(!ledger(13, 10, 2).is_balanced(), "more was sold than asked");
    }
}
