//! Runs of a batch: items that repeat the one before them are answered together with it.
//!
//! The first item of a run goes the way of every item. Its answer tells that it was executed here
//! and at once, and at which level. Nothing comes between it and the items behind it, so all that
//! was asked on that way has the same answer for them: the deadline, the owner of the slot, what
//! waits before it, the settings of its keyspace, the part of this node in a cluster.

use penstock_net::batch::Batch;
use penstock_net::level::AckLevel;
use penstock_net::reply::ReplyItem;
use penstock_net::request::{Request, Verb, may_repeat};
use penstock_net::status::Status;
use penstock_storage::index::CellId;
use penstock_storage::io::Blocks;
use penstock_storage::store::Found;

use crate::answers::Asked;
use crate::execute::Ran;
use crate::execute::run_of_updates::{Answered, RunOfUpdates};

use super::batch::{BatchRun, Passed, Progress};
use super::{Now, Shard};

impl<P: Blocks> Shard<P> {
    /// Answers the items behind the one that was just answered, as long as they repeat it. The
    /// answer stands at the end of the output, from `answer_at` on.
    #[inline]
    pub(super) fn go_on(
        &mut self,
        now: Now,
        run: &mut BatchRun,
        batch: Batch<'_>,
        answer_at: usize,
    ) -> Passed {
        let next = run.next + 1;
        match next < batch.len() && may_repeat(batch.item(run.next), batch.item(next)) {
            true => self.answer_repeats(now, run, batch, answer_at),
            false => Passed::On,
        }
    }

    fn answer_repeats(
        &mut self,
        now: Now,
        run: &mut BatchRun,
        batch: Batch<'_>,
        answer_at: usize,
    ) -> Passed {
        if !self.setup.answers_runs() {
            return Passed::On;
        }
        let Some(before) = run.answered(batch, answer_at) else {
            return Passed::On;
        };
        let Some((home, id, request)) = self.executed(batch.item(run.next)) else {
            return Passed::On;
        };
        let (level, durable) = (before.level, self.store.log().durable());
        let Some(mut items) =
            RunOfUpdates::open(&mut self.store, now.us, home, id, &request, before)
        else {
            return Passed::On;
        };
        let (mut passed, from, mut done) = (Passed::On, run.next, 0);
        let (mut last_gate, mut waiting) = (None, 0);
        while run.next + 1 < batch.len() {
            let (number, item) = (run.number(run.next + 1), batch.item(run.next + 1));
            let Some(Ran::Answered { gate, status }) = items.next(number, item, run.out.written())
            else {
                break;
            };
            run.next += 1;
            match status {
                Status::Ok => done += 1,
                status => self.stats.answer(Asked::Verb(Verb::UpdateIf), status),
            }
            last_gate = Some(gate);
            waiting += u64::from(gate > durable);
            if run.ends_item() {
                passed = Passed::Stop(Progress::FrameFull);
                break;
            }
        }
        drop(items);
        self.stats
            .answers(Asked::Verb(Verb::UpdateIf), Status::Ok, done);
        self.stats.answer_in_run((run.next - from) as u64);
        // The gates of a run never fall, so the last one covers all of its answers.
        if let Some(last_gate) = last_gate {
            let gate = self.gate_of(level, last_gate, waiting);
            run.depends_on(gate);
        }
        passed
    }

    /// The slot, hash and cell of the key of an item that was executed, and its request. `None` if
    /// the item cannot have been executed on a key that is here.
    fn executed<'b>(&self, item: &'b [u8]) -> Option<((u16, u32), CellId, Request<'b>)> {
        let request = Request::read(item, self.setup.limits().value_bytes_max).ok()?;
        let (slot, hash) = self.setup.hash().home_of(request.key);
        match self.store.find(slot, hash, request.key) {
            Found::Cached(id) => Some(((slot, hash), id, request)),
            Found::Absent | Found::Cold(_) => None,
        }
    }
}

impl BatchRun {
    /// The item that was just answered, if its answer tells that it was executed, and that no
    /// answer of its level is kept for itself.
    fn answered<'b>(&mut self, batch: Batch<'b>, answer_at: usize) -> Option<Answered<'b>> {
        let answer = answer_at..self.out.written().len();
        let head = ReplyItem::read(&self.out.written()[answer.clone()])
            .ok()?
            .head;
        let is_executed = matches!(head.status, Status::Ok | Status::GuardFailed);
        (is_executed && head.level < AckLevel::Replica).then(|| Answered {
            item: batch.item(self.next),
            answer,
            level: head.level,
            status: head.status,
        })
    }
}
