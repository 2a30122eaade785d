//! The course of one partition over a link: OPEN, STATE, BEGIN, JOIN, HANDOVER and CLOSE.

use crate::batch::read_u32;
use crate::link::body::{fixed, head, one_of, zero};
use crate::link::fault::LinkFault;
use crate::link::history::{Epochs, Position};

const STATE_BYTES: usize = 32;
const BEGIN_BYTES: usize = 32;

/// What a member is to its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Membership {
    /// A member of the sync set: level `replica` waits for it, and it may be promoted.
    Sync = 1,
    /// A learner: level `replica` does not wait for it, and it may not be promoted.
    Learner = 2,
}

/// OPEN, by the source: the source writes this partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The partition.
    pub partition: u16,
    /// What the destination is to the partition.
    pub membership: Membership,
    /// The epoch in which the source writes.
    pub epoch: u32,
}

/// Whether a destination accepts an OPEN. It may reject the OPEN later, when another link has
/// opened the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Answer {
    /// The destination has promised the epoch.
    Accepted = 1,
    /// The destination has promised a higher epoch. It takes no record of this partition from this
    /// link.
    Rejected = 2,
}

/// What a destination has begun and not finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum UnderWay {
    /// Nothing. The destination has all records up to the highest version that it holds.
    #[default]
    Nothing = 0,
    /// A scan of the partition.
    Scan = 1,
    /// A rewind: the source is to write the keys of diverged records anew.
    Rewind = 2,
}

/// STATE, by the destination: what it has of the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State<'a> {
    /// The partition.
    pub partition: u16,
    /// The answer to the epoch of OPEN.
    pub answer: Answer,
    /// What the destination has to finish.
    pub under_way: UnderWay,
    /// The epoch that the destination has promised.
    pub promised: u32,
    /// The destination has all records up to here.
    pub complete: Position,
    /// The history up to [`State::complete`].
    pub epochs: Epochs<'a>,
}

/// Which records of a partition follow BEGIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// The record of each next sequence behind [`Begin::from`].
    Dense = 1,
    /// All parts that count, values and deletions, in any order, until JOIN.
    Scan = 2,
}

/// BEGIN, by the source: where it begins to ship.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin<'a> {
    /// The partition.
    pub partition: u16,
    /// Which records follow.
    pub mode: Mode,
    /// The epoch of OPEN.
    pub epoch: u32,
    /// The last position that both nodes have in common, durable at the source. Records of the
    /// destination behind this position have diverged if they are not in [`Begin::epochs`].
    pub from: Position,
    /// The source's history.
    pub epochs: Epochs<'a>,
}

/// JOIN, by the source: the destination has caught up and has all records up to a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// The partition.
    pub partition: u16,
    /// The last record before JOIN.
    pub at: Position,
}

/// HANDOVER, by a source that drains: the destination has all records, and is to begin this epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The partition.
    pub partition: u16,
    /// The epoch that the destination begins.
    pub epoch: u32,
    /// The last record of the source.
    pub at: Position,
}

/// CLOSE, by the source: it no longer writes this partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close {
    /// The partition.
    pub partition: u16,
}

impl Open {
    pub(super) fn read(body: &[u8]) -> Result<Self, LinkFault> {
        let (body, partition) = fixed::<8>(body, "OPEN")?;
        zero(&body[3..4], "the byte behind the membership")?;
        let memberships = [(1, Membership::Sync), (2, Membership::Learner)];
        Ok(Open {
            partition,
            membership: one_of(body[2], "a membership", memberships)?,
            epoch: read_u32(body, 4),
        })
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.partition.to_le_bytes());
        out.extend_from_slice(&[self.membership as u8, 0]);
        out.extend_from_slice(&self.epoch.to_le_bytes());
    }
}

impl<'a> State<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, LinkFault> {
        let (head, rest, partition) = head::<STATE_BYTES>(body, "STATE")?;
        zero(&head[28..], "the word behind the number of epochs")?;
        let answers = [(1, Answer::Accepted), (2, Answer::Rejected)];
        let under_way = [
            (0, UnderWay::Nothing),
            (1, UnderWay::Scan),
            (2, UnderWay::Rewind),
        ];
        Ok(State {
            partition,
            answer: one_of(head[2], "an answer", answers)?,
            under_way: one_of(head[3], "what is under way", under_way)?,
            promised: read_u32(head, 4),
            complete: Position::read(head, 8)?,
            epochs: Epochs::read(read_u32(head, 24), rest, "the history in STATE")?,
        })
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.partition.to_le_bytes());
        out.extend_from_slice(&[self.answer as u8, self.under_way as u8]);
        out.extend_from_slice(&self.promised.to_le_bytes());
        self.complete.put(out);
        self.epochs.put(out);
    }
}

impl<'a> Begin<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, LinkFault> {
        let (head, rest, partition) = head::<BEGIN_BYTES>(body, "BEGIN")?;
        zero(&head[3..4], "the byte behind the mode")?;
        zero(&head[28..], "the word behind the number of epochs")?;
        Ok(Begin {
            partition,
            mode: one_of(head[2], "a mode", [(1, Mode::Dense), (2, Mode::Scan)])?,
            epoch: read_u32(head, 4),
            from: Position::read(head, 8)?,
            epochs: Epochs::read(read_u32(head, 24), rest, "the history in BEGIN")?,
        })
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.partition.to_le_bytes());
        out.extend_from_slice(&[self.mode as u8, 0]);
        out.extend_from_slice(&self.epoch.to_le_bytes());
        self.from.put(out);
        self.epochs.put(out);
    }
}

impl Join {
    pub(super) fn read(body: &[u8]) -> Result<Self, LinkFault> {
        let (body, partition) = fixed::<24>(body, "JOIN")?;
        zero(&body[2..8], "what stands behind the partition in JOIN")?;
        Ok(Join {
            partition,
            at: Position::read(body, 8)?,
        })
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.partition.to_le_bytes());
        out.extend_from_slice(&[0; 6]);
        self.at.put(out);
    }
}

impl Handover {
    pub(super) fn read(body: &[u8]) -> Result<Self, LinkFault> {
        let (body, partition) = fixed::<24>(body, "HANDOVER")?;
        zero(&body[2..4], "what stands behind the partition in HANDOVER")?;
        Ok(Handover {
            partition,
            epoch: read_u32(body, 4),
            at: Position::read(body, 8)?,
        })
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.partition.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.epoch.to_le_bytes());
        self.at.put(out);
    }
}

impl Close {
    pub(super) fn read(body: &[u8]) -> Result<Self, LinkFault> {
        let (body, partition) = fixed::<8>(body, "CLOSE")?;
        zero(&body[2..], "what stands behind the partition in CLOSE")?;
        Ok(Close { partition })
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.partition.to_le_bytes());
        out.extend_from_slice(&[0; 6]);
    }
}
