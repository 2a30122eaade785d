//! Which arguments of a command are its keys, and what it does to them: COMMAND tells it.

use super::number::read_integer;
use super::parser::Arguments;
use super::scripts::Eval;
use super::table::{Command, Name};

/// What a command does to one of its keys, in the words of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyFlags {
    /// What it may do with any options.
    pub(super) usual: &'static [&'static str],
    /// What it does with the option GET and without it, if that differs.
    by_get: Option<[&'static [&'static str]; 2]>,
}

impl KeyFlags {
    /// What a command with these arguments does.
    pub(super) fn of(self, args: Arguments<'_>) -> &'static [&'static str] {
        // Commands of many keys have no such option, so all arguments are read once.
        let Some([with, without]) = self.by_get else {
            return self.usual;
        };
        let gets = args.from(3).any(|it| it.eq_ignore_ascii_case(b"GET"));
        if gets { with } else { without }
    }
}

/// The flags of the key `number`, from 0.
pub(super) fn key_flags(id: Name, number: usize) -> KeyFlags {
    let usual: &'static [&'static str] = match id {
        Name::Exists | Name::StrLen | Name::Type | Name::Watch | Name::Touch => &["RO"],
        Name::Object | Name::Memory | Name::HLen | Name::HStrLen | Name::HExists => &["RO"],
        Name::SPublish | Name::SSubscribe | Name::SUnsubscribe => &["not_key"],
        Name::Get | Name::MGet | Name::GetRange | Name::GetBit | Name::BitCount => {
            &["RO", "access"]
        }
        Name::HGet | Name::HMGet | Name::HGetAll | Name::HKeys | Name::HVals => &["RO", "access"],
        Name::HRandField | Name::HScan => &["RO", "access"],
        Name::HSet | Name::HMSet => &["RW", "update"],
        Name::HSetNx => &["RW", "insert"],
        Name::HDel => &["RW", "delete"],
        Name::Ttl | Name::PTtl | Name::ExpireTime | Name::PExpireTime => &["RO", "access"],
        Name::Set => {
            return KeyFlags {
                usual: &["RW", "access", "update", "variable_flags"],
                by_get: Some([&["RW", "access", "update"], &["OW", "update"]]),
            };
        }
        Name::MSet | Name::SetEx | Name::PSetEx => &["OW", "update"],
        Name::SetNx | Name::MSetNx => &["OW", "insert"],
        Name::Del | Name::Unlink | Name::DelEx => &["RM", "delete"],
        Name::GetDel => &["RW", "access", "delete"],
        Name::Append => &["RW", "insert"],
        Name::SetRange | Name::Persist => &["RW", "update"],
        Name::Expire | Name::PExpire | Name::ExpireAt | Name::PExpireAt => &["RW", "update"],
        Name::Rename | Name::RenameNx if number == 0 => &["RW", "access", "delete"],
        Name::Copy if number == 0 => &["RO", "access"],
        Name::Rename | Name::Copy => &["OW", "update"],
        Name::RenameNx => &["OW", "insert"],
        Name::SCard | Name::SIsMember => &["RO"],
        Name::SAdd => &["RW", "insert"],
        Name::SRem => &["RW", "delete"],
        Name::SPop => &["RW", "access", "delete"],
        Name::SMove if number == 0 => &["RW", "access", "delete"],
        Name::SMove => &["RW", "insert"],
        Name::SDiffStore | Name::SInterStore | Name::SUnionStore if number == 0 => {
            &["OW", "update"]
        }
        Name::SDiff | Name::SDiffStore | Name::SInter | Name::SInterCard => &["RO", "access"],
        Name::SInterStore | Name::SMembers | Name::SMIsMember => &["RO", "access"],
        Name::SRandMember | Name::SScan | Name::SUnion | Name::SUnionStore => &["RO", "access"],
        Name::LLen | Name::ZCard => &["RO"],
        Name::LIndex | Name::LPos | Name::LRange => &["RO", "access"],
        Name::LInsert | Name::LPush | Name::LPushX | Name::RPush | Name::RPushX => {
            &["RW", "insert"]
        }
        Name::BLMPop | Name::BLPop | Name::BRPop => &["RW", "access", "delete"],
        Name::LMPop | Name::LPop | Name::RPop => &["RW", "access", "delete"],
        Name::BLMove | Name::BRPopLPush | Name::LMove | Name::RPopLPush if number == 0 => {
            &["RW", "access", "delete"]
        }
        Name::BLMove | Name::BRPopLPush | Name::LMove | Name::RPopLPush => &["RW", "insert"],
        Name::LRem | Name::LTrim => &["RW", "delete"],
        Name::LSet => &["RW", "update"],
        Name::ZAdd => &["RW", "update"],
        Name::ZRem | Name::ZRemRangeByLex | Name::ZRemRangeByRank | Name::ZRemRangeByScore => {
            &["RW", "delete"]
        }
        Name::BzMPop | Name::BzPopMax | Name::BzPopMin => &["RW", "access", "delete"],
        Name::ZMPop | Name::ZPopMax | Name::ZPopMin => &["RW", "access", "delete"],
        Name::ZDiffStore | Name::ZInterStore | Name::ZRangeStore | Name::ZUnionStore
            if number == 0 =>
        {
            &["OW", "update"]
        }
        Name::ZCount | Name::ZDiff | Name::ZDiffStore | Name::ZInter | Name::ZInterCard => {
            &["RO", "access"]
        }
        Name::ZInterStore | Name::ZLexCount | Name::ZMScore | Name::ZRandMember => {
            &["RO", "access"]
        }
        Name::ZRange | Name::ZRangeByLex | Name::ZRangeByScore | Name::ZRangeStore => {
            &["RO", "access"]
        }
        Name::ZRank | Name::ZRevRange | Name::ZRevRangeByLex | Name::ZRevRangeByScore => {
            &["RO", "access"]
        }
        Name::ZRevRank | Name::ZScan | Name::ZScore | Name::ZUnion | Name::ZUnionStore => {
            &["RO", "access"]
        }
        _ => &["RW", "access", "update"],
    };
    KeyFlags {
        usual,
        by_get: None,
    }
}

/// The argument that says how many keys stand behind it, of a command that counts them.
pub(super) fn count_place(id: Name) -> Option<usize> {
    match id {
        Name::LMPop | Name::SInterCard => Some(1),
        Name::ZDiff | Name::ZInter | Name::ZInterCard | Name::ZMPop | Name::ZUnion => Some(1),
        Name::BLMPop | Name::BzMPop | Name::ZDiffStore | Name::ZInterStore | Name::ZUnionStore => {
            Some(2)
        }
        _ => None,
    }
}

/// The numbers of the arguments that are keys, of a command that may have so many. None of a
/// command whose number of keys is wrong.
pub(super) fn key_places(command: &Command, args: Arguments<'_>) -> Vec<usize> {
    if let Some(place) = count_place(command.id) {
        let count = read_integer(args.get(place)).and_then(|it| usize::try_from(it).ok());
        let is_good = |count: &usize| (1..args.len() - place).contains(count);
        let counted = count.filter(is_good).map(|count| place + 1..=place + count);
        // A destination may stand before the number.
        let has_destination = command.keys.0 > 0 && counted.is_some();
        let first = 1..if has_destination { place } else { 1 };
        return first.chain(counted.into_iter().flatten()).collect();
    }
    if let Some(eval) = Eval::read(command.id, args) {
        return eval.map_or(Vec::new(), |eval| (3..3 + eval.keys().count()).collect());
    }
    let place = |number: i8| match usize::try_from(number) {
        Ok(place) => place,
        Err(_) => args.len() - usize::from(number.unsigned_abs()),
    };
    let (first, last, step) = command.keys;
    let (first, last) = (place(first), place(last).min(args.len() - 1));
    let mut places: Vec<usize> = (first..=last).step_by(place(step)).collect();
    // More keys of KV.APPLY and KV.RUN have a word in front.
    if matches!(command.id, Name::KvApply | Name::KvRun) {
        let mut next = first + 1;
        while next + 1 < args.len() && args.get(next).eq_ignore_ascii_case(b"KEY") {
            places.push(next + 1);
            next += 2;
        }
    }
    places
}
