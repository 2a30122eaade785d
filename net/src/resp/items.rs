//! Commands that are one item of a batch.

use crate::apply::{Action, ApplyInstruction, Arithmetic, Comparison, NumberAt, Operand};
use crate::request::{BatchRequest, Condition, Expiry, MemberRead, Wanted};

use super::answer::Fold;
use super::request::{IncrEx, NewExpiry, Request, SetWhen, Until};

/// Adds the item of a command that is one; how its answer becomes the reply.
#[inline]
pub(super) fn put_item(
    request: &Request<'_>,
    member: Option<MemberRead>,
    batch: &mut BatchRequest,
    out: &mut Vec<u8>,
) -> Fold {
    match *request {
        Request::Get(key) => {
            put_get(batch, out, key, Wanted::Value, member);
            Fold::Value
        }
        Request::StrLen(key) => {
            put_get(batch, out, key, Wanted::Value, member);
            Fold::Length
        }
        Request::GetRange(key, start, end) => {
            put_get(batch, out, key, Wanted::Value, member);
            Fold::Range(start, end)
        }
        Request::Read(key, read) if read.is_of_plain() => {
            put_get(batch, out, key, Wanted::Value, member);
            Fold::Read(read)
        }
        Request::Ttl(key, form) => {
            put_get(batch, out, key, Wanted::Expiry, member);
            Fold::Ttl(form)
        }
        Request::Set {
            key,
            value,
            when,
            expiry,
            answers_number,
            ..
        } => {
            let condition = match when {
                SetWhen::Always => Condition::Always,
                SetWhen::Absent => Condition::Absent,
                SetWhen::Present => Condition::Present,
                SetWhen::Equals(_) => unreachable!("a transaction compares"),
            };
            let expiry = match expiry {
                NewExpiry::Usual | NewExpiry::Persist => Expiry::Never,
                NewExpiry::Keep => Expiry::Keep,
                NewExpiry::Until(until) => expiry_of(until),
            };
            batch.set_with(out, key, value, condition, expiry);
            if answers_number {
                Fold::Flag
            } else {
                Fold::Set
            }
        }
        Request::Add(key, 0) => {
            batch.apply_of(out, &[key], &TOUCHED, b"0");
            Fold::Number
        }
        Request::Add(key, by) => {
            batch.apply_of(out, &[key], &[started(), added(by)], b"0");
            Fold::Number
        }
        Request::IncrEx(key, change) => {
            put_increase(key, change, batch, out);
            Fold::Increased(change.by)
        }
        Request::Expire(key, until, _) => {
            batch.update_if_with(out, key, None, &[], None, expiry_of(until));
            Fold::Flag
        }
        Request::MGet(_)
        | Request::MSet(_)
        | Request::Del(_)
        | Request::Exists(_)
        | Request::GetDel(_)
        | Request::DelEx(..)
        | Request::GetEx(..)
        | Request::SetRange(..)
        | Request::Append(..)
        | Request::MSetNx(_)
        | Request::AddFraction(..)
        | Request::SetBit(..)
        | Request::Rename(_)
        | Request::Copy(_)
        | Request::Type(_)
        | Request::Read(..)
        | Request::Hash(..)
        | Request::List(_)
        | Request::OfSets(_)
        | Request::Zset(_)
        | Request::Persist(_) => unreachable!("the caller sends them another way"),
    }
}

/// Adds a GET, which members may answer if it says so.
#[inline]
pub(super) fn put_get(
    batch: &mut BatchRequest,
    out: &mut Vec<u8>,
    key: &[u8],
    wanted: Wanted,
    member: Option<MemberRead>,
) {
    match member {
        None => batch.get_with(out, key, wanted),
        Some(member) => batch.get_of_member(out, key, wanted, member),
    }
}

/// Adds an INCREX that neither saturates nor asks whether there is an expiry.
fn put_increase(key: &[u8], change: IncrEx, batch: &mut BatchRequest, out: &mut Vec<u8>) {
    let number = NumberAt::decimal();
    let bound = |comparison, bound: i64| {
        instruction(Action::Compare(
            comparison,
            number,
            Operand::Immediate(bound.cast_unsigned()),
        ))
    };
    let mut instructions = [started(); 7];
    instructions[1] = added(change.by);
    let mut count = 2;
    let mut add = |instruction| {
        instructions[count] = instruction;
        count += 1;
    };
    if change.lower > i64::MIN {
        add(bound(Comparison::Ge, change.lower));
    }
    if change.upper < i64::MAX {
        add(bound(Comparison::Le, change.upper));
    }
    if change.by == 0 {
        add(flipped());
        add(flipped());
    }
    match change.expiry {
        NewExpiry::Usual | NewExpiry::Keep => {}
        NewExpiry::Persist => add(instruction(Action::Expire(Operand::Immediate(0)))),
        NewExpiry::Until(Until::At(ms)) => {
            add(instruction(Action::Expire(Operand::Immediate(ms))));
        }
        NewExpiry::Until(Until::In(ms)) => {
            let plus_ms = i64::try_from(ms).unwrap_or(i64::MAX);
            add(instruction(Action::Expire(Operand::Now { plus_ms })));
        }
    }
    batch.apply_of(out, &[key], &instructions[..count], b"0");
}

/// A sum of 0, which is a change as in Redis: whoever watches the key sees it. APPLY takes what
/// stays as it was for none, so the number is changed and changed back.
const TOUCHED: [ApplyInstruction; 4] = [started(), added(0), flipped(), flipped()];

/// The first key begins as 0.
const fn started() -> ApplyInstruction {
    instruction(Action::Start { start: 0, len: 1 })
}

const fn added(by: i64) -> ApplyInstruction {
    let by = Operand::Immediate(by.cast_unsigned());
    instruction(Action::Change(Arithmetic::Add, NumberAt::decimal(), by))
}

/// Another number of 64 bits, and the same again by another time.
const fn flipped() -> ApplyInstruction {
    let bit = Operand::Immediate(1);
    instruction(Action::Change(Arithmetic::Xor, NumberAt::decimal(), bit))
}

const fn instruction(action: Action) -> ApplyInstruction {
    ApplyInstruction {
        key: 0,
        reason: 0,
        action,
    }
}

fn expiry_of(until: Until) -> Expiry {
    match until {
        Until::In(ms) => Expiry::In(ms),
        Until::At(ms) => Expiry::At(ms),
    }
}
