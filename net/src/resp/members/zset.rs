//! A sorted set as the value of its key: members with scores, in the order of the scores, and of
//! the bytes of the members where the scores are equal.
//!
//! ```text
//! entry: score, 64 bits | length of the member | member
//! ```

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;

use super::head::{Corrupt, FLAG_LARGE, HEAD_BYTES, Head, LISTED_STRING_BYTES_MAX, MemberType};
use super::set::SetView;
use super::strings::{length_bytes, put_length, take_length};

/// Members up to which Redis keeps a sorted set in a list.
const LISTED_SCORED_MAX: usize = 128;
/// So many names at once are looked for one by one.
const FEW_NAMES_MAX: usize = 8;

/// A member with its score, which is a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scored<'a> {
    pub(super) score: f64,
    pub(super) member: &'a [u8],
}

impl Scored<'_> {
    /// The order in a sorted set.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        let scores = self.score.partial_cmp(&other.score);
        let scores = scores.expect("a score is a number");
        scores.then_with(|| self.member.cmp(other.member))
    }

    fn bytes(&self) -> usize {
        size_of::<f64>() + length_bytes(self.member.len()) + self.member.len()
    }
}

/// A sorted set whose bytes were checked.
#[derive(Clone, Debug, Default)]
pub(super) struct ZsetView<'a> {
    flags: u8,
    members: Vec<Scored<'a>>,
}

impl<'a> ZsetView<'a> {
    /// Reads the value of a key, whole.
    pub(super) fn read(value: &'a [u8]) -> Result<Self, Corrupt> {
        let (head, mut rest) = Head::read(value, MemberType::Zset)?;
        let mut members: Vec<Scored<'a>> = Vec::with_capacity(head.count);
        for _ in 0..head.count {
            let (score, behind) = rest.split_first_chunk().ok_or(Corrupt)?;
            let (len, behind) = take_length(behind)?;
            let (member, behind) = behind.split_at_checked(len).ok_or(Corrupt)?;
            let score = f64::from_le_bytes(*score);
            let entry = Scored { score, member };
            let is_next = |last: &Scored<'_>| last.order(&entry) == Ordering::Less;
            if score.is_nan() || !members.last().is_none_or(is_next) {
                return Err(Corrupt);
            }
            members.push(entry);
            rest = behind;
        }
        match rest.is_empty() {
            true => Ok(ZsetView {
                flags: head.flags,
                members,
            }),
            false => Err(Corrupt),
        }
    }

    /// The members of a set, each with the score 1.
    pub(super) fn of_set(set: SetView<'a>) -> Self {
        let members = set.members().map(|member| Scored { score: 1.0, member });
        let mut members: Vec<Scored<'a>> = members.collect();
        members.sort_unstable_by(Scored::order);
        ZsetView { flags: 0, members }
    }

    /// The members in their order.
    pub(super) fn members(&self) -> &[Scored<'a>] {
        &self.members
    }

    /// The place of a member.
    pub(super) fn place_of(&self, member: &[u8]) -> Option<usize> {
        self.members.iter().position(|it| it.member == member)
    }

    /// The scores of so many members.
    pub(super) fn finder(&self, names: usize) -> ScoreFinder<'_, 'a> {
        let pairs = || self.members.iter().map(|it| (it.member, it.score));
        ScoreFinder {
            view: self,
            by_name: (names > FEW_NAMES_MAX).then(|| pairs().collect()),
        }
    }
}

/// Finds scores: many of them by a map.
#[derive(Debug)]
pub(super) struct ScoreFinder<'v, 'a> {
    view: &'v ZsetView<'a>,
    by_name: Option<HashMap<&'a [u8], f64>>,
}

impl ScoreFinder<'_, '_> {
    /// The score of a member.
    pub(super) fn get(&self, member: &[u8]) -> Option<f64> {
        match &self.by_name {
            Some(by_name) => by_name.get(member).copied(),
            None => self
                .view
                .place_of(member)
                .map(|at| self.view.members[at].score),
        }
    }
}

/// A sorted set that is edited.
#[derive(Debug)]
pub(super) struct ZsetEdit<'a> {
    flags: u8,
    /// In no order. `None` are those that were taken away.
    members: Vec<Option<Scored<'a>>>,
    /// Where each member stands, if many are named.
    places: Option<HashMap<&'a [u8], usize>>,
    count: usize,
    bytes: usize,
    is_changed: bool,
}

impl<'a> ZsetEdit<'a> {
    /// The sorted set that a key has, in an edit that names so many members.
    pub(super) fn begin(view: &ZsetView<'a>, names: usize) -> Self {
        let places = (names > FEW_NAMES_MAX).then(|| {
            let named = view.members.iter().enumerate();
            named.map(|(place, it)| (it.member, place)).collect()
        });
        ZsetEdit {
            flags: view.flags,
            members: view.members.iter().copied().map(Some).collect(),
            places,
            count: view.members.len(),
            bytes: HEAD_BYTES + view.members.iter().map(Scored::bytes).sum::<usize>(),
            is_changed: false,
        }
    }

    /// How many members there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Bytes of the value.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a member has come, gone or got a score.
    pub(super) fn is_changed(&self) -> bool {
        self.is_changed
    }

    fn place_of(&self, member: &[u8]) -> Option<usize> {
        match &self.places {
            Some(places) => places.get(member).copied(),
            None => {
                let is_it = |it: &Option<Scored<'_>>| it.is_some_and(|it| it.member == member);
                self.members.iter().position(is_it)
            }
        }
    }

    /// The score of a member.
    pub(super) fn get(&self, member: &[u8]) -> Option<f64> {
        let place = self.place_of(member)?;
        self.members[place].map(|it| it.score)
    }

    /// Gives a member a score, which is a number.
    pub(super) fn set(&mut self, member: &'a [u8], score: f64) {
        assert!(!score.is_nan(), "the caller has judged it");
        let place = self.place_of(member);
        if place.is_none() {
            self.count += 1;
            if self.count > LISTED_SCORED_MAX || member.len() > LISTED_STRING_BYTES_MAX {
                self.flags |= FLAG_LARGE;
            }
        }
        // A list of Redis has no zero with a sign.
        let is_listed = self.flags & FLAG_LARGE == 0;
        let score = if is_listed { score + 0.0 } else { score };
        let entry = Scored { score, member };
        self.is_changed = true;
        if let Some(place) = place {
            self.members[place] = Some(entry);
            return;
        }
        self.bytes += entry.bytes();
        if let Some(places) = &mut self.places {
            places.insert(member, self.members.len());
        }
        self.members.push(Some(entry));
    }

    /// So many members come at once, the longest with so many bytes: Redis takes the sorted set out
    /// of a list before it looks at them.
    pub(super) fn note_many(&mut self, count: usize, longest: usize) {
        if count > LISTED_SCORED_MAX || longest > LISTED_STRING_BYTES_MAX {
            self.flags |= FLAG_LARGE;
        }
    }

    /// Takes a member away; whether it was there.
    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        let Some(place) = self.place_of(member) else {
            return false;
        };
        if let Some(places) = &mut self.places {
            places.remove(member);
        }
        self.remove_at(place);
        true
    }

    /// Takes away those that stood at these places when the edit began. None of them was taken
    /// away before, and few members were named.
    pub(super) fn remove_range(&mut self, range: Range<usize>) {
        assert!(self.places.is_none(), "an edit of a range names no member");
        range.for_each(|place| self.remove_at(place));
    }

    fn remove_at(&mut self, place: usize) {
        let entry = self.members[place].take().expect("a place has a member");
        self.bytes -= entry.bytes();
        self.count -= 1;
        self.is_changed = true;
    }

    /// The value of the key; `None` if no member is left.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        if self.count == 0 {
            return None;
        }
        // All but few are in order.
        let mut members: Vec<Scored<'_>> = self.members.iter().flatten().copied().collect();
        members.sort_by(Scored::order);
        let head = Head {
            flags: self.flags,
            count: self.count,
        };
        let mut value = Vec::with_capacity(self.bytes);
        value.extend_from_slice(&head.encode(MemberType::Zset));
        for entry in members {
            value.extend_from_slice(&entry.score.to_le_bytes());
            put_length(entry.member.len(), &mut value);
            value.extend_from_slice(entry.member);
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use crate::resp::members::codec_tests::{Codec, number};

    use super::*;

    type Model = Vec<(f64, Vec<u8>)>;

    const CODEC: Codec = Codec {
        of: MemberType::Zset,
        again: |value| {
            let edit = ZsetEdit::begin(&ZsetView::read(value)?, 1);
            Ok(edit.encode().expect("a view has members"))
        },
    };

    fn model_of(value: &[u8]) -> Result<Model, Corrupt> {
        let view = ZsetView::read(value)?;
        let members = view.members().iter();
        Ok(members.map(|it| (it.score, it.member.to_vec())).collect())
    }

    fn score(state: &mut u64) -> f64 {
        [-1.5, 0.0, 1.0, 2.0, f64::INFINITY, f64::NEG_INFINITY][number(state) % 6]
    }

    #[test]
    fn edits_are_what_a_list_of_pairs_in_order_says() {
        let mut random = 1;
        for names in [1, 100] {
            let (mut model, mut value): (Model, Option<Vec<u8>>) = (Vec::new(), None);
            for _ in 0..2_000 {
                let before = value.clone();
                let view = before
                    .as_deref()
                    .map(|it| ZsetView::read(it).expect("good"));
                let view = view.unwrap_or_default();
                let mut edit = ZsetEdit::begin(&view, names);
                let member = vec![b'm'; number(&mut random) % 60];
                let place = model.iter().position(|(_, name)| *name == member);
                assert_eq!(edit.get(&member), place.map(|at| model[at].0));
                assert_eq!(view.finder(names).get(&member), place.map(|at| model[at].0));
                assert_eq!(view.place_of(&member), place);
                match number(&mut random) % 3 {
                    0 => {
                        assert_eq!(edit.remove(&member), place.is_some());
                        if let Some(at) = place {
                            model.remove(at);
                        }
                    }
                    _ => {
                        let score = score(&mut random);
                        edit.set(&member, score);
                        if let Some(at) = place {
                            model.remove(at);
                        }
                        model.push((score, member.clone()));
                        model.sort_by(|one, other| {
                            let scores = one.0.partial_cmp(&other.0).expect("numbers");
                            scores.then_with(|| one.1.cmp(&other.1))
                        });
                    }
                }
                value = edit.encode();
                assert_eq!(edit.len(), model.len());
                assert_eq!(value.as_ref().map_or(HEAD_BYTES, Vec::len), edit.bytes());
                let model = (!model.is_empty()).then(|| Ok(model.clone()));
                assert_eq!(value.as_deref().map(model_of), model);
            }
        }
    }

    #[test]
    fn every_cut_is_refused_and_what_is_read_of_flipped_bits_is_written_as_it_was() {
        let mut edit = ZsetEdit::begin(&ZsetView::default(), 1);
        edit.set(b"long, long", 2.5);
        edit.set(&[7; 300], f64::INFINITY);
        edit.set(b"", -1.0);
        CODEC.check_damage(&edit.encode().expect("three members"));
    }

    #[test]
    fn any_bytes_are_read_or_refused_and_what_is_read_is_written_as_it_was() {
        CODEC.check_any_bytes();
    }

    #[test]
    fn members_out_of_order_and_scores_that_are_no_numbers_are_corrupt() {
        let head = Head { flags: 0, count: 2 };
        let value = |scores: [f64; 2], members: [u8; 2]| {
            let mut value = head.encode(MemberType::Zset).to_vec();
            for (score, member) in scores.into_iter().zip(members) {
                value.extend_from_slice(&score.to_le_bytes());
                value.extend_from_slice(&[1, member]);
            }
            value
        };
        assert!(model_of(&value([1.0, 2.0], *b"ba")).is_ok());
        assert!(model_of(&value([1.0, 1.0], *b"ab")).is_ok());
        for (scores, members) in [
            ([2.0, 1.0], b"ab"),
            ([1.0, 1.0], b"ba"),
            ([1.0, 1.0], b"aa"),
            ([0.0, -0.0], b"ba"),
            ([1.0, f64::NAN], b"ab"),
            ([f64::NAN, 1.0], b"ab"),
        ] {
            assert_eq!(
                model_of(&value(scores, *members)),
                Err(Corrupt),
                "{scores:?}"
            );
        }
    }

    #[test]
    fn a_sorted_set_that_was_large_once_stays_so_and_has_zeros_with_signs() {
        let mut edit = ZsetEdit::begin(&ZsetView::default(), 1);
        edit.set(&[b'm'; 64], -0.0);
        let small = edit.encode().expect("a member");
        assert_eq!((small[2], small[15]), (0, 0));
        edit.set(&[b'm'; 65], -0.0);
        edit.remove(&[b'm'; 65]);
        edit.set(b"n", -0.0);
        let large = edit.encode().expect("two members");
        assert_eq!(large[2], FLAG_LARGE);
        let scores: Vec<String> = model_of(&large)
            .expect("good")
            .iter()
            .map(|(score, _)| score.to_string())
            .collect();
        assert_eq!(scores, ["0", "-0"]);
    }
}
