//! The commands of lists, read from their arguments.

use crate::resp::fault::{Fault, NOT_AN_INTEGER, OUT_OF_SYMMETRIC_RANGE, SYNTAX};
use crate::resp::number::read_integer;
use crate::resp::parser::Arguments;
use crate::resp::table::{Command, Name};
use crate::resp::timeout::read_timeout;

use super::list::ListEnd;
use super::zsets_ask::{CountedKeys, read_mpop};

/// The words of the ends of a list.
const ENDS: [(&[u8], ListEnd); 2] = [(b"LEFT", ListEnd::Left), (b"RIGHT", ListEnd::Right)];

/// What a command asks of lists.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) enum ListAsk<'a> {
    /// Of that of this key.
    One(&'a [u8], OneListAsk<'a>),
    /// LMOVE and RPOPLPUSH, and those of them that wait.
    Move(ListMove<'a>),
    /// LMPOP and BLMPOP.
    PopFirst(ListPop<'a>),
    /// BLPOP and BRPOP: one element.
    PopOne(ListPop<'a>),
}

/// What a command asks of the list of a key.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) enum OneListAsk<'a> {
    Push(ListPush<'a>),
    /// So many, or one.
    Pop(ListEnd, Option<usize>),
    Len,
    /// From this place to this one; negative ones count from the end.
    Range(i64, i64),
    /// LINDEX. A place that is no number is judged behind the type of the key, as in Redis.
    Index(Option<i64>),
    /// LSET: the place, as that of LINDEX, and the element.
    Set(Option<i64>, &'a [u8]),
    Insert(ListInsert<'a>),
    /// LREM: how many at most, from the right if negative, all if 0.
    Remove(i64, &'a [u8]),
    /// LTRIM, with places as those of a range.
    Trim(i64, i64),
    Position(&'a [u8], PositionForm),
}

/// What LPUSH and its like put into a list.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) struct ListPush<'a> {
    /// Elements from the second argument on.
    args: Arguments<'a>,
    pub(super) end: ListEnd,
    /// A key without a list gets none.
    pub(super) only_there: bool,
}

impl<'a> ListPush<'a> {
    pub(super) fn elements(&self) -> impl DoubleEndedIterator<Item = &'a [u8]> + Clone + use<'a> {
        let args = self.args;
        (2..args.len()).map(move |number| args.get(number))
    }
}

/// What LINSERT puts where.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) struct ListInsert<'a> {
    pub(super) is_behind: bool,
    pub(super) pivot: &'a [u8],
    pub(super) element: &'a [u8],
}

/// Which equal elements LPOS finds.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) struct PositionForm {
    /// It begins with this one of the equal elements, ...
    pub(super) first: u64,
    /// ... counted from this end.
    pub(super) from: ListEnd,
    /// So many at most, and all if 0; without a count it finds one.
    pub(super) count: Option<usize>,
    /// So many elements are compared at most; all if 0.
    pub(super) compared_max: usize,
}

/// An element on its way from one list to another one, or to the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) struct ListMove<'a> {
    pub(in crate::resp) from: &'a [u8],
    pub(in crate::resp) to: &'a [u8],
    /// Where it is taken.
    pub(in crate::resp) taken: ListEnd,
    /// Where it is put.
    pub(in crate::resp) put: ListEnd,
}

/// Elements of the first of some keys that has a value.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) struct ListPop<'a> {
    pub(in crate::resp) keys: CountedKeys<'a>,
    pub(in crate::resp) end: ListEnd,
    /// How many at most.
    pub(in crate::resp) count: usize,
}

impl<'a> ListPop<'a> {
    fn of((keys, end, count): (CountedKeys<'a>, ListEnd, usize)) -> Self {
        ListPop { keys, end, count }
    }
}

impl<'a> ListAsk<'a> {
    /// Reads a command of lists, whose number of arguments was checked. `None` of another one.
    pub(in crate::resp) fn read(
        command: &Command,
        args: Arguments<'a>,
    ) -> Result<Option<Self>, Fault> {
        let moved = |taken, put| {
            ListAsk::Move(ListMove {
                from: args.get(1),
                to: args.get(2),
                taken,
                put,
            })
        };
        Ok(Some(match command.id {
            Name::LMove => moved(read_end(args.get(3))?, read_end(args.get(4))?),
            Name::RPopLPush => moved(ListEnd::Right, ListEnd::Left),
            Name::BLMove => {
                let ends = (read_end(args.get(3))?, read_end(args.get(4))?);
                read_timeout(args.get(5))?;
                moved(ends.0, ends.1)
            }
            Name::BRPopLPush => {
                read_timeout(args.get(3))?;
                moved(ListEnd::Right, ListEnd::Left)
            }
            Name::LMPop => ListAsk::PopFirst(ListPop::of(read_mpop(args, 1, ENDS)?)),
            Name::BLMPop => {
                let popped = read_mpop(args, 2, ENDS)?;
                read_timeout(args.get(1))?;
                ListAsk::PopFirst(ListPop::of(popped))
            }
            Name::BLPop | Name::BRPop => {
                let keys = CountedKeys::before_timeout(args)?;
                let end = match command.id {
                    Name::BLPop => ListEnd::Left,
                    _ => ListEnd::Right,
                };
                ListAsk::PopOne(ListPop::of((keys, end, 1)))
            }
            _ => {
                let one = OneListAsk::read(command, args)?;
                return Ok(one.map(|ask| ListAsk::One(args.get(1), ask)));
            }
        }))
    }

    /// Its keys.
    pub(in crate::resp) fn for_each_key(&self, mut visit: impl FnMut(&'a [u8])) {
        match self {
            ListAsk::One(key, _) => visit(key),
            ListAsk::Move(ListMove { from, to, .. }) => {
                visit(from);
                visit(to);
            }
            ListAsk::PopFirst(ask) | ListAsk::PopOne(ask) => ask.keys.all().for_each(visit),
        }
    }

    /// Whether it may change a key.
    pub(in crate::resp) fn is_change(&self) -> bool {
        match self {
            ListAsk::One(_, ask) => ask.is_change(),
            ListAsk::Move(_) | ListAsk::PopFirst(_) | ListAsk::PopOne(_) => true,
        }
    }
}

impl<'a> OneListAsk<'a> {
    fn read(command: &Command, args: Arguments<'a>) -> Result<Option<Self>, Fault> {
        let integer = |number: usize| read_integer(args.get(number)).ok_or(NOT_AN_INTEGER);
        let push = |end, only_there| {
            OneListAsk::Push(ListPush {
                args,
                end,
                only_there,
            })
        };
        Ok(Some(match command.id {
            Name::LPush => push(ListEnd::Left, false),
            Name::RPush => push(ListEnd::Right, false),
            Name::LPushX => push(ListEnd::Left, true),
            Name::RPushX => push(ListEnd::Right, true),
            Name::LPop | Name::RPop if args.len() > 3 => return Err(Fault::Arity(command.name)),
            Name::LPop => OneListAsk::Pop(ListEnd::Left, read_pop_count(args)?),
            Name::RPop => OneListAsk::Pop(ListEnd::Right, read_pop_count(args)?),
            Name::LLen => OneListAsk::Len,
            Name::LRange => OneListAsk::Range(integer(2)?, integer(3)?),
            Name::LIndex => OneListAsk::Index(read_integer(args.get(2))),
            Name::LSet => OneListAsk::Set(read_integer(args.get(2)), args.get(3)),
            Name::LInsert => {
                let is = |name: &[u8]| args.get(2).eq_ignore_ascii_case(name);
                let is_behind = is(b"AFTER");
                if !is_behind && !is(b"BEFORE") {
                    return Err(SYNTAX);
                }
                OneListAsk::Insert(ListInsert {
                    is_behind,
                    pivot: args.get(3),
                    element: args.get(4),
                })
            }
            Name::LRem => OneListAsk::Remove(symmetric(integer(2)?)?, args.get(3)),
            Name::LTrim => OneListAsk::Trim(integer(2)?, integer(3)?),
            Name::LPos => OneListAsk::Position(args.get(2), PositionForm::read(args)?),
            _ => return Ok(None),
        }))
    }

    pub(super) fn is_change(self) -> bool {
        match self {
            OneListAsk::Push(_)
            | OneListAsk::Pop(..)
            | OneListAsk::Set(..)
            | OneListAsk::Insert(_)
            | OneListAsk::Remove(..)
            | OneListAsk::Trim(..) => true,
            OneListAsk::Len
            | OneListAsk::Range(..)
            | OneListAsk::Index(_)
            | OneListAsk::Position(..) => false,
        }
    }
}

impl PositionForm {
    fn read(args: Arguments<'_>) -> Result<Self, Fault> {
        let mut form = PositionForm {
            first: 1,
            from: ListEnd::Left,
            count: None,
            compared_max: 0,
        };
        for number in (3..args.len()).step_by(2) {
            if number + 1 == args.len() {
                return Err(SYNTAX);
            }
            let given = args.get(number + 1);
            let is = |name: &[u8]| args.get(number).eq_ignore_ascii_case(name);
            match () {
                () if is(b"RANK") => {
                    let rank = symmetric(read_integer(given).ok_or(NOT_AN_INTEGER)?)?;
                    if rank == 0 {
                        return Err(Fault::Text(
                            "ERR RANK can't be zero: use 1 to start from the first match, 2 from \
                             the second ... or use negative to start from the end of the list",
                        ));
                    }
                    form.first = rank.unsigned_abs();
                    form.from = end_of(rank);
                }
                () if is(b"COUNT") => {
                    let negative = Fault::Text("ERR COUNT can't be negative");
                    form.count = Some(read_count(given).ok_or(negative)?);
                }
                () if is(b"MAXLEN") => {
                    let negative = Fault::Text("ERR MAXLEN can't be negative");
                    form.compared_max = read_count(given).ok_or(negative)?;
                }
                () => return Err(SYNTAX),
            }
        }
        Ok(form)
    }
}

/// The end from which a number counts.
pub(super) fn end_of(number: i64) -> ListEnd {
    if number < 0 {
        ListEnd::Right
    } else {
        ListEnd::Left
    }
}

fn read_end(word: &[u8]) -> Result<ListEnd, Fault> {
    match () {
        () if word.eq_ignore_ascii_case(b"LEFT") => Ok(ListEnd::Left),
        () if word.eq_ignore_ascii_case(b"RIGHT") => Ok(ListEnd::Right),
        () => Err(SYNTAX),
    }
}

/// A number that is not negative.
fn read_count(text: &[u8]) -> Option<usize> {
    usize::try_from(read_integer(text)?).ok()
}

/// A number whose sign may be turned.
fn symmetric(number: i64) -> Result<i64, Fault> {
    match number {
        i64::MIN => Err(OUT_OF_SYMMETRIC_RANGE),
        number => Ok(number),
    }
}

fn read_pop_count(args: Arguments<'_>) -> Result<Option<usize>, Fault> {
    let given = args.from(2).next();
    let out_of_range = Fault::Text("ERR value is out of range, must be positive");
    given
        .map(|text| read_count(text).ok_or(out_of_range))
        .transpose()
}
