//! What the worlds of one walk met.

use std::time::Duration;

/// How long a walk may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// A share of the worlds, the same at every run: for every change.
    Share,
    /// All worlds.
    All,
}

/// What one world met, if it was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// The start was refused, and what is wrong was named.
    Refused,
    /// Every record that had to be there was there, and the start named those that it left out.
    Reported,
    /// All that had to be there was, and there was nothing to tell.
    Unharmed,
}

/// The sum of a walk.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub refused: u64,
    pub reported: u64,
    pub unharmed: u64,
    /// A promise was broken.
    pub wrong: u64,
    /// How, for the first of them.
    pub first_wrong: Option<String>,
    /// Different contents of the disk, where worlds may share them.
    pub distinct: Option<u64>,
    pub elapsed: Duration,
}

impl Tally {
    /// Takes one world in.
    pub fn add(&mut self, met: Result<Met, String>) {
        match met {
            Ok(Met::Refused) => self.refused += 1,
            Ok(Met::Reported) => self.reported += 1,
            Ok(Met::Unharmed) => self.unharmed += 1,
            Err(wrong) => {
                self.wrong += 1;
                self.first_wrong.get_or_insert(wrong);
            }
        }
    }

    /// Takes another walk in that ran beside this one.
    pub fn merge(&mut self, other: Tally) {
        self.refused += other.refused;
        self.reported += other.reported;
        self.unharmed += other.unharmed;
        self.wrong += other.wrong;
        self.first_wrong = self.first_wrong.take().or(other.first_wrong);
        self.elapsed = self.elapsed.max(other.elapsed);
    }

    pub fn worlds(&self) -> u64 {
        self.refused + self.reported + self.unharmed + self.wrong
    }
}
