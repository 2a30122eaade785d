//! The commands of sets, read from their arguments.

use crate::resp::fault::{Fault, SYNTAX};
use crate::resp::number::read_integer;
use crate::resp::parser::Arguments;
use crate::resp::table::{Command, Name};

use super::chance::read_count;
use super::page::check_cursor;
use super::zset_ask::read_pop_count;
use super::zsets_ask::{CombineResult, CountedKeys, Operation};

/// What a command asks of sets.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) enum SetAsk<'a> {
    /// Of that of this key.
    One(&'a [u8], OneAsk<'a>),
    Move(MemberMove<'a>),
    Combine(SetCombine<'a>),
}

/// What a command asks of the set of a key.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) enum OneAsk<'a> {
    /// Members from the second argument on.
    Add(Arguments<'a>),
    /// Members from the second argument on.
    Rem(Arguments<'a>),
    /// So many, or one.
    Pop(Option<usize>),
    All,
    Card,
    Has(&'a [u8]),
    /// Members from the second argument on.
    HasMany(Arguments<'a>),
    /// A member, or so many.
    Random(Option<i64>),
    /// SSCAN. Its options are judged behind the type of the key, as in Redis.
    Scan(Arguments<'a>),
}

/// SMOVE.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) struct MemberMove<'a> {
    pub(super) from: &'a [u8],
    pub(super) to: &'a [u8],
    pub(super) member: &'a [u8],
}

/// SUNION, SINTER, SDIFF, and those that store or count what these would show.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) struct SetCombine<'a> {
    pub(super) keys: CountedKeys<'a>,
    pub(super) operation: Operation,
    pub(super) result: CombineResult<'a>,
    /// How many are counted at most; 0 is all.
    pub(super) limit: usize,
}

impl<'a> SetAsk<'a> {
    /// Reads a command of sets, whose number of arguments was checked. `None` of another one.
    pub(in crate::resp) fn read(
        command: &Command,
        args: Arguments<'a>,
    ) -> Result<Option<Self>, Fault> {
        let one = |ask| SetAsk::One(args.get(1), ask);
        let combined = |operation| SetCombine::read(args, operation, CombineResult::Answered);
        let stored =
            |operation| SetCombine::read(args, operation, CombineResult::Stored(args.get(1)));
        Ok(Some(match command.id {
            Name::SAdd => one(OneAsk::Add(args)),
            Name::SRem => one(OneAsk::Rem(args)),
            Name::SMembers => one(OneAsk::All),
            Name::SCard => one(OneAsk::Card),
            Name::SIsMember => one(OneAsk::Has(args.get(2))),
            Name::SMIsMember => one(OneAsk::HasMany(args)),
            Name::SPop => one(OneAsk::Pop(read_pop_count(args)?)),
            Name::SRandMember => one(OneAsk::Random(match args.len() {
                2 => None,
                3 => Some(read_count(args.get(2))?),
                _ => return Err(SYNTAX),
            })),
            Name::SScan => {
                check_cursor(args.get(2))?;
                one(OneAsk::Scan(args))
            }
            Name::SMove => SetAsk::Move(MemberMove {
                from: args.get(1),
                to: args.get(2),
                member: args.get(3),
            }),
            Name::SUnion => combined(Operation::Union)?,
            Name::SInter => combined(Operation::Inter)?,
            Name::SDiff => combined(Operation::Diff)?,
            Name::SUnionStore => stored(Operation::Union)?,
            Name::SInterStore => stored(Operation::Inter)?,
            Name::SDiffStore => stored(Operation::Diff)?,
            Name::SInterCard => SetCombine::read_counted(args)?,
            _ => return Ok(None),
        }))
    }

    /// Its keys.
    pub(in crate::resp) fn for_each_key(&self, mut visit: impl FnMut(&'a [u8])) {
        match self {
            SetAsk::One(key, _) => visit(key),
            SetAsk::Move(ask) => {
                visit(ask.from);
                visit(ask.to);
            }
            SetAsk::Combine(ask) => {
                if let CombineResult::Stored(to) = ask.result {
                    visit(to);
                }
                ask.keys.all().for_each(visit);
            }
        }
    }

    /// Whether it may change a key.
    pub(in crate::resp) fn is_change(&self) -> bool {
        match self {
            SetAsk::One(_, ask) => ask.is_change(),
            SetAsk::Move(_) => true,
            SetAsk::Combine(ask) => matches!(ask.result, CombineResult::Stored(_)),
        }
    }
}

impl OneAsk<'_> {
    pub(super) fn is_change(self) -> bool {
        matches!(self, OneAsk::Add(_) | OneAsk::Rem(_) | OneAsk::Pop(_))
    }
}

impl<'a> SetCombine<'a> {
    fn read(
        args: Arguments<'a>,
        operation: Operation,
        result: CombineResult<'a>,
    ) -> Result<SetAsk<'a>, Fault> {
        let first = match result {
            CombineResult::Stored(_) => 2,
            CombineResult::Answered | CombineResult::Counted => 1,
        };
        Ok(SetAsk::Combine(SetCombine {
            keys: CountedKeys::read(args, first, args.len() - first, 0)?,
            operation,
            result,
            limit: 0,
        }))
    }

    /// SINTERCARD. Redis judges its options before the types of the keys.
    fn read_counted(args: Arguments<'a>) -> Result<SetAsk<'a>, Fault> {
        let count = read_integer(args.get(1)).and_then(|it| usize::try_from(it).ok());
        let count = count.filter(|it| *it > 0);
        let count = count.ok_or(Fault::Text("ERR numkeys should be greater than 0"))?;
        if count > args.len() - 2 {
            return Err(Fault::Text(
                "ERR Number of keys can't be greater than number of args",
            ));
        }
        let keys = CountedKeys::read(args, 2, count, 0)?;
        let (mut limit, mut number) = (0, keys.end());
        while number < args.len() {
            let is_limit = args.get(number).eq_ignore_ascii_case(b"LIMIT");
            if !is_limit || number + 1 >= args.len() {
                return Err(SYNTAX);
            }
            let given = read_integer(args.get(number + 1));
            let given = given.and_then(|it| usize::try_from(it).ok());
            limit = given.ok_or(Fault::Text("ERR LIMIT can't be negative"))?;
            number += 2;
        }
        Ok(SetAsk::Combine(SetCombine {
            keys,
            operation: Operation::Inter,
            result: CombineResult::Counted,
            limit,
        }))
    }
}
