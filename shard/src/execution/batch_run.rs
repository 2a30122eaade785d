//! A batch on its way: the bytes that arrived, the reply frame that is written, and how far it is.

use std::sync::Arc;

use penstock_net::frame::Header;
use penstock_net::level::AckLevel;
use penstock_net::pieces::Pieces;
use penstock_net::reply::BatchReply;
use penstock_net::rights::Rights;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{self, Bug};

use crate::execution::direct_answers::DirectAnswers;
use crate::mail::SessionId;

/// Bytes of a connection that wait to be run.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) id: SessionId,
    /// When they came, in microseconds of the node's clock.
    pub(crate) came_us: u64,
}

/// How far a batch has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Every item has run, or is on its way.
    Whole,
    /// Its reply goes on in another frame.
    FrameFull,
    /// There is no room in the log, for replies or for mail: try again after something completed.
    NoRoom,
}

/// What became of one item.
pub(crate) enum Passed {
    /// The next one may run.
    On,
    /// It has run, or is on its way, and the batch stops behind it.
    Stop(Progress),
    /// It must be given again.
    Again,
}

/// A reply frame of a batch that is being written.
pub(crate) struct BatchRun {
    pub(crate) arrival: Arrival,
    pub(crate) request_id: u64,
    pub(crate) level: AckLevel,
    /// The request named no level.
    pub(crate) is_unleveled: bool,
    pub(crate) deadline_us: u64,
    /// Its deadline has passed: all that is left is answered so, in few bytes.
    pub(crate) is_expired: bool,
    /// The item with which this frame began, and the next one.
    pub(crate) first: usize,
    pub(crate) next: usize,
    pub(crate) reply: BatchReply,
    pub(crate) out: Pieces,
    /// What the frame depends on.
    pub(crate) gate: Lsn,
    /// One of the items of this frame is BUSY.
    pub(crate) is_busy: bool,
    /// Items that are answered later.
    pub(crate) owed: usize,
    /// Whether there is room for a long answer when the frame begins.
    pub(crate) takes_long_answers: bool,
    /// A frame of so many bytes is ended.
    pub(crate) full_bytes: usize,
    /// What was answered without an operation.
    pub(crate) plain: DirectAnswers,
    /// What its items are judged by. The session has it back at the end: a count of its owners
    /// would be shared by all cores.
    pub(crate) rights: Option<Arc<Rights>>,
}

impl BatchRun {
    /// What an answer calls the item at this place of the batch.
    #[inline]
    pub(crate) fn number(&self, at: usize) -> u16 {
        let first = planted::or(Bug::CountFromInterruption, self.first, 0);
        u16::try_from(at - first).expect("at most 1024 items")
    }

    /// The frame depends on this record too.
    #[inline]
    pub(crate) fn depends_on(&mut self, lsn: Lsn) {
        self.gate = planted::or(Bug::GateOfLastItem, lsn, self.gate.max(lsn));
    }

    /// What was written behind the last answer is the next one. Whether the frame ends with it.
    #[inline]
    pub(crate) fn ends_item(&mut self) -> bool {
        self.reply.end_item(&mut self.out);
        self.reply.bytes() > self.full_bytes
    }

    /// Ends an answer.
    #[inline]
    pub(crate) fn passed(&mut self) -> Passed {
        match self.ends_item() {
            true => Passed::Stop(Progress::FrameFull),
            false => Passed::On,
        }
    }

    /// So many more of its items are answered later.
    pub(crate) fn owes(&mut self, items: usize) {
        self.owed += items;
    }

    /// The connection that it came from.
    pub(crate) fn session(&self) -> SessionId {
        self.arrival.id
    }

    /// The level that its items reach at least.
    #[inline]
    pub(crate) fn level(&self) -> AckLevel {
        self.level
    }

    /// Whether its items are executed, and there is room for what they answer.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        !self.is_expired && self.takes_long_answers
    }
}

/// When a request that came then expires; 0 for never.
pub(crate) fn deadline_us_of(header: &Header, came_us: u64) -> u64 {
    match header.deadline_or_retry_ms {
        0 => 0,
        deadline_ms => came_us + u64::from(deadline_ms) * 1000,
    }
}
