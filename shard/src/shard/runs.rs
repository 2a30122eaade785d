//! Runs of a batch: items that repeat the one before them are answered together with it.
//!
//! The first item of a run goes the way of every item. Its answer tells that it was executed here
//! and at once, and at which level. Nothing comes between it and the items behind it, so all that
//! was asked on that way has the same answer for them: the deadline, the owner of the slot, what
//! waits before it, the settings of its keyspace, the part of this node in a cluster.

use penstock_net::apply::{Addition, ApplyRequest};
use penstock_net::batch::Batch;
use penstock_net::level::AckLevel;
use penstock_net::reply::ReplyItem;
use penstock_net::request::{Request, may_repeat};
use penstock_net::status::Status;
use penstock_storage::index::CellId;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;
use penstock_storage::store::Found;

use crate::answers::Asked;
use crate::execute::Ran;
use crate::execute::run_of_additions::RunOfAdditions;
use crate::execute::run_of_items::{Answered, RunOfItems};
use crate::execute::run_of_updates::RunOfUpdates;
use crate::stats::Stats;

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
        let level = before.level;
        let behind = match ApplyRequest::is_apply(before.item) {
            true => self.answer_additions(now, run, batch, &before),
            false => self.answer_updates(now, run, batch, before),
        };
        let Some(behind) = behind else {
            return Passed::On;
        };
        self.stats.answers(behind.asked, Status::Ok, behind.done);
        self.stats.answer_in_run(behind.items);
        // The gates of a run never fall, so the last one covers all of its answers.
        if let Some(last_gate) = behind.last_gate {
            let gate = self.gate_of(level, last_gate, behind.waiting);
            run.depends_on(gate);
        }
        behind.passed
    }

    /// Answers UPDATE_IFs behind the one that was answered.
    fn answer_updates<'b>(
        &mut self,
        now: Now,
        run: &mut BatchRun,
        batch: Batch<'b>,
        before: Answered<'b>,
    ) -> Option<Behind> {
        let value_bytes_max = self.setup.limits().value_bytes_max;
        let request = Request::read(before.item, value_bytes_max).ok()?;
        let (home, id) = self.home_and_cell(request.key)?;
        let durable = self.store.log().durable();
        let mut items = RunOfUpdates::open(&mut self.store, now.us, home, id, &request, before)?;
        Some(answer_all(&mut items, &mut self.stats, durable, run, batch))
    }

    /// Answers APPLYs behind the one that was answered, if they add to a decimal.
    fn answer_additions<'b>(
        &mut self,
        now: Now,
        run: &mut BatchRun,
        batch: Batch<'b>,
        before: &Answered<'b>,
    ) -> Option<Behind> {
        let value_bytes_max = self.setup.limits().value_bytes_max;
        let first = Addition::of(before.item, value_bytes_max)?;
        let (home, id) = self.home_and_cell(first.key())?;
        let durable = self.store.log().durable();
        let mut items = RunOfAdditions::open(&mut self.store, now.us, home, id, first, before)?;
        Some(answer_all(&mut items, &mut self.stats, durable, run, batch))
    }

    /// The slot, hash and cell of a key. `None` if it is not in memory: no item can have been
    /// executed on it.
    fn home_and_cell(&self, key: &[u8]) -> Option<((u16, u32), CellId)> {
        let (slot, hash) = self.setup.hash().home_of(key);
        match self.store.find(slot, hash, key) {
            Found::Cached(id) => Some(((slot, hash), id)),
            Found::Absent | Found::Cold(_) => None,
        }
    }
}

/// What became of the items behind the first one of a run.
struct Behind {
    asked: Asked,
    items: u64,
    /// How many of them were answered OK. The others are counted.
    done: u64,
    /// How many wait for the log, and what the last one waits for.
    waiting: u64,
    last_gate: Option<Lsn>,
    passed: Passed,
}

/// Answers the items of a run, as far as it goes.
#[inline]
fn answer_all<'b, R: RunOfItems<'b>>(
    items: &mut R,
    stats: &mut Stats,
    durable: Lsn,
    run: &mut BatchRun,
    batch: Batch<'b>,
) -> Behind {
    let mut behind = Behind {
        asked: Asked::Verb(R::VERB),
        items: 0,
        done: 0,
        waiting: 0,
        last_gate: None,
        passed: Passed::On,
    };
    while run.next + 1 < batch.len() {
        let (number, item) = (run.number(run.next + 1), batch.item(run.next + 1));
        let Some(Ran::Answered { gate, status }) = items.next(number, item, run.out.written())
        else {
            break;
        };
        run.next += 1;
        behind.items += 1;
        match status {
            Status::Ok => behind.done += 1,
            status => stats.answer(behind.asked, status),
        }
        behind.last_gate = Some(gate);
        behind.waiting += u64::from(gate > durable);
        if run.ends_item() {
            behind.passed = Passed::Stop(Progress::FrameFull);
            break;
        }
    }
    behind
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
