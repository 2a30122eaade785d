//! Runs of items that repeat the one before them, which are answered together.

use std::ops::Range;

use penstock_net::apply::{Addition, may_repeat_denied};
use penstock_net::batch::Batch;
use penstock_net::item::ItemForm;
use penstock_net::program::RunRequest;
use penstock_net::reply::{ReplyItem, is_denial};
use penstock_net::request::{Request, may_repeat};
use penstock_net::rights::{Need, Rights};
use penstock_net::status::Status;
use penstock_storage::index::CellId;
use penstock_storage::io::Blocks;
use penstock_storage::key_home::KeyHome;
use penstock_storage::place::Lsn;
use penstock_storage::store::Found;

use crate::accounts::answers::Asked;
use crate::accounts::stats::Stats;
use crate::execution::Execution;
use crate::execution::batch_run::{BatchRun, Passed, Progress};
use crate::execution::verbs::Ran;
use crate::execution::verbs::repeat_additions::RepeatedAdditions;
use crate::execution::verbs::repeat_denials::{Applies, Judge, RepeatedDenials};
use crate::execution::verbs::repeat_items::{Answered, RepeatedItems};
use crate::execution::verbs::repeat_updates::RepeatedUpdates;
use crate::mail::ReplyAddress;
use crate::now::Now;
use crate::replica_waits::ReplicaReply;

impl<P: Blocks> Execution<P> {
    /// Answers the items behind the one that was just answered, as long as they repeat it. The
    /// answer stands at the end of the output, from `answer_at` on.
    #[inline]
    pub(crate) fn go_on(
        &mut self,
        now: Now,
        run: &mut BatchRun,
        batch: Batch<'_>,
        answer_at: usize,
    ) -> Passed {
        let next = run.next + 1;
        if next >= batch.len() {
            return Passed::On;
        }
        let answer = &run.out.written()[answer_at..];
        match is_followed(batch.item(run.next), answer, batch.item(next)) {
            true => self.answer_repeats(now, run, batch, answer_at),
            false => Passed::On,
        }
    }

    pub(crate) fn answer_repeats(
        &mut self,
        now: Now,
        run: &mut BatchRun,
        batch: Batch<'_>,
        answer_at: usize,
    ) -> Passed {
        let answer = answer_at..run.out.written().len();
        let mut behind = BehindInBatch {
            run,
            batch,
            is_full: false,
        };
        let rights = behind.run.rights.take();
        let item = batch.item(behind.run.next);
        let gate = self.answer_behind(now, rights.as_deref(), item, answer, &mut behind);
        behind.run.rights = rights;
        let is_full = behind.is_full;
        if let Some(gate) = gate {
            run.depends_on(gate);
        }
        match is_full {
            true => Passed::Stop(Progress::FrameFull),
            false => Passed::On,
        }
    }

    /// Answers the items behind one that has just been answered there. What their answers wait for;
    /// `None` if no item was answered.
    pub(crate) fn answer_behind<'b>(
        &mut self,
        now: Now,
        rights: Option<&Rights>,
        item: &'b [u8],
        answer: Range<usize>,
        behind: &mut impl ItemsBehind<'b>,
    ) -> Option<Lsn> {
        if !self.setup.answers_repeats() {
            return None;
        }
        let before = answered(item, answer, behind.out())?;
        let level = before.level;
        // By `min_sync` each change waits for itself.
        if !level.waits_for_members() && self.changes_wait_for_members(level) {
            return None;
        }
        let done = match ItemForm::of(item) {
            ItemForm::Apply | ItemForm::Run if before.status != Status::Ok => {
                self.answer_denials(rights, behind, &before)
            }
            ItemForm::Apply => self.answer_additions(now, behind, &before),
            ItemForm::Common if is_of_guard(before.status) => {
                self.answer_updates(now, rights, behind, before)
            }
            ItemForm::Common
            | ItemForm::Run
            | ItemForm::Scan
            | ItemForm::Ping
            | ItemForm::Script => None,
        }?;
        self.stats.answers(done.asked, Status::Ok, done.ok);
        self.stats.answer_in_run(done.items);
        // The gates of a run never fall, so the last one covers all of its answers.
        let last_gate = done.last_gate?;
        // Answers that wait for members wait for this disk in the same entry.
        Some(match level.waits_for_members() {
            true => last_gate,
            false => self.gate_of(level, last_gate, done.waiting),
        })
    }

    /// Answers UPDATE_IFs behind the one that was answered.
    pub(crate) fn answer_updates<'b>(
        &mut self,
        now: Now,
        rights: Option<&Rights>,
        behind: &mut impl ItemsBehind<'b>,
        before: Answered<'b>,
    ) -> Option<Done> {
        let value_bytes_max = self.setup.limits().value_bytes_max;
        let request = Request::read(before.item, value_bytes_max).ok()?;
        // The first one may only look at the key, and those behind it change the key.
        if rights.is_some_and(|rights| !rights.allows(Need::READ_WRITE, request.key)) {
            return None;
        }
        let (home, id) = self.home_and_cell(request.key)?;
        let durable = self.store.log().durable();
        let mut items = RepeatedUpdates::open(&mut self.store, now.us, home, id, &request, before)?;
        Some(answer_all(&mut items, &mut self.stats, durable, behind))
    }

    /// Answers APPLYs behind the one that was answered, if they add to a decimal.
    pub(crate) fn answer_additions<'b>(
        &mut self,
        now: Now,
        behind: &mut impl ItemsBehind<'b>,
        before: &Answered<'b>,
    ) -> Option<Done> {
        let value_bytes_max = self.setup.limits().value_bytes_max;
        let first = Addition::of(before.item, value_bytes_max)?;
        let (home, id) = self.home_and_cell(first.key())?;
        let durable = self.store.log().durable();
        let mut items = RepeatedAdditions::open(&mut self.store, now.us, home, id, first, before)?;
        Some(answer_all(&mut items, &mut self.stats, durable, behind))
    }

    /// Answers APPLYs, or RUNs of one program, behind the one that an instruction has just denied.
    pub(crate) fn answer_denials<'b>(
        &mut self,
        rights: Option<&Rights>,
        behind: &mut impl ItemsBehind<'b>,
        before: &Answered<'b>,
    ) -> Option<Done> {
        if ItemForm::of(before.item) == ItemForm::Apply {
            return self.answer_denials_of(before.item, &mut Vec::new(), rights, behind, before);
        }
        let first = self.programs.take(before.item).ok()?;
        let mut next = self.programs.take_second();
        let done = self.answer_denials_of(&first, &mut next, rights, behind, before);
        self.programs.give(first);
        self.programs.give_second(next);
        done
    }

    /// The same of this APPLY; `next` has room for others.
    fn answer_denials_of<'b>(
        &mut self,
        first: &[u8],
        next: &mut Vec<u8>,
        rights: Option<&Rights>,
        behind: &mut impl ItemsBehind<'b>,
        before: &Answered<'b>,
    ) -> Option<Done> {
        let value_bytes_max = self.setup.limits().value_bytes_max;
        let durable = self.store.log().durable();
        let run = rights.and_then(|_| RunRequest::read(before.item).ok());
        let judge = Judge {
            hash: self.setup.hash(),
            programs: &self.programs,
            rights,
            program: run.and_then(|run| self.programs.name_of(&run)),
        };
        let applies = Applies { first, next };
        let store = &mut self.store;
        let mut items = RepeatedDenials::open(store, judge, applies, before, value_bytes_max)?;
        Some(answer_all(&mut items, &mut self.stats, durable, behind))
    }

    /// The slot, hash and cell of a key. `None` if it is not in memory: no item can have been
    /// executed on it.
    pub(crate) fn home_and_cell(&self, key: &[u8]) -> Option<(KeyHome, CellId)> {
        let KeyHome { slot, hash } = self.setup.hash().home_of(key);
        match self.store.keys().find(slot, hash, key) {
            Found::Cached(id) => Some((KeyHome { slot, hash }, id)),
            Found::Absent | Found::Cold(_) => None,
        }
    }
}

/// The items behind the first one of a run, and where their answers go.
pub(crate) trait ItemsBehind<'b> {
    /// The number of the next item in its request, and the item. `None` if it is not of the run.
    fn next(&self) -> Option<(u16, &'b [u8])>;

    /// Where the answer of the next item is written, behind those before.
    fn out(&mut self) -> &mut Vec<u8>;

    /// The next item was answered. Whether there is room for another answer.
    fn answered(&mut self) -> bool;
}

/// The items of a batch behind the one that was answered last.
pub(crate) struct BehindInBatch<'r, 'b> {
    pub(crate) run: &'r mut BatchRun,
    pub(crate) batch: Batch<'b>,
    /// The reply frame is full.
    pub(crate) is_full: bool,
}

impl<'b> ItemsBehind<'b> for BehindInBatch<'_, 'b> {
    #[inline]
    fn next(&self) -> Option<(u16, &'b [u8])> {
        let next = self.run.next + 1;
        (next < self.batch.len()).then(|| (self.run.number(next), self.batch.item(next)))
    }

    #[inline]
    fn out(&mut self) -> &mut Vec<u8> {
        self.run.out.written()
    }

    #[inline]
    fn answered(&mut self) -> bool {
        self.run.next += 1;
        self.is_full = self.run.ends_item();
        !self.is_full
    }
}

/// The items of a batch behind the one whose answer waits for members.
pub(crate) struct BehindInWait<'r, 'b> {
    pub(crate) run: &'r mut BatchRun,
    pub(crate) batch: Batch<'b>,
    pub(crate) whom: &'r mut ReplicaReply,
    /// Where the last answer ends.
    pub(crate) end: usize,
    /// How many more answers may wait.
    pub(crate) room: usize,
    /// A frame of so many bytes is ended.
    pub(crate) full_bytes: usize,
}

impl<'b> ItemsBehind<'b> for BehindInWait<'_, 'b> {
    #[inline]
    fn next(&self) -> Option<(u16, &'b [u8])> {
        let next = self.run.next + 1;
        let has_room = self.whom.count() < self.room && self.end < self.full_bytes;
        let is_there = next < self.batch.len() && has_room;
        is_there.then(|| (self.run.number(next), self.batch.item(next)))
    }

    #[inline]
    fn out(&mut self) -> &mut Vec<u8> {
        self.whom.item.written()
    }

    #[inline]
    fn answered(&mut self) -> bool {
        self.run.next += 1;
        let item_bytes = self.batch.item(self.run.next).len();
        let address = ReplyAddress {
            item: self.run.number(self.run.next),
            item_bytes: u32::try_from(item_bytes).expect("a frame bounds it"),
            ..self.whom.address
        };
        self.whom.join(address, self.end);
        self.end = self.whom.item.len();
        true
    }
}

/// What became of the items behind the first one of a run.
pub(crate) struct Done {
    pub(crate) asked: Asked,
    pub(crate) items: u64,
    /// How many of them were answered OK. The others are counted.
    pub(crate) ok: u64,
    /// How many wait for the log, and what the last one waits for.
    pub(crate) waiting: u64,
    pub(crate) last_gate: Option<Lsn>,
}

/// Answers the items of a run, as far as it goes.
#[inline]
pub(crate) fn answer_all<'b, R: RepeatedItems<'b>>(
    items: &mut R,
    stats: &mut Stats,
    durable: Lsn,
    behind: &mut impl ItemsBehind<'b>,
) -> Done {
    let mut done = Done {
        asked: Asked::Verb(R::VERB),
        items: 0,
        ok: 0,
        waiting: 0,
        last_gate: None,
    };
    while let Some((number, item)) = behind.next() {
        let Some(Ran::Answered { gate, status }) = items.next(number, item, behind.out()) else {
            break;
        };
        done.items += 1;
        match status {
            Status::Ok => done.ok += 1,
            status => stats.answer(done.asked, status),
        }
        done.last_gate = Some(gate);
        done.waiting += u64::from(gate > durable);
        if !behind.answered() {
            break;
        }
    }
    done
}

/// An item whose answer stands there in the output, if the answer tells that the item was executed,
/// and that no answer of its level is kept for itself.
pub(crate) fn answered<'b>(
    item: &'b [u8],
    answer: Range<usize>,
    out: &[u8],
) -> Option<Answered<'b>> {
    let head = ReplyItem::read(&out[answer.clone()]).ok()?.head;
    let is_executed = head.status == Status::Ok || is_denial(out.get(answer.clone())?);
    is_executed.then_some(Answered {
        item,
        answer,
        level: head.level,
        status: head.status,
        instruction: head.instruction,
    })
}

/// Whether an UPDATE_IF with this answer has found its key.
fn is_of_guard(status: Status) -> bool {
    matches!(status, Status::Ok | Status::GuardFailed)
}

/// Whether an item may be answered with the one before it, which has this answer.
#[inline]
pub(crate) fn is_followed(before: &[u8], answer: &[u8], item: &[u8]) -> bool {
    may_repeat(before, item) || (is_denial(answer) && may_repeat_denied(before, item))
}
