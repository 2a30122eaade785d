//! The commands of sorted sets, read from their arguments.

use crate::resp::fault::{Fault, SYNTAX};
use crate::resp::number::read_integer;
use crate::resp::parser::Arguments;
use crate::resp::table::{Command, Name};

use super::chance::read_count;
use super::page::check_cursor;
use super::score::read_score;
use super::zset_range::{RangeAsk, RangeKind, Side, ZsetRange};
use super::zsets_ask::ZsetsAsk;

const NOT_A_SCORE: Fault = Fault::Text("ERR value is not a valid float");
const OUT_OF_RANGE: Fault = Fault::Text("ERR value is out of range");

/// What a command asks of sorted sets.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) enum ZsetAsk<'a> {
    /// Of that of this key.
    One(&'a [u8], OneAsk<'a>),
    Several(ZsetsAsk<'a>),
}

/// What a command asks of the sorted set of a key.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) enum OneAsk<'a> {
    /// ZADD and ZINCRBY: scores and members from this argument on.
    Add(Arguments<'a>, usize, AddWhen),
    /// Members from the second argument on.
    Rem(Arguments<'a>),
    RemRange(ZsetRange<'a>),
    /// So many, or one.
    Pop(Side, Option<usize>),
    Card,
    Count(ZsetRange<'a>),
    Score(&'a [u8]),
    /// Members from the second argument on.
    Scores(Arguments<'a>),
    Rank(&'a [u8], RankForm),
    Range(RangeAsk<'a>),
    /// A member, or so many; with their scores.
    Random(Option<i64>, bool),
    /// ZSCAN. Its options are judged behind the type of the key, as in Redis.
    Scan(Arguments<'a>),
}

/// When ZADD gives a member a score, and what it answers.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::resp) struct AddWhen {
    pub(super) is_absent: bool,
    pub(super) is_present: bool,
    pub(super) is_greater: bool,
    pub(super) is_less: bool,
    /// Those with another score count, too.
    pub(super) counts_changed: bool,
    /// The score is added, and the sum is answered.
    pub(super) adds: bool,
}

/// How ZRANK tells a place.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) struct RankForm {
    pub(super) is_reverse: bool,
    pub(super) has_score: bool,
}

impl<'a> ZsetAsk<'a> {
    /// Reads a command of sorted sets, whose number of arguments was checked. `None` of another
    /// one.
    pub(in crate::resp) fn read(
        command: &Command,
        args: Arguments<'a>,
    ) -> Result<Option<Self>, Fault> {
        let one = OneAsk::read(command, args)?;
        if let Some(ask) = one {
            return Ok(Some(ZsetAsk::One(args.get(1), ask)));
        }
        let several = ZsetsAsk::read(command, args)?;
        Ok(several.map(ZsetAsk::Several))
    }

    /// Its keys.
    pub(in crate::resp) fn for_each_key(&self, mut visit: impl FnMut(&'a [u8])) {
        match self {
            ZsetAsk::One(key, _) => visit(key),
            ZsetAsk::Several(ask) => ask.for_each_key(visit),
        }
    }

    /// Whether it may change a key.
    pub(in crate::resp) fn is_change(&self) -> bool {
        match self {
            ZsetAsk::One(_, ask) => ask.is_change(),
            ZsetAsk::Several(ask) => ask.is_change(),
        }
    }
}

impl<'a> OneAsk<'a> {
    fn read(command: &Command, args: Arguments<'a>) -> Result<Option<Self>, Fault> {
        let range = |kind| ZsetRange::read(kind, args.get(2), args.get(3));
        let ranged = |kind, is_reverse| RangeAsk::read(args, 2, (kind, is_reverse), false);
        let (rank, score, lex) = (RangeKind::Rank, RangeKind::Score, RangeKind::Lex);
        Ok(Some(match command.id {
            Name::ZAdd => read_add(args, AddWhen::default())?,
            Name::ZIncrBy => {
                let adds = true;
                read_add(
                    args,
                    AddWhen {
                        adds,
                        ..AddWhen::default()
                    },
                )?
            }
            Name::ZRem => OneAsk::Rem(args),
            Name::ZRemRangeByRank => OneAsk::RemRange(range(rank)?),
            Name::ZRemRangeByScore => OneAsk::RemRange(range(score)?),
            Name::ZRemRangeByLex => OneAsk::RemRange(range(lex)?),
            Name::ZPopMin => OneAsk::Pop(Side::Min, read_pop_count(args)?),
            Name::ZPopMax => OneAsk::Pop(Side::Max, read_pop_count(args)?),
            Name::ZCard => OneAsk::Card,
            Name::ZCount => OneAsk::Count(range(score)?),
            Name::ZLexCount => OneAsk::Count(range(lex)?),
            Name::ZScore => OneAsk::Score(args.get(2)),
            Name::ZMScore => OneAsk::Scores(args),
            Name::ZRank | Name::ZRevRank => {
                let is_reverse = command.id == Name::ZRevRank;
                let has_score = match args.len() {
                    3 => false,
                    4 if args.get(3).eq_ignore_ascii_case(b"WITHSCORE") => true,
                    4 => return Err(SYNTAX),
                    _ => return Err(Fault::Arity(command.name)),
                };
                let form = RankForm {
                    is_reverse,
                    has_score,
                };
                OneAsk::Rank(args.get(2), form)
            }
            Name::ZRange => OneAsk::Range(ranged(None, None)?),
            Name::ZRevRange => OneAsk::Range(ranged(Some(rank), Some(true))?),
            Name::ZRangeByScore => OneAsk::Range(ranged(Some(score), Some(false))?),
            Name::ZRevRangeByScore => OneAsk::Range(ranged(Some(score), Some(true))?),
            Name::ZRangeByLex => OneAsk::Range(ranged(Some(lex), Some(false))?),
            Name::ZRevRangeByLex => OneAsk::Range(ranged(Some(lex), Some(true))?),
            Name::ZRandMember => read_random(args)?,
            Name::ZScan => {
                check_cursor(args.get(2))?;
                OneAsk::Scan(args)
            }
            _ => return Ok(None),
        }))
    }

    pub(super) fn is_change(self) -> bool {
        matches!(
            self,
            OneAsk::Add(..) | OneAsk::Rem(_) | OneAsk::RemRange(_) | OneAsk::Pop(..)
        )
    }
}

/// ZADD and ZINCRBY: the options, and whether all scores are some.
fn read_add(args: Arguments<'_>, mut when: AddWhen) -> Result<OneAsk<'_>, Fault> {
    let mut first = 2;
    while first < args.len() {
        let is = |name: &[u8]| args.get(first).eq_ignore_ascii_case(name);
        match () {
            () if is(b"NX") => when.is_absent = true,
            () if is(b"XX") => when.is_present = true,
            () if is(b"CH") => when.counts_changed = true,
            () if is(b"INCR") => when.adds = true,
            () if is(b"GT") => when.is_greater = true,
            () if is(b"LT") => when.is_less = true,
            () => break,
        }
        first += 1;
    }
    let given = args.len() - first;
    let AddWhen {
        is_absent,
        is_greater,
        is_less,
        ..
    } = when;
    match () {
        () if given == 0 || !given.is_multiple_of(2) => Err(SYNTAX),
        () if is_absent && when.is_present => Err(Fault::Text(
            "ERR XX and NX options at the same time are not compatible",
        )),
        () if is_absent && (is_greater || is_less) || is_greater && is_less => Err(Fault::Text(
            "ERR GT, LT, and/or NX options at the same time are not compatible",
        )),
        () if when.adds && given > 2 => Err(Fault::Text(
            "ERR INCR option supports a single increment-element pair",
        )),
        () if args
            .from(first)
            .step_by(2)
            .any(|it| read_score(it).is_none()) =>
        {
            Err(NOT_A_SCORE)
        }
        () => Ok(OneAsk::Add(args, first, when)),
    }
}

/// How many members a pop takes: one, if nothing is said.
pub(super) fn read_pop_count(args: Arguments<'_>) -> Result<Option<usize>, Fault> {
    if args.len() > 3 {
        return Err(SYNTAX);
    }
    let given = args.from(2).next();
    let count = given.map(|text| read_integer(text).and_then(|it| usize::try_from(it).ok()));
    match count {
        None => Ok(None),
        Some(Some(count)) => Ok(Some(count)),
        Some(None) => Err(Fault::Text("ERR value is out of range, must be positive")),
    }
}

fn read_random(args: Arguments<'_>) -> Result<OneAsk<'_>, Fault> {
    if args.len() == 2 {
        return Ok(OneAsk::Random(None, false));
    }
    let count = read_count(args.get(2))?;
    let has_scores = match args.len() {
        3 => false,
        4 if args.get(3).eq_ignore_ascii_case(b"WITHSCORES") => true,
        _ => return Err(SYNTAX),
    };
    if has_scores && !(-i64::MAX / 2..=i64::MAX / 2).contains(&count) {
        return Err(OUT_OF_RANGE);
    }
    Ok(OneAsk::Random(Some(count), has_scores))
}
