//! The commands that read keys: `get`, `ttl` and `scan`.

use std::io::IsTerminal;

use clap::Args;
use penstock_net::instruction::FieldType;
use penstock_net::keyspace::At;
use penstock_net::level::AckLevel;
use penstock_net::reply::Standing;
use penstock_net::request::{Ask, MemberRead, Version, Wanted};

use super::layout_value::Cell;
use super::output::{Output, hex};
use super::schema::{SchemaArgs, fields_of};
use super::server::ServerAddress;
use super::values::{done, parse_expiry, parse_version, version_text};
use super::{EXIT_CODES, Failure};
use penstock_net::expression::{Field, ValueLayout, is_name};

const GET_EXAMPLES: &str = "\
Examples:
  penstock get greeting
  penstock get stock:42 --as u32@0
  penstock get stock:42 --as u32@0,u64be@8
  penstock get 'stock:{42}' --as Stock           each field in a line, by the layout of the schema
  penstock get picture > picture.png
  penstock get price:42 --at-ms 1764763429531      as it was then; its keyspace must keep versions
  penstock get stock:42 --stale-ms 50 --addr 10.0.0.2:7411
    from this node, at most 50 ms old, whoever writes it";

const TTL_EXAMPLES: &str = "\
Examples:
  penstock ttl hold:7          29531 ms, until 1764763429531; or: never";

const SCAN_EXAMPLES: &str = "\
The order is that of slots and key hashes. A key that is there from the begin to the end is
printed at least once. A byte that is no text is printed as \\x and two digits, a backslash as
two.

Examples:
  penstock scan
  penstock scan stock: | wc -l
  penstock scan sale: --values                         each key, a tab, its value
  penstock scan stock: --as Stock                      each key, a tab, its fields as JSON
  penstock scan --limit 10";

/// How a value is shown.
#[derive(Clone, Debug)]
enum Form {
    /// The bytes as they are; on a terminal as text.
    Shown,
    Raw,
    Hex,
    Fields(Vec<Field>),
    /// The fields of the layout with this name.
    Layout(String),
}

/// Arguments of `penstock get`.
#[derive(Args)]
#[command(after_help = format!("{GET_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct GetArgs {
    /// The key, 1 to 1024 bytes
    key: String,
    /// How to print the value: raw, hex, fields such as u32@0,u64be@8, or the name of a layout.
    /// Without it as raw, but on a terminal bytes that are no text as \x and two digits
    #[arg(long = "as", value_name = "FORM", value_parser = parse_form)]
    form: Option<Form>,
    #[command(flatten)]
    schema: SchemaArgs,
    /// As it was at this time, if its keyspace keeps versions
    #[arg(long, value_name = "UNIX_MS", value_parser = parse_expiry, conflicts_with = "at_version")]
    at_ms: Option<u64>,
    /// As it was when its partition had this version; history prints them
    #[arg(long, value_name = "EPOCH:SEQUENCE", value_parser = parse_version)]
    at_version: Option<Version>,
    /// The node that is asked may answer although another one writes the key, with what was so
    /// there at most this long ago. Asked again until the time is over if what it has is older
    #[arg(long, value_name = "N", conflicts_with_all = ["at_ms", "at_version"])]
    stale_ms: Option<u64>,
    /// The same, with what has at least this version of the key's partition, such as a write
    /// printed; however old without --stale-ms
    #[arg(
        long,
        value_name = "EPOCH:SEQUENCE",
        value_parser = parse_version,
        conflicts_with_all = ["at_ms", "at_version"]
    )]
    version_min: Option<Version>,
    /// Also print the version, on standard error; of a read with --stale-ms also how old it is, and
    /// up to which version
    #[arg(long)]
    version: bool,
    #[command(flatten)]
    server: ServerAddress,
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
    /// Print the values as fields of this layout
    #[arg(long = "as", value_name = "LAYOUT", conflicts_with = "values")]
    layout: Option<String>,
    #[command(flatten)]
    schema: SchemaArgs,
    /// Keys to print, at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    #[command(flatten)]
    server: ServerAddress,
}

impl GetArgs {
    /// Prints the value.
    pub fn run(self) -> Result<(), Failure> {
        let key = self.key.as_bytes();
        let at = self.at_ms.map(At::TimeMs);
        let ask = match (at.or(self.at_version.map(At::Version)), self.member()) {
            (Some(at), _) => Ask::GetAt { key, at },
            (None, Some(read)) => Ask::GetOfMember { key, read },
            (None, None) => Ask::get(key),
        };
        let connection = match ask {
            Ask::GetOfMember { .. } => self.server.connect_node()?,
            _ => self.server.connect()?,
        };
        let shown = Form::Shown;
        let form = self.form.as_ref().unwrap_or(&shown);
        let layout = match form {
            Form::Layout(name) => Some(self.schema.layout(&connection, name)?),
            _ => None,
        };
        let answer = match ask {
            Ask::GetOfMember { .. } => connection.call_member(ask)?,
            _ => connection.call(AckLevel::Disk, ask)?,
        };
        let answer = done(answer, &self.key)?;
        let mut out = Output::stdout();
        match form {
            Form::Layout(name) => {
                let layout = layout.as_ref().expect("it was read above");
                for (field, cell) in fields(layout, name, &self.key, &answer.value)? {
                    out.line(format_args!("{field} = {cell}"));
                }
            }
            Form::Shown if std::io::stdout().is_terminal() => {
                let (text, is_escaped) = for_terminal(&answer.value);
                out.line(format_args!("{text}"));
                if is_escaped {
                    eprintln!(
                        "penstock: bytes that are no text are shown as \\x and two digits; --as \
                         u32@0 shows a number, --as raw the bytes"
                    );
                }
            }
            Form::Shown | Form::Raw => out.bytes(&answer.value),
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
            eprintln!("version {}", version_text(answer.version));
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

impl TtlArgs {
    /// Prints how long the key stays.
    pub fn run(self) -> Result<(), Failure> {
        let ask = Ask::Get {
            key: self.key.as_bytes(),
            wanted: Wanted::Expiry,
        };
        let connection = self.server.connect()?;
        let answer = done(connection.call(AckLevel::Disk, ask)?, &self.key)?;
        let expiry = answer
            .expiry
            .ok_or_else(|| Failure::server("the answer does not tell the expiry"))?;
        let mut out = Output::stdout();
        match expiry.left_ms() {
            Some(left_ms) => out.line(format_args!("{left_ms} ms, until {}", expiry.expiry_ms)),
            None => out.line(format_args!("never")),
        }
        out.finish()
    }
}

impl ScanArgs {
    /// Prints the keys, one in a line.
    pub fn run(self) -> Result<(), Failure> {
        let connection = self.server.connect()?;
        let layout = match &self.layout {
            Some(name) => Some(self.schema.layout(&connection, name)?),
            None => None,
        };
        let shown = |key: &str, value: &[u8]| match (&layout, &self.layout) {
            (Some(layout), Some(name)) => fields(layout, name, key, value).map(|it| json_of(&it)),
            _ => Ok(printable(value)),
        };
        let mut out = Output::stdout();
        let wants_values = self.values || layout.is_some();
        let limit = self.limit.map_or(usize::MAX, |limit| {
            usize::try_from(limit).unwrap_or(usize::MAX)
        });
        let client = connection.client();
        let entries = client.scan(self.prefix.as_bytes(), wants_values);
        for entry in entries.take(limit) {
            let entry = entry.map_err(|error| connection.failed_read(&error))?;
            let key = printable(&entry.key);
            match &entry.value {
                None => out.line(format_args!("{key}")),
                Some(value) => out.line(format_args!("{key}\t{}", shown(&key, value)?)),
            }
            if out.is_broken() {
                break;
            }
        }
        out.finish()
    }
}

/// The fields of the value of a key.
fn fields(
    layout: &ValueLayout,
    name: &str,
    key: &str,
    value: &[u8],
) -> Result<Vec<(String, Cell)>, Failure> {
    fields_of(layout, value)
        .map_err(|why| Failure::no(format_args!("{key:?} is not of the layout {name}: {why}")))
}

/// Fields as an object of JSON, in their order.
fn json_of(fields: &[(String, Cell)]) -> String {
    let members = fields
        .iter()
        .map(|(name, cell)| format!("{}:{}", serde_json::Value::from(name.as_str()), cell.json()));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
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

/// A value for a person: text as it is, anything else so that it does nothing to the terminal.
/// Whether it is not as it is.
fn for_terminal(bytes: &[u8]) -> (String, bool) {
    let is_plain = |char: char| !char.is_control() || matches!(char, '\n' | '\t');
    match std::str::from_utf8(bytes) {
        Ok(text) if text.chars().all(is_plain) => (text.into(), false),
        _ => (printable(bytes), true),
    }
}

fn parse_form(text: &str) -> Result<Form, String> {
    match text {
        "raw" => Ok(Form::Raw),
        "hex" => Ok(Form::Hex),
        name if is_name(name) && FieldType::from_name(name).is_none() => {
            Ok(Form::Layout(name.into()))
        }
        fields => fields
            .split(',')
            .map(|field| Field::parse(field.trim()))
            .collect::<Result<_, _>>()
            .map(Form::Fields)
            .map_err(|error| format!("{error}; or raw, hex or the name of a layout")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_text_as_it_is_and_no_byte_that_moves_its_cursor() {
        for text in ["", "hello", "a\\b", "{\n\t\"a\": 1\n}", "Größe"] {
            assert_eq!(for_terminal(text.as_bytes()), (text.to_string(), false));
        }
        for (bytes, shown) in [
            (&100u32.to_le_bytes()[..], "d\\x00\\x00\\x00"),
            (b"\x1b[2J", "\\x1b[2J"),
            (b"\xff\n", "\\xff\\x0a"),
            ("\u{9b}".as_bytes(), "\\xc2\\x9b"),
        ] {
            assert_eq!(for_terminal(bytes), (shown.to_string(), true));
        }
    }
}
