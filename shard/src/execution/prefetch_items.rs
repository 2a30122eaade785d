//! The next items of a batch, looked at together before they run: their slots and hashes, and the
//! index entries and cells that they will need, whose loads then overlap.
//!
//! A plain GET that needs nothing but a cell in memory is answered here, and so is a plain SET that
//! needs nothing but its cell and the open frame of the log. Every other item goes the way of
//! [`super::operation`], and so do these wherever something else may decide the answer: another
//! node, a keyspace of the key, an expiry, an item before it that waits, a reply or a record for
//! which there may be no room. Both ways write the same bytes, wait for the same record and count
//! the same.

use std::ops::Range;

use penstock_net::batch::Batch;
use penstock_net::reply::ReplyHead;
use penstock_net::request::{
    Plain, Version, likely_has_others, likely_key, likely_other_keys, likely_token, plain,
};
use penstock_net::rights::{Need, Rights};
use penstock_net::status::Status;
use penstock_storage::direct_part::DirectBody;
use penstock_storage::index::CellId;
use penstock_storage::io::Blocks;
use penstock_storage::key_home::KeyHome;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{self, Bug};
use penstock_storage::store::PREFETCH_KEYS_MAX;
use penstock_storage::version::{Version as Stored, partition_of};

use crate::execution::Execution;
use crate::execution::batch_run::{BatchRun, Passed, Progress};
use crate::execution::direct_answers::DirectAnswers;
use crate::execution::operation::Known;
use crate::execution::verbs::token;
use crate::execution::window::{Ahead, DirectLeave, Homes, Upcoming};
use crate::now::Now;
use crate::replication;

impl<P: Blocks> Execution<P> {
    /// Looks at the items of a batch from `next` on, and starts loading what they will look up.
    #[inline]
    pub(crate) fn prefetch_items<'a>(
        &self,
        batch: Batch<'a>,
        next: usize,
        rights: Option<&Rights>,
        ahead: &mut Upcoming<'a>,
    ) {
        let count = PREFETCH_KEYS_MAX.min(batch.len() - next);
        let value_bytes_max = self.setup.limits().value_bytes_max;
        let mut homes = [KeyHome::default(); PREFETCH_KEYS_MAX];
        // A key that another shard owns is looked up there. Its place here is that of the own key
        // before it, which costs nothing to load.
        let mut last_own = KeyHome::default();
        let mut last: Option<Known<'a>> = None;
        let (mut is_one_key, mut is_any_plain, mut has_others) = (true, false, false);
        let into = ahead.begin(next, count);
        for (number, (home, into)) in (next..next + count).zip(homes.iter_mut().zip(into)) {
            let item = batch.item(number);
            let (key, plain) = match plain(item, value_bytes_max) {
                // Nothing of it is looked up: the way of every item denies it.
                Some((key, plain)) if lacks(rights, key, plain) => (None, None),
                Some((key, plain)) => {
                    is_any_plain = true;
                    (Some(key), Some(plain))
                }
                None if count < 4 => (None, None),
                None => {
                    has_others |= likely_has_others(item);
                    (likely_key(item), None)
                }
            };
            let known = key.map(|key| match last {
                Some(last) if is_same(last.key, key) => Known { key, ..last },
                _ => {
                    is_one_key &= last.is_none();
                    let KeyHome { slot, hash } = self.setup.hash().home_of(key);
                    Known { key, slot, hash }
                }
            });
            *into = Ahead { known, plain };
            if let Some(it) = known {
                if self.setup.owns(it.slot) {
                    last_own = it.home();
                }
                last = known;
            }
            *home = last_own;
        }
        if is_any_plain {
            ahead.has_cells(self.store.keys().only_cells(&homes[..count]));
        } else if !is_one_key {
            // One hot key is in the processor's cache already.
            self.store.keys().prefetch(&homes[..count]);
        }
        if has_others {
            self.prefetch_others(batch, next..next + count, ahead);
        }
    }

    /// Starts loading what items look up behind their first keys: the other keys of an APPLY, and
    /// tokens. Nearly all of them are new, and the place of a new key is seldom in the processor's
    /// cache.
    #[inline(never)]
    fn prefetch_others(&self, batch: Batch<'_>, items: Range<usize>, ahead: &Upcoming<'_>) {
        let mut homes = Homes::default();
        for number in items {
            let (item, Some(slot)) = (batch.item(number), ahead.slot_of_no_plain(number)) else {
                continue;
            };
            let hash = self.setup.hash();
            likely_other_keys(item, |key| {
                let hash = hash.of(key);
                homes.push(KeyHome { slot, hash }, |all| {
                    self.store.keys().prefetch(all)
                });
            });
            if let Some(token) = likely_token(item) {
                let hash = token::home_of(hash, slot, &token).1;
                homes.push(KeyHome { slot, hash }, |all| {
                    self.store.keys().prefetch(all)
                });
            }
        }
        self.store.keys().prefetch(homes.all());
    }

    /// How the plain items of a batch may be answered, until something else runs.
    #[inline]
    pub(crate) fn direct_leave(&self, run: &BatchRun) -> DirectLeave {
        let gets = self.setup.answers_repeats()
            && self.requests.parking.is_empty()
            && !self.joint.holds_any()
            && run.has_room()
            && !run.level().waits_for_members();
        let sets =
            gets && self.store.allows_direct_set() && !self.changes_wait_for_members(run.level());
        DirectLeave { gets, sets }
    }

    /// Answers a plain item of a key that this shard owns. `None`: it needs more than its cell and
    /// the open frame.
    #[inline]
    pub(crate) fn answer_directly(
        &mut self,
        now: Now,
        run: &mut BatchRun,
        leave: DirectLeave,
        (plain, known, only): (Plain<'_>, Known<'_>, Option<CellId>),
    ) -> Option<Passed> {
        if let Some(linked) = &self.linked
            && !linked.serves(partition_of(known.slot))
            && !replication::planted::is_planted(replication::planted::Bug::PlainOfOthers)
        {
            return None;
        }
        match plain {
            Plain::Get if leave.gets => self.direct_get(run, known, only)?,
            Plain::Set { body, value_len } if leave.sets => {
                let body = DirectBody::new(body, known.key.len(), value_len)?;
                self.direct_set(now, run, known, body, only)?;
            }
            _ => return None,
        }
        Some(match run.ends_item() {
            true => Passed::Stop(Progress::FrameFull),
            false => Passed::On,
        })
    }

    /// Answers a GET from its cell.
    #[inline(always)]
    fn direct_get(
        &mut self,
        run: &mut BatchRun,
        known: Known<'_>,
        only: Option<CellId>,
    ) -> Option<()> {
        let Known { key, slot, hash } = known;
        let read = self
            .store
            .data()
            .direct_get(KeyHome { slot, hash }, key, only)?;
        if read.value.len() >= self.setup.config().shared_bytes_min {
            return None;
        }
        ReplyHead::new(
            Status::Ok,
            run.number(run.next),
            run.level(),
            wire(read.version),
        )
        .write(run.out.written(), read.value);
        let (id, is_used) = (read.id, read.is_used);
        let lsn = planted::or(Bug::AnswerUnflushed, Lsn(0), read.lsn);
        if !is_used {
            self.store.keys_mut().touch(id);
        }
        run.plain.read(lsn);
        Some(())
    }

    /// Gives a key another value in its cell, and answers that.
    #[inline(always)]
    fn direct_set(
        &mut self,
        now: Now,
        run: &mut BatchRun,
        known: Known<'_>,
        body: DirectBody<'_>,
        only: Option<CellId>,
    ) -> Option<()> {
        let home = known.home();
        let (lsn, version) = self.store.direct_set(now.us, home, body, only)?;
        ReplyHead::new(Status::Ok, run.number(run.next), run.level(), wire(version))
            .write(run.out.written(), &[]);
        run.plain.set(lsn);
        Some(())
    }

    /// Notes what the plain answers of a reply frame depend on, and counts them.
    #[inline]
    pub(crate) fn end_direct_answers(&mut self, run: &mut BatchRun) {
        let DirectAnswers {
            reads,
            sets,
            newest,
            waiting,
            ..
        } = run.plain;
        self.stats.answer_directly(reads, sets);
        if waiting > 0 {
            let gate = self.gate_of(run.level(), newest, waiting);
            run.depends_on(gate);
        }
    }
}

/// Whether a plain item needs a right that is not there.
#[inline(always)]
fn lacks(rights: Option<&Rights>, key: &[u8], plain: Plain<'_>) -> bool {
    let Some(rights) = rights else { return false };
    let need = match plain {
        Plain::Get => Need::READ,
        Plain::Set { .. } => Need::WRITE,
    };
    !rights.allows(need, key)
}

/// Whether two keys are the same. Neighbours of a batch mostly differ in their last bytes.
#[inline]
pub(crate) fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.last_chunk::<8>() == b.last_chunk::<8>() && a == b
}

/// A version as the wire tells it.
#[inline]
fn wire(version: Stored) -> Version {
    Version {
        epoch: version.epoch,
        sequence: version.sequence,
    }
}
