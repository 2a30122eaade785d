//! What an operator may set, where each value came from, and what is refused.
//!
//! Every option stands once, in the table below. The flags of `penstock serve`, the `PENSTOCK_...` variables, the keys of
//! the TOML file, the resolved [`Config`], the texts of `--help` and of `penstock config explain` all come from that one
//! table. Sources rank flag > environment > file > default, option by option, and each value remembers its [`Origin`].
//! Nothing is ignored: an unknown key or variable is an error that names the nearest known one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use penstock_net::level::AckLevel;

/// What each environment variable of the server begins with.
pub const ENVIRONMENT_PREFIX: &str = "PENSTOCK_";

/// Variables under the prefix that are no options of the server: where the file is, and the address that clients use.
const OTHER_VARIABLES: [&str; 2] = ["CONFIG", "ADDR"];

/// Room that a frame needs beside one value of the largest size: headers, index, two keys, instructions, extension.
const FRAME_OVERHEAD_BYTES: u64 = 16 << 10;

/// Room that one part of a record needs beside its value: header, key, expiry, extension.
const PART_OVERHEAD_BYTES: u64 = 4 << 10;

/// A request has at most two keys, so its record has at most two values.
const PARTS_MAX: u64 = 2;

/// The log rotates by whole records, so a segment holds at least this many of the largest.
const RECORDS_PER_SEGMENT_MIN: u64 = 4;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Which interface to the kernel carries sockets and disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMode {
    /// io_uring where the kernel allows it, otherwise threads; the banner says which and why.
    Auto,
    /// io_uring or no start at all.
    Uring,
    /// epoll for sockets and a small thread pool for disks.
    Threads,
}

/// How much the server says on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Only what stops the server or a shard.
    Error,
    /// Also what an operator should mend.
    Warn,
    /// Also the banner, starts and stops.
    Info,
    /// Also each connection's end and its cause.
    Debug,
}

/// Where a value came from. The order is the rank: a later one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The table in this file.
    Default,
    /// The TOML file, at this line (from 1).
    File {
        /// Line of the key in the file.
        line: usize,
    },
    /// A `PENSTOCK_...` variable.
    Environment,
    /// A flag of the command.
    Flag,
}

/// Which part of the help an option stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// What most people set.
    Main,
    /// What bounds memory and patience.
    Limits,
    /// What trades one resource for another.
    Tuning,
}

/// Which texts an option accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A path of the file system.
    Path,
    /// `IP:PORT`; a port of 0 takes a free one.
    Address,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Switch,
    /// A whole number between the two, both included.
    Count(u64, u64),
    /// A number of bytes between the two, both included; `64MiB` is accepted.
    Size(u64, u64),
    /// A time in the option's unit between the two, both included; `100ms` is accepted.
    Duration(Unit, u64, u64),
}

/// The unit in which an option's time is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// us
    Microseconds,
    /// ms
    Milliseconds,
    /// s
    Seconds,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct ConfigOption {
    /// Key in the file; the flag has dashes for underscores, the variable is upper case after the prefix.
    pub name: &'static str,
    /// What stands if nobody says otherwise, as one would write it.
    pub default: &'static str,
    /// Which texts are accepted.
    pub kind: Kind,
    /// Where the help shows it.
    pub group: Group,
    /// What it does, in full sentences.
    meaning: &'static str,
}

/// Makes the resolved struct, the table and the way between them from one list.
macro_rules! options {
    ($( $(#[doc = $doc:literal])+ $name:ident: $type:ty = $default:literal, $kind:expr, $group:ident; )+) => {
        /// Every option resolved: what the server runs with.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Config {
            $( $(#[doc = $doc])+ pub $name: $type, )+
        }

        /// Every option once, in the order in which help and `config explain` show them.
        pub const OPTIONS: &[ConfigOption] = &[
            $( ConfigOption {
                name: stringify!($name),
                default: $default,
                kind: $kind,
                group: Group::$group,
                meaning: concat!($($doc),+),
            }, )+
        ];

        impl Config {
            /// Takes values in the order of the table.
            fn from_values(values: Vec<Value>) -> Config {
                assert_eq!(values.len(), OPTIONS.len(), "one value per option");
                let mut values = values.into_iter();
                Config { $( $name: <$type>::from_value(values.next().expect("counted above")), )+ }
            }
        }
    };
}

options! {
    /// Directory of the data. It is made if it is missing; one server at a time uses it.
    data: PathBuf = "./penstock-data", Kind::Path, Main;
    /// Address that every shard listens on together. Anything but loopback needs allow_unauthenticated.
    listen: SocketAddr = "127.0.0.1:7411", Kind::Address, Main;
    /// Port of shard 0 for clients that know the slot map; shard i listens on this + i. 0 takes free ports.
    shard_ports: u16 = "7420", Kind::Count(0, 65535), Main;
    /// Shards, each on a core of its own. 0 takes the number that the data directory has, or one per allowed CPU if it is new.
    shards: u16 = "0", Kind::Count(0, 256), Main;
    /// Interface to the kernel: io_uring, plain threads, or the better one that works here.
    io: IoMode = "auto", Kind::Choice(&["auto", "uring", "threads"]), Main;
    /// Least durability of an acknowledged write. A request that asks for less is raised to this and its reply says so.
    durability: AckLevel = "disk", Kind::Choice(&["none", "interval", "disk"]), Main;
    /// Most that a crash may take from writes acknowledged at level interval.
    interval_ms: u32 = "100ms", Kind::Duration(Unit::Milliseconds, 1, 60_000), Main;
    /// Serve without authentication on an address that other machines can reach.
    allow_unauthenticated: bool = "false", Kind::Switch, Main;
    /// How much is written to standard error.
    log: LogLevel = "info", Kind::Choice(&["error", "warn", "info", "debug"]), Main;
    /// Largest value. A larger one is refused with TOO_LARGE.
    value_bytes_max: u32 = "1MiB", Kind::Size(1, 16 * MIB), Limits;
    /// Largest frame of the protocol, request or reply. It must hold one value of the largest size and 16 KiB beside it.
    frame_bytes_max: u32 = "2MiB", Kind::Size(32 * KIB, 32 * MIB), Limits;
    /// Connections of the whole process. A further one is answered BUSY and closed.
    connections_max: u32 = "10000", Kind::Count(1, 1_000_000), Limits;
    /// Replies that may wait for one slow reader before its requests are no longer read.
    output_bytes_max: u32 = "4MiB", Kind::Size(32 * KIB, GIB), Limits;
    /// A connection without any request for so long is closed. 0 never closes one.
    idle_timeout_s: u32 = "5m", Kind::Duration(Unit::Seconds, 0, 86_400), Limits;
    /// A frame that was begun must be whole within this, or its connection is closed.
    partial_frame_timeout_ms: u32 = "5s", Kind::Duration(Unit::Milliseconds, 10, 600_000), Limits;
    /// A peer that takes no byte of its replies for so long is cut off.
    write_stall_timeout_ms: u32 = "5s", Kind::Duration(Unit::Milliseconds, 10, 600_000), Limits;
    /// Memory for values, all shards together.
    cache_bytes: u64 = "1GiB", Kind::Size(MIB, 1 << 44), Tuning;
    /// Size of one segment file of the log. It must hold four of the largest records.
    segment_bytes: u64 = "64MiB", Kind::Size(MIB, GIB), Tuning;
    /// Group commits that may be on their way to the disk at once, per shard.
    frames_in_flight: u32 = "2", Kind::Count(1, 16), Tuning;
    /// How long a shard with nothing to do watches for work before it sleeps. 0 sleeps at once.
    spin_us: u32 = "50us", Kind::Duration(Unit::Microseconds, 0, 10_000), Tuning;
}

impl Config {
    /// The largest record that a request can ask the log to take, in bytes.
    pub fn record_bytes_max(&self) -> u64 {
        PARTS_MAX * (u64::from(self.value_bytes_max) + PART_OVERHEAD_BYTES)
    }
}

impl Default for Config {
    fn default() -> Self {
        let values = OPTIONS.iter().map(|option| option.parse(option.default));
        Config::from_values(
            values
                .collect::<Option<_>>()
                .expect("each default is allowed"),
        )
    }
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

    /// What it does, in full sentences.
    pub fn meaning(&self) -> &'static str {
        self.meaning.trim()
    }

    /// What may be written, for people: `1MiB..1GiB` or `auto, uring or threads`.
    pub fn allowed(&self) -> String {
        match self.kind {
            Kind::Path => "a path".into(),
            Kind::Address => "IP:PORT, for example 127.0.0.1:7411 or [::1]:0".into(),
            Kind::Choice(words) => match words {
                [init @ .., last] => format!("{} or {last}", init.join(", ")),
                [] => String::new(),
            },
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

    /// Reads one text; `None` if it is not allowed.
    fn parse(&self, text: &str) -> Option<Value> {
        let within = |number: u64, min: u64, max: u64| {
            (min..=max)
                .contains(&number)
                .then_some(Value::Number(number))
        };
        match self.kind {
            Kind::Path => (!text.is_empty()).then(|| Value::Path(text.into())),
            Kind::Address => parse_address(text).map(Value::Address),
            Kind::Choice(words) => words
                .iter()
                .find(|word| **word == text)
                .map(|word| Value::Word(word)),
            Kind::Switch => text.parse().ok().map(Value::Switch),
            Kind::Count(min, max) => within(parse_number(text)?, min, max),
            Kind::Size(min, max) => within(parse_size(text)?, min, max),
            Kind::Duration(unit, min, max) => within(parse_duration(text, unit)?, min, max),
        }
    }

    /// Writes a value as one would type it.
    fn show(&self, value: &Value) -> String {
        match (self.kind, value) {
            (_, Value::Path(path)) => path.display().to_string(),
            (_, Value::Address(address)) => address.to_string(),
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
    fn takes(&self, value: &toml::de::DeValue<'_>) -> bool {
        use toml::de::DeValue;
        match self.kind {
            Kind::Path | Kind::Address | Kind::Choice(_) => matches!(value, DeValue::String(_)),
            Kind::Switch => matches!(value, DeValue::Boolean(_)),
            Kind::Count(..) => matches!(value, DeValue::Integer(_)),
            Kind::Size(..) | Kind::Duration(..) => {
                matches!(value, DeValue::Integer(_) | DeValue::String(_))
            }
        }
    }
}

impl Unit {
    fn suffix(self) -> &'static str {
        match self {
            Unit::Microseconds => "us",
            Unit::Milliseconds => "ms",
            Unit::Seconds => "s",
        }
    }

    fn microseconds(self) -> u64 {
        match self {
            Unit::Microseconds => 1,
            Unit::Milliseconds => 1_000,
            Unit::Seconds => 1_000_000,
        }
    }
}

/// What each source says, before anything is resolved.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Option names (as in the table) with the texts given by flags.
    pub flags: Vec<(&'static str, String)>,
    /// Every variable of the process; those without the prefix are passed over.
    pub environment: Vec<(String, String)>,
    /// Path and text of the TOML file, if one was named.
    pub file: Option<(PathBuf, String)>,
}

impl Sources {
    /// Reads this process's environment, and the file that `config` or else `PENSTOCK_CONFIG` names.
    pub fn of_process(
        flags: Vec<(&'static str, String)>,
        config: Option<PathBuf>,
    ) -> Result<Sources, ConfigError> {
        let environment: Vec<(String, String)> = std::env::vars_os()
            .map(|(name, value)| {
                (
                    name.to_string_lossy().into_owned(),
                    value.to_string_lossy().into_owned(),
                )
            })
            .collect();
        let named = config.or_else(|| std::env::var_os("PENSTOCK_CONFIG").map(PathBuf::from));
        let file = match named {
            Some(path) => match std::fs::read_to_string(&path) {
                Ok(text) => Some((path, text)),
                Err(error) => {
                    return Err(ConfigError::Unreadable {
                        path,
                        cause: error.to_string(),
                    });
                }
            },
            None => None,
        };
        Ok(Sources {
            flags,
            environment,
            file,
        })
    }
}

/// Every option resolved, together with where it came from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the server runs with.
    pub config: Config,
    shown: Vec<String>,
    origins: Vec<Origin>,
    file: Option<PathBuf>,
}

impl Settings {
    /// Merges the sources by rank and checks each value and what must hold between them.
    pub fn resolve(sources: &Sources) -> Result<Settings, ConfigError> {
        let mut chosen: Vec<(Origin, String)> = OPTIONS
            .iter()
            .map(|option| (Origin::Default, option.default.to_string()))
            .collect();
        let mut values: Vec<Value> = OPTIONS
            .iter()
            .map(|option| option.parse(option.default).expect("tested"))
            .collect();
        let file = sources.file.as_ref().map(|(path, _)| path.clone());

        let mut given = Vec::new();
        if let Some((path, text)) = &sources.file {
            read_file(path, text, &mut given)?;
        }
        read_environment(&sources.environment, &mut given)?;
        for (name, text) in &sources.flags {
            let index = position(name).expect("flags are made from the table");
            given.push((index, Origin::Flag, text.clone()));
        }

        for (index, origin, text) in given {
            let option = &OPTIONS[index];
            let value = option.parse(&text).ok_or_else(|| ConfigError::BadValue {
                source: source_text(option, origin, file.as_deref()),
                value: text.clone(),
                allowed: option.allowed(),
            })?;
            // A wrong value is refused even if a higher source overrides it: it would bite when the flag goes away.
            if origin >= chosen[index].0 {
                chosen[index] = (origin, text);
                values[index] = value;
            }
        }

        let shown = OPTIONS
            .iter()
            .zip(&values)
            .map(|(option, value)| option.show(value))
            .collect();
        let settings = Settings {
            config: Config::from_values(values),
            shown,
            origins: chosen.into_iter().map(|(origin, _)| origin).collect(),
            file,
        };
        settings.check_together()?;
        Ok(settings)
    }

    /// Where the option of that name came from; `None` for a name that is not in the table.
    pub fn origin(&self, name: &str) -> Option<Origin> {
        position(name).map(|index| self.origins[index])
    }

    /// The table that `penstock config explain` prints: option, value, origin, meaning, one row each.
    pub fn explain(&self) -> String {
        let rows: Vec<[String; 4]> = OPTIONS
            .iter()
            .enumerate()
            .map(|(index, option)| {
                let origin = match self.origins[index] {
                    Origin::Default => "default".to_string(),
                    origin => source_text(option, origin, self.file.as_deref()),
                };
                [
                    option.name.to_string(),
                    self.shown[index].clone(),
                    origin,
                    option.meaning().to_string(),
                ]
            })
            .collect();
        let heading = ["OPTION", "VALUE", "FROM", "MEANING"].map(String::from);
        let width = |column: usize| {
            rows.iter()
                .chain([&heading])
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let (name, value, origin) = (width(0), width(1), width(2));
        std::iter::once(&heading)
            .chain(&rows)
            .map(|row| {
                format!(
                    "{:name$}  {:value$}  {:origin$}  {}\n",
                    row[0], row[1], row[2], row[3]
                )
            })
            .collect()
    }

    /// What must hold between options. The text names both, with their values, and what to change.
    fn check_together(&self) -> Result<(), ConfigError> {
        let config = &self.config;
        if !is_loopback(config.listen.ip()) && !config.allow_unauthenticated {
            return self.conflict(
                "listen",
                "other machines could reach it and there is no authentication yet; listen on 127.0.0.1, or give \
                 --allow-unauthenticated if the network is yours",
            );
        }
        let frame_min = u64::from(config.value_bytes_max) + FRAME_OVERHEAD_BYTES;
        if u64::from(config.frame_bytes_max) < frame_min {
            return self.conflict(
                "frame_bytes_max",
                &format!(
                    "a value of value_bytes_max = {} and its headers need at least {frame_min} bytes",
                    size_text(config.value_bytes_max.into())
                ),
            );
        }
        if config.output_bytes_max < config.frame_bytes_max {
            return self.conflict(
                "output_bytes_max",
                &format!(
                    "it must hold one reply of frame_bytes_max = {}",
                    size_text(config.frame_bytes_max.into())
                ),
            );
        }
        let segment_min = RECORDS_PER_SEGMENT_MIN * config.record_bytes_max();
        if config.segment_bytes < segment_min {
            return self.conflict(
                "segment_bytes",
                &format!(
                    "four of the largest records must fit, and with value_bytes_max = {} these take {segment_min} bytes; \
                     raise it or lower value_bytes_max",
                    size_text(config.value_bytes_max.into())
                ),
            );
        }
        if config.shard_ports != 0 {
            let first = u32::from(config.shard_ports);
            let ports = first..first + u32::from(config.shards.max(1));
            if ports.end > 1 << 16 {
                return self.conflict(
                    "shard_ports",
                    &format!(
                        "{} shards from there end at port {}, the last is 65535",
                        config.shards,
                        ports.end - 1
                    ),
                );
            }
            if ports.contains(&config.listen.port().into()) {
                return self.conflict(
                    "shard_ports",
                    &format!(
                        "the ports of the shards, {}..{}, take in that of listen = {}",
                        first,
                        ports.end - 1,
                        config.listen
                    ),
                );
            }
        }
        Ok(())
    }

    fn conflict(&self, name: &str, cause: &str) -> Result<(), ConfigError> {
        let index = position(name).expect("named in the table");
        let option = &OPTIONS[index];
        Err(ConfigError::Conflict {
            source: source_text(option, self.origins[index], self.file.as_deref()),
            value: self.shown[index].clone(),
            cause: cause.to_string(),
        })
    }
}

/// Why a configuration is refused. Each shows as one line: where, what was written, what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// The file cannot be read: mend its path or its permissions.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: String,
    },
    /// The file is not TOML: mend that line.
    NotToml {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What the parser says.
        cause: String,
    },
    /// No such option: mend the name.
    Unknown {
        /// Where it was written, with the name.
        source: String,
        /// The known name that is nearest to it.
        nearest: String,
    },
    /// The option exists and does not take that value: mend the value.
    BadValue {
        /// Where it was written, with the name.
        source: String,
        /// What was written.
        value: String,
        /// What may be written.
        allowed: String,
    },
    /// The value is allowed, but not together with another: change one of the two.
    Conflict {
        /// Where it was written, with the name.
        source: String,
        /// What was written.
        value: String,
        /// What it conflicts with and how to mend it.
        cause: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Unreadable { path, cause } => {
                write!(
                    f,
                    "cannot read the configuration {}: {cause}",
                    path.display()
                )
            }
            ConfigError::NotToml { path, line, cause } => {
                write!(f, "{}:{line}: not TOML: {cause}", path.display())
            }
            ConfigError::Unknown { source, nearest } => {
                write!(f, "{source}: no such option; the nearest is {nearest}")
            }
            ConfigError::BadValue {
                source,
                value,
                allowed,
            } => write!(f, "{source} = {value:?}: allowed is {allowed}"),
            ConfigError::Conflict {
                source,
                value,
                cause,
            } => write!(f, "{source} = {value:?}: {cause}"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// A text that was read by its option's kind.
#[derive(Clone, Debug)]
enum Value {
    Path(PathBuf),
    Address(SocketAddr),
    Word(&'static str),
    Switch(bool),
    Number(u64),
}

/// How a field of [`Config`] takes its value. The table pairs kinds with types and a test resolves every bound of every
/// row, so a mismatch is a mistake in the table and not in the input.
trait FromValue {
    fn from_value(value: Value) -> Self;
}

macro_rules! from_value {
    ($($type:ty: $pattern:pat => $result:expr;)+) => {
        $(impl FromValue for $type {
            fn from_value(value: Value) -> Self {
                match value {
                    $pattern => $result,
                    other => panic!("the table gives a {} the value {other:?}", stringify!($type)),
                }
            }
        })+
    };
}

from_value! {
    PathBuf: Value::Path(path) => path;
    SocketAddr: Value::Address(address) => address;
    bool: Value::Switch(on) => on;
    u16: Value::Number(number) => u16::try_from(number).expect("the table bounds it");
    u32: Value::Number(number) => u32::try_from(number).expect("the table bounds it");
    u64: Value::Number(number) => number;
    IoMode: Value::Word(word) => match word {
        "auto" => IoMode::Auto,
        "uring" => IoMode::Uring,
        "threads" => IoMode::Threads,
        other => panic!("the table lists {other}, which is no mode"),
    };
    AckLevel: Value::Word(word) => [AckLevel::None, AckLevel::Interval, AckLevel::Disk]
        .into_iter()
        .find(|level| level.name() == word)
        .expect("the table lists levels by their names");
    LogLevel: Value::Word(word) => match word {
        "error" => LogLevel::Error,
        "warn" => LogLevel::Warn,
        "info" => LogLevel::Info,
        "debug" => LogLevel::Debug,
        other => panic!("the table lists {other}, which is no level"),
    };
}

/// Option index, origin and text, as the sources give them.
type Given = Vec<(usize, Origin, String)>;

fn read_file(path: &Path, text: &str, given: &mut Given) -> Result<(), ConfigError> {
    use toml::de::{DeTable, DeValue};
    let line_of = |offset: usize| 1 + text[..offset].matches('\n').count();
    let table = DeTable::parse(text).map_err(|error| ConfigError::NotToml {
        path: path.to_path_buf(),
        line: line_of(error.span().map_or(0, |span| span.start)),
        cause: error.message().replace('\n', ", "),
    })?;
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        let line = line_of(key.span().start);
        let name = key.get_ref().as_ref();
        let Some(index) = position(name) else {
            return Err(ConfigError::Unknown {
                source: format!("{}:{line}: {name}", path.display()),
                nearest: nearest(name).name.to_string(),
            });
        };
        let option = &OPTIONS[index];
        let raw = text[value.span()].trim();
        if !option.takes(value.get_ref()) {
            return Err(ConfigError::BadValue {
                source: source_text(option, Origin::File { line }, Some(path)),
                value: raw.lines().next().unwrap_or_default().to_string(),
                allowed: option.allowed(),
            });
        }
        let written = match value.get_ref() {
            DeValue::String(written) => written.to_string(),
            _ => raw.to_string(),
        };
        given.push((index, Origin::File { line }, written));
    }
    Ok(())
}

fn read_environment(
    environment: &[(String, String)],
    given: &mut Given,
) -> Result<(), ConfigError> {
    for (variable, text) in environment {
        let Some(rest) = variable.strip_prefix(ENVIRONMENT_PREFIX) else {
            continue;
        };
        if OTHER_VARIABLES.contains(&rest) {
            continue;
        }
        let known = OPTIONS
            .iter()
            .position(|option| option.variable() == *variable);
        let Some(index) = known else {
            return Err(ConfigError::Unknown {
                source: format!("environment {variable}"),
                nearest: nearest(&rest.to_lowercase()).variable(),
            });
        };
        given.push((index, Origin::Environment, text.clone()));
    }
    Ok(())
}

fn position(name: &str) -> Option<usize> {
    OPTIONS.iter().position(|option| option.name == name)
}

/// How an option is called at its origin: `penstock.toml:3: shards`, `PENSTOCK_SHARDS`, `--shards`.
fn source_text(option: &ConfigOption, origin: Origin, file: Option<&Path>) -> String {
    match origin {
        Origin::Default => format!("{} (default)", option.name),
        Origin::File { line } => format!(
            "{}:{line}: {}",
            file.unwrap_or(Path::new("")).display(),
            option.name
        ),
        Origin::Environment => option.variable(),
        Origin::Flag => option.flag(),
    }
}

fn nearest(name: &str) -> &'static ConfigOption {
    OPTIONS
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

fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback(),
        IpAddr::V6(v6) => {
            v6.is_loopback() || v6.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback())
        }
    }
}

/// `localhost` is read as the IPv4 loopback, so that one text means one socket everywhere.
fn parse_address(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix("localhost:") {
        Some(port) => Some((Ipv4Addr::LOCALHOST, port.parse().ok()?).into()),
        None => text.parse().ok(),
    }
}

/// Digits, with `_` between them as TOML writes long numbers.
fn parse_number(text: &str) -> Option<u64> {
    let plain = text.starts_with(|c: char| c.is_ascii_digit()) && !text.ends_with('_');
    if !plain || !text.chars().all(|c| c.is_ascii_digit() || c == '_') {
        return None;
    }
    text.replace('_', "").parse().ok()
}

/// Splits `64 MiB` into the number and its unit, which may be missing.
fn parse_with_unit(text: &str) -> Option<(u64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '_')
        .unwrap_or(text.len());
    Some((parse_number(&text[..end])?, text[end..].trim_start()))
}

/// Only binary units: `MB` would be read as one by some and as the other by the rest.
fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = parse_with_unit(text)?;
    let factor = match unit {
        "" | "B" => 1,
        "KiB" => KIB,
        "MiB" => MIB,
        "GiB" => GIB,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// Only whole units of the option: 1500us is no number of milliseconds.
fn parse_duration(text: &str, unit: Unit) -> Option<u64> {
    let (number, written) = parse_with_unit(text)?;
    let microseconds = match written {
        "" => return Some(number),
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        _ => return None,
    };
    let total = number.checked_mul(microseconds)?;
    (total % unit.microseconds() == 0).then(|| total / unit.microseconds())
}

fn size_text(bytes: u64) -> String {
    let units = [(GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")];
    match units
        .iter()
        .find(|(factor, _)| bytes != 0 && bytes.is_multiple_of(*factor))
    {
        Some((factor, unit)) => format!("{}{unit}", bytes / factor),
        None => format!("{bytes}B"),
    }
}

fn duration_text(unit: Unit, number: u64) -> String {
    let microseconds = number * unit.microseconds();
    let larger = [
        (3_600_000_000, "h"),
        (60_000_000, "m"),
        (1_000_000, "s"),
        (1_000, "ms"),
    ];
    match larger.iter().find(|(factor, _)| {
        *factor > unit.microseconds() && number != 0 && microseconds.is_multiple_of(*factor)
    }) {
        Some((factor, larger_unit)) => format!("{}{larger_unit}", microseconds / factor),
        None => format!("{number}{}", unit.suffix()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(
        flags: &[(&'static str, &str)],
        environment: &[(&str, &str)],
        file: &str,
    ) -> Result<Settings, ConfigError> {
        let own = |pair: &(&str, &str)| (pair.0.to_string(), pair.1.to_string());
        Settings::resolve(&Sources {
            flags: flags.iter().map(|(n, t)| (*n, t.to_string())).collect(),
            environment: environment.iter().map(own).collect(),
            file: Some(("p.toml".into(), file.to_string())),
        })
    }

    fn refusal(flags: &[(&'static str, &str)], environment: &[(&str, &str)], file: &str) -> String {
        let line = resolve(flags, environment, file).unwrap_err().to_string();
        assert!(!line.contains('\n'), "one line: {line}");
        line
    }

    #[test]
    fn nothing_given_is_the_defaults() {
        let settings = resolve(&[], &[], "").unwrap();
        assert_eq!(settings.config, Config::default());
        assert_eq!(settings.config.listen.to_string(), "127.0.0.1:7411");
        assert_eq!(settings.config.segment_bytes, 64 << 20);
        assert_eq!(settings.config.idle_timeout_s, 300);
        assert_eq!(settings.config.durability, AckLevel::Disk);
    }

    #[test]
    fn flag_beats_environment_beats_file_beats_default() {
        let file = "shards = 3\nspin_us = 3\nframes_in_flight = 3\n";
        let environment = [("PENSTOCK_SHARDS", "2"), ("PENSTOCK_SPIN_US", "2")];
        let settings = resolve(&[("shards", "1")], &environment, file).unwrap();
        let config = &settings.config;
        assert_eq!(
            (config.shards, config.spin_us, config.frames_in_flight),
            (1, 2, 3)
        );
        assert_eq!(settings.origin("shards"), Some(Origin::Flag));
        assert_eq!(settings.origin("spin_us"), Some(Origin::Environment));
        assert_eq!(
            settings.origin("frames_in_flight"),
            Some(Origin::File { line: 3 })
        );
        assert_eq!(settings.origin("data"), Some(Origin::Default));
        assert_eq!(settings.origin("date"), None);
    }

    #[test]
    fn a_wrong_value_is_refused_even_where_a_flag_overrides_it() {
        let line = refusal(&[("io", "threads")], &[], "io = \"epoll\"");
        assert_eq!(
            line,
            "p.toml:1: io = \"epoll\": allowed is auto, uring or threads"
        );
    }

    #[test]
    fn unknown_key_names_its_line_and_the_nearest_option() {
        let line = refusal(&[], &[], "# head\n\nsegment_byte = 1\n");
        assert_eq!(
            line,
            "p.toml:3: segment_byte: no such option; the nearest is segment_bytes"
        );
        assert!(refusal(&[], &[], "[server]\nlisten = 1").contains("p.toml:1: server"));
    }

    #[test]
    fn unknown_variable_names_the_nearest_one_and_foreign_ones_are_passed_over() {
        let line = refusal(&[], &[("PENSTOCK_LISTN", "x")], "");
        assert_eq!(
            line,
            "environment PENSTOCK_LISTN: no such option; the nearest is PENSTOCK_LISTEN"
        );
        let others = [
            ("HOME", "/"),
            ("PENSTOCK_ADDR", "x"),
            ("PENSTOCK_CONFIG", "y"),
        ];
        resolve(&[], &others, "").unwrap();
    }

    #[test]
    fn wrong_type_in_the_file_names_file_line_key_value_and_what_is_allowed() {
        let line = refusal(&[], &[], "\nshards = \"two\"");
        assert_eq!(
            line,
            "p.toml:2: shards = \"\\\"two\\\"\": allowed is a whole number, 0..256"
        );
        assert!(
            refusal(&[], &[], "allow_unauthenticated = 1").contains("allowed is true or false")
        );
        assert!(refusal(&[], &[], "data = 7").contains("allowed is a path"));
        assert!(refusal(&[], &[], "spin_us = 1.5").contains("= \"1.5\""));
        assert!(refusal(&[], &[], "shards = -1").contains("= \"-1\""));
    }

    #[test]
    fn broken_toml_names_its_line() {
        let line = refusal(&[], &[], "shards = 1\nlisten = \n");
        assert!(line.starts_with("p.toml:2: not TOML: "), "{line}");
    }

    #[test]
    fn unreadable_file_names_its_path() {
        let missing = PathBuf::from("/nowhere/p.toml");
        let error = Sources::of_process(Vec::new(), Some(missing)).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot read the configuration /nowhere/p.toml: ")
        );
    }

    #[test]
    fn address_beyond_loopback_needs_the_flag() {
        for address in ["0.0.0.0:7411", "[::]:7411", "192.168.1.4:7411"] {
            let line = refusal(&[("listen", address)], &[], "");
            assert!(
                line.starts_with("--listen = ") && line.contains("--allow-unauthenticated"),
                "{line}"
            );
            resolve(
                &[("listen", address), ("allow_unauthenticated", "true")],
                &[],
                "",
            )
            .unwrap();
        }
        for address in ["127.0.0.9:1", "[::1]:1", "localhost:1", "127.0.0.1:0"] {
            resolve(&[("listen", address)], &[], "").unwrap();
        }
    }

    #[test]
    fn limits_that_exclude_each_other_are_refused_with_both_named() {
        let frame = refusal(
            &[("value_bytes_max", "4MiB"), ("output_bytes_max", "9MiB")],
            &[],
            "",
        );
        assert!(
            frame.contains("frame_bytes_max") && frame.contains("value_bytes_max = 4MiB"),
            "{frame}"
        );
        let segment = refusal(&[("segment_bytes", "1MiB")], &[], "");
        assert!(segment.contains("--segment-bytes = \"1MiB\""), "{segment}");
        resolve(
            &[("segment_bytes", "1MiB"), ("value_bytes_max", "64KiB")],
            &[],
            "",
        )
        .unwrap();
        let output = refusal(&[("output_bytes_max", "1MiB")], &[], "");
        assert!(output.contains("frame_bytes_max = 2MiB"), "{output}");
        assert!(refusal(&[("shard_ports", "65535"), ("shards", "2")], &[], "").contains("65536"));
        assert!(
            refusal(&[("shard_ports", "7410"), ("shards", "2")], &[], "").contains("7410..7411")
        );
    }

    #[test]
    fn sizes_and_times_take_units_and_nothing_ambiguous() {
        assert_eq!(parse_size("64MiB"), Some(64 << 20));
        assert_eq!(parse_size("64 KiB"), Some(64 << 10));
        assert_eq!(parse_size("1_000"), Some(1000));
        for wrong in ["", "MiB", "64MB", "64M", "-1", "1.5MiB", "+3", "1_", "0x10"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
        assert_eq!(parse_size("99999999999999999GiB"), None);
        assert_eq!(parse_duration("100ms", Unit::Milliseconds), Some(100));
        assert_eq!(parse_duration("2s", Unit::Milliseconds), Some(2000));
        assert_eq!(parse_duration("7", Unit::Seconds), Some(7));
        assert_eq!(parse_duration("1500us", Unit::Milliseconds), None);
        assert_eq!(parse_duration("1d", Unit::Seconds), None);
    }

    #[test]
    fn both_bounds_of_every_row_are_taken_and_one_beyond_is_refused() {
        for (index, option) in OPTIONS.iter().enumerate() {
            let (Kind::Count(min, max) | Kind::Size(min, max) | Kind::Duration(_, min, max)) =
                option.kind
            else {
                continue;
            };
            for number in [min, max] {
                let mut values: Vec<Value> = OPTIONS
                    .iter()
                    .map(|row| row.parse(row.default).unwrap())
                    .collect();
                values[index] = option.parse(&number.to_string()).unwrap();
                assert_eq!(
                    option
                        .parse(&option.show(&values[index]))
                        .map(|value| option.show(&value)),
                    Some(option.show(&values[index])),
                    "what is shown can be typed"
                );
                Config::from_values(values);
            }
            assert!(option.parse(&(max + 1).to_string()).is_none());
            assert!(min == 0 || option.parse(&(min - 1).to_string()).is_none());
        }
    }

    #[test]
    fn every_word_of_every_choice_resolves() {
        for option in OPTIONS {
            let Kind::Choice(words) = option.kind else {
                continue;
            };
            for word in words {
                let settings = resolve(&[(option.name, word)], &[], "").unwrap();
                let row = settings
                    .explain()
                    .lines()
                    .find(|row| row.starts_with(option.name))
                    .map(str::to_string)
                    .unwrap();
                assert!(row.contains(word) && row.contains(&option.flag()), "{row}");
            }
        }
    }

    #[test]
    fn explain_shows_value_origin_and_meaning_of_every_option() {
        let settings = resolve(&[("shards", "2")], &[], "\ncache_bytes = \"3GiB\"").unwrap();
        let table = settings.explain();
        assert_eq!(table.lines().count(), OPTIONS.len() + 1);
        for option in OPTIONS {
            let row = table
                .lines()
                .find(|row| row.split_whitespace().next() == Some(option.name))
                .unwrap();
            assert!(row.ends_with(option.meaning()), "{row}");
        }
        let words = |name: &str| -> Vec<String> {
            let row = table.lines().find(|row| row.starts_with(name)).unwrap();
            row.split_whitespace().take(4).map(String::from).collect()
        };
        assert_eq!(words("shards ")[1..3], ["2", "--shards"]);
        assert_eq!(words("cache_bytes")[1..3], ["3GiB", "p.toml:2:"]);
        assert_eq!(words("data")[1..3], ["./penstock-data", "default"]);
    }

    #[test]
    fn deployed_file_shows_every_option_with_its_default_and_meaning_and_nothing_else() {
        let text = include_str!("../../deploy/penstock.toml");
        let shown: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix('#'))
            .filter(|line| {
                line.split_once(" = ")
                    .is_some_and(|(key, _)| !key.contains(' '))
            })
            .collect();
        let expected: Vec<String> = OPTIONS.iter().map(ConfigOption::toml_default).collect();
        assert_eq!(shown, expected);
        for option in OPTIONS {
            let meaning = format!("# {}\n", option.meaning());
            assert!(text.contains(&meaning), "missing: {meaning}");
            let allowed = format!("# Allowed: {}.\n", option.allowed());
            assert!(text.contains(&allowed), "missing: {allowed}");
        }
        let uncommented: String = text
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(key) if !key.starts_with(' ') => format!("{key}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        assert_eq!(
            resolve(&[], &[], &uncommented).unwrap().config,
            Config::default()
        );
        assert_eq!(resolve(&[], &[], text).unwrap().config, Config::default());
    }
}
