//! What the commands of sets do to the value of one key.

use crate::resp::key_state::KeyState;
use crate::resp::parser::Arguments;
use crate::resp::reply::Replies;
use crate::resp::transaction_keys::TransactionKeys;

use super::chance::{pick, picked, picked_len};
use super::head::{CORRUPT, MemberType};
use super::key_type::has_other;
use super::page::MemberPage;
use super::set::{SetEdit, SetForm, SetView, shown_form, union};
use super::set_ask::{OneAsk, SetAsk};
use super::zset_commands::{Refused, integer};

/// Redis makes a set anew out of what a pop leaves, if that is less than this part of the popped.
const LEFT_PART: usize = 5;

impl SetAsk<'_> {
    /// Whether a key that it reads has a value of another type.
    pub(in crate::resp) fn is_of_other_type(&self, keys: &TransactionKeys) -> bool {
        let state = |name| keys.find(name).expect("it was read");
        let is_other = |name| has_other(state(name), MemberType::Set);
        match self {
            SetAsk::One(key, _) => is_other(key),
            SetAsk::Move(ask) => {
                state(ask.from).is_there() && (is_other(ask.from) || is_other(ask.to))
            }
            SetAsk::Combine(ask) => ask.keys.all().any(is_other),
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
            SetAsk::One(key, ask) => {
                let state = keys.find_mut(key);
                ask.run(state.expect("it was read"), seed, replies)
            }
            SetAsk::Move(ask) => ask.run(keys, replies),
            SetAsk::Combine(ask) => ask.run(keys, replies),
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
            let view = set_of(state)?;
            return self.answer(view, state.is_there(), seed, replies);
        }
        // The value is put back, or another one in its place.
        let before = state.members().map(<[u8]>::to_vec);
        let view = before.as_deref().map(SetView::read).transpose();
        let view = view.map_err(|_| CORRUPT)?.unwrap_or_default();
        let edit = match self {
            OneAsk::Add(args) => {
                let names = args.len() - 2;
                let mut edit = SetEdit::begin(view, names);
                edit.note_many(args.get(2), names);
                for member in args.from(2) {
                    edit.add(member);
                    check_bytes(&edit)?;
                }
                replies.integer(integer(edit.len() - view.len()));
                edit
            }
            OneAsk::Rem(args) => {
                let mut edit = SetEdit::begin(view, args.len() - 2);
                args.from(2).for_each(|member| _ = edit.remove(member));
                replies.integer(integer(view.len() - edit.len()));
                edit
            }
            OneAsk::Pop(count) => pop(view, count, seed, replies),
            _ => unreachable!("`answer` does the others"),
        };
        if edit.len() != view.len() {
            put(edit.encode(), state);
        }
        Ok(())
    }

    /// Runs a command that only reads.
    fn answer(
        self,
        view: SetView<'_>,
        is_there: bool,
        seed: u64,
        replies: &mut Replies<'_>,
    ) -> Result<(), Refused> {
        match self {
            OneAsk::Card => replies.integer(integer(view.len())),
            OneAsk::Has(member) => replies.integer(view.finder(1).has(member).into()),
            OneAsk::HasMany(args) => {
                let names = args.len() - 2;
                let finder = view.finder(names);
                replies.array(names);
                args.from(2)
                    .for_each(|name| replies.integer(finder.has(name).into()));
            }
            OneAsk::All => {
                replies.set(view.len());
                view.members().for_each(|member| replies.value(member));
            }
            OneAsk::Random(None) => match view.members().nth(pick(view.len().max(1), seed)) {
                Some(picked) => replies.value(picked),
                None => replies.null(),
            },
            OneAsk::Random(Some(count)) => answer_random(view, count, seed, replies),
            OneAsk::Scan(args) => scan(view, is_there, args, replies)?,
            _ => unreachable!("`run` does the others"),
        }
        Ok(())
    }
}

/// Takes members away by chance and shows them: one, or so many.
fn pop<'a>(
    view: SetView<'a>,
    count: Option<usize>,
    seed: u64,
    replies: &mut Replies<'_>,
) -> SetEdit<'a> {
    let mut edit = SetEdit::begin(view, 0);
    let members: Vec<&[u8]> = view.members().collect();
    let Some(count) = count else {
        if members.is_empty() {
            replies.null();
            return edit;
        }
        let place = pick(members.len(), seed);
        replies.value(members[place]);
        edit.remove_at(place);
        return edit;
    };
    if count >= members.len() {
        // Redis shows the union of this set alone.
        let all = union(&[view], shown_form(&[view])).members();
        replies.set(all.len());
        all.iter().for_each(|member| replies.value(member));
        return SetEdit::empty(view.form(), 0);
    }
    replies.set(count);
    let signed = i64::try_from(count).expect("below a length");
    for place in picked(members.len(), signed, seed) {
        replies.value(members[place]);
        edit.remove_at(place);
    }
    let is_made_anew = edit.len() * LEFT_PART <= count && view.form() == SetForm::Large;
    match is_made_anew {
        true => {
            let mut anew = SetEdit::empty(SetForm::Listed, edit.len());
            edit.members()
                .iter()
                .for_each(|member| _ = anew.add(member));
            anew
        }
        false => edit,
    }
}

/// SRANDMEMBER with a count: distinct members, or with a negative count any.
fn answer_random(view: SetView<'_>, count: i64, seed: u64, replies: &mut Replies<'_>) {
    let members: Vec<&[u8]> = view.members().collect();
    if members.is_empty() {
        return replies.array(0);
    }
    replies.array(picked_len(members.len(), count));
    for place in picked(members.len(), count, seed) {
        replies.value(members[place]);
        // What is beyond the bound of a reply is refused, however much more would come.
        if replies.is_beyond() {
            return;
        }
    }
}

/// SSCAN: all members are one page.
fn scan(
    view: SetView<'_>,
    is_there: bool,
    args: Arguments<'_>,
    replies: &mut Replies<'_>,
) -> Result<(), Refused> {
    let page = MemberPage::read(args, is_there, MemberType::Set)?;
    let shown: Vec<&[u8]> = view.members().filter(|it| page.shows(it)).collect();
    page.begin(shown.len(), replies);
    shown.iter().for_each(|member| replies.value(member));
    Ok(())
}

/// Gives a key another value that it keeps its expiry for; without one it ends.
pub(super) fn put(value: Option<Vec<u8>>, state: &mut KeyState) {
    match value {
        Some(value) => state.set_members(value),
        None => _ = state.delete(),
    }
}

/// The set of a key whose type was checked; without one it has no member.
pub(super) fn set_of(state: &KeyState) -> Result<SetView<'_>, Refused> {
    let view = state.members().map(SetView::read).transpose();
    Ok(view.map_err(|_| CORRUPT)?.unwrap_or_default())
}

pub(super) fn check_bytes(edit: &SetEdit<'_>) -> Result<(), Refused> {
    MemberType::Set.check_bytes(edit.bytes(), edit.len())
}

#[cfg(test)]
mod tests {
    use crate::resp::key_state::{Expires, ReadKey};
    use crate::resp::model::Model;
    use crate::resp::parser::KeptArguments;
    use crate::resp::reply::Protocol;
    use crate::resp::request::Request;
    use crate::resp::table::find;
    use crate::version::Version;

    use super::*;

    /// Commands about the set `k`, which is damaged, and the good set `o`.
    const COMMANDS: [&str; 20] = [
        "SADD k new 7",
        "SREM k 12 m",
        "SMEMBERS k",
        "SCARD k",
        "SISMEMBER k 12",
        "SMISMEMBER k a b c d e f g h i",
        "SPOP k",
        "SPOP k 1",
        "SPOP k 9",
        "SRANDMEMBER k",
        "SRANDMEMBER k 2",
        "SRANDMEMBER k -5",
        "SSCAN k 0",
        "SMOVE k o 12",
        "SMOVE o k m",
        "SUNION o k",
        "SINTER k o",
        "SDIFFSTORE d o k",
        "SINTERCARD 2 k k",
        "ZUNION 2 o k",
    ];

    fn keys(damaged: &[u8], good: &[u8]) -> TransactionKeys {
        let mut keys = TransactionKeys::default();
        for (name, value) in [("k", Some(damaged)), ("o", Some(good)), ("d", None)] {
            keys.add(name.as_bytes());
            let read = value.map(|value| ReadKey {
                version: Version {
                    epoch: 1,
                    sequence: 1,
                },
                value,
                has_members: true,
                expires: Expires::Never,
                is_armed: false,
            });
            let state = keys.find_mut(name.as_bytes());
            state.expect("it was added").learn(read);
        }
        keys
    }

    fn reply_to(line: &str, keys: &mut TransactionKeys) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut kept = KeptArguments::default();
        kept.fill(&words);
        let args = kept.view();
        let command = find(args.get(0)).expect("a command");
        let request = Request::read(command, args)
            .expect("good")
            .expect("of keys");
        let mut out = Vec::new();
        let mut model = Model {
            keys,
            now_ms: 1,
            value_bytes_max: 1 << 20,
            seed: 7,
        };
        model.run(&request, &mut Replies::new(&mut out, Protocol::Resp2));
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn a_damaged_set_is_told_as_corrupt_by_every_command_and_stays_as_it_is() {
        let mut corrupt = 0;
        for member in [&b"-3"[..], b"m"] {
            let mut edit = SetEdit::empty(SetForm::Integers, 1);
            [b"12", member].iter().for_each(|it| _ = edit.add(it));
            let good = edit.encode().expect("two members");
            let cuts = (0..good.len()).map(|cut| good[..cut].to_vec());
            let flips = (0..good.len() * 8).map(|bit| {
                let mut flipped = good.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                flipped
            });
            for damaged in cuts.chain(flips) {
                for line in COMMANDS {
                    let mut keys = keys(&damaged, &good);
                    let reply = reply_to(line, &mut keys);
                    if SetView::read(&damaged).is_ok() || reply.starts_with("-WRONGTYPE") {
                        continue;
                    }
                    // Another type, or a member that `o` does not have.
                    let is_other = MemberType::of(&damaged) != Some(MemberType::Set);
                    let is_absent = line.starts_with("SMOVE o") && reply == ":0\r\n";
                    if is_other && line.starts_with('Z') || is_absent {
                        continue;
                    }
                    assert!(reply.starts_with("-ERR CORRUPT"), "{line}: {reply}");
                    for (name, value) in [(b"k", &damaged), (b"o", &good)] {
                        let state = keys.find(name).expect("it was added");
                        assert_eq!(state.members(), Some(&value[..]), "{line}");
                    }
                    corrupt += 1;
                }
            }
        }
        assert!(corrupt > 1_000, "{corrupt}");
    }
}
