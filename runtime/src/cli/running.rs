//! `penstock run`: a program of the schema, by its name.

use clap::Args;
use penstock::schema::{NamedProgram, Schema};
use penstock_net::hello::FEATURE_RUN;
use penstock_net::program::{Argument, ArgumentKind, Run, RunArgument};
use penstock_net::request::Ask;

use super::layout_value::bytes_of;
use super::names::{Names, is_denied};
use super::output::Output;
use super::schema::SchemaArgs;
use super::server::ServerAddress;
use super::token::TokenArgs;
use super::values::{Level, done, report};
use super::{EXIT_CODES, Failure};
use penstock_net::expression::{NamedKey, parse_number};

const EXAMPLES: &str = "\
Keys stand in the order of the program's declaration; what is NAME=VALUE with the name of an
argument is that argument. Keys of one program have the same {tag}. Bytes that are no text are
written as 0x and hexadecimal digits. Prints the numbers that the program tells, or which guard
failed, with its reason.

Examples:
  penstock run restock 'stock:{42}' quantity=100 limit_per_buyer=2
  penstock run buy 'stock:{42}' 'order:{42}:7' 'buyer:{42}:ann' quantity=2 hold_ms=600000 \\
    --token new
  penstock run confirm 'stock:{42}' 'order:{42}:7' 'buyer:{42}:ann'";

/// Arguments of `penstock run`.
#[derive(Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct RunArgs {
    /// The name of the program
    program: String,
    /// Its keys in their order, and its arguments
    #[arg(value_name = "KEY|ARGUMENT=VALUE", num_args = 0..=24)]
    words: Vec<String>,
    /// How durable it must be before the answer
    #[arg(long, default_value = "disk")]
    level: Level,
    #[command(flatten)]
    schema: SchemaArgs,
    #[command(flatten)]
    token: TokenArgs,
    #[command(flatten)]
    server: ServerAddress,
}

impl RunArgs {
    /// Runs the program; prints the numbers that it tells, or which guard failed.
    pub fn run(self) -> Result<(), Failure> {
        let connection = self.server.connect()?;
        if connection.hello().features & FEATURE_RUN == 0 {
            return Err(Failure::usage(format_args!(
                "the server at {} is older than programs; update it first",
                self.server
            )));
        }
        let schema = self.schema.read(&connection)?;
        let named = self.find(&schema)?;
        let (keys, run) = self.asked(named)?;
        let ask = Ask::Run(&run);
        let answer = self.token.call(&connection, self.level.ack(), ask)?;
        let names = Names::with_layouts(&keys, layouts(named, &schema));
        let instructions = named.program.instructions();
        if is_denied(&answer) {
            let text = named.text(answer.instruction.into());
            return Err(Failure::no(names.failed(instructions, text, &answer)));
        }
        let answer = done(answer, keys.first().map_or("", |it| it.key.as_str()))?;
        let mut out = Output::of_write();
        for line in names.lines_of(instructions, &answer.value) {
            out.line(format_args!("{line}"));
        }
        out.finish()?;
        report(&answer, connection.hello().interval_ms)
    }

    fn find<'s>(&self, schema: &'s Schema) -> Result<&'s NamedProgram, Failure> {
        schema.program(&self.program).ok_or_else(|| {
            let names = schema.programs().iter().map(|it| it.program.name());
            let names: Vec<&str> = names.collect();
            let known = match names.as_slice() {
                [] => "the schema has none: penstock serve --schema DIR".to_string(),
                names => format!("there are {}", names.join(", ")),
            };
            Failure::usage(format_args!("no program {:?}; {known}", self.program))
        })
    }

    /// The keys with their names, and what is asked.
    fn asked(&self, named: &NamedProgram) -> Result<(Vec<NamedKey>, Run), Failure> {
        let program = &named.program;
        let arguments = program.arguments();
        let (mut keys, mut given) = (Vec::new(), vec![None; arguments.len()]);
        for word in &self.words {
            let argument = word.split_once('=').and_then(|(name, value)| {
                let number = arguments.iter().position(|it| it.name == name)?;
                Some((number, value))
            });
            match argument {
                Some((number, value)) if given[number].is_none() => given[number] = Some(value),
                Some((number, _)) => {
                    let name = &arguments[number].name;
                    return Err(Failure::usage(format_args!("{name} is given twice")));
                }
                None => keys.push(word.as_str()),
            }
        }
        let names = program.keys();
        if keys.len() != names.len() {
            let arguments: Vec<&str> = arguments.iter().map(|it| it.name.as_str()).collect();
            // A key may have "=" in it, so only one key too many is taken for an argument.
            let unknown = match keys.len() > names.len() {
                true => keys.iter().find_map(|key| key.split_once('=')),
                false => None,
            };
            let name = program.name();
            let wrong = match unknown {
                Some((unknown, _)) => format!("program {name} has no argument {unknown}"),
                None => format!(
                    "program {name} takes {} keys ({}), and {} are given: {}",
                    names.len(),
                    names.join(", "),
                    keys.len(),
                    keys.join(", "),
                ),
            };
            return Err(Failure::usage(format_args!(
                "{wrong}; its arguments are {}",
                match arguments.is_empty() {
                    true => "none".to_string(),
                    false => arguments.join(", "),
                }
            )));
        }
        let mut run = Run::new(program.id());
        for key in &keys {
            run = run.key(key.as_bytes());
        }
        for (argument, given) in arguments.iter().zip(given) {
            let (name, is) = (&argument.name, kind_of(argument));
            let text = given.ok_or_else(|| {
                Failure::usage(format_args!("argument {name} is missing: {name}={is}"))
            })?;
            run = with(run, argument, text).map_err(|allowed| {
                Failure::usage(format_args!("{name}={text}: allowed is {allowed}"))
            })?;
        }
        let named = names.iter().zip(keys).map(|(name, key)| NamedKey {
            name: name.clone(),
            key: key.into(),
        });
        Ok((named.collect(), run))
    }
}

/// What an argument may be, for people.
fn kind_of(argument: &Argument) -> String {
    penstock_net::expression::kind_text(argument.kind)
}

/// Adds an argument that is written so.
///
/// # Errors
/// What is allowed.
fn with(run: Run, argument: &Argument, text: &str) -> Result<Run, String> {
    match argument.kind {
        ArgumentKind::Number { min: 0, max: 1 } if text == "true" => Ok(run.argument(true)),
        ArgumentKind::Number { min: 0, max: 1 } if text == "false" => Ok(run.argument(false)),
        ArgumentKind::Number { min, max } => {
            let number = parse_number((min, max), text)?;
            let bits = match u64::try_from(number) {
                Ok(bits) => bits,
                Err(_) => i64::try_from(number)
                    .map_err(|_| "a number of 64 bits".to_string())?
                    .cast_unsigned(),
            };
            Ok(run.argument(RunArgument::Number(bits)))
        }
        ArgumentKind::Bytes { max } => {
            let bytes = bytes_of(text)?;
            match bytes.len() <= max as usize {
                true => Ok(run.argument(bytes.as_slice())),
                false => Err(format!("at most {max} bytes; it has {}", bytes.len())),
            }
        }
    }
}

/// The layouts of the keys, in their order.
fn layouts<'s>(
    named: &NamedProgram,
    schema: &'s Schema,
) -> Vec<Option<&'s penstock_net::expression::ValueLayout>> {
    let keys = named.declaration.keys.iter();
    keys.map(|key| schema.layout(key.text().split_once(':')?.1))
        .collect()
}
