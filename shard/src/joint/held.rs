//! The part of a change that a shard has: from the claim of its slots to their release.

use penstock_storage::place::Lsn;
use penstock_storage::store::{PartNeeds, Writer};

use super::claims::ChangeName;
use super::message::{ClaimedKey, KeyCopy, LeftKey};

/// How far a part has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldPhase {
    /// Its slots are not free yet.
    Waiting,
    /// Its keys are copied.
    Copying,
    /// The copies leave when they are durable.
    Copied(Lsn),
    /// The leader has them.
    Granted,
    /// Room is looked for.
    Preparing,
    /// Room is kept.
    Ready,
    /// It is decided. So many keys are as they are to be, by records up to this one.
    Applying(usize, Lsn),
    /// All are.
    Logged(Lsn),
    /// All are durable, or nothing can be had: the leader releases it.
    Done,
}

/// The part of a change.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) name: ChangeName,
    pub(crate) phase: HeldPhase,
    pub(crate) keys: Vec<ClaimedKey>,
    pub(crate) copies: Vec<KeyCopy>,
    /// The newest record that a copy shows.
    pub(crate) shown: Lsn,
    pub(crate) left: Vec<LeftKey>,
    /// Who has asked for it.
    pub(crate) writer: Option<Writer>,
    /// What is kept for it.
    pub(crate) reserved: Option<PartNeeds>,
    copies_bytes: usize,
}

impl Held {
    /// A part whose keys were claimed.
    pub(crate) fn of_claim(name: ChangeName, keys: Vec<ClaimedKey>) -> Self {
        Held {
            name,
            phase: HeldPhase::Waiting,
            keys,
            copies: Vec::new(),
            shown: Lsn(0),
            left: Vec::new(),
            writer: None,
            reserved: None,
            copies_bytes: 0,
        }
    }

    /// A part that an earlier run has decided.
    pub(crate) fn of_redo(name: ChangeName, left: Vec<LeftKey>) -> Self {
        Held {
            phase: HeldPhase::Applying(0, Lsn(0)),
            left,
            ..Held::of_claim(name, Vec::new())
        }
    }

    pub(crate) fn copied(&mut self, copy: KeyCopy, lsn: Lsn) {
        self.copies_bytes += copy.bytes();
        self.copies.push(copy);
        self.shown = self.shown.max(lsn);
    }

    /// The copies leave.
    pub(crate) fn take_copies(&mut self) -> Vec<KeyCopy> {
        self.copies_bytes = 0;
        std::mem::take(&mut self.copies)
    }

    /// Bytes of its copies.
    pub(crate) fn copies_bytes(&self) -> usize {
        self.copies_bytes
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let keys = self.keys.iter().map(ClaimedKey::bytes).sum::<usize>();
        keys + self.copies_bytes + self.left.iter().map(LeftKey::bytes).sum::<usize>()
    }

    /// Whether it is decided and not durable.
    pub(crate) fn is_owed(&self) -> bool {
        matches!(self.phase, HeldPhase::Applying(..) | HeldPhase::Logged(_))
    }
}
