//! What commands of several sets do: their union, intersection and difference, and a member that
//! moves.

use std::collections::HashSet;

use crate::resp::reply::Replies;
use crate::resp::transaction_keys::TransactionKeys;

use super::set::{MANY_NAMES, MemberFinder, SetEdit, SetForm, SetView, shown_form, union};
use super::set_ask::{MemberMove, SetCombine};
use super::set_commands::{check_bytes, put, set_of};
use super::zset_commands::{Refused, integer};
use super::zset_several::{check_named, state_of, store};
use super::zsets_ask::{CombineResult, Operation};

impl MemberMove<'_> {
    pub(super) fn run(
        &self,
        keys: &mut TransactionKeys,
        replies: &mut Replies<'_>,
    ) -> Result<(), Refused> {
        let mut left = SetEdit::begin(set_of(state_of(keys, self.from))?, 1);
        let was_there = left.remove(self.member);
        if !was_there || self.from == self.to {
            replies.integer(was_there.into());
            return Ok(());
        }
        let mut arrived = SetEdit::begin(set_of(state_of(keys, self.to))?, 1);
        arrived.note_many(self.member, 1);
        let is_new = arrived.add(self.member);
        check_bytes(&arrived)?;
        let (left, arrived) = (left.encode(), arrived.encode());
        replies.integer(1);
        put(left, keys.find_mut(self.from).expect("it was read"));
        if is_new {
            put(arrived, keys.find_mut(self.to).expect("it was read"));
        }
        Ok(())
    }
}

impl SetCombine<'_> {
    pub(super) fn run(
        &self,
        keys: &mut TransactionKeys,
        replies: &mut Replies<'_>,
    ) -> Result<(), Refused> {
        check_named(self.keys, keys)?;
        let views = self.keys.all().map(|name| set_of(state_of(keys, name)));
        let views = views.collect::<Result<Vec<SetView<'_>>, Refused>>()?;
        let found = match self.operation {
            Operation::Union => union(&views, self.begun(&views)),
            Operation::Inter => inter(&views),
            Operation::Diff => diff(&views, self.begun(&views)),
        };
        match self.result {
            CombineResult::Answered => {
                let members = found.members();
                replies.set(members.len());
                members.iter().for_each(|member| replies.value(member));
            }
            CombineResult::Counted => {
                let most = if self.limit == 0 {
                    usize::MAX
                } else {
                    self.limit
                };
                replies.integer(integer(found.len().min(most)));
            }
            CombineResult::Stored(to) => {
                let found = match self.operation {
                    Operation::Inter => found.into_integers(),
                    Operation::Union | Operation::Diff => found,
                };
                check_bytes(&found)?;
                replies.integer(integer(found.len()));
                store(found.encode(), keys, to);
            }
        }
        Ok(())
    }

    /// The form in which Redis begins the union or difference: as integers to store it.
    fn begun(&self, views: &[SetView<'_>]) -> SetForm {
        match self.result {
            CombineResult::Stored(_) => SetForm::Integers,
            CombineResult::Answered | CombineResult::Counted => shown_form(views),
        }
    }
}

/// The members that all have, in the order of the first of the smallest sets.
fn inter<'k>(views: &[SetView<'k>]) -> SetEdit<'k> {
    let smallest = views.iter().enumerate().min_by_key(|(_, view)| view.len());
    let (place, smallest) = smallest.expect("a command names a key at least");
    let others = views.iter().enumerate().filter(|(at, _)| *at != place);
    let finders: Vec<MemberFinder<'_>> = match smallest.len() {
        0 => Vec::new(),
        names => others.map(|(_, view)| view.finder(names)).collect(),
    };
    let form = match smallest.form() {
        SetForm::Integers => SetForm::Integers,
        SetForm::Listed | SetForm::Large => SetForm::Listed,
    };
    let mut found = SetEdit::empty(form, smallest.len());
    let members = smallest.members();
    members
        .filter(|member| finders.iter().all(|finder| finder.has(member)))
        .for_each(|member| _ = found.add(member));
    found
}

/// The members of the first set that no other one has. Where Redis begins with all members of the
/// first and takes away those of the others, the form is that of all.
fn diff<'k>(views: &[SetView<'k>], begun: SetForm) -> SetEdit<'k> {
    let (first, others) = views.split_first().expect("a command names a key at least");
    let there = views.iter().filter(|view| view.len() > 0).count();
    let total: usize = views.iter().map(SetView::len).sum();
    let begins_with_all = there * first.len() / 2 > total;
    let others: HashSet<&[u8]> = others.iter().flat_map(SetView::members).collect();
    let mut found = SetEdit::empty(begun, MANY_NAMES);
    let members = first.members();
    members
        .filter(|member| begins_with_all || !others.contains(member))
        .for_each(|member| _ = found.add(member));
    if begins_with_all {
        others.iter().for_each(|member| _ = found.remove(member));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::resp::members::codec_tests::number;

    use super::*;

    type Model = BTreeSet<Vec<u8>>;

    fn value_of(model: &Model) -> Option<Vec<u8>> {
        let mut edit = SetEdit::empty(SetForm::Integers, model.len());
        model.iter().for_each(|member| _ = edit.add(member));
        edit.encode()
    }

    fn shown(edit: &SetEdit<'_>) -> Model {
        let members = edit.members();
        let model: Model = members.iter().map(|it| it.to_vec()).collect();
        assert_eq!((model.len(), members.len()), (edit.len(), edit.len()));
        let value = edit.encode();
        let view = value.as_deref().map(|it| SetView::read(it).expect("good"));
        assert_eq!(
            view.unwrap_or_default().members().collect::<Vec<_>>(),
            members
        );
        model
    }

    #[test]
    fn unions_and_their_like_are_what_sets_say() {
        let mut random = 7;
        for round in 0..600 {
            let count = 1 + number(&mut random) % 5;
            let most = [3, 25, 200][round % 3];
            let models: Vec<Model> = (0..count)
                .map(|_| {
                    let is_of_integers = number(&mut random).is_multiple_of(2);
                    let len = number(&mut random) % most;
                    let member = |it: usize| match is_of_integers || !it.is_multiple_of(3) {
                        true => it.to_string().into_bytes(),
                        false => vec![b'm'; it % 70],
                    };
                    (0..len)
                        .map(|_| member(number(&mut random) % (2 * most)))
                        .collect()
                })
                .collect();
            let values: Vec<Option<Vec<u8>>> = models.iter().map(value_of).collect();
            let views: Vec<SetView<'_>> = values
                .iter()
                .map(|it| {
                    it.as_deref()
                        .map_or(SetView::default(), |it| SetView::read(it).expect("good"))
                })
                .collect();
            let all: Model = models.iter().flatten().cloned().collect();
            let begun = [SetForm::Integers, shown_form(&views)][round % 2];
            assert_eq!(shown(&union(&views, begun)), all);
            let is_in_all = |it: &&Vec<u8>| models.iter().all(|model| model.contains(*it));
            let inter_of: Model = all.iter().filter(is_in_all).cloned().collect();
            assert_eq!(shown(&inter(&views)), inter_of);
            assert_eq!(shown(&inter(&views).into_integers()), inter_of);
            let is_first = |it: &&Vec<u8>| !models[1..].iter().any(|model| model.contains(*it));
            let diff_of: Model = models[0].iter().filter(is_first).cloned().collect();
            assert_eq!(shown(&diff(&views, begun)), diff_of);
        }
    }

    #[test]
    fn an_intersection_is_in_the_order_of_the_first_of_the_smallest() {
        let value = |members: &[&'static [u8]]| {
            let mut edit = SetEdit::empty(SetForm::Listed, members.len());
            members.iter().for_each(|member| _ = edit.add(member));
            edit.encode().expect("members")
        };
        let values = [
            value(&[b"x", b"b", b"a"]),
            value(&[b"b", b"a"]),
            value(&[b"a", b"b"]),
        ];
        let views: Vec<SetView<'_>> = values
            .iter()
            .map(|it| SetView::read(it).expect("good"))
            .collect();
        assert_eq!(inter(&views).members(), [b"b", b"a"]);
    }
}
