//! The next items of a batch, looked at together before they run: their slots and hashes, and the
//! index entries and cells that they will need, whose loads then overlap.
//!
//! A GET that needs nothing but a cell in memory is answered here. Every other item goes the way of
//! [`super::operation`], and so does a GET wherever something beside the cell may decide its
//! answer: a cluster, a keyspace, an expiry, an item before it that waits, a reply for which there
//! may be no room. Both ways write the same bytes, wait for the same record and count the same.

use penstock_net::batch::Batch;
use penstock_net::level::AckLevel;
use penstock_net::reply::ReplyHead;
use penstock_net::request::{Version, likely_key, plain_get};
use penstock_net::status::Status;
use penstock_storage::index::CellId;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{self, Bug};
use penstock_storage::store::PREFETCH_KEYS_MAX;

use super::Shard;
use super::batch::{BatchRun, Passed, Progress};
use super::operation::Known;
use super::window::LookAhead;

impl<P: Blocks> Shard<P> {
    /// Looks at the items of a batch from `next` on, and starts loading what they will look up.
    #[inline]
    pub(super) fn look_ahead<'a>(&self, batch: Batch<'a>, next: usize, ahead: &mut LookAhead<'a>) {
        let count = PREFETCH_KEYS_MAX.min(batch.len() - next);
        ahead.window = next..next + count;
        ahead.known = [None; PREFETCH_KEYS_MAX];
        (ahead.gets, ahead.has_cells) = (0, false);
        let mut homes = [(0, 0); PREFETCH_KEYS_MAX];
        let mut last: Option<Known<'a>> = None;
        let mut is_one_key = true;
        for (number, home) in homes[..count].iter_mut().enumerate() {
            let item = batch.item(next + number);
            let key = match plain_get(item) {
                Some(key) => {
                    ahead.gets |= 1 << number;
                    key
                }
                None if count < 4 => continue,
                None => match likely_key(item) {
                    Some(key) => key,
                    None => continue,
                },
            };
            let it = match last {
                Some(last) if is_same(last.key, key) => Known { key, ..last },
                _ => {
                    is_one_key &= last.is_none();
                    let (slot, hash) = self.setup.hash().home_of(key);
                    Known { key, slot, hash }
                }
            };
            *home = (it.slot, it.hash);
            ahead.known[number] = Some(it);
            last = Some(it);
        }
        if ahead.gets != 0 {
            ahead.cells = self.store.first_cells(&homes[..count]);
            ahead.has_cells = true;
        } else if !is_one_key {
            // One hot key is in the processor's cache already.
            self.store.prefetch(&homes[..count]);
        }
    }

    /// Whether a GET of a batch may be answered from its cell alone.
    #[inline]
    pub(super) fn may_read_plainly(&self, run: &BatchRun) -> bool {
        self.setup.answers_runs()
            && self.linked.is_none()
            && self.store.keyspaces().is_empty()
            && self.requests.parking.is_empty()
            && run.has_room()
            && run.level() < AckLevel::Replica
    }

    /// Answers a GET from its cell. `None`: it needs more than that.
    #[inline]
    pub(super) fn read_plainly(
        &mut self,
        run: &mut BatchRun,
        known: Known<'_>,
        first: Option<CellId>,
    ) -> Option<Passed> {
        let Known { key, slot, hash } = known;
        if !self.setup.owns(slot) {
            return None;
        }
        let read = self.store.read_plain((slot, hash), key, first)?;
        if read.value.len() >= self.setup.config().shared_bytes_min {
            return None;
        }
        let version = Version {
            epoch: read.version.epoch,
            sequence: read.version.sequence,
        };
        ReplyHead::new(Status::Ok, run.number(run.next), run.level(), version)
            .write(run.out.written(), read.value);
        let (id, is_used) = (read.id, read.is_used);
        let lsn = planted::or(Bug::AnswerUnflushed, Lsn(0), read.lsn);
        if !is_used {
            self.store.touch(id);
        }
        run.plain_reads += 1;
        let gate = self.gate(run.level(), lsn);
        run.depends_on(gate);
        Some(match run.ends_item() {
            true => Passed::Stop(Progress::FrameFull),
            false => Passed::On,
        })
    }
}

/// Whether two keys are the same. Neighbours of a batch mostly differ in their last bytes.
#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.last_chunk::<8>() == b.last_chunk::<8>() && a == b
}
