//! The commands that ask a running server.

use std::fs::File;
use std::io::{IsTerminal, Read};

use crate::cli::expression::{Field, Literal, parse_instruction};
use clap::{Args, ValueEnum};
use penstock_net::instruction::{Instruction, Operation};
use penstock_net::keyspace::At;
use penstock_net::level::AckLevel;
use penstock_net::limits::{EXPIRY_MS_MAX, SCAN_ENTRIES_MAX, VALUE_BYTES_HARD_MAX};
use penstock_net::reply::{ITEM_FLAG_OVERFLOW, Standing};
use penstock_net::request::{Condition, Expiry, MemberRead, Version, Wanted};
use penstock_net::scan::{ScanPage, ScanRequest, ScanValue};
use penstock_net::status::Status;

use super::connection::{Answer, Effect, ServerAddress, refused};
use super::output::{Output, hex};
use super::status::{is_alone, read_info};
use super::text_field;
use super::{EXIT_CODES, Failure};

const GET_EXAMPLES: &str = "\
Examples:
  penstock get greeting
  penstock get stock:42 --as u32@0
  penstock get stock:42 --as u32@0,u64be@8
  penstock get picture > picture.png
  penstock get price:42 --at-ms 1764763429531      as it was then; its keyspace must keep versions
  penstock get stock:42 --stale-ms 50 --addr 10.0.0.2:7411      from this node, at most 50 ms old, whoever writes it";

const SET_EXAMPLES: &str = "\
A VALUE is plain text, 0x and hexadecimal digits, typed numbers (u32:100 or u32:100,u64be:7), @FILE, or text:... for a
text that would be read as one of these. Numbers are little-endian unless the type ends in be. Digits alone are a text:
1000 is four bytes that update-if cannot count with. The first line of the answer tells what was stored.

Examples:
  penstock set greeting hello
  penstock set stock:42 u32:100 --if-absent
  penstock set picture @picture.png
  penstock set greeting hullo --if-version 256:17      the version that set or get --version printed
  penstock set hold:7 u32:2 --if-absent --ttl 10m      the key is gone after ten minutes; nothing is given back";

const DEL_EXAMPLES: &str = "\
Examples:
  penstock del greeting
  penstock del greeting --if-version 256:17";

const UPDATE_IF_EXAMPLES: &str = "\
An INSTRUCTION is a guard or an effect; all of them happen or none does, in their order.
  guards   exists, absent, FIELD == NUMBER, and != < <= > >=
  effects  FIELD = NUMBER, FIELD += NUMBER, FIELD -= NUMBER; leaving the type's range fails like a guard
  FIELD    TYPE@OFFSET: u8 u16 u32 u64 i8 i16 i32 i64, with be for big-endian, and bytes from the start of the value
  second.  before a guard or effect: it is about the key of --second
  else N   behind it: reason N (1..255) comes back if this one fails
A field of four bytes or more that holds a text of digits is refused: store stock as u32:1000, not as 1000.

Examples:
  penstock update-if stock:42 'u32@0 >= 1' 'u32@0 -= 1'
  penstock update-if visits 'u64@0 += 1' --start u64:0
  penstock update-if 'stock:{42}' 'second.u8@0 == 1 else 3' 'u32@0 -= 1 else 1' --second 'sale:{42}'";

const TTL_EXAMPLES: &str = "\
Examples:
  penstock ttl hold:7          29531 ms, until 1764763429531; or: never";

const EXPIRE_EXAMPLES: &str = "\
Examples:
  penstock expire hold:7 30s
  penstock expire hold:7 --at 1764763429531";

const PERSIST_EXAMPLES: &str = "\
Examples:
  penstock persist hold:7";

const SCAN_EXAMPLES: &str = "\
The order is that of slots and key hashes. A key that is there from the begin to the end is printed at least once. A byte that
is no text is printed as \\x and two digits, a backslash as two.

Examples:
  penstock scan
  penstock scan stock: | wc -l
  penstock scan sale: --values                         each key, a tab, its value
  penstock scan --limit 10";

const PING_EXAMPLES: &str = "\
Examples:
  penstock ping
  penstock ping --count 10 --addr 127.0.0.1:7420";

const INFO_EXAMPLES: &str = "\
Examples:
  penstock info
  penstock info replication
  penstock info | jq .counters";

/// How durable a write must be before its answer.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Level {
    /// In the server's memory
    None,
    /// On the device within the server's interval
    Interval,
    /// On the device
    Disk,
    /// On the device, and received by every node of the sync set
    Replica,
}

impl Level {
    pub(super) fn ack(self) -> AckLevel {
        match self {
            Level::None => AckLevel::None,
            Level::Interval => AckLevel::Interval,
            Level::Disk => AckLevel::Disk,
            Level::Replica => AckLevel::Replica,
        }
    }
}

/// How a value is shown.
#[derive(Clone, Debug)]
enum Form {
    Raw,
    Hex,
    Fields(Vec<Field>),
}

/// Arguments of `penstock get`.
#[derive(Args)]
#[command(after_help = format!("{GET_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct GetArgs {
    /// The key, 1 to 1024 bytes
    key: String,
    /// How to print the value: raw, hex, or fields such as u32@0,u64be@8
    #[arg(long = "as", value_name = "FORM", default_value = "raw", value_parser = parse_form)]
    form: Form,
    /// As it was at this time, if its keyspace keeps versions
    #[arg(long, value_name = "UNIX_MS", value_parser = parse_expiry, conflicts_with = "at_version")]
    at_ms: Option<u64>,
    /// As it was when its partition had this version; history prints them
    #[arg(long, value_name = "EPOCH:SEQUENCE", value_parser = parse_version)]
    at_version: Option<Version>,
    /// The node that is asked may answer although another one writes the key, with what was so there at most this long
    /// ago. Asked again until the time is over if what it has is older
    #[arg(long, value_name = "N", conflicts_with_all = ["at_ms", "at_version"])]
    stale_ms: Option<u64>,
    /// The same, with what has at least this version of the key's partition, such as a write printed; however old
    /// without --stale-ms
    #[arg(long, value_name = "EPOCH:SEQUENCE", value_parser = parse_version, conflicts_with_all = ["at_ms", "at_version"])]
    version_min: Option<Version>,
    /// Also print the version, on standard error; of a read with --stale-ms also how old it is, and up to which version
    #[arg(long)]
    version: bool,
    #[command(flatten)]
    server: ServerAddress,
}

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
    server: ServerAddress,
}

/// When a key is gone by itself.
#[derive(Args)]
struct LifetimeArgs {
    /// Gone by itself after so long: 500ms, 30s, 10m, 2h, 7d
    #[arg(long, value_name = "TIME", value_parser = parse_lifetime, conflicts_with = "expire_at")]
    ttl: Option<u64>,
    /// Gone by itself at this time
    #[arg(long, value_name = "UNIX_MS", value_parser = parse_expiry)]
    expire_at: Option<u64>,
}

/// Arguments of `penstock ttl`.
#[derive(Args)]
#[command(after_help = format!("{TTL_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct TtlArgs {
    /// The key, 1 to 1024 bytes
    key: String,
    #[command(flatten)]
    server: ServerAddress,
}

/// Arguments of `penstock expire`.
#[derive(Args)]
#[command(after_help = format!("{EXPIRE_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct ExpireArgs {
    /// The key, 1 to 1024 bytes
    key: String,
    /// After so long: 500ms, 30s, 10m, 2h, 7d
    #[arg(value_name = "TIME", value_parser = parse_lifetime, required_unless_present = "at", conflicts_with = "at")]
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

/// Arguments of `penstock scan`.
#[derive(Args)]
#[command(after_help = format!("{SCAN_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct ScanArgs {
    /// Only keys that begin so, at most 1024 bytes
    #[arg(default_value = "")]
    prefix: String,
    /// Print the values as well
    #[arg(long)]
    values: bool,
    /// Keys to print, at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
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
    /// Fields that read as digits are numbers. Without it a field of four bytes or more that holds a text of digits is
    /// refused, and a shorter one is warned about
    #[arg(long)]
    digits_are_numbers: bool,
    #[command(flatten)]
    lifetime: LifetimeArgs,
    /// How durable it must be before the answer
    #[arg(long, default_value = "disk")]
    level: Level,
    #[command(flatten)]
    server: ServerAddress,
}

/// Arguments of `penstock ping`.
#[derive(Args)]
#[command(after_help = format!("{PING_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct PingArgs {
    /// How many times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    #[command(flatten)]
    server: ServerAddress,
}

/// Arguments of `penstock info`.
#[derive(Args)]
#[command(after_help = format!("{INFO_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct InfoArgs {
    /// One part of it, as replication, counters or histograms; all without
    #[arg(value_name = "PART")]
    part: Option<String>,
    #[command(flatten)]
    server: ServerAddress,
}

impl GetArgs {
    /// Prints the value.
    pub fn run(self) -> Result<(), Failure> {
        let answer = self
            .server
            .connect()?
            .call(AckLevel::Disk, Effect::None, |batch, out| {
                let key = self.key.as_bytes();
                let at = self.at_ms.map(At::TimeMs);
                match (at.or(self.at_version.map(At::Version)), self.member()) {
                    (Some(at), _) => batch.get_at(out, key, at),
                    (None, Some(read)) => batch.get_of_member(out, key, Wanted::Value, read),
                    (None, None) => batch.get(out, key),
                }
            })?
            .done(&self.key)?;
        let mut out = Output::stdout();
        match &self.form {
            Form::Raw => {
                out.bytes(&answer.value);
                if std::io::stdout().is_terminal() {
                    out.line(format_args!(""));
                }
            }
            Form::Hex => out.line(format_args!("{}", hex(&answer.value))),
            Form::Fields(fields) => {
                for field in fields {
                    let number = field.read(&answer.value).ok_or_else(|| {
                        Failure::no(format_args!(
                            "{}@{} lies outside the value, which has {} bytes",
                            field.field_type.name(),
                            field.offset,
                            answer.value.len()
                        ))
                    })?;
                    out.line(format_args!("{number}"));
                }
            }
        }
        out.finish()?;
        if self.version {
            eprintln!("version {}", version_text(answer.head.version));
            match answer.standing {
                None => {}
                Some(Standing { age_us, through }) if age_us == u64::MAX => {
                    eprintln!("age unknown, through {}", version_text(through));
                }
                Some(Standing { age_us, through }) => {
                    eprintln!("age {age_us} us, through {}", version_text(through));
                }
            }
        }
        Ok(())
    }

    /// What a member must have to answer.
    fn member(&self) -> Option<MemberRead> {
        let is_asked = self.stale_ms.is_some() || self.version_min.is_some();
        is_asked.then(|| MemberRead {
            staleness_us_max: self.stale_ms.map_or(u64::MAX, |ms| ms.saturating_mul(1000)),
            version_min: self.version_min.unwrap_or_default(),
        })
    }
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
        let mut connection = self.write.server.connect()?;
        let answer = connection.call(level, Effect::Write, |batch, out| {
            batch.set_with(out, self.key.as_bytes(), &value, condition, expiry);
        })?;
        let answer = answer.done(&self.key)?;
        let mut out = Output::stdout();
        out.line(format_args!("{}", text_field::stored(&self.value, &value)));
        out.finish()?;
        answer.report(connection.hello.interval_ms)
    }
}

impl DelArgs {
    /// Deletes the key.
    pub fn run(self) -> Result<(), Failure> {
        let condition = self.write.condition();
        let level = self.write.level.ack();
        let mut connection = self.write.server.connect()?;
        let answer = connection.call(level, Effect::Write, |batch, out| {
            batch.del(out, self.key.as_bytes(), condition);
        })?;
        answer.done(&self.key)?.report(connection.hello.interval_ms)
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
    fn expiry(&self) -> Option<Expiry> {
        self.ttl.map(Expiry::In).or(self.expire_at.map(Expiry::At))
    }
}

impl TtlArgs {
    /// Prints how long the key stays.
    pub fn run(self) -> Result<(), Failure> {
        let answer = self
            .server
            .connect()?
            .call(AckLevel::Disk, Effect::None, |batch, out| {
                batch.get_with(out, self.key.as_bytes(), Wanted::Expiry);
            })?
            .done(&self.key)?;
        let told = answer
            .expiry
            .ok_or_else(|| Failure::server("the answer does not tell the expiry"))?;
        let mut out = Output::stdout();
        match told.left_ms() {
            Some(left_ms) => out.line(format_args!("{left_ms} ms, until {}", told.expiry_ms)),
            None => out.line(format_args!("never")),
        }
        out.finish()
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
    /// Makes the key stay for ever.
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
    let mut connection = server.connect()?;
    let answer = connection.call(level.ack(), Effect::Write, |batch, out| {
        batch.update_if_with(out, key.as_bytes(), None, &[], None, expiry);
    })?;
    answer.done(key)?.report(connection.hello.interval_ms)
}

impl ScanArgs {
    /// Prints the keys, one in a line.
    pub fn run(self) -> Result<(), Failure> {
        let mut connection = self.server.connect()?;
        let mut out = Output::stdout();
        let mut left = self.limit.unwrap_or(u64::MAX);
        let mut cursor = 0;
        while left > 0 && !out.is_broken() {
            let request = ScanRequest {
                cursor,
                entries_max: u32::try_from(left)
                    .map_or(SCAN_ENTRIES_MAX, |left| left.min(SCAN_ENTRIES_MAX)),
                wants_values: self.values,
                ..ScanRequest::begin(self.prefix.as_bytes())
            };
            let answer = connection
                .call(AckLevel::Disk, Effect::None, |batch, out| {
                    batch.scan(out, &request);
                })?
                .done(&self.prefix)?;
            let page = ScanPage::read(&answer.value).map_err(Failure::server)?;
            // A page ends behind all keys of one hash.
            for entry in page
                .entries()
                .take(usize::try_from(left).unwrap_or(usize::MAX))
            {
                left -= 1;
                let key = printable(entry.key);
                match entry.value {
                    ScanValue::NotAsked => out.line(format_args!("{key}")),
                    ScanValue::Bytes(value) => {
                        out.line(format_args!("{key}\t{}", printable(value)));
                    }
                    ScanValue::LeftOut => {
                        let answer =
                            connection.call(AckLevel::Disk, Effect::None, |batch, out| {
                                batch.get(out, entry.key);
                            })?;
                        // It may be gone by now.
                        if answer.head.status != Status::NotFound {
                            let value = answer.done(&key)?.value;
                            out.line(format_args!("{key}\t{}", printable(&value)));
                        }
                    }
                }
            }
            cursor = page.cursor;
            if cursor == 0 {
                break;
            }
        }
        out.finish()
    }
}

/// Text as it is, but for what would not stay in its line and column.
fn printable(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\\' => text.push_str("\\\\"),
                _ if char.is_control() => {
                    let mut utf8 = [0; 4];
                    for byte in char.encode_utf8(&mut utf8).bytes() {
                        text.push_str(&format!("\\x{byte:02x}"));
                    }
                }
                _ => text.push(char),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

impl UpdateIfArgs {
    /// Runs the instructions; prints the fields that were changed, or which instruction failed.
    pub fn run(self) -> Result<(), Failure> {
        let instructions: Vec<Instruction> = self
            .instructions
            .iter()
            .map(|text| parse_instruction(text))
            .collect::<Result<_, _>>()
            .map_err(Failure::usage)?;
        if self.second.is_none()
            && let Some(at) = instructions
                .iter()
                .position(|instruction| instruction.key == 1)
        {
            return Err(Failure::usage(format_args!(
                "{:?} is about a second key: give it with --second KEY",
                self.instructions[at]
            )));
        }
        let start = self.start.as_deref().map(read_literal).transpose()?;
        let mut connection = self.server.connect()?;
        let update = text_field::Update {
            key: &self.key,
            second: self.second.as_deref(),
            instructions: &instructions,
            start: start.as_deref(),
        };
        if !self.digits_are_numbers {
            update.look(&mut connection)?;
        }
        let answer = connection.call(self.level.ack(), Effect::Write, |batch, out| {
            batch.update_if_with(
                out,
                self.key.as_bytes(),
                self.second.as_deref().map(str::as_bytes),
                &instructions,
                start.as_deref(),
                self.lifetime.expiry().unwrap_or(Expiry::Keep),
            );
        })?;
        if answer.head.status == Status::GuardFailed {
            return Err(Failure::no(self.failed(&instructions, &answer)));
        }
        let answer = answer.done(&self.key)?;
        let mut out = Output::stdout();
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
        answer.report(connection.hello.interval_ms)
    }

    /// Which instruction said no, and what it saw.
    fn failed(&self, instructions: &[Instruction], answer: &Answer) -> String {
        let head = &answer.head;
        let at = usize::from(head.instruction);
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
            _ if head.flags & ITEM_FLAG_OVERFLOW != 0 => format!(
                "the field is {actual} and would leave the range of {}",
                instruction.field_type.name()
            ),
            _ => format!("the field is {actual}"),
        };
        let reason = match head.reason {
            0 => String::new(),
            reason => format!(", reason {reason}"),
        };
        format!("{text:?} failed: {saw}{reason}; nothing was changed")
    }
}

impl PingArgs {
    /// Prints how long each round took.
    pub fn run(self) -> Result<(), Failure> {
        let mut connection = self.server.connect()?;
        let mut out = Output::stdout();
        for round in 1..=self.count {
            let took = connection.ping(&u64::from(round).to_le_bytes())?;
            out.line(format_args!("pong {round}: {} us", took.as_micros()));
        }
        out.finish()
    }
}

impl InfoArgs {
    /// Prints the server's own account.
    pub fn run(self) -> Result<(), Failure> {
        let mut info = self.server.connect()?.info()?;
        if let Some(part) = &self.part {
            info = part_of(&info, part, &self.server)?;
        }
        let mut out = Output::stdout();
        out.line(format_args!("{}", indented(info.trim())));
        out.finish()
    }
}

fn part_of(info: &str, part: &str, server: &ServerAddress) -> Result<String, Failure> {
    let info = read_info(info, server)?;
    match info.get(part) {
        Some(part) => Ok(part.to_string()),
        None if part == "replication" => Err(is_alone(server)),
        None => {
            let parts = info.as_object().into_iter().flatten();
            let parts: Vec<&str> = parts.map(|(name, _)| name.as_str()).collect();
            Err(Failure::usage(format_args!(
                "INFO has no {part:?}; it has {}",
                parts.join(", ")
            )))
        }
    }
}

/// JSON with a line for each member. Only what stands outside strings is touched.
fn indented(json: &str) -> String {
    let mut text = String::new();
    let mut depth = 0_usize;
    let (mut in_string, mut escaped) = (false, false);
    let mut previous = ' ';
    for c in json.chars() {
        if in_string {
            text.push(c);
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            previous = c;
            continue;
        }
        let breaks = match c {
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                !matches!(previous, '{' | '[')
            }
            c if c.is_whitespace() => continue,
            _ => matches!(previous, '{' | '[' | ','),
        };
        if breaks {
            text.push('\n');
            text.extend(std::iter::repeat_n("  ", depth));
        }
        text.push(c);
        match c {
            '{' | '[' => depth += 1,
            ':' => text.push(' '),
            '"' => in_string = true,
            _ => {}
        }
        previous = c;
    }
    text
}

impl Answer {
    /// The answer, if it is a yes.
    pub(super) fn done(self, key: &str) -> Result<Answer, Failure> {
        Err(match self.head.status {
            Status::Ok => return Ok(self),
            Status::NotFound => Failure::no(format_args!("{key:?} does not exist")),
            Status::Exists => Failure::no(format_args!("{key:?} exists; nothing was changed")),
            Status::VersionMismatch => Failure::no(format_args!(
                "{key:?} has version {}; nothing was changed",
                version_text(self.head.version)
            )),
            status => refused(status, &String::from_utf8_lossy(&self.value)),
        })
    }

    /// Prints what a write reached.
    fn report(&self, interval_ms: u32) -> Result<(), Failure> {
        let mut out = Output::stdout();
        let level = self.head.level;
        let loss = match level {
            AckLevel::None => ", a crash may lose it".to_string(),
            AckLevel::Interval => format!(", a crash within {interval_ms} ms may lose it"),
            AckLevel::Disk | AckLevel::Replica => String::new(),
        };
        out.line(format_args!(
            "ok, version {}, level {}{loss}",
            version_text(self.head.version),
            level.name()
        ));
        out.finish()
    }
}

fn read_literal(text: &str) -> Result<Vec<u8>, Failure> {
    match Literal::parse(text).map_err(Failure::usage)? {
        Literal::Bytes(bytes) => Ok(bytes),
        Literal::File(path) => {
            // A device or a huge file must not fill the memory before the server can refuse it.
            let mut bytes = Vec::new();
            File::open(&path)
                .and_then(|file| {
                    file.take(VALUE_BYTES_HARD_MAX as u64 + 1)
                        .read_to_end(&mut bytes)
                })
                .map_err(|error| {
                    Failure::usage(format_args!("cannot read {}: {error}", path.display()))
                })?;
            if bytes.len() > VALUE_BYTES_HARD_MAX {
                return Err(Failure::usage(format_args!(
                    "{} has more than {VALUE_BYTES_HARD_MAX} bytes, the most of any value",
                    path.display()
                )));
            }
            Ok(bytes)
        }
    }
}

fn parse_form(text: &str) -> Result<Form, String> {
    match text {
        "raw" => Ok(Form::Raw),
        "hex" => Ok(Form::Hex),
        fields => fields
            .split(',')
            .map(|field| Field::parse(field.trim()))
            .collect::<Result<_, _>>()
            .map(Form::Fields)
            .map_err(|error| format!("{error}; or raw, or hex")),
    }
}

pub(super) fn parse_version(text: &str) -> Result<Version, String> {
    text.split_once(':')
        .and_then(|(epoch, sequence)| {
            Some(Version {
                epoch: epoch.parse().ok()?,
                sequence: sequence.parse().ok()?,
            })
        })
        .ok_or_else(|| "allowed is EPOCH:SEQUENCE, as set and get --version print it".to_string())
}

pub(super) fn parse_lifetime(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 5] = [
        ("ms", 1),
        ("s", 1_000),
        ("m", 60_000),
        ("h", 3_600_000),
        ("d", 86_400_000),
    ];
    UNITS
        .iter()
        .find_map(|(unit, ms)| {
            let number = text.strip_suffix(unit)?.parse::<u64>().ok()?;
            number.checked_mul(*ms)
        })
        .filter(|ms| (1..=EXPIRY_MS_MAX).contains(ms))
        .ok_or_else(|| {
            format!("allowed is a whole number and ms, s, m, h or d, from 1ms to {EXPIRY_MS_MAX}ms")
        })
}

fn parse_expiry(text: &str) -> Result<u64, String> {
    text.parse()
        .ok()
        .filter(|ms| (1..=EXPIRY_MS_MAX).contains(ms))
        .ok_or_else(|| format!("allowed is 1 to {EXPIRY_MS_MAX}, in milliseconds since 1970"))
}

pub(super) fn version_text(version: Version) -> String {
    format!("{}:{}", version.epoch, version.sequence)
}

fn number_text(instruction: &Instruction, bits: u64) -> String {
    if instruction.field_type.is_signed() {
        bits.cast_signed().to_string()
    } else {
        bits.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_gets_a_line_per_member_and_strings_stay_as_they_are() {
        let json = r#"{"a":1, "b":{"c":"x\"{,}:[]\\","d":[1,2]},"e":{},"f":[]}"#;
        let expected = r#"{
  "a": 1,
  "b": {
    "c": "x\"{,}:[]\\",
    "d": [
      1,
      2
    ]
  },
  "e": {},
  "f": []
}"#;
        assert_eq!(indented(json), expected);
        assert_eq!(indented(&indented(json)), expected);
    }

    #[test]
    fn lifetimes_have_a_unit_and_a_limit() {
        let allowed = [
            ("1ms", 1),
            ("30s", 30_000),
            ("10m", 600_000),
            ("2h", 7_200_000),
        ];
        for (text, ms) in allowed {
            assert_eq!(parse_lifetime(text), Ok(ms));
        }
        assert_eq!(parse_lifetime("281474976710655ms"), Ok(EXPIRY_MS_MAX));
        let wrong = [
            "",
            "30",
            "0s",
            "-1s",
            "1.5s",
            "s",
            "281474976710656ms",
            "99999999999999999d",
        ];
        for text in wrong {
            assert!(
                parse_lifetime(text)
                    .unwrap_err()
                    .contains("from 1ms to 281474976710655ms")
            );
        }
        for text in ["0", "-1", "281474976710656", "now"] {
            assert!(
                parse_expiry(text)
                    .unwrap_err()
                    .contains("1 to 281474976710655")
            );
        }
    }

    #[test]
    fn json_that_is_broken_is_shown_and_no_reason_to_fail() {
        for json in ["", "}", "]]", "{\"a", "{\"a\\"] {
            indented(json);
        }
    }
}
