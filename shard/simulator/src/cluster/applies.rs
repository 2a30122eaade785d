//! APPLYs of clients of a cluster: appends to a list and its copy, pairs that are raised together,
//! and pots between which units are poured.

use penstock_net::apply::{Apply, ApplyKey};
use penstock_net::level::AckLevel;
use penstock_net::request::Version;
use penstock_net::status::Status;

use crate::random::Random;

use super::oracle::{POT_UNITS, POTS};
use super::{Step, World};

/// What every long run with APPLYs meets.
pub(super) const MUST_MEET: &[&str] = &[
    "APPLY at disk",
    "APPLY at replica",
    "APPLY of eight keys",
    "APPLY denied",
    "APPLY that reads",
    "append by APPLY",
    "GUARD_FAILED",
];

/// What an APPLY is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Raise,
    /// Between so many pots.
    Pour(usize),
    /// All pots are read at once.
    Count,
}

/// An append to a list that has this version, and to its copy.
pub(super) fn append(key: &[u8], copy: &[u8], value: &[u8], version: Option<Version>) -> Apply {
    let mut apply = Apply::new();
    let (list, copy) = (apply.key(key), apply.key(copy));
    apply.then(match version {
        Some(version) => list.has_version(version),
        None => list.is_absent(),
    });
    apply.put(list, value);
    apply.put(copy, value);
    apply
}

/// Raises two counters, which begin at 0.
pub(super) fn raise(key: &[u8], other: &[u8]) -> Apply {
    let mut apply = Apply::new();
    for key in [key, other] {
        let key = apply.key(key);
        apply.start(key, &[0; 8]);
        apply.then(key.u64(0).increase(1_u64));
    }
    apply
}

/// Pours from the first pot to all others of these. A pot begins with the same units as all others.
pub(super) fn pour(random: &mut Random, pots: &[Vec<u8>]) -> Apply {
    let mut apply = Apply::new();
    let keys: Vec<ApplyKey> = pots.iter().map(|pot| apply.key(pot)).collect();
    for &key in &keys {
        apply.start(key, &POT_UNITS.to_le_bytes());
    }
    for key in &keys {
        apply.then(key.u64(0).returned());
    }
    let given: Vec<u64> = keys[1..].iter().map(|_| random.within(1, 200)).collect();
    let all: u64 = given.iter().sum();
    let first = keys[0].u64(0);
    apply.then(first.at_least(all).or_else(1));
    for (key, units) in keys[1..].iter().zip(given) {
        apply.then(first.decrease(units));
        apply.then(key.u64(0).increase(units));
    }
    for key in &keys {
        apply.then(key.u64(0).returned());
    }
    apply
}

/// Reads all pots.
pub(super) fn count(pots: &[Vec<u8>]) -> Apply {
    let mut apply = Apply::new();
    for pot in pots {
        let pot = apply.key(pot).u64(0);
        apply.then(pot.returned());
    }
    apply
}

impl World {
    /// The pots of a group that an APPLY is about, the first one first.
    pub(super) fn some_pots(&mut self, group: usize) -> Vec<Vec<u8>> {
        let first = self.applies.index(POTS);
        let count = 2 + self.applies.index(POTS - 1);
        let pots = (0..count).map(|number| self.oracle.pot(group, first + number));
        pots.collect()
    }

    /// What an APPLY tells adds up.
    pub(super) fn applied(
        &mut self,
        what: Use,
        level: AckLevel,
        status: Status,
        returned: &[u64],
    ) -> Step {
        if status == Status::GuardFailed {
            self.meet("APPLY denied");
        }
        if status != Status::Ok {
            return Ok(());
        }
        self.meet(match level {
            AckLevel::Replica => "APPLY at replica",
            AckLevel::All => "APPLY at all",
            _ => "APPLY at disk",
        });
        let sum = |numbers: &[u64]| numbers.iter().sum::<u64>();
        match what {
            Use::Raise if returned.len() == 2 && returned[0] == returned[1] => Ok(()),
            Use::Pour(pots) if returned.len() == 4 * pots - 2 => {
                if pots == POTS {
                    self.meet("APPLY of eight keys");
                }
                let (before, after) = (
                    sum(&returned[..pots]),
                    sum(&returned[returned.len() - pots..]),
                );
                match before == after {
                    true => Ok(()),
                    false => Err(format!("{before} units became {after}: {returned:?}")),
                }
            }
            Use::Count if returned.len() == POTS => {
                self.meet("APPLY that reads");
                // Half of a scan may lack some of them.
                match sum(returned) == POTS as u64 * POT_UNITS || self.is_incomplete_accepted {
                    true => Ok(()),
                    false => Err(format!("{returned:?} are not all units")),
                }
            }
            _ => Err(format!("{what:?} is told {returned:?}")),
        }
    }
}
