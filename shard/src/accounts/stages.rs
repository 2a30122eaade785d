//! Where the time of operations goes, in four stages that follow each other without a gap:
//!
//! - *queue*: from the arrival of a request's bytes in the shard to the turn in which the operation
//!   ran: it waited for a read, for room in the log, or came by mail.
//! - *apply*: that turn, from its first event to its end, when replies and writes leave.
//! - *flush*: from there to the end of the turn in which the records behind the reply became
//!   durable. Replies that need not wait have no such stage.
//! - *reply*: from there until the network had taken the reply.
//!
//! Operations are counted, not frames, and measured by the times that the turns have anyway: nobody
//! reads a clock for this, and the costs are per frame and per turn. What waits in a socket before
//! the loop reads it is in none of the stages, nor is the way back of a reply from another shard.

use std::collections::VecDeque;

use penstock_storage::histogram::Histogram;
use penstock_storage::place::Lsn;

/// Turns whose replies wait for the disk, at most; those beyond share the time of the last.
const TURNS_MAX: usize = 256;

/// Operations of ended turns whose replies wait.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    lsn: Lsn,
    since_us: u64,
    operations: u64,
}

/// What a turn did for the operations that wait for the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OnDisk {
    /// Operations that wait.
    pub(crate) waiting: u64,
    /// Those that became durable in this turn.
    pub(crate) released: u64,
    /// When the turn ended in which the first of those ran.
    pub(crate) released_since_us: Option<u64>,
}

/// The stages of one shard's operations, in microseconds.
#[derive(Debug)]
pub struct Stages {
    queue: Histogram,
    apply: Histogram,
    flush: Histogram,
    reply: Histogram,
    /// When the first event of this turn came.
    turn_began_us: Option<u64>,
    /// Operations of this turn whose time in the queue is noted already, because it was not 0.
    queued: u64,
    /// Operations of this turn whose replies wait for the disk, and the last record of those.
    gated: u64,
    gate: Lsn,
    /// Ascends in both of LSN and time.
    waiting: VecDeque<Waiting>,
    /// Their operations in all.
    waiting_operations: u64,
}

impl Default for Stages {
    fn default() -> Self {
        Stages {
            queue: Histogram::default(),
            apply: Histogram::default(),
            flush: Histogram::default(),
            reply: Histogram::default(),
            turn_began_us: None,
            queued: 0,
            gated: 0,
            gate: Lsn(0),
            waiting: VecDeque::with_capacity(TURNS_MAX),
            waiting_operations: 0,
        }
    }
}

impl Stages {
    /// Queue, apply, flush and reply.
    #[must_use]
    pub fn all(&self) -> [&Histogram; 4] {
        [&self.queue, &self.apply, &self.flush, &self.reply]
    }

    /// Something happened.
    #[inline]
    pub(crate) fn event(&mut self, now_us: u64) {
        self.turn_began_us.get_or_insert(now_us);
    }

    /// So many operations were answered that came at `came_us`; without this they came in this
    /// turn.
    #[inline]
    pub(crate) fn queued(&mut self, now_us: u64, came_us: u64, operations: u64) {
        if now_us > came_us && operations > 0 {
            self.queued += operations;
            self.queue.add(now_us - came_us, operations);
        }
    }

    /// The replies of so many operations wait for this record.
    #[inline]
    pub(crate) fn waits(&mut self, lsn: Lsn, operations: u64) {
        self.gated += operations;
        self.gate = self.gate.max(lsn);
    }

    /// The turn is over, and so many operations were answered in it.
    #[inline]
    pub(crate) fn turn_ends(&mut self, now_us: u64, ran: u64) {
        let began_us = self.turn_began_us.take().unwrap_or(now_us);
        if ran == 0 {
            return;
        }
        let queued = std::mem::take(&mut self.queued);
        self.queue.add(0, ran.saturating_sub(queued));
        self.apply.add(now_us.saturating_sub(began_us), ran);
        if self.gated == 0 {
            return;
        }
        let ended = Waiting {
            lsn: std::mem::take(&mut self.gate),
            since_us: now_us,
            operations: std::mem::take(&mut self.gated),
        };
        self.waiting_operations += ended.operations;
        let is_full = self.waiting.len() == TURNS_MAX;
        match self.waiting.back_mut() {
            Some(last) if is_full || last.lsn >= ended.lsn => {
                last.lsn = last.lsn.max(ended.lsn);
                last.operations += ended.operations;
            }
            _ => self.waiting.push_back(ended),
        }
    }

    /// Everything up to this record is durable at the end of the turn.
    #[inline]
    pub(crate) fn durable(&mut self, now_us: u64, lsn: Lsn) -> OnDisk {
        let mut on_disk = OnDisk::default();
        while let Some(front) = self.waiting.front().filter(|front| front.lsn <= lsn) {
            self.flush
                .add(now_us.saturating_sub(front.since_us), front.operations);
            on_disk.released += front.operations;
            on_disk.released_since_us.get_or_insert(front.since_us);
            self.waiting.pop_front();
        }
        self.waiting_operations -= on_disk.released;
        on_disk.waiting = self.waiting_operations;
        on_disk
    }

    /// Whether replies wait for a record, at the end of a turn.
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.waiting_operations > 0
    }

    /// The network has the replies of so many operations, which might leave `since_us`.
    #[inline]
    pub(crate) fn left(&mut self, now_us: u64, since_us: u64, operations: u64) {
        if operations > 0 {
            self.reply.add(now_us.saturating_sub(since_us), operations);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(stages: &Stages) -> [(u64, u64); 4] {
        stages
            .all()
            .map(|stage| (stage.counts().iter().sum(), stage.sum()))
    }

    #[test]
    fn the_stages_of_an_operation_follow_each_other_without_a_gap() {
        let mut stages = Stages::default();
        stages.event(1_000);
        stages.event(1_400);
        stages.queued(1_000, 1_000, 3);
        stages.queued(1_000, 900, 1);
        stages.waits(Lsn(7), 1);
        stages.turn_ends(1_500, 4);
        stages.durable(1_600, Lsn(6));
        assert_eq!(total(&stages)[2], (0, 0));
        stages.durable(1_700, Lsn(8));
        stages.left(1_710, 1_700, 1);
        assert_eq!(total(&stages), [(4, 100), (4, 2_000), (1, 200), (1, 10)]);
        stages.turn_ends(1_800, 0);
        stages.event(2_000);
        stages.turn_ends(2_001, 1);
        assert_eq!(total(&stages)[1], (5, 2_001));
    }

    #[test]
    fn turns_that_wait_for_the_disk_are_bounded_and_none_of_their_operations_is_lost() {
        let mut stages = Stages::default();
        let turns = TURNS_MAX as u64 + 100;
        for turn in 1..=turns {
            stages.waits(Lsn(turn), 1);
            stages.turn_ends(turn, 2);
        }
        assert_eq!(stages.waiting.len(), TURNS_MAX);
        stages.durable(turns, Lsn(turns - 1));
        assert_eq!(stages.waiting.len(), 1);
        stages.durable(turns, Lsn(turns));
        assert_eq!(total(&stages)[2].0, turns);
    }
}
