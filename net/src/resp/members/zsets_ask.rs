//! The commands of several sorted sets, read from their arguments.

use crate::resp::fault::{Fault, NOT_AN_INTEGER, SYNTAX};
use crate::resp::number::read_integer;
use crate::resp::parser::Arguments;
use crate::resp::table::{Command, Name};
use crate::resp::timeout::read_timeout;

use super::score::read_score;
use super::zset_range::{RangeAsk, Side};

/// Keys that one command counts, at most.
const NAMED_KEYS_MAX: usize = 1024;
const TOO_MANY_KEYS: Fault = Fault::Text("ERR a command counts at most 1024 keys");

/// The words of the sides of a sorted set.
const SIDES: [(&[u8], Side); 2] = [(b"MIN", Side::Min), (b"MAX", Side::Max)];

/// What a command asks of several keys.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) enum ZsetsAsk<'a> {
    Combine(Combine<'a>),
    /// ZMPOP and BZMPOP: members of the first key that has some, so many at most.
    Pop(CountedKeys<'a>, Side, usize),
    /// BZPOPMIN and BZPOPMAX: one of them.
    PopOne(CountedKeys<'a>, Side),
    /// ZRANGESTORE.
    Store {
        to: &'a [u8],
        from: &'a [u8],
        ask: RangeAsk<'a>,
    },
}

/// Keys of which a command takes any number.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) struct CountedKeys<'a> {
    pub(super) args: Arguments<'a>,
    /// The first key.
    first: usize,
    count: usize,
}

/// ZUNION, ZINTER, ZDIFF, and those that store or count what these would tell.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) struct Combine<'a> {
    pub(super) keys: CountedKeys<'a>,
    pub(super) operation: Operation,
    pub(super) result: CombineResult<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) enum Operation {
    Union,
    Inter,
    Diff,
}

/// What becomes of the members that are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) enum CombineResult<'a> {
    Answered,
    Counted,
    /// This key gets them.
    Stored(&'a [u8]),
}

/// How two scores of a member become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::resp) enum Aggregate {
    #[default]
    Sum,
    Min,
    Max,
}

/// The options of [`Combine`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CombineOptions {
    /// The argument of the first weight, if there are weights.
    pub(super) weights: Option<usize>,
    pub(super) aggregate: Aggregate,
    pub(super) has_scores: bool,
    /// How many are counted at most; 0 is all.
    pub(super) limit: usize,
}

impl<'a> CountedKeys<'a> {
    /// So many keys from the argument `first` on, if there are so many arguments. Behind them
    /// stand `behind` others at least.
    pub(super) fn read(
        args: Arguments<'a>,
        first: usize,
        count: usize,
        behind: usize,
    ) -> Result<Self, Fault> {
        match count {
            _ if count > args.len() - first - behind => Err(SYNTAX),
            ..=NAMED_KEYS_MAX => Ok(CountedKeys { args, first, count }),
            _ => Err(TOO_MANY_KEYS),
        }
    }

    /// All keys of a command whose last argument is a timeout.
    pub(super) fn before_timeout(args: Arguments<'a>) -> Result<Self, Fault> {
        let (first, count) = (1, args.len() - 2);
        read_timeout(args.get(count + 1))?;
        Ok(CountedKeys { args, first, count })
    }

    pub(super) fn all(self) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.args.from(self.first).take(self.count)
    }

    /// The argument behind the last key.
    pub(super) fn end(self) -> usize {
        self.first + self.count
    }
}

impl<'a> ZsetsAsk<'a> {
    /// Reads a command whose number of arguments was checked. `None` of another one.
    pub(super) fn read(command: &Command, args: Arguments<'a>) -> Result<Option<Self>, Fault> {
        let combine = |operation, result| Combine::read(command, args, operation, result);
        let stored = CombineResult::Stored;
        Ok(Some(match command.id {
            Name::ZUnion => combine(Operation::Union, CombineResult::Answered)?,
            Name::ZInter => combine(Operation::Inter, CombineResult::Answered)?,
            Name::ZDiff => combine(Operation::Diff, CombineResult::Answered)?,
            Name::ZInterCard => combine(Operation::Inter, CombineResult::Counted)?,
            Name::ZUnionStore => combine(Operation::Union, stored(args.get(1)))?,
            Name::ZInterStore => combine(Operation::Inter, stored(args.get(1)))?,
            Name::ZDiffStore => combine(Operation::Diff, stored(args.get(1)))?,
            Name::ZMPop => ZsetsAsk::of_pop(read_mpop(args, 1, SIDES)?),
            Name::BzMPop => {
                let popped = read_mpop(args, 2, SIDES)?;
                read_timeout(args.get(1))?;
                ZsetsAsk::of_pop(popped)
            }
            Name::BzPopMax | Name::BzPopMin => {
                let keys = CountedKeys::before_timeout(args)?;
                let side = match command.id {
                    Name::BzPopMin => Side::Min,
                    _ => Side::Max,
                };
                ZsetsAsk::PopOne(keys, side)
            }
            Name::ZRangeStore => ZsetsAsk::Store {
                to: args.get(1),
                from: args.get(2),
                ask: RangeAsk::read(args, 3, (None, None), true)?,
            },
            _ => return Ok(None),
        }))
    }

    fn of_pop((keys, side, count): (CountedKeys<'a>, Side, usize)) -> Self {
        ZsetsAsk::Pop(keys, side, count)
    }

    pub(super) fn for_each_key(&self, mut visit: impl FnMut(&'a [u8])) {
        match self {
            ZsetsAsk::Combine(ask) => {
                if let CombineResult::Stored(to) = ask.result {
                    visit(to);
                }
                ask.keys.all().for_each(visit);
            }
            ZsetsAsk::Pop(keys, ..) | ZsetsAsk::PopOne(keys, _) => {
                keys.all().for_each(visit);
            }
            ZsetsAsk::Store { to, from, .. } => {
                visit(to);
                visit(from);
            }
        }
    }

    pub(super) fn is_change(&self) -> bool {
        match self {
            ZsetsAsk::Combine(ask) => matches!(ask.result, CombineResult::Stored(_)),
            ZsetsAsk::Pop(..) | ZsetsAsk::PopOne(..) | ZsetsAsk::Store { .. } => true,
        }
    }
}

/// ZMPOP, LMPOP, and those of them that wait: the keys, whose number is this argument, a side by
/// its word, and how many are taken at most.
pub(super) fn read_mpop<'a, S: Copy>(
    args: Arguments<'a>,
    number: usize,
    sides: [(&[u8], S); 2],
) -> Result<(CountedKeys<'a>, S, usize), Fault> {
    let positive = |text, fault| {
        let number = read_integer(text).and_then(|it| usize::try_from(it).ok());
        number.filter(|it| *it > 0).ok_or(fault)
    };
    let no_keys = Fault::Text("ERR numkeys should be greater than 0");
    let count = positive(args.get(number), no_keys)?;
    let keys = CountedKeys::read(args, number + 1, count, 1)?;
    let is = |number: usize, name: &[u8]| args.get(number).eq_ignore_ascii_case(name);
    let side = sides.into_iter().find(|(word, _)| is(keys.end(), word));
    let (_, side) = side.ok_or(SYNTAX)?;
    let behind = keys.end() + 1;
    let count = match args.len() - behind {
        0 => 1,
        2.. if is(behind, b"COUNT") => {
            let no_count = Fault::Text("ERR count should be greater than 0");
            positive(args.get(behind + 1), no_count)?
        }
        _ => return Err(SYNTAX),
    };
    match args.len() - behind {
        0 | 2 => Ok((keys, side, count)),
        _ => Err(SYNTAX),
    }
}

impl<'a> Combine<'a> {
    fn read(
        command: &Command,
        args: Arguments<'a>,
        operation: Operation,
        result: CombineResult<'a>,
    ) -> Result<ZsetsAsk<'a>, Fault> {
        let first = match result {
            CombineResult::Stored(_) => 3,
            CombineResult::Answered | CombineResult::Counted => 2,
        };
        let count = read_integer(args.get(first - 1)).ok_or(NOT_AN_INTEGER)?;
        let count = usize::try_from(count).unwrap_or(0);
        if count == 0 {
            return Err(Fault::NoInputKey(command.name));
        }
        Ok(ZsetsAsk::Combine(Combine {
            keys: CountedKeys::read(args, first, count, 0)?,
            operation,
            result,
        }))
    }

    /// Reads the options, which Redis judges behind the types of the keys.
    pub(super) fn options(&self) -> Result<CombineOptions, Fault> {
        let mut options = CombineOptions::default();
        let (args, count) = (self.keys.args, self.keys.count);
        let is_counted = self.result == CombineResult::Counted;
        let has_weights = self.operation != Operation::Diff && !is_counted;
        let mut number = self.keys.end();
        while number < args.len() {
            let is = |name: &[u8]| args.get(number).eq_ignore_ascii_case(name);
            let left = args.len() - number;
            number += match () {
                () if has_weights && left > count && is(b"WEIGHTS") => {
                    let mut weights = args.from(number + 1).take(count);
                    if weights.any(|it| read_score(it).is_none()) {
                        return Err(Fault::Text("ERR weight value is not a float"));
                    }
                    options.weights = Some(number + 1);
                    count + 1
                }
                () if has_weights && left >= 2 && is(b"AGGREGATE") => {
                    let given = args.get(number + 1);
                    let is = |name: &[u8]| given.eq_ignore_ascii_case(name);
                    options.aggregate = match () {
                        () if is(b"SUM") => Aggregate::Sum,
                        () if is(b"MIN") => Aggregate::Min,
                        () if is(b"MAX") => Aggregate::Max,
                        () => return Err(SYNTAX),
                    };
                    2
                }
                () if self.result == CombineResult::Answered && is(b"WITHSCORES") => {
                    options.has_scores = true;
                    1
                }
                () if is_counted && left >= 2 && is(b"LIMIT") => {
                    let limit = read_integer(args.get(number + 1));
                    let limit = limit.and_then(|it| usize::try_from(it).ok());
                    let negative = Fault::Text("ERR LIMIT can't be negative");
                    options.limit = limit.ok_or(negative)?;
                    2
                }
                () => return Err(SYNTAX),
            };
        }
        Ok(options)
    }
}
