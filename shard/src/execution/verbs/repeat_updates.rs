//! A run of UPDATE_IF: items that repeat the one before them, on one key that is looked up once.
//!
//! The rule of an item is that of [`super::program`], for guards and effects on fields of fixed
//! width beside immediate numbers. A run leaves out what the item before has shown already: whose
//! key it is, at which level it is answered, that it is there.

use std::ops::Range;

use penstock_net::apply::ApplyRequest;
use penstock_net::instruction::{Instruction, Operation, Outcome};
use penstock_net::level::AckLevel;
use penstock_net::refusal::Refusal;
use penstock_net::reply::{
    HeadTemplate, ITEM_FLAG_OVERFLOW, REPLY_ITEM_BYTES, ReplyHead, write_again,
};
use penstock_net::request::{Expiry, Request, Verb, decode_repeated, may_repeat};
use penstock_net::status::Status;
use penstock_storage::index::CellId;
use penstock_storage::io::Blocks;
use penstock_storage::key_home::KeyHome;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{self, Bug, is_planted};
use penstock_storage::store::{FieldBefore, Fields, Found, RepeatStep, Run, Store};

use super::repeat_items::{Answered, RepeatedItems};
use super::{Context, Ran, wire};

/// Instructions of an item that are decoded once for all items that have the same.
const INSTRUCTIONS_MAX: usize = 8;

/// Items that repeat one another.
pub(crate) struct RepeatedUpdates<'s, 'b, P: Blocks> {
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

impl<'s, 'b, P: Blocks> RepeatedUpdates<'s, 'b, P> {
    /// Items behind one of this request, which has just been executed on a key with this slot, hash
    /// and cell. `None` if each of them must run by itself.
    pub(crate) fn open(
        store: &'s mut Store<P>,
        now_us: u64,
        home: KeyHome,
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
        Some(RepeatedUpdates {
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

    /// Runs the program on the key. `None` if the item must run by itself: nothing has changed
    /// then.
    #[inline]
    fn run(&mut self, number: u16, out: &mut Vec<u8>) -> Option<Ran> {
        let from = out.len();
        self.heads.begin(out);
        let program = &self.program[..self.count];
        let instruction = |number: usize| program[number];
        let step = self
            .changes
            .change(|fields| run_all(fields, (instruction, program.len()), out));
        let gate = match step {
            RepeatStep::Committed(lsn) => lsn,
            RepeatStep::Same => self.changes.lsn(),
            RepeatStep::Stopped(stop) => {
                out.truncate(from);
                let version = wire(self.changes.version());
                let head = |status| ReplyHead::new(status, number, self.level, version);
                return Some(stopped(head, stop, self.changes.lsn(), out));
            }
            RepeatStep::Alone => {
                out.truncate(from);
                return None;
            }
        };
        let sequence = self.changes.version().sequence;
        self.heads.end(out, from, number, sequence);
        Some(Ran::Answered {
            gate,
            status: Status::Ok,
        })
    }
}

/// Runs the program of an UPDATE_IF on a key of this slot and hash as a run of one change. `None`
/// if the program must run by itself: nothing has changed then.
#[inline]
pub(super) fn answer_alone<P: Blocks>(
    store: &mut Store<P>,
    context: &Context<'_>,
    request: &ApplyRequest<'_>,
    out: &mut Vec<u8>,
) -> Option<Ran> {
    let keeps_expiry = request.terms().is_some_and(|it| it.expiry == Expiry::Keep);
    let is_of_one_key = request.key_count() == 1 && context.token.is_none();
    if !(context.answers_repeats && keeps_expiry && is_of_one_key) {
        return None;
    }
    let instructions = request.instructions_of_fields()?;
    let Found::Cached(id) = store
        .keys()
        .find(context.slot, context.key_hash, request.key())
    else {
        return None;
    };
    let home = KeyHome::new(context.slot, context.key_hash);
    let mut changes = store.run(context.now_us, home, id)?;
    let from = out.len();
    out.extend_from_slice(&[0; REPLY_ITEM_BYTES]);
    let instruction = |number: usize| instructions.instruction(number);
    let program = (instruction, instructions.count());
    let gate = match changes.change(|fields| run_all(fields, program, out)) {
        RepeatStep::Committed(lsn) => lsn,
        RepeatStep::Same => changes.lsn(),
        RepeatStep::Stopped(stop) => {
            out.truncate(from);
            let head = |status| context.head(status, wire(changes.version()));
            return Some(stopped(head, stop, changes.lsn(), out));
        }
        RepeatStep::Alone => {
            out.truncate(from);
            return None;
        }
    };
    context
        .head(Status::Ok, wire(changes.version()))
        .patch(out, from);
    Some(Ran::Answered {
        gate,
        status: Status::Ok,
    })
}

/// The reply of a program that stopped. It shows the key as it was, so it waits for what it shows.
fn stopped(head: impl Fn(Status) -> ReplyHead, stop: Stop, seen: Lsn, out: &mut Vec<u8>) -> Ran {
    let status = match stop {
        Stop::Refused(refusal) => {
            head(refusal.status()).write_message(out, &refusal);
            refusal.status()
        }
        Stop::Failed {
            instruction,
            number,
            actual,
            overflow,
        } => {
            let mut head = head(Status::GuardFailed);
            head.reason = instruction.reason;
            head.instruction = u8::try_from(number).expect("at most 64 instructions");
            head.flags = if overflow { ITEM_FLAG_OVERFLOW } else { 0 };
            head.write(out, &actual.to_le_bytes());
            Status::GuardFailed
        }
    };
    Ran::Answered {
        gate: planted::or(Bug::UngatedFailure, Lsn(0), seen),
        status,
    }
}

/// Why a program stopped: a guard does not hold, or a field is outside of the value.
enum Stop {
    Failed {
        instruction: Instruction,
        number: usize,
        actual: u64,
        overflow: bool,
    },
    Refused(Refusal),
}

/// Runs so many instructions on fields of a value in their order, and writes the fields after them
/// at the end of `out`. An instruction is decoded where it runs: through an iterator it would go
/// through memory.
#[inline(always)]
fn run_all(
    mut fields: Fields<'_>,
    (instruction, count): (impl Fn(usize) -> Instruction, usize),
    out: &mut Vec<u8>,
) -> Result<(), Stop> {
    for number in 0..count {
        let instruction = instruction(number);
        let failed = |actual, overflow| {
            Err(Stop::Failed {
                instruction,
                number,
                actual,
                overflow,
            })
        };
        // The key of a run is there.
        match instruction.operation {
            Operation::Exists => continue,
            Operation::Absent => return failed(1, false),
            _ => {}
        }
        match fields.edit(|value| run_on(&instruction, value)) {
            Outcome::Holds => {}
            Outcome::Changed { after, .. } => out.extend_from_slice(&after.to_le_bytes()),
            Outcome::Failed { actual, overflow } => return failed(actual, overflow),
            Outcome::OutsideValue => {
                return Err(Stop::Refused(Refusal::Field {
                    instruction: number,
                    offset: instruction.offset,
                    width: instruction.field_type.width(),
                    value_len: fields.value_len(),
                }));
            }
        }
    }
    Ok(())
}

/// Runs one instruction on a value, and tells what it has changed.
#[inline(always)]
fn run_on(instruction: &Instruction, value: &mut [u8]) -> (Outcome, Option<FieldBefore>) {
    let outcome = instruction.run(value);
    let before = match outcome {
        Outcome::Changed { before, .. } => Some(FieldBefore {
            offset: instruction.offset,
            width: u8::try_from(instruction.field_type.width()).expect("at most 8"),
            bytes: instruction.field_bytes(before),
        }),
        _ => None,
    };
    (outcome, before)
}

impl<'b, P: Blocks> RepeatedItems<'b> for RepeatedUpdates<'_, 'b, P> {
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
        let ran = self.run(number, out)?;
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
            Ran::Busy | Ran::Cold(_) | Ran::OtherCold(_) | Ran::Unfired { .. } | Ran::Postponed => {
                None
            }
        }
    }
}

/// Whether all of these read a field. A key whose value is not read is not in use for that.
fn are_about_fields(program: &[Instruction]) -> bool {
    let is_about_key =
        |it: &Instruction| matches!(it.operation, Operation::Exists | Operation::Absent);
    !program.iter().any(is_about_key)
}
