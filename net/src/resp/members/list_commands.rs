//! What the commands of lists do to the values of their keys.
//!
//! Taking, putting and moving elements know no replies: those that wait for elements use them, too.

use std::ops::Range;

use crate::resp::fault::NOT_AN_INTEGER_TEXT;
use crate::resp::key_state::KeyState;
use crate::resp::reply::Replies;
use crate::resp::transaction_keys::TransactionKeys;

use super::head::{CORRUPT, MemberType};
use super::key_type::has_other;
use super::list::{ListEdit, ListEnd, ListView, Taken, entry_bytes};
use super::list_ask::{
    ListAsk, ListInsert, ListMove, ListPop, ListPush, OneListAsk, PositionForm, end_of,
};
use super::zset_commands::{Refused, integer};

impl ListAsk<'_> {
    /// Whether a key that it reads has a value of another type.
    pub(in crate::resp) fn is_of_other_type(&self, keys: &TransactionKeys) -> bool {
        match self {
            ListAsk::One(key, _) => is_of_other_type(state_of(keys, key)),
            ListAsk::Move(ask) => ask.is_of_other_type(keys),
            ListAsk::PopFirst(ask) | ListAsk::PopOne(ask) => ask.is_of_other_type(keys),
        }
    }

    /// Runs the command on keys that were read, of no other type.
    pub(in crate::resp) fn run(&self, keys: &mut TransactionKeys, replies: &mut Replies<'_>) {
        let done = match self {
            ListAsk::One(key, ask) => ask.run(state_of_mut(keys, key), replies),
            ListAsk::Move(ask) => ask.run(keys).map(|moved| match moved {
                Some(element) => replies.value(&element),
                None => replies.null(),
            }),
            ListAsk::PopFirst(ask) => ask.run(keys).map(|popped| match popped {
                Some((key, taken)) => {
                    replies.array(2);
                    replies.value(key);
                    answer_all(&taken.elements(), replies);
                }
                None => replies.null_array(),
            }),
            ListAsk::PopOne(ask) => ask.run(keys).map(|popped| match popped {
                Some((key, taken)) => {
                    replies.array(2);
                    replies.value(key);
                    taken.elements().iter().for_each(|it| replies.value(it));
                }
                None => replies.null_array(),
            }),
        };
        if let Err(text) = done {
            replies.error(&text);
        }
    }
}

impl ListMove<'_> {
    /// Whether one of the keys has a value of another type. Redis asks for that of the second one
    /// only where there is an element.
    pub(in crate::resp) fn is_of_other_type(&self, keys: &TransactionKeys) -> bool {
        let (from, to) = (state_of(keys, self.from), state_of(keys, self.to));
        is_of_other_type(from) || from.is_there() && is_of_other_type(to)
    }

    /// Moves an element between keys that were read, of no other type; `None` if there is none.
    ///
    /// # Errors
    /// Why nothing was moved: an error of RESP.
    pub(in crate::resp) fn run(
        &self,
        keys: &mut TransactionKeys,
    ) -> Result<Option<Vec<u8>>, Refused> {
        let from = state_of(keys, self.from);
        if !from.is_there() {
            return Ok(None);
        }
        let mut source = edit_of(from)?;
        let taken = source.take(self.taken, 1);
        let [element] = taken.elements()[..] else {
            return Err(CORRUPT.into());
        };
        if self.from == self.to {
            put(&mut source, self.put, [element].into_iter())?;
            source.note_removal();
            write(source, state_of_mut(keys, self.from));
            return Ok(Some(element.to_vec()));
        }
        let mut goal = edit_of(state_of(keys, self.to))?;
        put(&mut goal, self.put, [element].into_iter())?;
        source.note_removal();
        write(source, state_of_mut(keys, self.from));
        write(goal, state_of_mut(keys, self.to));
        Ok(Some(element.to_vec()))
    }
}

impl<'a> ListPop<'a> {
    /// Whether the key whose elements are taken has a value of another type. Redis does not ask for
    /// the types of those behind it.
    pub(in crate::resp) fn is_of_other_type(&self, keys: &TransactionKeys) -> bool {
        let first = self.first_there(keys);
        first.is_some_and(|name| is_of_other_type(state_of(keys, name)))
    }

    /// Takes the elements from keys that were read, the first of no other type; the key that had
    /// them. `None` if no key has any.
    ///
    /// # Errors
    /// Why nothing was taken: an error of RESP.
    pub(in crate::resp) fn run(
        &self,
        keys: &mut TransactionKeys,
    ) -> Result<Option<(&'a [u8], Taken)>, Refused> {
        let Some(name) = self.first_there(keys) else {
            return Ok(None);
        };
        let taken = pop(state_of_mut(keys, name), self.end, self.count)?;
        Ok(Some((name, taken)))
    }

    /// The first key that has a value.
    fn first_there(&self, keys: &TransactionKeys) -> Option<&'a [u8]> {
        let mut names = self.keys.all();
        names.find(|name| state_of(keys, name).is_there())
    }
}

/// Takes elements from an end of the list of a key, so many at most.
///
/// # Errors
/// The list is damaged: an error of RESP.
pub(in crate::resp) fn pop(
    state: &mut KeyState,
    end: ListEnd,
    count: usize,
) -> Result<Taken, Refused> {
    let mut edit = edit_of(state)?;
    let taken = edit.take(end, count);
    edit.note_removal();
    write(edit, state);
    Ok(taken)
}

impl OneListAsk<'_> {
    fn run(self, state: &mut KeyState, replies: &mut Replies<'_>) -> Result<(), Refused> {
        match self {
            OneListAsk::Push(ask) => ask.run(state, replies),
            OneListAsk::Pop(end, count) => run_pop(state, (end, count), replies),
            OneListAsk::Set(place, element) => set(state, (place, element), replies),
            OneListAsk::Insert(ask) => ask.run(state, replies),
            OneListAsk::Remove(count, element) => {
                let mut edit = edit_of(state)?;
                let most = match count {
                    0 => usize::MAX,
                    count => usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX),
                };
                let removed = edit.remove(element, end_of(count), most);
                if removed > 0 {
                    edit.note_removal();
                    write(edit, state);
                }
                replies.integer(integer(removed));
                Ok(())
            }
            OneListAsk::Trim(start, end) => {
                let mut edit = edit_of(state)?;
                let kept = places(start, end, edit.len());
                if kept.len() < edit.len() {
                    edit.keep(&kept);
                    edit.note_removal();
                    write(edit, state);
                }
                replies.simple("OK");
                Ok(())
            }
            reading => reading.answer(state, replies),
        }
    }

    /// Runs a command that only reads.
    fn answer(self, state: &KeyState, replies: &mut Replies<'_>) -> Result<(), Refused> {
        let view = state.members().map(ListView::read).transpose();
        let view = view.map_err(|_| CORRUPT)?;
        let list = view.unwrap_or_default();
        match self {
            OneListAsk::Len => replies.integer(integer(list.len())),
            OneListAsk::Range(start, end) => {
                let places = places(start, end, list.len());
                replies.array(places.len());
                let elements = list.elements().skip(places.start).take(places.len());
                elements.for_each(|element| replies.value(element));
            }
            OneListAsk::Index(_) if view.is_none() => replies.null(),
            OneListAsk::Index(place) => {
                let place = place_of(place, list.len())?;
                match place.and_then(|place| list.elements().nth(place)) {
                    Some(element) => replies.value(element),
                    None => replies.null(),
                }
            }
            OneListAsk::Position(element, form) => {
                let found = form.places_of(element, &list);
                match (form.count, found.first()) {
                    (Some(_), _) => {
                        replies.array(found.len());
                        found.iter().for_each(|at| replies.integer(integer(*at)));
                    }
                    (None, Some(at)) => replies.integer(integer(*at)),
                    (None, None) => replies.null(),
                }
            }
            _ => unreachable!("`run` does the others"),
        }
        Ok(())
    }
}

impl ListPush<'_> {
    fn run(&self, state: &mut KeyState, replies: &mut Replies<'_>) -> Result<(), Refused> {
        if self.only_there && !state.is_there() {
            replies.integer(0);
            return Ok(());
        }
        let mut edit = edit_of(state)?;
        put(&mut edit, self.end, self.elements())?;
        replies.integer(integer(edit.len()));
        write(edit, state);
        Ok(())
    }
}

impl ListInsert<'_> {
    fn run(&self, state: &mut KeyState, replies: &mut Replies<'_>) -> Result<(), Refused> {
        if !state.is_there() {
            replies.integer(0);
            return Ok(());
        }
        let mut edit = edit_of(state)?;
        let place = edit.elements().position(|it| it == self.pivot);
        let Some(place) = place else {
            replies.integer(-1);
            return Ok(());
        };
        grow(&mut edit, std::iter::once(self.element))?;
        edit.insert(place + usize::from(self.is_behind), self.element);
        replies.integer(integer(edit.len()));
        write(edit, state);
        Ok(())
    }
}

impl PositionForm {
    /// The places of the elements that are equal to this one, in the order in which they are found.
    fn places_of(self, element: &[u8], list: &ListView<'_>) -> Vec<usize> {
        let compared = match self.compared_max {
            0 => list.len(),
            most => most.min(list.len()),
        };
        // From the right only what is compared is passed on.
        let passed = match self.from {
            ListEnd::Left => 0,
            ListEnd::Right => list.len() - compared,
        };
        let elements = list.elements().enumerate().skip(passed).take(compared);
        let equal = elements.filter(|(_, it)| *it == element).map(|(at, _)| at);
        let first = usize::try_from(self.first - 1).unwrap_or(usize::MAX);
        let most = match self.count {
            None => 1,
            Some(0) => usize::MAX,
            Some(count) => count,
        };
        match self.from {
            ListEnd::Left => equal.skip(first).take(most).collect(),
            ListEnd::Right => {
                let equal: Vec<usize> = equal.collect();
                equal.into_iter().rev().skip(first).take(most).collect()
            }
        }
    }
}

fn run_pop(
    state: &mut KeyState,
    (end, count): (ListEnd, Option<usize>),
    replies: &mut Replies<'_>,
) -> Result<(), Refused> {
    match (state.is_there(), count) {
        (false, None) => replies.null(),
        (false, Some(_)) => replies.null_array(),
        (true, Some(0)) => replies.array(0),
        (true, count) => {
            let taken = pop(state, end, count.unwrap_or(1))?;
            let elements = taken.elements();
            match (count, elements.first()) {
                (None, Some(element)) => replies.value(element),
                _ => answer_all(&elements, replies),
            }
        }
    }
    Ok(())
}

/// LSET.
fn set(
    state: &mut KeyState,
    (place, element): (Option<i64>, &[u8]),
    replies: &mut Replies<'_>,
) -> Result<(), Refused> {
    if !state.is_there() {
        return Err(b"ERR no such key"[..].into());
    }
    let mut edit = edit_of(state)?;
    let Some(place) = place_of(place, edit.len())? else {
        return Err(b"ERR index out of range"[..].into());
    };
    edit.note_growth(element.len());
    edit.set(place, element);
    MemberType::List.check_bytes(edit.bytes(), edit.len())?;
    edit.note_removal();
    write(edit, state);
    replies.simple("OK");
    Ok(())
}

/// Puts elements at an end of a list.
fn put<'e>(
    edit: &mut ListEdit,
    end: ListEnd,
    elements: impl DoubleEndedIterator<Item = &'e [u8]> + Clone,
) -> Result<(), Refused> {
    grow(edit, elements.clone())?;
    edit.push(end, elements);
    Ok(())
}

/// Notes elements that are to come, if the list may have them.
fn grow<'e>(
    edit: &mut ListEdit,
    elements: impl Iterator<Item = &'e [u8]> + Clone,
) -> Result<(), Refused> {
    let bytes: usize = elements.clone().map(entry_bytes).sum();
    let count = edit.len() + elements.clone().count();
    MemberType::List.check_bytes(edit.bytes() + bytes, count)?;
    edit.note_growth(elements.map(<[u8]>::len).sum());
    Ok(())
}

fn answer_all(elements: &[&[u8]], replies: &mut Replies<'_>) {
    replies.array(elements.len());
    elements.iter().for_each(|element| replies.value(element));
}

/// The places between two ends, which both count; negative ones are counted from the right.
fn places(start: i64, end: i64, len: usize) -> Range<usize> {
    let whole = integer(len);
    let absolute = |at: i64| if at < 0 { whole.saturating_add(at) } else { at };
    let start = absolute(start).max(0);
    let end = absolute(end).min(whole - 1);
    match (usize::try_from(start), usize::try_from(end)) {
        (Ok(start), Ok(end)) if start <= end => start..end + 1,
        _ => 0..0,
    }
}

/// A place, if the list has it; negative ones are counted from the right.
fn place_of(given: Option<i64>, len: usize) -> Result<Option<usize>, Refused> {
    let given = given.ok_or(NOT_AN_INTEGER_TEXT.as_bytes())?;
    Ok(places(given, given, len).next())
}

fn state_of<'k>(keys: &'k TransactionKeys, name: &[u8]) -> &'k KeyState {
    keys.find(name).expect("it was read")
}

fn state_of_mut<'k>(keys: &'k mut TransactionKeys, name: &[u8]) -> &'k mut KeyState {
    keys.find_mut(name).expect("it was read")
}

fn is_of_other_type(state: &KeyState) -> bool {
    has_other(state, MemberType::List)
}

/// The list of a key whose type was checked; without one it has no element.
fn edit_of(state: &KeyState) -> Result<ListEdit, Refused> {
    ListEdit::begin(state.members()).map_err(|_| CORRUPT.into())
}

/// Gives the key what an edit has made.
fn write(edit: ListEdit, state: &mut KeyState) {
    match edit.encode() {
        Some(value) => state.set_members(value),
        None => _ = state.delete(),
    }
}

#[cfg(test)]
mod tests {
    use crate::resp::key_state::{Expires, ReadKey};
    use crate::resp::members::head::MEMBERS_BYTES_MAX;
    use crate::resp::parser::KeptArguments;
    use crate::resp::reply::Protocol;
    use crate::resp::table;
    use crate::version::Version;

    use super::*;

    /// A command of each kind on the keys `l` and `m`.
    const COMMANDS: [&str; 19] = [
        "LPUSH l a",
        "RPUSHX l a b",
        "LPOP l",
        "RPOP l 2",
        "LLEN l",
        "LRANGE l 0 -1",
        "LINDEX l -1",
        "LSET l 0 a",
        "LINSERT l BEFORE b a",
        "LINSERT l AFTER none a",
        "LREM l 0 b",
        "LREM l -1 b",
        "LTRIM l 1 1",
        "LPOS l b COUNT 0",
        "LPOS l b RANK -1",
        "LMOVE l m LEFT RIGHT",
        "LMOVE m l LEFT LEFT",
        "LMOVE l l RIGHT LEFT",
        "LMPOP 2 none l RIGHT COUNT 2",
    ];

    fn keys_with(values: &[(&[u8], &[u8])]) -> TransactionKeys {
        let mut keys = TransactionKeys::default();
        keys.add(b"none");
        for (name, value) in values {
            keys.add(name);
            let read = ReadKey {
                version: Version {
                    epoch: 1,
                    sequence: 1,
                },
                value,
                has_members: true,
                expires: Expires::Never,
                is_armed: false,
            };
            keys.find_mut(name).expect("it was added").learn(Some(read));
        }
        keys
    }

    fn run(line: &str, keys: &mut TransactionKeys) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut kept = KeptArguments::default();
        kept.fill(&words);
        let command = table::find(words[0]).expect("a command");
        let ask = ListAsk::read(command, kept.view()).expect("good");
        let ask = ask.expect("a command of lists");
        let mut out = Vec::new();
        ask.run(keys, &mut Replies::new(&mut out, Protocol::Resp2));
        out.escape_ascii().to_string()
    }

    fn list(elements: &[&[u8]]) -> Vec<u8> {
        let mut edit = ListEdit::begin(None).expect("none");
        edit.push(ListEnd::Right, elements.iter().copied());
        edit.encode().expect("elements")
    }

    #[test]
    fn a_damaged_list_is_named_by_every_command_and_stays_as_it_is() {
        let good = list(&[b"a", b"b", &[7; 300], b"b"]);
        let other = list(&[b"m"]);
        let cuts = (0..good.len()).map(|len| good[..len].to_vec());
        let flips = (0..good.len() * 8).map(|bit| {
            let mut flipped = good.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            flipped
        });
        let mut damaged = 0;
        for value in cuts.chain(flips) {
            let is_good = ListView::read(&value).is_ok();
            damaged += usize::from(!is_good);
            for line in COMMANDS {
                let before = keys_with(&[(b"l", &value), (b"m", &other)]);
                let mut keys = before.clone();
                let reply = run(line, &mut keys);
                assert_eq!(reply.starts_with("-ERR CORRUPT"), !is_good, "{line}");
                if !is_good {
                    assert_eq!(keys[..], before[..], "{line}");
                }
            }
        }
        assert!(damaged > good.len() + 80, "{damaged}");
    }

    #[test]
    fn what_would_make_a_list_too_long_changes_neither_key() {
        let long = vec![b'x'; MEMBERS_BYTES_MAX - 8 - 3];
        let full = list(&[&long]);
        assert_eq!(full.len(), MEMBERS_BYTES_MAX);
        let before = keys_with(&[(b"l", &full), (b"m", &list(&[b"b"]))]);
        for line in [
            "RPUSH l a",
            "LPUSHX l a",
            "LMOVE m l LEFT LEFT",
            "LMOVE l m LEFT LEFT",
        ] {
            let mut keys = before.clone();
            let reply = run(line, &mut keys);
            let is_refused = reply.starts_with("-ERR nothing was changed: the list would take");
            assert!(is_refused && reply.contains(" 65536 is"), "{line}: {reply}");
            assert_eq!(keys[..], before[..], "{line}");
        }
        let mut keys = before.clone();
        assert_eq!(run("LSET l 0 a", &mut keys), "+OK\\r\\n");
        assert_eq!(run("LINSERT l AFTER a b", &mut keys), ":2\\r\\n");
        assert_eq!(run("LMOVE l l LEFT RIGHT", &mut keys), "$1\\r\\na\\r\\n");
        assert_eq!(run("LINDEX l 0", &mut keys), "$1\\r\\nb\\r\\n");
    }
}
