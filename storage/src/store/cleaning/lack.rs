//! Deletions and edits that find no room in the log although none is on its way.
//!
//! They wait, and cleaning goes through the log once on their behalf. When it has found nothing to
//! do, and no spare could be had behind that, they are FULL for a while. Then the next one waits
//! again: what helps may have come without a sign.

/// How long deletions and edits wait without a sign of room, in microseconds: longer than whoever
/// makes spares waits between two tries.
pub const LACK_US_MAX: u64 = 2_000_000;

/// How long they are FULL then, in microseconds.
pub const REFUSE_US: u64 = 1_000_000;

/// What becomes of deletions and edits that find no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lack {
    /// All found some, or some is on its way.
    #[default]
    None,
    /// They wait, at most [`LACK_US_MAX`].
    Waits {
        /// Since when.
        since_us: u64,
        /// Bytes of all records that had been appended by then, copies left out.
        appended_bytes: u64,
        /// How often a spare had been refused when cleaning found nothing to do, if it has.
        hopeless_at: Option<u64>,
    },
    /// They are FULL.
    Refuses {
        /// As long as that.
        until_us: u64,
    },
}

/// What a turn knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// A deletion or an edit found no room since the last turn, and none was coming.
    pub(crate) found_none: bool,
    /// Bytes of all records that were ever appended, copies left out.
    pub(crate) appended_bytes: u64,
    /// Cleaning finds nothing to do.
    pub(crate) is_hopeless: bool,
    /// How often a spare was refused.
    pub(crate) refusals: u64,
}

impl Lack {
    /// Once in each turn. Whether a wait begins.
    pub(crate) fn turn(&mut self, now_us: u64, facts: Facts) -> bool {
        if let Lack::Waits { hopeless_at, .. } = self {
            *hopeless_at = match facts.is_hopeless {
                true => Some(hopeless_at.unwrap_or(facts.refusals)),
                false => None,
            };
        }
        *self = match *self {
            Lack::Waits { appended_bytes, .. } if facts.appended_bytes > appended_bytes => {
                Lack::None
            }
            Lack::Waits {
                since_us,
                hopeless_at,
                ..
            } if now_us >= since_us + LACK_US_MAX
                || hopeless_at.is_some_and(|at| facts.refusals > at) =>
            {
                Lack::Refuses {
                    until_us: now_us + REFUSE_US,
                }
            }
            Lack::Refuses { until_us } if now_us >= until_us => Lack::None,
            same => same,
        };
        let begins = facts.found_none && *self == Lack::None;
        if begins {
            *self = Lack::Waits {
                since_us: now_us,
                appended_bytes: facts.appended_bytes,
                hopeless_at: None,
            };
        }
        begins
    }

    /// Whether deletions and edits wait without a sign of room.
    pub(crate) fn waits(&self) -> bool {
        matches!(self, Lack::Waits { .. })
    }

    /// Whether deletions and edits that find no room are FULL.
    pub(crate) fn refuses(&self) -> bool {
        matches!(self, Lack::Refuses { .. })
    }

    /// When [`Lack::turn`] is due at the latest.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        match *self {
            Lack::None => None,
            Lack::Waits { since_us, .. } => Some(since_us + LACK_US_MAX),
            Lack::Refuses { until_us } => Some(until_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND_NONE: Facts = Facts {
        found_none: true,
        appended_bytes: 100,
        is_hopeless: false,
        refusals: 7,
    };

    #[test]
    fn what_finds_no_room_waits_is_refused_for_a_while_and_waits_again() {
        let mut lack = Lack::default();
        let found_some = Facts {
            found_none: false,
            ..FOUND_NONE
        };
        assert!(!lack.turn(5, found_some));
        assert_eq!(lack.deadline_us(), None);
        assert!(lack.turn(10, FOUND_NONE), "a wait begins");
        assert!(!lack.turn(20, FOUND_NONE), "the same wait");
        assert!(lack.waits() && !lack.refuses());
        let refused_us = 10 + LACK_US_MAX;
        assert_eq!(lack.deadline_us(), Some(refused_us));
        assert!(!lack.turn(refused_us - 1, FOUND_NONE) && lack.waits());
        assert!(!lack.turn(refused_us, FOUND_NONE) && lack.refuses());
        let over_us = refused_us + REFUSE_US;
        assert_eq!(lack.deadline_us(), Some(over_us));
        assert!(!lack.turn(over_us - 1, FOUND_NONE) && lack.refuses());
        assert!(lack.turn(over_us, FOUND_NONE) && lack.waits());
    }

    #[test]
    fn a_wait_ends_early_when_a_spare_is_refused_behind_a_fruitless_choice_of_cleaning() {
        let hopeless = Facts {
            is_hopeless: true,
            ..FOUND_NONE
        };
        let refused = |refusals, is_hopeless| Facts {
            refusals,
            is_hopeless,
            ..FOUND_NONE
        };
        let mut lack = Lack::default();
        lack.turn(10, FOUND_NONE);
        lack.turn(11, hopeless);
        assert!(lack.waits(), "the refusals were before");
        lack.turn(12, refused(8, false));
        lack.turn(13, refused(8, true));
        assert!(lack.waits(), "cleaning had something to do meanwhile");
        lack.turn(14, refused(9, true));
        assert!(lack.refuses());
    }

    #[test]
    fn a_wait_is_over_when_anything_was_appended() {
        let mut lack = Lack::default();
        assert!(lack.turn(10, FOUND_NONE));
        let appended = Facts {
            appended_bytes: 101,
            found_none: false,
            ..FOUND_NONE
        };
        assert!(!lack.turn(20, appended));
        assert_eq!(lack, Lack::None);
        let next = Facts {
            found_none: true,
            ..appended
        };
        assert!(lack.turn(30, next), "the next one finds none");
    }
}
