//! A set as the value of its key: integers in ascending order, or any members in the order in which
//! they came.
//!
//! ```text
//! entry: length of the member | member
//! ```

use std::collections::{HashMap, HashSet};

use crate::apply::Decimal;

use super::head::{
    Corrupt, FLAG_INTEGERS, FLAG_LARGE, HEAD_BYTES, Head, LISTED_STRING_BYTES_MAX, MemberType,
};
use super::strings::{length_bytes, put_length, take_length};

/// Integers up to which Redis keeps a set as numbers, ...
const INTEGERS_MAX: usize = 512;
/// ... and members up to which it keeps one in a list.
const LISTED_MAX: usize = 128;
/// So many names at once are looked for one by one.
const FEW_NAMES_MAX: usize = 8;
/// Names of an edit whose members are not counted before.
pub(super) const MANY_NAMES: usize = usize::MAX;

/// How Redis would keep a set. The order of its members follows from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SetForm {
    /// Integers of 64 bits, in ascending order. A set without members begins so.
    #[default]
    Integers,
    /// In the order in which they came.
    Listed,
    /// The same. Redis keeps them in a table.
    Large,
}

impl SetForm {
    fn of(flags: u8) -> Result<Self, Corrupt> {
        match flags {
            0 => Ok(SetForm::Listed),
            FLAG_INTEGERS => Ok(SetForm::Integers),
            FLAG_LARGE => Ok(SetForm::Large),
            _ => Err(Corrupt),
        }
    }

    fn flags(self) -> u8 {
        match self {
            SetForm::Integers => FLAG_INTEGERS,
            SetForm::Listed => 0,
            SetForm::Large => FLAG_LARGE,
        }
    }
}

/// A set whose bytes were checked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SetView<'a> {
    form: SetForm,
    count: usize,
    entries: &'a [u8],
}

impl<'a> SetView<'a> {
    /// Reads the value of a key, whole.
    pub(super) fn read(value: &'a [u8]) -> Result<Self, Corrupt> {
        let (head, entries) = Head::read(value, MemberType::Set)?;
        let form = SetForm::of(head.flags)?;
        let (mut rest, mut last) = (entries, None);
        for _ in 0..head.count {
            let (member, behind) = split_entry(rest)?;
            if form == SetForm::Integers {
                let number = Decimal::read(member).ok_or(Corrupt)?;
                if last.is_some_and(|last| last >= number) {
                    return Err(Corrupt);
                }
                last = Some(number);
            }
            rest = behind;
        }
        match rest.is_empty() {
            true => Ok(SetView {
                form,
                count: head.count,
                entries,
            }),
            false => Err(Corrupt),
        }
    }

    /// How many members there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn form(&self) -> SetForm {
        self.form
    }

    /// The members in their order.
    pub(super) fn members(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.entries;
        std::iter::from_fn(move || {
            let (member, behind) = split_entry(rest).ok()?;
            rest = behind;
            Some(member)
        })
    }

    /// A look for so many members.
    pub(super) fn finder(&self, names: usize) -> MemberFinder<'a> {
        MemberFinder {
            view: *self,
            by_name: (names > FEW_NAMES_MAX).then(|| self.members().collect()),
        }
    }
}

/// Finds members: many of them by a table.
#[derive(Debug)]
pub(super) struct MemberFinder<'a> {
    view: SetView<'a>,
    by_name: Option<HashSet<&'a [u8]>>,
}

impl MemberFinder<'_> {
    /// Whether it is a member.
    pub(super) fn has(&self, member: &[u8]) -> bool {
        match &self.by_name {
            Some(by_name) => by_name.contains(member),
            None => self.view.members().any(|it| it == member),
        }
    }
}

/// The first member and the bytes behind it.
fn split_entry(bytes: &[u8]) -> Result<(&[u8], &[u8]), Corrupt> {
    let (len, rest) = take_length(bytes)?;
    rest.split_at_checked(len).ok_or(Corrupt)
}

fn entry_bytes(member: &[u8]) -> usize {
    length_bytes(member.len()) + member.len()
}

/// A set that is edited.
#[derive(Debug)]
pub(super) struct SetEdit<'a> {
    form: SetForm,
    /// Integers in no order, others in theirs. `None` are those that were taken away.
    members: Vec<Option<&'a [u8]>>,
    /// Where each member stands, if many are named.
    places: Option<HashMap<&'a [u8], usize>>,
    count: usize,
    bytes: usize,
}

impl<'a> SetEdit<'a> {
    /// A set of this form without members, in an edit that names so many.
    pub(super) fn empty(form: SetForm, names: usize) -> Self {
        SetEdit {
            form,
            members: Vec::new(),
            places: (names > FEW_NAMES_MAX).then(HashMap::new),
            count: 0,
            bytes: HEAD_BYTES,
        }
    }

    /// The set that a key has, in an edit that names so many members.
    pub(super) fn begin(view: SetView<'a>, names: usize) -> Self {
        let mut edit = SetEdit::empty(view.form, names);
        edit.put_all(view.members());
        edit.bytes = HEAD_BYTES + view.entries.len();
        edit
    }

    /// Puts members into a set that has none.
    fn put_all(&mut self, members: impl Iterator<Item = &'a [u8]>) {
        self.members = members.map(Some).collect();
        self.count = self.members.len();
        if let Some(places) = &mut self.places {
            let named = self.members.iter().flatten().enumerate();
            *places = named.map(|(place, member)| (*member, place)).collect();
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

    fn place_of(&self, member: &[u8]) -> Option<usize> {
        match &self.places {
            Some(places) => places.get(member).copied(),
            None => self.members.iter().position(|it| *it == Some(member)),
        }
    }

    /// So many members come at once, this one first: Redis chooses a form before it looks at them.
    pub(super) fn note_many(&mut self, first: &[u8], count: usize) {
        self.form = match self.form {
            _ if self.count == 0 => match () {
                () if Decimal::read(first).is_some() && count <= INTEGERS_MAX => SetForm::Integers,
                () if count <= LISTED_MAX => SetForm::Listed,
                () => SetForm::Large,
            },
            SetForm::Integers if count > INTEGERS_MAX => return self.leave_order(SetForm::Large),
            SetForm::Listed if count > LISTED_MAX => SetForm::Large,
            form => form,
        };
    }

    /// Adds a member; whether it is new.
    pub(super) fn add(&mut self, member: &'a [u8]) -> bool {
        if self.place_of(member).is_some() {
            return false;
        }
        let is_listed = self.count < LISTED_MAX && member.len() <= LISTED_STRING_BYTES_MAX;
        let listed = if is_listed {
            SetForm::Listed
        } else {
            SetForm::Large
        };
        match self.form {
            SetForm::Integers if Decimal::read(member).is_none() => self.leave_order(listed),
            SetForm::Integers if self.count >= INTEGERS_MAX => self.leave_order(SetForm::Large),
            SetForm::Listed => self.form = listed,
            SetForm::Integers | SetForm::Large => {}
        }
        if let Some(places) = &mut self.places {
            places.insert(member, self.members.len());
        }
        self.members.push(Some(member));
        self.count += 1;
        self.bytes += entry_bytes(member);
        true
    }

    /// Integers become a set of another form, in their order.
    fn leave_order(&mut self, form: SetForm) {
        let members = self.members();
        self.put_all(members.into_iter());
        self.form = form;
    }

    /// Takes a member away; whether it was there.
    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        let Some(place) = self.place_of(member) else {
            return false;
        };
        self.remove_at(place);
        true
    }

    /// Takes away the member that stood at this place when the edit began, once.
    pub(super) fn remove_at(&mut self, place: usize) {
        let member = self.members[place].take().expect("a place has a member");
        if let Some(places) = &mut self.places {
            places.remove(member);
        }
        self.bytes -= entry_bytes(member);
        self.count -= 1;
    }

    /// The members in their order.
    pub(super) fn members(&self) -> Vec<&'a [u8]> {
        let mut members: Vec<&[u8]> = self.members.iter().flatten().copied().collect();
        if self.form == SetForm::Integers {
            // All but few are in order.
            members.sort_by_cached_key(|it| Decimal::read(it));
        }
        members
    }

    /// The same members as a set of integers, if Redis would make them one at the end.
    pub(super) fn into_integers(self) -> Self {
        let mut members = self.members.iter().flatten();
        let is_one = self.count <= INTEGERS_MAX && members.all(|it| Decimal::read(it).is_some());
        match is_one {
            true => SetEdit {
                form: SetForm::Integers,
                ..self
            },
            false => self,
        }
    }

    /// The value of the key; `None` if no member is left.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        if self.count == 0 {
            return None;
        }
        let head = Head {
            flags: self.form.flags(),
            count: self.count,
        };
        let mut value = Vec::with_capacity(self.bytes);
        value.extend_from_slice(&head.encode(MemberType::Set));
        for member in self.members() {
            put_length(member.len(), &mut value);
            value.extend_from_slice(member);
        }
        Some(value)
    }
}

/// The form in which Redis begins a union or a difference that it shows.
pub(super) fn shown_form(views: &[SetView<'_>]) -> SetForm {
    match views.iter().all(|view| view.form() == SetForm::Integers) {
        true => SetForm::Integers,
        false => SetForm::Large,
    }
}

/// All members, as if they were added one by one to a set that begins in this form.
pub(super) fn union<'k>(views: &[SetView<'k>], begun: SetForm) -> SetEdit<'k> {
    let mut all = SetEdit::empty(begun, MANY_NAMES);
    let members = views.iter().flat_map(SetView::members);
    members.for_each(|member| _ = all.add(member));
    all
}

#[cfg(test)]
mod tests {
    use crate::resp::members::codec_tests::{Codec, number};

    use super::*;

    const CODEC: Codec = Codec {
        of: MemberType::Set,
        again: |value| {
            let edit = SetEdit::begin(SetView::read(value)?, 1);
            Ok(edit.encode().expect("a view has members"))
        },
    };

    fn value_of(members: &[&[u8]]) -> Vec<u8> {
        let mut edit = SetEdit::empty(SetForm::Integers, members.len());
        members.iter().for_each(|member| _ = edit.add(member));
        edit.encode().expect("members")
    }

    fn shown(value: &[u8]) -> (SetForm, Vec<&str>) {
        let view = SetView::read(value).expect("good");
        let members = view.members().map(|it| str::from_utf8(it).expect("text"));
        let members: Vec<&str> = members.collect();
        assert_eq!(members.len(), view.len());
        (view.form(), members)
    }

    #[test]
    fn edits_are_what_a_list_of_members_says() {
        let mut random = 1;
        for names in [1, 100] {
            let (mut model, mut value): (Vec<Vec<u8>>, Option<Vec<u8>>) = (Vec::new(), None);
            let mut is_of_integers = true;
            for round in 0..3_000 {
                let before = value.clone();
                let view = before.as_deref().map(|it| SetView::read(it).expect("good"));
                let view = view.unwrap_or_default();
                let mut edit = SetEdit::begin(view, names);
                // Integers alone, then any; and no member at the end.
                let member = match round % 1_000 {
                    ..500 => number(&mut random) % 60,
                    _ => number(&mut random) % 90,
                };
                let member = match member {
                    ..60 => (30 - i64::try_from(member).expect("few"))
                        .to_string()
                        .into(),
                    _ => vec![b'm'; member - 50],
                };
                let place = model.iter().position(|it| *it == member);
                assert_eq!(view.finder(names).has(&member), place.is_some());
                match number(&mut random) % 3 {
                    0 => {
                        assert_eq!(edit.remove(&member), place.is_some());
                        model.retain(|it| *it != member);
                    }
                    _ if round % 1_000 > 900 => {
                        model.iter().for_each(|it| assert!(edit.remove(it)));
                        model.clear();
                    }
                    _ => {
                        assert_eq!(edit.add(&member), place.is_none());
                        if place.is_none() {
                            is_of_integers &= Decimal::read(&member).is_some();
                            model.push(member.clone());
                        }
                    }
                }
                is_of_integers |= model.is_empty();
                if is_of_integers {
                    model.sort_by_key(|it| Decimal::read(it));
                }
                value = edit.encode();
                assert_eq!(edit.len(), model.len());
                assert_eq!(value.as_ref().map_or(HEAD_BYTES, Vec::len), edit.bytes());
                let view = value.as_deref().map(|it| SetView::read(it).expect("good"));
                let view = view.unwrap_or_default();
                let members: Vec<Vec<u8>> = view.members().map(<[u8]>::to_vec).collect();
                assert_eq!(members, model);
            }
        }
    }

    #[test]
    fn every_cut_is_refused_and_what_is_read_of_flipped_bits_is_written_as_it_was() {
        let long = [7; 300];
        CODEC.check_damage(&value_of(&[b"10", b"-7", b"9223372036854775807", b"0"]));
        CODEC.check_damage(&value_of(&[b"member", b"", b"12"]));
        CODEC.check_damage(&value_of(&[b"member", b"", &long]));
    }

    #[test]
    fn any_bytes_are_read_or_refused_and_what_is_read_is_written_as_it_was() {
        CODEC.check_any_bytes();
    }

    #[test]
    fn integers_out_of_order_twice_or_in_another_text_are_corrupt() {
        let good = value_of(&[b"9", b"-1", b"10"]);
        assert_eq!(shown(&good), (SetForm::Integers, vec!["-1", "9", "10"]));
        for entries in [
            &b"\x011\x011"[..],
            b"\x012\x011",
            b"\x012\x0202",
            b"\x012\x02+3",
            b"\x012\x01x",
            b"\x00\x011",
            b"\x02-0\x011",
            b"\x012\x149223372036854775808",
        ] {
            let value = [&[2, 0, FLAG_INTEGERS, 0, 2, 0, 0, 0], entries].concat();
            assert_eq!(SetView::read(&value).map(|it| it.len()), Err(Corrupt));
        }
        let mut both = good.clone();
        both[2] = FLAG_INTEGERS | FLAG_LARGE;
        assert_eq!(SetView::read(&both).map(|it| it.len()), Err(Corrupt));
    }

    #[test]
    fn a_set_changes_its_form_where_redis_does_and_never_back() {
        let numbers: Vec<String> = (0..600).map(|it| (599 - it).to_string()).collect();
        let form = |count: usize, others: &[&[u8]]| {
            let members = numbers[..count].iter().map(String::as_bytes);
            let members: Vec<&[u8]> = members.chain(others.iter().copied()).collect();
            SetView::read(&value_of(&members)).expect("good").form()
        };
        assert_eq!(form(512, &[]), SetForm::Integers);
        assert_eq!(form(513, &[]), SetForm::Large);
        assert_eq!(form(127, &[b"m"]), SetForm::Listed);
        assert_eq!(form(128, &[b"m"]), SetForm::Large);
        assert_eq!(form(0, &[&[b'm'; 64]]), SetForm::Listed);
        assert_eq!(form(0, &[&[b'm'; 65]]), SetForm::Large);
        assert_eq!(form(3, &[&[b'm'; 65]]), SetForm::Large);
        let mixed = value_of(&[b"3", b"1", b"m", b"2"]);
        assert_eq!(shown(&mixed), (SetForm::Listed, vec!["1", "3", "m", "2"]));
        let mut edit = SetEdit::begin(SetView::read(&mixed).expect("good"), 1);
        edit.remove(b"m");
        let listed = edit.encode().expect("three members");
        assert_eq!(shown(&listed), (SetForm::Listed, vec!["1", "3", "2"]));
        let integers = edit.into_integers().encode().expect("three members");
        assert_eq!(shown(&integers), (SetForm::Integers, vec!["1", "2", "3"]));
    }

    #[test]
    fn many_names_at_once_choose_the_form_before_they_are_looked_at() {
        let form = |view: SetView<'_>, first: &[u8], count| {
            let mut edit = SetEdit::begin(view, 1);
            edit.note_many(first, count);
            edit.form
        };
        let none = SetView::default();
        assert_eq!(form(none, b"1", 512), SetForm::Integers);
        assert_eq!(form(none, b"1", 513), SetForm::Large);
        assert_eq!(form(none, b"m", 128), SetForm::Listed);
        assert_eq!(form(none, b"m", 129), SetForm::Large);
        let (integers, listed) = (value_of(&[b"2", b"1"]), value_of(&[b"m"]));
        let [integers, listed] = [&integers, &listed].map(|it| SetView::read(it).expect("good"));
        assert_eq!(form(integers, b"m", 512), SetForm::Integers);
        assert_eq!(form(integers, b"1", 513), SetForm::Large);
        assert_eq!(form(listed, b"1", 128), SetForm::Listed);
        assert_eq!(form(listed, b"1", 129), SetForm::Large);
    }
}
