//! Admission: which frames are answered BUSY before they run, because the core or the disk has more
//! to do than it can.
//!
//! A connection is *ahead* when more of its operations are under way than are free. Nobody else is
//! refused. Each connection that is ahead has an equal share of what a turn may run and of what may
//! wait for the disk. Both limits follow from how long turns and waits take: no rate is estimated,
//! and no clock is read. See "The life of an overload" in `shard/DESIGN.md`.

mod budget;

use crate::accounts::busy::retry_after_ms;
use crate::accounts::stages::OnDisk;

use budget::{Budget, Credit};

/// Operations that all connections together may have under way before one is ahead.
const FREE: u64 = 8192;
/// The same of one connection, at least.
const FREE_OF_ONE_MIN: u64 = 16;
/// Connections are counted and refusals are told by intervals of so many microseconds.
const INTERVAL_US: u64 = 100_000;
/// How long a connection stays ahead.
const AHEAD_US: u64 = 5_000_000;
/// How long a turn that refuses something is to take.
const TURN_US: u64 = 1_100;
/// How long operations are to wait for the disk, at least.
const WAIT_US: u64 = 2_000;
/// The same at most, however slow the disk is.
const WAIT_US_MAX: u64 = 50_000;
/// If at most so many operations waited and none is left, their wait shows what the disk takes
/// without a queue.
const QUIET: u64 = 8;
/// Operations of a turn and of the disk's queue, when nothing is known.
const TURN_FIRST: u64 = 4096;
const WAITING_FIRST: u64 = 8192;
/// The least of both.
const TURN_MIN: u64 = 64;
const WAITING_MIN: u64 = 64;
/// Operations of a turn for each connection, at least: its system calls are paid in any case.
const TURN_MIN_OF_ONE: u64 = 8;

/// What ran short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Short {
    /// The time of the core.
    Core,
    /// What the disk makes durable.
    Disk,
}

impl Short {
    /// The body of the answer: a text as of any refused frame. It is written once for all, because
    /// a refusal is to cost little.
    pub(crate) fn message(self) -> &'static [u8] {
        match self {
            Short::Core => b"\x2a\0\0\0\0\0\0\0the core has more requests than it can run",
            Short::Disk => b"\x2c\0\0\0\0\0\0\0the disk has more requests than it can write",
        }
    }
}

/// What admission knows of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Claim {
    /// The intervals in which it was last heard, and last heard while it was ahead.
    active: u32,
    active_ahead: u32,
    /// It is ahead until then; 0 if it is not.
    ahead_until_us: u64,
    /// Bytes that stand in its socket behind what was read.
    pub(crate) unread_bytes: u64,
    core: Credit,
    disk: Credit,
}

impl Claim {
    /// Operations that stand in the socket, as long as those of the frame. They count once.
    fn take_behind(&mut self, asked: Asked) -> u64 {
        let bytes = std::mem::take(&mut self.unread_bytes);
        bytes.saturating_mul(asked.operations) / asked.bytes.max(1)
    }
}

/// What a frame asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// Operations of its connection that were read before it and are not answered.
    pub(crate) under_way: u64,
    pub(crate) operations: u64,
    /// Bytes of the frame.
    pub(crate) bytes: u64,
    /// One of the operations may write.
    pub(crate) is_write: bool,
}

/// Connections that were heard in the last interval and in this one.
#[derive(Debug, Default)]
struct ActiveConnections {
    last: u64,
    now: u64,
}

impl ActiveConnections {
    fn count(&self) -> u64 {
        self.last.max(self.now).max(1)
    }

    /// One that was heard last in the interval `active`, 0 for never, ends in the interval `now`.
    fn leaves(&mut self, last_active: u32, now: u32) {
        if last_active == now {
            self.now = self.now.saturating_sub(1);
        }
        // One that came in this interval was not counted in the last. Then the count is too low
        // for a moment, and nobody is refused for that.
        if last_active > 0 && last_active + 1 >= now {
            self.last = self.last.saturating_sub(1);
        }
    }

    fn next_interval(&mut self) {
        self.last = std::mem::take(&mut self.now);
    }
}

/// The admission of one shard.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Operations that are free of one connection: follows from `active`.
    free_of_one: u64,
    /// Counts intervals, from 1.
    interval: u32,
    interval_ends_us: u64,
    active: ActiveConnections,
    active_ahead: ActiveConnections,
    core: Budget,
    disk: Budget,
    /// Operations that wait for the disk, those included that were admitted since the turn began.
    waiting: u64,
    /// The most that waited since the last time that nothing did.
    waiting_peak: u64,
    /// What the disk takes without a queue, in microseconds; 0 if that was never seen.
    quiet_wait_us: u64,
    /// Operations that stood in sockets behind what was read in this turn.
    behind: u64,
    /// When the last turn ended.
    turn_began_us: u64,
    /// Operations that ran in this interval.
    ran: u64,
}

impl Admission {
    pub(crate) fn new() -> Admission {
        Admission {
            free_of_one: FREE,
            interval: 1,
            interval_ends_us: INTERVAL_US,
            active: ActiveConnections::default(),
            active_ahead: ActiveConnections::default(),
            core: Budget::new(TURN_FIRST),
            disk: Budget::new(WAITING_FIRST),
            waiting: 0,
            waiting_peak: 0,
            quiet_wait_us: 0,
            behind: 0,
            turn_began_us: 0,
            ran: 0,
        }
    }

    /// Bytes came by a connection.
    #[inline]
    pub(crate) fn note_active(&mut self, claim: &mut Claim) {
        if claim.active != self.interval {
            claim.active = self.interval;
            self.active.now += 1;
            self.free_of_one = (FREE / self.active.count()).max(FREE_OF_ONE_MIN);
        }
    }

    /// A connection ends: others have what was its share.
    pub(crate) fn leaves(&mut self, claim: &Claim) {
        self.active.leaves(claim.active, self.interval);
        self.active_ahead.leaves(claim.active_ahead, self.interval);
        self.free_of_one = (FREE / self.active.count()).max(FREE_OF_ONE_MIN);
    }

    /// Whether a frame of so many operations runs in any case, because few are under way on its
    /// connection.
    #[inline]
    pub(crate) fn is_free(&self, claim: &Claim, under_way: u64, operations: u64) -> bool {
        under_way + operations <= self.free_of_one
            && claim.ahead_until_us == 0
            && claim.unread_bytes == 0
    }

    /// Judges a frame that is not free: `None` if it is to run.
    #[cold]
    pub(crate) fn refuses(
        &mut self,
        now_us: u64,
        claim: &mut Claim,
        asked: Asked,
    ) -> Option<Short> {
        let behind = claim.take_behind(asked);
        self.behind += behind;
        if self.is_too_much(asked, behind) {
            if claim.ahead_until_us == 0 {
                claim.core = self.core.first_credit();
                claim.disk = self.disk.first_credit();
            }
            claim.ahead_until_us = now_us + AHEAD_US;
        } else if claim.ahead_until_us <= now_us {
            claim.ahead_until_us = 0;
            return None;
        }
        if claim.active_ahead != self.interval {
            claim.active_ahead = self.interval;
            self.active_ahead.now += 1;
        }
        let short = self.short_of(claim, asked.is_write);
        match short {
            None => {
                self.core.take(&mut claim.core, asked.operations);
                if asked.is_write {
                    self.disk.take(&mut claim.disk, asked.operations);
                    self.waiting += asked.operations;
                }
            }
            // A refusal is no sign of what the connection does: a closed loop that was taken for an
            // open one would be refused for ever.
            Some(short) => self.budget(short).refuse(asked.operations),
        }
        short
    }

    /// Whether more is under way on a connection than is free, with the frame and what stands
    /// behind it in the socket. One frame alone never is.
    fn is_too_much(&self, asked: Asked, behind: u64) -> bool {
        let others = asked.under_way.saturating_add(behind);
        others > 0 && others.saturating_add(asked.operations) > self.free_of_one
    }

    fn short_of(&mut self, claim: &mut Claim, is_write: bool) -> Option<Short> {
        let connections = self.active_ahead.count();
        let (has_core, has_disk) = (
            self.core.has_credit(&mut claim.core, connections),
            self.disk.has_credit(&mut claim.disk, connections),
        );
        let limit = self.disk.limit();
        let is_disk_full = self.waiting >= limit || (self.waiting >= limit / 2 && !has_disk);
        if !has_core || self.core.taken() >= self.core.limit() {
            Some(Short::Core)
        } else if is_write && is_disk_full {
            Some(Short::Disk)
        } else {
            None
        }
    }

    /// The turn is over: so many operations ran in it.
    #[inline]
    pub(crate) fn turn_ends(&mut self, now_us: u64, ran: u64, on_disk: OnDisk) {
        self.ran += ran;
        self.waiting = on_disk.waiting;
        let took_us = now_us.saturating_sub(self.turn_began_us);
        self.turn_began_us = now_us;
        if on_disk.released > 0 && on_disk.waiting == 0 {
            self.learn_from_the_disk(now_us, on_disk);
        }
        self.waiting_peak = self.waiting_peak.max(on_disk.waiting);
        if self.active_ahead.now + self.active_ahead.last > 0 {
            self.share_out(now_us, took_us, on_disk);
        }
        if now_us >= self.interval_ends_us {
            self.end_interval(now_us);
        }
    }

    /// Notes what the disk takes without a queue, as a smoothed average.
    fn learn_from_the_disk(&mut self, now_us: u64, on_disk: OnDisk) {
        let peak = std::mem::take(&mut self.waiting_peak).max(on_disk.released);
        if let Some(since_us) = on_disk.released_since_us.filter(|_| peak <= QUIET) {
            let waited_us = now_us.saturating_sub(since_us);
            self.quiet_wait_us = match self.quiet_wait_us {
                0 => waited_us,
                before => before - before / 8 + waited_us / 8,
            };
        }
    }

    /// Sets the limits by what they have led to, and gives the connections that are ahead their
    /// shares.
    #[cold]
    fn share_out(&mut self, now_us: u64, took_us: u64, on_disk: OnDisk) {
        let connections = self.active_ahead.count();
        let turn_min = TURN_MIN.max(TURN_MIN_OF_ONE * self.active.count());
        // Where nothing was refused, nobody gets more than was used: else who comes first in each
        // turn would save up for the turns that are full.
        let granted = match self.core.has_refused() {
            true => self.core.limit(),
            false => self.core.taken(),
        };
        let behind = std::mem::take(&mut self.behind);
        if behind > 0 {
            // What has no room in the turns waits longer than one of them.
            self.core.end_round_behind(now_us, turn_min);
        } else {
            self.core.end_round(now_us, took_us, TURN_US, turn_min);
        }
        if let Some(since_us) = on_disk.released_since_us
            && since_us >= self.disk.round_began_us()
        {
            // The end of a write is seen at the end of a turn, and its begin was one.
            let seen_us = 2 * took_us.min(WAIT_US_MAX / 5);
            let target_us = (3 * self.quiet_wait_us).clamp(WAIT_US, WAIT_US_MAX) + seen_us;
            let waited_us = now_us.saturating_sub(since_us);
            self.disk
                .end_round(now_us, waited_us, target_us, WAITING_MIN);
        }
        self.core.grant(granted, connections);
        self.disk.grant(on_disk.released, connections);
    }

    fn end_interval(&mut self, now_us: u64) {
        let length_us = now_us + INTERVAL_US - self.interval_ends_us;
        let ran = std::mem::take(&mut self.ran);
        self.core.end_interval(length_us, ran);
        self.disk.end_interval(length_us, ran);
        self.interval = self.interval.wrapping_add(1).max(1);
        self.interval_ends_us = now_us + INTERVAL_US;
        self.active.next_interval();
        self.active_ahead.next_interval();
        self.free_of_one = (FREE / self.active.count()).max(FREE_OF_ONE_MIN);
    }

    /// What BUSY tells a connection for want of this.
    pub(crate) fn retry_after_ms(&self, short: Short) -> u16 {
        let budget = match short {
            Short::Core => &self.core,
            Short::Disk => &self.disk,
        };
        retry_after_ms(budget.owed_us())
    }

    fn budget(&mut self, short: Short) -> &mut Budget {
        match short {
            Short::Core => &mut self.core,
            Short::Disk => &mut self.disk,
        }
    }
}

#[cfg(test)]
mod tests;
