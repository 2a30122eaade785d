//! The command `apply`: guards and effects on up to 255 keys.

use std::collections::BTreeSet;

use clap::Args;
use penstock_net::apply::{Apply, ApplyInstruction, ApplyKey, NumberAt, NumberKind};
use penstock_net::hello::{FEATURE_APPLY, FEATURE_MANY_KEYS, FEATURE_ON_EXPIRE, FEATURE_REPLACE};
use penstock_net::limits::{APPLY_KEYS_MAX, FEW_KEYS_MAX};
use penstock_net::request::Ask;

use super::names::{Names, is_denied, numbers};
use super::output::Output;
use super::server::{Connection, ServerAddress};
use super::text_field::Place;
use super::token::TokenArgs;
use super::values::{Level, done, report, value_of};
use super::{EXIT_CODES, Failure};
use penstock_net::expression::{Field, NamedKey, PutWay, Step, parse_step};

const EXAMPLES: &str = "\
An INSTRUCTION is a guard or an effect; all of them happen or none does, in their order. What is in
front of the first . or space is the NAME of a key, as --key gives it.
  keys     NAME exists, NAME absent, NAME version EPOCH:SEQUENCE, as they were before
  numbers  NUMBER == OPERAND, and != < <= > >=; NUMBER has all bits OPERAND, any bits, no bits
  time     before TIME, since TIME: the server's time is before it; is it or later
  effects  NUMBER = OPERAND, and += -= min= max= &= |= ^=; leaving the type's range fails like a
           guard, but not with += OPERAND saturating, -= OPERAND saturating
           NAME put VALUE, NAME start VALUE (only if it has none), NAME del
           NAME replace VALUE: its expiry stays, and what runs then
           NAME expires in 10m, NAME expires at TIME, NAME expires never
  rates    NUMBER rate 10/s burst 20: takes one unit (take 3: three), if so many are there. NUMBER
           is a u64 that is 0 at first; behind / stand ms, s, m, h or d, or 10m
  return   return NUMBER prints it
  else N   behind it, but not behind a VALUE: reason N (1..255) comes back if this one fails
  NUMBER   NAME.TYPE@OFFSET: u8 u16 u32 u64 i8 i16 i32 i64, with be for big-endian, and bytes from
           the start of the value; or NAME.decimal: the whole value is a number as text
  OPERAND  a number, NUMBER, now, now+30s or now-30s: the server's time in milliseconds since 1970
  TIME     milliseconds since 1970, or NUMBER that holds them; expires at also takes now+30s
  VALUE    all that follows, as for set
A field of four bytes or more that holds a text of digits is refused, as by update-if.

Examples:
  penstock apply --key 's=stock:{tee}' --key 'h=hold:{tee}:7' \\
    's.u32@0 >= 2 else 1' 'h absent else 2' 's.u32@0 -= 2' 'h put u32:2' 'h expires in 10m'
    two of the stock are held for ten minutes, once
  penstock apply --key c=calls:ann 'c start u64:0' 'c.u64@0 rate 10/s burst 20' 'c expires in 1m'
    exit code 1 if ann calls too often
  penstock apply --key 'a=acct:{7}:a' --key 'b=acct:{7}:b' 'a.decimal -= 50' 'a.decimal >= 0' \\
    'b.decimal += 50'";

/// Arguments of `penstock apply`.
#[derive(Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct ApplyArgs {
    /// A key and the name that instructions use for it. One to eight, all with the same {tag}. The
    /// answer tells the version of the change, or that of the first key if nothing has changed
    #[arg(
        long = "key",
        value_name = "NAME=KEY",
        required = true,
        value_parser = NamedKey::parse
    )]
    keys: Vec<NamedKey>,
    /// Guards and effects, each an argument of its own, at most 64
    #[arg(value_name = "INSTRUCTION", required = true, num_args = 1..=64)]
    instructions: Vec<String>,
    /// Fields that read as digits are numbers. Without it a field of four bytes or more that holds
    /// a text of digits is refused, and a shorter one is warned about
    #[arg(long)]
    digits_are_numbers: bool,
    /// How durable it must be before the answer
    #[arg(long, default_value = "disk")]
    level: Level,
    #[command(flatten)]
    token: TokenArgs,
    #[command(flatten)]
    server: ServerAddress,
}

impl ApplyArgs {
    /// Runs the instructions; prints the numbers that they tell, or which one failed.
    pub fn run(self) -> Result<(), Failure> {
        let keys = &self.keys;
        check_keys(keys)?;
        let steps = self.instructions.iter().map(|text| parse_step(text, keys));
        let steps: Vec<Step> = steps.collect::<Result<_, _>>().map_err(Failure::usage)?;
        let asking = Asking {
            server: &self.server,
            level: self.level,
            token: &self.token,
            digits_are_numbers: self.digits_are_numbers,
        };
        Program::new(keys, steps)?.ask(&self.instructions, &asking)
    }
}

/// How a program is asked.
pub(super) struct Asking<'a> {
    pub(super) server: &'a ServerAddress,
    pub(super) level: Level,
    pub(super) token: &'a TokenArgs,
    pub(super) digits_are_numbers: bool,
}

/// Refuses more keys than there may be, and a name or a key that stands twice.
fn check_keys(keys: &[NamedKey]) -> Result<(), Failure> {
    if keys.len() > APPLY_KEYS_MAX {
        return Err(Failure::usage(format_args!(
            "--key is given {} times; at most {APPLY_KEYS_MAX} are allowed",
            keys.len()
        )));
    }
    let (mut names, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for NamedKey { name, key } in keys {
        if !names.insert(name) {
            let twice = format_args!("--key {name}=...: two keys have this name");
            return Err(Failure::usage(twice));
        }
        if !seen.insert(key) {
            let twice = format_args!("--key {name}={key}: the key has another name already");
            return Err(Failure::usage(twice));
        }
    }
    Ok(())
}

/// What is asked, and the names for it.
pub(super) struct Program<'a> {
    names: Names<'a>,
    apply: Apply,
    /// Of each instruction, the argument that it comes from.
    arguments: Vec<usize>,
    /// The fields of fixed width that hold what was there before the request, each once.
    fields: Vec<FieldBefore>,
}

/// A field of a key that the request has not put.
struct FieldBefore {
    key: u8,
    at: NumberAt,
    /// What the request starts the key with, if it is missing.
    start: Option<Vec<u8>>,
}

impl<'a> Program<'a> {
    /// The program of these steps on keys of these names.
    ///
    /// # Errors
    /// A file of a value that cannot be read.
    pub(super) fn new(keys: &'a [NamedKey], steps: Vec<Step>) -> Result<Self, Failure> {
        let mut apply = Apply::new();
        let handles: Vec<ApplyKey> = keys
            .iter()
            .map(|named| apply.key(named.key.as_bytes()))
            .collect();
        let mut are_put = vec![false; keys.len()];
        let mut starts: Vec<Option<Vec<u8>>> = vec![None; keys.len()];
        let mut fields: Vec<FieldBefore> = Vec::new();
        let mut arguments = Vec::new();
        let mut steps = steps.into_iter().enumerate().peekable();
        while let Some((argument, step)) = steps.next() {
            arguments.push(argument);
            match step {
                Step::OnExpiry { key, effect } => {
                    let mut effects = Vec::from_iter(effect.map(|effect| (argument, effect)));
                    let is_same = |(_, next): &(usize, Step)| match next {
                        Step::OnExpiry { key: other, .. } => *other == key,
                        _ => false,
                    };
                    while let Some((argument, Step::OnExpiry { effect, .. })) =
                        steps.next_if(is_same)
                    {
                        effects.extend(effect.map(|effect| (argument, effect)));
                    }
                    arguments.extend(effects.iter().map(|(argument, _)| *argument));
                    add_effects(&mut apply, &handles, key, effects)?;
                }
                Step::Instruction(instruction) => {
                    for (key, at) in numbers(&instruction) {
                        let is_known = fields.iter().any(|it| (it.key, it.at) == (key, at));
                        if !are_put[usize::from(key)] && !is_known {
                            let start = starts[usize::from(key)].clone();
                            fields.push(FieldBefore { key, at, start });
                        }
                    }
                    apply.then(instruction);
                }
                Step::Put { key, way, value } => {
                    let (number, value) = (usize::from(key), value_of(value)?);
                    way.add(&mut apply, handles[number], &value);
                    if way == PutWay::Start {
                        starts[number].get_or_insert(value);
                    } else {
                        are_put[number] = true;
                    }
                }
            }
        }
        Ok(Program {
            names: Names::new(keys),
            apply,
            arguments,
            fields,
        })
    }

    /// Runs the program; prints the numbers that it tells, or which step failed. `texts` has the
    /// text of each step.
    ///
    /// # Errors
    /// As the server answers; the line names the step that failed and what it saw.
    pub(super) fn ask(&self, texts: &[String], asking: &Asking<'_>) -> Result<(), Failure> {
        let connection = asking.server.connect()?;
        self.check_features(&connection, asking.server)?;
        if !asking.digits_are_numbers {
            self.check_text(&connection)?;
        }
        let (level, ask) = (asking.level.ack(), Ask::Apply(&self.apply));
        let answer = asking.token.call(&connection, level, ask)?;
        let instructions = self.apply.instructions();
        if is_denied(&answer) {
            let at = usize::from(answer.instruction);
            let text = self.arguments.get(at).and_then(|&at| texts.get(at));
            let text = text.map(String::as_str);
            return Err(Failure::no(self.names.failed(instructions, text, &answer)));
        }
        let answer = done(answer, self.names.key(0))?;
        let mut out = Output::of_write();
        for line in self.names.lines_of(instructions, &answer.value) {
            out.line(format_args!("{line}"));
        }
        out.finish()?;
        report(&answer, connection.hello().interval_ms)
    }

    /// Refuses what the server is too old for.
    fn check_features(
        &self,
        connection: &Connection,
        server: &ServerAddress,
    ) -> Result<(), Failure> {
        let instructions = self.apply.instructions();
        let arms = instructions.iter().any(|it| it.effects().is_some());
        let replaces = instructions.iter().any(ApplyInstruction::replaces);
        let is_wide = self.apply.keys().len() > FEW_KEYS_MAX;
        let wanted = [
            (true, FEATURE_APPLY, "apply"),
            (arms, FEATURE_ON_EXPIRE, "effects of an expiry"),
            (replaces, FEATURE_REPLACE, "replace"),
            (is_wide, FEATURE_MANY_KEYS, "more than eight keys"),
        ];
        for (is_wanted, feature, name) in wanted {
            if is_wanted && connection.hello().features & feature == 0 {
                return Err(Failure::usage(format_args!(
                    "the server at {server} is older than {name}; update it first"
                )));
            }
        }
        Ok(())
    }

    /// Asks for the fields before the request, and refuses it or warns where one is text.
    fn check_text(&self, connection: &Connection) -> Result<(), Failure> {
        for FieldBefore { key, at, start } in &self.fields {
            // A decimal is text by its kind.
            let NumberKind::Field(field_type) = at.kind() else {
                continue;
            };
            let place = Place {
                key: self.names.key(*key),
                name: self.names.name(*key, *at),
                field: Field {
                    field_type,
                    offset: at.offset(),
                },
            };
            place.check_text(connection, start.as_deref())?;
        }
        Ok(())
    }
}

/// Adds what runs when a key expires.
fn add_effects(
    apply: &mut Apply,
    handles: &[ApplyKey],
    key: u8,
    effects: Vec<(usize, Box<Step>)>,
) -> Result<(), Failure> {
    let mut failed = None;
    apply.on_expire(handles[usize::from(key)], |apply| {
        for (_, effect) in effects {
            match *effect {
                Step::Instruction(instruction) => {
                    apply.then(instruction);
                }
                Step::Put { key, way, value } => match value_of(value) {
                    Ok(value) => way.add(apply, handles[usize::from(key)], &value),
                    Err(failure) => failed = Some(failure),
                },
                Step::OnExpiry { .. } => unreachable!("the parser refuses it"),
            }
        }
    });
    failed.map_or(Ok(()), Err)
}
