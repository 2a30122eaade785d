//! What commands do to values that were read: the pure half of a transaction.

use crate::apply::Decimal;

use super::bits;
use super::fraction::Fraction;
use super::key_state::{Expires, KeyState};
use super::members::head::MemberType;
use super::members::key_type::has_other;
use super::parser::Arguments;
use super::reply::Replies;
use super::request::{
    DelWhen, ExpireWhen, IncrEx, NewExpiry, Pair, Request, SetWhen, TtlForm, Until,
};
use super::transaction_keys::TransactionKeys;

const NO_KEY: &[u8] = b"ERR no such key";
const ARMED: &[u8] = b"ERR effects run when this key expires (ON_EXPIRE), and they stay with its \
    name: it cannot be renamed";
pub(super) const WRONG_TYPE: &[u8] =
    b"WRONGTYPE Operation against a key holding the wrong kind of value";
pub(super) const TOO_LONG: &[u8] = b"ERR string exceeds maximum allowed size (proto-max-bulk-len)";

/// The keys of a transaction, and the time at which they were read.
#[derive(Debug)]
pub(super) struct Model<'a> {
    pub(super) keys: &'a mut TransactionKeys,
    pub(super) now_ms: u64,
    pub(super) value_bytes_max: usize,
    /// Another number for each command.
    pub(super) seed: u64,
}

impl Model<'_> {
    /// Runs one command and writes its reply.
    pub(super) fn run(&mut self, request: &Request<'_>, replies: &mut Replies<'_>) {
        let (now_ms, most) = (self.now_ms, self.value_bytes_max);
        if self.is_of_other_type(request) {
            return replies.error(WRONG_TYPE);
        }
        match *request {
            Request::Get(key) => value_reply(self.key(key), replies),
            Request::MGet(args) => {
                replies.array(args.len() - 1);
                for key in args.from(1) {
                    value_reply(self.key(key), replies);
                }
            }
            Request::GetDel(key) => {
                let state = self.key(key);
                value_reply(state, replies);
                state.delete();
            }
            Request::GetEx(key, expiry) => {
                let state = self.key(key);
                value_reply(state, replies);
                if state.is_there()
                    && let Some(expires) = said(expiry)
                {
                    state.expire(expires);
                    state.settle(now_ms);
                }
            }
            Request::Set { value, .. } if value.len() > most => replies.error(TOO_LONG),
            Request::Set { .. } => self.set(request, replies),
            Request::MSetNx(args) => {
                if args.from(2).step_by(2).any(|value| value.len() > most) {
                    return replies.error(TOO_LONG);
                }
                let mut names = args.from(1).step_by(2);
                let is_set = names.all(|name| !self.key(name).is_there());
                if is_set {
                    self.put_all(args);
                }
                replies.integer(is_set.into());
            }
            Request::MSet(args) => {
                if args.from(2).step_by(2).any(|value| value.len() > most) {
                    return replies.error(TOO_LONG);
                }
                self.put_all(args);
                replies.simple("OK");
            }
            Request::Del(args) => {
                let deleted = args.from(1).filter(|key| self.key(key).delete()).count();
                replies.integer(i64::try_from(deleted).expect("few"));
            }
            Request::Exists(args) => {
                let there = args.from(1).filter(|key| self.key(key).is_there());
                replies.integer(i64::try_from(there.count()).expect("few"));
            }
            Request::Type(key) => replies.simple(type_of(self.key(key))),
            Request::Hash(key, ask) => {
                let seed = self.seed;
                ask.run(self.key(key), seed, replies);
            }
            Request::List(ask) => ask.run(self.keys, replies),
            Request::OfSets(ask) => ask.run(self.keys, self.seed, replies),
            Request::Zset(ask) => ask.run(self.keys, self.seed, replies),
            Request::StrLen(key) => {
                let len = self.key(key).plain().map_or(0, <[u8]>::len);
                replies.integer(i64::try_from(len).expect("values are bounded"));
            }
            Request::GetRange(key, start, end) => {
                let state = self.key(key);
                let value = state.plain().unwrap_or_default();
                replies.value(range_of(value, start, end));
            }
            Request::Ttl(key, form) => {
                let state = self.key(key);
                let expires = match (state.is_there(), state.expires()) {
                    (false, _) => None,
                    (true, Expires::Never) => Some(0),
                    (true, expires) => Some(expires.at_ms(now_ms)),
                };
                replies.integer(ttl_of(expires, now_ms, form));
            }
            Request::Read(key, read) => {
                let state = self.key(key);
                read.write_of(state.plain(), state.members(), replies);
            }
            Request::Rename(pair) => self.rename(pair, replies),
            Request::Copy(pair) => {
                let from = self.key(pair.from);
                let carried = from.whole().map(|value| (value, from.carried()));
                let is_free = self.is_free(pair);
                let copied = carried.filter(|_| is_free);
                replies.integer(copied.is_some().into());
                if let Some((value, expires)) = copied {
                    self.key(pair.to).put_whole(value, expires);
                }
            }
            _ => self.edit(request, replies),
        }
    }

    /// Whether a command asks for a value of another type than its key has.
    fn is_of_other_type(&mut self, request: &Request<'_>) -> bool {
        if let Request::Hash(key, _) = *request {
            return has_other(self.key(key), MemberType::Hash);
        }
        if let Request::List(ask) = request {
            return ask.is_of_other_type(self.keys);
        }
        if let Request::OfSets(ask) = request {
            return ask.is_of_other_type(self.keys);
        }
        if let Request::Zset(ask) = request {
            return ask.is_of_other_type(self.keys);
        }
        let plain = request.key_of_plain();
        plain.is_some_and(|key| self.key(key).members().is_some())
    }

    /// Runs a command that changes the one key that it names.
    fn edit(&mut self, request: &Request<'_>, replies: &mut Replies<'_>) {
        let (now_ms, most) = (self.now_ms, self.value_bytes_max);
        match *request {
            Request::SetRange(key, offset, patch) => {
                let state = self.key(key);
                change_bytes(state, most, Some(offset), patch, replies);
            }
            Request::Append(key, tail) => change_bytes(self.key(key), most, None, tail, replies),
            Request::Add(key, by) => add(self.key(key), by, replies),
            Request::IncrEx(key, change) => increase(self.key(key), change, now_ms, replies),
            Request::DelEx(key, when) => delete_if(self.key(key), when, replies),
            Request::Expire(key, until, when) => {
                let state = self.key(key);
                let is_set = state.is_there() && may_expire(state, until, when, now_ms);
                if is_set {
                    state.expire(until.into());
                    state.settle(now_ms);
                }
                replies.integer(is_set.into());
            }
            Request::AddFraction(_, Err(text)) => replies.error(text.as_bytes()),
            Request::AddFraction(key, Ok(by)) => add_fraction(self.key(key), by, replies),
            Request::SetBit(key, place, bit) => set_bit(self.key(key), most, place, bit, replies),
            Request::Persist(key) => {
                let state = self.key(key);
                let has_one = state.expires() != Expires::Never;
                if state.is_there() {
                    state.expire(Expires::Never);
                }
                replies.integer(has_one.into());
            }
            _ => unreachable!("`run` does the others"),
        }
    }

    fn set(&mut self, request: &Request<'_>, replies: &mut Replies<'_>) {
        let now_ms = self.now_ms;
        let &Request::Set {
            key,
            value,
            when,
            gets,
            expiry,
            answers_number,
        } = request
        else {
            unreachable!("the caller matched");
        };
        let state = self.key(key);
        let applies = match when {
            SetWhen::Always => true,
            SetWhen::Absent => !state.is_there(),
            SetWhen::Present => state.is_there(),
            SetWhen::Equals(expected) => state.plain() == Some(expected),
        };
        match (gets, answers_number, applies) {
            (true, _, _) => value_reply(state, replies),
            (false, true, _) => replies.integer(applies.into()),
            (false, false, true) => replies.simple("OK"),
            (false, false, false) => replies.null(),
        }
        if applies {
            match expiry {
                // An expiry that stays ends the key by the time of the store, as that of any read.
                NewExpiry::Keep => *state.edit() = value.to_vec(),
                expiry => {
                    state.put(value.to_vec(), said(expiry));
                    state.settle(now_ms);
                }
            }
        }
    }

    fn put_all(&mut self, args: Arguments<'_>) {
        for number in (1..args.len()).step_by(2) {
            let value = args.get(number + 1).to_vec();
            self.key(args.get(number)).put(value, None);
        }
    }

    /// Whether the destination may get a value.
    fn is_free(&mut self, pair: Pair<'_>) -> bool {
        !pair.only_new || !self.key(pair.to).is_there()
    }

    fn rename(&mut self, pair: Pair<'_>, replies: &mut Replies<'_>) {
        let from = self.key(pair.from);
        let Some(value) = from.whole() else {
            return replies.error(NO_KEY);
        };
        let (expires, is_armed) = (from.carried(), from.is_armed());
        let is_other = pair.from != pair.to;
        let applies = is_other && self.is_free(pair);
        if applies && is_armed {
            return replies.error(ARMED);
        }
        match pair.answers_number {
            true => replies.integer(applies.into()),
            false => replies.simple("OK"),
        }
        if applies {
            self.key(pair.to).put_whole(value, expires);
            self.key(pair.from).delete();
        }
    }

    fn key(&mut self, name: &[u8]) -> &mut KeyState {
        let found = self.keys.find_mut(name);
        found.expect("all keys of the commands were read")
    }
}

/// What TYPE tells.
fn type_of(state: &KeyState) -> &'static str {
    let of_members = state.members().and_then(MemberType::of);
    match of_members {
        Some(members) => members.name(),
        None if state.is_there() => "string",
        None => "none",
    }
}

fn value_reply(state: &KeyState, replies: &mut Replies<'_>) {
    match state.plain() {
        Some(value) => replies.value(value),
        None => replies.null(),
    }
}

/// The expiry that a command says, if it says one.
fn said(expiry: NewExpiry) -> Option<Expires> {
    match expiry {
        NewExpiry::Usual | NewExpiry::Keep => None,
        NewExpiry::Persist => Some(Expires::Never),
        NewExpiry::Until(until) => Some(until.into()),
    }
}

/// Whether EXPIRE applies: a key without an expiry counts as one that expires never.
fn may_expire(state: &KeyState, until: Until, when: ExpireWhen, now_ms: u64) -> bool {
    let (before, after) = (
        state.expires().at_ms(now_ms),
        Expires::from(until).at_ms(now_ms),
    );
    let has_one = state.expires() != Expires::Never;
    !(when.has_none && has_one
        || when.has_one && !has_one
        || when.is_later && after <= before
        || when.is_earlier && after >= before)
}

/// SETRANGE with an offset, APPEND without one.
fn change_bytes(
    state: &mut KeyState,
    value_bytes_max: usize,
    offset: Option<usize>,
    bytes: &[u8],
    replies: &mut Replies<'_>,
) {
    let len = state.plain().map_or(0, <[u8]>::len);
    let is_nothing = bytes.is_empty() && (offset.is_some() || state.plain().is_some());
    let at = offset.unwrap_or(len);
    let end = at.saturating_add(bytes.len());
    if !is_nothing && end > value_bytes_max {
        return replies.error(TOO_LONG);
    }
    if is_nothing {
        // Redis takes APPEND of nothing for a change, and SETRANGE of nothing for none.
        if offset.is_none() && state.plain().is_some() {
            state.edit();
        }
        return replies.integer(i64::try_from(len).expect("values are bounded"));
    }
    let value = state.edit();
    value.resize(len.max(end), 0);
    value[at..end].copy_from_slice(bytes);
    replies.integer(i64::try_from(value.len()).expect("values are bounded"));
}

fn delete_if(state: &mut KeyState, when: DelWhen<'_>, replies: &mut Replies<'_>) {
    let applies = match (state.plain(), when) {
        (None, _) => false,
        (Some(value), DelWhen::Equals(expected)) => value == expected,
        (Some(value), DelWhen::Differs(other)) => value != other,
    };
    replies.integer((applies && state.delete()).into());
}

fn add(state: &mut KeyState, by: i64, replies: &mut Replies<'_>) {
    let text = state.plain().unwrap_or(b"0");
    let Some(number) = Decimal::read(text) else {
        return replies.error(b"ERR value is not an integer or out of range");
    };
    let Some(sum) = number.checked_add(by) else {
        return replies.error(b"ERR increment or decrement would overflow");
    };
    *state.edit() = Decimal::new(sum).bytes().to_vec();
    replies.integer(sum);
}

fn add_fraction(state: &mut KeyState, by: Fraction, replies: &mut Replies<'_>) {
    let number = Fraction::read(state.plain().unwrap_or(b"0"));
    match number.and_then(|number| number.plus(by)) {
        Ok(sum) => {
            let text = sum.text().into_bytes();
            replies.value(&text);
            *state.edit() = text;
        }
        Err(refused) => replies.error(refused.text().as_bytes()),
    }
}

fn set_bit(
    state: &mut KeyState,
    value_bytes_max: usize,
    place: u64,
    bit: bool,
    replies: &mut Replies<'_>,
) {
    let (byte, mask) = bits::byte_of(place);
    if byte >= value_bytes_max {
        return replies.error(bits::NO_BIT.as_bytes());
    }
    let before = state.plain().unwrap_or_default();
    let (was_set, has_byte) = (bits::is_set(before, place), byte < before.len());
    replies.integer(was_set.into());
    // As in Redis a bit that is so already is no change.
    if was_set == bit && has_byte {
        return;
    }
    let value = state.edit();
    value.resize(value.len().max(byte + 1), 0);
    if bit {
        value[byte] |= mask;
    } else {
        value[byte] &= !mask;
    }
}

/// INCREX, as Redis 8.8 has it.
fn increase(state: &mut KeyState, change: IncrEx, now_ms: u64, replies: &mut Replies<'_>) {
    let text = state.plain().unwrap_or(b"0");
    let Some(number) = Decimal::read(text) else {
        return replies.error(b"ERR value is not an integer or out of range");
    };
    let exact = i128::from(number) + i128::from(change.by);
    let (lower, upper) = (i128::from(change.lower), i128::from(change.upper));
    let target = exact.clamp(lower, upper);
    let mut answer = |number: i64, applied: i64| {
        replies.array(2);
        replies.integer(number);
        replies.integer(applied);
    };
    if target != exact && !change.saturates {
        return answer(number, 0);
    }
    let Ok(applied) = i64::try_from(target - i128::from(number)) else {
        return replies.error(b"ERR applied increment would overflow");
    };
    let target = i64::try_from(target).expect("between two numbers of 64 bits");
    answer(target, applied);
    let may_move = !change.only_new || state.expires() == Expires::Never;
    *state.edit() = Decimal::new(target).bytes().to_vec();
    if let Some(expires) = said(change.expiry).filter(|_| may_move) {
        state.expire(expires);
        state.settle(now_ms);
    }
}

/// The bytes that GETRANGE names: both ends count, negative ones from behind.
pub(super) fn range_of(value: &[u8], start: i64, end: i64) -> &[u8] {
    let len = i64::try_from(value.len()).expect("values are bounded");
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    let absolute = |at: i64| if at < 0 { (len + at).max(0) } else { at };
    let (start, end) = (absolute(start), absolute(end).min(len - 1));
    if start > end || len == 0 {
        return &[];
    }
    let place = |at: i64| usize::try_from(at).expect("within the value");
    &value[place(start)..=place(end)]
}

/// What TTL and its like tell: `None` of no key, 0 of one that never expires, else the time.
pub(super) fn ttl_of(expiry_ms: Option<u64>, now_ms: u64, form: TtlForm) -> i64 {
    let ms = match expiry_ms {
        None => return -2,
        Some(0) => return -1,
        Some(ms) if form.is_time => ms,
        Some(ms) => ms.saturating_sub(now_ms),
    };
    let ttl = match form.in_ms {
        true => ms,
        // Rounded, as Redis does.
        false => (ms + 500) / 1000,
    };
    i64::try_from(ttl).unwrap_or(i64::MAX)
}
