//! What a user may do with which keys.
//!
//! ```text
//! item, decoded --> what it needs of each key --> Rights: one search for each key --> may run
//!                   (net/RIGHTS.md, one table)            |
//!                                                         +--> Denied: right, key, program
//! ```
//!
//! What must hold: nothing is looked up in a store before; the answer follows from the bytes of the
//! item and from the rights alone, so [`Denied`] never tells whether a key exists; nothing is taken
//! from the heap.

mod denied;
mod grants;
mod judge;
mod need;
mod search;

pub use denied::Denied;
pub use grants::{GrantError, Grants};
pub use need::Need;
pub use search::Rights;

/// What a user may be allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    /// Read keys, and learn whether they exist.
    Read,
    /// Change keys.
    Write,
    /// Run a program on keys.
    Run,
    /// Change keyspaces; of the prefix of all keys, see what the server does.
    Admin,
}

impl Right {
    /// All of them.
    pub const ALL: [Right; 4] = [Right::Read, Right::Write, Right::Run, Right::Admin];

    /// The word for it in the users' file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Write => "write",
            Right::Run => "run",
            Right::Admin => "admin",
        }
    }

    /// The right with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Right> {
        Right::ALL.into_iter().find(|right| right.name() == name)
    }
}
