//! One row of the table of options: its names, what it takes, how a value is read and shown.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::etcd::endpoints_of;

use super::quantity::{
    Unit, duration_text, meant_duration, meant_size, parse_duration, parse_number, parse_size,
    size_text,
};

/// What each environment variable of the server begins with.
pub const ENVIRONMENT_PREFIX: &str = "PENSTOCK_";

/// The part of the help that an option stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// What most people set.
    Main,
    /// What bounds memory and patience.
    Limits,
    /// What trades one resource for another.
    Tuning,
}

/// The texts that an option accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A path of the file system.
    Path,
    /// A path of the file system, or `off`.
    PathOrOff,
    /// `IP:PORT` or `localhost:PORT`; a port of 0 takes a free one.
    Address,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// As an address, or `off`.
    AddressOrOff,
    /// One word of printable letters.
    Word,
    /// The same, or `off`.
    WordOrOff,
    /// URLs of hosts and ports with commas between them, or `off`.
    UrlsOrOff,
    /// `true` or `false`.
    Switch,
    /// A whole number between the two, both included.
    Count(u64, u64),
    /// A number of bytes between the two, both included; `64MiB` is accepted.
    Size(u64, u64),
    /// A time in the option's unit between the two, both included; `100ms` is accepted.
    Duration(Unit, u64, u64),
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct ConfigOption {
    /// Key in the file; the flag has dashes for underscores, the variable is upper case after the
    /// prefix.
    pub name: &'static str,
    /// What stands if nobody says otherwise, as one would write it.
    pub default: &'static str,
    /// The texts that it accepts.
    pub kind: Kind,
    /// Where the help shows it.
    pub group: Group,
    /// What it does, in full sentences.
    pub(super) meaning: &'static str,
}

/// A text that was read by its option's kind.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Path(PathBuf),
    MaybePath(Option<PathBuf>),
    Address(SocketAddr),
    MaybeAddress(Option<SocketAddr>),
    Word(&'static str),
    Text(String),
    MaybeText(Option<String>),
    MaybeUrls(Option<Vec<String>>),
    Switch(bool),
    Number(u64),
}

impl ConfigOption {
    /// The flag, dashes and all.
    pub fn flag(&self) -> String {
        format!("--{}", self.name.replace('_', "-"))
    }

    /// The environment variable.
    pub fn variable(&self) -> String {
        format!("{ENVIRONMENT_PREFIX}{}", self.name.to_uppercase())
    }

    /// The environment variable that names a file with the value.
    pub fn file_variable(&self) -> String {
        format!("{}_FILE", self.variable())
    }

    /// What it does, in full sentences.
    pub fn meaning(&self) -> &'static str {
        self.meaning.trim()
    }

    /// What may be written, for people: `1MiB..1GiB` or `auto, uring or threads`.
    pub fn allowed(&self) -> String {
        match self.kind {
            Kind::Path => "a path".into(),
            Kind::PathOrOff => "a path, or off".into(),
            Kind::Address => {
                "IP:PORT or localhost:PORT, for example 127.0.0.1:7411 or [::1]:0".into()
            }
            Kind::AddressOrOff => {
                "IP:PORT or localhost:PORT, for example 127.0.0.1:7412 or [::1]:0, or off".into()
            }
            Kind::Choice(words) => match words {
                [init @ .., last] => format!("{} or {last}", init.join(", ")),
                [] => String::new(),
            },
            Kind::Word => "a word".into(),
            Kind::WordOrOff => "a word, or off".into(),
            Kind::UrlsOrOff => "URLs such as http://10.0.0.1:2379 or https://etcd-1:2379, with \
                commas between them, or off"
                .into(),
            Kind::Switch => "true or false".into(),
            Kind::Count(min, max) => format!("a whole number, {min}..{max}"),
            Kind::Size(min, max) => {
                format!(
                    "a size such as 64MiB or a number of bytes, {}..{}",
                    size_text(min),
                    size_text(max)
                )
            }
            Kind::Duration(unit, min, max) => format!(
                "a time such as 100ms or a number of {}, {}..{}",
                unit.suffix(),
                duration_text(unit, min),
                duration_text(unit, max)
            ),
        }
    }

    /// The same for a text that is not allowed, with what was probably meant behind it.
    pub(super) fn allowed_instead_of(&self, text: &str) -> String {
        let meant = match self.kind {
            Kind::Size(..) => meant_size(text),
            Kind::Duration(..) => meant_duration(text),
            _ => None,
        };
        match meant.filter(|meant| self.parse(meant).is_some()) {
            Some(meant) => format!("{}; write {meant}", self.allowed()),
            None => self.allowed(),
        }
    }

    /// The line of the TOML file that was probably meant by a value without its quotes; `None` if
    /// the option takes none with quotes.
    pub(super) fn toml_quoted(&self, written: &str) -> Option<String> {
        let is_text = self.takes(&toml::de::DeValue::String(written.into()));
        is_text.then(|| format!("{} = \"{written}\"", self.name))
    }

    /// Reads one text; `None` if it is not allowed.
    pub(super) fn parse(&self, text: &str) -> Option<Value> {
        let within = |number: u64, min: u64, max: u64| {
            (min..=max)
                .contains(&number)
                .then_some(Value::Number(number))
        };
        match self.kind {
            Kind::Path => (!text.is_empty()).then(|| Value::Path(text.into())),
            Kind::PathOrOff if text == "off" => Some(Value::MaybePath(None)),
            Kind::PathOrOff => (!text.is_empty()).then(|| Value::MaybePath(Some(text.into()))),
            Kind::Address => parse_address(text).map(Value::Address),
            Kind::AddressOrOff if text == "off" => Some(Value::MaybeAddress(None)),
            Kind::AddressOrOff => parse_address(text).map(|it| Value::MaybeAddress(Some(it))),
            Kind::Choice(words) => words
                .iter()
                .find(|word| **word == text)
                .map(|word| Value::Word(word)),
            Kind::WordOrOff if text == "off" => Some(Value::MaybeText(None)),
            Kind::Word => is_word(text).then(|| Value::Text(text.into())),
            Kind::WordOrOff => is_word(text).then(|| Value::MaybeText(Some(text.into()))),
            Kind::UrlsOrOff if text == "off" => Some(Value::MaybeUrls(None)),
            Kind::UrlsOrOff => endpoints_of(text).map(|urls| Value::MaybeUrls(Some(urls))),
            Kind::Switch => text.parse().ok().map(Value::Switch),
            Kind::Count(min, max) => within(parse_number(text)?, min, max),
            Kind::Size(min, max) => within(parse_size(text)?, min, max),
            Kind::Duration(unit, min, max) => within(parse_duration(text, unit)?, min, max),
        }
    }

    /// Writes a value as one would type it.
    pub(super) fn show(&self, value: &Value) -> String {
        match (self.kind, value) {
            (_, Value::Path(path)) => path.display().to_string(),
            (_, Value::MaybePath(Some(path))) => path.display().to_string(),
            (_, Value::MaybeAddress(None) | Value::MaybePath(None)) => "off".into(),
            (_, Value::MaybeText(None) | Value::MaybeUrls(None)) => "off".into(),
            (_, Value::Text(text) | Value::MaybeText(Some(text))) => text.clone(),
            (_, Value::MaybeUrls(Some(urls))) => urls.join(","),
            (_, Value::Address(address)) => address.to_string(),
            (_, Value::MaybeAddress(Some(address))) => address.to_string(),
            (_, Value::Word(word)) => (*word).to_string(),
            (_, Value::Switch(on)) => on.to_string(),
            (Kind::Size(..), Value::Number(number)) => size_text(*number),
            (Kind::Duration(unit, ..), Value::Number(number)) => duration_text(unit, *number),
            (_, Value::Number(number)) => number.to_string(),
        }
    }

    /// The option as a key of the TOML file with its default.
    pub fn toml_default(&self) -> String {
        match self.kind {
            Kind::Switch | Kind::Count(..) => format!("{} = {}", self.name, self.default),
            _ => format!("{} = \"{}\"", self.name, self.default),
        }
    }

    /// Whether TOML writes this option as that type.
    pub(super) fn takes(&self, value: &toml::de::DeValue<'_>) -> bool {
        use toml::de::DeValue;
        match self.kind {
            Kind::Path | Kind::PathOrOff | Kind::Address | Kind::AddressOrOff | Kind::Choice(_) => {
                matches!(value, DeValue::String(_))
            }
            Kind::Word | Kind::WordOrOff | Kind::UrlsOrOff => matches!(value, DeValue::String(_)),
            Kind::Switch => matches!(value, DeValue::Boolean(_)),
            Kind::Count(..) => matches!(value, DeValue::Integer(_)),
            Kind::Size(..) | Kind::Duration(..) => {
                matches!(value, DeValue::Integer(_) | DeValue::String(_))
            }
        }
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_graphic())
}

/// `localhost` is read as the IPv4 loopback, so that one text means one socket everywhere.
fn parse_address(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix("localhost:") {
        Some(port) => Some((Ipv4Addr::LOCALHOST, port.parse().ok()?).into()),
        None => text.parse().ok(),
    }
}

/// The option whose name is nearest to one that none has.
pub(super) fn nearest<'a>(options: &'a [ConfigOption], name: &str) -> &'a ConfigOption {
    options
        .iter()
        .min_by_key(|option| edit_distance(option.name, name))
        .expect("the table is not empty")
}

/// Insertions, deletions and replacements of one character that turn one text into the other.
fn edit_distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (deleted, from_char) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = deleted + 1;
        for (index, to_char) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(from_char != *to_char);
            diagonal = row[index + 1];
            row[index + 1] = replaced.min(diagonal + 1).min(row[index] + 1);
        }
    }
    row[to.len()]
}
