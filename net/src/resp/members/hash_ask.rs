//! What the commands of hashes ask for, read from their arguments.

use crate::resp::fault::{Fault, NOT_AN_INTEGER, SYNTAX};
use crate::resp::fraction::{Fraction, Refused};
use crate::resp::number::read_integer;
use crate::resp::parser::Arguments;
use crate::resp::table::{Command, Name};

use super::chance::read_count;
use super::page::check_cursor;

/// What a command asks of the hash of a key. The first argument is the key.
#[derive(Clone, Copy, Debug)]
pub(in crate::resp) enum HashAsk<'a> {
    /// HSET, and HMSET, which answers OK: fields and values from the second argument on.
    Set(Arguments<'a>, SetReply),
    SetAbsent(&'a [u8], &'a [u8]),
    Get(&'a [u8]),
    /// Fields from the second argument on.
    GetMany(Arguments<'a>),
    /// Fields, values or both.
    All(HashParts),
    Len,
    StrLen(&'a [u8]),
    Exists(&'a [u8]),
    /// Fields from the second argument on.
    Del(Arguments<'a>),
    Add(&'a [u8], i64),
    AddFraction(&'a [u8], Fraction),
    /// A field, or so many; with their values.
    Random(Option<i64>, bool),
    /// HSCAN. Its options are judged behind the type of the key, as in Redis.
    Scan(Arguments<'a>),
}

/// What HSET and HMSET answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) enum SetReply {
    /// How many fields are new.
    Count,
    Ok,
}

/// What is told of each field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::resp) enum HashParts {
    Fields,
    Values,
    Both,
}

impl<'a> HashAsk<'a> {
    /// Reads a command of hashes, whose number of arguments was checked. `None` of another one.
    pub(in crate::resp) fn read(
        command: &Command,
        args: Arguments<'a>,
    ) -> Result<Option<Self>, Fault> {
        let field = || args.get(2);
        Ok(Some(match command.id {
            Name::HSet | Name::HMSet if !args.len().is_multiple_of(2) => {
                return Err(Fault::Arity(command.name));
            }
            Name::HSet => HashAsk::Set(args, SetReply::Count),
            Name::HMSet => HashAsk::Set(args, SetReply::Ok),
            Name::HSetNx => HashAsk::SetAbsent(field(), args.get(3)),
            Name::HGet => HashAsk::Get(field()),
            Name::HMGet => HashAsk::GetMany(args),
            Name::HGetAll => HashAsk::All(HashParts::Both),
            Name::HKeys => HashAsk::All(HashParts::Fields),
            Name::HVals => HashAsk::All(HashParts::Values),
            Name::HLen => HashAsk::Len,
            Name::HStrLen => HashAsk::StrLen(field()),
            Name::HExists => HashAsk::Exists(field()),
            Name::HDel => HashAsk::Del(args),
            Name::HIncrBy => {
                HashAsk::Add(field(), read_integer(args.get(3)).ok_or(NOT_AN_INTEGER)?)
            }
            Name::HIncrByFloat => {
                let by = Fraction::read(args.get(3)).map_err(|refused| {
                    Fault::Text(match refused {
                        Refused::Infinite => "ERR value is NaN or Infinity",
                        refused => refused.text(),
                    })
                })?;
                HashAsk::AddFraction(field(), by)
            }
            Name::HRandField => read_random(args)?,
            Name::HScan => {
                check_cursor(field())?;
                HashAsk::Scan(args)
            }
            _ => return Ok(None),
        }))
    }

    /// Whether it may change the key.
    pub(in crate::resp) fn is_change(self) -> bool {
        matches!(
            self,
            HashAsk::Set(..)
                | HashAsk::SetAbsent(..)
                | HashAsk::Del(_)
                | HashAsk::Add(..)
                | HashAsk::AddFraction(..)
        )
    }
}

fn read_random(args: Arguments<'_>) -> Result<HashAsk<'_>, Fault> {
    const OUT_OF_RANGE: Fault = Fault::Text("ERR value is out of range");
    if args.len() == 2 {
        return Ok(HashAsk::Random(None, false));
    }
    let count = read_count(args.get(2))?;
    let has_values = match args.len() {
        3 => false,
        4 if args.get(3).eq_ignore_ascii_case(b"WITHVALUES") => true,
        _ => return Err(SYNTAX),
    };
    if has_values && !(-i64::MAX / 2..=i64::MAX / 2).contains(&count) {
        return Err(OUT_OF_RANGE);
    }
    Ok(HashAsk::Random(Some(count), has_values))
}
