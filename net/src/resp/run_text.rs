//! KV.RUN: a program of the schema by its name or its id, with its arguments by their names.
//!
//! ```text
//! KV.RUN program key [ "KEY" key ]... [ "TOKEN" uuid ] [ argument=value ]...
//! ```
//!
//! A value is a number as text, or the bytes themselves. Keys stand in the order of the program.

use crate::expression::{kind_text, parse_number};
use crate::limits::PROGRAM_ARGUMENTS_MAX;
use crate::program::{Argument, ArgumentKind, Program, ProgramId, Programs, RunArgument};

use super::number::{read_integer, read_unsigned};
use super::parser::Arguments;

/// Bytes of an argument that an error shows.
const SHOWN_BYTES_MAX: usize = 64;
/// Programs that the error of an unknown one names.
const PROGRAMS_SHOWN_MAX: usize = 16;

/// The arguments of a run, in the order of the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenArguments<'a> {
    all: [RunArgument<'a>; PROGRAM_ARGUMENTS_MAX],
    count: usize,
}

impl<'a> GivenArguments<'a> {
    /// The arguments.
    pub(super) fn all(&self) -> &[RunArgument<'a>] {
        &self.all[..self.count]
    }

    /// Their length in an item, in bytes.
    pub(super) fn item_bytes(&self) -> usize {
        self.all().iter().map(|it| it.item_bytes()).sum()
    }
}

/// The program with this name, or with this id as `schema check` prints it. No name begins with a
/// digit.
pub(super) fn program_named<'p>(programs: &'p Programs, name: &[u8]) -> Option<&'p Program> {
    let name = std::str::from_utf8(name).ok()?;
    match name.parse::<ProgramId>() {
        Ok(id) => programs.find(id),
        Err(_) => programs.named(name),
    }
}

/// The error of a program that there is not.
#[cold]
pub(super) fn unknown_program(programs: &Programs, name: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"ERR no program '");
    out.extend_from_slice(shown(name));
    out.extend_from_slice(b"': ");
    let mut names: Vec<&str> = programs.iter().map(Program::name).collect();
    names.sort_unstable();
    let more = names.len().saturating_sub(PROGRAMS_SHOWN_MAX);
    names.truncate(PROGRAMS_SHOWN_MAX);
    let known = match (names.is_empty(), more) {
        (true, _) => "this node has none".to_string(),
        (false, 0) => format!("there are {}", names.join(", ")),
        (false, more) => format!("there are {} and {more} more", names.join(", ")),
    };
    out.extend_from_slice(known.as_bytes());
}

/// Reads the arguments of a program from `next` on, behind so many keys.
///
/// # Errors
/// The error of RESP, which names the value and what is allowed.
pub(super) fn read_arguments<'a>(
    program: &Program,
    key_count: usize,
    args: Arguments<'a>,
    next: usize,
) -> Result<GivenArguments<'a>, Vec<u8>> {
    let (keys, arguments) = (program.keys(), program.arguments());
    if keys.len() != key_count {
        let (name, keys, count) = (program.name(), keys.join(", "), keys.len());
        let text = format!("ERR {name}: {key_count} keys, and it takes {count}: {keys}");
        return Err(text.into_bytes());
    }
    let mut given = GivenArguments {
        all: [RunArgument::Number(0); PROGRAM_ARGUMENTS_MAX],
        count: arguments.len(),
    };
    let mut is_given = [false; PROGRAM_ARGUMENTS_MAX];
    for word in args.from(next) {
        let end = word.iter().position(|byte| *byte == b'=');
        let (name, value) = word.split_at(end.unwrap_or(word.len()));
        let found = arguments.iter().position(|it| it.name.as_bytes() == name);
        let (Some(number), Some(_)) = (found, end) else {
            return Err(no_argument(program, word));
        };
        if std::mem::replace(&mut is_given[number], true) {
            let text = format!("ERR {}: {} twice", program.name(), arguments[number].name);
            return Err(text.into_bytes());
        }
        let argument = &arguments[number];
        let read = read_argument(argument, &value[1..]);
        given.all[number] = read.ok_or_else(|| refused(program, argument, &value[1..]))?;
    }
    match arguments
        .iter()
        .zip(is_given)
        .find(|(_, is_given)| !is_given)
    {
        None => Ok(given),
        Some((Argument { name, kind }, _)) => {
            let (program, kind) = (program.name(), kind_text(*kind));
            Err(format!("ERR {program}: {name}= is missing: allowed is {kind}").into_bytes())
        }
    }
}

/// An argument that is written so; `None` if it is beyond what it may be.
fn read_argument<'a>(argument: &Argument, value: &'a [u8]) -> Option<RunArgument<'a>> {
    let (min, max) = match argument.kind {
        ArgumentKind::Bytes { max } => {
            return (value.len() <= max as usize).then_some(RunArgument::Bytes(value));
        }
        ArgumentKind::Number { min, max } => (min, max),
    };
    let plain = match read_integer(value) {
        Some(number) => Some(i128::from(number)),
        None => read_unsigned(value).map(i128::from),
    };
    let number = match (plain, value) {
        (Some(number), _) => Some(number),
        (None, b"true") if (min, max) == (0, 1) => Some(1),
        (None, b"false") if (min, max) == (0, 1) => Some(0),
        (None, value) => parse_number((min, max), std::str::from_utf8(value).ok()?).ok(),
    };
    let number = number.filter(|number| (min..=max).contains(number))?;
    let bits = match u64::try_from(number) {
        Ok(bits) => bits,
        Err(_) => i64::try_from(number).ok()?.cast_unsigned(),
    };
    Some(RunArgument::Number(bits))
}

#[cold]
fn refused(program: &Program, argument: &Argument, value: &[u8]) -> Vec<u8> {
    let (program, name) = (program.name(), &argument.name);
    let allowed = match argument.kind {
        ArgumentKind::Number { min: 0, max: 1 } => "0, 1, true or false".to_string(),
        ArgumentKind::Number { min, max } => format!("a number, {min}..{max}"),
        ArgumentKind::Bytes { max } => format!("{max} bytes at most, not {}", value.len()),
    };
    let head = format!("ERR {program}: {name} = '");
    [
        head.as_bytes(),
        shown(value),
        b"': allowed is ",
        allowed.as_bytes(),
    ]
    .concat()
}

#[cold]
fn no_argument(program: &Program, word: &[u8]) -> Vec<u8> {
    let names: Vec<&str> = program
        .arguments()
        .iter()
        .map(|it| it.name.as_str())
        .collect();
    let allowed = match names.is_empty() {
        true => "it has none".to_string(),
        false => format!("NAME=VALUE with NAME of {}", names.join(", ")),
    };
    let head = format!("ERR {}: argument '", program.name());
    [head.as_bytes(), shown(word), b"': ", allowed.as_bytes()].concat()
}

/// The begin of what somebody sent.
fn shown(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(SHOWN_BYTES_MAX)]
}
