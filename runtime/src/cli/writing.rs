//! The commands that write keys: `set`, `del`, `expire`, `persist` and `update-if`.

use std::iter;

use clap::Args;
use penstock_client::Answer;
use penstock_net::apply::{Action, ApplyInstruction, Operand};
use penstock_net::instruction::{Instruction, Operation};
use penstock_net::request::{Ask, Condition, Expiry, Version};
use penstock_net::status::Status;

use super::applying::{Asking, Program};
use super::names::numbers;
use super::output::Output;
use super::server::ServerAddress;
use super::text_field;
use super::token::TokenArgs;
use super::values::{
    Level, done, parse_expiry, parse_lifetime, parse_version, read_literal, report,
};
use super::{EXIT_CODES, Failure};
use penstock_net::expression::{Literal, NamedKey, PutWay, Step, parse_step_of_only_key};

const SET_EXAMPLES: &str = "\
A VALUE is plain text, 0x and hexadecimal digits, typed numbers (u32:100 or u32:100,u64be:7),
@FILE, or text:... for a text that would be read as one of these. Numbers are little-endian unless
the type ends in be. Digits alone are a text: 1000 is four bytes that update-if cannot count with.
The first line of the answer tells what was stored.

Examples:
  penstock set greeting hello
  penstock set stock:42 u32:100 --if-absent
  penstock set picture @picture.png
  penstock set greeting hullo --if-version 256:17      the version that set or get --version printed
  penstock set hold:7 u32:2 --if-absent --ttl 10m
    the key is gone after ten minutes; nothing is given back
  penstock set hold:7 u32:2 --if-absent --token new
    prints a token; the same with --token and what was printed is executed once";

const DEL_EXAMPLES: &str = "\
Examples:
  penstock del greeting
  penstock del greeting --if-version 256:17";

const UPDATE_IF_EXAMPLES: &str = "\
An INSTRUCTION is a guard or an effect; all of them happen or none does, in their order. It is what
apply takes, without the NAME of the key and its dot.
  guards   exists, absent, FIELD == NUMBER, and != < <= > >=; see apply for all others
  effects  FIELD = NUMBER, FIELD += NUMBER, FIELD -= NUMBER; leaving the type's range fails like a
           guard; min= max= &= |= ^=, put VALUE, del, expires in TIME and others: see apply
  FIELD    TYPE@OFFSET: u8 u16 u32 u64 i8 i16 i32 i64, with be for big-endian, and bytes from the
           start of the value
  second.  before a guard or effect: it is about the key of --second
  else N   behind it: reason N (1..255) comes back if this one fails
A field of four bytes or more that holds a text of digits is refused: store stock as u32:1000, not
as 1000.

Examples:
  penstock update-if stock:42 'u32@0 >= 1' 'u32@0 -= 1'
  penstock update-if hits:home 'u64@0 += 1' --start u64:0
  penstock update-if stock:42 'u32@0 -= 1' --token new   asked again with this token, it sells once
  penstock update-if 'stock:{42}' 'second.u8@0 == 1 else 3' 'u32@0 -= 1 else 1' \\
    --second 'sale:{42}'
  penstock update-if calls:ann 'u64@0 rate 10/s burst 20' --start u64:0 --ttl 1m
    exit code 1 if ann calls too often";

const EXPIRE_EXAMPLES: &str = "\
Examples:
  penstock expire hold:7 30s
  penstock expire hold:7 --at 1764763429531";

const PERSIST_EXAMPLES: &str = "\
Examples:
  penstock persist hold:7";

/// Arguments of `penstock set`.
#[derive(Args)]
#[command(after_help = format!("{SET_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct SetArgs {
    /// The key, 1 to 1024 bytes
    key: String,
    /// The value; see below
    #[arg(allow_hyphen_values = true)]
    value: String,
    /// Only if the key does not exist
    #[arg(long, conflicts_with_all = ["if_present", "if_version"])]
    if_absent: bool,
    /// Gone by itself when it was before; without any of these it stays for ever
    #[arg(long, conflicts_with_all = ["ttl", "expire_at"])]
    keep_ttl: bool,
    #[command(flatten)]
    lifetime: LifetimeArgs,
    #[command(flatten)]
    write: WriteArgs,
}

/// Arguments of `penstock del`.
#[derive(Args)]
#[command(after_help = format!("{DEL_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct DelArgs {
    /// The key, 1 to 1024 bytes
    key: String,
    #[command(flatten)]
    write: WriteArgs,
}

/// What SET and DEL have in common.
#[derive(Args)]
struct WriteArgs {
    /// Only if the key exists
    #[arg(long, conflicts_with = "if_version")]
    if_present: bool,
    /// Only if the key has this version
    #[arg(long, value_name = "EPOCH:SEQUENCE", value_parser = parse_version)]
    if_version: Option<Version>,
    /// How durable it must be before the answer
    #[arg(long, default_value = "disk")]
    level: Level,
    #[command(flatten)]
    token: TokenArgs,
    #[command(flatten)]
    server: ServerAddress,
}

/// When a key expires.
#[derive(Args)]
struct LifetimeArgs {
    /// Gone by itself after so long: 500ms, 30s, 10m, 2h, 7d
    #[arg(long, value_name = "TIME", value_parser = parse_lifetime, conflicts_with = "expire_at")]
    ttl: Option<u64>,
    /// Gone by itself at this time
    #[arg(long, value_name = "UNIX_MS", value_parser = parse_expiry)]
    expire_at: Option<u64>,
}

/// Arguments of `penstock expire`.
#[derive(Args)]
#[command(after_help = format!("{EXPIRE_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct ExpireArgs {
    /// The key, 1 to 1024 bytes
    key: String,
    /// After so long: 500ms, 30s, 10m, 2h, 7d
    #[arg(
        value_name = "TIME",
        value_parser = parse_lifetime,
        required_unless_present = "at",
        conflicts_with = "at"
    )]
    lifetime: Option<u64>,
    /// At this time; one that is past deletes the key
    #[arg(long, value_name = "UNIX_MS", value_parser = parse_expiry)]
    at: Option<u64>,
    /// How durable it must be before the answer
    #[arg(long, default_value = "disk")]
    level: Level,
    #[command(flatten)]
    server: ServerAddress,
}

/// Arguments of `penstock persist`.
#[derive(Args)]
#[command(after_help = format!("{PERSIST_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct PersistArgs {
    /// The key, 1 to 1024 bytes
    key: String,
    /// How durable it must be before the answer
    #[arg(long, default_value = "disk")]
    level: Level,
    #[command(flatten)]
    server: ServerAddress,
}

/// Arguments of `penstock update-if`.
#[derive(Args)]
#[command(after_help = format!("{UPDATE_IF_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct UpdateIfArgs {
    /// The key, 1 to 1024 bytes
    key: String,
    /// Guards and effects, each an argument of its own, at most 64
    #[arg(value_name = "INSTRUCTION", required = true, num_args = 1..=64)]
    instructions: Vec<String>,
    /// A second key, routed as the first: give both the same {tag}
    #[arg(long, value_name = "KEY")]
    second: Option<String>,
    /// What a missing key starts from; without it a missing key is not found
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    start: Option<String>,
    /// Fields that read as digits are numbers. Without it a field of four bytes or more that holds
    /// a text of digits is refused, and a shorter one is warned about
    #[arg(long)]
    digits_are_numbers: bool,
    #[command(flatten)]
    lifetime: LifetimeArgs,
    /// How durable it must be before the answer
    #[arg(long, default_value = "disk")]
    level: Level,
    #[command(flatten)]
    token: TokenArgs,
    #[command(flatten)]
    server: ServerAddress,
}

impl SetArgs {
    /// Writes the value.
    pub fn run(self) -> Result<(), Failure> {
        let value = read_literal(&self.value)?;
        let condition = if self.if_absent {
            Condition::Absent
        } else {
            self.write.condition()
        };
        let unsaid = match self.keep_ttl {
            true => Expiry::Keep,
            false => Expiry::Never,
        };
        let expiry = self.lifetime.expiry().unwrap_or(unsaid);
        let level = self.write.level.ack();
        let connection = self.write.server.connect()?;
        let ask = Ask::Set {
            key: self.key.as_bytes(),
            value: &value,
            when: condition.into(),
            expiry,
        };
        let answer = self.write.token.call(&connection, level, ask)?;
        let answer = done(answer, &self.key)?;
        let mut out = Output::of_write();
        out.line(format_args!("{}", text_field::stored(&self.value, &value)));
        out.finish()?;
        report(&answer, connection.hello().interval_ms)
    }
}

impl DelArgs {
    /// Deletes the key.
    pub fn run(self) -> Result<(), Failure> {
        let condition = self.write.condition();
        let level = self.write.level.ack();
        let connection = self.write.server.connect()?;
        let ask = Ask::Del {
            key: self.key.as_bytes(),
            when: condition.into(),
        };
        let answer = self.write.token.call(&connection, level, ask)?;
        let answer = done(answer, &self.key)?;
        report(&answer, connection.hello().interval_ms)
    }
}

impl WriteArgs {
    fn condition(&self) -> Condition {
        match (self.if_present, self.if_version) {
            (_, Some(version)) => Condition::Version(version),
            (true, None) => Condition::Present,
            (false, None) => Condition::Always,
        }
    }
}

impl LifetimeArgs {
    /// The expiry as an instruction takes it.
    fn operand(&self) -> Option<Operand> {
        match self.expiry()? {
            Expiry::In(ms) => Some(Operand::Now {
                plus_ms: i64::try_from(ms).expect("48 bits"),
            }),
            Expiry::At(ms) => Some(Operand::Immediate(ms)),
            Expiry::Never | Expiry::Keep => None,
        }
    }

    fn expiry(&self) -> Option<Expiry> {
        self.ttl.map(Expiry::In).or(self.expire_at.map(Expiry::At))
    }
}

impl ExpireArgs {
    /// Says when the key is gone; its value stays.
    pub fn run(self) -> Result<(), Failure> {
        let expiry = match (self.lifetime, self.at) {
            (_, Some(at_ms)) => Expiry::At(at_ms),
            (Some(lifetime_ms), None) => Expiry::In(lifetime_ms),
            (None, None) => return Err(Failure::usage("give a TIME or --at UNIX_MS")),
        };
        set_expiry(&self.server, &self.key, self.level, expiry)
    }
}

impl PersistArgs {
    /// Removes the expiry of the key.
    pub fn run(self) -> Result<(), Failure> {
        set_expiry(&self.server, &self.key, self.level, Expiry::Never)
    }
}

fn set_expiry(
    server: &ServerAddress,
    key: &str,
    level: Level,
    expiry: Expiry,
) -> Result<(), Failure> {
    let connection = server.connect()?;
    let ask = Ask::UpdateIf {
        key: key.as_bytes(),
        second_key: None,
        instructions: &[],
        start: None,
        expiry,
    };
    let answer = connection.call(level.ack(), ask)?;
    report(&done(answer, key)?, connection.hello().interval_ms)
}

impl UpdateIfArgs {
    /// Runs the instructions; prints the fields that were changed, or which instruction failed.
    pub fn run(self) -> Result<(), Failure> {
        let steps = self.instructions.iter();
        let steps = steps.map(|text| parse_step_of_only_key(text));
        let steps: Vec<Step> = steps.collect::<Result<_, _>>().map_err(Failure::usage)?;
        if self.second.is_none()
            && let Some(at) = steps.iter().position(|step| names_key(step, SECOND))
        {
            return Err(Failure::usage(format_args!(
                "{:?} is about a second key: give it with --second KEY",
                self.instructions[at]
            )));
        }
        match steps.iter().map(Step::of_update_if).collect() {
            Some(instructions) => self.update(instructions),
            None => self.apply(steps),
        }
    }

    /// Asks an APPLY: an UPDATE_IF has no such instructions.
    fn apply(&self, mut steps: Vec<Step>) -> Result<(), Failure> {
        let mut texts = self.instructions.clone();
        if let Some(start) = &self.start {
            let (way, value) = (PutWay::Start, Literal::Bytes(read_literal(start)?));
            steps.insert(0, Step::Put { key: 0, way, value });
            texts.insert(0, format!("--start {start}"));
        }
        if let Some(expiry) = self.lifetime.operand() {
            steps.push(Step::Instruction(ApplyInstruction {
                key: 0,
                reason: 0,
                action: Action::Expire(expiry),
            }));
            texts.push("the expiry".into());
        }
        let named = |name: &str, key: &str| NamedKey {
            name: name.into(),
            key: key.into(),
        };
        let second = self.second.iter().map(|key| named("second", key));
        let keys: Vec<_> = iter::once(named("", &self.key)).chain(second).collect();
        let asking = Asking {
            server: &self.server,
            level: self.level,
            token: &self.token,
            digits_are_numbers: self.digits_are_numbers,
        };
        Program::new(&keys, steps)?.ask(&texts, &asking)
    }

    /// Asks an UPDATE_IF.
    fn update(&self, instructions: Vec<Instruction>) -> Result<(), Failure> {
        let start = self.start.as_deref().map(read_literal).transpose()?;
        let connection = self.server.connect()?;
        let update = text_field::Update {
            key: &self.key,
            second: self.second.as_deref(),
            instructions: &instructions,
            start: start.as_deref(),
        };
        if !self.digits_are_numbers {
            update.check_text(&connection)?;
        }
        let ask = Ask::UpdateIf {
            key: self.key.as_bytes(),
            second_key: self.second.as_deref().map(str::as_bytes),
            instructions: &instructions,
            start: start.as_deref(),
            expiry: self.lifetime.expiry().unwrap_or(Expiry::Keep),
        };
        let level = self.level.ack();
        let answer = self.token.call(&connection, level, ask)?;
        if answer.status == Status::GuardFailed {
            return Err(Failure::no(self.failed(&instructions, &answer)));
        }
        let answer = done(answer, &self.key)?;
        let mut out = Output::of_write();
        let effects = instructions
            .iter()
            .filter(|instruction| instruction.operation.is_effect());
        for (instruction, bits) in effects.zip(answer.value.as_chunks::<8>().0) {
            out.line(format_args!(
                "{}{}@{} = {}",
                if instruction.key == 0 { "" } else { "second." },
                instruction.field_type.name(),
                instruction.offset,
                number_text(instruction, u64::from_le_bytes(*bits)),
            ));
        }
        out.finish()?;
        if !self.digits_are_numbers {
            update.warn(&answer.value);
        }
        report(&answer, connection.hello().interval_ms)
    }

    /// The instruction that failed and the value that it saw, as text.
    fn failed(&self, instructions: &[Instruction], answer: &Answer) -> String {
        let at = usize::from(answer.instruction);
        let (Some(text), Some(instruction)) = (self.instructions.get(at), instructions.get(at))
        else {
            return "a guard failed; nothing was changed".to_string();
        };
        let actual = answer
            .value
            .first_chunk::<8>()
            .map(|bits| number_text(instruction, u64::from_le_bytes(*bits)))
            .unwrap_or_default();
        let saw = match instruction.operation {
            Operation::Exists => "the key does not exist".to_string(),
            Operation::Absent => "the key exists".to_string(),
            _ if answer.is_overflow => format!(
                "the field is {actual} and would leave the range of {}",
                instruction.field_type.name()
            ),
            _ => format!("the field is {actual}"),
        };
        let reason = match answer.reason {
            0 => String::new(),
            reason => format!(", reason {reason}"),
        };
        format!("{text:?} failed: {saw}{reason}; nothing was changed")
    }
}

/// The number of the key of `--second`.
const SECOND: u8 = 1;

/// Whether a step is about the key with this number.
fn names_key(step: &Step, number: u8) -> bool {
    match step {
        Step::Instruction(instruction) => {
            instruction.key == number || numbers(instruction).any(|(key, _)| key == number)
        }
        Step::Put { key, .. } => *key == number,
        Step::OnExpiry { key, effect } => {
            *key == number || effect.as_ref().is_some_and(|step| names_key(step, number))
        }
    }
}

fn number_text(instruction: &Instruction, bits: u64) -> String {
    if instruction.field_type.is_signed() {
        bits.cast_signed().to_string()
    } else {
        bits.to_string()
    }
}
