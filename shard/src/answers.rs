//! What a shard answered, by what was asked and by the status of the answer.

use penstock_net::request::Verb;
use penstock_net::status::Status;

/// What an item of a request asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// GET.
    Get,
    /// SET.
    Set,
    /// DEL.
    Del,
    /// UPDATE_IF.
    UpdateIf,
    /// GET_AT.
    GetAt,
    /// HISTORY.
    History,
    /// KEYSPACE.
    Keyspace,
    /// A step of a scan.
    Scan,
    /// PING as an item.
    Ping,
    /// An item that could not be read.
    Unreadable,
}

impl Asked {
    /// Whether it changes nothing, whatever the answer.
    #[must_use]
    pub fn is_read(self) -> bool {
        matches!(
            self,
            Asked::Get | Asked::GetAt | Asked::History | Asked::Scan | Asked::Ping
        )
    }

    /// All of them, in the order of their counts.
    pub const ALL: [Asked; 10] = [
        Asked::Get,
        Asked::Set,
        Asked::Del,
        Asked::UpdateIf,
        Asked::GetAt,
        Asked::History,
        Asked::Keyspace,
        Asked::Scan,
        Asked::Ping,
        Asked::Unreadable,
    ];

    /// What an item of this verb asks for.
    #[inline]
    #[must_use]
    pub fn of(verb: Verb) -> Asked {
        match verb {
            Verb::Get => Asked::Get,
            Verb::Set => Asked::Set,
            Verb::Del => Asked::Del,
            Verb::UpdateIf => Asked::UpdateIf,
            Verb::GetAt => Asked::GetAt,
            Verb::History => Asked::History,
            Verb::Keyspace => Asked::Keyspace,
        }
    }

    /// Its name as a label: lower case, with underscores.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Asked::Get => "get",
            Asked::Set => "set",
            Asked::Del => "del",
            Asked::UpdateIf => "update_if",
            Asked::GetAt => "get_at",
            Asked::History => "history",
            Asked::Keyspace => "keyspace",
            Asked::Scan => "scan",
            Asked::Ping => "ping",
            Asked::Unreadable => "unreadable",
        }
    }
}

/// A status is counted at its class times this and its number in the class.
const CLASS_STATUSES: usize = 9;
const PLACES: usize = 7 * CLASS_STATUSES;

/// How often each status was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statuses([u64; PLACES]);

impl Default for Statuses {
    fn default() -> Self {
        Statuses([0; PLACES])
    }
}

impl Statuses {
    #[inline]
    pub(crate) fn add(&mut self, status: Status) {
        let [in_class, class] = status.code().to_le_bytes();
        self.0[CLASS_STATUSES * usize::from(class) + usize::from(in_class)] += 1;
    }

    /// How often this one was.
    #[must_use]
    pub fn of(&self, status: Status) -> u64 {
        let [in_class, class] = status.code().to_le_bytes();
        self.0[CLASS_STATUSES * usize::from(class) + usize::from(in_class)]
    }

    /// How often any was.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// How many items were answered. A parked item counts when its answer is written, by the shard that
/// writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    by_kind: [Statuses; Asked::ALL.len()],
    total: u64,
}

impl Answers {
    #[inline]
    pub(crate) fn add(&mut self, asked: Asked, status: Status) {
        self.by_kind[asked as usize].add(status);
        self.total += 1;
    }

    /// What items of this kind got.
    #[must_use]
    pub fn of(&self, asked: Asked) -> &Statuses {
        &self.by_kind[asked as usize]
    }

    /// All items.
    #[inline]
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Writes that changed nothing because a guard or condition failed, or that found no key.
    #[must_use]
    pub fn failed(&self) -> u64 {
        let failed = |status: &Status| status.code() >> 8 == 1;
        let of = |asked| -> u64 {
            let statuses = Status::ALL.into_iter().filter(failed);
            statuses.map(|status| self.of(asked).of(status)).sum()
        };
        [Asked::Set, Asked::Del, Asked::UpdateIf]
            .map(of)
            .iter()
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_and_status_has_a_count_of_its_own() {
        let mut answers = Answers::default();
        for (number, asked) in (1..).zip(Asked::ALL) {
            for status in Status::ALL {
                (0..number).for_each(|_| answers.add(asked, status));
            }
        }
        let statuses = Status::ALL.len() as u64;
        for (number, asked) in (1..).zip(Asked::ALL) {
            for status in Status::ALL {
                assert_eq!(answers.of(asked).of(status), number, "{asked:?} {status:?}");
            }
            assert_eq!(answers.of(asked).all(), number * statuses);
        }
        let each: u64 = (1..=Asked::ALL.len() as u64).sum();
        assert_eq!(answers.total(), each * statuses);
        // Of set, del and update_if.
        assert_eq!(answers.failed(), (2 + 3 + 4) * 5);
    }
}
