//! A run of UPDATE_IF: items that repeat the one before them, on one key that is looked up once.
//!
//! The rule of an item is that of [`super::update_if`]. What a run leaves out is what the item
//! before has shown already: whose key it is, at which level it is answered, that it is there.

use std::ops::Range;

use penstock_net::instruction::{Instruction, Operation};
use penstock_net::level::AckLevel;
use penstock_net::reply::{HeadTemplate, ReplyHead, write_again};
use penstock_net::request::{Expiry, Request, Verb, decode_repeated, may_repeat};
use penstock_net::status::Status;
use penstock_storage::index::CellId;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::store::{Run, Store};

use super::run_of_items::{Answered, RunOfItems};
use super::{Ran, update_if, wire};

/// Instructions of an item that are decoded once for all items that have the same.
const INSTRUCTIONS_MAX: usize = 8;

/// Items that repeat one another.
pub(crate) struct RunOfUpdates<'s, 'b, P: Blocks> {
    changes: Run<'s, P>,
    level: AckLevel,
    /// The heads of answers OK.
    heads: HeadTemplate,
    /// The last item that ran, its instructions, and how many they are. Those behind them mean
    /// nothing.
    item: &'b [u8],
    program: [Instruction; INSTRUCTIONS_MAX],
    count: usize,
    /// The last item that changed nothing, unless another one has changed the key since.
    no: Option<No<'b>>,
}

/// An item that changed nothing. The same item again is answered the same.
struct No<'b> {
    item: &'b [u8],
    answer: Range<usize>,
    gate: Lsn,
    status: Status,
}

impl<'s, 'b, P: Blocks> RunOfUpdates<'s, 'b, P> {
    /// Items behind one of this request, which has just been executed on a key with this slot, hash
    /// and cell. `None` if each of them must run by itself.
    pub(crate) fn open(
        store: &'s mut Store<P>,
        now_us: u64,
        home: (u16, u32),
        id: CellId,
        request: &Request<'b>,
        before: Answered<'b>,
    ) -> Option<Self> {
        let count = request.instruction_count();
        if request.expiry != Expiry::Keep || !(1..=INSTRUCTIONS_MAX).contains(&count) {
            return None;
        }
        let changes = store.run(now_us, home, id)?;
        let no = (before.status != Status::Ok).then(|| No {
            item: before.item,
            answer: before.answer,
            gate: changes.lsn(),
            status: before.status,
        });
        let mut program = [request.instruction(0); INSTRUCTIONS_MAX];
        for (number, instruction) in program[..count].iter_mut().enumerate() {
            *instruction = request.instruction(number);
        }
        if !are_about_fields(&program[..count]) {
            return None;
        }
        let version = wire(changes.version());
        let head = ReplyHead::new(Status::Ok, 0, before.level, version);
        Some(RunOfUpdates {
            changes,
            level: before.level,
            heads: HeadTemplate::new(&head),
            item: before.item,
            program,
            count,
            no,
        })
    }

    /// Reads an item that is not the same as the last one. `None` if it does not repeat it, and the
    /// run is at its end.
    fn take(&mut self, item: &'b [u8]) -> Option<()> {
        let is_good =
            may_repeat(self.item, item) && decode_repeated(item, &mut self.program[..self.count]);
        self.item = item;
        is_good.then_some(())
    }
}

impl<'b, P: Blocks> RunOfItems<'b> for RunOfUpdates<'_, 'b, P> {
    const VERB: Verb = Verb::UpdateIf;

    #[inline]
    fn next(&mut self, number: u16, item: &'b [u8], out: &mut Vec<u8>) -> Option<Ran> {
        if let Some(no) = self.no.as_ref().filter(|no| no.item == item) {
            write_again(out, no.answer.clone(), number);
            return Some(Ran::Answered {
                gate: no.gate,
                status: no.status,
            });
        }
        if item != self.item {
            self.take(item)?;
        }
        let (from, version) = (out.len(), self.changes.version());
        let program = &self.program[..self.count];
        let answer = (number, self.level, &self.heads);
        let ran = update_if::repeat(&mut self.changes, program, answer, out)?;
        if self.changes.version() == version {
            self.no = No::of(item, ran, from..out.len());
        } else if !is_planted(Bug::RunStaleNo) {
            self.no = None;
        }
        Some(ran)
    }
}

impl<'b> No<'b> {
    fn of(item: &'b [u8], ran: Ran, answer: Range<usize>) -> Option<Self> {
        match ran {
            Ran::Answered { gate, status } => Some(No {
                item,
                answer,
                gate,
                status,
            }),
            Ran::Busy
            | Ran::Cold(_)
            | Ran::SecondCold(_)
            | Ran::Unfired { .. }
            | Ran::Postponed => None,
        }
    }
}

/// Whether all of these read a field. A key whose value is not read is not in use for that.
fn are_about_fields(program: &[Instruction]) -> bool {
    let is_about_key =
        |it: &Instruction| matches!(it.operation, Operation::Exists | Operation::Absent);
    !program.iter().any(is_about_key)
}
