//! What a shard answered, by what was asked and by the status of the answer.

use penstock_net::request::{Effect, Verb};
use penstock_net::status::Status;

/// What an item of a request asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A verb.
    Verb(Verb),
    /// An item that could not be read.
    Unreadable,
}

impl Asked {
    /// All of them: the verbs in the order of their table, then the rest.
    pub const ALL: [Asked; Verb::ALL.len() + 1] = {
        let mut all = [Asked::Unreadable; Verb::ALL.len() + 1];
        let mut place = 0;
        while place < Verb::ALL.len() {
            all[place] = Asked::Verb(Verb::ALL[place]);
            place += 1;
        }
        all
    };

    /// Whether it changes nothing, whatever the answer.
    #[must_use]
    pub fn is_read(self) -> bool {
        matches!(self, Asked::Verb(verb) if verb.effect() == Effect::Reads)
    }

    /// Its name as a label: lower case, with underscores.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Asked::Verb(verb) => verb.name(),
            Asked::Unreadable => "unreadable",
        }
    }

    /// The position in [`Asked::ALL`].
    #[inline]
    fn place(self) -> usize {
        match self {
            Asked::Verb(verb) => verb.place(),
            Asked::Unreadable => Verb::ALL.len(),
        }
    }
}

impl From<Verb> for Asked {
    fn from(verb: Verb) -> Asked {
        Asked::Verb(verb)
    }
}

/// A status is counted at its class times this and its number in the class.
const CLASS_STATUSES: usize = 16;
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
    pub(crate) fn add(&mut self, status: Status, count: u64) {
        let [in_class, class] = status.code().to_le_bytes();
        self.0[CLASS_STATUSES * usize::from(class) + usize::from(in_class)] += count;
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
    pub(crate) fn add(&mut self, asked: Asked, status: Status, count: u64) {
        self.by_kind[asked.place()].add(status, count);
        self.total += count;
    }

    /// What items of this kind got.
    #[must_use]
    pub fn of(&self, asked: impl Into<Asked>) -> &Statuses {
        &self.by_kind[asked.into().place()]
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
        let of = |verb| -> u64 {
            let statuses = Status::ALL.into_iter().filter(failed);
            statuses.map(|status| self.of(verb).of(status)).sum()
        };
        let changes = |verb: &Verb| matches!(verb.effect(), Effect::Writes | Effect::Deletes);
        let changing = Verb::ALL.into_iter().filter(changes);
        changing.map(of).sum()
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
                (0..number).for_each(|_| answers.add(asked, status, 1));
            }
        }
        let statuses = Status::ALL.len() as u64;
        for (number, asked) in (1..).zip(Asked::ALL) {
            for status in Status::ALL {
                assert_eq!(answers.of(asked).of(status), number, "{asked:?} {status:?}");
            }
            assert_eq!(answers.of(asked).all(), number * statuses);
        }
        let numbered = Asked::ALL.iter().enumerate();
        assert!(
            numbered
                .into_iter()
                .all(|(place, asked)| asked.place() == place)
        );
        let each: u64 = (1..=Asked::ALL.len() as u64).sum();
        assert_eq!(answers.total(), each * statuses);
        let failing = (1..).zip(Verb::ALL).filter(|(_, verb)| {
            let effect = verb.effect();
            effect == Effect::Writes || effect == Effect::Deletes
        });
        let failing: u64 = failing.map(|(number, _)| number).sum();
        assert_eq!(answers.failed(), failing * 6);
    }
}
