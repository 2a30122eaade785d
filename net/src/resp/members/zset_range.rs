//! Ranges of a sorted set: by place, by score, and by the bytes of members of one score.

use std::ops::Range;

use crate::resp::fault::{Fault, NOT_AN_INTEGER, SYNTAX};
use crate::resp::number::read_integer;
use crate::resp::parser::Arguments;

use super::score::read_end;
use super::zset::Scored;

/// What the ends of a range are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeKind {
    Rank,
    Score,
    Lex,
}

/// Some members of a sorted set, one behind another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::resp) enum ZsetRange<'a> {
    /// From this place to this one; negative ones count from the end.
    Rank(i64, i64),
    Score(ScoreEnd, ScoreEnd),
    Lex(LexEnd<'a>, LexEnd<'a>),
}

/// An end of a range of scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::resp) struct ScoreEnd {
    score: f64,
    /// This score is not within the range.
    is_open: bool,
}

/// An end of a range of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) enum LexEnd<'a> {
    /// Before all members.
    Least,
    /// Behind all members.
    Greatest,
    /// This one is within the range.
    With(&'a [u8]),
    /// This one is not.
    Without(&'a [u8]),
}

/// From which side members are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) enum Side {
    Min,
    Max,
}

/// What ZRANGE and its like ask for.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) struct RangeAsk<'a> {
    range: ZsetRange<'a>,
    is_reverse: bool,
    /// How many are passed by, and how many are told at most; a negative number is all.
    limit: Option<(i64, i64)>,
    pub(super) has_scores: bool,
}

impl<'a> ZsetRange<'a> {
    /// Reads both ends.
    pub(super) fn read(kind: RangeKind, min: &'a [u8], max: &'a [u8]) -> Result<Self, Fault> {
        match kind {
            RangeKind::Rank => {
                let place = |text| read_integer(text).ok_or(NOT_AN_INTEGER);
                Ok(ZsetRange::Rank(place(min)?, place(max)?))
            }
            RangeKind::Score => {
                let no_float = Fault::Text("ERR min or max is not a float");
                let end = |text| ScoreEnd::read(text).ok_or(no_float);
                Ok(ZsetRange::Score(end(min)?, end(max)?))
            }
            RangeKind::Lex => {
                let no_item = Fault::Text("ERR min or max not valid string range item");
                let end = |text| LexEnd::read(text).ok_or(no_item);
                Ok(ZsetRange::Lex(end(min)?, end(max)?))
            }
        }
    }

    /// The places of its members but for the first ones, so many, which are passed by. From which
    /// side they are read decides which are the first ones, and what places by rank count from.
    pub(super) fn places(
        &self,
        members: &[Scored<'_>],
        is_reverse: bool,
        passed: usize,
    ) -> Range<usize> {
        let places = match *self {
            ZsetRange::Lex(min, max) => {
                return by_members((min, max), members, is_reverse, passed);
            }
            ZsetRange::Rank(start, end) => {
                let places = by_rank(start, end, members.len());
                match is_reverse {
                    true => members.len() - places.end..members.len() - places.start,
                    false => places,
                }
            }
            ZsetRange::Score(min, max) => {
                let start = members.partition_point(|it| !min.is_at_or_before(it.score));
                let end = members.partition_point(|it| max.is_at_or_behind(it.score));
                start..end.max(start)
            }
        };
        let passed = passed.min(places.len());
        match is_reverse {
            true => places.start..places.end - passed,
            false => places.start + passed..places.end,
        }
    }
}

impl<'a> RangeAsk<'a> {
    /// Reads the ends, which stand from the argument `first` on, and the options behind them. What
    /// the command says by itself is no option.
    pub(super) fn read(
        args: Arguments<'a>,
        first: usize,
        (mut kind, mut is_reverse): (Option<RangeKind>, Option<bool>),
        is_stored: bool,
    ) -> Result<Self, Fault> {
        let (mut limit, mut has_scores) = (None, false);
        let mut number = first + 2;
        while number < args.len() {
            let is = |name: &[u8]| args.get(number).eq_ignore_ascii_case(name);
            match () {
                () if !is_stored && is(b"WITHSCORES") => has_scores = true,
                () if is(b"LIMIT") && number + 2 < args.len() => {
                    let integer = |at| read_integer(args.get(at)).ok_or(NOT_AN_INTEGER);
                    limit = Some((integer(number + 1)?, integer(number + 2)?));
                    number += 2;
                }
                () if is_reverse.is_none() && is(b"REV") => is_reverse = Some(true),
                () if kind.is_none() && is(b"BYLEX") => kind = Some(RangeKind::Lex),
                () if kind.is_none() && is(b"BYSCORE") => kind = Some(RangeKind::Score),
                () => return Err(SYNTAX),
            }
            number += 1;
        }
        let (kind, is_reverse) = (kind.unwrap_or(RangeKind::Rank), is_reverse == Some(true));
        if kind == RangeKind::Rank && limit.is_some_and(|(_, most)| most != -1) {
            return Err(Fault::Text(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or \
                 BYLEX",
            ));
        }
        if kind == RangeKind::Lex && has_scores {
            return Err(Fault::Text(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        let (one, other) = (args.get(first), args.get(first + 1));
        let (min, max) = match is_reverse && kind != RangeKind::Rank {
            true => (other, one),
            false => (one, other),
        };
        Ok(RangeAsk {
            range: ZsetRange::read(kind, min, max)?,
            is_reverse,
            limit: limit.filter(|_| kind != RangeKind::Rank),
            has_scores,
        })
    }

    /// Those that are asked for, in the order in which they are told.
    pub(super) fn members<'z>(&self, members: &[Scored<'z>]) -> impl Iterator<Item = Scored<'z>> {
        let (passed, most) = self.limit.unwrap_or((0, -1));
        // Redis passes by all of them for a negative number.
        let passed = usize::try_from(passed).unwrap_or(usize::MAX);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let is_reverse = self.is_reverse;
        let found = &members[self.range.places(members, is_reverse, passed)];
        let at = move |place: usize| match is_reverse {
            true => found[found.len() - 1 - place],
            false => found[place],
        };
        (0..found.len()).map(at).take(most)
    }

    /// Whether it is known how many members it has before they are looked at.
    pub(super) fn is_by_rank(&self) -> bool {
        matches!(self.range, ZsetRange::Rank(..))
    }
}

fn by_rank(start: i64, end: i64, len: usize) -> Range<usize> {
    let members = i64::try_from(len).expect("values are bounded");
    let absolute = |at: i64| if at < 0 { at + members } else { at };
    let (start, end) = (absolute(start).max(0), absolute(end).min(members - 1));
    match (usize::try_from(start), usize::try_from(end)) {
        (Ok(start), Ok(end)) if start <= end => start..end + 1,
        _ => 0..0,
    }
}

/// As Redis walks over a list: what it finds among members of several scores depends on the side
/// from which it comes, and those that it passes by need not be within the range.
fn by_members(
    (min, max): (LexEnd<'_>, LexEnd<'_>),
    members: &[Scored<'_>],
    is_reverse: bool,
    passed: usize,
) -> Range<usize> {
    let (above, below) = (
        |it: &Scored<'_>| min.is_at_or_before(it.member),
        |it: &Scored<'_>| max.is_at_or_behind(it.member),
    );
    if !members.last().is_some_and(above) || !members.first().is_some_and(below) {
        return 0..0;
    }
    if is_reverse {
        let Some(last) = members.iter().rposition(below) else {
            return 0..0;
        };
        let end = match above(&members[last]) {
            true => (last + 1).saturating_sub(passed),
            false => 0,
        };
        let inside = members[..end].iter().rev().take_while(|it| above(it));
        return end - inside.count()..end;
    }
    let start = members.iter().position(above);
    let start = start.filter(|start| below(&members[*start]));
    let start = start.map_or(members.len(), |start| start.saturating_add(passed));
    let start = start.min(members.len());
    let inside = members[start..].iter().take_while(|it| below(it));
    start..start + inside.count()
}

impl ScoreEnd {
    fn read(text: &[u8]) -> Option<Self> {
        let (text, is_open) = match text {
            [b'(', rest @ ..] => (rest, true),
            text => (text, false),
        };
        read_end(text).map(|score| ScoreEnd { score, is_open })
    }

    fn is_at_or_before(self, score: f64) -> bool {
        self.score < score || self.score == score && !self.is_open
    }

    fn is_at_or_behind(self, score: f64) -> bool {
        self.score > score || self.score == score && !self.is_open
    }
}

impl<'a> LexEnd<'a> {
    fn read(text: &'a [u8]) -> Option<Self> {
        match text {
            [b'-'] | [b'-', 0, ..] => Some(LexEnd::Least),
            [b'+'] | [b'+', 0, ..] => Some(LexEnd::Greatest),
            [b'[', member @ ..] => Some(LexEnd::With(member)),
            [b'(', member @ ..] => Some(LexEnd::Without(member)),
            _ => None,
        }
    }

    fn is_at_or_before(self, member: &[u8]) -> bool {
        match self {
            LexEnd::Least => true,
            LexEnd::Greatest => false,
            LexEnd::With(end) => end <= member,
            LexEnd::Without(end) => end < member,
        }
    }

    fn is_at_or_behind(self, member: &[u8]) -> bool {
        match self {
            LexEnd::Least => false,
            LexEnd::Greatest => true,
            LexEnd::With(end) => end >= member,
            LexEnd::Without(end) => end > member,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBERS: [Scored<'_>; 5] = [
        scored(-1.0, b"a"),
        scored(0.0, b"b"),
        scored(0.0, b"c"),
        scored(2.0, b"d"),
        scored(f64::INFINITY, b"e"),
    ];

    const fn scored(score: f64, member: &[u8]) -> Scored<'_> {
        Scored { score, member }
    }

    fn reply_to(kind: RangeKind, min: &str, max: &str, is_reverse: bool) -> String {
        let range = ZsetRange::read(kind, min.as_bytes(), max.as_bytes()).expect("good");
        let members = &MEMBERS[range.places(&MEMBERS, is_reverse, 0)];
        members.iter().map(|it| char::from(it.member[0])).collect()
    }

    #[test]
    fn ranges_by_place_count_from_either_end() {
        for (start, end, forward, reverse) in [
            ("0", "-1", "abcde", "abcde"),
            ("1", "2", "bc", "cd"),
            ("-2", "-1", "de", "ab"),
            ("-100", "0", "a", "e"),
            ("3", "100", "de", "ab"),
            ("2", "1", "", ""),
            ("5", "9", "", ""),
            ("0", "-6", "", ""),
            (
                "-9223372036854775808",
                "9223372036854775807",
                "abcde",
                "abcde",
            ),
            ("9223372036854775807", "-9223372036854775808", "", ""),
        ] {
            assert_eq!(reply_to(RangeKind::Rank, start, end, false), forward);
            assert_eq!(reply_to(RangeKind::Rank, start, end, true), reverse);
        }
        assert_eq!(ZsetRange::Rank(0, -1).places(&[], false, 0), 0..0);
        assert_eq!(ZsetRange::Rank(0, -1).places(&[], true, 0), 0..0);
    }

    #[test]
    fn ranges_by_score_have_open_and_closed_ends() {
        for (min, max, members) in [
            ("-inf", "+inf", "abcde"),
            ("(-1", "2", "bcd"),
            ("-1", "(2", "abc"),
            ("0", "0", "bc"),
            ("(0", "0", ""),
            ("3", "1", ""),
            ("(2", "(inf", ""),
            ("(2", "inf", "e"),
            ("", "(", ""),
        ] {
            assert_eq!(reply_to(RangeKind::Score, min, max, false), members);
        }
    }

    #[test]
    fn ranges_by_members_end_where_a_walk_over_them_does() {
        for (min, max, members) in [
            ("-", "+", "abcde"),
            ("[b", "(d", "bc"),
            ("(b", "[d", "cd"),
            ("[bb", "[bbb", ""),
            ("+", "-", ""),
            ("-", "-", ""),
            ("[c", "[c", "c"),
            ("(c", "[c", ""),
        ] {
            assert_eq!(reply_to(RangeKind::Lex, min, max, false), members);
            assert_eq!(reply_to(RangeKind::Lex, min, max, true), members);
        }
        // Members of several scores, not in the order of their bytes.
        let mixed = [scored(1.0, b"b"), scored(2.0, b"a"), scored(3.0, b"c")];
        let range = ZsetRange::Lex(LexEnd::With(b"b"), LexEnd::Greatest);
        assert_eq!(range.places(&mixed, false, 0), 0..3);
        assert_eq!(range.places(&mixed, true, 0), 2..3);
        // What is passed by need not be within the range.
        let range = ZsetRange::Lex(LexEnd::Least, LexEnd::Without(b"b"));
        assert_eq!(range.places(&mixed, false, 0).len(), 0);
        let mixed = [scored(1.0, b"a"), scored(2.0, b"c"), scored(3.0, b"aa")];
        assert_eq!(range.places(&mixed, false, 0), 0..1);
        assert_eq!(range.places(&mixed, false, 2), 2..3);
    }
}
