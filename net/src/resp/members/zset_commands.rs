//! What the commands of sorted sets do to the value of one key.

use std::borrow::Cow;

use crate::resp::key_state::KeyState;
use crate::resp::parser::Arguments;
use crate::resp::reply::{Protocol, Replies};
use crate::resp::transaction_keys::TransactionKeys;

use super::chance::{pick, picked, picked_len};
use super::head::{CORRUPT, MemberType};
use super::key_type::has_other;
use super::page::MemberPage;
use super::score::{read_score, score_text};
use super::zset::{Scored, ZsetEdit, ZsetView};
use super::zset_ask::{AddWhen, OneAsk, ZsetAsk};
use super::zset_range::Side;

/// The text of a refusal.
pub(super) type Refused = Cow<'static, [u8]>;

impl ZsetAsk<'_> {
    /// Whether a key that it reads has a value of another type.
    pub(in crate::resp) fn is_of_other_type(&self, keys: &TransactionKeys) -> bool {
        match self {
            ZsetAsk::One(key, _) => {
                has_other(keys.find(key).expect("it was read"), MemberType::Zset)
            }
            ZsetAsk::Several(ask) => ask.is_of_other_type(keys),
        }
    }

    /// Runs the command on keys that were read, of no other type. `seed` is another one each time.
    pub(in crate::resp) fn run(
        &self,
        keys: &mut TransactionKeys,
        seed: u64,
        replies: &mut Replies<'_>,
    ) {
        let done = match self {
            ZsetAsk::One(key, ask) => {
                let state = keys.find_mut(key);
                ask.run(state.expect("it was read"), seed, replies)
            }
            ZsetAsk::Several(ask) => ask.run(keys, replies),
        };
        if let Err(text) = done {
            replies.error(&text);
        }
    }
}

impl OneAsk<'_> {
    fn run(
        self,
        state: &mut KeyState,
        seed: u64,
        replies: &mut Replies<'_>,
    ) -> Result<(), Refused> {
        if !self.is_change() {
            let view = view_of(state)?;
            return self.answer(&view, state.is_there(), seed, replies);
        }
        // The value is put back, or another one in its place.
        let before = state.members().map(<[u8]>::to_vec);
        let view = before.as_deref().map(ZsetView::read).transpose();
        let view = view.map_err(|_| CORRUPT)?.unwrap_or_default();
        let edit = match self {
            OneAsk::Add(args, first, when) => add(&view, (args, first), when, replies)?,
            OneAsk::Rem(args) => {
                let mut edit = ZsetEdit::begin(&view, args.len() - 2);
                args.from(2).for_each(|member| _ = edit.remove(member));
                replies.integer(integer(view.members().len() - edit.len()));
                edit
            }
            OneAsk::RemRange(range) => {
                let places = range.places(view.members(), false, 0);
                replies.integer(integer(places.len()));
                let mut edit = ZsetEdit::begin(&view, 0);
                edit.remove_range(places);
                edit
            }
            OneAsk::Pop(side, count) => {
                let is_nested = count.is_some() && replies.protocol() == Protocol::Resp3;
                let form = match is_nested {
                    true => PopReply::Nested,
                    false => PopReply::Flat,
                };
                pop(&view, side, count.unwrap_or(1), form, replies)
            }
            _ => unreachable!("`answer` does the others"),
        };
        if edit.is_changed() {
            write(&edit, state);
        }
        Ok(())
    }

    /// Runs a command that only reads.
    fn answer(
        self,
        view: &ZsetView<'_>,
        is_there: bool,
        seed: u64,
        replies: &mut Replies<'_>,
    ) -> Result<(), Refused> {
        let members = view.members();
        match self {
            OneAsk::Card => replies.integer(integer(members.len())),
            OneAsk::Count(range) => {
                replies.integer(integer(range.places(members, false, 0).len()));
            }
            OneAsk::Score(member) => answer_score(view.finder(1).get(member), replies),
            OneAsk::Scores(args) => {
                let names = args.len() - 2;
                let finder = view.finder(names);
                replies.array(names);
                args.from(2)
                    .for_each(|name| answer_score(finder.get(name), replies));
            }
            OneAsk::Rank(member, form) => match view.place_of(member) {
                None if form.has_score => replies.null_array(),
                None => replies.null(),
                Some(place) => {
                    if form.has_score {
                        replies.array(2);
                    }
                    replies.integer(integer(match form.is_reverse {
                        true => members.len() - 1 - place,
                        false => place,
                    }));
                    if form.has_score {
                        answer_score(Some(members[place].score), replies);
                    }
                }
            },
            OneAsk::Range(ask) => {
                let found: Vec<Scored<'_>> = ask.members(members).collect();
                answer_members(&found, ask.has_scores, replies);
            }
            OneAsk::Random(None, _) => match members.get(pick(members.len().max(1), seed)) {
                Some(picked) => replies.value(picked.member),
                None => replies.null(),
            },
            OneAsk::Random(Some(count), has_scores) => {
                answer_random(members, (count, has_scores), seed, replies);
            }
            OneAsk::Scan(args) => scan(members, is_there, args, replies)?,
            _ => unreachable!("`run` does the others"),
        }
        Ok(())
    }
}

fn add<'a>(
    view: &ZsetView<'a>,
    (args, first): (Arguments<'a>, usize),
    when: AddWhen,
    replies: &mut Replies<'_>,
) -> Result<ZsetEdit<'a>, Refused> {
    let names = (args.len() - first) / 2;
    let mut edit = ZsetEdit::begin(view, names);
    edit.note_many(names, 0);
    let (mut added, mut changed, mut sum) = (0, 0, None);
    let pairs = args
        .from(first)
        .step_by(2)
        .zip(args.from(first + 1).step_by(2));
    for (score, member) in pairs {
        let mut score = read_score(score).expect("it was checked");
        let before = edit.get(member);
        match before {
            Some(_) if when.is_absent => continue,
            None if when.is_present => continue,
            None => added += 1,
            Some(before) => {
                if when.adds {
                    score += before;
                }
                if score.is_nan() {
                    return Err(b"ERR resulting score is not a number (NaN)"[..].into());
                }
                if when.is_less && score >= before || when.is_greater && score <= before {
                    continue;
                }
                changed += i64::from(score != before);
            }
        }
        sum = Some(score);
        if before != Some(score) {
            edit.set(member, score);
            check_bytes(&edit)?;
        }
    }
    match (when.adds, when.counts_changed) {
        (true, _) => answer_score(sum, replies),
        (false, true) => replies.integer(added + changed),
        (false, false) => replies.integer(added),
    }
    Ok(edit)
}

/// How members that were popped are told with their scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PopReply {
    /// In one array.
    Flat,
    /// Each in an array of its own.
    Nested,
    /// One, as the rest of an array that has begun with its key.
    BehindKey,
}

/// Takes members away from a side and tells them with their scores.
pub(super) fn pop<'a>(
    view: &ZsetView<'a>,
    side: Side,
    count: usize,
    form: PopReply,
    replies: &mut Replies<'_>,
) -> ZsetEdit<'a> {
    let members = view.members();
    let count = count.min(members.len());
    let places = match side {
        Side::Min => 0..count,
        Side::Max => members.len() - count..members.len(),
    };
    match form {
        PopReply::Flat => replies.array(2 * count),
        PopReply::Nested => replies.array(count),
        PopReply::BehindKey => {}
    }
    let mut answer = |it: &Scored<'_>| {
        if form == PopReply::Nested {
            replies.array(2);
        }
        replies.value(it.member);
        answer_score(Some(it.score), replies);
    };
    match side {
        Side::Min => members[places.clone()].iter().for_each(&mut answer),
        Side::Max => members[places.clone()].iter().rev().for_each(&mut answer),
    }
    let mut edit = ZsetEdit::begin(view, 0);
    edit.remove_range(places);
    edit
}

/// Gives the key what an edit has made.
pub(super) fn write(edit: &ZsetEdit<'_>, state: &mut KeyState) {
    match edit.encode() {
        Some(value) => state.set_members(value),
        None => _ = state.delete(),
    }
}

pub(super) fn integer(count: usize) -> i64 {
    i64::try_from(count).expect("values are bounded")
}

/// The sorted set of a key whose type was checked; without one it has no member.
pub(super) fn view_of(state: &KeyState) -> Result<ZsetView<'_>, Refused> {
    let view = state.members().map(ZsetView::read).transpose();
    Ok(view.map_err(|_| CORRUPT)?.unwrap_or_default())
}

pub(super) fn check_bytes(edit: &ZsetEdit<'_>) -> Result<(), Refused> {
    MemberType::Zset.check_bytes(edit.bytes(), edit.len())
}

fn answer_score(score: Option<f64>, replies: &mut Replies<'_>) {
    match score {
        Some(score) => replies.double(&score_text(score)),
        None => replies.null(),
    }
}

/// What a reply has of each member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberForm {
    Alone,
    /// The score stands behind it: RESP2.
    BeforeScore,
    /// Both are an array: RESP3.
    Pair,
}

impl MemberForm {
    fn of(has_scores: bool, protocol: Protocol) -> Self {
        match (has_scores, protocol) {
            (false, _) => MemberForm::Alone,
            (true, Protocol::Resp3) => MemberForm::Pair,
            (true, _) => MemberForm::BeforeScore,
        }
    }

    /// The line before so many members.
    fn begin(self, len: usize, replies: &mut Replies<'_>) {
        replies.array(match self {
            MemberForm::BeforeScore => len.saturating_mul(2),
            MemberForm::Alone | MemberForm::Pair => len,
        });
    }

    fn answer(self, it: &Scored<'_>, replies: &mut Replies<'_>) {
        if self == MemberForm::Pair {
            replies.array(2);
        }
        replies.value(it.member);
        if self != MemberForm::Alone {
            answer_score(Some(it.score), replies);
        }
    }
}

/// Members, each with its score if that is asked for.
pub(super) fn answer_members(members: &[Scored<'_>], has_scores: bool, replies: &mut Replies<'_>) {
    let form = MemberForm::of(has_scores, replies.protocol());
    form.begin(members.len(), replies);
    for it in members {
        form.answer(it, replies);
    }
}

/// ZRANDMEMBER with a count: distinct members, or with a negative count any.
fn answer_random(
    members: &[Scored<'_>],
    (count, has_scores): (i64, bool),
    seed: u64,
    replies: &mut Replies<'_>,
) {
    if members.is_empty() {
        return replies.array(0);
    }
    let len = picked_len(members.len(), count);
    let form = MemberForm::of(has_scores, replies.protocol());
    form.begin(len, replies);
    for place in picked(members.len(), count, seed) {
        // Redis tells all from the last one on.
        form.answer(&members[members.len() - 1 - place], replies);
        // What is beyond the bound of a reply is refused, however much more would come.
        if replies.is_beyond() {
            return;
        }
    }
}

/// ZSCAN: all members are one page.
fn scan(
    members: &[Scored<'_>],
    is_there: bool,
    args: Arguments<'_>,
    replies: &mut Replies<'_>,
) -> Result<(), Refused> {
    let page = MemberPage::read(args, is_there, MemberType::Zset)?;
    let shown = members.iter().filter(|it| page.shows(it.member));
    let shown: Vec<&Scored<'_>> = shown.collect();
    page.begin(shown.len(), replies);
    for it in shown {
        replies.value(it.member);
        if page.is_paired {
            // A string in RESP3, too.
            replies.value(score_text(it.score).as_bytes());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBERS: [Scored<'_>; 5] = [
        scored(b"a"),
        scored(b"b"),
        scored(b"c"),
        scored(b"d"),
        scored(b"e"),
    ];

    const fn scored(member: &[u8]) -> Scored<'_> {
        Scored { score: 1.5, member }
    }

    fn picked(count: i64, has_scores: bool, protocol: Protocol, seed: u64) -> String {
        let mut out = Vec::new();
        let mut replies = Replies::bounded(&mut out, protocol, 1 << 16);
        answer_random(&MEMBERS, (count, has_scores), seed, &mut replies);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn random_members_with_scores_are_pairs_and_end_at_the_bound_of_a_reply() {
        let chosen = picked(1, true, Protocol::Resp2, 1);
        assert!(
            chosen.starts_with("*2\r\n$1\r\n") && chosen.ends_with("$3\r\n1.5\r\n"),
            "{chosen}"
        );
        let chosen = picked(-1, true, Protocol::Resp3, 1);
        assert!(
            chosen.starts_with("*1\r\n*2\r\n$1\r\n") && chosen.ends_with(",1.5\r\n"),
            "{chosen}"
        );
        let mut out = Vec::new();
        let mut replies = Replies::bounded(&mut out, Protocol::Resp2, 1 << 16);
        answer_random(&MEMBERS, (-i64::MAX, false), 1, &mut replies);
        assert!(replies.is_beyond());
        assert!(out.len() <= 1 << 16);
    }
}
