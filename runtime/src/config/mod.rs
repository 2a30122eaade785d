//! What an operator may set, where each value came from, and what is refused.
//!
//! Every option stands once, in the table below. The flags of `penstock serve`, the `PENSTOCK_...`
//! variables, the keys of the TOML file, the resolved [`Config`], the texts of `--help` and of
//! `penstock config explain` all come from that one table. Sources rank flag > environment > file >
//! default, option by option, and each value remembers its [`Origin`]. Nothing is ignored: an
//! unknown key or variable is an error that names the nearest known one.

mod environment;
pub(crate) mod exposure;
mod link_tls;
mod option;
pub(crate) mod ports;
mod quantity;
mod removed;
mod settings;
mod source;
mod toml_file;
pub(crate) mod toml_line;

use std::net::SocketAddr;
use std::path::PathBuf;

use penstock_net::level::AckLevel;
use penstock_storage::log::segment_bytes_min;

use crate::etcd::EtcdAccess;

pub use environment::{VariableError, VariableFile};
pub use option::{ConfigOption, ENVIRONMENT_PREFIX, Group, Kind};
pub use quantity::Unit;
pub(crate) use quantity::size_text;
pub use removed::{REMOVED, RemovedOption};
pub use settings::{Settings, Sources};
pub use source::{ConfigError, Origin};

use exposure::{Exposed, Listener, Protection, Unprotected, judge};
use option::Value;
use quantity::{GIB, KIB, MIB};

/// Room that one part of a record needs beside its value: header, key, expiry, extension.
const PART_OVERHEAD_BYTES: u64 = 4 << 10;

/// A request has at most two keys, so its record has at most two values.
const PARTS_MAX: u64 = 2;

/// Room that a frame of the protocol needs beside one value.
const FRAME_ROOM_BYTES: u32 = 64 << 10;

/// Bytes of a group commit of ordinary records, at most.
pub(crate) const FRAME_BYTES: usize = 256 << 10;

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

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Time, level, message and fields, for people.
    Text,
    /// One JSON object a line, for programs.
    Json,
}

/// Which events are logged: these and all that are more severe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// What ends the server, loses something or needs a person.
    Error,
    /// What a person should know of.
    Warn,
    /// What happens in a normal life.
    Info,
}

/// Makes the resolved struct, the table and the way between them from one list.
macro_rules! options {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident: $type:ty = $default:literal, $kind:expr, $group:ident;
    )+) => {
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
    /// Address that every shard listens on together. Anything but loopback needs TLS and users, or
    /// insecure.
    listen: SocketAddr = "127.0.0.1:7411", Kind::Address, Main;
    /// Port of shard 0 for clients that know the slot map; shard i listens on this + i. 0 takes
    /// free ports.
    shard_ports: u16 = "7420", Kind::Count(0, 65535), Main;
    /// Address of the admin port: HTTP with /metrics for Prometheus, /livez and /readyz. It tells
    /// numbers and changes nothing. Anything but loopback speaks TLS with tls_cert, and needs that
    /// and admin_token_file or tls_client_ca, or insecure. If listen has port 0, so has the
    /// default.
    admin_listen: Option<SocketAddr> = "127.0.0.1:7412", Kind::AddressOrOff, Main;
    /// File with the tokens that open the admin port, one a line, at most four, each of 32
    /// characters or more. Who shows none, and no certificate that tls_client_ca signed, is told
    /// the status of /livez and /readyz and nothing else. It is read anew when it changes, and
    /// without it none is taken. off asks for none on loopback.
    admin_token_file: Option<PathBuf> = "off", Kind::PathOrOff, Main;
    /// Address for clients of Redis, which speak RESP. Anything but loopback needs TLS and users,
    /// or insecure. If listen has port 0, so has the default; a node of a cluster has none by
    /// default.
    resp_listen: Option<SocketAddr> = "127.0.0.1:7413", Kind::AddressOrOff, Main;
    /// Port of core 0 for clients of Redis that know the slots; core i listens on this + i, at the
    /// address of resp_listen. CLUSTER names each core as a node then, so that clients for clusters
    /// reach the core that owns a key. 0 opens no such ports.
    resp_shard_ports: u16 = "0", Kind::Count(0, 65535), Main;
    /// Host that CLUSTER names to clients of Redis, where they reach this server by another one
    /// than it listens on. off names the address of resp_listen, or none if that is 0.0.0.0 or
    /// [::]: some clients take the host that they asked, and others need this.
    resp_announce: Option<String> = "off", Kind::WordOrOff, Main;
    /// The port that CLUSTER names for core 0, and this + i for core i, where clients reach the
    /// cores by other ports than resp_shard_ports. 0 names those.
    resp_announce_ports: u16 = "0", Kind::Count(0, 65535), Main;
    /// Say cluster_enabled:1 in INFO and mode cluster in HELLO at a node alone, too: some clients
    /// for clusters ask for it.
    resp_cluster_enabled: bool = "false", Kind::Switch, Main;
    /// Take FLUSHALL and FLUSHDB of clients of Redis, which delete all keys. Without it they are
    /// refused.
    resp_flush: bool = "true", Kind::Switch, Main;
    /// Take DEBUG SLEEP of clients of Redis, which stops all cores of this server for up to a
    /// minute. For tests of clients.
    resp_debug: bool = "false", Kind::Switch, Main;
    /// Let transactions, scripts, MSET, DEL and RENAME of clients of Redis use keys of several
    /// shards, as one change. Without it they are refused, or take effect key by key. A node of a
    /// cluster has keys of one slot alone.
    resp_several_shards: bool = "false", Kind::Switch, Main;
    /// Shards, each on a core of its own: no more than CPUs that the process may use. 0 takes the
    /// number that the data directory has, or one per allowed CPU if it is new.
    shards: u16 = "0", Kind::Count(0, 256), Main;
    /// Interface to the kernel: io_uring, plain threads, or the better one that works here.
    io: IoMode = "auto", Kind::Choice(&["auto", "uring", "threads"]), Main;
    /// Least durability of an acknowledged write. A request that asks for less is raised to this
    /// and its reply says so.
    durability: AckLevel = "disk", Kind::Choice(&["none", "interval", "disk"]), Main;
    /// Most that a crash may take from writes acknowledged at level interval.
    interval_ms: u32 = "100ms", Kind::Duration(Unit::Milliseconds, 1, 60_000), Main;
    /// File that says which nodes there are, who writes what and who else holds it; all nodes have
    /// the same. off is a node alone. See deploy/RUNBOOK.md.
    cluster: Option<PathBuf> = "off", Kind::PathOrOff, Main;
    /// Which node of the cluster this one is, by its number in that file.
    cluster_node: u8 = "0", Kind::Count(0, 255), Main;
    /// Begin partitions that hold no data yet: given once, at the first start of a new cluster.
    cluster_new: bool = "false", Kind::Switch, Main;
    /// Members of an etcd that has the plan of the cluster, in place of a file, as URLs with commas
    /// between them; off takes the plan from cluster. See deploy/ETCD.md.
    etcd_endpoints: Option<Vec<String>> = "off", Kind::UrlsOrOff, Main;
    /// What the names of this cluster's keys in etcd begin with. Each cluster has its own.
    etcd_prefix: String = "/penstock", Kind::Word, Main;
    /// User of etcd who may read and write these keys; off asks without a login.
    etcd_user: Option<String> = "off", Kind::WordOrOff, Main;
    /// File with the password of that user, which nobody else may read.
    etcd_secret_file: Option<PathBuf> = "off", Kind::PathOrOff, Main;
    /// File with the certificates, in PEM, of those who sign the certificate of etcd: https needs
    /// it.
    etcd_ca: Option<PathBuf> = "off", Kind::PathOrOff, Main;
    /// File with the certificate, in PEM, that is shown to etcd.
    etcd_cert: Option<PathBuf> = "off", Kind::PathOrOff, Main;
    /// File with the private key of that certificate in PEM, which nobody else may read.
    etcd_key: Option<PathBuf> = "off", Kind::PathOrOff, Main;
    /// File with the secret that all nodes of the cluster have, where the plan is in etcd. A
    /// cluster's file names its own.
    cluster_secret_file: Option<PathBuf> = "off", Kind::PathOrOff, Main;
    /// File with the certificate that this node shows to the other nodes, in PEM, followed by those
    /// that signed it. With it links speak TLS 1.3 and nothing else. Links beyond loopback need it,
    /// or insecure. penstock cluster certs writes it; it is read anew when it changes.
    cluster_tls_cert: Option<PathBuf> = "off", Kind::PathOrOff, Main;
    /// File with the private key of that certificate in PEM. A key that every user of the machine
    /// can read is refused.
    cluster_tls_key: Option<PathBuf> = "off", Kind::PathOrOff, Main;
    /// File with the certificates, in PEM, of those who sign certificates of nodes.
    cluster_tls_ca: Option<PathBuf> = "off", Kind::PathOrOff, Main;
    /// Also take links without TLS, and make them to nodes that have no TLS yet. For the time in
    /// which a running cluster gets TLS; see deploy/LINK_TLS.md.
    cluster_tls_optional: bool = "false", Kind::Switch, Main;
    /// Directory of the layouts and programs, in files whose names end in .toml; off has none. A
    /// file with a defect keeps the server from starting, and SIGHUP from taking what is new. See
    /// deploy/SCHEMA.md.
    schema: Option<PathBuf> = "off", Kind::PathOrOff, Main;
    /// File of the users, their stored secrets and their rights, made by penstock user; off lets
    /// everybody in. A change counts within a second, without a signal. Nobody but the server's
    /// user and group may read the file.
    users: Option<PathBuf> = "off", Kind::PathOrOff, Main;
    /// File with the certificate of the server in PEM, followed by those that signed it. With it
    /// the ports for clients, that of RESP included, speak TLS 1.3 and nothing else. It is read
    /// anew when it changes. off serves without TLS.
    tls_cert: Option<PathBuf> = "off", Kind::PathOrOff, Main;
    /// File with the private key of that certificate in PEM. A key that every user of the machine
    /// can read is refused.
    tls_key: Option<PathBuf> = "off", Kind::PathOrOff, Main;
    /// File with the certificates, in PEM, of those who sign certificates of clients. Without
    /// users each client must show one; with users one is a way to log in. One opens the admin port
    /// beyond loopback.
    tls_client_ca: Option<PathBuf> = "off", Kind::PathOrOff, Main;
    /// Open ports to anyone on an address that other machines can reach: without TLS, without
    /// users, or without both.
    insecure: bool = "false", Kind::Switch, Main;
    /// Take the time of the machine's clock though it is more than a day ahead of the log and the
    /// kernel says that no time service keeps it: without this such a start is refused.
    accept_time: bool = "false", Kind::Switch, Main;
    /// How long a start waits for the time service before it refuses such a clock: the kernel of a
    /// machine that has just been booted says that nothing keeps the clock.
    clock_wait_s: u32 = "60s", Kind::Duration(Unit::Seconds, 0, 3_600), Main;
    /// How events are logged, one a line: time, level, message and named fields as text, or all of
    /// that as a JSON object.
    log_format: LogFormat = "text", Kind::Choice(&["text", "json"]), Main;
    /// The least severe events that are logged.
    log_level: LogLevel = "info", Kind::Choice(&["error", "warn", "info"]), Main;
    /// File that events are appended to; off logs to standard error. SIGHUP opens it anew, for
    /// logrotate.
    log_file: Option<PathBuf> = "off", Kind::PathOrOff, Main;
    /// File that the audit log is appended to, one JSON object a line: starts, stops, logins,
    /// refusals, changes of users, keyspaces and cluster. stderr is standard error. SIGHUP opens
    /// the file anew.
    audit_file: Option<PathBuf> = "off", Kind::PathOrOff, Main;
    /// Largest value. A larger one is refused with TOO_LARGE; what earlier starts accepted stays,
    /// and keeps the room that it needs.
    value_bytes_max: u32 = "1MiB", Kind::Size(1, 16 * MIB), Limits;
    /// Largest frame of the protocol, request or reply. It must hold one value of the largest size
    /// and 16 KiB beside it.
    frame_bytes_max: u32 = "2MiB", Kind::Size(32 * KIB, 32 * MIB), Limits;
    /// Steps of a script of a client of Redis. A step is an instruction of Lua, or as much work of
    /// a library function. The default is about 5 ms of a core. A script that needs more ends with
    /// an error, and nothing that it has changed stays.
    script_steps_max: u64 = "500000", Kind::Count(1_000, 1_000_000_000), Limits;
    /// Most that segment files and key tables may take, all shards together. 0 for all that the
    /// file system has. Near it key tables leave, then what grows is refused with FULL.
    disk_bytes_max: u64 = "0B", Kind::Size(0, 1 << 50), Limits;
    /// Most memory that the process takes: index, values and all else. 0 takes three quarters of
    /// what the machine or its control group has. When the index fills it, new keys are refused
    /// with FULL.
    memory_max: u64 = "0B", Kind::Size(0, 1 << 50), Limits;
    /// How long the answer of a write with a token is kept, counted from the time in the token: a
    /// retry within this is not executed again. Each token takes some 16 bytes of memory and 120 of
    /// the disk meanwhile. With little memory it is less, which INFO tells.
    token_horizon_s: u32 = "1h", Kind::Duration(Unit::Seconds, 1, 2_678_400), Limits;
    /// Connections of the whole process. A further one is answered BUSY and closed.
    connections_max: u32 = "10000", Kind::Count(1, 1_000_000), Limits;
    /// Replies that may wait for one slow reader before its requests are no longer read. It must
    /// hold one frame of frame_bytes_max.
    output_bytes_max: u32 = "4MiB", Kind::Size(32 * KIB, GIB), Limits;
    /// A connection of the native protocol without any request for so long is closed. 0 never
    /// closes one.
    idle_timeout_s: u32 = "5m", Kind::Duration(Unit::Seconds, 0, 86_400), Limits;
    /// The same of the RESP port. Pools of Redis clients expect that none is closed.
    resp_idle_timeout_s: u32 = "0s", Kind::Duration(Unit::Seconds, 0, 86_400), Limits;
    /// Of a frame or command that was begun, all that is left or 32 KiB more must come within this,
    /// again and again, or its connection is closed.
    partial_frame_timeout_ms: u32 = "5s", Kind::Duration(Unit::Milliseconds, 10, 600_000), Limits;
    /// A peer that acknowledges less than 32 KiB of its replies, and not all of them, for so long
    /// is cut off; or nothing for a twentieth of it, while others wait for room.
    write_stall_timeout_ms: u32 = "20s", Kind::Duration(Unit::Milliseconds, 10, 600_000), Limits;
    /// Memory for values, all shards together, as far as memory_max leaves it.
    cache_bytes: u64 = "1GiB", Kind::Size(MIB, 1 << 44), Tuning;
    /// How much memory for values is touched before it is needed, in percent of cache_bytes, or of
    /// memory_max if that is less. The first touch of a huge page may take milliseconds. 100
    /// touches all of it in the background behind the start. It needs huge pages.
    prefault_percent: u32 = "3", Kind::Count(0, 100), Tuning;
    /// Size of one segment file of the log. It must hold four of the largest records, and 1044KiB
    /// at least. 0 takes 64MiB, or less where six for each shard would be more than a quarter of
    /// disk_bytes_max, or of what the file system has for segments at the start. Where fewer than
    /// twelve of what is given have room there, segments are shorter.
    segment_bytes: u64 = "0B", Kind::Size(0, GIB), Tuning;
    /// Cleaning keeps the segments of the log below this share of the bytes that count in them, in
    /// percent. Lower costs more copies.
    space_percent_max: u32 = "140", Kind::Count(105, 1000), Tuning;
    /// What a shard's cleaning may read and copy in a second when there is little to do. It rises
    /// with what is to be done.
    cleaning_bytes_per_s: u64 = "32MiB", Kind::Size(64 * KIB, 16 * GIB), Tuning;
    /// Sealed segments are looked through for damage, a little at a time, all of them within this.
    /// 0 never does it.
    scrub_period_s: u32 = "168h", Kind::Duration(Unit::Seconds, 0, 31_536_000), Tuning;
    /// How long a shard with nothing to do watches for work before it sleeps. 0 sleeps at once.
    spin_us: u32 = "200us", Kind::Duration(Unit::Microseconds, 0, 10_000), Tuning;
}

impl Config {
    /// The smallest segment that a log of these values can use, in bytes.
    pub fn segment_bytes_min(&self) -> u64 {
        segment_bytes_for(self.value_bytes_max)
    }

    /// Whether this is a node of a cluster.
    pub(crate) fn is_clustered(&self) -> bool {
        self.cluster.is_some() || self.etcd_endpoints.is_some()
    }

    /// The etcd that has the plan of the cluster, if it is one.
    pub(crate) fn etcd_access(&self) -> Option<EtcdAccess> {
        Some(EtcdAccess {
            endpoints: self.etcd_endpoints.clone()?,
            prefix: self.etcd_prefix.clone(),
            user: self.etcd_user.clone(),
            secret_file: self.etcd_secret_file.clone(),
            ca: self.etcd_ca.clone(),
            cert: self.etcd_cert.clone(),
            key: self.etcd_key.clone(),
        })
    }

    /// Makes room in frames for values of `value_bytes`, which an earlier start accepted.
    pub(crate) fn make_room_for(&mut self, value_bytes: u32) {
        let frame_bytes = value_bytes.saturating_add(FRAME_ROOM_BYTES);
        if value_bytes > self.value_bytes_max {
            self.frame_bytes_max = self.frame_bytes_max.max(frame_bytes);
            self.output_bytes_max = self.output_bytes_max.max(self.frame_bytes_max);
        }
    }
}

/// The largest record of values of `value_bytes` that a request can ask the log to take, in bytes.
pub(crate) fn record_bytes_for(value_bytes: u32) -> usize {
    let record_bytes = PARTS_MAX * (u64::from(value_bytes) + PART_OVERHEAD_BYTES);
    usize::try_from(record_bytes).unwrap_or(usize::MAX / 8)
}

/// The smallest segment that a log of values of `value_bytes` can use, in bytes.
pub(crate) fn segment_bytes_for(value_bytes: u32) -> u64 {
    segment_bytes_min(FRAME_BYTES, record_bytes_for(value_bytes))
}

/// The largest values, in bytes, with which a log can use segments of `segment_bytes`.
pub(crate) fn value_bytes_fitting(segment_bytes: u64) -> u32 {
    let (mut fits, mut beyond) = (1, (16 << 20) + 1);
    while beyond - fits > 1 {
        let middle = u32::midpoint(fits, beyond);
        match segment_bytes_for(middle) <= segment_bytes {
            true => fits = middle,
            false => beyond = middle,
        }
    }
    fits
}

/// Which listeners are open to anyone who reaches them; `links` is the address for other nodes.
///
/// # Errors
/// The first listener that must not be opened.
pub(crate) fn exposed(
    config: &Config,
    links: Option<SocketAddr>,
) -> Result<Vec<Exposed>, Unprotected> {
    let listeners = [
        (Listener::Clients, Some(config.listen)),
        (Listener::Resp, config.resp_listen),
        (Listener::Admin, config.admin_listen),
        (Listener::Links, links),
    ];
    let listeners = listeners.into_iter();
    let listeners: Vec<_> = listeners.filter_map(|(it, at)| Some((it, at?))).collect();
    let protection = Protection {
        has_tls: config.tls_cert.is_some(),
        has_users: config.users.is_some(),
        has_link_tls: config.cluster_tls_cert.is_some() && !config.cluster_tls_optional,
        has_admin_proof: config.admin_token_file.is_some() || config.tls_client_ca.is_some(),
        is_insecure: config.insecure,
    };
    judge(&listeners, protection)
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

/// How a field of [`Config`] takes its value. The table pairs kinds with types and a test resolves
/// every bound of every row, so a mismatch is a mistake in the table and not in the input.
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
    Option<SocketAddr>: Value::MaybeAddress(address) => address;
    Option<PathBuf>: Value::MaybePath(path) => path;
    String: Value::Text(text) => text;
    Option<String>: Value::MaybeText(text) => text;
    Option<Vec<String>>: Value::MaybeUrls(urls) => urls;
    bool: Value::Switch(on) => on;
    u8: Value::Number(number) => u8::try_from(number).expect("the table bounds it");
    u16: Value::Number(number) => u16::try_from(number).expect("the table bounds it");
    u32: Value::Number(number) => u32::try_from(number).expect("the table bounds it");
    u64: Value::Number(number) => number;
    IoMode: Value::Word(word) => match word {
        "auto" => IoMode::Auto,
        "uring" => IoMode::Uring,
        "threads" => IoMode::Threads,
        other => panic!("the table lists {other}, which is no mode"),
    };
    LogFormat: Value::Word(word) => match word {
        "text" => LogFormat::Text,
        "json" => LogFormat::Json,
        other => panic!("the table lists {other}, which is no format"),
    };
    LogLevel: Value::Word(word) => match word {
        "error" => LogLevel::Error,
        "warn" => LogLevel::Warn,
        "info" => LogLevel::Info,
        other => panic!("the table lists {other}, which is no level of the log"),
    };
    AckLevel: Value::Word(word) => [AckLevel::None, AckLevel::Interval, AckLevel::Disk]
        .into_iter()
        .find(|level| level.name() == word)
        .expect("the table lists levels by their names");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(file: &str) -> Result<Settings, ConfigError> {
        Settings::resolve(&Sources {
            file: Some(("p.toml".into(), file.to_string())),
            ..Sources::default()
        })
    }

    #[test]
    fn values_that_fit_in_a_segment_are_the_largest_that_do() {
        for segment_bytes in [1044 << 10, 4 << 20, 64 << 20, 100_000_000] {
            let fitting = value_bytes_fitting(segment_bytes);
            assert!(segment_bytes_for(fitting) <= segment_bytes, "{fitting}");
            assert!(segment_bytes_for(fitting + 1) > segment_bytes, "{fitting}");
        }
        assert_eq!(value_bytes_fitting(1 << 30), 16 << 20);
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
    fn deployed_file_shows_every_option_with_its_default_and_meaning_and_nothing_else() {
        let text = include_str!("../../../deploy/penstock.toml");
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
        // Comments of several lines as one.
        let unwrapped = text.replace("\n# ", " ");
        for option in OPTIONS {
            let (meaning, allowed) = (option.meaning(), option.allowed());
            let line = option.toml_default();
            let comment = format!(" {meaning} Allowed: {allowed}.\n#{line}\n");
            assert!(unwrapped.contains(&comment), "missing: {comment}");
        }
        let uncommented: String = text
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(key) if !key.starts_with(' ') => format!("{key}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        assert_eq!(resolve(&uncommented).unwrap().config, Config::default());
        assert_eq!(resolve(text).unwrap().config, Config::default());
    }
}
