//! The judge of a bank: is there an order of steps that agrees with real time and with all that was
//! told? The checker is not ours (`todc-utils`: Wing and Gong 1993 as improved by Lowe 2017).

use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

use super::KEYS;

/// Of each key, if it is known: the name of the transaction that has written its value; `None` if
/// it has no value.
pub(super) type Keys = [Option<Option<u64>>; KEYS];

/// What was told by a transaction.
#[derive(Clone, Debug)]
pub(super) enum Account {
    /// These values are there.
    There(Keys),
    /// The first are there, and the second are written.
    Step(Keys, Keys),
    /// The same, or nothing.
    Perhaps(Keys, Keys),
    /// A key has another value than this one.
    Differs(usize, Option<u64>),
}

/// What was told, and when it was so.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) account: Account,
    pub(super) since_us: u64,
    pub(super) until_us: u64,
}

impl Statement {
    /// Whether it may still come to pass.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.account, Account::Perhaps(..))
    }
}

/// The keys of a bank as one object.
struct OneBank;

impl Specification for OneBank {
    type State = [Option<u64>; KEYS];
    type Operation = Account;

    fn init() -> Self::State {
        Default::default()
    }

    fn apply(account: &Account, state: &Self::State) -> (bool, Self::State) {
        let is_there = |keys: &Keys| {
            let mut pairs = keys.iter().zip(state);
            pairs.all(|(key, value)| key.is_none_or(|key| key == *value))
        };
        let with = |keys: &Keys| std::array::from_fn(|key| keys[key].unwrap_or(state[key]));
        match account {
            Account::There(keys) => (is_there(keys), *state),
            Account::Step(guarded, written) => (is_there(guarded), with(written)),
            // If it comes to pass where its guards do not hold, it does nothing.
            Account::Perhaps(guarded, written) if is_there(guarded) => (true, with(written)),
            Account::Perhaps(..) => (true, *state),
            Account::Differs(key, value) => (state[*key] != *value, *state),
        }
    }
}

/// Whether an order of steps explains all that was told.
pub(super) fn is_explained(statements: &[Statement]) -> bool {
    if statements.is_empty() {
        return true;
    }
    let mut events = Vec::new();
    for (number, it) in statements.iter().enumerate() {
        // One that begins when another one ends may be beside it.
        events.push((it.since_us, false, number));
        events.push((it.until_us, true, number));
    }
    events.sort_unstable();
    let actions = events.into_iter().map(|(_, is_end, number)| {
        let account = statements[number].account.clone();
        let action = match is_end {
            false => Action::Call(account),
            true => Action::Response(account),
        };
        (number, action)
    });
    WGLChecker::<OneBank>::is_linearizable(History::from_actions(actions.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(account: Account, since_us: u64, until_us: u64) -> Statement {
        Statement {
            account,
            since_us,
            until_us,
        }
    }

    fn keys(of: &[(usize, Option<u64>)]) -> Keys {
        let mut keys = Keys::default();
        for &(key, value) in of {
            keys[key] = Some(value);
        }
        keys
    }

    #[test]
    fn a_step_that_others_saw_half_of_is_not_explained() {
        let both = Account::Step(keys(&[]), keys(&[(0, Some(1)), (1, Some(1))]));
        let half = Account::There(keys(&[(0, Some(1)), (1, None)]));
        let whole = Account::There(keys(&[(0, Some(1)), (1, Some(1))]));
        assert!(is_explained(&[
            statement(both.clone(), 0, 10),
            statement(whole, 5, 20)
        ]));
        assert!(!is_explained(&[
            statement(both, 0, 10),
            statement(half, 5, 20)
        ]));
    }

    #[test]
    fn write_skew_is_no_order_of_steps() {
        let step = |read, write, name| {
            let seen = keys(&[(read, None)]);
            Account::Step(seen, keys(&[(write, Some(name))]))
        };
        let (one, other) = (step(0, 1, 1), step(1, 0, 2));
        assert!(!is_explained(&[
            statement(one.clone(), 0, 10),
            statement(other, 0, 10)
        ]));
        assert!(is_explained(&[statement(one, 0, 10)]));
    }

    #[test]
    fn what_was_not_answered_may_be_seen_or_not_but_not_come_and_go() {
        let perhaps = Account::Perhaps(keys(&[(0, None)]), keys(&[(0, Some(1))]));
        let perhaps = statement(perhaps, 0, u64::MAX);
        let there = |value, at_us| statement(Account::There(keys(&[(0, value)])), at_us, at_us + 1);
        assert!(is_explained(&[perhaps.clone(), there(None, 10)]));
        let late = [perhaps.clone(), there(None, 10), there(Some(1), 20)];
        assert!(is_explained(&late));
        assert!(!is_explained(&[
            perhaps,
            there(Some(1), 10),
            there(None, 20)
        ]));
    }

    #[test]
    fn a_conflict_needs_somebody_who_wrote() {
        let differs = statement(Account::Differs(0, None), 0, 10);
        assert!(!is_explained(std::slice::from_ref(&differs)));
        let write = Account::Step(keys(&[]), keys(&[(0, Some(1))]));
        assert!(is_explained(&[differs, statement(write, 0, 10)]));
    }
}
