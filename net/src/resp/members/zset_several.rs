//! What commands of several sorted sets do: their union, intersection and difference, the
//! first of them that has members, and a range that another key gets.

use std::collections::{HashMap, HashSet};

use crate::resp::key_state::KeyState;
use crate::resp::reply::Replies;
use crate::resp::transaction_keys::TransactionKeys;

use super::head::{CORRUPT, Head, MemberType};
use super::key_type::has_other;
use super::score::read_score;
use super::set_commands::set_of;
use super::zset::{Scored, ZsetEdit, ZsetView};
use super::zset_commands::{
    PopReply, Refused, answer_members, check_bytes, integer, pop, view_of, write,
};
use super::zset_range::Side;
use super::zsets_ask::{
    Aggregate, Combine, CombineOptions, CombineResult, CountedKeys, Operation, ZsetsAsk,
};

/// Bytes of the sets and sorted sets that one command names, each as often as it is named, at most.
/// So a command looks at some 100,000 members.
const NAMED_BYTES_MAX: usize = 1 << 20;

impl ZsetsAsk<'_> {
    /// Whether a key that it reads has a value of another type. Those that pop read one alone.
    pub(super) fn is_of_other_type(&self, keys: &TransactionKeys) -> bool {
        let is_other = |name| has_other(state_of(keys, name), MemberType::Zset);
        match self {
            ZsetsAsk::Combine(ask) => {
                let is_set = |name| !has_other(state_of(keys, name), MemberType::Set);
                ask.keys.all().any(|name| is_other(name) && !is_set(name))
            }
            ZsetsAsk::Pop(names, ..) | ZsetsAsk::PopOne(names, _) => {
                first_there(*names, keys).is_some_and(is_other)
            }
            ZsetsAsk::Store { from, .. } => is_other(from),
        }
    }

    pub(super) fn run(
        &self,
        keys: &mut TransactionKeys,
        replies: &mut Replies<'_>,
    ) -> Result<(), Refused> {
        match self {
            ZsetsAsk::Combine(ask) => ask.run(keys, replies),
            ZsetsAsk::Pop(names, side, count) => {
                pop_first(*names, keys, (*side, *count), PopReply::Nested, replies)
            }
            ZsetsAsk::PopOne(names, side) => {
                pop_first(*names, keys, (*side, 1), PopReply::BehindKey, replies)
            }
            ZsetsAsk::Store { to, from, ask } => {
                let view = view_of(state_of(keys, from))?;
                let found: Vec<Scored<'_>> = ask.members(view.members()).collect();
                let hint = if ask.is_by_rank() { found.len() } else { 0 };
                let stored = stored(&found, (hint, 0))?;
                replies.integer(integer(found.len()));
                store(stored, keys, to);
                Ok(())
            }
        }
    }
}

pub(super) fn state_of<'k>(keys: &'k TransactionKeys, name: &[u8]) -> &'k KeyState {
    keys.find(name).expect("it was read")
}

/// The sorted set of a key, or its set with the score 1 for each member.
fn any_view_of(state: &KeyState) -> Result<ZsetView<'_>, Refused> {
    match state.members().and_then(MemberType::of) {
        Some(MemberType::Set) => Ok(ZsetView::of_set(set_of(state)?)),
        _ => view_of(state),
    }
}

/// Refuses a command that names more of sets and sorted sets than one may go through.
pub(super) fn check_named(names: CountedKeys<'_>, keys: &TransactionKeys) -> Result<(), Refused> {
    let bytes: usize = names
        .all()
        .map(|name| named_bytes(state_of(keys, name)))
        .sum();
    match bytes <= NAMED_BYTES_MAX {
        true => Ok(()),
        false => Err(format!(
            "ERR nothing was changed: the sets that are named have {bytes} bytes, and \
             {NAMED_BYTES_MAX} is the limit"
        )
        .into_bytes()
        .into()),
    }
}

/// Bytes of a set or sorted set. A member of a set counts as one with a score.
fn named_bytes(state: &KeyState) -> usize {
    let value = state.members().unwrap_or_default();
    let members = match Head::read(value, MemberType::Set) {
        Ok((head, _)) => head.count,
        Err(_) => 0,
    };
    value.len() + members * size_of::<f64>()
}

/// The first key that has a value.
fn first_there<'a>(names: CountedKeys<'a>, keys: &TransactionKeys) -> Option<&'a [u8]> {
    names.all().find(|name| state_of(keys, name).is_there())
}

/// Pops from the first key that has a value.
fn pop_first(
    names: CountedKeys<'_>,
    keys: &mut TransactionKeys,
    (side, count): (Side, usize),
    form: PopReply,
    replies: &mut Replies<'_>,
) -> Result<(), Refused> {
    let Some(name) = first_there(names, keys) else {
        replies.null_array();
        return Ok(());
    };
    let state = keys.find_mut(name).expect("it was read");
    let before = state.members().unwrap_or_default().to_vec();
    let view = ZsetView::read(&before).map_err(|_| CORRUPT)?;
    replies.array(match form {
        PopReply::BehindKey => 3,
        PopReply::Flat | PopReply::Nested => 2,
    });
    replies.value(name);
    write(&pop(&view, side, count, form, replies), state);
    Ok(())
}

/// The value of members that nobody has yet, if Redis expects so many of them, and one so long.
fn stored(
    members: &[Scored<'_>],
    (count, longest): (usize, usize),
) -> Result<Option<Vec<u8>>, Refused> {
    let mut edit = ZsetEdit::begin(&ZsetView::default(), members.len());
    edit.note_many(count, longest);
    for it in members {
        edit.set(it.member, it.score);
        check_bytes(&edit)?;
    }
    Ok(edit.encode())
}

/// Gives a key this value in the place of any other one; without one it ends.
pub(super) fn store(value: Option<Vec<u8>>, keys: &mut TransactionKeys, to: &[u8]) {
    let state = keys.find_mut(to).expect("it was read");
    state.delete();
    if let Some(value) = value {
        state.set_members(value);
    }
}

impl Combine<'_> {
    fn run(&self, keys: &mut TransactionKeys, replies: &mut Replies<'_>) -> Result<(), Refused> {
        let options = self.options().map_err(|fault| {
            let mut text = Vec::new();
            fault.write(self.keys.args, &mut text);
            text
        })?;
        check_named(self.keys, keys)?;
        let sources = self.sources(options, keys)?;
        let found = match self.operation {
            Operation::Union => union(sources, options.aggregate),
            Operation::Inter => inter(sources, options.aggregate),
            Operation::Diff => diff(&sources),
        };
        match self.result {
            CombineResult::Answered => answer_members(&found, options.has_scores, replies),
            CombineResult::Counted => {
                let most = if options.limit == 0 {
                    usize::MAX
                } else {
                    options.limit
                };
                replies.integer(integer(found.len().min(most)));
            }
            CombineResult::Stored(to) => {
                let longest = found.iter().map(|it| it.member.len()).max().unwrap_or(0);
                let value = stored(&found, (found.len(), longest))?;
                replies.integer(integer(found.len()));
                store(value, keys, to);
            }
        }
        Ok(())
    }

    /// The sorted sets of the keys. Of those without a member at most one is there, and the first
    /// one always.
    fn sources<'k>(
        &self,
        options: CombineOptions,
        keys: &'k TransactionKeys,
    ) -> Result<Vec<Source<'k>>, Refused> {
        let mut sources: Vec<Source<'k>> = Vec::new();
        let mut has_empty = false;
        for (number, name) in self.keys.all().enumerate() {
            let view = any_view_of(state_of(keys, name))?;
            let is_empty = view.members().is_empty();
            if is_empty && has_empty && number > 0 {
                continue;
            }
            has_empty |= is_empty;
            let weight = options
                .weights
                .map(|first| self.keys.args.get(first + number));
            let weight = weight.map(|text| read_score(text).expect("it was checked"));
            sources.push(Source {
                view,
                weight: weight.unwrap_or(1.0),
            });
        }
        Ok(sources)
    }
}

/// A sorted set and what its scores are multiplied by.
struct Source<'k> {
    view: ZsetView<'k>,
    weight: f64,
}

impl<'k> Source<'k> {
    /// Its members with the scores that they have as the first ones.
    fn weighted(&self) -> impl Iterator<Item = (&'k [u8], f64)> {
        let weight = self.weight;
        let members = self.view.members().iter();
        members.map(move |it| (it.member, number_or_zero(it.score * weight)))
    }
}

impl Aggregate {
    fn join(self, one: f64, other: f64) -> f64 {
        match self {
            Aggregate::Sum => number_or_zero(one + other),
            Aggregate::Min if other < one => other,
            Aggregate::Max if other > one => other,
            Aggregate::Min | Aggregate::Max => one,
        }
    }
}

/// Zero times infinite is nothing, and so is the sum of both infinite numbers.
fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// The smallest comes first, as in Redis: the order in which scores are added is the same.
fn in_order_of_size(mut sources: Vec<Source<'_>>) -> Vec<Source<'_>> {
    sources.sort_by_key(|it| it.view.members().len());
    sources
}

fn union(sources: Vec<Source<'_>>, aggregate: Aggregate) -> Vec<Scored<'_>> {
    let mut scores: HashMap<&[u8], f64> = HashMap::new();
    for source in in_order_of_size(sources) {
        for (member, score) in source.weighted() {
            let before = scores.entry(member);
            before
                .and_modify(|before| *before = aggregate.join(*before, score))
                .or_insert(score);
        }
    }
    in_order(scores)
}

fn inter(sources: Vec<Source<'_>>, aggregate: Aggregate) -> Vec<Scored<'_>> {
    let sources = in_order_of_size(sources);
    let Some((smallest, others)) = sources.split_first() else {
        return Vec::new();
    };
    let mut scores: HashMap<&[u8], f64> = smallest.weighted().collect();
    for other in others {
        let finder = other.view.finder(scores.len());
        scores.retain(|member, score| {
            let found = finder.get(member);
            if let Some(found) = found {
                *score = aggregate.join(*score, found * other.weight);
            }
            found.is_some()
        });
    }
    in_order(scores)
}

fn diff<'k>(sources: &[Source<'k>]) -> Vec<Scored<'k>> {
    let Some((first, others)) = sources.split_first() else {
        return Vec::new();
    };
    let others = others.iter().flat_map(|it| it.view.members());
    let others: HashSet<&[u8]> = others.map(|it| it.member).collect();
    let members = first.view.members().iter().copied();
    members.filter(|it| !others.contains(it.member)).collect()
}

fn in_order(scores: HashMap<&[u8], f64>) -> Vec<Scored<'_>> {
    let members = scores.into_iter();
    let mut members: Vec<Scored<'_>> = members
        .map(|(member, score)| Scored { score, member })
        .collect();
    members.sort_unstable_by(Scored::order);
    members
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::resp::members::codec_tests::number;

    use super::*;

    type Model = BTreeMap<Vec<u8>, f64>;

    fn value_of(model: &Model) -> Option<Vec<u8>> {
        let mut edit = ZsetEdit::begin(&ZsetView::default(), model.len());
        model
            .iter()
            .for_each(|(member, score)| edit.set(member, *score));
        edit.encode()
    }

    fn shown(found: &[Scored<'_>]) -> Model {
        assert!(found.is_sorted_by(|one, other| one.order(other).is_lt()));
        let pairs = found.iter().map(|it| (it.member.to_vec(), it.score));
        pairs.collect()
    }

    #[test]
    fn unions_and_their_like_are_what_maps_say() {
        let mut random = 7;
        for _ in 0..500 {
            let count = 1 + number(&mut random) % 4;
            let models: Vec<Model> = (0..count)
                .map(|_| {
                    let members = number(&mut random) % 25;
                    let member = |at: usize| vec![b'a', u8::try_from(at).expect("few")];
                    (0..members)
                        .map(|_| (member(number(&mut random) % 30), 0.25 * members as f64))
                        .collect()
                })
                .collect();
            let weights: Vec<f64> = (0..count).map(|at| [1.0, -2.0, 0.5][at % 3]).collect();
            let values: Vec<Option<Vec<u8>>> = models.iter().map(value_of).collect();
            let sources = || -> Vec<Source<'_>> {
                let sources = values.iter().zip(&weights);
                sources
                    .map(|(value, &weight)| Source {
                        view: value
                            .as_deref()
                            .map_or_else(ZsetView::default, |it| ZsetView::read(it).expect("good")),
                        weight,
                    })
                    .collect()
            };
            let weighted = |at: usize, member: &Vec<u8>| {
                models[at].get(member).map(|score| score * weights[at])
            };
            let all: Model = models
                .iter()
                .flatten()
                .map(|(it, _)| (it.clone(), 0.0))
                .collect();
            for aggregate in [Aggregate::Sum, Aggregate::Min, Aggregate::Max] {
                let joined = |member: &Vec<u8>| {
                    let scores = (0..count).filter_map(|at| weighted(at, member));
                    scores.reduce(|one, other| match aggregate {
                        Aggregate::Sum => one + other,
                        Aggregate::Min => one.min(other),
                        Aggregate::Max => one.max(other),
                    })
                };
                let union_of = all
                    .keys()
                    .map(|it| (it.clone(), joined(it).expect("one has it")));
                let union_of: Model = union_of.collect();
                assert_eq!(shown(&union(sources(), aggregate)), union_of);
                let is_in_all = |it: &Vec<u8>| models.iter().all(|model| model.contains_key(it));
                let inter_of: Model = union_of.into_iter().filter(|it| is_in_all(&it.0)).collect();
                assert_eq!(shown(&inter(sources(), aggregate)), inter_of);
            }
            let is_first = |it: &Vec<u8>| !models[1..].iter().any(|model| model.contains_key(it));
            let first = models[0].clone().into_iter();
            let diff_of: Model = first.filter(|(it, _)| is_first(it)).collect();
            assert_eq!(shown(&diff(&sources())), diff_of);
        }
    }

    #[test]
    fn no_sum_of_infinite_scores_is_no_number() {
        let infinite = [(b"a".to_vec(), f64::INFINITY)].into_iter().collect();
        let value = value_of(&infinite).expect("a member");
        let source = |weight| Source {
            view: ZsetView::read(&value).expect("good"),
            weight,
        };
        let sum = |weights: [f64; 2]| {
            let found = union(weights.map(source).into(), Aggregate::Sum);
            assert_eq!(found, inter(weights.map(source).into(), Aggregate::Sum));
            found[0].score
        };
        assert_eq!(sum([1.0, -1.0]), 0.0);
        assert_eq!(sum([0.0, 0.0]), 0.0);
        assert_eq!(sum([1.0, 1.0]), f64::INFINITY);
    }
}
