//! Rights that a request needs of one key.

use super::Right;

/// Rights that are needed at a key together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need(u8);

impl Need {
    /// To read.
    pub const READ: Need = Need(1);
    /// To change without learning whether the key was there.
    pub const WRITE: Need = Need(2);
    /// To change, with an answer that may tell whether the key was there.
    pub const READ_WRITE: Need = Need(3);
    /// To administer.
    pub const ADMIN: Need = Need(4);

    /// One right.
    ///
    /// # Panics
    /// If the right is *run*, which is about a program.
    #[must_use]
    pub const fn of(right: Right) -> Need {
        match right {
            Right::Read => Need::READ,
            Right::Write => Need::WRITE,
            Right::Admin => Need::ADMIN,
            Right::Run => panic!("run is granted for each program"),
        }
    }

    #[inline]
    pub(super) const fn bits(self) -> u64 {
        self.0 as u64
    }

    /// Of a key that an operation reads, and may change.
    #[inline]
    pub(super) const fn of_change(is_changed: bool) -> Need {
        match is_changed {
            true => Need::READ_WRITE,
            false => Need::READ,
        }
    }
}
