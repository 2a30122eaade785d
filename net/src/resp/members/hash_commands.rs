//! What the commands of hashes do to the value of a key.

use std::borrow::Cow;

use crate::apply::Decimal;
use crate::resp::fraction::{Fraction, Refused};
use crate::resp::key_state::KeyState;
use crate::resp::parser::Arguments;
use crate::resp::reply::{Protocol, Replies};

use super::chance::{pick, picked, picked_len};
use super::hash::{HashEdit, HashView};
use super::hash_ask::{HashAsk, HashParts, SetReply};
use super::head::{CORRUPT, MemberType};
use super::page::MemberPage;

impl HashAsk<'_> {
    /// Runs the command on a key that has no value, or a hash. `seed` is another one each time.
    pub(in crate::resp) fn run(self, state: &mut KeyState, seed: u64, replies: &mut Replies<'_>) {
        let done = match self.is_change() {
            true => self.edit(state, replies),
            false => self.answer(state, seed, replies),
        };
        if let Err(text) = done {
            replies.error(&text);
        }
    }

    /// Runs a command that only reads.
    fn answer(
        self,
        state: &KeyState,
        seed: u64,
        replies: &mut Replies<'_>,
    ) -> Result<(), Cow<'static, [u8]>> {
        let view = view_of(state)?;
        let one = |field| view.and_then(|view| view.get(field));
        match self {
            HashAsk::Get(field) => answer_value(one(field), replies),
            HashAsk::GetMany(args) => {
                let names = args.len() - 2;
                let finder = view.map(|view| view.finder(names));
                replies.array(names);
                for field in args.from(2) {
                    let found = finder.as_ref().and_then(|finder| finder.get(field));
                    answer_value(found, replies);
                }
            }
            HashAsk::All(parts) => answer_all(view, parts, replies),
            HashAsk::Len => replies.integer(integer(view.map_or(0, |view| view.len()))),
            HashAsk::StrLen(field) => replies.integer(integer(one(field).map_or(0, <[u8]>::len))),
            HashAsk::Exists(field) => replies.integer(one(field).is_some().into()),
            HashAsk::Random(None, _) => {
                let picked = view.map(|view| pick(view.len(), seed));
                let field = view
                    .zip(picked)
                    .and_then(|(view, at)| view.entries().nth(at));
                answer_value(field.map(|(field, _)| field), replies);
            }
            HashAsk::Random(Some(count), has_values) => {
                answer_random(view, (count, has_values), seed, replies);
            }
            HashAsk::Scan(args) => scan(view, args, replies)?,
            _ => unreachable!("`edit` does the others"),
        }
        Ok(())
    }

    /// Runs a command that may change the key.
    fn edit(
        self,
        state: &mut KeyState,
        replies: &mut Replies<'_>,
    ) -> Result<(), Cow<'static, [u8]>> {
        // The value is put back, or another one in its place.
        let before = state.members().map(<[u8]>::to_vec);
        let view = before.as_deref().map(HashView::read).transpose();
        let view = view.map_err(|_| CORRUPT)?;
        let names = match self {
            HashAsk::Set(args, _) => (args.len() - 2) / 2,
            HashAsk::Del(args) => args.len() - 2,
            _ => 1,
        };
        let mut edit = HashEdit::begin(view, names);
        match self {
            HashAsk::Set(args, reply) => {
                let mut added = 0;
                for (field, value) in args.from(2).step_by(2).zip(args.from(3).step_by(2)) {
                    added += i64::from(edit.set(field, value.into()));
                    check_bytes(&edit)?;
                }
                edit.note_many(names);
                match reply {
                    SetReply::Count => replies.integer(added),
                    SetReply::Ok => replies.simple("OK"),
                }
            }
            HashAsk::SetAbsent(field, value) => {
                if edit.get(field).is_some() {
                    replies.integer(0);
                    return Ok(());
                }
                edit.set(field, value.into());
                check_bytes(&edit)?;
                replies.integer(1);
            }
            HashAsk::Del(args) => {
                let removed = args.from(2).filter(|field| edit.remove(field)).count();
                replies.integer(integer(removed));
                if removed == 0 {
                    return Ok(());
                }
            }
            HashAsk::Add(field, by) => {
                let number = Decimal::read(edit.get(field).unwrap_or(b"0"));
                let number = number.ok_or(&b"ERR hash value is not an integer"[..])?;
                let sum = number.checked_add(by);
                let sum = sum.ok_or(&b"ERR increment or decrement would overflow"[..])?;
                edit.set(field, Decimal::new(sum).bytes().to_vec().into());
                check_bytes(&edit)?;
                replies.integer(sum);
            }
            HashAsk::AddFraction(field, by) => {
                let number = Fraction::read(edit.get(field).unwrap_or(b"0"));
                let number = number.map_err(|refused| match refused {
                    Refused::NoNumber => Cow::Borrowed(&b"ERR hash value is not a float"[..]),
                    refused => Cow::Borrowed(refused.text().as_bytes()),
                })?;
                let sum = number.plus(by).map_err(|it| it.text().as_bytes())?;
                let text = sum.text().into_bytes();
                edit.set(field, text.clone().into());
                check_bytes(&edit)?;
                replies.value(&text);
            }
            _ => unreachable!("`answer` does the others"),
        }
        match edit.encode() {
            Some(value) => state.set_members(value),
            None => _ = state.delete(),
        }
        Ok(())
    }
}

fn integer(count: usize) -> i64 {
    i64::try_from(count).expect("values are bounded")
}

/// The hash of a key that has no value or members.
fn view_of(state: &KeyState) -> Result<Option<HashView<'_>>, &'static [u8]> {
    let view = state.members().map(HashView::read).transpose();
    view.map_err(|_| CORRUPT)
}

fn check_bytes(edit: &HashEdit<'_>) -> Result<(), Cow<'static, [u8]>> {
    MemberType::Hash.check_bytes(edit.bytes(), edit.len())
}

fn answer_value(value: Option<&[u8]>, replies: &mut Replies<'_>) {
    match value {
        Some(value) => replies.value(value),
        None => replies.null(),
    }
}

fn answer_all(view: Option<HashView<'_>>, parts: HashParts, replies: &mut Replies<'_>) {
    let len = view.map_or(0, |view| view.len());
    match parts {
        HashParts::Both => replies.map(len),
        HashParts::Fields | HashParts::Values => replies.array(len),
    }
    for (field, value) in view.iter().flat_map(HashView::entries) {
        if parts != HashParts::Values {
            replies.value(field);
        }
        if parts != HashParts::Fields {
            replies.value(value);
        }
    }
}

/// HRANDFIELD with a count: distinct fields in their order, or with a negative count any.
fn answer_random(
    view: Option<HashView<'_>>,
    (count, has_values): (i64, bool),
    seed: u64,
    replies: &mut Replies<'_>,
) {
    let Some(view) = view else {
        return replies.array(0);
    };
    let entries: Vec<_> = view.entries().collect();
    let len = picked_len(entries.len(), count);
    let is_nested = has_values && replies.protocol() == Protocol::Resp3;
    replies.array(if has_values && !is_nested {
        len.saturating_mul(2)
    } else {
        len
    });
    for place in picked(entries.len(), count, seed) {
        let (field, value) = entries[place];
        if is_nested {
            replies.array(2);
        }
        replies.value(field);
        if has_values {
            replies.value(value);
        }
        // What is beyond the bound of a reply is refused, however much more would come.
        if replies.is_beyond() {
            return;
        }
    }
}

/// HSCAN: all fields are one page.
fn scan(
    view: Option<HashView<'_>>,
    args: Arguments<'_>,
    replies: &mut Replies<'_>,
) -> Result<(), Cow<'static, [u8]>> {
    let page = MemberPage::read(args, view.is_some(), MemberType::Hash)?;
    let entries = view.iter().flat_map(HashView::entries);
    let entries: Vec<_> = entries.filter(|(field, _)| page.shows(field)).collect();
    page.begin(entries.len(), replies);
    for (field, value) in entries {
        replies.value(field);
        if page.is_paired {
            replies.value(value);
        }
    }
    Ok(())
}
