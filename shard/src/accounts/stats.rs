//! What a shard counts of its own work, and where the time of its operations goes.

use penstock_net::request::Verb;
use penstock_net::status::Status;
use penstock_storage::place::Lsn;

use crate::accounts::answers::Asked;
use crate::accounts::busy::Waits;
use crate::accounts::counters::Counters;
use crate::accounts::stages::{OnDisk, Stages};
use crate::admission::Short;

/// The counts of a shard. Counts that another type owns are added by [`crate::Shard::counters`].
#[derive(Debug, Default)]
pub(crate) struct Stats {
    counters: Counters,
    stages: Stages,
    waits: Waits,
}

impl Stats {
    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    pub(crate) fn stages(&self) -> &Stages {
        &self.stages
    }

    // ---- items ----

    /// An item is answered.
    #[inline]
    pub(crate) fn answer(&mut self, asked: Asked, status: Status) {
        self.answers(asked, status, 1);
    }

    /// So many items are answered the same.
    #[inline]
    pub(crate) fn answers(&mut self, asked: Asked, status: Status, count: u64) {
        self.counters.answers.add(asked, status, count);
    }

    /// An item is answered that was not executed.
    pub(crate) fn refuse(&mut self, asked: Asked, status: Status) {
        self.counters.refused += 1;
        self.counters.answers.add(asked, status, 1);
    }

    /// A frame is refused.
    pub(crate) fn refuse_frame(&mut self, status: Status) {
        self.counters.refused += 1;
        self.counters.frames_refused.add(status, 1);
    }

    /// A frame of so many operations is refused because this is short.
    pub(crate) fn shed(&mut self, short: Short, operations: u64) {
        self.refuse_frame(Status::Busy);
        match short {
            Short::Core => self.counters.shed_for_core += operations,
            Short::Disk => self.counters.shed_for_disk += operations,
        }
    }

    /// All items that were answered.
    #[inline]
    pub(crate) fn items(&self) -> u64 {
        self.counters.answers.total()
    }

    /// A write was answered as the first time.
    pub(crate) fn replay_token(&mut self) {
        self.counters.tokens_replayed += 1;
    }

    /// So many items that came at `came_us` were answered without a read.
    #[inline]
    pub(crate) fn answer_at_once(&mut self, now_us: u64, came_us: u64, items: u64) {
        self.counters.at_once += items;
        self.stages.queued(now_us, came_us, items);
    }

    /// So many GETs and SETs found their keys and needed their cells and the open frame alone.
    #[inline]
    pub(crate) fn answer_directly(&mut self, gets: u64, sets: u64) {
        self.answers(Asked::Verb(Verb::Get), Status::Ok, gets);
        self.answers(Asked::Verb(Verb::Set), Status::Ok, sets);
        self.counters.direct_gets += gets;
        self.counters.direct_sets += sets;
    }

    /// So many items were answered together with the one before them.
    pub(crate) fn answer_in_run(&mut self, items: u64) {
        self.counters.in_runs += items;
    }

    /// An item that came at `came_us` was answered after it had waited.
    pub(crate) fn answer_later(&mut self, now_us: u64, came_us: u64) {
        self.stages.queued(now_us, came_us, 1);
        self.waits.note(now_us.saturating_sub(came_us));
    }

    /// A reply to an operation that came at `came_us` has waited for other nodes.
    pub(crate) fn answer_behind_members(&mut self, now_us: u64, came_us: u64) {
        self.waits.note(now_us.saturating_sub(came_us));
    }

    /// What a client is told with BUSY: milliseconds, from 1 to 1000.
    pub(crate) fn retry_after_ms(&self) -> u16 {
        self.waits.retry_after_ms()
    }

    /// A PING is answered.
    pub(crate) fn ping(&mut self) {
        self.counters.pings += 1;
    }

    /// An item waits for a read.
    pub(crate) fn park(&mut self) {
        self.counters.parked += 1;
    }

    /// An item is sent to another shard.
    pub(crate) fn forward(&mut self) {
        self.counters.forwarded += 1;
    }

    /// An item of another shard is answered.
    pub(crate) fn execute_for_other(&mut self, items: u64) {
        self.counters.executed_for_others += items;
    }

    /// A change of a keyspace is decided.
    pub(crate) fn change_keyspace(&mut self) {
        self.counters.keyspace_changes += 1;
    }

    // ---- reads ----

    /// A read of so many bytes is emitted.
    pub(crate) fn read(&mut self, bytes: u64) {
        self.counters.reads += 1;
        self.counters.read_bytes += bytes;
    }

    /// A read is done again, block by block.
    pub(crate) fn read_again(&mut self) {
        self.counters.reads_retried += 1;
    }

    // ---- stages ----

    /// Something happened.
    #[inline]
    pub(crate) fn event(&mut self, now_us: u64) {
        self.stages.event(now_us);
    }

    /// The replies of so many operations wait for this record.
    #[inline]
    pub(crate) fn wait(&mut self, lsn: Lsn, operations: u64) {
        self.stages.waits(lsn, operations);
    }

    /// Whether replies wait for this disk, at the end of a turn.
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.stages.waits_for_disk()
    }

    /// The network has the replies of so many operations, which might leave `since_us`.
    pub(crate) fn leave(&mut self, now_us: u64, since_us: u64, operations: u64) {
        self.stages.left(now_us, since_us, operations);
    }

    /// The turn is over: so many items were answered in it, and the log is durable up to a record.
    #[inline]
    pub(crate) fn end_turn(&mut self, now_us: u64, ran: u64, durable: Lsn) -> OnDisk {
        self.stages.turn_ends(now_us, ran);
        self.stages.durable(now_us, durable)
    }
}
