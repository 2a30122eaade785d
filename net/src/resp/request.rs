//! Commands with keys, read from their arguments.

use crate::limits::EXPIRY_MS_MAX;

use super::bits::{Stretch, read_bit, read_place};
pub(super) use super::fault::{Fault, NOT_AN_INTEGER, SYNTAX};
use super::fraction::{Fraction, Refused};
use super::members::hash_ask::HashAsk;
use super::members::head::MemberType;
use super::members::list_ask::ListAsk;
use super::members::set_ask::SetAsk;
use super::members::zset_ask::ZsetAsk;
use super::number::{read_integer, read_unsigned};
use super::parser::Arguments;
use super::table::{Command, Name};
use super::value_read::ValueRead;

/// When a key is to expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// So many milliseconds from now.
    In(u64),
    /// From this unix time in milliseconds on; 1 is a time that is past.
    At(u64),
}

/// What a command does with the expiry of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewExpiry {
    /// What the command does by itself: SET removes it, GETEX leaves it.
    Usual,
    /// It stays.
    Keep,
    /// It goes.
    Persist,
    /// It is this.
    Until(Until),
}

impl NewExpiry {
    /// The expiry that is said, if one is.
    fn until(self) -> Option<Until> {
        match self {
            NewExpiry::Until(until) => Some(until),
            NewExpiry::Usual | NewExpiry::Keep | NewExpiry::Persist => None,
        }
    }
}

/// When SET applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetWhen<'a> {
    Always,
    Absent,
    Present,
    /// The value is this.
    Equals(&'a [u8]),
}

/// When DELEX applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DelWhen<'a> {
    /// The value is this.
    Equals(&'a [u8]),
    /// There is a value, and it is another one.
    Differs(&'a [u8]),
}

/// What INCREX does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IncrEx {
    pub(super) by: i64,
    pub(super) lower: i64,
    pub(super) upper: i64,
    /// A sum beyond a bound becomes the bound; otherwise nothing happens.
    pub(super) saturates: bool,
    pub(super) expiry: NewExpiry,
    /// The expiry is for keys that have none.
    pub(super) only_new: bool,
}

/// When EXPIRE applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ExpireWhen {
    pub(super) has_none: bool,
    pub(super) has_one: bool,
    pub(super) is_later: bool,
    pub(super) is_earlier: bool,
}

impl ExpireWhen {
    pub(super) fn is_always(self) -> bool {
        self == ExpireWhen::default()
    }
}

/// How TTL and its like tell an expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TtlForm {
    pub(super) in_ms: bool,
    /// As a unix time instead of what is left.
    pub(super) is_time: bool,
}

/// A command with keys.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request<'a> {
    Get(&'a [u8]),
    GetDel(&'a [u8]),
    GetEx(&'a [u8], NewExpiry),
    Set {
        key: &'a [u8],
        value: &'a [u8],
        when: SetWhen<'a>,
        gets: bool,
        expiry: NewExpiry,
        /// SETNX answers a number.
        answers_number: bool,
    },
    MGet(Arguments<'a>),
    MSet(Arguments<'a>),
    Del(Arguments<'a>),
    Exists(Arguments<'a>),
    Type(&'a [u8]),
    StrLen(&'a [u8]),
    GetRange(&'a [u8], i64, i64),
    SetRange(&'a [u8], usize, &'a [u8]),
    Append(&'a [u8], &'a [u8]),
    Add(&'a [u8], i64),
    IncrEx(&'a [u8], IncrEx),
    DelEx(&'a [u8], DelWhen<'a>),
    Ttl(&'a [u8], TtlForm),
    Expire(&'a [u8], Until, ExpireWhen),
    Persist(&'a [u8]),
    MSetNx(Arguments<'a>),
    /// The number, or why it is none: that is told behind the type of the key, as in Redis.
    AddFraction(&'a [u8], Result<Fraction, &'static str>),
    SetBit(&'a [u8], u64, bool),
    /// What a value tells of itself.
    Read(&'a [u8], ValueRead),
    Rename(Pair<'a>),
    Copy(Pair<'a>),
    Hash(&'a [u8], HashAsk<'a>),
    List(ListAsk<'a>),
    OfSets(SetAsk<'a>),
    Zset(ZsetAsk<'a>),
}

/// What RENAME and COPY are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair<'a> {
    pub(super) from: &'a [u8],
    pub(super) to: &'a [u8],
    /// A value that `to` has keeps them from applying.
    pub(super) only_new: bool,
    /// RENAME answers OK, the others a number.
    pub(super) answers_number: bool,
}

impl<'a> Request<'a> {
    /// Reads a command whose number of arguments was checked. `None` if it names no key.
    #[inline]
    pub(super) fn read(command: &Command, args: Arguments<'a>) -> Result<Option<Self>, Fault> {
        let key = || args.get(1);
        let integer = |number: usize| read_integer(args.get(number)).ok_or(NOT_AN_INTEGER);
        Ok(Some(match command.id {
            Name::Get => Request::Get(key()),
            Name::Set => read_set(command, args)?,
            Name::SetNx => set(key(), args.get(2), SetWhen::Absent, NewExpiry::Usual, true),
            Name::SetEx | Name::PSetEx => {
                let unit = if command.id == Name::SetEx { 1000 } else { 1 };
                let until = Until::In(lifetime(command, integer(2)?, unit)?);
                let expiry = NewExpiry::Until(until);
                set(key(), args.get(3), SetWhen::Always, expiry, false)
            }
            Name::GetDel => Request::GetDel(key()),
            Name::GetEx => match read_getex(command, args)? {
                NewExpiry::Usual => Request::Get(key()),
                expiry => Request::GetEx(key(), expiry),
            },
            Name::MGet => Request::MGet(args),
            Name::MSet if args.len().is_multiple_of(2) => return Err(Fault::Arity("mset")),
            Name::MSet => Request::MSet(args),
            Name::MSetNx if args.len().is_multiple_of(2) => return Err(Fault::Arity("msetnx")),
            Name::MSetNx => Request::MSetNx(args),
            Name::Del | Name::Unlink => Request::Del(args),
            Name::Exists | Name::Touch => Request::Exists(args),
            Name::Type => Request::Type(key()),
            Name::StrLen => Request::StrLen(key()),
            Name::GetRange => Request::GetRange(key(), integer(2)?, integer(3)?),
            Name::SetRange => {
                let offset = usize::try_from(integer(2)?);
                let offset = offset.map_err(|_| Fault::Text("ERR offset is out of range"))?;
                Request::SetRange(key(), offset, args.get(3))
            }
            Name::Append => Request::Append(key(), args.get(2)),
            Name::DelEx => read_delex(args)?,
            Name::IncrEx => Request::IncrEx(key(), read_increx(command, args)?),
            Name::Incr => Request::Add(key(), 1),
            Name::Decr => Request::Add(key(), -1),
            Name::IncrBy => Request::Add(key(), integer(2)?),
            Name::DecrBy => {
                let by = integer(2)?.checked_neg();
                Request::Add(
                    key(),
                    by.ok_or(Fault::Text("ERR decrement would overflow"))?,
                )
            }
            Name::Ttl => ttl(key(), false, false),
            Name::PTtl => ttl(key(), true, false),
            Name::ExpireTime => ttl(key(), false, true),
            Name::PExpireTime => ttl(key(), true, true),
            Name::Expire | Name::PExpire | Name::ExpireAt | Name::PExpireAt => {
                read_expire(command, args)?
            }
            Name::Persist => Request::Persist(key()),
            Name::GetSet => Request::Set {
                key: key(),
                value: args.get(2),
                when: SetWhen::Always,
                gets: true,
                expiry: NewExpiry::Usual,
                answers_number: false,
            },
            Name::IncrByFloat => {
                let by = Fraction::read(args.get(2)).map_err(Refused::text);
                Request::AddFraction(key(), by)
            }
            Name::SetBit => {
                let place = read_place(args.get(2))?;
                Request::SetBit(key(), place, read_bit(args.get(3))?)
            }
            Name::GetBit => Request::Read(key(), ValueRead::Bit(read_place(args.get(2))?)),
            Name::BitCount => Request::Read(key(), ValueRead::Bits(Stretch::read(args)?)),
            Name::Object | Name::Memory => {
                let read = match command.id {
                    Name::Object => ValueRead::of_object(args)?,
                    _ => ValueRead::of_memory(args)?,
                };
                return Ok(read.map(|read| Request::Read(args.get(2), read)));
            }
            Name::Rename | Name::RenameNx => Request::Rename(Pair {
                from: key(),
                to: args.get(2),
                only_new: command.id == Name::RenameNx,
                answers_number: command.id == Name::RenameNx,
            }),
            Name::Copy => read_copy(args)?,
            _ => {
                if let Some(ask) = HashAsk::read(command, args)? {
                    return Ok(Some(Request::Hash(key(), ask)));
                }
                if let Some(ask) = ListAsk::read(command, args)? {
                    return Ok(Some(Request::List(ask)));
                }
                if let Some(ask) = SetAsk::read(command, args)? {
                    return Ok(Some(Request::OfSets(ask)));
                }
                return Ok(ZsetAsk::read(command, args)?.map(Request::Zset));
            }
        }))
    }

    /// Whether one item for each key says it.
    pub(super) fn is_plain(&self) -> bool {
        match self {
            Request::Set { gets, when, .. } => !gets && !matches!(when, SetWhen::Equals(_)),
            Request::IncrEx(_, change) => !change.saturates && !change.only_new,
            Request::Expire(_, _, when) => when.is_always(),
            Request::GetDel(_)
            | Request::GetEx(..)
            | Request::SetRange(..)
            | Request::Append(..)
            | Request::DelEx(..)
            | Request::Persist(_)
            | Request::MSetNx(_)
            | Request::AddFraction(..)
            | Request::SetBit(..)
            | Request::Rename(_)
            | Request::Copy(_)
            | Request::Type(_)
            | Request::Hash(..)
            | Request::List(_)
            | Request::OfSets(_)
            | Request::Zset(_) => false,
            Request::Read(_, read) => read.is_of_plain(),
            _ => true,
        }
    }

    /// The key whose value it reads or edits as bytes: with members it is of the wrong type.
    pub(super) fn key_of_plain(&self) -> Option<&'a [u8]> {
        match *self {
            Request::Get(key)
            | Request::GetDel(key)
            | Request::GetEx(key, _)
            | Request::StrLen(key)
            | Request::GetRange(key, ..)
            | Request::SetRange(key, ..)
            | Request::Append(key, _)
            | Request::Add(key, _)
            | Request::IncrEx(key, _)
            | Request::DelEx(key, _)
            | Request::AddFraction(key, _)
            | Request::SetBit(key, ..) => Some(key),
            Request::Set {
                key, when, gets, ..
            } if gets || matches!(when, SetWhen::Equals(_)) => Some(key),
            Request::Read(key, read) if read.is_of_plain() => Some(key),
            _ => None,
        }
    }

    /// Whether it may change a key.
    pub(super) fn is_change(&self) -> bool {
        if let Request::Hash(_, ask) = self {
            return ask.is_change();
        }
        if let Request::List(ask) = self {
            return ask.is_change();
        }
        if let Request::OfSets(ask) = self {
            return ask.is_change();
        }
        if let Request::Zset(ask) = self {
            return ask.is_change();
        }
        !matches!(
            self,
            Request::Get(_)
                | Request::MGet(_)
                | Request::Exists(_)
                | Request::Type(_)
                | Request::StrLen(_)
                | Request::GetRange(..)
                | Request::Ttl(..)
                | Request::Read(..)
        )
    }

    /// Whether a lifetime that it says would end later than any expiry may.
    pub(super) fn is_too_far(&self, now_ms: impl FnOnce() -> u64) -> bool {
        let until = match self {
            Request::Set { expiry, .. } | Request::GetEx(_, expiry) => expiry.until(),
            Request::IncrEx(_, change) => change.expiry.until(),
            Request::Expire(_, until, _) => Some(*until),
            _ => None,
        };
        match until {
            // Others end in time until the year 6429, and need no clock.
            Some(Until::In(ms)) if ms > EXPIRY_MS_MAX / 2 => {
                now_ms().saturating_add(ms) > EXPIRY_MS_MAX
            }
            _ => false,
        }
    }

    /// Whether it is one item, which may have a token.
    pub(super) fn is_one_item(&self) -> bool {
        match self {
            Request::MSet(args) => args.len() == 3,
            Request::Del(args) => args.len() == 2,
            request => request.is_plain(),
        }
    }

    /// Its keys.
    pub(super) fn for_each_key(&self, mut visit: impl FnMut(&'a [u8])) {
        match *self {
            Request::MGet(args) | Request::Del(args) | Request::Exists(args) => {
                args.from(1).for_each(visit);
            }
            Request::MSet(args) | Request::MSetNx(args) => {
                args.from(1).step_by(2).for_each(visit);
            }
            Request::Rename(pair) | Request::Copy(pair) => {
                visit(pair.from);
                visit(pair.to);
            }
            Request::List(ask) => ask.for_each_key(visit),
            Request::OfSets(ask) => ask.for_each_key(visit),
            Request::Zset(ask) => ask.for_each_key(visit),
            Request::Set { key, .. }
            | Request::Get(key)
            | Request::GetDel(key)
            | Request::GetEx(key, _)
            | Request::Type(key)
            | Request::StrLen(key)
            | Request::GetRange(key, ..)
            | Request::SetRange(key, ..)
            | Request::Append(key, _)
            | Request::Add(key, _)
            | Request::IncrEx(key, _)
            | Request::DelEx(key, _)
            | Request::Ttl(key, _)
            | Request::Expire(key, ..)
            | Request::AddFraction(key, _)
            | Request::SetBit(key, ..)
            | Request::Read(key, _)
            | Request::Hash(key, _)
            | Request::Persist(key) => visit(key),
        }
    }
}

fn set<'a>(
    key: &'a [u8],
    value: &'a [u8],
    when: SetWhen<'a>,
    expiry: NewExpiry,
    answers_number: bool,
) -> Request<'a> {
    Request::Set {
        key,
        value,
        when,
        gets: false,
        expiry,
        answers_number,
    }
}

fn ttl(key: &[u8], in_ms: bool, is_time: bool) -> Request<'_> {
    Request::Ttl(key, TtlForm { in_ms, is_time })
}

/// A lifetime that must be positive, in milliseconds.
fn lifetime(command: &Command, number: i64, unit: u64) -> Result<u64, Fault> {
    let ms = u64::try_from(number).ok().filter(|number| *number > 0);
    let ms = ms.and_then(|number| number.checked_mul(unit));
    ms.filter(|ms| *ms <= EXPIRY_MS_MAX)
        .ok_or(Fault::ExpireTime(command.name))
}

/// The option EX, PX, EXAT or PXAT at `number`, with its argument. `None` if it is another one.
fn read_until(
    command: &Command,
    args: Arguments<'_>,
    number: usize,
) -> Result<Option<Until>, Fault> {
    let option = args.get(number);
    let (unit, is_time) = match () {
        () if option.eq_ignore_ascii_case(b"EX") => (1000, false),
        () if option.eq_ignore_ascii_case(b"PX") => (1, false),
        () if option.eq_ignore_ascii_case(b"EXAT") => (1000, true),
        () if option.eq_ignore_ascii_case(b"PXAT") => (1, true),
        () => return Ok(None),
    };
    if number + 1 >= args.len() {
        return Err(SYNTAX);
    }
    let given = read_integer(args.get(number + 1)).ok_or(NOT_AN_INTEGER)?;
    let ms = lifetime(command, given, unit)?;
    Ok(Some(match is_time {
        true => Until::At(ms),
        false => Until::In(ms),
    }))
}

/// Whether an option is one with a time: any, or the one again that came before, whose place is
/// `before`. The last one counts.
fn is_time(args: Arguments<'_>, option: &[u8], before: Option<usize>) -> bool {
    match before {
        None => ["EX", "PX", "EXAT", "PXAT"]
            .into_iter()
            .any(|name| option.eq_ignore_ascii_case(name.as_bytes())),
        Some(number) => option.eq_ignore_ascii_case(args.get(number)),
    }
}

fn read_set<'a>(command: &Command, args: Arguments<'a>) -> Result<Request<'a>, Fault> {
    let (mut when, mut expiry, mut gets) = (SetWhen::Always, NewExpiry::Usual, false);
    let mut time = None;
    let mut number = 3;
    while number < args.len() {
        let option = args.get(number);
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        let has_time = is_time(args, option, time);
        match () {
            () if is("NX") && matches!(when, SetWhen::Always | SetWhen::Absent) => {
                when = SetWhen::Absent;
            }
            () if is("XX") && matches!(when, SetWhen::Always | SetWhen::Present) => {
                when = SetWhen::Present;
            }
            () if is("IFEQ") && when == SetWhen::Always && number + 1 < args.len() => {
                when = SetWhen::Equals(args.get(number + 1));
                number += 1;
            }
            () if is("GET") => gets = true,
            () if is("KEEPTTL") && time.is_none() => expiry = NewExpiry::Keep,
            () if has_time && expiry == NewExpiry::Usual => {
                if number + 1 >= args.len() {
                    return Err(SYNTAX);
                }
                time = Some(number);
                number += 1;
            }
            () => return Err(SYNTAX),
        }
        number += 1;
    }
    // All options are looked at before the time is read.
    if let Some(until) = time.map(|number| read_until(command, args, number)) {
        expiry = until?.map_or(expiry, NewExpiry::Until);
    }
    Ok(Request::Set {
        key: args.get(1),
        value: args.get(2),
        when,
        gets,
        expiry,
        answers_number: false,
    })
}

fn read_delex(args: Arguments<'_>) -> Result<Request<'_>, Fault> {
    let key = args.get(1);
    match args.len() {
        2 => Ok(Request::Del(args)),
        4 if args.get(2).eq_ignore_ascii_case(b"IFEQ") => {
            Ok(Request::DelEx(key, DelWhen::Equals(args.get(3))))
        }
        4 if args.get(2).eq_ignore_ascii_case(b"IFNE") => {
            Ok(Request::DelEx(key, DelWhen::Differs(args.get(3))))
        }
        _ => Err(SYNTAX),
    }
}

fn read_increx(command: &Command, args: Arguments<'_>) -> Result<IncrEx, Fault> {
    let (mut by, mut lower, mut upper, mut time) = (None, None, None, None);
    let (mut saturates, mut only_new, mut persists) = (false, false, false);
    let mut number = 2;
    while number < args.len() {
        let option = args.get(number);
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        let flag = match () {
            () if is("SATURATE") => Some(&mut saturates),
            () if is("ENX") => Some(&mut only_new),
            () if is("PERSIST") => Some(&mut persists),
            () => None,
        };
        if let Some(flag) = flag {
            if std::mem::replace(flag, true) {
                return Err(SYNTAX);
            }
            number += 1;
            continue;
        }
        let place = match () {
            () if is("BYFLOAT") => {
                return Err(Fault::Text(
                    "ERR BYFLOAT is not supported: numbers are integers of 64 bits",
                ));
            }
            () if is("BYINT") => &mut by,
            () if is("LBOUND") => &mut lower,
            () if is("UBOUND") => &mut upper,
            () if ["EX", "PX", "EXAT", "PXAT"].into_iter().any(is) => &mut time,
            () => return Err(SYNTAX),
        };
        if place.is_some() || number + 1 >= args.len() {
            return Err(SYNTAX);
        }
        *place = Some(number);
        number += 2;
    }
    if persists && (time.is_some() || only_new) {
        return Err(SYNTAX);
    }
    if only_new && time.is_none() {
        return Err(Fault::Text("ERR ENX flag requires an expiration"));
    }
    let bound = |option: Option<usize>, usual: i64, fault: &'static str| match option {
        Some(number) => read_integer(args.get(number + 1)).ok_or(Fault::Text(fault)),
        None => Ok(usual),
    };
    let by = bound(by, 1, "ERR Increment is not an integer or out of range")?;
    let lower = bound(
        lower,
        i64::MIN,
        "ERR LBOUND is not an integer or out of range",
    )?;
    let upper = bound(
        upper,
        i64::MAX,
        "ERR UBOUND is not an integer or out of range",
    )?;
    if lower > upper {
        return Err(Fault::Text("ERR LBOUND can't be greater than UBOUND"));
    }
    let until = match time {
        Some(number) => read_until(command, args, number)?,
        None => None,
    };
    let expiry = match until {
        Some(until) => NewExpiry::Until(until),
        None if persists => NewExpiry::Persist,
        None => NewExpiry::Usual,
    };
    Ok(IncrEx {
        by,
        lower,
        upper,
        saturates,
        expiry,
        only_new,
    })
}

fn read_getex(command: &Command, args: Arguments<'_>) -> Result<NewExpiry, Fault> {
    let mut expiry = NewExpiry::Usual;
    let mut time = None;
    let mut number = 2;
    while number < args.len() {
        let option = args.get(number);
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        let has_time = is_time(args, option, time);
        match () {
            () if is("PERSIST") && time.is_none() => expiry = NewExpiry::Persist,
            () if has_time && expiry == NewExpiry::Usual => {
                if number + 1 >= args.len() {
                    return Err(SYNTAX);
                }
                time = Some(number);
                number += 1;
            }
            () => return Err(SYNTAX),
        }
        number += 1;
    }
    match time {
        Some(number) => Ok(read_until(command, args, number)?.map_or(expiry, NewExpiry::Until)),
        None => Ok(expiry),
    }
}

fn read_expire<'a>(command: &Command, args: Arguments<'a>) -> Result<Request<'a>, Fault> {
    let mut when = ExpireWhen::default();
    for (number, option) in (3..).zip(args.from(3)) {
        let is = |name: &[u8]| option.eq_ignore_ascii_case(name);
        match () {
            () if is(b"NX") => when.has_none = true,
            () if is(b"XX") => when.has_one = true,
            () if is(b"GT") => when.is_later = true,
            () if is(b"LT") => when.is_earlier = true,
            () => return Err(Fault::Option(number)),
        }
    }
    if when.has_none && (when.has_one || when.is_later || when.is_earlier) {
        return Err(Fault::Text(
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        ));
    }
    if when.is_later && when.is_earlier {
        return Err(Fault::Text(
            "ERR GT and LT options at the same time are not compatible",
        ));
    }
    let (unit, is_time) = match command.id {
        Name::Expire => (1000, false),
        Name::PExpire => (1, false),
        Name::ExpireAt => (1000, true),
        _ => (1, true),
    };
    let given = read_integer(args.get(2)).ok_or(NOT_AN_INTEGER)?;
    let ms = given.checked_mul(unit);
    let most = i64::try_from(EXPIRY_MS_MAX).expect("48 bits");
    let ms = ms.filter(|ms| *ms <= most);
    let ms = ms.ok_or(Fault::ExpireTime(command.name))?;
    let until = match u64::try_from(ms) {
        Ok(ms @ 1..) if is_time => Until::At(ms),
        Ok(ms @ 1..) => Until::In(ms),
        // Past: the key is gone at once.
        _ => Until::At(1),
    };
    Ok(Request::Expire(args.get(1), until, when))
}

fn read_copy(args: Arguments<'_>) -> Result<Request<'_>, Fault> {
    let mut pair = Pair {
        from: args.get(1),
        to: args.get(2),
        only_new: true,
        answers_number: true,
    };
    let mut number = 3;
    while number < args.len() {
        let option = args.get(number);
        match () {
            () if option.eq_ignore_ascii_case(b"REPLACE") => pair.only_new = false,
            () if option.eq_ignore_ascii_case(b"DB") && number + 1 < args.len() => {
                let database = read_integer(args.get(number + 1)).ok_or(NOT_AN_INTEGER)?;
                if database != 0 {
                    return Err(Fault::Text("ERR DB index is out of range"));
                }
                number += 1;
            }
            () => return Err(SYNTAX),
        }
        number += 1;
    }
    if pair.from == pair.to {
        return Err(Fault::Text(
            "ERR source and destination objects are the same",
        ));
    }
    Ok(Request::Copy(pair))
}

/// A type that SCAN asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TypeAsked {
    /// The number of the type of members; 0 of plain values.
    Number(u8),
    /// No key has it.
    Other,
}

impl TypeAsked {
    fn read(name: &[u8]) -> Self {
        match MemberType::of_name(name) {
            Some(members) => TypeAsked::Number(members.number()),
            None if name.eq_ignore_ascii_case(b"string") => TypeAsked::Number(0),
            None => TypeAsked::Other,
        }
    }
}

/// One step of a SCAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScanStep<'a> {
    pub(super) cursor: u64,
    pub(super) pattern: Option<&'a [u8]>,
    pub(super) count: u32,
    /// Keys of this type alone are asked for.
    pub(super) of_type: Option<TypeAsked>,
}

impl<'a> ScanStep<'a> {
    pub(super) fn read(args: Arguments<'a>) -> Result<Self, Fault> {
        let cursor = read_unsigned(args.get(1)).ok_or(Fault::Text("ERR invalid cursor"))?;
        let mut step = ScanStep {
            cursor,
            pattern: None,
            count: 10,
            of_type: None,
        };
        let mut number = 2;
        while number < args.len() {
            let option = args.get(number);
            let is = |name: &[u8]| option.eq_ignore_ascii_case(name);
            if number + 1 >= args.len() {
                return Err(SYNTAX);
            }
            let given = args.get(number + 1);
            match () {
                () if is(b"MATCH") => step.pattern = Some(given),
                () if is(b"COUNT") => {
                    let count = read_integer(given).ok_or(NOT_AN_INTEGER)?;
                    if count < 1 {
                        return Err(SYNTAX);
                    }
                    step.count = u32::try_from(count).unwrap_or(u32::MAX);
                }
                () if is(b"TYPE") => step.of_type = Some(TypeAsked::read(given)),
                () => return Err(SYNTAX),
            }
            number += 2;
        }
        Ok(step)
    }
}
