//! Epochs: who may write a partition, and since which record.

use std::fmt;

use penstock_net::link::message::EpochEntry;
use penstock_net::link::message::LINK_EPOCHS_MAX;
use penstock_net::link::{Epochs, Position};

use super::planted::{self, Bug};

const NODE_BITS: u32 = 8;
const START_BITS: u32 = 10;
const GENERATION_BITS: u32 = 14;

/// The right to write one partition: 14 bits of generation, which the control plane gives to a
/// node; 10 bits of start, which the node counts within its generation; 8 bits of node.
///
/// So no two nodes have one epoch, and however often a node starts that does not know of its
/// successor, its epochs stay below the successor's.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

impl Epoch {
    /// Generations, 1 to this; 0 is that of a node alone.
    pub const GENERATION_MAX: u32 = (1 << GENERATION_BITS) - 1;
    /// Starts within a generation, 0 to this.
    pub const START_MAX: u32 = (1 << START_BITS) - 1;

    /// An epoch.
    ///
    /// # Panics
    /// If a number is over its limit.
    #[must_use]
    pub fn new(generation: u32, start: u32, node: u8) -> Self {
        assert!(generation <= Self::GENERATION_MAX && start <= Self::START_MAX);
        Epoch(generation << (START_BITS + NODE_BITS) | start << NODE_BITS | u32::from(node))
    }

    /// What the control plane gave.
    #[must_use]
    pub fn generation(self) -> u32 {
        self.0 >> (START_BITS + NODE_BITS)
    }

    /// The start of the node within the generation.
    #[must_use]
    pub fn start(self) -> u32 {
        self.0 >> NODE_BITS & Self::START_MAX
    }

    /// Who may write.
    #[must_use]
    pub fn node(self) -> u8 {
        self.0.to_le_bytes()[0]
    }

    /// The epoch with which `node` goes on in `generation` after it has promised `promised`: above
    /// it, and above every epoch that the node wrote under. `None` if the promise is of a later
    /// generation, or of another node in this one, or if the starts of the generation are used up:
    /// a new generation is needed.
    #[must_use]
    pub fn next(generation: u32, node: u8, promised: Epoch) -> Option<Epoch> {
        if generation == 0 || generation > Self::GENERATION_MAX {
            return None;
        }
        if promised.generation() < generation {
            return Some(Epoch::new(generation, 0, node));
        }
        let is_ours = promised.generation() == generation && promised.node() == node;
        (is_ours && promised.start() < Self::START_MAX)
            .then(|| planted::or(Bug::EpochResumed, promised.start(), promised.start() + 1))
            .map(|start| Epoch::new(generation, start, node))
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}@{}", self.generation(), self.start(), self.node())
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The epochs that wrote a partition. Each has the start id of the node that wrote it and the
/// sequence of its first record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochHistory {
    /// Epochs and sequences rise strictly; the newest [`LINK_EPOCHS_MAX`].
    entries: Vec<EpochEntry>,
}

/// Up to where two histories are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    /// All that the other has.
    Prefix,
    /// Up to here; what the other has behind it has diverged.
    At(Position),
    /// Nothing that is known, although the other has records.
    Unrelated,
}

impl EpochHistory {
    /// The history with these entries.
    ///
    /// # Panics
    /// If they do not rise.
    pub fn of(entries: impl IntoIterator<Item = EpochEntry>) -> Self {
        let mut history = EpochHistory::default();
        for entry in entries {
            history.push(entry);
        }
        history
    }

    /// What a peer told; its order was checked when it was read.
    #[must_use]
    pub fn of_peer(epochs: &Epochs<'_>) -> Self {
        EpochHistory::of(epochs.iter())
    }

    /// What it is made of, ascending.
    pub fn entries(&self) -> impl Iterator<Item = EpochEntry> + '_ {
        self.entries.iter().copied()
    }

    /// The epoch that wrote last.
    #[must_use]
    pub fn last(&self) -> Option<Epoch> {
        self.entries.last().map(|entry| Epoch(entry.epoch))
    }

    /// The epoch that wrote the last of what is up to here.
    #[must_use]
    pub fn last_to(&self, head: Position) -> Option<Epoch> {
        let is_before =
            |entry: &&EpochEntry| entry.epoch <= head.epoch && entry.first <= head.sequence;
        let mut newest = self.entries.iter().rev();
        newest.find(is_before).map(|entry| Epoch(entry.epoch))
    }

    /// Another epoch has begun. What is no news changes nothing.
    ///
    /// # Panics
    /// If it does not stand behind the last epoch.
    pub fn push(&mut self, entry: EpochEntry) {
        if let Some(last) = self.entries.last() {
            if last.epoch == entry.epoch {
                return;
            }
            assert!(
                last.epoch < entry.epoch && last.first < entry.first,
                "{entry:?} behind {last:?}"
            );
        }
        if self.entries.len() == LINK_EPOCHS_MAX {
            self.entries.remove(0);
        }
        self.entries.push(entry);
    }

    /// The last sequence of `epoch`, if `head` is the last position of all.
    fn end_of(&self, epoch: Epoch, head: Position) -> Option<u64> {
        let at = self
            .entries
            .iter()
            .position(|known| known.epoch == epoch.0)?;
        Some(match self.entries.get(at + 1) {
            Some(next) => next.first - 1,
            None => head.sequence,
        })
    }

    /// Whether a version is part of this past, whose last position is `head`: its epoch wrote, and
    /// had not ended yet.
    #[must_use]
    pub fn contains(&self, version: Position, head: Position) -> bool {
        let epoch = Epoch(version.epoch);
        let mut entries = self.entries.iter();
        match entries.find(|known| known.epoch == version.epoch) {
            Some(known) => {
                version.sequence >= known.first
                    && self
                        .end_of(epoch, head)
                        .is_some_and(|end| version.sequence <= end)
            }
            // Older than what is kept of the history.
            None => self.entries.first().is_some_and(|oldest| {
                version.epoch < oldest.epoch && version.sequence < oldest.first
            }),
        }
    }

    /// The start id of the node that wrote under an epoch, if the epoch is known.
    fn start_of(&self, epoch: u32) -> Option<u32> {
        let mut entries = self.entries.iter();
        let entry = entries.find(|entry| entry.epoch == epoch)?;
        Some(entry.start_id)
    }

    /// Whether a version of another past is part of this one: its epoch wrote here, too, and the
    /// same start did so.
    #[must_use]
    pub fn shares(&self, other: &EpochHistory, version: Position, head: Position) -> bool {
        self.contains(version, head)
            && self.start_of(version.epoch) == other.start_of(version.epoch)
    }

    /// Forgets what begins behind `at`.
    pub fn cut(&mut self, at: Position) {
        self.entries
            .retain(|entry| entry.epoch <= at.epoch && entry.first <= at.sequence);
    }

    /// Up to where another history, whose last position is `theirs`, is the same as this one, whose
    /// last position is `ours`.
    #[must_use]
    pub fn fork(&self, ours: Position, other: &EpochHistory, theirs: Position) -> Fork {
        if theirs.sequence == 0 {
            return Fork::Prefix;
        }
        let common = other
            .entries
            .iter()
            .rev()
            .find(|entry| self.entries.contains(entry));
        let Some(common) = common else {
            return Fork::Unrelated;
        };
        let epoch = Epoch(common.epoch);
        let end = |history: &EpochHistory, head| history.end_of(epoch, head).expect("it is common");
        let (our_end, their_end) = (end(self, ours), end(other, theirs));
        let is_their_last = other.last() == Some(epoch);
        if is_their_last && their_end <= our_end {
            return Fork::Prefix;
        }
        Fork::At(Position {
            epoch: epoch.0,
            sequence: our_end.min(their_end),
        })
    }

    /// An epoch of both histories that two starts of one node wrote: one start had an older copy of
    /// the directory of the other. Versions under the epoch say nothing.
    #[must_use]
    pub fn written_twice(&self, other: &EpochHistory) -> Option<Epoch> {
        let is_twice = |entry: &&EpochEntry| {
            let start_id = other.start_of(entry.epoch);
            start_id.is_some_and(|start_id| start_id != entry.start_id)
        };
        self.entries.iter().find(is_twice).map(|it| Epoch(it.epoch))
    }

    /// Whether a source with this history has lost what it had on its disk, as nothing but its disk
    /// can. A member that `held` this up to its last applied record, and has `applied` something
    /// behind the `fork` of the two, got the last of that from the only node that has the
    /// generation: from the source, which tells what is durable alone.
    #[must_use]
    pub fn has_gone_back(&self, held: &EpochHistory, applied: Position, fork: Position) -> bool {
        let generation = |history: &EpochHistory| history.last().map(Epoch::generation);
        fork.sequence < applied.sequence && generation(self) == generation(held)
    }
}

/// For people: the first and the last one.
impl fmt::Display for EpochHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, .., last] = &self.entries[..] else {
            return match self.last() {
                Some(one) => write!(f, "epoch {one}"),
                None => f.write_str("no epoch"),
            };
        };
        let count = self.entries.len();
        let (first, last) = (Epoch(first.epoch), Epoch(last.epoch));
        write!(f, "{count} epochs, {first} to {last}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(generation: u32, start: u32, node: u8) -> Epoch {
        Epoch::new(generation, start, node)
    }

    fn entry((epoch, first): (Epoch, u64)) -> EpochEntry {
        EpochEntry {
            epoch: epoch.0,
            start_id: 7,
            first,
        }
    }

    fn at(epoch: Epoch, sequence: u64) -> Position {
        Position {
            epoch: epoch.0,
            sequence,
        }
    }

    #[test]
    fn a_long_history_is_named_by_its_ends() {
        let of = |starts: u32| {
            let entries =
                (0..starts).map(|start| entry((epoch(7, start, 2), 1 + u64::from(start))));
            EpochHistory::of(entries).to_string()
        };
        assert_eq!(of(0), "no epoch");
        assert_eq!(of(1), "epoch 7.0@2");
        assert_eq!(of(209), "64 epochs, 7.145@2 to 7.208@2");
    }

    #[test]
    fn a_node_that_starts_for_ever_never_outruns_a_later_generation() {
        let mut promised = Epoch::default();
        let mut last = None;
        let successor = epoch(8, 0, 2);
        while let Some(next) = Epoch::next(7, 1, promised) {
            assert!(next > promised && next < successor && next.node() == 1);
            promised = next;
            last = Some(next);
        }
        assert_eq!(last, Some(epoch(7, Epoch::START_MAX, 1)));
        // Once it has promised, it begins nothing in a generation that is over.
        assert_eq!(Epoch::next(7, 1, successor), None);
        assert_eq!(Epoch::next(9, 1, successor), Some(epoch(9, 0, 1)));
        // It begins nothing in a generation that another node has, either.
        assert_eq!(Epoch::next(8, 1, successor), None);
        assert_eq!(Epoch::next(8, 2, successor), Some(epoch(8, 1, 2)));
        assert_eq!(Epoch::next(0, 1, Epoch::default()), None);
        assert_eq!(Epoch::next(1 << 14, 1, Epoch::default()), None);
    }

    #[test]
    fn forks_are_found_by_epochs_and_not_by_sequences() {
        let (a, b, c) = (epoch(1, 0, 1), epoch(2, 0, 2), epoch(1, 1, 1));
        let history =
            |entries: &[(Epoch, u64)]| EpochHistory::of(entries.iter().copied().map(entry));
        let ours = history(&[(a, 1), (b, 101)]);
        let head = at(b, 150);
        let fork = |entries: &[(Epoch, u64)], theirs| ours.fork(head, &history(entries), theirs);
        // Nothing; behind; at the end of an epoch; in the last one; at the head.
        assert_eq!(fork(&[], Position::default()), Fork::Prefix);
        assert_eq!(fork(&[(a, 1)], at(a, 40)), Fork::Prefix);
        assert_eq!(fork(&[(a, 1)], at(a, 100)), Fork::Prefix);
        assert_eq!(fork(&[(a, 1), (b, 101)], at(b, 101)), Fork::Prefix);
        assert_eq!(fork(&[(a, 1), (b, 101)], head), Fork::Prefix);
        // The former primary had written on, fewer and more records than its successor.
        assert_eq!(fork(&[(a, 1)], at(a, 105)), Fork::At(at(a, 100)));
        assert_eq!(fork(&[(a, 1)], at(a, 9000)), Fork::At(at(a, 100)));
        // It had started again before it knew: at, before and behind the place of the fork.
        assert_eq!(fork(&[(a, 1), (c, 101)], at(c, 120)), Fork::At(at(a, 100)));
        assert_eq!(fork(&[(a, 1), (c, 91)], at(c, 120)), Fork::At(at(a, 90)));
        assert_eq!(fork(&[(a, 1), (c, 111)], at(c, 120)), Fork::At(at(a, 100)));
        // The member is ahead of a primary that is of the same past.
        assert_eq!(fork(&[(a, 1), (b, 101)], at(b, 151)), Fork::At(head));
        // Another past, though the sequences agree.
        let other = epoch(1, 0, 9);
        assert_eq!(fork(&[(other, 1)], at(other, 40)), Fork::Unrelated);
        // The same epoch from another record on is not the same past.
        assert_eq!(fork(&[(a, 2)], at(a, 40)), Fork::Unrelated);
        // The same epoch by another start is not the same past, either.
        let twice = EpochHistory::of([
            entry((a, 1)),
            EpochEntry {
                start_id: 8,
                ..entry((b, 101))
            },
        ]);
        assert_eq!(ours.fork(head, &twice, at(b, 120)), Fork::At(at(a, 100)));
        assert!(!ours.shares(&twice, at(b, 110), head) && ours.shares(&twice, at(a, 99), head));
    }

    #[test]
    fn a_source_that_went_on_in_one_generation_without_what_it_had_announced_durable_has_gone_back()
    {
        let (a, b, next) = (epoch(1, 0, 1), epoch(1, 1, 1), epoch(2, 0, 2));
        let history =
            |entries: &[(Epoch, u64)]| EpochHistory::of(entries.iter().copied().map(entry));
        let held = history(&[(a, 1), (b, 101)]);
        let has_gone_back =
            |own: &[(Epoch, u64)], fork| history(own).has_gone_back(&held, at(b, 120), fork);
        // In the epoch itself, in another start of it, before its own first one.
        assert!(has_gone_back(&[(a, 1), (b, 101)], at(b, 110)));
        assert!(has_gone_back(&[(a, 1), (b, 91)], at(a, 90)));
        assert!(has_gone_back(&[(a, 1)], at(a, 100)));
        assert!(!has_gone_back(&[(a, 1), (b, 101)], at(b, 120)));
        // Another node was given the next generation without it, or this one was.
        assert!(!has_gone_back(&[(a, 1), (next, 91)], at(a, 90)));
        assert!(!has_gone_back(&[(a, 1), (epoch(2, 0, 1), 91)], at(a, 90)));
        assert!(!has_gone_back(&[(a, 1), (b, 101), (next, 111)], at(b, 110)));
    }

    #[test]
    fn a_version_is_of_the_past_while_its_epoch_wrote() {
        let (a, b, c) = (epoch(1, 0, 1), epoch(1, 1, 1), epoch(2, 0, 2));
        let mut history = EpochHistory::of([(a, 1), (c, 101)].map(entry));
        let head = at(c, 120);
        let contained =
            |history: &EpochHistory, epoch, sequence| history.contains(at(epoch, sequence), head);
        for (epoch, sequence, is_there) in [
            (a, 1, true),
            (a, 100, true),
            (a, 101, false),
            (b, 95, false),
            (b, 105, false),
            (c, 100, false),
            (c, 101, true),
            (c, 120, true),
            (c, 121, false),
        ] {
            assert_eq!(
                contained(&history, epoch, sequence),
                is_there,
                "{epoch} {sequence}"
            );
        }
        history.cut(at(a, 100));
        assert_eq!(history, EpochHistory::of([entry((a, 1))]));
        history.cut(at(a, 1));
        assert_eq!(history, EpochHistory::of([entry((a, 1))]));
        history.cut(Position::default());
        assert_eq!(history, EpochHistory::default());
    }

    #[test]
    fn a_long_history_keeps_its_newest_epochs() {
        let entries = (0u32..100).map(|start| entry((epoch(1, start, 1), u64::from(start) + 1)));
        let history = EpochHistory::of(entries);
        assert_eq!(history.entries().count(), LINK_EPOCHS_MAX);
        assert_eq!(history.last(), Some(epoch(1, 99, 1)));
        let head = at(epoch(1, 99, 1), 100);
        assert!(history.contains(at(epoch(1, 2, 1), 3), head));
        assert!(!history.contains(at(epoch(1, 2, 1), 99), head));
    }
}
